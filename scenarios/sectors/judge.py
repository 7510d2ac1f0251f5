"""From what a run over sectors left behind to its report: every crossing, every aircraft, every sector. Pure.

Two witnesses are held against each other. One is the transfers in the log of the aircraft's home. The other is the
custody logs of the simulation servers, which know nothing of transfers. Each change of hands in the one has to be in
the other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from batonpass.scenarios.judge.evidence import Evidence
from batonpass.scenarios.judge.measure import Measured, read_transfer
from batonpass.scenarios.report import statistics
from batonpass.scenarios.report.model import CaseCount, SectorRow, SectorsReport
from batonpass.scenarios.sectors.feed import Flown
from batonpass.scenarios.sectors.plan import Crossing, SectorsPlan, crossing_of

__all__ = ["Crossings", "Observed", "custody_holes", "peaks", "sectors_report", "sort_crossings"]

MAX_FINDINGS: Final = 20


@dataclass(frozen=True)
class Observed:
    """Everything that was collected at the end of a run."""

    transfers: Sequence[Mapping[str, Any]]
    """Of all aircraft, as `GET /v1/entities/{id}/transfers` shows them."""
    evidence: Evidence
    held: Mapping[str, Sequence[str]]
    """For each aircraft, the servers on which it lives at the end."""
    sent: Mapping[str, int]
    """Position reports sent, by aircraft."""
    flown: Flown


@dataclass(frozen=True)
class Crossings:
    """The transfers of a run, those that were completed and those that were not."""

    done: tuple[tuple[Crossing, Mapping[str, Any], Measured], ...]
    failed: tuple[tuple[Crossing, str], ...]
    """With the reason code; `unfinished` when it was still under way in the end."""


def sort_crossings(plan: SectorsPlan, transfers: Iterable[Mapping[str, Any]]) -> Crossings:
    """Read the transfers, and say of each what it should have been."""
    done, failed = [], []
    for view in transfers:
        crossing = crossing_of(plan.cluster, view["entity"], view["source"], view["target"])
        if view["result"] == "refused":
            failed.append((crossing, view["reason"]))
        elif view["result"] != "done":
            failed.append((crossing, "unfinished"))
        else:
            try:
                done.append((crossing, view, read_transfer(view)))
            except ValueError:
                failed.append((crossing, "untimed"))
    return Crossings(tuple(done), tuple(failed))


def custody_holes(stints: Iterable[Mapping[str, Any]], transfers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where the custody logs and the log of transfers do not tell the same story, a sentence for each place.

    Every stint but the first has to follow from a transfer with the same fence, between the servers that the stints
    name. (Or it follows from its refusal, which lets the old server continue under a new fence.) Every transfer has to
    lead to a stint.
    """
    by_entity: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for stint in stints:
        by_entity[stint["entity"]].append(stint)
    decided: dict[tuple[str, int, int], Mapping[str, Any]] = {}
    for view in transfers:
        if view["epoch"]:
            decided[view["entity"], view["epoch"], view["sub"]] = view
    holes = []
    for entity, chain in by_entity.items():
        chain.sort(key=lambda stint: (stint["epoch"], stint["sub"]))
        for before, after in pairwise(chain):
            key = entity, after["epoch"], after["sub"]
            where = f"{entity} went from {before['server']} to {after['server']} at epoch {after['epoch']}"
            if key not in decided:
                holes.append(f"{where}, and no transfer says so")
                continue
            source, target = _ends(decided.pop(key))
            if (source, target) != (before["server"], after["server"]):
                holes.append(f"{where}, and the log says from {source} to {target}")
    holes += [
        f"{entity}: the log has a transfer to {view['target']} at epoch {epoch}, and no server began to simulate then"
        for (entity, epoch, _), view in decided.items()
    ]
    return holes


def _ends(view: Mapping[str, Any]) -> tuple[str, str]:
    return view["source"], view["source"] if view["result"] == "refused" else view["target"]


def peaks(stints: Iterable[Mapping[str, Any]], finished_ns: Mapping[str, int]) -> dict[str, int]:
    """For each server the most aircraft that it held at one moment, not counting those that had finished."""
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for stint in stints:
        end_ns = finished_ns.get(stint["entity"], 0) or stint["ended_ns"]
        if stint["ended_ns"]:
            end_ns = min(end_ns, stint["ended_ns"])
        if end_ns and end_ns <= stint["started_ns"]:
            continue
        changes[stint["server"]].append((stint["started_ns"], 1))
        if end_ns:
            changes[stint["server"]].append((end_ns, -1))
    found = {}
    for server, moments in changes.items():
        most = now = 0
        # Of two changes at one moment the leaving comes first: intervals are half open.
        for _, change in sorted(moments):
            now += change
            most = max(most, now)
        found[server] = most
    return found


