"""The world of event streams: an entity of kind `stream` is one stream, and each of its ticks is one of the stream's.

A hand-over continues a stream exactly. A failover resumes it from a copy, and clients may have been told later ticks
than the copy has: no event of these is lost (`publication`), but ticks without events may be. The stream passes over
them: it continues `LEAD_TICKS` after the copy, which is more than what was told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.sync.events.limits import TICK_MS, StreamLimits
from batonpass.simserver.sync.events.messages import StreamRequest
from batonpass.simserver.sync.events.refusals import StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.hosting.inputs import DumpGiven, Heard, SnapshotGiven, StreamInput, read_input
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = ["EVENT_STREAMS", "HOSTED_LIMITS", "KIND", "LEAD_TICKS", "EventStreams", "InputOutcome", "streams_of"]

EVENT_STREAMS: Final = "batonpass.simserver.sync.hosting.world:EventStreams"
"""How a configuration names this world."""

KIND: Final = "stream"
LEAD_TICKS: Final = 100
"""5 s: so far may clients be told of ticks without events of which there is no copy."""

MAX_OUTCOMES: Final = 16_384
# The whole of a stream is in each of its copies, which leave with every tick that has events. So all that clients can
# fill has to fit a copy together (`authority.wire.recovery.MAX_COPY_BYTES`), and what one of them gives fits the inbox
# of the entity (`entity.inputs.MAX_PENDING_BYTES`).
HOSTED_LIMITS: Final = StreamLimits(
    max_events=4_096,
    max_log_bytes=256 * 1024,
    max_clients=256,
    max_remembered=1_024,
    max_snapshot_bytes=128 * 1024,
    max_state_bytes=1_024,
    max_dump_bytes=64 * 1024,
    hash_window_ticks=40,
    checkpoint_window_ticks=1_200,
    keep_history=False,
)
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class InputOutcome:
    """What became of an input: refused or not, and up to which number the client's events were taken then."""

    refusal: StreamRefusal | None = None
    acked: int = 0


class _Moves:
    """The participant that tells a hand-over from a failover: only the former brings parts along."""

    def __init__(self, live: dict[str, "_Live"], continued: set[str]) -> None:
        self._live: Final = live
        self._continued: Final = continued

    def dehydrate(self, entity: str, state: Any) -> Any:
        """That the state is the last one."""
        return True if entity in self._live else None

    def rehydrate(self, entity: str, state: Any, data: Any) -> None:
        """It continues from the last state."""
        self._continued.add(entity)

    def release(self, entity: str) -> None:
        """It is not simulated here any more."""
        self._live.pop(entity, None)
        self._continued.discard(entity)


class _Live:
    """A stream of this server, and the state of which it is: of another one it has to be read anew."""

    __slots__ = ("state", "stream")

    def __init__(self, state: Any, stream: StreamMachine) -> None:
        self.state = state
        self.stream = stream


class EventStreams:
    """A world whose entities are event streams.

    Args:
        limits: those of `StreamLimits` that are to be others than `HOSTED_LIMITS`, by their names.

    Raises:
        TypeError, ValueError: no such limit, or no number.
    """

    kinds = (KIND,)

    def __init__(self, **limits: Any) -> None:
        known = {field.name: getattr(HOSTED_LIMITS, field.name) for field in fields(StreamLimits)}
        for name, value in limits.items():
            if name not in known:
                raise ValueError(f"no limit is called {name!r}: there are {', '.join(sorted(known))}")
            if type(value) is not type(known[name]) or value < 0:
                raise ValueError(f"{name} is {value!r}: give a {type(known[name]).__name__}")
        self.limits: Final = StreamLimits(**known | limits)
        self.outcomes: Final[LruTable[tuple[str, int], InputOutcome]] = LruTable(MAX_OUTCOMES)
        """By entity and number of the input; the host takes them out."""
        self._live: Final[dict[str, _Live]] = {}
        self._continued: Final[set[str]] = set()
        self.participants: Final = {"stream": _Moves(self._live, self._continued)}

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A new stream; `params["incarnation"]` are 32 random hexadecimal digits, by which it is known and seeded."""
        incarnation = params.get("incarnation")
        if kind != KIND:
            raise ValueError(f"this world has streams, no {kind!r:.40}")
        if not isinstance(incarnation, str) or len(incarnation) != 32 or not _HEX.issuperset(incarnation):
            raise ValueError("a stream needs `incarnation`: give 32 random hexadecimal digits")
        return StreamMachine(incarnation, self.limits).as_data()

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """A stream has no place of its own: operators and balance move it."""
        return None

    def may_sleep(self, state: Any) -> bool:
        """A stream sleeps while no client is connected, if it is to pause then."""
        return self.limits.pause and not state["clients"]["connected"]

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        """One tick of the stream: time passes, then each input of the server is applied in order."""
        stream = self._stream_of(step.entity, state)
        if not inputs and self.may_sleep(state) and stream is self._live[step.entity].stream:
            return state
        stream.advance(1)
        stream.expire(stream.now_ms + TICK_MS)
        for item in inputs:
            given = read_input(item.data) if item.source == OWN_SOURCE else None
            if given is not None:
                self.outcomes[step.entity, item.seq] = _applied(stream, given)
        stream.mark_sent()
        after = stream.as_data()
        self._live[step.entity] = _Live(after, stream)
        return after

    def stream_of(self, entity: str, state: Any) -> StreamMachine:
        """The stream of this state, which is the entity's last one that was committed; it is only to be read."""
        live = self._live.get(entity)
        return live.stream if live is not None and live.state is state else StreamMachine.from_data(state, self.limits)

    def _stream_of(self, entity: str, state: Any) -> StreamMachine:
        live = self._live.get(entity)
        if live is not None and live.state is state:
            return live.stream
        stream = StreamMachine.from_data(state, self.limits)
        begins = live is None and entity not in self._continued
        if begins and stream.has_had_clients:
            # From a copy: they may know later ticks.
            stream.skip(LEAD_TICKS)
        self._live[entity] = _Live(state, stream)
        return stream


def streams_of(world: object) -> EventStreams | None:
    """The streams of a server's world: the world itself, or its `streams`, if some of its entities are streams."""
    found = world if isinstance(world, EventStreams) else getattr(world, "streams", None)
    return found if isinstance(found, EventStreams) else None


def _applied(stream: StreamMachine, given: StreamInput) -> InputOutcome:
    try:
        match given:
            case StreamRequest():
                return InputOutcome(acked=stream.take(given, stream.now_ms))
            case Heard(clients):
                for client in clients:
                    stream.hear(client, stream.now_ms)
            case SnapshotGiven(client, offer):
                stream.offer_snapshot(client, offer)
            case DumpGiven(client, tick, dump):
                stream.store_dump(client, tick, dump)
    except StreamRefusal as refusal:
        return InputOutcome(refusal)
    return InputOutcome()
