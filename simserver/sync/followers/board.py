"""What the parts of a node have in common: who takes part, what goes out, and what is counted."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.sync.followers.datagrams import ShowDatagramKind, pack_datagram
from batonpass.simserver.sync.followers.drops import DropLog, DropRange, DropReason
from batonpass.simserver.sync.followers.frames import CompleteFrame, FrameHead
from batonpass.simserver.sync.followers.ports import EngineEvent, FrameBegins
from batonpass.simserver.sync.followers.sealing import HeadSigning
from batonpass.simserver.sync.followers.settings import LOOPBACK_PIECE_BYTES, PIECE_BYTES, ShowSettings
from batonpass.simserver.sync.followers.structs import FrameData

__all__ = ["NodeBoard", "ShowDice"]

MAX_EPOCHS: Final = 256
MAX_MEMBERS: Final = 1_024


class ShowDice(Protocol):
    """Draws numbers: `random.Random`, or the system's."""

    def getrandbits(self, k: int, /) -> int:
        """Return a number of `k` random bits."""


class NodeBoard:
    """Of one node in one show.

    Attributes:
        newest: the newest frame of which this node has the full state.
        told: the newest frame whose data the engine was given, or gave itself; -1 before the first one.
        begun: the newest frame that the engine was told of.
        since: the frame of the last RESET, from which local time counts; None before a frame has begun.
        counters: by name.
        piece_bytes: of a payload in one datagram that this node cuts.
    """

    def __init__(self, name: str, settings: ShowSettings, signing: HeadSigning, incarnation: int) -> None:
        self.name: Final = name
        self.settings: Final = settings
        self.signing: Final = signing
        self.incarnation: Final = incarnation
        self.counters: Final[Counter[str]] = Counter()
        self.newest: CompleteFrame | None = None
        self.told = -1
        self.begun = -1
        self.since: int | None = None
        self.held = set(settings.held)
        self.piece_bytes = settings.piece_bytes or PIECE_BYTES
        self.nodes: dict[str, bytes] = {}
        self._controllers: Final[LruTable[int, str]] = LruTable(MAX_EPOCHS)
        self._outgoing: list[tuple[tuple[str, ...], bytes]] = []
        self._events: Final[deque[EngineEvent]] = deque()
        self._drops: Final = DropLog()

    def set_nodes(self, nodes: Mapping[str, bytes]) -> None:
        """These take part. Raises ValueError for more than `MAX_MEMBERS`."""
        if len(nodes) > MAX_MEMBERS:
            raise ValueError(f"a show has at most {MAX_MEMBERS} nodes, not {len(nodes)}")
        self.nodes = dict(nodes)

    def cut(self, *, is_on_one_machine: bool) -> None:
        """Cut payloads as all nodes take them, unless the settings say how."""
        if not self.settings.piece_bytes:
            self.piece_bytes = LOOPBACK_PIECE_BYTES if is_on_one_machine else PIECE_BYTES

    def others(self) -> tuple[str, ...]:
        """All nodes but this one and the held ones."""
        return tuple(name for name in sorted(self.nodes) if name != self.name and name not in self.held)

    def knows_controller(self, epoch: int, node: str) -> None:
        """The authority says whose epoch this is."""
        self._controllers[epoch] = node

    def signed(self, head: FrameHead, signature: bytes) -> bool:
        """Whether the controller of the head's epoch has signed it; False if this node never knew that controller."""
        public = self.nodes.get(self._controllers.get(head.epoch, ""))
        return public is not None and self.signing.verifies(public, head.pack(), signature)

    def send(self, receivers: tuple[str, ...], datagram: bytes) -> None:
        """Send to all of these."""
        if receivers:
            self._outgoing.append((receivers, datagram))

    def send_all(self, receivers: tuple[str, ...], datagrams: Iterable[bytes]) -> None:
        """Send each of these to all of these."""
        if receivers:
            self._outgoing += [(receivers, datagram) for datagram in datagrams]

    def send_kind(self, to: str, kind: ShowDatagramKind, epoch: int, frame: int, body: bytes = b"") -> None:
        """Send a datagram to one node."""
        self.send((to,), pack_datagram(kind, epoch, frame, body))

    def take_outgoing(self) -> list[tuple[tuple[str, ...], bytes]]:
        """Return what is to be sent, once."""
        out, self._outgoing = self._outgoing, []
        return out

    def tell(self, event: EngineEvent) -> None:
        """Tell the engine."""
        self._events.append(event)

    def begin(self, frame: int, epoch: int, data: FrameData, *, is_controller: bool = False) -> None:
        """Tell the engine that a frame has begun, unless it was told of a later one."""
        if frame > self.begun:
            self.begun = frame
            self.since = max(self.since or 0, self.settings.rate.since_of(frame, data))
            self.tell(FrameBegins(frame, epoch, is_controller, data))

    def take_events(self) -> list[EngineEvent]:
        """Return what the engine is to be told, once."""
        events = list(self._events)
        self._events.clear()
        return events

    def dropped(self, node: str, first: int, last: int, reason: DropReason) -> list[tuple[int, int]]:
        """A node does not apply these frames. Return the ranges that were not known before, which are counted."""
        fresh = self._drops.add(node, first, last, reason)
        frames = sum(end - begin + 1 for begin, end in fresh)
        if frames:
            self.counters["frames_dropped"] += frames
            self.counters[f"dropped_{reason.value}"] += frames
        return fresh

    def not_applied(self) -> int:
        """Return how many frames this node has not applied."""
        return self._drops.total(self.name)

    def drops(self) -> list[DropRange]:
        """Return which node dropped which frames, the newest ranges."""
        return self._drops.all()
