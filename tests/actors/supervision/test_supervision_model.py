"""Whole trees of supervisors against the model, over random scripts of crashes, kills, functions and pauses.

Trees are up to three levels deep, of all strategies and dynamic ones, with every kind of child, starts that fail or are
ignored, and children that keep their supervisor waiting. Each example is one `trio.run` on a clock that only moves when
the script says so: hypothesis prints the script of a failure, and that replays exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

import trio
import trio.testing
from hypothesis import event, given, settings
from hypothesis import strategies as st

from batonpass.actors import AutoShutdown, Restart, Strategy, System
from tests.actors.supervision.model import World
from tests.actors.supervision.play import Player
from tests.actors.supervision.script import Ask, Branch, End, Leaf, Step, Wait
from tests.budget import examples

T = TypeVar("T")

# What is drawn again and again is made once: to make a strategy takes longer than to draw from it.
BOOLEANS = st.booleans()
RESTARTS = st.sampled_from(Restart)
AUTO_SHUTDOWNS = st.sampled_from(AutoShutdown)
STRATEGIES = st.sampled_from(Strategy)
UP_TO_3, UP_TO_4 = st.integers(0, 3), st.integers(0, 4)
STEPS = st.integers(1, 12)
KINDS = st.sampled_from(["end", "end", "end", "end", "ask", "start", "wait"])
VERBS = st.sampled_from(["stop", "stop", "restart", "delete"])
PAUSES = st.sampled_from([1.0, 2.5, 5.0, 6.0])
STARTS = st.one_of(st.just(""), st.text(".xi", max_size=4).map(".".__add__), st.text(".xi", max_size=3))
REASONS = st.sampled_from(["boom", "boom", "boom", "kill", "kill", "normal", "shutdown", ("shutdown", "x")])


@cache
def places(count: int) -> st.SearchStrategy[int]:
    return st.sampled_from(range(count))


def one_of(draw: st.DrawFn, several: Sequence[T]) -> T:
    return several[draw(places(len(several)))]


@cache
@st.composite
def leaves(draw: st.DrawFn, name: str, auto_shutdown: AutoShutdown) -> Leaf:
    restart = draw(RESTARTS)
    fits = auto_shutdown is not AutoShutdown.NEVER and restart is not Restart.PERMANENT
    return Leaf(name, restart, fits and draw(BOOLEANS), draw(STARTS), draw(BOOLEANS))


@cache
@st.composite
def branches(draw: st.DrawFn, name: str, levels: int, auto_shutdown: AutoShutdown = AutoShutdown.NEVER) -> Branch:
    """A supervisor under one with `auto_shutdown`; the names of those below it begin with its own."""
    restart = draw(RESTARTS)
    fits = auto_shutdown is not AutoShutdown.NEVER and restart is not Restart.PERMANENT
    own = draw(AUTO_SHUTDOWNS)
    return Branch(
        name,
        tuple(draw(kids(f"{name}{number}", levels - 1, own)) for number in range(draw(UP_TO_4))),
        restart,
        fits and draw(BOOLEANS),
        draw(STRATEGIES),
        draw(UP_TO_4),
        own,
    )


@cache
def dynamic_branches(name: str) -> st.SearchStrategy[Branch]:
    return st.builds(
        Branch,
        st.just(name),
        st.just(()),
        RESTARTS,
        strategy=st.none(),
        max_restarts=UP_TO_4,
    )


@cache
def kids(name: str, levels: int, auto_shutdown: AutoShutdown) -> st.SearchStrategy[Leaf | Branch]:
    kinds: list[st.SearchStrategy[Leaf | Branch]] = [leaves(name, auto_shutdown)] * 2
    if levels:
        kinds += [branches(name, levels, auto_shutdown), dynamic_branches(name)]
    return st.one_of(kinds)


def everybody(branch: Branch) -> Iterator[Leaf | Branch]:
    for kid in branch.kids:
        yield kid
        if isinstance(kid, Branch):
            yield from everybody(kid)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Branch, list[Step]]:
    top = replace(draw(branches("top", 3)), restart=Restart.TEMPORARY)
    names = [kid.name for kid in everybody(top)] or ["nobody"]
    supervisors = ["top", *(kid.name for kid in everybody(top) if isinstance(kid, Branch))]
    steps: list[Step] = []
    for branch in everybody(top):
        if isinstance(branch, Branch) and branch.strategy is None:
            for number in range(draw(UP_TO_3)):
                steps.append(Ask(branch.name, "start", draw(leaves(f"{branch.name}{number}", AutoShutdown.NEVER))))
                names.append(f"{branch.name}{number}")
    for number in range(draw(STEPS)):
        match draw(KINDS):
            case "end":
                steps.append(End(one_of(draw, names), draw(REASONS)))
            case "ask":
                verb = draw(VERBS)
                steps.append(Ask(one_of(draw, supervisors), verb, one_of(draw, names)))
            case "start":
                child = draw(kids(f"new{number}_", 1, draw(AUTO_SHUTDOWNS)))
                steps.append(Ask(one_of(draw, supervisors), "start", child))
                names.append(child.name)
                if isinstance(child, Branch):
                    supervisors.append(child.name)
                    names += [kid.name for kid in child.kids]
            case _:
                steps.append(Wait(draw(PAUSES)))
    return top, steps


@given(scripts())
@settings(max_examples=examples(300))
def test_supervisors_do_what_the_model_does(script: tuple[Branch, list[Step]]) -> None:
    trio.run(_play, *script, clock=trio.testing.MockClock(autojump_threshold=0))


async def _play(top: Branch, steps: list[Step]) -> None:
    world = World(top)
    branch_names = {"top"}
    # The children of a dynamic supervisor end at the same time, and have no order.
    ordered = all(kid.strategy for kid in everybody(top) if isinstance(kid, Branch))
    branch_names.update(kid.name for kid in everybody(top) if isinstance(kid, Branch))
    async with System.open("model") as system:
        player = Player(system)
        _compare(await player.start(top), world.log, ordered=ordered)
        for step in steps:
            if world.top is None or not world.top.alive:
                break
            if isinstance(step, Ask) and isinstance(step.child, Branch):
                ordered = ordered and step.child.strategy is not None
                branch_names.add(step.child.name)
                branch_names.update(kid.name for kid in step.child.kids if isinstance(kid, Branch))
            # Supervisors below one that is killed end their children while it is being restarted.
            at_once = isinstance(step, End) and step.reason == "kill" and step.name in branch_names
            _compare(await player.do(step), world.do(step), ordered=ordered and not at_once)
            if world.top.alive:
                _compare(await player.seen(), world.seen(), ordered=ordered)
        if world.top is None or not world.top.alive:
            event("the top ended")
            assert [ref.pid for ref in system.actors()] == [1], "nobody is left behind"


def _compare(happened: list[str], expected: list[str], *, ordered: bool) -> None:
    if ordered:
        assert happened == expected
    else:
        assert sorted(happened) == sorted(expected)
