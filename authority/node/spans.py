"""What servers tell through telemetry of a hand-over while it is under way: spans, each with one start and one stop.

Attach to `(*DEPARTURE, "start")`, `(*DEPARTURE, "stop")` and so on; `SPANS` has all of them. Servers of `baton` attach
what their configuration names (`authority.node.telemetry_handlers`); docs/guides/observe.md shows how. Handlers run in
the caller and must be quick (`actors.core.telemetry`). With no listener it costs a look into one set.

=================================  ======================  =============================================================
span                               who tells               from when to when; its outcomes
=================================  ======================  =============================================================
`("handover", "precopy")`          old authority           a large state goes ahead of its freeze, in rounds:
                                                           `copied`, `unanswered`, `over_budget` (it could not even
                                                           be encoded within its freeze budget, and stays)
`("handover", "departure")`        old authority           from the freeze until the old authority has done its
                                                           part: `retired` (the target simulates), `resumed`
                                                           (refused, it continues here), `dropped` (refused, and the
                                                           lease is over), `stepped_down` (another has it)
`("handover", "freeze")`           old authority           it is frozen here: from the freeze until this server has
                                                           heard that the target simulates, or continues itself;
                                                           outcomes as above
`("handover", "staging")`          old authority           staged mode: until the state is on the target's disk:
                                                           `staged`, `given_up`, `superseded`
`("handover", "arrival")`          new authority           from the first sight of its state, or of the leave to begin
                                                           with it, until it is simulated here: `activated`; or nothing
                                                           of it is held any more: `dropped`. What is stale when it
                                                           comes begins none
`("handover", "decision")`         homeserver of the       from the request to the log's word: `committed`, `refused`,
                                   entity                  `pending` (others of its group are not frozen yet), `failed`
                                                           (nothing was decided; it is asked again)
`("handover", "group")`            homeserver of the       those who wait for a group that was decided just now are
                                   group                   told: `committed`, `refused`, `failed`
`("handover", "bulk")`             homeserver              many steps by one command of the log: `done`, `one_by_one`
                                                           (it could not be carried out as one), `failed`
`("handover", "takeover")`         homeserver that grants  the entity of a dead server is looked for, until a server
                                   leases                  resumes it: `adopted`; or the one that should does not, and
                                                           others are asked: `again`; or no server that is there has a
                                                           copy: `lost` (if a server returns with one, another span
                                                           of the same id starts when the log gives it to it); or
                                                           it is no more: `ended`; or another member does that now:
                                                           `left_office`
`("handover", "adoption")`         server that is given    it continues from a copy: `adopted`, or why it does not:
                                   it                      `another_life`, `without_copy`, `unreadable`
=================================  ======================  =============================================================

When a server stops in order, its open spans stop with the outcome `server_stopped`; of more than `MAX_OPEN` the oldest
stops with `forgotten`. A server that is killed says nothing more.

Measurements: numbers, units last in their names. Those that are not known are left out.

======================  ===================  =========================================================================
measurement             of                   what
======================  ===================  =========================================================================
`monotonic_time_s`      every event          on the server's monotonic clock, which all processes of a machine share
`duration_s`            every stop           since its start
`state_bytes`           departure, arrival,  the encoded state (start); at the stop of a departure and of a pre-copy
                        precopy              what was sent of it, with repetitions
`rounds`                precopy stop         how often parts of it were sent
`retransmissions`       departure stop       messages that were sent again, because no answer had come in time
`hops`                  departure stop       numbered messages that crossed the wire, as in `GET /v1/transfers/{id}`
`forwarded_inputs`      departure stop       inputs that came here after the freeze, and were sent on
`gap_ticks`             freeze and arrival   ticks that came due while no server simulated it (docs/reference/report.md)
                        stop
`rule_s`, `commit_s`    decision stop        parts of `duration_s`: whether it may be; the compare-and-set in the log
`steps`, `refused`      decision and bulk    how many were put to the log by one command, and how many of them failed
                        stop
`members`               group start          how many move together
`tick`                  takeover stop        from which tick it continues
======================  ===================  =========================================================================

Metadata: every event has all of these, `""` and `Fence(0, 0)` for what is not known or not meant.

==================================  ===================================================================================
key                                 what
==================================  ===================================================================================
`server`                            who tells it
`span`                              its number at this server since that started: a start and its stop have the same
`transfer_id`                       of the transfer; of takeover and adoption `takeover_id`; of bulk `""`
`entity`, `source`, `target`        whose move it is, from where, to where; who adopts is not told from where: see the
                                    takeover of the same id
`case`, `mode`                      `"1"`, `"2"`, `"3"` and `"eager"`, `"staged"` (docs/reference/transfer.md); a
                                    decision has the mode from its stop on, if anything was decided; a group has no case
`fence`                             under which it was frozen, which it leads to (arrival, decision), or was raised to
`outcome`, `reason`                 at the stop: as above; the code of the refusal, if there is one, or the error
==================================  ===================================================================================

What belongs together over all servers has one transfer id, so nothing is sent for it: see `trace_id` and `span_id`.
Pure: times are inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, final

from batonpass.actors.core.telemetry import Event, Telemetry
from batonpass.authority.errors import Refused
from batonpass.authority.fence import Fence

__all__ = [
    "ADOPTION",
    "ARRIVAL",
    "BULK",
    "DECISION",
    "DEPARTURE",
    "FREEZE",
    "GROUP",
    "MAX_OPEN",
    "PRECOPY",
    "SILENT",
    "SPANS",
    "STAGING",
    "TAKEOVER",
    "OpenSpan",
    "Spans",
    "reason_of",
    "span_id",
    "takeover_id",
    "trace_id",
]

PRECOPY: Final = ("handover", "precopy")
DEPARTURE: Final = ("handover", "departure")
FREEZE: Final = ("handover", "freeze")
STAGING: Final = ("handover", "staging")
ARRIVAL: Final = ("handover", "arrival")
DECISION: Final = ("handover", "decision")
GROUP: Final = ("handover", "group")
BULK: Final = ("handover", "bulk")
TAKEOVER: Final = ("handover", "takeover")
ADOPTION: Final = ("handover", "adoption")
SPANS: Final = (PRECOPY, DEPARTURE, FREEZE, STAGING, ARRIVAL, DECISION, GROUP, BULK, TAKEOVER, ADOPTION)

MAX_OPEN: Final = 100_000
"""Spans of one server that have started and not stopped; beyond, the oldest stops."""

_TEXTS: Final = ("transfer_id", "entity", "source", "target", "case", "mode", "outcome", "reason")
_UNKNOWN: Final = MappingProxyType[str, Any](dict.fromkeys(_TEXTS, "") | {"fence": Fence(0, 0)})
_NOTHING: Final = MappingProxyType[str, float]({})


def trace_id(transfer_id: str) -> int:
    """The 128 bits by which OpenTelemetry knows the trace of a transfer: the same on every server, and never 0.

    The first 16 bytes, big-endian, of SHA-256 over `batonpass trace ` and the id in UTF-8.
    """
    return _first_bytes(f"batonpass trace {transfer_id}", 16)


def span_id(transfer_id: str) -> int:
    """The 64 bits of the span to which all others of a transfer belong: that of its departure. Never 0.

    The first 8 bytes, big-endian, of SHA-256 over `batonpass span ` and the id in UTF-8.
    """
    return _first_bytes(f"batonpass span {transfer_id}", 8)


def _first_bytes(text: str, count: int) -> int:
    # 0 stands for "none" in OpenTelemetry.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:count], "big") or 1


def takeover_id(entity: str, epoch: int) -> str:
    """What stands in the place of a transfer id when an entity is recovered.

    `epoch` is that of the fence which was raised so that copies can be looked for, one before that of the server that
    resumes it.
    """
    return f"takeover {entity} {epoch}"


def reason_of(error: BaseException | None) -> str:
    """What stands for an error in the metadata: the code of a refusal, or the name of its class; `""` for none."""
    if isinstance(error, Refused):
        return error.reason.value
    return "" if error is None else type(error).__name__


@final
class OpenSpan:
    """A span that has started; its stop is told once, whatever else says so later.

    As a context manager it stops when the block ends without having stopped it: with `failed` and the error's name.
    """

    __slots__ = ("_at_ns", "_metadata", "_prefix", "_spans")

    def __init__(self, spans: Spans, prefix: Event, at_ns: int, metadata: dict[str, Any]) -> None:
        self._spans = spans
        self._prefix = prefix
        self._at_ns = at_ns
        self._metadata = metadata

    def stop(self, at_ns: int, outcome: str, measurements: Mapping[str, float] = _NOTHING, **metadata: Any) -> None:
        """It is over; `metadata` is what is known better now."""
        self._spans._stop(self, at_ns, outcome, measurements, metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._spans._stop(self, self._spans.now_ns(), "failed", _NOTHING, {"reason": reason_of(error)})


@final
class Spans:
    """The spans of one server, told through its telemetry.

    Args:
        telemetry: the hub; the start and stop events of `SPANS` are its alone.
        server: the name that stands in the metadata.
        now_ns: monotonic nanoseconds, for what stops by itself.
    """

    def __init__(self, telemetry: Telemetry, server: str, now_ns: Callable[[], int]) -> None:
        self.now_ns: Final = now_ns
        self._telemetry: Final = telemetry
        self.server: Final = server
        self._wanted: Final[set[Event]] = set()
        self._started = 0
        # In the order in which they started.
        self._open: Final[dict[OpenSpan, None]] = {}
        for prefix in SPANS:
            for word in ("start", "stop"):
                telemetry.on_demand((*prefix, word), partial(self._heard, prefix))

    def _heard(self, prefix: Event, _is_on: bool) -> None:
        if any(self._telemetry.has_handlers((*prefix, word)) for word in ("start", "stop")):
            self._wanted.add(prefix)
        else:
            self._wanted.discard(prefix)

    @property
    def open(self) -> int:
        """How many have started and not stopped."""
        return len(self._open)

    def wants(self, prefix: Event) -> bool:
        """Whether there is a listener: ask before making what costs something."""
        return prefix in self._wanted

    def start(
        self, prefix: Event, at_ns: int, measurements: Mapping[str, float] = _NOTHING, **metadata: Any
    ) -> OpenSpan:
        """Tell that a span has started. Ask `wants` first: what no listener wants is kept and told all the same."""
        if len(self._open) >= MAX_OPEN:
            next(iter(self._open)).stop(self.now_ns(), "forgotten")
        self._started += 1
        whole = {"server": self.server, "span": self._started, **_UNKNOWN, **metadata}
        span = OpenSpan(self, prefix, at_ns, whole)
        self._open[span] = None
        self._telemetry.execute((*prefix, "start"), {"monotonic_time_s": at_ns / 1e9, **measurements}, dict(whole))
        return span

    def _stop(
        self, span: OpenSpan, at_ns: int, outcome: str, measurements: Mapping[str, float], metadata: Mapping[str, Any]
    ) -> None:
        if span not in self._open:
            return
        # First, so that a handler that brings about another stop of it brings about nothing.
        del self._open[span]
        times = {"monotonic_time_s": at_ns / 1e9, "duration_s": (at_ns - span._at_ns) / 1e9}
        whole = {**span._metadata, **metadata, "outcome": outcome}
        self._telemetry.execute((*span._prefix, "stop"), {**times, **measurements}, whole)

    def close(self) -> None:
        """The server stops: so does all that is open."""
        for span in list(self._open):
            span.stop(self.now_ns(), "server_stopped")


SILENT: Final = Spans(Telemetry(lambda: 0.0), "", lambda: 0)
"""Of code that has no one to tell; no handler can attach to it."""
