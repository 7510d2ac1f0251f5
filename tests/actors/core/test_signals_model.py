"""Links, monitors, exit signals and trap_exit against a model of OTP's signal rules, over random graphs of actors.

The model knows no processes, tasks or callbacks: only who is alive, who watches whom, and what lies in whose mailbox.
A script is a list of steps; in each, one actor does up to four things within one callback, or somebody outside of all
actors does one. After each step the two must agree on who is alive and why not, on all links, and on everything that
everybody has heard, in order. Each example is one `trio.run`, so a failure replays exactly.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors import Down, ExitSignal, Ignored, Monitor, NoProc, Ref, Server, StartError, Stop, System
from batonpass.actors.core.server import IGNORE
from tests.budget import examples

START_WITH = 4
MOST_ACTORS = 8


# The model


@dataclass
class Actor:
    """What can be said about one actor."""

    name: int
    trap: bool
    parent: int | None = None
    reason: Any = None
    links: dict[int, None] = field(default_factory=dict)
    monitors: dict[int, int] = field(default_factory=dict)
    mailbox: list[tuple[str, Any, int | None]] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)
    condemned: Any = None


class Model:
    """OTP's rules, and this runtime's one addition: a callback at work is finished before its actor dies."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.signals: deque[tuple[int, Any, int]] = deque()
        self.ready: deque[int] = deque()
        self.at_work: int | None = None
        self.delivering = False
        self.monitor_count = 0

    def alive(self, name: int) -> bool:
        return self.actors[name].reason is None

    def put(self, to: int, kind: str, content: Any, sender: int | None) -> None:
        if self.alive(to):
            self.actors[to].mailbox.append((kind, content, sender))
            if to not in self.ready and to != self.at_work:
                self.ready.append(to)

    def signal(self, to: int, reason: Any, sender: int | None) -> None:
        """An exit signal arrives."""
        actor = self.actors[to]
        if not self.alive(to):
            return
        if not actor.trap:
            if reason != "normal" or sender == to:
                self.end(to, reason)
        elif sender is not None and sender == actor.parent:
            self.put(to, "STOP", reason, sender)
        else:
            self.put(to, "EXIT", reason, sender)

    def end(self, name: int, reason: Any, *, kill: bool = False) -> None:
        if not self.alive(name):
            return
        if name != self.at_work:
            self.die(name, reason)
        elif kill or self.actors[name].condemned is None:
            self.actors[name].condemned = reason

    def die(self, name: int, reason: Any) -> None:
        dead = self.actors[name]
        dead.reason = reason
        for other in self.actors:
            for monitor in [monitor for monitor, target in other.monitors.items() if target == name]:
                del other.monitors[monitor]
                self.put(other.name, "DOWN", (monitor, name, reason), None)
        for peer in dead.links:
            del self.actors[peer].links[name]
            self.signals.append((peer, reason, name))
        dead.links = {}
        dead.monitors = {}
        if len(self.signals) and not self.delivering:
            self.delivering = True
            while self.signals:
                self.signal(*self.signals.popleft())
            self.delivering = False

    # What actors do, one method for each; the result is what the actor sees of it

    def trap(self, by: int, flag: bool) -> None:
        self.actors[by].trap = flag

    def link(self, by: int, other: int) -> str | None:
        if not self.alive(other):
            if not self.actors[by].trap:
                return "noproc"
            self.signal(by, "noproc", other)
        elif other != by:
            self.actors[by].links.setdefault(other)
            self.actors[other].links.setdefault(by)
        return None

    def unlink(self, by: int, other: int) -> None:
        me = self.actors[by]
        if other in me.links:
            del me.links[other]
            del self.actors[other].links[by]
        elif not self.alive(other):
            self.take_out(me, lambda entry: entry[0] in ("EXIT", "STOP") and entry[2] == other)

    def monitor(self, by: int, other: int) -> None:
        self.monitor_count += 1
        if self.alive(other):
            self.actors[by].monitors[self.monitor_count] = other
        else:
            self.put(by, "DOWN", (self.monitor_count, other, "noproc"), None)

    def demonitor(self, by: int, number: int) -> None:
        if self.monitor_count:
            monitor = self.monitor_count - number % self.monitor_count
            if self.actors[by].monitors.pop(monitor, None) is None:
                self.take_out(self.actors[by], lambda entry: entry[0] == "DOWN" and entry[1][0] == monitor)

    def exit(self, sender: int | None, to: int, reason: Any) -> None:
        if reason == "kill":
            self.end(to, "killed", kill=True)
        else:
            self.signal(to, reason, sender)

    def start_link(self, by: int, trap: bool, outcome: str) -> str:
        child = Actor(len(self.actors), trap, parent=by)
        self.actors.append(child)
        child.links[by] = None
        self.actors[by].links[child.name] = None
        if outcome != "ok":
            self.die(child.name, "normal" if outcome == "ignore" else "cfg")
        return outcome

    def take_out(self, actor: Actor, matches: Any) -> None:
        for index in reversed(range(len(actor.mailbox))):
            if matches(actor.mailbox[index]):
                del actor.mailbox[index]
                return

    def callback(self, by: int, things: Any, result: Any) -> list[Any]:
        """One whole callback, and everything that follows from it."""
        self.at_work = by
        seen = [getattr(self, what)(by, *how) for what, *how in things]
        self.at_work = None
        me = self.actors[by]
        if me.condemned is not None:
            self.die(by, me.condemned)
        elif result is not None:
            self.stop(by, result)
        elif me.mailbox:
            self.ready.appendleft(by)
        return seen

    def stop(self, name: int, reason: Any) -> None:
        self.actors[name].heard.append(("terminate", reason))
        self.die(name, reason)

    def settle(self) -> None:
        """Everybody handles what is in its mailbox."""
        while self.ready:
            name = self.ready.popleft()
            actor = self.actors[name]
            while self.alive(name) and actor.mailbox:
                kind, content, sender = actor.mailbox.pop(0)
                if kind == "STOP":
                    self.stop(name, content)
                else:
                    actor.heard.append((kind, content, sender))

    def seen(self) -> list[Any]:
        return [(actor.reason, list(actor.links), actor.heard) for actor in self.actors]


