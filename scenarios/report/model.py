"""What a run found out: the data model that every form of the report (table, JSON, HTML) is made from.

Measurements only. Whether they are good enough is decided in `scenarios.report.verdict`; how they look is decided in
`table`, `json_file` and `html`. All models are frozen, refuse unknown keys, and refuse NaN and infinity. So a report
file that loads is a report file that means something.

Times named `*_ns` are nanoseconds of the machine's monotonic clock, which all processes of one machine share. They
can be compared with each other inside one report, and with nothing else.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Quantity = Annotated[float, Field(ge=0)]

CaseName = Literal["1", "1s", "2", "3"]
Mode = Literal["eager", "staged"]
Transport = Literal["rest", "link"]
Role = Literal["homeserver", "simserver", "relay"]
MarkLabel = Literal["requested", "frozen", "staged", "committed", "activated", "retired"]


class ReportModel(BaseModel):
    """Base of everything here: frozen, no unknown keys, no NaN and no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Percentiles(ReportModel):
    """A distribution in four numbers (the unit is in the name of the field that holds it).

    All four are None when there was nothing to measure, for instance because every transfer failed.
    """

    p50: Quantity | None = None
    p95: Quantity | None = None
    p99: Quantity | None = None
    max: Quantity | None = None


class HopRange(ReportModel):
    """Fewest and most on-path hops that any transfer of a case took; both None when none was measured."""

    min: Count | None = None
    max: Count | None = None


class TickGap(ReportModel):
    """Ticks in which no server simulated the entity, per transfer; both None when none was completed."""

    p50: Quantity | None = None
    max: Count | None = None


class PhaseMedians(ReportModel):
    """Median milliseconds spent in each phase of a transfer; None for a phase that the case does not have."""

    request: Quantity | None = None
    rule: Quantity | None = None
    commit: Quantity | None = None
    state: Quantity | None = None
    activation: Quantity | None = None


class ReportedHop(ReportModel):
    """One message that crossed from one server process to another, as it was seen on the wire.

    `on_path` hops are numbered 1, 2, 3, … and are the ones the formula counts. Messages beside the path (state
    chunks, HTTP replies, retirement, key look-ups) carry the number of the hop they belong to, or 0.
    """

    number: Count
    kind: str
    src: str
    dst: str
    sent_ns: Count
    received_ns: Count
    on_path: bool


class ReportedMark(ReportModel):
    """A moment in the life of a transfer at one server, for instance when the entity was frozen there."""

    server: str
    label: MarkLabel
    at_ns: Count


class SampleTransfer(ReportModel):
    """One real transfer of a case with its whole timeline."""

    transfer_id: str
    hops: tuple[ReportedHop, ...]
    marks: tuple[ReportedMark, ...] = ()


class CaseResult(ReportModel):
    """What was measured for one transfer case: one row of the report."""

    case: CaseName
    h: Annotated[int, Field(ge=1)] | None
    """Hops from one home instance to another; None for cases that stay inside one instance."""
    mode: Mode
    transport: Transport
    formula: str
    """The expected number of hops as the design states it, for people: `3 + 2H`."""
    expected_hops: Count
    measured_hops: HopRange
    transfers: Count
    """Transfers that were completed."""
    repeated: Count = 0
    """How many of them took a repetition, because messages were lost or late. Their hops and times are in no number
    here: what led to the decision went with the answer that was lost. Gaps, resent messages and failures count all."""
    failed: Count
    """Transfers that were asked for and not completed."""
    latency_ms: Percentiles
    phases_ms: PhaseMedians
    gap_ticks: TickGap
    on_path: dict[str, Quantity] = Field(default_factory=dict)
    """Hops that the formula counts, by kind of message, per transfer."""
    off_path: dict[str, Quantity] = Field(default_factory=dict)
    """Messages beside the path, by kind of message, per transfer."""
    retransmissions: Count = 0
    raft_rounds: Count = 0
    """Raft rounds inside home instances over all transfers of the case. They are not hops."""
    bytes_p50: Quantity | None = None
    """Median bytes on the wire per transfer."""
    failures: dict[str, Count] = Field(default_factory=dict)
    """Failed transfers by reason code."""
    sample: SampleTransfer | None = None
    latencies_ms: tuple[Quantity, ...] = ()
    """Every latency, for drawing the distribution. In JSON files under `samples`, and only when asked for."""

    def hops_per_transfer_by_kind(self) -> dict[str, float]:
        """On-path hops by kind: the measured means, or those of the sample when no means were collected."""
        if self.on_path or self.sample is None:
            return dict(self.on_path)
        counted: dict[str, float] = {}
        for hop in self.sample.hops:
            if hop.on_path:
                counted[hop.kind] = counted.get(hop.kind, 0.0) + 1.0
        return counted


class Invariants(ReportModel):
    """How often each safety sentence of the design was seen broken. A good run has zeros only."""

    two_authorities: Count = 0
    """Ticks in which two servers simulated the same entity."""
    no_authority: Count = 0
    """Entities that the log gives to no server, or whose authority never came back, at the end of the run."""
    state_regressions: Count = 0
    """Times an entity's state went back to an earlier tick."""
    inputs_lost: Count = 0
    inputs_duplicated: Count = 0

    def broken(self) -> dict[str, int]:
        """The invariants that do not hold, by name, with how often they were broken."""
        counts: dict[str, int] = self.model_dump()
        return {name: count for name, count in counts.items() if count}


