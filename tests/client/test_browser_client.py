"""The client for pages in a real browser: it follows entities, and each of its inputs is applied once, in order."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from selenium import webdriver

from batonpass.authority.model.input_fold import fold
from tests.chromium import start_chromium
from tests.client.test_door import server
from tests.client.test_page import PATIENCE_S, comes, run
from tests.homeserver.served import Home, homeserver_config, new_ports, served

EVE = "alpha.eve"
ONE = "alpha.eve-one"
PUSHES = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = start_chromium(tmp_path_factory.mktemp("chromium"), size="800,600")
    driver.set_script_timeout(PATIENCE_S)
    yield driver
    driver.quit()


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("<!doctype html><title>a game</title><link rel=icon href=data:,>")
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        async with served(config.model_copy(update={"pages": pages})) as home:
            yield home


async def servers(alpha: Home) -> None:
    for name in ("alpha.s1", "alpha.s2"):
        await server(alpha, name, player_origins=(alpha.api.url,))


async def invited(alpha: Home, players: str = "alpha.e*") -> str:
    invitation = await alpha.api.do("POST", "/v1/invitations", {"players": players, "uses": 4})
    return str(invitation["invitation"])


async def enter(browser: webdriver.Chrome, alpha: Home, player: str = EVE) -> None:
    """Load the page, and let its client in as a player that is new."""
    await trio.to_thread.run_sync(browser.get, f"{alpha.api.url}/play/")
    script = """
      const { connect, loadKeys } = await import("/play/client.js");
      const [player, invitation] = arguments;
      window.sockets = [];
      window.WebSocket = class extends window.WebSocket {
        constructor(...how) {
          super(...how);
          window.sockets.push(this);
        }
      };
      window.client = await connect(location.origin, { player, keys: await loadKeys(player), invitation });
      window.events = [];
      window.client.onevent = (message) => window.events.push(message);
      window.follow = async (watch) => {
        window.updates = [];
        try {
          for await (const { entity, ...update } of watch) {
            window.updates.push({ ...update, name: entity.name, tick: entity.tick });
          }
        } catch (refused) {
          window.updates = refused.code;
        }
      };
      return window.client.home.welcome.rights;
    """
    arguments = f"{json.dumps(player)}, {json.dumps(await invited(alpha))}"
    told = await run(browser, f"const f = async function () {{{script}}}; return await f({arguments})")
    assert set(told) == {"spawn", "own", "decide"}


async def spawn(browser: webdriver.Chrome, name: str = ONE, **params: Any) -> None:
    how = {"kind": "robot", "server": "alpha.s1", "params": {"owner": EVE, **params}}
    assert await run(browser, f"return (await window.client.spawn('{name}', {json.dumps(how)})).owner") == EVE


async def code_of(browser: webdriver.Chrome, script: str) -> Any:
    """With which code the client refuses."""
    return await run(browser, f"return await (async () => {{{script}; return 'done'}})().catch(({{code}}) => code)")


async def test_inputs_are_applied_once_whatever_becomes_of_connections_and_authority(
    alpha: Home, browser: webdriver.Chrome
) -> None:
    await servers(alpha)
    await enter(browser, alpha)
    await spawn(browser)
    await run(
        browser,
        f"""
        window.watch = await window.client.watch({{ entity: "{ONE}" }});
        window.follow(window.watch);
        window.robot = await window.client.steer("{ONE}");
        window.given = [];
        window.push = async () => {{
          for (let number = 1; number <= {PUSHES}; number += 1) {{
            window.given.push(await window.robot.give(new Uint8Array([number, 0])));
            if (number % 12 === 5) for (const {{ door }} of window.client.links.values()) door.breakOff();
            if (number % 12 === 11) window.client.home.connection.breakOff();
            await new Promise((resolve) => setTimeout(resolve, 30));
          }}
          await window.robot.durable(window.given.at(-1));
          window.done = window.robot.waiting;
        }};
        window.push();
        return 0;
        """,
    )
    # A watch skips states that a slow page had no time for; of its first server it has one before that is another.
    await comes(browser, "window.updates.some(({server}) => server === 'alpha.s1')", True)
    for number, target in enumerate(("alpha.s2", "alpha.s1", "alpha.s2"), 1):
        body = {"to": target, "transfer_id": f"transfer-{number}"}
        await alpha.api.do("POST", f"/v1/entities/{ONE}/transfers", body)
        await alpha.finished(f"transfer-{number}")
    await comes(browser, "window.done ?? null", 0)
    given = await run(browser, "return window.given")
    # Numbers begin anywhere, so that two pages of a player have different ones.
    assert given == list(range(given[0], given[0] + PUSHES))
    await comes(browser, "window.watch.serverOf('alpha.eve-one')", "alpha.s2")
    holding = alpha.simservers["alpha.s2"].holdings.get(ONE)
    assert holding is not None
    assert holding.life.look()["inputs"] == PUSHES
    digest = bytes(16)
    for number in range(PUSHES):
        digest = fold(digest, given[number], bytes([number + 1, 0]))
    cursor = holding.life.inbox.cursors[EVE]
    assert (cursor.applied, cursor.digest) == (given[-1], digest)
    assert await run(browser, "return window.client.reconnections") >= 1
    updates = await run(browser, "return window.updates")
    assert {"alpha.s1", "alpha.s2"} == {update["server"] for update in updates}
    ticks = [update["tick"] for update in updates]
    assert ticks == sorted(ticks)
    # What happens while the connection to home is broken is not told; what happens now is.
    body = {"to": "alpha.s1", "transfer_id": "transfer-4"}
    await alpha.api.do("POST", f"/v1/entities/{ONE}/transfers", body)
    told = "window.events.some(({transfer}) => transfer?.transfer_id === 'transfer-4' && transfer.result === 'done')"
    await comes(browser, told, True)
    # What is drawn is between two states, of whichever server.
    drawn = await run(
        browser, f"return (({{before, after, share}}) => [before.tick, after.tick, share])(window.watch.at('{ONE}'))"
    )
    assert drawn[0] <= drawn[1]
    assert 0 <= drawn[2] <= 1
    await run(browser, "window.client.close(); return 0")


async def test_what_is_watched_is_shown_by_all_servers_that_have_it(alpha: Home, browser: webdriver.Chrome) -> None:
    await servers(alpha)
    await enter(browser, alpha)
    for name, at in (("one", [1, 1]), ("two", [2, 2]), ("far", [500, 0])):
        await spawn(browser, f"alpha.eve-{name}", at=at)
    await alpha.api.do("POST", "/v1/entities/alpha.eve-two/transfers", {"to": "alpha.s2", "transfer_id": "transfer-1"})
    await alpha.finished("transfer-1")
    names = "[...window.watch.entities.keys()].sort().map((name) => name.slice(10)).join()"
    for asked, seen in (
        ({"owner": EVE}, "far,one,two"),
        ({"pattern": "alpha.eve-*o*"}, "one,two"),
        ({"centre": [0, 0], "radius": 5}, "one,two"),
    ):
        await run(
            browser, f"window.watch?.close(); window.watch = await window.client.watch({json.dumps(asked)}); return 0"
        )
        await comes(browser, names, seen)
    await run(browser, "window.follow(window.watch); return 0")
    await comes(browser, "window.watch.serverOf('alpha.eve-two')", "alpha.s2")
    await alpha.api.do("POST", "/v1/entities/alpha.eve-two/transfers", {"to": "alpha.s1", "transfer_id": "transfer-2"})
    await comes(browser, "window.watch.serverOf('alpha.eve-two')", "alpha.s1")
    body = "{ by: 'alpha.eve', master_rev: 1, proof: '' }"
    await run(browser, f"await window.client.home.ask('POST', '/v1/entities/alpha.eve-one/delete', {body}); return 0")
    await comes(browser, names, "two")
    await comes(browser, "window.updates.filter(({isGone}) => isGone).map(({name}) => name).join()", "alpha.eve-one")
    await comes(browser, "window.events.some(({type, entity}) => type === 'gone' && entity === 'alpha.eve-one')", True)
    await run(browser, "window.client.close(); return 0")


async def test_what_may_not_be_is_refused_with_its_code(alpha: Home, browser: webdriver.Chrome) -> None:
    await servers(alpha)
    await enter(browser, alpha)
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.hers", ada, "alpha.s1", kind="robot")
    assert await code_of(browser, "await window.client.watch({entity: 'alpha.none'})") == "not_found"
    no_areas = ("{centre: [0, 0]}", "{around: 'alpha.hers'}", "{radius: 1}", "{pattern: '*', radius: 1}")
    for asked in ("{}", "{pattern: '*', rateHz: 0}", "{owner: 'x'}", "{centre: [0, NaN], radius: 1}", *no_areas):
        assert await code_of(browser, f"await window.client.watch({asked})") == "bad_subscription"
    assert await code_of(browser, "await window.client.watch({around: 'alpha.none', radius: 5})") == "not_found"
    assert await code_of(browser, "await window.client.spawn('alpha.other', {kind: 'robot', server: 'alpha.s1'})") == (
        "not_permitted"
    )
    await run(browser, "window.follow(await window.client.watch({centre: [0, 0], radius: 1e6})); return 0")
    await comes(browser, "window.updates", "area_too_large")
    await run(browser, "window.unread = await window.client.watch({centre: [0, 0], radius: 1e6}); return 0")
    await comes(browser, "window.unread.refused?.code", "area_too_large")
    give = (
        "const hers = await window.client.steer('alpha.hers'); await hers.applied(await hers.give(new Uint8Array(2)))"
    )
    assert await code_of(browser, give) == "not_owner"
    with_wrong = "{ player: 'alpha.eric', keys: await makeKeys(), invitation: 'x.y' }"
    come_in = (
        f"const {{connect, makeKeys}} = await import('/play/client.js'); await connect(location.origin, {with_wrong})"
    )
    assert await code_of(browser, come_in) == "bad_invitation"
    stranger = come_in.replace(", invitation: 'x.y'", "")
    assert await code_of(browser, stranger) == "unknown_player"
    looks_on = "const {connect} = await import('/play/client.js'); const one = await connect(location.origin)"
    assert await code_of(browser, f"{looks_on}; await one.steer('alpha.hers')") == "not_a_player"
    await run(browser, "window.client.close(); return 0")


async def goes_over_one_connection(browser: webdriver.Chrome) -> None:
    """Requests and events go over the door that shows states and takes inputs; there is no WebSocket beside it."""
    await comes(browser, "window.client.home.way?.server", "alpha.s1")
    await comes(browser, "window.sockets.filter(({readyState}) => readyState <= WebSocket.OPEN).length", 1)


async def test_a_master_is_asked_and_says_yes_over_the_connection_that_shows_states(
    alpha: Home, browser: webdriver.Chrome
) -> None:
    await servers(alpha)
    await enter(browser, alpha)
    await spawn(browser)
    bob = await alpha.player("alpha.bob")
    # Its rule changes all the time while events come over one connection first, and then over the other.
    rules = f"""
      const {{ client }} = window;
      const seen = () => client.entity('{ONE}');
      const change = async (rule) => (await client.changeRights('{ONE}', await seen(), {{ rule }})).rule_rev;
      window.changed = (async () => {{
        while (!client.home.way) for (const rule of ["deny", "allow"]) await change(rule);
        return await change("ask");
      }})();
    """
    await run(browser, f"{rules}; window.robot = await window.client.steer('{ONE}'); return 0")
    await goes_over_one_connection(browser)
    last = await run(browser, "return await window.changed")
    told = f"window.events.filter(({{entity}}) => entity?.id === '{ONE}').map(({{entity}}) => entity.rule_rev)"
    await comes(browser, f"{told}.at(-1)", last)
    revisions = await run(browser, f"return {told}")
    assert revisions == sorted(revisions)
    assert set(revisions) == set(range(revisions[0], last + 1))
    # A door that is lost: home is reached all the same, and then over the door again.
    await run(browser, "window.client.home.way.breakOff(); return 0")
    assert await run(browser, f"return (await window.client.entity('{ONE}')).owner") == EVE
    await goes_over_one_connection(browser)
    wish = "the-wish-1"
    proof = bob.proof(action="ownership", entity=ONE, transfer_id=wish, want="by_rule", owner_rev=None)
    body = {"requester": "alpha.bob", "proof": proof, "transfer_id": wish}
    await alpha.api.do("POST", f"/v1/entities/{ONE}/ownership", body)
    asked = "window.events.filter(({type}) => type === 'question').map(({question}) => question)"
    await comes(browser, f"{asked}.map(({{requester}}) => requester)[0]", "alpha.bob")
    questions = await run(browser, "return await window.client.questions()")
    assert [each["transfer_id"] for each in questions] == ["the-wish-1"]
    assert await run(browser, f"return (await window.client.answer({asked}[0], true)).result") in {"done", "pending"}
    await comes(
        browser, f"window.events.some(({{entity}}) => entity?.id === '{ONE}' && entity.owner === 'alpha.bob')", True
    )
    give = "await window.robot.applied(await window.robot.give(new Uint8Array(2)))"
    assert await code_of(browser, give) == "not_owner"
    assert await run(browser, "return window.robot.owner") == "alpha.bob"
    # Its master needs nobody's leave to have it back, and numbers on where it was.
    assert await run(browser, f"return (await window.client.own('{ONE}')).result") == "done"
    await comes(browser, "window.robot.owner", "")
    assert await run(browser, f"{give}; return window.robot.stream.acknowledged") >= 1
    await run(browser, "window.client.close(); return 0")


async def test_of_two_pages_of_a_player_the_first_one_is_told_and_no_input_counts_that_was_not_applied(
    alpha: Home, browser: webdriver.Chrome
) -> None:
    await servers(alpha)
    await enter(browser, alpha)
    await spawn(browser)
    script = f"""
      const {{ connect, loadKeys }} = await import("/play/client.js");
      window.other = await connect(location.origin, {{ player: "{EVE}", keys: await loadKeys("{EVE}") }});
      window.steered = [await window.client.steer("{ONE}"), await window.other.steer("{ONE}")];
      window.applied = 0;
      window.codes = await Promise.all(window.steered.map(async (robot) => {{
        try {{
          for (let number = 0; number < 20; number += 1) {{
            await robot.applied(await robot.give(new Uint8Array([1, 0])));
            window.applied += 1;
          }}
          return "all";
        }} catch ({{ code }}) {{
          return code;
        }}
      }}));
      return window.codes.toSorted();
    """
    assert await run(browser, script) == ["all", "steered_elsewhere"]
    holding = alpha.simservers["alpha.s1"].holdings.get(ONE)
    assert holding is not None
    # What was applied and not told of in time is not counted, and never the other way round.
    assert 20 <= await run(browser, "return window.applied") <= holding.life.look()["inputs"]
    again = f"const robot = await (window.codes[0] === 'all' ? window.other : window.client).steer('{ONE}')"
    assert await code_of(browser, f"{again}; await robot.applied(await robot.give(new Uint8Array(2)))") == "done"
    for wrong in ("'abc'", "new Uint8Array(4097)", "null"):
        assert await code_of(browser, f"{again}; await robot.give({wrong})") is None
    await run(browser, "window.client.close(); window.other.close(); return 0")
