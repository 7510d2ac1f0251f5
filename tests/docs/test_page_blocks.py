"""Every block of code that a page shows is run: by the test that stands here beside its page, or by one below."""

import ast
import json
import re
import sys
import tomllib
from collections import Counter as Counts
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest
import trio
import trio.testing

from batonpass.actors import System
from batonpass.actors.base.clock import Clock
from batonpass.actors.core import telemetry as actors_telemetry
from batonpass.actors.core.telemetry import Telemetry
from batonpass.authority.node.metrics import open_metrics
from batonpass.authority.node.spans import FREEZE, Spans
from batonpass.simserver.sync.browser.pages import browser_pages
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StaticPage, StreamDoor
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Carried, Step
from batonpass.testing import TickedWorld
from tests.actors.servers import Counter
from tests.docs.pages import PAGES, ROOT, Block, blocks, is_in

SHOWN: Final = [block for page in PAGES if not is_in(page, "history") for block in blocks(page)]
OF_PYTHON: Final = [block for block in SHOWN if block.language == "python"]

HERE: Final = "tests/docs/test_page_blocks.py"
RUN_BY: Final = {
    "README.md": HERE,
    "docs/explanation/actors.md": "tests/actors/core/test_docs_example.py",
    "docs/explanation/followers.md": "tests/simserver/sync/followers/test_guide.py",
    "docs/explanation/interaction.md": HERE,
    "docs/explanation/messages.md": HERE,
    "docs/explanation/timeline.md": "tests/simserver/sync/timeline/test_guide.py",
    "docs/guides/actor-cluster.md": "tests/authority/node/test_names_guide.py",
    "docs/guides/batch-worlds.md": "tests/scenarios/boids/test_batch_guide.py",
    "docs/guides/lockstep-browser.md": HERE,
    "docs/guides/metrics.md": HERE,
    "docs/guides/observe.md": HERE,
    "docs/guides/regions.md": HERE,
    "docs/guides/scene-guide.md": "tests/simserver/sync/scene/test_guide.py",
    "docs/guides/scene-hosting.md": "tests/scenarios/scenes/test_hosted_scenes.py",
    "docs/guides/testing.md": "tests/testing/test_plugin.py",
    "docs/guides/worlds.md": HERE,
    "docs/reference/actors-for-otp.md": "tests/actors/core/test_docs_example.py",
    "docs/reference/actors-remote.md": "tests/actors/remote/test_docs.py",
    "docs/reference/commit-feed.md": "tests/test_docs.py",
    "docs/reference/event-stream.md": HERE,
    "docs/reference/lockstep.md": "tests/simserver/sync/lockstep/test_guide.py",
    "docs/reference/operations.md": "tests/homeserver/transfer/test_refused_orders.py",
    "docs/reference/python-client.md": "tests/client/test_python_client_page.py",
    "docs/reference/rest.md": "tests/homeserver/rest/test_docs.py",
    "docs/reference/scene.md": "tests/simserver/sync/scene/test_guide.py",
    "docs/reference/tree.md": "tests/tree/member/test_docs_example.py",
    "docs/reference/world.md": "tests/test_docs.py",
    "docs/tutorial/first-shared-world.md": "tests/tutorial/test_first_shared_world.py",
}
BROWSER: Final = {
    "/play/client.js": ROOT / "authority" / "browser" / "client.js",
    "/client.js": ROOT / "authority" / "browser" / "client.js",
    "./client.js": ROOT / "authority" / "browser" / "client.js",
    "./events.js": ROOT / "simserver" / "sync" / "browser" / "events.js",
}


def id_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def sources_of(page: str) -> list[str]:
    return [block.text for block in OF_PYTHON if block.page == page]


def test_every_page_with_python_has_a_test_that_runs_it() -> None:
    assert {block.page for block in OF_PYTHON} == set(RUN_BY)
    for page, test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not name {page}"


