"""Many streams by name, which advance when they are asked: what a server of its own needs beside HTTP.

Time is monotonic: `now_ns` never moves a stream backwards, and at most `max_jump_ms` at once. A server that was
suspended for an hour continues as if it had been for that long, for its ticks as for the silence of its clients. `beat`
lets time pass without requests: without it, clients that all fell silent are disconnected when the next asks.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from batonpass.simserver.sync.events.limits import TICK_MS, StreamLimits
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine

__all__ = ["PolledStreams"]

_NS_PER_MS: Final = 1_000_000
# Ticks of all streams are at these moments, so that many streams tick at one: tick 0 of a stream is that much shorter.
_GRID_MS: Final = 5


@dataclass(slots=True)
class _Polled:
    """A stream, the time up to which it has ticked, and when it was last asked for."""

    stream: StreamMachine
    ticked_ms: int
    asked_ms: int


class PolledStreams:
    """Streams by name.

    Args:
        new_incarnation: 32 random hexadecimal digits, new at each call.
        limits: bounds and settings of all of them.
    """

    def __init__(self, new_incarnation: Callable[[], str], limits: StreamLimits | None = None) -> None:
        self.limits: Final = limits or StreamLimits()
        self._new_incarnation: Final = new_incarnation
        # The one that was not asked for longest comes first.
        self._streams: Final[OrderedDict[str, _Polled]] = OrderedDict()
        self._last_ns: int | None = None
        self._clock_ns = 0
        self.skipped_ms = 0
        """How much time was left out because it was more than `max_jump_ms` at once."""

    def request(self, name: str, request: StreamRequest, now_ns: int) -> StreamReply:
        """Take a client's request to a stream, which begins with it if there is none. Raises StreamRefusal."""
        now_ms = self._pass_time(now_ns)
        polled = self._streams.get(name) or self._new(now_ms)
        self._tick(polled, now_ms)
        reply = polled.stream.apply(request, now_ms)
        # A request that was refused begins no stream, and keeps none.
        self._streams[name] = polled
        self._asked(name, polled, now_ms)
        return reply

    def begin(self, name: str, now_ns: int) -> StreamMachine:
        """A stream, begun here and now if there is none of this name. Raises StreamRefusal: there are too many."""
        now_ms = self._pass_time(now_ns)
        polled = self._streams.get(name) or self._new(now_ms)
        self._tick(polled, now_ms)
        self._streams[name] = polled
        self._asked(name, polled, now_ms)
        return polled.stream

    def _new(self, now_ms: int) -> _Polled:
        present = len(self._streams)
        if present >= self.limits.max_streams:
            raise StreamRefusal(
                RefusalCode.TOO_MANY_STREAMS, f"there are {present} streams: come back when one has ended"
            )
        return _Polled(StreamMachine(self._new_incarnation(), self.limits), now_ms - now_ms % _GRID_MS, now_ms)

    def replies_for(self, name: str, clients: Iterable[tuple[str, int]]) -> list[StreamReply | StreamRefusal]:
        """What clients are told whose connections are open, each by its private id and the last tick that it was told.

        They are told of the present as `present_tick` has found it: no time passes. A client that cannot be told is
        refused alone. Raises StreamRefusal: there is no stream of this name.
        """
        polled, now_ms = self._known(name), self._clock_ns // _NS_PER_MS
        self._asked(name, polled, now_ms)
        return polled.stream.replies_for(clients, heard_ms=now_ms)

    def find(self, name: str, now_ns: int) -> StreamMachine:
        """A stream, at its present tick. Raises StreamRefusal: there is none of this name."""
        return self._present(name, now_ns).stream

    def _present(self, name: str, now_ns: int) -> _Polled:
        now_ms = self._pass_time(now_ns)
        polled = self._known(name)
        self._tick(polled, now_ms)
        return polled

    def _known(self, name: str) -> _Polled:
        polled = self._streams.get(name)
        if polled is None:
            raise StreamRefusal(RefusalCode.UNKNOWN_STREAM, f"there is no stream {name!r:.80}: begin it with POST")
        return polled

    def present_tick(self, name: str, now_ns: int) -> tuple[int, int]:
        """The tick of a stream, and when it will have ticked next, by the clock of `now_ns`.

        Raises StreamRefusal: there is no stream of this name.
        """
        polled = self._present(name, now_ns)
        due_ms = polled.ticked_ms + TICK_MS + 1
        return polled.stream.tick, now_ns + due_ms * _NS_PER_MS - self._clock_ns

    def beat(self, now_ns: int) -> None:
        """Let time pass: silent clients are disconnected, and streams that no client asks for are forgotten."""
        now_ms = self._pass_time(now_ns)
        for polled in self._streams.values():
            self._tick(polled, now_ms)
            polled.stream.expire(now_ms)

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def _pass_time(self, now_ns: int) -> int:
        """Take the time, forget the streams that no client asked for, and return the milliseconds of our clock."""
        elapsed_ns = 0 if self._last_ns is None else max(0, now_ns - self._last_ns)
        self._last_ns = now_ns if self._last_ns is None else max(self._last_ns, now_ns)
        taken_ns = min(elapsed_ns, self.limits.max_jump_ms * _NS_PER_MS)
        self.skipped_ms += (elapsed_ns - taken_ns) // _NS_PER_MS
        self._clock_ns += taken_ns
        now_ms = self._clock_ns // _NS_PER_MS
        while self._streams:
            name, polled = next(iter(self._streams.items()))
            if now_ms - polled.asked_ms <= self.limits.forget_ms:
                break
            del self._streams[name]
        return now_ms

    def _asked(self, name: str, polled: _Polled, now_ms: int) -> None:
        polled.asked_ms = now_ms
        self._streams.move_to_end(name)

    @staticmethod
    def _tick(polled: _Polled, now_ms: int) -> None:
        elapsed_ms = now_ms - polled.ticked_ms
        # More than a tick, as GoEventStream has it: exactly one is not yet over.
        if elapsed_ms > TICK_MS:
            polled.stream.advance(elapsed_ms // TICK_MS)
            polled.ticked_ms += elapsed_ms // TICK_MS * TICK_MS
