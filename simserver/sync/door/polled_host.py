"""Streams that this process has itself: `PolledStreams` on trio's clock, which is monotonic."""

import secrets
from collections.abc import Sequence
from typing import Final

import trio

from batonpass.simserver.sync.door.ports import EarlyPlace, HeldDesync, HeldSnapshot, OpenClient
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StreamEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer

__all__ = ["PolledHost"]

_NS_PER_S: Final = 1_000_000_000
_BEAT_S: Final = 1.0


def _now_ns() -> int:
    return round(trio.current_time() * _NS_PER_S)


class PolledHost:
    """A `StreamHost`. Nothing of its streams outlives it: a client that comes back is told so by the incarnation."""

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self.streams: Final = PolledStreams(lambda: secrets.token_hex(16), limits)
        self._alarms: Final[dict[int, trio.Event]] = {}
        # By stream: who waits for the next request to it.
        self._requests: Final[dict[str, trio.Event]] = {}

    @property
    def limits(self) -> StreamLimits:
        """The bounds of all streams."""
        return self.streams.limits

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let time pass for streams that no client asks for, until cancelled."""
        task_status.started()
        while True:
            self.streams.beat(_now_ns())
            await trio.sleep(_BEAT_S)

    async def request(self, stream: str, request: StreamRequest) -> StreamReply:
        """As `StreamHost.request`."""
        reply = self.streams.request(stream, request, _now_ns())
        if (waited := self._requests.pop(stream, None)) is not None:
            waited.set()
        return reply

    async def leave(self, stream: str, private_id: str) -> StreamReply:
        """As `StreamHost.leave`."""
        found = self.streams.find(stream, _now_ns())
        # It knows all there is, so it is told nothing.
        asked = StreamRequest(private_id, found.tick, incarnation=found.incarnation, leave=True)
        return self.streams.request(stream, asked, _now_ns())

    async def changed(self, stream: str, after: int) -> int:
        """As `StreamHost.changed`."""
        tick, next_ns = self.streams.present_tick(stream, _now_ns())
        if tick > after:
            # Late: all else is, too. Without this a walk that cannot keep up would be all that this process does.
            await trio.lowlevel.checkpoint()
        while tick <= after:
            await self._until(next_ns)
            tick, next_ns = self.streams.present_tick(stream, _now_ns())
        return tick

    async def early(self, stream: str, after: EarlyPlace) -> tuple[EarlyPlace, Sequence[StreamEvent]]:
        """As `StreamHost.early`: a place is a tick, and how many of its events were told."""
        while True:
            found = self.streams.find(stream, _now_ns()).untold
            place = found[0].tick if found else 0, len(found)
            if place > after:
                return place, found[after[1] if place[0] == after[0] else 0 :]
            asked = self._requests.setdefault(stream, trio.Event())
            try:
                await asked.wait()
            finally:
                if self._requests.get(stream) is asked and asked.statistics().tasks_waiting == 0:
                    del self._requests[stream]

    async def _until(self, due_ns: int) -> None:
        """Wait for this moment, or a shorter time. Streams that tick in the same millisecond share one alarm."""
        alarm = self._alarms.get(due_ns)
        if alarm is not None:
            await alarm.wait()
            return
        alarm = self._alarms[due_ns] = trio.Event()
        try:
            await trio.sleep_until(due_ns / _NS_PER_S)
            # What has come by now belongs to the tick that ends: it has its turn first.
            await trio.lowlevel.checkpoint()
        finally:
            del self._alarms[due_ns]
            alarm.set()

    async def replies_for(self, stream: str, clients: Sequence[OpenClient]) -> Sequence[StreamReply | StreamRefusal]:
        """As `StreamHost.replies_for`."""
        return self.streams.replies_for(stream, ((client.private_id, client.known) for client in clients))

    async def snapshot(self, stream: str) -> HeldSnapshot:
        """As `StreamHost.snapshot`."""
        found = self.streams.find(stream, _now_ns())
        if found.snapshot is None:
            raise StreamRefusal(RefusalCode.NO_SNAPSHOT, "no snapshot of this stream is trusted yet: begin with tick 0")
        return HeldSnapshot(found.incarnation, found.snapshot)

    async def offer_snapshot(self, stream: str, private_id: str, offer: SnapshotOffer) -> None:
        """As `StreamHost.offer_snapshot`."""
        self.streams.find(stream, _now_ns()).offer_snapshot(private_id, offer)

    async def desync(self, stream: str) -> HeldDesync:
        """As `StreamHost.desync`."""
        found = self.streams.find(stream, _now_ns())
        if found.desync is None:
            raise StreamRefusal(RefusalCode.NO_DESYNC, "no two clients of this stream have differed: nothing to see")
        return HeldDesync(found.incarnation, found.desync, found.dumps)

    async def store_dump(self, stream: str, private_id: str, tick: int, dump: str) -> None:
        """As `StreamHost.store_dump`."""
        self.streams.find(stream, _now_ns()).store_dump(private_id, tick, dump)
