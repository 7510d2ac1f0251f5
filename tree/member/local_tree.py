"""What every backend does with its own copy of the tree, without asking others; see `tree.member.backend.Backend`.

Where the copy comes from, and how it is known to be up to date, is the business of `tree.member.replica` and
`tree.etcd`.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import trio

from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, decode_command_untrusted, encode_command
from batonpass.tree.member.status import Latencies
from batonpass.tree.member.watching import Watch
from batonpass.tree.raft.submissions import CommandId, value_of
from batonpass.tree.store.pattern import Pattern
from batonpass.tree.store.projections import ProjectionStatus
from batonpass.tree.store.store import Store
from batonpass.tree.store.triggers import Fired
from batonpass.tree.store.watch import History

__all__ = ["LocalTree"]


class LocalTree(ABC):
    """One process's copy of the tree, with its watches, and the name under which this life of it submits commands."""

    def __init__(
        self, machine: Machine, name: str, dice: random.Random, *, max_history_events: int | None = None
    ) -> None:
        """It keeps the default number of events for watches, unless it is said."""
        self._machine: Final = machine
        self._history: Final = History() if max_history_events is None else History(max_events=max_history_events)
        self._history.attach(machine.store)
        # New at every start: what an earlier life submitted is never confused with this one's commands.
        self._client_id: Final = f"{name}/{dice.getrandbits(64):016x}"
        self._next_number = 0
        self._latencies: Final = Latencies()
        self.long_work: Final = trio.Lock()

    def _next_command_id(self) -> CommandId:
        """The id of a command that no other call will submit again."""
        number = self._next_number
        self._next_number += 1
        return self._client_id, number

    @property
    def store(self) -> Store:
        """The local tree. Reads are immediate and may be behind; after `read_barrier` they are not. Do not write."""
        return self._machine.store

    @abstractmethod
    async def read_barrier(self, timeout_s: float = ...) -> None:
        """See `tree.member.backend.Backend`."""

    async def read(self, procedure: str, args: Any = None, *, timeout_s: float = 5.0) -> Any:
        """Run a procedure that only reads here, after a read barrier; see `tree.member.backend.Backend.read`."""
        # As bytes and back: the procedure sees what it would see of a command in the log, or it is refused as there.
        command = decode_command_untrusted(encode_command(Command(procedure, args, self._client_id, 0)))
        await self.read_barrier(timeout_s)
        async with self.long_work:
            return value_of(CommandAnswer.from_encoded(self._machine.read(command.procedure, command.args)))

    def pending_triggers(self) -> tuple[Fired, ...]:
        """What fired and was not acknowledged yet, as far as it is known here, in the order in which it is run."""
        return self._machine.pending_triggers()

    def projection(self, name: str) -> Mapping[Any, Any]:
        """The table of a projection that is in use, as far as the log is applied here; do not write.

        Raises `KeyError` if it is not in use.
        """
        return self._machine.projection(name)

    def projections(self) -> tuple[ProjectionStatus, ...]:
        """The projections in use, and which of them are broken."""
        return self._machine.projections()

    def watch(self, pattern: Pattern, since_revision: int | None = None, *, max_pending_events: int = 4096) -> Watch:
        """Watch what becomes known here, after `since_revision` (default: from now on).

        Raises `Compacted` when that is longer ago than the events that are kept, `BadPattern`, `BadPath`.
        """
        return Watch(self._history.watch(pattern, since_revision, max_pending_events=max_pending_events))

    @property
    @abstractmethod
    def applied_index(self) -> int:
        """See `tree.member.backend.Backend`."""

    @abstractmethod
    async def wait_applied(self, index: int) -> int:
        """See `tree.member.backend.Backend`."""

    async def changed(self, since: int | None = None) -> int:
        """Wait until the local tree may have changed since that index (default: since now); the index applied then."""
        return await self.wait_applied((self.applied_index if since is None else since) + 1)
