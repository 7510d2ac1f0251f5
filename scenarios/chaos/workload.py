"""Clients that read and write all the time, whatever happens to the members, and write down what they were told.

Each client talks to one member until that does not answer, then to the next. A write whose outcome is unknown is
submitted again under the same command id, through whichever member, until its outcome is known. A client of registers
now and then gives one up instead, and its outcome stays open. Reads are linearizable ones.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from batonpass.scenarios.chaos.history import Addition, CounterLedger, RegisterLedger
from batonpass.scenarios.chaos.instance import Instance
from batonpass.scenarios.chaos.link import MemberGone, MemberSilent, NotAccepted
from batonpass.scenarios.chaos.member import ROOT_NAME
from batonpass.scenarios.simulation.tree.linearizability import Operation
from batonpass.scenarios.simulation.tree.registers import Action, Append, CompareAndSwap, Get, RegisterPut, Value

__all__ = ["COUNTERS", "ChaosWorkload"]

COUNTERS: Final = "counters"
_COUNTER_COUNT: Final = 3
_REGISTERS_PER_ROUND: Final = 6
# What a member is given to answer, and a little longer for its answer to come.
_ATTEMPT_S: Final = 1.0
_ANSWER_S: Final = 1.3
_RETRY_S: Final = 0.01
_THINK_S: Final = 0.004
_GIVES_UP: Final = 0.2
# Of each register's operations, so that a judgement stays cheap however much goes wrong.
_MAX_OPEN_PER_KEY: Final = 4


class _NotSubmitted(Exception):
    """The member certainly did not do it."""


@dataclass
class _Gate:
    """Lets clients through, or holds them between two operations."""

    open: bool = True
    inside: int = 0
    changed: trio.Event = field(default_factory=trio.Event)

    def note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class ChaosWorkload:
    """All clients of a run. Run `serve`; `rest` when the histories are to be judged."""

    def __init__(self, instance: Instance, seed: int, *, clients: int) -> None:
        self._instance: Final = instance
        self._seed: Final = seed
        self._clients: Final = clients
        self._gate: Final = _Gate()
        self._round = 0
        self._open_by_key: dict[str, int] = {}
        self.registers: Final = RegisterLedger()
        self.counters: Final = CounterLedger()
        self.problems: Final[list[str]] = []
        """What clients met that must never happen."""
        self.acknowledged = 0
        self.reads = 0
        self.retries = 0

    async def serve(self) -> None:
        """Run the clients until cancelled: of three, two use registers and one adds to counters."""
        async with trio.open_nursery() as nursery:
            for number in range(self._clients):
                client = _WorkloadClient(
                    self, self._instance, f"client-{number}", random.Random(f"{self._seed}/{number}")
                )
                nursery.start_soon(client.add_for_ever if number % 3 == 2 else client.use_registers_for_ever)

    def new_round(self) -> None:
        """From now on, use new registers."""
        self._round += 1

    async def rest(self) -> None:
        """Let no operation begin, and wait until those under way have ended; may take as long as the instance does."""
        self._gate.open = False
        while self._gate.inside:
            await self._gate.changed.wait()

    @property
    def under_way(self) -> int:
        """How many operations are under way."""
        return self._gate.inside

    def resume(self) -> None:
        """Let clients continue."""
        self._gate.open = True
        self._gate.note()

    async def acknowledged_more(self, count: int) -> None:
        """Wait until `count` more writes have been acknowledged."""
        wanted = self.acknowledged + count
        while self.acknowledged < wanted:
            await self._gate.changed.wait()

    # --- what clients tell ---

    async def enter(self) -> None:
        """Wait until operations may begin."""
        while not self._gate.open:
            await self._gate.changed.wait()
        self._gate.inside += 1

    def leave(self) -> None:
        """An operation has ended."""
        self._gate.inside -= 1
        self._gate.note()

    def register_of_round(self, dice: random.Random) -> str:
        """One of the registers that are in use now."""
        return f"round-{self._round:05}/r{dice.randrange(_REGISTERS_PER_ROUND)}"

    def may_give_up(self, key: str) -> bool:
        """Whether one more operation on this register may stay without an answer."""
        return self._open_by_key.get(key, 0) < _MAX_OPEN_PER_KEY

    def gave_up(self, operation: Operation) -> None:
        """An operation stays without an answer."""
        self._open_by_key[operation.key] = self._open_by_key.get(operation.key, 0) + 1
        self.registers.add(operation)


class _WorkloadClient:
    """One client: its member, its command numbers, its dice."""

    def __init__(self, workload: ChaosWorkload, instance: Instance, name: str, dice: random.Random) -> None:
        self._workload: Final = workload
        self._instance: Final = instance
        self._name: Final = name
        self._dice: Final = dice
        self._member = dice.randrange(len(instance.names))
        self._next_number = 0
        self._seen: dict[str, Value] = {}

    async def use_registers_for_ever(self) -> None:
        await self._for_ever(self._use_a_register)

    async def add_for_ever(self) -> None:
        await self._for_ever(self._add)

    async def _for_ever(self, operation: Callable[[], Any]) -> None:
        while True:
            await self._workload.enter()
            try:
                await operation()
            except NotAccepted as refused:
                self._workload.problems.append(f"{self._name} was refused a command that must be accepted: {refused}")
            finally:
                self._workload.leave()
            await trio.sleep(self._dice.expovariate(1 / _THINK_S))

    # --- registers ---

    async def _use_a_register(self) -> None:
        key = self._workload.register_of_round(self._dice)
        called_at = trio.current_time()
        action = self._choose(key)
        if isinstance(action, Get):
            answer: Any = await self._read(key)
        else:
            try:
                answer = await self._write(*_as_procedure(key, action), may_give_up=self._workload.may_give_up(key))
            except MemberSilent:
                self._workload.gave_up(Operation(self._name, key, action, None, called_at, None))
                return
        self._note_seen(key, action, answer)
        self._workload.registers.add(Operation(self._name, key, action, answer, called_at, trio.current_time()))

    def _choose(self, key: str) -> Action:
        value = f"{self._name}.{self._next_number}"
        match self._dice.randrange(10):
            case 0 | 1 | 2 | 3:
                return Get()
            case 4 | 5:
                return RegisterPut(value)
            case 6 | 7 | 8:
                return CompareAndSwap(self._seen.get(key), value)
            case _:
                return Append(f"+{value}")

    def _note_seen(self, key: str, action: Action, answer: Any) -> None:
        """Remember the newest value known to be there, for the next compare-and-swap."""
        match action:
            case Get() | Append():
                self._seen[key] = answer
            case RegisterPut(value):
                self._seen[key] = value
            case CompareAndSwap(_, value):
                if answer:
                    self._seen[key] = value

    # --- counters ---

    async def _add(self) -> None:
        counter = f"{COUNTERS}/c{self._dice.randrange(_COUNTER_COUNT)}"
        called_at = trio.current_time()
        path = [ROOT_NAME, *counter.split("/")]
        total = await self._write("chaos.add", {"path": path}, may_give_up=False)
        self._workload.counters.add(counter, Addition(self._name, called_at, trio.current_time(), total))

    # --- attempts ---

    async def _write(self, procedure: str, args: dict[str, Any], *, may_give_up: bool) -> Any:
        """Submit until the outcome is known; raises `MemberSilent` if it is given up instead."""
        command_id = [self._name, self._next_number]
        self._next_number += 1
        gives_up = may_give_up and self._dice.random() < _GIVES_UP
        while True:
            try:
                answer = await self._attempt(
                    "submit", procedure=procedure, args=args, command_id=command_id, timeout_s=_ATTEMPT_S
                )
            except _NotSubmitted:
                await trio.sleep(_RETRY_S)
            except MemberSilent:
                if gives_up:
                    raise
                await trio.sleep(_RETRY_S)
            else:
                self._workload.acknowledged += 1
                return answer
            self._workload.retries += 1

    async def _read(self, key: str) -> Any:
        while True:
            try:
                answer = await self._attempt("read", path=[ROOT_NAME, *key.split("/")], timeout_s=_ATTEMPT_S)
            except (_NotSubmitted, MemberSilent):
                await trio.sleep(_RETRY_S)
            else:
                self._workload.reads += 1
                return answer

    async def _attempt(self, op: str, **arguments: Any) -> Any:
        """Ask this client's member; if that does not answer well, the next attempt goes to the next member."""
        names = self._instance.names
        name = names[self._member % len(names)]
        try:
            if self._instance.link(name) is None:
                raise _NotSubmitted
            return await self._instance.ask(name, op, within_s=_ANSWER_S, **arguments)
        except _NotSubmitted:
            self._next_member()
            raise
        except NotAccepted as error:
            self._next_member()
            if error.code == "no_quorum":
                raise _NotSubmitted from error
            if error.code == "outcome_unknown":
                raise MemberSilent(str(error)) from error
            raise
        except (MemberSilent, MemberGone) as error:
            self._next_member()
            raise MemberSilent(str(error)) from error

    def _next_member(self) -> None:
        self._member += 1


def _as_procedure(key: str, action: Action) -> tuple[str, dict[str, Any]]:
    path = [ROOT_NAME, *key.split("/")]
    match action:
        case RegisterPut(value):
            return "chaos.write", {"path": path, "value": value}
        case CompareAndSwap(expected, value):
            return "chaos.swap", {"path": path, "expected": expected, "value": value}
        case Append(token):
            return "chaos.append", {"path": path, "value": token}
        case Get():
            raise ValueError("a read is not a procedure")
