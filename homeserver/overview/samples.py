"""What charts show: a sample every `EVERY_S` seconds of what this member counts and measures anyway, for an hour.

Transfers are counted as the log has their ends. Their latency, from the freeze to the activation, is that of the first
`TIMED` in a sample, by the reports of their sources. What servers have to do is what they reported last. The ticks that
they left out they are asked for, as reports do not name them. All of it is numbers: an hour takes less than 200 kB.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import trio
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.authority.model.records import DirectoryRow, Phase, Role
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import WatcherCut
from batonpass.tree.disk.disk import SYNC_TIMES
from batonpass.tree.member.status import Latency
from batonpass.tree.store.pattern import ANY_NAME
from batonpass.tree.store.watch import Event

__all__ = ["EVERY_S", "KEPT", "SampleRing", "SamplesView"]

EVERY_S: Final = 5.0
KEPT: Final = 720
"""An hour of them."""
TIMED: Final = 100
MAX_SAMPLED_SERVERS: Final = 16
"""Simulation servers that charts show, by their names."""
_PPM: Final = 1_000_000
_STATS_PATH: Final = "/v1/local/stats"
# How a row of the log says that: looked for in its bytes, since reading all rows would cost more than counting them.
_PHASE: Final = encode("phase")
_DONE: Final = _PHASE + encode(Phase.DONE.value)
_REFUSED: Final = _PHASE + encode(Phase.REFUSED.value)

Numbers = list[float | None]


class CountedTicks(BaseModel):
    """Of the stats of a simulation server, what is looked at here."""

    counts: dict[str, int]


class SampledServer(BaseModel):
    """A simulation server; a number for each sample, null where it was silent."""

    name: str
    tick_fraction: Numbers = Field(description="the part of the tick period that ticks took")
    late_ticks_per_s: Numbers = Field(description="ticks that were left out because those before took too long")


class SamplesView(BaseModel):
    """Samples as columns, oldest first, with null for what is unknown."""

    told_by: str
    every_s: float
    last: int = Field(description="the number of the last sample: ask again with this as `after`")
    at_s: list[float] = Field(description="Unix time in seconds, at the end of each")
    done_per_s: Numbers = Field(description="transfers of this instance that were done")
    refused_per_s: Numbers = Field(description="transfers that were refused")
    transfer_p50_ms: Numbers = Field(description="from the freeze to the activation; of at most 100 in a sample")
    transfer_p99_ms: Numbers
    entries_per_s: Numbers = Field(description="entries of the log that were applied here, of all members")
    proposals_per_s: Numbers = Field(
        description="commands that this member submitted to the log, and that were answered"
    )
    proposal_p50_ms: Numbers = Field(description="how long the last 1,024 of them took")
    proposal_p99_ms: Numbers
    syncs_per_s: Numbers = Field(description="syncs of files of this process")
    sync_p50_ms: Numbers = Field(description="how long the last 1,024 of them took")
    sync_p99_ms: Numbers
    servers: list[SampledServer]


_COLUMNS: Final = tuple(name for name in SamplesView.model_fields if name.endswith(("_per_s", "_ms")))


@dataclass(frozen=True, slots=True)
class OneSample:
    """The numbers of `EVERY_S` seconds; of servers the tick fraction and the ticks left out a second."""

    at_s: float
    numbers: dict[str, float | None]
    servers: dict[str, tuple[float | None, float | None]]


class SampleRing:
    """One member's; `serve` has to run."""

    def __init__(self, node: HomeserverNode) -> None:
        self._node: Final = node
        self._kept: Final[deque[OneSample]] = deque(maxlen=KEPT)
        self._count = 0
        self._done = self._refused = 0
        self._latencies_ms: Final[list[float]] = []
        self._is_known = True
        """Whether all ends of transfers were seen since the last sample."""
        self._skipped: dict[str, int] = {}

    def view(self, after: int, limit: int) -> SamplesView:
        """The last `limit` of the samples with higher numbers than `after`."""
        wanted = min(limit, self._count - after, len(self._kept)) if after <= self._count else len(self._kept)
        rows = list(islice(self._kept, len(self._kept) - max(0, wanted), None))
        names = sorted({name for row in rows for name in row.servers})
        none = (None, None)
        return SamplesView(
            told_by=self._node.config.name,
            every_s=EVERY_S,
            last=self._count,
            at_s=[row.at_s for row in rows],
            **{name: [row.numbers[name] for row in rows] for name in _COLUMNS},
            servers=[
                SampledServer(
                    name=name,
                    tick_fraction=[row.servers.get(name, none)[0] for row in rows],
                    late_ticks_per_s=[row.servers.get(name, none)[1] for row in rows],
                )
                for name in names
            ],
        )

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take samples until cancelled."""
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._count_transfers)
            await self._sample()

    async def _count_transfers(self) -> None:
        while True:
            with closing(self._node.replica.watch(("transfers", ANY_NAME))) as watch:
                try:
                    while events := await watch.take():
                        for event in events:
                            self._saw(event)
                except WatcherCut:
                    pass
            # Until there is a watch again, nothing is counted.
            self._is_known = False
            await self._node.clock.sleep_s(EVERY_S)

    def _saw(self, event: Event) -> None:
        row = None if event.after is None else event.after.encoded
        before = None if event.before is None else event.before.encoded
        if row is None or (before is not None and (_DONE in before or _REFUSED in before)):
            return
        if _REFUSED in row:
            self._refused += 1
        elif _DONE in row:
            self._done += 1
            if len(self._latencies_ms) < TIMED and (took_ms := _took_ms(event.data)) is not None:
                self._latencies_ms.append(took_ms)

    async def _sample(self) -> None:
        clock = self._node.clock
        before_ns, counted, applied = clock.monotonic_ns(), self._counted(), self._applied
        while True:
            skipped = await self._ask_skipped()
            await clock.sleep_s(max(0.0, EVERY_S - (clock.monotonic_ns() - before_ns) / 1e9))
            now_ns, now, entries = clock.monotonic_ns(), self._counted(), self._applied - applied
            passed_s = max(now_ns - before_ns, 1) / 1e9
            self._kept.append(self._taken(passed_s, counted, now, entries, skipped))
            self._count += 1
            before_ns, counted, applied = now_ns, now, applied + entries

    @property
    def _applied(self) -> int:
        return self._node.replica.status.applied_index

    def _counted(self) -> tuple[Latency, Latency]:
        """Of the log and of the disk: how many ever, and how long the last ones took."""
        return self._node.replica.status.latency, Latency.of(SYNC_TIMES.count, tuple(SYNC_TIMES.last_ns))

    def _taken(
        self,
        passed_s: float,
        before: Sequence[Latency],
        now: Sequence[Latency],
        entries: int,
        skipped: dict[str, int],
    ) -> OneSample:
        ends = (self._done, self._refused) if self._is_known else (None, None)
        took_ms = sorted(self._latencies_ms)
        numbers = dict.fromkeys(_COLUMNS)
        numbers |= {name: None if end is None else end / passed_s for name, end in zip(_COLUMNS[:2], ends, strict=True)}
        numbers["entries_per_s"] = max(0, entries) / passed_s
        if took_ms:
            numbers |= {
                "transfer_p50_ms": took_ms[len(took_ms) // 2],
                "transfer_p99_ms": took_ms[len(took_ms) * 99 // 100],
            }
        for name, earlier, later in zip(("proposal", "sync"), before, now, strict=True):
            numbers[f"{name}s_per_s"] = (later.count - earlier.count) / passed_s
            if later.count:
                numbers |= {f"{name}_p50_ms": later.p50_ms, f"{name}_p99_ms": later.p99_ms}
        self._done, self._refused, self._is_known = 0, 0, True
        self._latencies_ms.clear()
        servers = {row.name: self._server(row.name, passed_s, skipped) for row in self._servers()}
        self._skipped = skipped
        rounded = {name: None if value is None else round(value, 3) for name, value in numbers.items()}
        return OneSample(round(self._node.clock.unix_s(), 1), rounded, servers)

    def _server(self, name: str, passed_s: float, skipped: dict[str, int]) -> tuple[float | None, float | None]:
        report = self._node.balancer.report(name)
        is_heard = report is not None and report.age_s < EVERY_S
        fraction = round(report.load.tick_ppm / _PPM, 3) if report is not None and is_heard else None
        late = None
        if name in skipped and name in self._skipped:
            # It may have been started again, and counts from zero.
            late = round(max(0, skipped[name] - self._skipped[name]) / passed_s, 3)
        return fraction, late

    def _servers(self) -> list[DirectoryRow]:
        rows = [row for row in self._node.store.servers() if row.role is Role.SIMSERVER]
        return sorted(rows, key=_by_name)[:MAX_SAMPLED_SERVERS]

    async def _ask_skipped(self) -> dict[str, int]:
        """How many ticks each server has left out since it started, of those that say it."""
        found: dict[str, int] = {}

        async def ask(row: DirectoryRow) -> None:
            try:
                stats = await self._node.asked.ask(row, _STATS_PATH, CountedTicks)
            except ApiError:
                return
            found[row.name] = stats.counts.get("ticks_skipped", 0)

        async with trio.open_nursery() as nursery:
            for row in self._servers():
                nursery.start_soon(ask, row)
        return found


def _by_name(row: DirectoryRow) -> str:
    return row.name


def _took_ms(row: Any) -> float | None:
    """From the freeze to the activation, by the report of the source; None if that does not say it."""
    try:
        marks = read_json_untrusted(row["report"])["trace"]["marks"]
        at_ns = {label: at for _, label, at in reversed(marks)}
        return float(at_ns["activated"] - at_ns["frozen"]) / 1e6
    except (KeyError, TypeError, ValueError):
        return None
