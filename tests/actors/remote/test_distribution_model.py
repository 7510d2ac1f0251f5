"""Three nodes on a bad network, against sentences that must hold whatever happens.

Hypothesis draws a story: casts, calls, monitors, links, actors that end, nodes that are killed and come back,
connections that are cut for a moment or for minutes. Then the network is mended and everybody is left in peace.
Whatever the story:

- every call has ended, once: with its own answer, or an `Exit`; and a request was handled once, or not at all
- what one sender cast to one actor has arrived in the order in which it was sent, each at most once
- every monitor has fired once when its target has ended, and never twice
- linked actors share their fate
- nothing is left in the tables of any node
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors import Down, Exit, ExitSignal, From, Ref, Reply, Server, System
from batonpass.actors.remote import Distribution
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import NOTHING, held, node
from tests.budget import examples

NAMES = ("alpha", "beta", "gamma")


class Target(Server[list[Any]]):
    """Keeps what it is cast and asked; slow to answer when told so."""

    trap_exit = True

    def init(self, arg: list[Any]) -> list[Any]:
        return arg

    def handle_cast(self, message: Any, state: list[Any]) -> None:
        state.append(message)

    async def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
        state.append(request)
        await trio.sleep(request[2])
        return Reply(("answer", request))


class Witness(Server[list[Any]]):
    """Monitors what it is cast, or links to it; keeps what it hears of that."""

    trap_exit = True

    def init(self, arg: list[Any]) -> list[Any]:
        return arg

    def handle_cast(self, message: tuple[str, Ref], state: list[Any]) -> None:
        what, ref = message
        if what == "monitor":
            self.monitor(ref)
        else:
            self.link(ref)

    def handle_info(self, message: Any, state: list[Any]) -> None:
        state.append(message)


class World:
    """The nodes, and everything that anybody has noted."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = MemoryNetwork(latency_s=0.01)
        self.nursery = nursery
        self.systems: dict[str, System] = {}
        self.ends: dict[str, trio.Event] = {}
        self.gone: dict[str, trio.Event] = {}
        self.lives: dict[str, list[list[Any]]] = defaultdict(list)
        self.heard: list[tuple[str, Ref, list[Any]]] = []
        self.refs: list[tuple[str, Ref]] = []
        self.sent = 0
        self.calls: list[str] = []

    async def begin(self, name: str) -> None:
        if name not in self.systems:
            self.systems[name] = await self.nursery.start(self._live, name)

    async def _live(self, name: str, *, task_status: trio.TaskStatus[System]) -> None:
        self.ends[name], self.gone[name] = trio.Event(), trio.Event()
        async with node(self.network, name) as system:
            assert isinstance(system.distribution, Distribution)
            system.distribution.publish("target")
            self._start_target(name, system)
            task_status.started(system)
            await self.ends[name].wait()
        self.gone[name].set()

    def _start_target(self, name: str, system: System) -> None:
        self.lives[name].append([])
        system.start_nowait(Target, self.lives[name][-1], name="target")

    async def kill(self, name: str) -> None:
        if name in self.systems:
            del self.systems[name]
            self.ends[name].set()
            await self.gone[name].wait()

    async def end_target(self, name: str) -> None:
        if name in self.systems:
            target = self.systems[name].whereis("target")
            assert target is not None
            target.kill()
            # `kill` lets an `async def` callback finish being cancelled first.
            await target.exited()
            self._start_target(name, self.systems[name])

    def cast(self, sender: str, receiver: str) -> None:
        if sender in self.systems:
            self.sent += 1
            self.systems[sender].remote(receiver).named("target").cast((sender, self.sent, 0.0))

    def call(self, sender: str, receiver: str, slow_s: float, timeout_s: float | None) -> None:
        if sender in self.systems:
            target = self.systems[sender].remote(receiver).named("target")
            self.calls.append("waiting")
            self.nursery.start_soon(self._call, len(self.calls) - 1, target, sender, slow_s, timeout_s)

    async def _call(self, place: int, target: Any, sender: str, slow_s: float, timeout_s: float | None) -> None:
        self.sent += 1
        request = (sender, self.sent, slow_s)
        try:
            answer = await target.call(request, timeout_s)
            assert answer == ("answer", request)
            outcome = "answered"
        except Exit as error:
            outcome = type(error).__name__
        assert self.calls[place] == "waiting"
        self.calls[place] = outcome

    async def witness(self, what: str, sender: str, receiver: str) -> None:
        if sender in self.systems:
            try:
                ref = await self.systems[sender].remote(receiver).named("target").lookup(timeout_s=2.0)
            except Exit:
                return
            if ref is not None and sender in self.systems:
                notes: list[Any] = []
                self.heard.append((what, ref, notes))
                self.systems[sender].start_nowait(Witness, notes).cast((what, ref))

    def cut(self, one: str, other: str) -> None:
        self.network.cut.add(frozenset((one, other)))

    def mend(self) -> None:
        self.network.cut.clear()
        self.network.changed()