# The real thing


class World:
    """The same, made of actors."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.refs: list[Ref] = []
        self.heard: list[list[Any]] = []
        self.monitors: dict[int, tuple[int, Monitor]] = {}
        self.seen_by_callback: list[Any] = []

    def name_of(self, ref: Ref | None) -> int | None:
        return None if ref is None else self.refs.index(ref)

    def seen(self) -> list[Any]:
        return [
            (None if ref.alive else ref.process.reason, [self.name_of(peer) for peer in ref.process.links], heard)
            for ref, heard in zip(self.refs, self.heard, strict=True)
        ]


class Node(Server[None]):
    """Does what it is cast, and writes down what it hears."""

    def init(self, arg: tuple[World, bool, str]) -> Any:
        self.world, self.trap_exit, outcome = arg
        self.name = len(self.world.refs)
        self.world.refs.append(self.ref)
        self.world.heard.append([])
        return {"ok": None, "fail": Stop("cfg"), "ignore": IGNORE}[outcome]

    def handle_cast(self, message: tuple[Any, Any], state: None) -> Stop[None] | None:
        things, result = message
        self.world.seen_by_callback = [self.do(*thing) for thing in things]
        return None if result is None else Stop(result)

    def do(self, what: str, *how: Any) -> Any:
        refs, monitors = self.world.refs, self.world.monitors
        match what, *how:
            case "trap", flag:
                self.trap_exit = flag
            case "link", other:
                return self.link_or_catch(refs[other])
            case "unlink", other:
                self.unlink(refs[other])
            case "monitor", other:
                monitors[len(monitors) + 1] = self.name, self.monitor(refs[other])
            case "demonitor", number if monitors:
                owner, monitor = monitors[len(monitors) - number % len(monitors)]
                if owner == self.name:
                    self.demonitor(monitor)
            case "exit", other, reason:
                self.exit(refs[other], reason)
            case "start_link", trap, outcome:
                return self.start_another(trap, outcome)
            case _:
                pass
        return None

    def link_or_catch(self, ref: Ref) -> str | None:
        try:
            self.link(ref)
        except NoProc:
            return "noproc"
        return None

    def start_another(self, trap: bool, outcome: str) -> str:
        try:
            self.start_link_nowait(Node, (self.world, trap, outcome))
        except Ignored:
            return "ignore"
        except StartError:
            return "fail"
        return "ok"

    def handle_info(self, message: Any, state: None) -> None:
        world = self.world
        match message:
            case ExitSignal(reason, sender):
                world.heard[self.name].append(("EXIT", reason, world.name_of(sender)))
            case Down(monitor, ref, reason):
                number = next(number for number, (_, known) in world.monitors.items() if known is monitor)
                world.heard[self.name].append(("DOWN", (number, world.name_of(ref.ref), reason), None))
            case _:
                raise AssertionError(message)

    def terminate(self, reason: object, state: None) -> None:
        self.world.heard[self.name].append(("terminate", reason))


# Scripts

REASONS = ("normal", "boom", "shutdown", "kill")
who = st.integers(0, MOST_ACTORS - 1)
reasons = st.sampled_from(["normal", "boom", "shutdown", "kill"])


@cache
def callbacks_about(focus: int) -> st.SearchStrategy[tuple[int, list[Any], str | None]]:
    """Callbacks that are mostly about one other. Made once for each: to make them takes longer than to draw one."""
    return st.tuples(st.one_of(st.just(focus), who, who), st.lists(things(focus), max_size=5), results)


def things(focus: int) -> st.SearchStrategy[Any]:
    """What an actor may do in a callback, mostly to one other: it takes two or three things in a row to go wrong."""
    other = st.one_of(st.just(focus), st.just(focus), who)
    return st.one_of(
        st.tuples(st.sampled_from(["link", "unlink", "monitor"]), other),
        st.tuples(st.just("demonitor"), st.integers(0, 3)),
        st.tuples(st.just("exit"), other, reasons),
        st.tuples(st.just("trap"), st.booleans()),
        st.tuples(st.just("start_link"), st.booleans(), st.sampled_from(["ok", "ok", "fail", "ignore"])),
    )


results = st.sampled_from([None, None, None, "normal", "boom", "kill"])
callbacks = who.flatmap(callbacks_about)
look_aways = st.tuples(
    who, st.tuples(who, who).map(lambda two: [*(_link_and_end(two[0])), *(_link_and_end(two[1])), ("unlink", two[0])])
)


def _link_and_end(other: int) -> list[Any]:
    return [("link", other), ("exit", other, "boom")]


steps = st.one_of(
    callbacks,
    callbacks,
    st.tuples(st.none(), who, reasons),
    look_aways.map(lambda step: (*step, None)),
)


@given(traps=st.lists(st.booleans(), min_size=START_WITH, max_size=START_WITH), script=st.lists(steps, max_size=20))
@settings(max_examples=examples(300))
def test_signals_do_what_the_model_does(traps: list[bool], script: list[Any]) -> None:
    trio.run(_play, traps, script, clock=trio.testing.MockClock(autojump_threshold=0))


async def _play(traps: list[bool], script: list[Any]) -> None:
    model = Model()
    async with System.open("model") as system:
        world = World(system)
        for name, trap in enumerate(traps):
            model.actors.append(Actor(name, trap))
            await system.start(Node, (world, trap, "ok"))
        for who_acts, *what in script:
            if who_acts is None:
                await _from_outside(what, model, world)
            elif model.alive(who_acts % len(model.actors)):
                await _in_a_callback(who_acts % len(model.actors), what, model, world)
            model.settle()
            await trio.testing.wait_all_tasks_blocked()
            assert world.seen() == model.seen()


async def _from_outside(what: list[Any], model: Model, world: World) -> None:
    to, reason = what[0] % len(model.actors), what[1]
    model.exit(None, to, reason)
    world.refs[to].exit(reason)


async def _in_a_callback(by: int, what: list[Any], model: Model, world: World) -> None:
    wanted, result = what
    count = len(model.actors)
    doable = [
        (kind, how[0] % count, *how[1:]) if kind in ("link", "unlink", "monitor", "exit") else (kind, *how)
        for kind, *how in wanted
        if kind != "start_link" or count < MOST_ACTORS
    ]
    world.refs[by].cast((doable, result))
    await trio.testing.wait_all_tasks_blocked()
    assert world.seen_by_callback == model.callback(by, doable, result)
