"""What a door needs of the holder of the streams, which may be this process or a simulation that is moved about."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import DesyncNotice, StreamEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer, TrustedSnapshot

__all__ = ["PROVED", "EarlyPlace", "HeldDesync", "HeldSnapshot", "OpenClient", "StreamHost"]

PROVED: Final = "-"
"""What a client gives as its private id if it has proved over the link whose it is."""

EarlyPlace = tuple[int, int]
"""How far a client was told events early; only the host that gave it knows what it means. It begins with (0, 0)."""


class OpenClient(Protocol):
    """A client with an open connection, and the last tick that it was told, on its own scale; or its request."""

    @property
    def private_id(self) -> str:
        """Its secret name."""

    @property
    def known(self) -> int:
        """The tick."""


class HeldSnapshot(NamedTuple):
    """The trusted snapshot of a stream, and the incarnation of that stream."""

    incarnation: str
    snapshot: TrustedSnapshot


class HeldDesync(NamedTuple):
    """The last desync of a stream, and the dump of a client for each hash: its public id, and what it says."""

    incarnation: str
    notice: DesyncNotice
    dumps: Mapping[str, tuple[str, str]]


class StreamHost(Protocol):
    """The streams by name. Every method raises `StreamRefusal` for what it does not take."""

    @property
    def limits(self) -> StreamLimits:
        """The bounds of all streams."""

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        """Take a client's request; a stream begins with its first one."""

    async def leave(self, stream: str, private_id: str) -> StreamReply:
        """Disconnect a client at once, if it is connected; the reply has no events."""

    async def changed(self, stream: str, after: int) -> int:
        """Wait until the tick of a stream is above `after`; that tick, on the stream's own scale.

        Other tasks have their turn even if it is so already: who tells ticks late must not be all that runs.
        """

    async def early(self, stream: str, after: EarlyPlace) -> tuple[EarlyPlace, Sequence[StreamEvent]]:
        """Wait for events whose tick is not over, after those up to this place; the place of the last, and they.

        They may be lost yet, and never come with a tick.
        """

    async def replies_for(self, stream: str, clients: Sequence[OpenClient]) -> Sequence[StreamReply | StreamRefusal]:
        """What these clients are told of the tick that `changed` gave last, or of a later one, in their order.

        A client that cannot be told is refused alone.
        """

    async def snapshot(self, stream: str) -> HeldSnapshot:
        """The snapshot for those who come late."""

    async def offer_snapshot(self, stream: str, private_id: str, offer: SnapshotOffer) -> None:
        """Trust a client's snapshot, if a quorum had its hash."""

    async def desync(self, stream: str) -> HeldDesync:
        """The last desync."""

    async def store_dump(self, stream: str, private_id: str, tick: int, dump: str) -> None:
        """Keep what a client says of its state at the tick of the desync."""