PAIRS = st.sampled_from(
    [("alpha", "beta"), ("alpha", "beta"), ("beta", "alpha"), ("beta", "gamma"), ("gamma", "alpha")]
)
"""Few of them, so that what a story is about meets what happens to it."""
NODES = st.sampled_from(["beta", "beta", "alpha", "gamma"])
STEPS = st.one_of(
    st.tuples(st.just("cast"), PAIRS),
    st.tuples(st.just("cast"), PAIRS),
    st.tuples(st.just("call"), PAIRS, st.sampled_from([0.0, 0.5, 30.0]), st.sampled_from([0.1, 5.0, None])),
    st.tuples(st.just("witness"), PAIRS, st.sampled_from(["monitor", "link"])),
    st.tuples(st.just("witness"), PAIRS, st.sampled_from(["monitor", "link"])),
    st.tuples(st.just("end target"), NODES),
    st.tuples(st.just("kill"), NODES),
    st.tuples(st.just("begin"), NODES),
    st.tuples(st.just("break"), PAIRS, st.sampled_from([0.005, 3.0, 7.0, 12.0, 130.0])),
    st.tuples(st.just("cut"), PAIRS),
    st.tuples(st.just("mend")),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.005, 0.1, 7.0, 12.0])),
)


async def tell(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case ("cast", (sender, receiver)):
            world.cast(sender, receiver)
        case ("call", (sender, receiver), slow_s, timeout_s):
            world.call(sender, receiver, slow_s, timeout_s)
        case ("witness", (sender, receiver), what):
            await world.witness(what, sender, receiver)
        case ("end target", name):
            await world.end_target(name)
        case ("kill", name):
            await world.kill(name)
        case ("begin", name):
            await world.begin(name)
        case ("cut", (one, other)):
            world.cut(one, other)
        case ("break", (one, other), duration_s):
            world.cut(one, other)
            await trio.sleep(duration_s)
            world.mend()
        case ("mend",):
            world.mend()
        case ("wait", duration_s):
            await trio.sleep(duration_s)
        case _:
            raise AssertionError(step)


def judge(world: World) -> None:
    assert "waiting" not in world.calls
    handled: list[int] = []
    for lives in world.lives.values():
        for life in lives:
            by_sender: dict[str, list[int]] = defaultdict(list)
            for sender, number, _ in life:
                by_sender[sender].append(number)
            handled += [number for _, number, _ in life]
            for numbers in by_sender.values():
                assert numbers == sorted(numbers)
    assert len(handled) == len(set(handled))
    for _, ref, notes in world.heard:
        assert len(notes) <= 1
        for note in notes:
            assert isinstance(note, Down | ExitSignal)
            assert (note.ref if isinstance(note, Down) else note.sender) is ref


async def play(story: list[tuple[Any, ...]]) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        nursery.start_soon(world.network.serve)
        for name in NAMES:
            await world.begin(name)
        for step in story:
            await tell(world, step)
        world.mend()
        for name in NAMES:
            await world.begin(name)
        await trio.sleep(300)
        judge(world)
        # Whoever still watches somebody watches somebody living; and hears of the end.
        for name in NAMES:
            await world.end_target(name)
        await trio.sleep(30)
        judge(world)
        for system in world.systems.values():
            assert held(system) == NOTHING
            assert isinstance(system.distribution, Distribution)
            assert system.distribution.stats["violations"] == 0
        for _, ref, notes in world.heard:
            if ref.process.system in world.systems.values():
                assert len(notes) == 1, ref
        for name in NAMES:
            # And everybody can be reached.
            for other in NAMES:
                if other != name:
                    target = world.systems[name].remote(other).named("target")
                    assert (await target.call(("last", 0, 0.0)))[0] == "answer"
            await trio.sleep(1)
        for name in NAMES:
            await world.kill(name)
        nursery.cancel_scope.cancel()


@given(st.lists(STEPS, min_size=5, max_size=30))
@settings(max_examples=examples(80))
def test_whatever_happens_to_nodes_and_network_everybody_is_told_once(story: list[tuple[Any, ...]]) -> None:
    trio.run(play, story, clock=trio.testing.MockClock(autojump_threshold=0))
