"""The seams of the fence around PySyncObj: what it is given in the place of its own parts.

Only this module and `tree.raft.raft` import PySyncObj. Importing this one replaces two attributes of its modules, once
and for the whole process. Its journals are handed in ready-made (T3), and its pickle is gone (T1). The numbers refer to
docs/decisions/0001-raft-fence.md.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pysyncobj.serializer
import pysyncobj.syncobj
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from batonpass.tree.disk.journal import Journal
from batonpass.tree.machine.state import FrozenState, LoadedState
from batonpass.tree.store.rows import Remains

__all__ = [
    "CHANGE_KIND",
    "COMMAND_KIND",
    "NEEDS_SYNC",
    "Driver",
    "JournalPort",
    "MemberNode",
    "Message",
    "Outlet",
    "RaftBroken",
    "clock_s",
    "use_clock",
]

PROVED_VERSION: Final = "0.3.17"
if VERSION != PROVED_VERSION:
    raise ImportError(
        f"tree.raft.raft was proved on PySyncObj {PROVED_VERSION} and overrides its private methods; found {VERSION}. "
        f"Install pysyncobj=={PROVED_VERSION}, or judge every touch in docs/decisions/0001-raft-fence.md anew"
    )

COMMAND_KIND: Final = bytes([pysyncobj.syncobj._COMMAND_TYPE.REGULAR])
# An entry that changes the members; what follows the kind is ours, not PySyncObj's pickle (T16).
CHANGE_KIND: Final = bytes([pysyncobj.syncobj._COMMAND_TYPE.MEMBERSHIP])
# Acknowledgements and votes; everything else promises nothing about this member's disk.
NEEDS_SYNC: Final = frozenset({"request_vote", "response_vote", "next_node_idx", "confirmed"})

Message = dict[str, Any]


class RaftBroken(Exception):
    """Something that Raft rules out has been seen; this member stops before it can do harm."""


class Driver(Protocol):
    """What `RaftCore` needs done for it."""

    def outbound(self, name: str, message: Message) -> bool:
        """Send a message; False if there is no connection. See `NEEDS_SYNC` for when it may leave."""

    def is_congested(self, name: str) -> bool:
        """Whether so much is queued for this member that a snapshot should wait."""

    def apply(self, entry: bytes) -> Iterator[int]:
        """Apply the commands of a committed entry, one at each step of the iterator: how many steps each took.

        Between two of them other things happen, and the iterator is dropped if a snapshot takes the place of the state.
        Must not raise for what a command does: one that stops one member stops all of them for good.
        """

    def freeze(self) -> FrozenState:
        """The applied state as it is now, to be read while commands are applied."""

    def thaw(self, frozen: FrozenState) -> None:
        """What `freeze` gave is not needed any more."""

    def install(self, state: LoadedState) -> Remains | None:
        """Replace the applied state at once by one that some member froze; what is left of the old one, if much."""

    def configure(self, configuration: Any) -> None:
        """Keep this plain data with the applied state: `freeze` and `install` must take it along. Must not raise."""

    def configuration(self) -> Any:
        """What `configure` was last given, here or on the member whose state was installed; None if nothing ever."""


_machine_clock: Final = pysyncobj.syncobj.monotonicTime


def use_clock(now_s: Callable[[], float] | None) -> None:
    """Let every member in this process read this clock, in seconds, instead of the machine's: for simulations (T2).

    None gives the machine's clock back to members that are started afterwards.
    """
    pysyncobj.syncobj.monotonicTime = _machine_clock if now_s is None else now_s


class _NoPickle:
    """Takes the place of pickle in PySyncObj's modules (T1): whatever would pickle or unpickle is an error."""

    def __getattr__(self, name: str) -> Any:
        raise RaftBroken(f"PySyncObj tried to use pickle.{name}; nothing here may be pickled")


class MemberNode(Node):  # type: ignore[misc]  # PySyncObj has no types
    """A member as PySyncObj sees it, hashed so that sets of members iterate alike in every process (T2)."""

    def __init__(self, name: str) -> None:
        self.hash = zlib.crc32(name.encode())
        super().__init__(name)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemberNode) and other.id == self.id


class Outlet(Transport):  # type: ignore[misc]  # PySyncObj has no types
    """PySyncObj's transport: everything it sends goes to the driver."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(None, None, ())
        self._driver = driver
        self.by_transfer = False  # whether this member stands because the leader wants it to (T17)
        self.resting: set[Node] = set()  # members to whom nothing more is to be sent now
        self.connected: set[Node] = set()  # PySyncObj's own set

    def send(self, node: Node, message: Message) -> bool:
        if message["type"] == "request_vote":
            message["transfer"] = self.by_transfer
        elif message.get("serialized", b"") is None:
            # PySyncObj would send this again and again until a heartbeat is over, unless the member is gone (T18).
            self._rest(node)
        sent = self._driver.outbound(node.id, message)
        if message.get("entries") and self._driver.is_congested(node.id):
            # It has enough to do; PySyncObj would queue everything it lacks at once (T19).
            self._rest(node)
        return sent

    def _rest(self, node: Node) -> None:
        self.resting.add(node)
        self.connected.discard(node)


class JournalPort:
    """The journal under the names that PySyncObj calls (T3)."""

    def __init__(self, journal: Journal, restored_index: int) -> None:
        self._journal = journal
        self._restored_index = restored_index

    def __len__(self) -> int:
        return len(self._journal)

    def __getitem__(self, position: Any) -> Any:
        return self._journal[position]

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._journal.append((command, idx, term))

    def clear(self) -> None:
        self._journal.clear()

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802  # PySyncObj's name
        self._journal.delete_from(position)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802  # PySyncObj's name
        """Nothing to keep: after a restart the leader tells it, and the snapshot says what is applied."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802  # PySyncObj's name
        return self._restored_index

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802  # PySyncObj's name
        self._journal.set_vote(term, voted_for)

    def getCurrentTerm(self) -> int:  # noqa: N802  # PySyncObj's name
        return self._journal.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802  # PySyncObj's name
        return self._journal.voted_for

    def onOneSecondTimer(self) -> None:  # noqa: N802  # PySyncObj's name
        """Nothing: the journal is synced when it must be, not now and then."""

    def _destroy(self) -> None:
        """The driver closes the journal."""


def clock_s() -> float:
    """The time that PySyncObj goes by, in seconds."""
    return float(pysyncobj.syncobj.monotonicTime())


# Replaced once, before there is any instance: the journal is handed in ready-made (T3), and pickle is gone (T1).
pysyncobj.syncobj.createJournal = lambda journal: journal
pysyncobj.syncobj.pickle = _NoPickle()
pysyncobj.serializer.pickle = _NoPickle()