def sectors_report(
    plan: SectorsPlan, observed: Observed, source: str, facts: Mapping[str, Any]
) -> tuple[SectorsReport, list[str]]:
    """The report of a run, and sentences about what was not as it should be.

    Args:
        source: where the flights came from.
        facts: the fields of `RunFacts` that do not follow from the run itself.
    """
    crossings = sort_crossings(plan, observed.transfers)
    evidence, flown = observed.evidence, observed.flown
    holes = custody_holes(evidence.stints, observed.transfers)
    twice = [f"{entity} lives on {' and '.join(held)}" for entity, held in observed.held.items() if len(held) > 1]
    nowhere = [f"{entity} lives nowhere" for entity, held in observed.held.items() if not held]
    gaps = [
        evidence.custody.gaps_ticks[key]
        for _, _, measured in crossings.done
        if (key := (measured.entity, measured.epoch, measured.sub)) in evidence.custody.gaps_ticks
    ]
    report = SectorsReport(
        **facts,
        invariants=evidence.invariants,
        source=source,
        grid=str(plan.map.grid),
        aircraft_total=len(plan.aircraft),
        aircraft_finished=sum(_finished(plan, observed).values()),
        transfers=len(crossings.done),
        failed=len(crossings.failed),
        failures=dict(Counter(reason for _, reason in crossings.failed)),
        cases=_case_counts(crossings),
        latency_ms=statistics.summarise([m.latency_ms for _, _, m in crossings.done if not m.repeated]),
        gap_ticks=statistics.tick_gap(gaps),
        custody_overlaps=evidence.custody.two_authorities + len(twice),
        custody_holes=len(holes) + len(nowhere),
        inputs_sent=sum(observed.sent.values()),
        inputs_applied=sum(evidence.applied.values()),
        sectors=_sector_rows(plan, observed, crossings),
        speedup=plan.speedup,
        flights_from=datetime.fromtimestamp(plan.start_ms / 1000, UTC),
        flights_s=(plan.end_ms - plan.start_ms) / 1000,
        lateness_ms=statistics.summarise([max(0.0, late) for late in flown.lateness_ms]),
    )
    refused = [f"{entity} was not spawned: {why}" for entity, why in flown.not_spawned.items()]
    return report, (refused + evidence.findings + twice + nowhere + holes)[:MAX_FINDINGS]


def _finished(plan: SectorsPlan, observed: Observed) -> dict[str, bool]:
    """Of each aircraft, whether all of its reports were applied and it lives, in one place."""
    return {
        aircraft.entity: observed.evidence.applied.get(aircraft.entity) == len(aircraft.flight.points)
        and len(observed.held.get(aircraft.entity, ())) == 1
        for aircraft in plan.aircraft
    }


def _case_counts(crossings: Crossings) -> tuple[CaseCount, ...]:
    done = Counter(crossing for crossing, _, _ in crossings.done)
    hops: dict[Crossing, list[int]] = defaultdict(list)
    for crossing, _, measured in crossings.done:
        if not measured.repeated:
            hops[crossing].append(measured.hops)
    failed = Counter(crossing for crossing, _ in crossings.failed)
    return tuple(
        CaseCount(
            case=crossing.case,
            h=crossing.h,
            expected_hops=crossing.expected_hops,
            measured_hops=statistics.hop_range(hops[crossing]),
            transfers=done[crossing],
            repeated=done[crossing] - len(hops[crossing]),
            failed=failed[crossing],
        )
        for crossing in sorted({*done, *failed}, key=lambda crossing: (crossing.case, crossing.h or 0))
    )


def _sector_rows(plan: SectorsPlan, observed: Observed, crossings: Crossings) -> tuple[SectorRow, ...]:
    handed_in = Counter(view["target"] for _, view, _ in crossings.done)
    handed_out = Counter(view["source"] for _, view, _ in crossings.done)
    most = peaks(observed.evidence.stints, observed.flown.finished_ns)
    return tuple(
        SectorRow(
            sector=sector,
            server=server,
            aircraft_peak=most.get(server, 0),
            handed_in=handed_in[server],
            handed_out=handed_out[server],
            inputs_applied=observed.flown.applied_by[server],
        )
        for sector, server in enumerate(plan.servers)
    )
