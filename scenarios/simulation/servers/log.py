"""The log of one instance: one machine, to which its members have ways that are cut and led by one of them.

That the log itself survives is what `baton simulate raft` is about. Here it answers late, not at all (`NoQuorum`), or
decides without saying so (`OutcomeUnknown`), and its members do not always know which of them leads. That is all that
its users can see of what happens inside. What a member's own copy of the tree may be behind by is not simulated.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from batonpass.authority.model.records import EntityRecord, LeaseOffice, LeaseRow, TransferRecord
from batonpass.authority.procedures.table import answer_of
from batonpass.homeserver.log.store import InstanceStore, replicated_procedures
from batonpass.scenarios.simulation.servers.patience import impatient
from batonpass.scenarios.simulation.servers.tasks import pause
from batonpass.tree.data.data import decode, encode_shallow
from batonpass.tree.machine.commands import CommandAnswer, Machine
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown, value_of

__all__ = ["Log", "LogSeat", "SimulatedStore"]

_COMMIT_S: Final = (0.0005, 0.004)
_AWAY_S: Final = 0.5
"""How long a homeserver waits for a log that is away before it is told so."""

Row = TypeVar("Row", EntityRecord, TransferRecord, LeaseRow, LeaseOffice)
Watch = Callable[[str, Any, Any], None]
"""Is told of every procedure, or creation among many, that was not refused: its name, its arguments and its answer."""


class Log:
    """What the members of an instance share."""

    def __init__(
        self, members: tuple[str, ...], dice: random.Random, unknown_share: float, watch: Watch,
        procedures: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._machine: Final = Machine({**impatient(replicated_procedures()), **procedures})
        self._watch: Final = watch
        self._number = 0
        self.known_rows: Final[dict[tuple[str, ...], tuple[bytes, Any]]] = {}
        """The rows that were read last, and the bytes that they were read from: for all members, as rows are frozen."""
        self.dice: Final = dice
        self.is_away = False
        self.unknown_share = unknown_share
        self.leader = members[0]
        self.seats: Final = {name: LogSeat(name, self) for name in members}

    @property
    def store(self) -> Any:
        """The tree."""
        return self._machine.store

    def run(self, procedure: str, args: Any) -> Any:
        """Apply a command, here and now."""
        self._number += 1
        # As a command that was read from the log: what the procedure is given is its alone. Repeated commands
        # are what `baton simulate raft` is about, so nothing is remembered of it here.
        encoded = self._machine.execute(procedure, decode(encode_shallow(args)), f"simulated/{self._number}")
        answer = value_of(CommandAnswer.from_encoded(encoded))
        if procedure == "entity.each":
            for (name, about), verdict in zip(args["steps"], answer, strict=True):
                if "refused" not in verdict:
                    self._watch(name, about, answer_of(verdict))
        else:
            self._watch(procedure, args, answer)
        return answer

    def lead_elsewhere(self) -> None:
        """Another member is elected, if there is one that can be."""
        others = [name for name, seat in self.seats.items() if name != self.leader and not seat.is_cut_off]
        if others:
            self.leader = self.dice.choice(others)

    def cut_off(self, name: str) -> None:
        """A member hears nothing of the others: if it led, another one does, and it does not know."""
        self.seats[name].cut(self.leader == name)
        if self.leader == name:
            self.lead_elsewhere()

    def heal(self) -> None:
        """No homeserver is cut off or away, and everything is answered."""
        self.is_away, self.unknown_share = False, 0.0
        for seat in self.seats.values():
            seat.heal()

    def mend(self, name: str) -> None:
        """A member hears of the others again."""
        self.seats[name].mend()
        if self.seats[self.leader].is_cut_off:
            self.leader = name


class LogSeat:
    """One member's way to the log, as `homeserver.log.store.InstanceStore` uses a backend."""

    def __init__(self, name: str, log: Log) -> None:
        self.name: Final = name
        self._log: Final = log
        self._cuts = 0
        self._believed = False

    @property
    def store(self) -> Any:
        """The tree."""
        return self._log.store

    @property
    def known_rows(self) -> dict[tuple[str, ...], tuple[bytes, Any]]:
        """As of the log."""
        return self._log.known_rows

    @property
    def is_cut_off(self) -> bool:
        """Whether it hears nothing of the others."""
        return self._cuts > 0

    def leads(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self._believed if self._cuts else self._log.leader == self.name

    def cut(self, leads: bool) -> None:
        """It hears nothing from here on."""
        if not self._cuts:
            self._believed = leads
        self._cuts += 1

    def mend(self) -> None:
        """One cut less."""
        self._cuts = max(self._cuts - 1, 0)

    def heal(self) -> None:
        """No cuts any more."""
        self._cuts = 0

    async def read_barrier(self) -> None:
        """As of the backend."""
        await self._reach()

    async def _reach(self) -> None:
        await pause(self._log.dice.uniform(*_COMMIT_S))
        if self._log.is_away or self._cuts:
            await pause(_AWAY_S)
            raise NoQuorum("the log is away")

    async def submit(self, procedure: str, args: Any) -> Any:
        """As of the backend."""
        await self._reach()
        answer = self._log.run(procedure, args)
        if self._log.dice.random() < self._log.unknown_share:
            await pause(_AWAY_S)
            raise OutcomeUnknown("the leader is gone", ("simulated", 0))
        return answer


class _OneByOne:
    """In place of `homeserver.log.read_barrier.SharedBarrier`: nothing is shared, as nothing is scarce here."""

    def __init__(self, barrier: Callable[[], Awaitable[None]]) -> None:
        self._barrier: Final = barrier

    async def passed(self) -> None:
        await self._barrier()


class SimulatedStore(InstanceStore):
    """The real one over a seat at a simulated log.

    Rows that are asked for all the time are read once for as long as they stay the same bytes. All members look at one
    tree, and rows are never changed in place.
    """

    def __init__(self, seat: Any) -> None:
        super().__init__(lambda: seat, _OneByOne)
        self._tree: Final = seat.store
        self._known: Final = seat.known_rows
        self._known_leases: tuple[list[bytes | None], list[LeaseRow]] = ([], [])

    def entity(self, entity_id: str) -> EntityRecord | None:
        """As `InstanceStore.entity`."""
        return self._read(("entities", entity_id), EntityRecord.from_data)

    def transfer(self, transfer_id: str) -> TransferRecord | None:
        """As `InstanceStore.transfer`."""
        return self._read(("transfers", transfer_id), TransferRecord.from_data)

    def lease(self, server: str) -> LeaseRow | None:
        """As `InstanceStore.lease`."""
        return self._read(("leases", server), LeaseRow.from_data)

    def lease_office(self) -> LeaseOffice:
        """As `InstanceStore.lease_office`."""
        return self._read(("lease_office",), LeaseOffice.from_data) or LeaseOffice()

    def leases(self) -> list[LeaseRow]:
        """As `InstanceStore.leases`."""
        table = self._tree._find(("leases",))
        encoded = [] if table is None else [node.encoded for node in table.children.values()]
        if encoded != self._known_leases[0]:
            self._known_leases = encoded, super().leases()
        return list(self._known_leases[1])

    def _read(self, path: tuple[str, ...], read: Callable[[Any], Row]) -> Row | None:
        node = self._tree._find(path)
        if node is None or node.encoded is None:
            return None
        known = self._known.get(path)
        if known is None or known[0] is not node.encoded:
            self._known[path] = known = (node.encoded, read(decode(node.encoded)))
        row: Row = known[1]
        return row