class ServerEntry(ReportModel):
    """One server process of the cluster that was measured."""

    name: str
    role: Role
    instance: str


class RunFacts(ReportModel):
    """What a reader needs in order to repeat a run or to doubt it."""

    versions: dict[str, str]
    seed: int
    machine: dict[str, str | int | float]
    started_at: AwareDatetime
    cluster: tuple[ServerEntry, ...] = ()


class TransfersFacts(RunFacts):
    """The same of a run that moves entities about."""

    invariants: Invariants


class CasesReport(TransfersFacts):
    """The result of `baton run cases`."""

    cases: tuple[CaseResult, ...]


class CaseCount(ReportModel):
    """How many border crossings took one transfer case, and how many hops they took."""

    case: CaseName
    h: Annotated[int, Field(ge=1)] | None
    expected_hops: Count
    measured_hops: HopRange
    transfers: Count
    repeated: Count = 0
    """As in `CaseResult`."""
    failed: Count = 0


class SectorRow(ReportModel):
    """One sector of the airspace: its server and the traffic through it."""

    sector: Count
    server: str
    aircraft_peak: Count
    """Most aircraft in the sector at any tick."""
    handed_in: Count
    handed_out: Count
    inputs_applied: Count


class RecordingFacts(ReportModel):
    """What was in a file of recorded flights, and what was wrong with it."""

    records: Count
    points: Count
    """Records that became a position of a flight."""
    dropped: dict[str, Count]
    """Records that could not be used, by reason."""
    first_dropped: str
    """The place of the first of them and what is wrong with it; empty if there is none."""
    missing: dict[str, Count]
    """Fields without a value in records that were used, by field."""
    duplicates: Count
    """Records for a moment that the aircraft already had a record for."""
    unsorted: Count
    """Records that stood behind a later one of the same aircraft."""


class SectorsReport(TransfersFacts):
    """The result of `baton run sectors`."""

    source: str
    """Where the flights came from: a file name, or the words `generated flights`."""
    recording: RecordingFacts | None = None
    """None of generated flights."""
    grid: str
    aircraft_total: Count
    aircraft_finished: Count
    """Aircraft that were followed to the last position of their flight."""
    transfers: Count
    failed: Count
    cases: tuple[CaseCount, ...]
    latency_ms: Percentiles
    gap_ticks: TickGap
    custody_overlaps: Count
    """Ticks in which two sectors held the same aircraft."""
    custody_holes: Count
    """Ticks beyond the measured gaps in which no sector held an aircraft that was still flying."""
    inputs_sent: Count
    inputs_applied: Count
    sectors: tuple[SectorRow, ...]
    failures: dict[str, Count] = Field(default_factory=dict)
    """Failed transfers by reason code."""
    speedup: Quantity = 1.0
    """How many times faster than clocks the flights' time ran."""
    flights_from: AwareDatetime | None = None
    """When the flights began, in their own time."""
    flights_s: Quantity | None = None
    """How much of the flights' time was flown, in seconds of that time."""
    lateness_ms: Percentiles = Percentiles()
    """From the moment at which a position was due, by the clock, to the word of a server that it has been applied."""


class LockstepMove(ReportModel):
    """A hand-over of a stream, or the loss of its server."""

    kind: Literal["hand-over", "failover"]
    at_s: Quantity
    """Since the run began."""
    source: str
    target: str
    """The server that has the stream afterwards."""
    took_ms: Quantity
    """Until the home instance's log said so."""
    gap_ms: Percentiles
    """Over the clients: the longest time without a new tick around it."""


class LockstepViolations(ReportModel):
    """How often each rule was seen broken. A good run has zeros only."""

    divergences: Count = 0
    """Ticks at which two clients had different hashes, or applied different events."""
    lost: Count = 0
    doubled: Count = 0
    reordered: Count = 0
    refused: Count = 0
    went_back: Count = 0
    """Times that a client was told a lower tick than before, or to begin anew."""
    unfinished: Count = 0
    """Clients that did not come to the last tick, or whose events were not all acknowledged."""


class LockstepSecond(ReportModel):
    """One second of a run."""

    at_s: Count
    syncs: Count
    tick: Count
    """The highest that was told by its end."""
    lead_ticks: Quantity
    """Median over clients and looks."""
    interval_ms: Quantity
    """The longest that a client has waited for a new tick which came in this second."""


class LockstepReport(RunFacts):
    """The result of `baton run lockstep`."""

    violations: LockstepViolations
    clients: Count
    late_joiners: Count
    joined_by_snapshot: Count
    joined_by_replay: Count = 0
    """Late joiners that computed all ticks instead; not in reports of earlier releases."""
    seconds: Quantity
    loss: Quantity
    jitter_ms: Quantity
    ticks: Count
    """To which all clients came."""
    compared_ticks: Count
    """At which two clients or more had a hash."""
    events_posted: Count
    events_applied: Count
    syncs: Count
    syncs_lost: Count
    syncs_per_s: Quantity
    lead_ticks: Percentiles
    """Known ticks that were not computed yet, after each tick."""
    interval_ms: Percentiles
    """Between two answers with new ticks, at one client."""
    catch_ups: Count
    catch_up_ms: Percentiles
    """How long a client was more than 4 ticks behind."""
    jumps: Count
    """By snapshots, of clients that had joined before."""
    moves: tuple[LockstepMove, ...] = ()
    timeline: tuple[LockstepSecond, ...] = ()
    last_hash: str = ""
    """Of the state at the last tick."""
    findings: tuple[str, ...] = ()
