"""What a program may expect of whatever keeps its tree: the same operations on our own Raft and on etcd.

`tree.member.replica.Replica` and `tree.etcd.EtcdReplica` are backends. The meaning of every operation is stated here.
What differs between the two is only where the tree is kept and what `status` can tell about that.
"""

from typing import Any, Protocol

import trio

from batonpass.tree.member.status import ReplicaStatus
from batonpass.tree.member.watching import Watch
from batonpass.tree.net.transport import Refusal
from batonpass.tree.raft.submissions import CommandId
from batonpass.tree.store.pattern import Pattern
from batonpass.tree.store.store import Store

__all__ = ["Backend"]


class Backend(Protocol):
    """One process's part in keeping the tree of an instance. Run `serve`, then submit and read."""

    async def serve(self, *, task_status: trio.TaskStatus[None] = ...) -> None:
        """Run until cancelled; started when commands are accepted. Can be called once.

        What it raises ends the process: it is a sentence for the operator, and not worth a retry without a change.
        """

    async def submit(
        self, procedure: str, args: Any = None, *, timeout_s: float = ..., command_id: CommandId | None = None
    ) -> Any:
        """Run a procedure on the replicated tree, exactly once, and return its value.

        `command_id` is (client, number) for a caller that must be able to submit the same command again, after an
        `OutcomeUnknown` or its own restart. Numbers of one client must rise. Raises `Aborted` (the tree is as it was),
        `NoQuorum` (not submitted by this call), and `OutcomeUnknown` (applied already, later, or never). Raises
        `BadData` or `MalformedCommand` if the arguments cannot be replicated.
        """
        ...

    @property
    def store(self) -> Store:
        """The local tree: immediate reads that may be behind, and after `read_barrier` are not. Do not write."""
        ...

    async def read_barrier(self, timeout_s: float = ...) -> None:
        """Wait until local reads see everything that was acknowledged anywhere before this call (linearizable).

        Raises `NoQuorum` if that could not be had in time.
        """

    @property
    def long_work(self) -> trio.Lock:
        """To be held, without waiting for anything else, around long work: reading much, or writing it out.

        Only one does so between two turns of all others, so a crowd of them keeps no other from heartbeats and
        renewals.
        """
        ...

    async def read(self, procedure: str, args: Any = None, *, timeout_s: float = ...) -> Any:
        """Run a procedure that only reads on the local tree, after a read barrier, and return its value (linearizable).

        It takes no place in the log, and other processes do not run it. Raises `Aborted` (`not_read_only` if the
        procedure may write), `NoQuorum`; and `BadData` or `MalformedCommand` as `submit`.
        """
        ...

    @property
    def applied_index(self) -> int:
        """A number that rises with every change of the local tree."""
        ...

    async def wait_applied(self, index: int) -> int:
        """Wait until everything up to this index is in the local tree; the index applied then."""
        ...

    async def changed(self, since: int | None = None) -> int:
        """Wait until the local tree may have changed since that index (default: since now); the index applied then."""
        ...

    def watch(self, pattern: Pattern, since_revision: int | None = None, *, max_pending_events: int = ...) -> Watch:
        """Watch what is applied here, after `since_revision` (default: from now on).

        Raises `Compacted` when that is longer ago than the events that are kept, `BadPattern`, `BadPath`.
        """
        ...

    @property
    def status(self) -> ReplicaStatus:
        """What is known now about leader, members and progress."""
        ...

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The last would-be members that were refused, oldest first."""
        ...
