"""Made-up reports with the right shape: real paths, plausible times, everything from one seed."""

import itertools
import random
from datetime import UTC, datetime
from typing import Any

from batonpass.scenarios.report.model import (
    CaseCount,
    CaseResult,
    CasesReport,
    HopRange,
    Invariants,
    PhaseMedians,
    ReportedHop,
    ReportedMark,
    Role,
    SampleTransfer,
    SectorRow,
    SectorsReport,
    ServerEntry,
    TickGap,
)
from batonpass.scenarios.report.statistics import summarise

STARTED_AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
VERSIONS = {"batonpass": "0.1.0", "python": "3.11.7", "pysyncobj": "0.3.17"}
MACHINE: dict[str, str | int | float] = {"system": "Linux 6.1", "cores": 2, "memory_gib": 7.8}

SERVER_ROLES: tuple[tuple[str, Role, int], ...] = (("h", "homeserver", 3), ("s", "simserver", 2))


def case_path(case: str, h: int | None) -> list[tuple[str, str, str]]:
    """The on-path hops of a case as (kind, from, to)."""
    if case == "3":
        return [("handoff", "alpha.s1", "alpha.s2"), ("handoff_ack", "alpha.s2", "alpha.s1")]
    if case == "2":
        return [
            ("request", "alpha.s1", "alpha.h1"),
            ("grant", "alpha.h1", "alpha.s2"),
            ("handoff_ack", "alpha.s2", "alpha.s1"),
        ]
    assert h is not None
    across = ["alpha.h1", *(f"relay.r{number}" for number in range(1, h)), "beta.h1"]
    return [
        ("request", "alpha.s1", "alpha.h1"),
        *(("home_request", here, there) for here, there in itertools.pairwise(across)),
        *(("home_response", here, there) for here, there in itertools.pairwise(across[::-1])),
        ("response", "alpha.h1", "alpha.s1"),
        ("handoff", "alpha.s1", "beta.s1"),
    ]


def make_sample(case: str = "1", h: int | None = 1, *, rng: random.Random | None = None) -> SampleTransfer:
    """One transfer whose hops follow each other, with the state travelling beside them."""
    dice = rng or random.Random(f"{case}/{h}")
    now_ns = 81_000_000_000_000
    start_ns = now_ns
    hops = []
    path = case_path(case, h)
    for number, (kind, src, dst) in enumerate(path, start=1):
        sent_ns = now_ns + dice.randint(40_000, 400_000)
        now_ns = sent_ns + dice.randint(120_000, 900_000)
        hops.append(
            ReportedHop(number=number, kind=kind, src=src, dst=dst, sent_ns=sent_ns, received_ns=now_ns, on_path=True)
        )
    old = "alpha.s1"
    new = path[-1][2] if case == "1" else "alpha.s2"
    marks = [
        ReportedMark(server=old, label="frozen", at_ns=start_ns),
        *(
            ReportedMark(server=hop.dst, label="committed", at_ns=hop.received_ns + 50_000)
            for hop in [hop for hop in hops if hop.dst == "alpha.h1"][-1:]
        ),
        ReportedMark(server=new, label="activated", at_ns=now_ns + 90_000),
        ReportedMark(server=old, label="retired", at_ns=now_ns + 900_000),
    ]
    beside = [("state", old, new, 150_000), ("retire", new, old, now_ns - start_ns + 200_000)]
    for kind, src, dst, after_ns in beside:
        sent_ns = start_ns + after_ns
        hops.append(
            ReportedHop(
                number=0, kind=kind, src=src, dst=dst, sent_ns=sent_ns, received_ns=sent_ns + 350_000, on_path=False
            )
        )
    return SampleTransfer(transfer_id=f"t-{case}-{h or 0}", hops=tuple(hops), marks=tuple(marks))


def make_case(case: str = "1", h: int | None = 1, *, transfers: int = 200, **changes: Any) -> CaseResult:
    """A case that went as expected, unless `changes` say otherwise."""
    dice = random.Random(f"{case}/{h}/{transfers}")
    sample = make_sample(case, h)
    hops = sum(hop.on_path for hop in sample.hops)
    latencies_ms = tuple(dice.lognormvariate(0.35 * hops, 0.35) for _ in range(transfers))
    fields: dict[str, Any] = {
        "case": case,
        "h": h,
        "mode": "eager",
        "transport": "rest" if case != "3" else "link",
        "formula": {"1": "3 + 2H", "2": "3", "3": "2"}[case],
        "expected_hops": hops,
        "measured_hops": HopRange(min=hops, max=hops),
        "transfers": transfers,
        "failed": 0,
        "latency_ms": summarise(latencies_ms),
        "phases_ms": PhaseMedians(
            request=0.8, rule=0.06, commit=None if case == "3" else 2.3, state=1.1, activation=0.2
        ),
        "gap_ticks": TickGap(p50=1, max=3),
        "off_path": {"state": 1.0, "http_reply": 2.0, "retire": 1.0, "directory": 0.02},
        "retransmissions": 2,
        "raft_rounds": 0 if case == "3" else transfers,
        "bytes_p50": 4_812.0,
        "sample": sample,
        "latencies_ms": latencies_ms,
    }
    return CaseResult(**(fields | changes))


def make_report(**changes: Any) -> CasesReport:
    """All cases with H = 1, 2, 3, everything as expected, unless `changes` say otherwise."""
    fields: dict[str, Any] = {
        "cases": (make_case("1", 1), make_case("1", 2), make_case("1", 3), make_case("2", None), make_case("3", None)),
        "invariants": Invariants(),
        "versions": VERSIONS,
        "seed": 7,
        "machine": MACHINE,
        "started_at": STARTED_AT,
        "cluster": tuple(
            ServerEntry(name=f"{instance}.{letter}{number}", role=role, instance=instance)
            for instance in ("alpha", "beta")
            for letter, role, members in SERVER_ROLES
            for number in range(1, members + 1)
        ),
    }
    return CasesReport(**(fields | changes))


def make_sectors_report(**changes: Any) -> SectorsReport:
    """A run over 2x2 sectors that went as expected, unless `changes` say otherwise."""
    fields: dict[str, Any] = {
        "invariants": Invariants(),
        "versions": VERSIONS,
        "seed": 7,
        "machine": MACHINE,
        "started_at": STARTED_AT,
        "source": "switzerland.json.gz",
        "grid": "2x2",
        "aircraft_total": 120,
        "aircraft_finished": 120,
        "transfers": 97,
        "failed": 0,
        "cases": (
            CaseCount(case="1", h=1, expected_hops=5, measured_hops=HopRange(min=5, max=5), transfers=40),
            CaseCount(case="2", h=None, expected_hops=3, measured_hops=HopRange(min=3, max=3), transfers=57),
            CaseCount(case="3", h=None, expected_hops=2, measured_hops=HopRange(), transfers=0),
        ),
        "latency_ms": summarise([2.5, 3.5, 4.5, 20.0]),
        "gap_ticks": TickGap(p50=1, max=2),
        "custody_overlaps": 0,
        "custody_holes": 0,
        "inputs_sent": 43_000,
        "inputs_applied": 43_000,
        "sectors": tuple(
            SectorRow(
                sector=number,
                server=f"alpha.s{number + 1}",
                aircraft_peak=31,
                handed_in=24,
                handed_out=24,
                inputs_applied=10_750,
            )
            for number in range(4)
        ),
    }
    return SectorsReport(**(fields | changes))
