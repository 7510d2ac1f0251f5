"""A door without a network: what every path of an event stream answers at once, as `simserver.sync.door` does."""

from typing import Protocol

from batonpass.simserver.sync.events.json_form import (
    StreamAction,
    StreamTarget,
    read_request_untrusted,
    read_snapshot_untrusted,
    read_text_untrusted,
    write_desync,
    write_reply,
    write_snapshot,
)
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine

__all__ = ["answer"]


class AskedStreams(Protocol):
    """Streams that are asked by name, as `PolledStreams`."""

    @property
    def limits(self) -> StreamLimits: ...

    def request(self, name: str, request: StreamRequest, now_ns: int) -> StreamReply: ...

    def find(self, name: str, now_ns: int) -> StreamMachine: ...


def answer(streams: AskedStreams, target: StreamTarget, body: bytes, now_ns: int) -> str:
    """The JSON that answers this. Raises StreamRefusal: nothing was changed."""
    match target.action:
        case StreamAction.SYNC:
            request = read_request_untrusted(target, body, streams.limits)
            return write_reply(streams.request(target.stream, request, now_ns))
        case StreamAction.LEAVE:
            found = streams.find(target.stream, now_ns)
            request = StreamRequest(target.private_id, found.tick, incarnation=found.incarnation, leave=True)
            return write_reply(streams.request(target.stream, request, now_ns))
        case StreamAction.PUT_SNAPSHOT:
            offer = read_snapshot_untrusted(target, body, streams.limits)
            streams.find(target.stream, now_ns).offer_snapshot(target.private_id, offer)
            return "{}"
        case StreamAction.PUT_DESYNC:
            dump = read_text_untrusted(body, streams.limits.max_dump_bytes)
            streams.find(target.stream, now_ns).store_dump(target.private_id, target.tick, dump)
            return "{}"
        case StreamAction.GET_SNAPSHOT:
            return _snapshot(streams.find(target.stream, now_ns))
        case StreamAction.GET_DESYNC:
            return _desync(streams.find(target.stream, now_ns))
        case StreamAction.RELAY:
            # Who asks stands in a header, which is the door's.
            raise StreamRefusal(RefusalCode.BAD_PATH, "Beamable's form is not offered here")


def _snapshot(stream: StreamMachine) -> str:
    if stream.snapshot is None:
        raise StreamRefusal(RefusalCode.NO_SNAPSHOT, "no snapshot is trusted yet: begin with last known tick 0")
    return write_snapshot(stream.incarnation, stream.snapshot)


def _desync(stream: StreamMachine) -> str:
    if stream.desync is None:
        raise StreamRefusal(RefusalCode.NO_DESYNC, "no two clients have reported different hashes")
    return write_desync(stream.incarnation, stream.desync, stream.dumps)
