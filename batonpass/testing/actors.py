"""Tests of actors: a system on virtual time, children that end with the test, and probes that are told what others say.

    @actor_test
    async def test_the_lobby_greets(kit: ActorKit) -> None:
        lobby = await kit.start_supervised(Lobby)
        lobby.cast(("joined", kit.probe.ref))
        await kit.probe.assert_receive(("hello", ANY))
        await kit.probe.refute_receive(("bye", ANY), timeout_s=60.0)

A minute of waiting takes no time: trio's clock jumps when all tasks wait. What is expected is a value, in which
`unittest.mock.ANY` stands for anything, a class, or a function that says whether a message is meant. As in ExUnit the
first that fits is taken, and those before it stay.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import trio
import trio.testing

from batonpass.actors import ActorSpec, ChildSpec, NoReply, Server, Supervisor, SupervisorSpec, System
from batonpass.actors.core.checks import need_timeout
from batonpass.actors.core.exits import shown

if TYPE_CHECKING:
    from batonpass.actors import From, Ref

__all__ = ["ActorKit", "Probe", "ProbeCalled", "ProbeCast", "actor_test"]

RECEIVE_S: Final = 0.1
"""How long a probe waits, unless told otherwise: ExUnit's, and no time at all on virtual time."""

_FUNCTIONS: Final = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)

_SUPERVISOR: Final = "supervised by the test"


@final
@dataclass(frozen=True, slots=True)
class ProbeCast:
    """A probe was cast to."""

    message: Any


@final
@dataclass(frozen=True, slots=True)
class ProbeCalled:
    """A probe was called: answer with `from_.reply`, or let the caller wait."""

    request: Any
    from_: From


@final
class _ProbeServer(Server[None]):
    """Keeps what it is told for its probe."""

    trap_exit = True

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def handle_call(self, request: Any, from_: From, state: None) -> NoReply[None]:
        self._probe.take(ProbeCalled(request, from_))
        return NoReply()

    def handle_cast(self, message: Any, state: None) -> None:
        self._probe.take(ProbeCast(message))

    def handle_info(self, message: Any, state: None) -> None:
        self._probe.take(message)


@final
class Probe:
    """An actor in the hands of a test: `ref` goes wherever a ref goes, and what it is told is looked at here.

    Messages (also `Down`, `Tick`, `ExitSignal`: it traps exits) are as they are; casts are `ProbeCast`, calls
    `ProbeCalled`.
    """

    def __init__(self) -> None:
        self.ref: Ref
        self._mailbox: deque[Any] = deque()
        self._news = trio.Event()

    @property
    def mailbox(self) -> list[Any]:
        """What it was told and no test has taken."""
        return list(self._mailbox)

    def monitor(self, ref: Ref) -> None:
        """Be told by `Down` when `ref` ends."""
        self.ref.process.monitor(ref)

    async def assert_receive(self, expected: Any, *, timeout_s: float = RECEIVE_S) -> Any:
        """Wait for the first message that fits, and take it. Raises `AssertionError`, with what came instead."""
        need_timeout("timeout_s of assert_receive", timeout_s)
        with trio.move_on_after(timeout_s):
            while not self._has(expected):
                self._news = trio.Event()
                await self._news.wait()
        return self.assert_received(expected)

    def assert_received(self, expected: Any) -> Any:
        """The same for what has come already."""
        for place, message in enumerate(self._mailbox):
            if _fits(message, expected):
                del self._mailbox[place]
                return message
        there = "\n  ".join(map(shown, self._mailbox)) or "nothing"
        raise AssertionError(f"nothing came that fits {_described(expected)}; there is:\n  {there}")

    async def refute_receive(self, unexpected: Any, *, timeout_s: float = RECEIVE_S) -> None:
        """Wait, and raise `AssertionError` as soon as something comes that fits, which is taken."""
        need_timeout("timeout_s of refute_receive", timeout_s)
        with trio.move_on_after(timeout_s):
            while not self._has(unexpected):
                self._news = trio.Event()
                await self._news.wait()
        self.refute_received(unexpected)

    def refute_received(self, unexpected: Any) -> None:
        """The same for what has come already."""
        for place, message in enumerate(self._mailbox):
            if _fits(message, unexpected):
                del self._mailbox[place]
                raise AssertionError(f"{shown(message)} came, which fits {_described(unexpected)}")

    def take(self, message: Any) -> None:
        """For the actor behind it."""
        self._mailbox.append(message)
        self._news.set()

    def _has(self, expected: Any) -> bool:
        return any(_fits(message, expected) for message in self._mailbox)


def _fits(message: Any, expected: Any) -> bool:
    if isinstance(expected, type):
        return isinstance(message, expected)
    if isinstance(expected, _FUNCTIONS):
        return bool(expected(message))
    return bool(message == expected)


def _described(expected: Any) -> str:
    return expected.__name__ if isinstance(expected, type) else shown(expected)


@final
class ActorKit:
    """What a test has: a `system`, a `probe`, and children that end before the test does."""

    def __init__(self, system: System, supervisor: Ref, probe: Probe) -> None:
        self.system = system
        self.probe = probe
        self._supervisor = supervisor
        self._started = 0

    async def start_supervised(
        self,
        child: ChildSpec | Callable[[], Server[Any]],
        arg: Any = None,
        *,
        id: Hashable = None,
        name: Hashable = None,
    ) -> Ref:
        """Start a child under a supervisor of this test: a specification, or a `Server` class and its `arg`.

        It is restarted as its specification says (a class: always), and ended, last one first, before the test is over.
        Raises `StartError`; `ValueError` for a child that ignores its start.
        """
        self._started += 1
        if not isinstance(child, ChildSpec):
            child = ActorSpec(id if id is not None else f"child {self._started}", child, arg, name=name)
        ref = await Supervisor.start_child(self._supervisor, child)
        if ref is None:
            raise ValueError(f"the child {child.id!r} has chosen not to run")
        return ref

    async def stop_supervised(self, id: Hashable) -> None:
        """End a child, and do not start it again. Raises `SupervisorError`: there is none of this id."""
        await Supervisor.terminate_child(self._supervisor, id)

    async def new_probe(self) -> Probe:
        """One more probe."""
        return await _start_probe(self.system)

    async def settle(self) -> None:
        """Wait until no actor has anything to do before time passes."""
        await trio.testing.wait_all_tasks_blocked()


async def _start_probe(system: System) -> Probe:
    probe = Probe()
    probe.ref = await system.start(lambda: _ProbeServer(probe))
    return probe


def actor_test(test: Callable[[ActorKit], Awaitable[None]]) -> Callable[[], None]:
    """Make an `async def` test that takes an `ActorKit` one that pytest, or any caller, calls without arguments.

    It has a system of its own, on virtual time. What the test raises is raised; a child that gives up ends it.
    """

    async def run() -> None:
        supervisor = SupervisorSpec(_SUPERVISOR, [], max_restarts=1_000_000, name=_SUPERVISOR)
        async with System.open("test", [supervisor], watchdog_s=None) as system:
            ref = system.whereis(_SUPERVISOR)
            if ref is None:
                raise RuntimeError("the supervisor of the test has ended")
            await test(ActorKit(system, ref, await _start_probe(system)))

    @functools.wraps(test)
    def called() -> None:
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    # pytest reads the arguments of what is wrapped, and would look for a fixture.
    del called.__wrapped__
    return called
