"""The door of a homeserver, over real sockets: who comes in, what may be asked over it, and in whose name."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from fastapi import Request
from fastapi.routing import APIRoute

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.door import MAX_IN_LOBBY
from batonpass.authority.model.enrolment import DoorGrant
from batonpass.authority.procedures.rate_limit import Rate
from batonpass.authority.wire.door import DoorHello, DoorRefusal, DoorWelcome
from batonpass.authority.wire.home_door import (
    HOME_DOOR_PATH,
    HOME_DOOR_VERSION,
    HOME_SUBPROTOCOL,
    HomeAsk,
    HomeFollow,
    HomeRenew,
    HomeSession,
    encode_home,
)
from batonpass.client.socket import DoorClosed
from batonpass.homeserver.door import door
from batonpass.homeserver.rest import make_app
from batonpass.homeserver.rest.access import AT_DOOR, PlayerAtDoor
from batonpass.homeserver.rest.allowed import ALLOWED, NOT_ALLOWED, right_for
from tests.client.test_door import raw, server
from tests.homeserver.door.visitor import visiting
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served


async def test_who_comes_in_has_proved_a_key_and_for_this_very_connection(alpha: Home) -> None:
    ada, bob = await alpha.player("alpha.ada"), Player("alpha.bob")
    async with visiting(alpha.api.url) as first:
        assert first.challenge.server == "alpha.h1"
        welcome = await first.enter(ada)
        assert (welcome.player, welcome.rights) == ("alpha.ada", ["own", "decide"])
        former = first.challenge

    async def refused(code: str, who: Player = ada, lifetime_s: float = 60.0, **changed: Any) -> None:
        async with visiting(alpha.api.url) as visitor:
            proof = visitor.proof(who, lifetime_s=lifetime_s, **changed)
            hello = DoorHello(version=HOME_DOOR_VERSION, player=who.name, proof=proof)
            assert await visitor.turned_away(hello) == code

    await refused("unknown_player", bob)
    await refused("bad_proof", challenge=former.challenge.hex())
    await refused("bad_proof", server="alpha.h2")
    await refused("bad_proof", action="session")
    await refused("bad_proof", Player("alpha.ada"))
    await refused("proof_expired", lifetime_s=-1)
    await refused("proof_expired", lifetime_s=3600)
    for code, hello in (
        ("unknown_player", DoorHello(version=1, player="alpha.h1", proof="a.b.c")),
        ("bad_token", DoorHello(version=1, player="alpha.ada", token=b"guessed")),
        ("other_version", DoorHello(version=2)),
        ("no_hello", HomeAsk(id=1, method="GET", target="/v1/servers")),
        ("bad_message", b"\xff"),
        ("bad_message", encode_home(DoorHello(version=1)) + b"\0"),
        ("bad_message", b"\xa1dtypeehello"),
    ):
        async with visiting(alpha.api.url) as visitor:
            assert await visitor.turned_away(hello) == code
    async with visiting(alpha.api.url) as visitor:
        await visitor.enter(ada)
        assert await visitor.turned_away(DoorHello(version=1)) == "bad_message"


async def test_a_homeserver_counts_who_came_to_its_door_and_what_became_of_it(alpha: Home) -> None:
    ada = await alpha.player("alpha.ada")
    async with visiting(alpha.api.url) as inside, visiting(alpha.api.url) as away, visiting(alpha.api.url) as faulty:
        await inside.enter(ada)
        await away.turned_away(DoorHello(version=1, player="alpha.ada", token=b"guessed"))
        await faulty.say(bytes(8193))
        await faulty.closed()
        door = await alpha.api.get("/v1/local/door", token=False)
    assert (door["path"], door["traffic"]["entered"]) == (HOME_DOOR_PATH, 1)
    assert (door["traffic"]["refused"], door["traffic"]["faulty"]) == ({"bad_token": 1}, 1)


async def test_before_it_is_in_a_client_sends_no_long_message(alpha: Home) -> None:
    async with visiting(alpha.api.url) as visitor:
        await visitor.say(bytes(8193))
        assert "8192 bytes" in await visitor.closed()
    ada = await alpha.player("alpha.ada")
    async with visiting(alpha.api.url) as visitor:
        await visitor.enter(ada)
        body = {
            "id": "alpha.x",
            "kind": "ball",
            "spawner": "alpha.ada",
            "server": "alpha.s1",
            "params": {"x": "y" * 9000},
        }
        await visitor.refused(403, "not_permitted", "POST", "/v1/entities", body)


async def test_a_session_of_home_opens_the_doors_of_homeservers_and_simulation_servers_and_ends_with_its_key(
    alpha: Home,
) -> None:
    node, ada, bob = await server(alpha), await alpha.player("alpha.ada"), await alpha.player("alpha.bob")
    async with visiting(alpha.api.url) as visitor:
        token = (await visitor.enter(ada)).token
        await visitor.say(HomeRenew())
        assert (await visitor.hear(HomeSession)).token
    hello = DoorHello(version=HOME_DOOR_VERSION, player="alpha.ada", token=token)
    for _ in range(2):
        async with visiting(alpha.api.url) as visitor:
            assert (await visitor.enter(ada, token)).player == "alpha.ada"
        async with raw(node) as client:
            await client.say(hello)
            assert (await client.hear(DoorWelcome)).player == "alpha.ada"
    stolen = hello.model_copy(update={"player": "alpha.bob"})
    async with visiting(alpha.api.url) as visitor:
        assert await visitor.turned_away(stolen) == "bad_token"
    async with raw(node) as client:
        await client.say(stolen)
        assert (await client.hear(DoorRefusal)).code == "bad_token"
    async with visiting(alpha.api.url) as visitor:
        mine = visitor.proof(bob, action="session").encode()
        assert await visitor.turned_away(hello.model_copy(update={"player": "alpha.bob", "token": mine})) == "bad_token"
    alpha.clock.ahead_s = 400.0
    async with visiting(alpha.api.url) as visitor:
        assert await visitor.turned_away(hello) == "bad_token"


async def test_a_player_does_at_the_door_what_takes_the_client_token_and_signatures_elsewhere(alpha: Home) -> None:
    await server(alpha)
    ada, bob = await alpha.player("alpha.ada"), await alpha.player("alpha.bob")
    await alpha.api.do("PUT", "/v1/players/alpha.ada/enrolment", {"kinds": ["robot"]})
    async with visiting(alpha.api.url) as mine, visiting(alpha.api.url) as other:
        assert (await mine.enter(ada)).rights == ["spawn", "own", "decide"]
        await other.enter(bob)
        robot = {
            "id": "alpha.ada-1",
            "kind": "robot",
            "spawner": "alpha.ada",
            "server": "alpha.s1",
            "params": {"at": [5, 5]},
        }
        await other.refused(403, "not_permitted", "POST", "/v1/entities", robot)
        await other.refused(403, "not_permitted", "POST", "/v1/entities", robot | {"spawner": "alpha.bob"})
        await mine.refused(403, "not_permitted", "POST", "/v1/entities", robot | {"spawner": "alpha.bob"})
        await mine.refused(403, "not_permitted", "POST", "/v1/entities", robot | {"id": "alpha.x"})
        await mine.refused(403, "not_permitted", "POST", "/v1/entities", robot | {"kind": "ball"})
        assert (await mine.do("POST", "/v1/entities", robot))["owner"] == "alpha.ada"
        found = await other.do("GET", "/v1/entities/alpha.ada-1?consistency=local")
        assert found["authority"] == "alpha.s1"
        where = await other.do("GET", "/v1/servers/alpha.s1/door")
        assert where == {"server": "alpha.s1", "url": alpha.simservers["alpha.s1"].player_url}

        wish = {"requester": "alpha.bob", "transfer_id": "wish-0001", "proof": ""}
        await mine.refused(403, "wrong_signer", "POST", "/v1/entities/alpha.ada-1/ownership", wish)
        asked = await other.do("POST", "/v1/entities/alpha.ada-1/ownership", wish)
        assert asked["phase"] == "asked"
        yes = {"by": "alpha.ada", "allow": True, "master_rev": 1, "proof": ""}
        await other.refused(403, "wrong_signer", "POST", "/v1/transfers/wish-0001/answer", yes)
        assert (await mine.do("POST", "/v1/transfers/wish-0001/answer", yes))["phase"] == "done"
        assert (await mine.do("GET", "/v1/entities/alpha.ada-1"))["owner"] == "alpha.bob"

        up = {"by": "alpha.bob", "proof": ""}
        await other.refused(403, "proof_mismatch", "POST", "/v1/entities/alpha.ada-1/divest", up)
        seen = up | {"proof": json.dumps({"owner_rev": 1})}
        await other.refused(409, "stale_revision", "POST", "/v1/entities/alpha.ada-1/divest", seen)
        seen = up | {"proof": json.dumps({"owner_rev": 2, "action": "divest"})}
        assert (await other.do("POST", "/v1/entities/alpha.ada-1/divest", seen))["owner"] == ""
        for proof in ("{", "[1]", '{"a": NaN}', '{"action": "hand_back", "owner_rev": 3}'):
            status, answer = await other.ask("POST", "/v1/entities/alpha.ada-1/divest", up | {"proof": proof})
            assert (status, answer["code"]) in ((403, "bad_proof"), (403, "proof_mismatch")), answer

        # What needs the client token and no proof is not for players.
        system = {"to": "alpha.s1"}
        await mine.refused(403, "not_permitted", "POST", "/v1/entities/alpha.ada-1/transfers", system)
        for method, target in (
            ("GET", "/v1/tree/players"),
            ("GET", "/v1/export"),
            ("GET", "/v1/players/alpha.ada/enrolment"),
            ("GET", "/v1/invitations"),
            ("GET", "/v1/actors"),
            ("PUT", "/v1/players/alpha.ada/enrolment"),
            ("PUT", "/v1/entities/alpha.ada-1/delegation"),
            ("POST", "/v1/invitations"),
            ("POST", "/v1/groups"),
            ("POST", "/v1/handoffs"),
            ("GET", "/v1/entities/alpha.ada-1/../../tree"),
            ("GET", "/v1/entities/%2e%2e%2ftree"),
        ):
            status, answer = await mine.ask(method, target, {} if method != "GET" else None)
            assert status in (404, 422), (method, target, answer)
        # Over HTTP nothing of it is let in without its token.
        await alpha.api.refused(401, "no_token", "POST", "/v1/entities/alpha.ada-1/divest", seen, token=False)


async def test_an_observer_looks_and_changes_nothing(alpha: Home) -> None:
    async with visiting(alpha.api.url) as visitor:
        assert (await visitor.enter()).rights == []
        assert [row["name"] for row in await visitor.do("GET", "/v1/servers")] == ["alpha.h1"]
        await visitor.refused(403, "not_permitted", "POST", "/v1/entities", {})
        await visitor.refused(404, "not_found", "GET", "/v1/entities/alpha.nothing")


async def test_a_key_that_is_revoked_ends_what_came_in_with_it(alpha: Home) -> None:
    ada = await alpha.player("alpha.ada")
    async with visiting(alpha.api.url) as visitor:
        token = (await visitor.enter(ada)).token
        await visitor.do("GET", "/v1/servers")
        new = Player("alpha.ada")
        body = {"keys": new.keys, "reason": "stolen"}
        operator = (alpha.directory / "operator").read_text()
        headers = {"authorization": f"Bearer {operator}"}
        answer = await alpha.api.http.post("/v1/directory/alpha.ada/reset", json=body, headers=headers)
        assert answer.is_success, answer.text
        await visitor.say(HomeAsk(id=99, method="GET", target="/v1/servers"))
        assert (await visitor.hear(object)).type == "refused"
        assert await visitor.closed() == "bad_token"
    async with visiting(alpha.api.url) as visitor:
        hello = DoorHello(version=HOME_DOOR_VERSION, player="alpha.ada", token=token)
        assert await visitor.turned_away(hello) == "bad_token"


async def test_a_player_that_changes_too_much_is_told_when_to_go_on_and_others_go_on(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "CHANGES_RATE", Rate(burst=4, per_s=0.001))
    ada, bob = await alpha.player("alpha.ada"), await alpha.player("alpha.bob")
    async with visiting(alpha.api.url) as mine, visiting(alpha.api.url) as other:
        await mine.enter(ada)
        await other.enter(bob)
        body = {"by": "alpha.ada", "proof": ""}
        for number in range(1, 10):
            await mine.say(
                HomeAsk(id=number, method="POST", target="/v1/entities/alpha.x/divest", body=json.dumps(body).encode())
            )
        codes = [json.loads((await mine.hear(object)).body)["code"] for _ in range(9)]
        assert sorted(codes) == ["not_found"] * 4 + ["too_often"] * 5
        await mine.do("GET", "/v1/servers")
        await other.refused(404, "not_found", "POST", "/v1/entities/alpha.x/divest", body | {"by": "alpha.bob"})


async def _passes(guards: list[Any], request: Request) -> bool:
    try:
        for check in guards:
            await check(request, None)
    except ApiError:
        return False
    return True


async def test_the_table_of_what_may_be_asked_has_the_routes_that_let_the_door_in_and_no_other_that_changes(
    alpha: Home,
) -> None:
    """Both guards of a route are there, or none."""
    let_in, changing = set(), set()
    for route in make_app(alpha.node).router.routes:
        if not isinstance(route, APIRoute):
            continue  # the document of the API
        checks = [one.dependency for one in route.dependencies]
        guards = [check for check in checks if check is not None and "checked" in check.__qualname__]
        at_door = Request({"type": "http", "headers": [], AT_DOOR: PlayerAtDoor("alpha.ada", DoorGrant())})
        # What lets strangers in, as the map of an instance on loopback, does not let players in for being at the door.
        is_let_in = await _passes(guards, at_door) and not await _passes(
            guards, Request({"type": "http", "headers": []})
        )
        for method in route.methods or ():
            if is_let_in:
                let_in.add((method, route.path_format))
            if method != "GET":
                changing.add((method, route.path_format))
    table = {asked for asked, right in ALLOWED.items() if right is not None}
    assert table == let_in
    assert {asked for asked in ALLOWED if asked[0] != "GET"} == table <= changing
    assert right_for("POST", "/v1/groups") == NOT_ALLOWED


async def test_requests_are_answered_beside_each_other_and_a_client_that_reads_nothing_is_cut_off(
    alpha: Home,
) -> None:
    ada = await alpha.player("alpha.ada")
    async with visiting(alpha.api.url) as visitor:
        await visitor.enter(ada)
        await visitor.say(HomeFollow(entities=["alpha.none"]))
        await visitor.say(HomeFollow(entities=[]))
        for number in range(1, 40):
            await visitor.say(HomeAsk(id=number, method="GET", target="/v1/servers"))
        seen = {(await visitor.hear(object)).type for _ in range(40)}
        assert seen >= {"answer"}
    await trio.lowlevel.checkpoint()


async def test_pages_of_other_origins_and_other_paths_open_nothing(tmp_path: Path) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": HOME_SUBPROTOCOL,
    }
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        origins = {"player_origins": ("https://game.example",), "player_observers": False}
        async with served(config.model_copy(update=origins)) as home:

            async def status(path: str, **more: str) -> int:
                async with home.api.http.stream("GET", path, headers=headers | more) as answer:
                    return answer.status_code

            assert await status(HOME_DOOR_PATH) == 101
            assert await status(HOME_DOOR_PATH, origin="https://game.example") == 101
            assert await status(HOME_DOOR_PATH, origin=home.api.url) == 101
            assert await status(HOME_DOOR_PATH, origin="https://evil.example") == 403
            assert await status(HOME_DOOR_PATH, origin="null") == 403
            assert await status("/v1/tree") == 404
            for other in ("chat", "batonpass.door.1", f"{HOME_SUBPROTOCOL}0"):
                assert await status(HOME_DOOR_PATH, **{"sec-websocket-protocol": other}) == 400
            async with visiting(home.api.url) as visitor:
                assert await visitor.turned_away(DoorHello(version=HOME_DOOR_VERSION)) == "no_observers"


async def test_no_address_has_all_the_places_at_the_door_and_rest_keeps_its_own(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_CLIENTS_OF_A_PLACE", 2)
    async with visiting(alpha.api.url), visiting(alpha.api.url):
        with pytest.raises(DoorClosed, match="503"):
            async with visiting(alpha.api.url):
                pass
        assert await alpha.api.get("/v1/servers")
    async with visiting(alpha.api.url) as visitor:
        await visitor.enter()


async def test_strangers_who_say_nothing_keep_nobody_out(alpha: Home) -> None:
    ada = await alpha.player("alpha.ada")
    async with AsyncExitStack() as strangers:
        first = await strangers.enter_async_context(visiting(alpha.api.url))
        for _ in range(MAX_IN_LOBBY - 1):
            await strangers.enter_async_context(visiting(alpha.api.url))
        async with visiting(alpha.api.url) as visitor:
            assert (await visitor.enter(ada)).player == "alpha.ada"
            assert await first.closed() == "no_hello"