@pytest.mark.parametrize("block", OF_PYTHON, ids=id_of)
def test_a_block_of_python_compiles(block: Block) -> None:
    compile(block.text, id_of(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", [block for block in SHOWN if block.language == "json"], ids=id_of)
def test_a_block_of_json_is_json(block: Block) -> None:
    """One value, or several one after the other."""
    left, decoder = block.text.strip(), json.JSONDecoder()
    while left:
        _, end = decoder.raw_decode(left)
        left = left[end:].strip()


@pytest.mark.parametrize("block", [block for block in SHOWN if block.language == "toml"], ids=id_of)
def test_a_block_of_toml_is_toml(block: Block) -> None:
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("block", [block for block in SHOWN if block.language == "js"], ids=id_of)
def test_a_block_of_a_page_imports_what_its_module_exports(block: Block) -> None:
    for names, module in re.findall(r"import \{([^}]*)\} from \"([^\"]+)\"", block.text):
        text = BROWSER[module].read_text(encoding="utf-8")
        exported = set(re.findall(r"^export (?:async )?(?:class|function|const) (\w+)", text, flags=re.MULTILINE))
        exported |= {name.strip() for group in re.findall(r"export \{([^}]*)\}", text) for name in group.split(",")}
        assert {name.strip() for name in names.split(",")} <= exported


def world_of(page: str, name: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile("".join(sources_of(page)), page, "exec"), names)  # noqa: S102 — our own text
    return names[name]()


def test_the_lamps_of_the_readme_are_a_world() -> None:
    world = world_of("README.md", "Lamps")
    lamp = world.spawn("lamp", {"on": True})
    assert world.step(lamp, [PendingInput("alpha.ada", 1, b"x")], 0.05) == {"on": False}
    assert world.step(lamp, [], 0.05) == lamp == {"on": True}
    assert [world.destination(lamp, "alpha.s1", ticks) for ticks in (199, 200)] == [None, "alpha.s2"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "`lamps.py`:" in text
    assert "--world lamps:Lamps" in text


def test_the_lamps_of_the_page_about_messages_are_lit_by_their_switches() -> None:
    world = TickedWorld(world_of("docs/explanation/messages.md", "Lamps"))
    world.spawn("alpha.switch", "switch", lamp="alpha.lamp")
    world.spawn("alpha.lamp", "lamp")
    world.spawn("alpha.loose", "switch", lamp="alpha.nobody")
    for entity in ("alpha.switch", "alpha.loose"):
        world.give(entity, b"press")
    world.tick(3)
    assert world.state("alpha.lamp")["lit"]
    assert world.state("alpha.loose")["lamp"] == ""


def test_the_worlds_of_the_guide_count_and_throw() -> None:
    dice = world_of("docs/guides/worlds.md", "Dice")
    assert dice.step({"count": 3}, [PendingInput("alpha.ada", 1, b"xy")], 0.05) == {"count": 5}
    carried, state = Carried.of_new("alpha.die"), {"count": 0}
    for tick in range(1, 22):
        step = Step(carried, tick)
        state, carried = dice.advance(state, [], 0.05, step), step.carried()
    assert 1 <= state["count"] <= 6


def test_the_robots_of_the_guides_move_and_look_around() -> None:
    robots = world_of("docs/guides/regions.md", "Robots")
    moved = robots.step(robots.spawn("robot", {}), [], 0.5)
    assert robots.position(moved) == (0.5, 0.0)
    choosing = world_of("docs/guides/regions.md", "Choosing")
    choosing.takers_changed(("alpha.s1", "alpha.s2"))
    assert choosing.servers == ("alpha.s1", "alpha.s2")
    _, _, looking, touch = sources_of("docs/explanation/interaction.md")
    names: dict[str, Any] = {}
    exec(compile(looking, "interaction.md", "exec"), names)  # noqa: S102 — our own text
    looking = names["Robots"]()
    state = {"at": [1.0, 2.0]}
    assert looking.position(state) == [1.0, 2.0]
    places: list[tuple[Any, ...]] = []

    def near(*place: Any) -> list[Any]:
        places.append(place)
        return []

    alone = SimpleNamespace(near=near, ghosts=lambda *_place: [])
    assert looking.advance(state, [], 0.05, alone) == state
    assert places == [([1.0, 2.0], 2.0)]
    assert {"near", "ghosts", "touch"} <= set(dir(Step))
    touched: list[str] = []
    beside = SimpleNamespace(ghosts=lambda *_place: [SimpleNamespace(entity="beta.r-2")], touch=touched.append)
    exec(compile(touch, "interaction.md", "exec"), {"step": beside, "state": state})  # noqa: S102 — our own text
    assert touched == ["beta.r-2"]


def test_the_discs_of_the_page_about_interaction_bounce(monkeypatch: pytest.MonkeyPatch) -> None:
    world, test, *_ = sources_of("docs/explanation/interaction.md")
    discs = ModuleType("discs")
    exec(compile(world, "discs.py", "exec"), discs.__dict__)  # noqa: S102 — our own text
    monkeypatch.setitem(sys.modules, "discs", discs)
    names: dict[str, Any] = {}
    exec(compile(test, "interaction.md", "exec"), names)  # noqa: S102 — our own text
    names["test_two_discs_exchange_their_speeds_over_a_border"](TickedWorld)
    # On one server and over a border it is the same, and no wall lets one through.
    ends = []
    for there in ("alpha.s1", "alpha.s2"):
        floor = TickedWorld(discs.__dict__["Discs"]())
        floor.spawn("alpha.a", "disc", at=[4.0, 5.0], v=[3.0, 1.0])
        floor.spawn("alpha.b", "disc", server=there, at=[8.0, 5.5], v=[-2.0, 1.5])
        floor.run(30.0)
        ends.append([floor.state(name) for name in ("alpha.a", "alpha.b")])
    assert ends[0] == ends[1]
    assert all(0 <= along <= 20 for state in ends[0] for along in state["at"])


def test_the_lamps_of_the_page_of_messages_toggle_each_other() -> None:
    lamps = world_of("docs/explanation/messages.md", "Lamps")
    sent: list[tuple[str, bytes]] = []
    step = SimpleNamespace(send=lambda to, data: sent.append((to, data)), messages=[], refused=[])
    switch = lamps.spawn("lamp", {"lamp": "beta.lamp"})
    assert lamps.advance(switch, [PendingInput("alpha.ada", 1, b"x")], 0.05, step) == switch
    assert sent == [("beta.lamp", b"toggle")]
    step = SimpleNamespace(messages=[SimpleNamespace(data=b"toggle")], refused=[SimpleNamespace(reason="deleted")])
    assert lamps.advance(switch, [], 0.05, step) == {"lit": True, "lamp": ""}
    real = Step(Carried.of_new("alpha.lamp"), 1)
    assert [hasattr(real, name) for name in ("send", "messages", "refused")] == [True, True, True]


async def run_block(source: str, names: dict[str, Any]) -> dict[str, Any]:
    code = compile(source, "a block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(code, names)  # noqa: S307 — our own text
    if answer is not None:
        await answer
    return names


async def test_a_live_actor_is_looked_into_as_the_guide_says() -> None:
    source, handler, metrics = sources_of("docs/guides/observe.md")
    async with System.open("test") as system:
        ref = await system.start(Counter, 7)
        # Its last lines follow a trace, which has no end.
        names = await run_block(source.partition("with sys.trace")[0], {"ref": ref})
        assert names["state"] == 7
        assert await names["sys"].get_state(ref) == 8
        told: dict[str, Any] = {"system": system, "telemetry": actors_telemetry, "metrics": Counts()}
        await run_block(handler, told)
        system.telemetry.execute(actors_telemetry.ACTOR_CRASH, {}, {"ref": ref})
        assert told["metrics"] == {"test": 1}
        shown = await run_block(metrics, {"system": system})
        await system.start_child(shown["poller"])
        await trio.testing.wait_all_tasks_blocked()
        assert f"actors {float(system.stats.actors)}" in shown["shown"].exposition()[0].decode()


async def test_metrics_of_ones_own_are_counted_as_the_guide_says() -> None:
    (source,) = sources_of("docs/guides/metrics.md")
    telemetry = Telemetry(lambda: 0.0)
    listed = (await run_block(source, {}))["frozen"](telemetry, "alpha.s1")
    metrics = open_metrics(telemetry, "alpha.s1", "simserver", tuple, listed)
    assert metrics is not None
    Spans(telemetry, "alpha.s1", lambda: 0).start(FREEZE, 0, {}, case="2").stop(500_000_000, "retired")
    assert 'batonpass_frozen_seconds{case="2"} 0.5' in metrics.exposition()[0].decode()


async def test_the_servers_of_streams_in_the_reference_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = sources_of("docs/reference/event-stream.md")
    ran: list[Any] = []
    monkeypatch.setattr(trio, "run", ran.append)
    names: dict[str, Any] = {"__name__": "stream"}
    exec(compile(source.replace("9922", "0"), "event-stream.md", "exec"), names)  # noqa: S102 — our own text
    listens, printed = trio.Event(), list[Any]()

    def printed_is(value: Any) -> None:
        printed.append(value)
        listens.set()

    names["print"] = printed_is
    with trio.move_on_after(5) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ran[0])
            await listens.wait()
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert printed


def test_the_client_of_a_stream_in_the_reference_imports_what_there_is() -> None:
    """It needs a cluster; `tests/scenarios/lockstep` runs the same lines."""
    source, _ = sources_of("docs/reference/event-stream.md")
    imports = "\n".join(line for line in source.splitlines() if line.startswith("from "))
    names: dict[str, Any] = {}
    exec(compile(imports, "event-stream.md", "exec"), names)  # noqa: S102 — our own text
    assert {"HttpClient", "PROVED", "door_over_link", "link_transport"} <= set(names)


def test_the_pages_of_streams_are_those_of_the_door() -> None:
    names: dict[str, Any] = {
        "Clock": Clock,
        "StaticPage": StaticPage,
        "StreamDoor": StreamDoor,
        "PolledHost": PolledHost,
        "browser_pages": browser_pages,
    }
    (source,) = sources_of("docs/guides/lockstep-browser.md")
    exec(compile(source, "lockstep-browser.md", "exec"), names)  # noqa: S102 — our own text
    assert names["pages"]
