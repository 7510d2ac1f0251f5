"""What a type checker knows of actors: mypy, on programs that are right and on programs that are wrong."""

import re
import subprocess
import sys
from pathlib import Path

from tests.collected import ROOT

HEAD = """
from dataclasses import dataclass
from typing import Any, assert_type
from batonpass.actors import ActorSpec, From, Named, Ref, Reply, Request, Server, System, via, Registry, Supervisor
from batonpass.actors.stages import Consumer, StageOk
from batonpass.actors.machines import FirstState, StateMachine


@dataclass(frozen=True)
class HowMany(Request[int]):
    room: str


class WhoIsThere(Request[list[str]]):
    pass


class Counting(Server[int]):
    def init(self, arg: int) -> int:
        return arg

    def handle_call(self, request: Request[Any], from_: From, state: int) -> Reply[int]:
        return Reply(state)


class Waiting(Server[str]):
    async def init(self, arg: str) -> str:
        return arg


class Plain(Server[None]):
    def init(self, arg: None) -> None:
        return None


class Anything(Server[Any]):
    pass


class Door(StateMachine[str, int]):
    def init(self, arg: int) -> FirstState[str, int]:
        return FirstState("locked", arg)


class Sink(Consumer[None]):
    def init(self, arg: tuple[int, ...]) -> StageOk[None]:
        return StageOk(None)


async def program(system: System, me: Server[Any], ref: Ref, named: Named, registry: Registry) -> None:
"""

GOOD = """
    assert_type(await ref.call(HowMany("lobby")), int)
    assert_type(await named.call(HowMany("lobby"), 1.0), int)
    assert_type(await via(registry, "lobby").call(WhoIsThere(), timeout_s=None), list[str])
    assert_type(await system.named("x").call(HowMany("lobby")), int)
    assert_type(await ref.call("how many?"), Any)
    assert_type(await ref.call(("how many", "lobby")), Any)
    assert_type(await system.start(Counting, 1), Ref)
    assert_type(await system.start(Waiting, "x", name="w"), Ref)
    assert_type(await system.start(Plain), Ref)
    await system.start(Anything)
    await system.start(Anything, object(), link=ref)
    await system.start(lambda: Counting(), 1, timeout_s=1.0)
    await system.start(Door, 1)
    await system.start(Sink, (1, 2))
    assert_type(system.start_nowait(Counting, 1), Ref)
    assert_type(me.start_link_nowait(Plain), Ref)
    assert_type(await me.start_link(Waiting, "x"), Ref)
    ActorSpec("x", Counting, 1, name="x")
    ActorSpec("x", Plain)
    ActorSpec("x", Door, 1)
    ActorSpec("x", Anything, object())
    ActorSpec("x", lambda: Counting(), 1)
    specs: list[ActorSpec] = [ActorSpec("x", Counting, 1), ActorSpec("y", Plain)]
    me.monitor(named)
    me.link(via(registry, "lobby"))
    system.timers.send_after(1.0, named, "x")
"""

BAD = """
    (await ref.call(HowMany("lobby"))).upper()
    (await named.call(WhoIsThere())).keys()
    await ref.call(HowMany(7))
    await system.start(Counting, "one")
    await system.start(Waiting, 1)
    await system.start(Counting)
    await system.start(Plain, 5)
    await system.start(Counting(), 1)
    await system.start(dict)
    await system.start(Door, "one")
    await system.start(Sink, ["one"])
    system.start_nowait(Counting, None)
    me.start_link_nowait(Counting, "one")
    await me.start_link(Waiting)
    ActorSpec("x", Counting, "one")
    ActorSpec("x", Counting)
    ActorSpec("x", Waiting, 1)
    ActorSpec("x", Door, "one")
    ActorSpec("x", Counting(), 1)
    ActorSpec("x", Counting, 1, nmae="x")
    me.monitor("lobby")
    system.timers.send_after("soon", ref, "x")
    await ref.call(HowMany("lobby"), "soon")
"""


def complaints(program: str, tmp_path: Path) -> dict[int, str]:
    """What mypy says, by line of the part below the head."""
    file = tmp_path / "program.py"
    file.write_text(HEAD + program)
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *config, "--no-error-summary", "--hide-error-context", str(file)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT)
    assert done.stderr == ""
    found = re.findall(r"program\.py:(\d+): error: (.*)", done.stdout)
    assert bool(found) == bool(done.returncode), done.stdout
    return {int(line) - HEAD.count("\n") - 2: text for line, text in found}


def test_mypy_finds_nothing_in_what_is_right_and_each_line_that_is_wrong(tmp_path: Path) -> None:
    assert complaints(GOOD, tmp_path) == {}
    found = complaints(BAD, tmp_path)
    lines = BAD.strip("\n").split("\n")
    assert {lines[number] for number in range(len(lines)) if number not in found} == set()
