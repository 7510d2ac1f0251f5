"""`baton run sectors`: planning, judging, and one run with real processes."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.wire.hops import REPEATED, Trace
from batonpass.scenarios.cli import main as cli
from batonpass.scenarios.cluster.blueprint import hold_directory, lay_out
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.topology import BadSpec, ClusterSpec, InstanceRoute
from batonpass.scenarios.judge.custody import Custody
from batonpass.scenarios.judge.evidence import Evidence
from batonpass.scenarios.report.json_file import read_sectors, write_sectors
from batonpass.scenarios.report.model import HopRange, Invariants, SectorsReport
from batonpass.scenarios.report.verdict import sectors_problems
from batonpass.scenarios.sectors import run as sectors
from batonpass.scenarios.sectors.feed import Flown
from batonpass.scenarios.sectors.judge import Observed, custody_holes, peaks, sectors_report
from batonpass.scenarios.sectors.map import AirspaceBounds, Grid
from batonpass.scenarios.sectors.plan import (
    Crossing,
    SectorsPlan,
    crossing_of,
    flights_of_hour,
    make_plan,
    servers_of_sectors,
)
from batonpass.scenarios.sectors.synthetic_tracks import Traffic, generate_flights
from batonpass.scenarios.sectors.tracks import HOUR_MS, Flight, Point
from batonpass.scenarios.sectors.world import Airspace
from tests.scenarios.factories import MACHINE, STARTED_AT, VERSIONS, make_sectors_report
from tests.scenarios.fakes import ROOT

BOUNDS = AirspaceBounds(45.0, 6.0, 47.0, 8.0)
HOMES = {"alpha": 3, "beta": 3}
START_MS = 1_533_121_200_000  # 2018-08-01 11:00 UTC
WEST, EAST = (45.5, 6.5), (45.5, 7.5)
FACTS = {"versions": VERSIONS, "seed": 7, "machine": MACHINE, "started_at": STARTED_AT}


def make_flight(number: int, *positions: tuple[float, float], first_ms: int = START_MS) -> Flight:
    points = tuple(
        Point(first_ms + 10_000 * index, latitude, longitude, 35_000.0, 480.0, 90.0, 0.0)
        for index, (latitude, longitude) in enumerate(positions or (WEST, EAST))
    )
    return Flight(f"SWR{number}-4b180{number}-1", f"4b180{number}", f"SWR{number}", points)


def make_test_plan(*flights: Flight, **changes: Any) -> SectorsPlan:
    wishes: dict[str, Any] = {"bounds": BOUNDS, "grid": Grid(2, 2), "homes": HOMES, "speedup": 60.0} | changes
    return make_plan(flights or (make_flight(1),), **wishes)


# ---- who has which sector ----


def test_the_west_belongs_to_the_first_instance_and_the_east_to_the_second() -> None:
    # From the south-west corner eastwards, row by row.
    assert servers_of_sectors(Grid(2, 2), ("alpha", "beta")) == ("alpha.s1", "beta.s1", "alpha.s2", "beta.s2")
    assert servers_of_sectors(Grid(1, 3), ("alpha", "beta")) == ("alpha.s1", "alpha.s2", "beta.s1")
    # With fewer columns than instances, from south to north.
    assert servers_of_sectors(Grid(2, 1), ("alpha", "beta")) == ("alpha.s1", "beta.s1")


@given(rows=st.integers(1, 16), columns=st.integers(1, 16), instances=st.integers(1, 5))
def test_every_sector_has_a_server_of_its_own_and_every_instance_a_sector(
    rows: int, columns: int, instances: int
) -> None:
    names = tuple(f"i{number}" for number in range(instances))
    if rows * columns < instances:
        with pytest.raises(BadSpec, match="fewer sectors than there are instances"):
            servers_of_sectors(Grid(rows, columns), names)
        return
    servers = servers_of_sectors(Grid(rows, columns), names)
    assert len(set(servers)) == rows * columns
    assert {server.partition(".")[0] for server in servers} == set(names)
    if columns >= instances:
        for column in range(columns):
            assert len({servers[row * columns + column].partition(".")[0] for row in range(rows)}) == 1


def test_the_cluster_has_a_simulation_server_for_every_sector_and_the_world_knows_them() -> None:
    plan = make_test_plan(grid=Grid(1, 3))
    assert (plan.cluster.instances, plan.cluster.simservers) == (HOMES, 2)
    assert set(plan.servers) <= {name for home in HOMES for name in plan.cluster.simserver_names(home)}
    assert plan.cluster.world == "batonpass.scenarios.sectors.world:Airspace"
    Airspace(**plan.cluster.world_options)


def test_the_minimum_hold_is_the_same_time_for_the_aircraft_however_fast_its_time_runs() -> None:
    holds = [make_test_plan(speedup=speedup).cluster.world_options["minimum_hold_ticks"] for speedup in (1, 60, 1_000)]
    assert holds == [600, 10, 1]


# ---- aircraft ----


def test_an_aircraft_is_at_home_where_it_is_first_heard() -> None:
    plan = make_test_plan(make_flight(1, WEST, EAST), make_flight(2, EAST, WEST))
    assert [(aircraft.entity, aircraft.server) for aircraft in plan.aircraft] == [
        ("alpha.4b1801-SWR1-1", "alpha.s1"),
        ("beta.4b1802-SWR2-1", "beta.s1"),
    ]


def test_an_aircraft_without_a_callsign_has_a_name_all_the_same() -> None:
    plan = make_test_plan(Flight("unknown-4b1801-2", "4b1801", "", make_flight(1).points))
    assert plan.aircraft[0].entity == "alpha.4b1801-unknown-2"


def test_it_waits_at_its_first_position_and_only_its_last_report_ends_the_flight() -> None:
    (aircraft,) = make_test_plan().aircraft
    body = aircraft.creation("alpha.traffic")
    assert (body["id"], body["kind"], body["server"]) == (aircraft.entity, "aircraft", "alpha.s1")
    world = Airspace(**make_test_plan().cluster.world_options)
    waiting = world.spawn(body["kind"], body["params"])
    assert world.step(waiting, [], 1.0)["longitude_e7"] == waiting["longitude_e7"] == 65_000_000
    assert [aircraft.report(number).last for number in range(2)] == [False, True]


def test_made_up_flights_have_names_that_differ() -> None:
    flights = generate_flights(Traffic(BOUNDS, 200, START_MS, 3_600), random.Random(1))
    plan = make_test_plan(*flights)
    assert len({aircraft.entity for aircraft in plan.aircraft}) == 200
    assert plan.reports == sum(len(flight.points) for flight in flights)


# ---- which hour ----


def test_the_hour_is_the_busiest_or_all_or_the_one_that_was_asked_for() -> None:
    early = make_flight(1)
    late = [make_flight(number, first_ms=START_MS + 2 * HOUR_MS) for number in (2, 3)]
    flights = (early, *late)
    assert flights_of_hour(flights, "all") == flights
    assert flights_of_hour(flights, "busiest") == tuple(late)
    assert flights_of_hour(flights, "2018-08-01T11:00") == (early,)
    assert flights_of_hour(flights, "2018-08-01T13:00+02:00") == (early,)


@pytest.mark.parametrize(
    ("hour", "sentence"),
    [
        ("noon", "'noon' is not busiest, all, or a time such as"),
        ("2018-08-02T11:00", r"there was no flight .* from 2018-08-01T11:00\+00:00 to 2018-08-01T11:00\+00:00"),
    ],
)
def test_an_hour_that_cannot_be_is_refused_with_what_can(hour: str, sentence: str) -> None:
    with pytest.raises(BadSpec, match=sentence):
        flights_of_hour((make_flight(1),), hour)


# ---- what a crossing should be ----


@pytest.mark.parametrize(
    ("entity", "source", "target", "expected"),
    [
        ("alpha.a", "alpha.s1", "alpha.s2", Crossing("2", None, 3)),
        ("alpha.a", "alpha.s1", "beta.s1", Crossing("1", 1, 5)),
        ("alpha.a", "beta.s1", "alpha.s1", Crossing("1", 1, 5)),
        # Between two sectors of beta the request of an alpha aircraft goes to alpha and back.
        ("alpha.a", "beta.s1", "beta.s2", Crossing("1", 2, 7)),
        ("alpha.a", "beta.s1", "gamma.s1", Crossing("1", 3, 9)),
    ],
)
def test_h_counts_the_way_by_the_home_of_the_record(entity: str, source: str, target: str, expected: Crossing) -> None:
    spec = ClusterSpec(
        {"alpha": 1, "beta": 1, "gamma": 1}, relays=1, routes=(InstanceRoute("alpha", "gamma", ("relay.r1",)),)
    )
    assert crossing_of(spec, entity, source, target) == expected


# ---- judging ----

AIRCRAFT = "alpha.4b1801-SWR1-1"


def make_stint(server: str, epoch: int, started_ns: int, ended_ns: int = 0, entity: str = AIRCRAFT) -> dict[str, Any]:
    times = {"started_ns": started_ns, "ended_ns": ended_ns}
    return {"entity": entity, "server": server, "epoch": epoch, "sub": 0} | times


def make_transfer(source: str, target: str, epoch: int, *, hops: int = 5, **changes: Any) -> dict[str, Any]:
    """As `GET /v1/entities/{id}/transfers` shows it."""
    trace = Trace("t1").mark(source, "frozen", 1_000_000).mark(target, "activated", 31_000_000)
    for number in range(1, hops + 1):
        trace = trace.leave(source, "request", number).arrive(target, number + 1, 100)
    view = {"transfer_id": "t1", "entity": AIRCRAFT, "source": source, "target": target, "epoch": epoch, "sub": 0}
    done = {"result": "done", "reason": "", "trace": trace.to_data(), "off_path": {}, "counters": {"requests": 1}}
    return view | done | changes


CHAIN = [make_stint("alpha.s1", 1, 10, 20), make_stint("beta.s1", 2, 30)]


def test_custody_and_transfers_that_tell_the_same_story_have_no_hole() -> None:
    assert custody_holes(CHAIN, [make_transfer("alpha.s1", "beta.s1", 2)]) == []


def test_a_refused_transfer_explains_why_the_old_server_goes_on_under_a_new_epoch() -> None:
    stints = [make_stint("alpha.s1", 1, 10, 20), make_stint("alpha.s1", 2, 30)]
    refused = make_transfer("alpha.s1", "beta.s1", 2, result="refused", reason="unknown_target")
    assert custody_holes(stints, [refused]) == []


@pytest.mark.parametrize(
    ("transfers", "sentence"),
    [
        ([], "from alpha.s1 to beta.s1 at epoch 2, and no transfer says so"),
        ([make_transfer("alpha.s1", "beta.s2", 2)], "the log says from alpha.s1 to beta.s2"),
        (
            [make_transfer("alpha.s1", "beta.s1", 2), make_transfer("beta.s1", "beta.s2", 3)],
            "a transfer to beta.s2 at epoch 3, and no server began",
        ),
    ],
)
def test_where_custody_and_transfers_differ_there_is_a_hole(transfers: list[dict[str, Any]], sentence: str) -> None:
    (hole,) = custody_holes(CHAIN, transfers)
    assert AIRCRAFT in hole
    assert sentence in hole


def test_the_peak_of_a_sector_counts_who_is_there_at_one_moment_and_still_flies() -> None:
    stints = [
        make_stint("alpha.s1", 1, 0, 100, "alpha.a"),
        make_stint("alpha.s1", 1, 50, 150, "alpha.b"),
        make_stint("alpha.s1", 1, 100, 0, "alpha.c"),
        make_stint("alpha.s1", 1, 120, 0, "alpha.d"),
        make_stint("beta.s1", 2, 100, 0, "alpha.a"),
    ]
    assert peaks(stints, {}) == {"alpha.s1": 3, "beta.s1": 1}
    assert peaks(stints, {"alpha.c": 110, "alpha.a": 90}) == {"alpha.s1": 2}


def observed(**changes: Any) -> Observed:
    custody = Custody(gaps_ticks={(AIRCRAFT, 2, 0): 1})
    evidence = Evidence(custody, Invariants(), list(CHAIN), {AIRCRAFT: 2}, [])
    fields: dict[str, Any] = {
        "transfers": [make_transfer("alpha.s1", "beta.s1", 2)],
        "evidence": evidence,
        "held": {AIRCRAFT: ["beta.s1"]},
        "sent": {AIRCRAFT: 2},
        "flown": Flown([20.0, 60.0]),
    }
    fields["flown"].applied_by.update({"alpha.s1": 1, "beta.s1": 1})
    return Observed(**(fields | changes))


def judged(**changes: Any) -> tuple[SectorsReport, tuple[str, ...]]:
    report, _ = sectors_report(make_test_plan(), observed(**changes), "a test", FACTS)
    return report, sectors_problems(report)


def test_a_run_in_which_everything_is_accounted_for_passes(tmp_path: Path) -> None:
    report, problems = judged()
    assert problems == ()
    assert (report.aircraft_total, report.aircraft_finished, report.transfers) == (1, 1, 1)
    (case,) = report.cases
    assert (case.case, case.h, case.measured_hops.min, case.measured_hops.max) == ("1", 1, 5, 5)
    assert (report.latency_ms.p50, report.gap_ticks.max, report.lateness_ms.max) == (30.0, 1, 60.0)
    assert [(row.server, row.handed_in, row.handed_out, row.inputs_applied) for row in report.sectors] == [
        ("alpha.s1", 0, 1, 1),
        ("beta.s1", 1, 0, 1),
        ("alpha.s2", 0, 0, 0),
        ("beta.s2", 0, 0, 0),
    ]
    write_sectors(tmp_path / "report.json", report)
    assert read_sectors(tmp_path / "report.json") == report


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"held": {AIRCRAFT: []}}, "1 of 1 aircraft did not reach the end of their flight"),
        ({"held": {AIRCRAFT: ["alpha.s1", "beta.s1"]}}, "two sectors held the same aircraft 1 time"),
        ({"held": {}, "sent": {}, "flown": Flown(not_spawned={AIRCRAFT: "full"})}, "1 of 1 aircraft did not reach"),
        (
            {"transfers": [make_transfer("alpha.s1", "beta.s1", 2, hops=6)]},
            "Case 1, H = 1: expected 5 hops, measured 6",
        ),
        ({"transfers": []}, "no sector held a flying aircraft 1 time"),
        (
            {"transfers": [make_transfer("alpha.s1", "beta.s1", 2, result="pending")]},
            "1 of 1 transfer failed (unfinished 1)",
        ),
        (
            {"transfers": [make_transfer("alpha.s1", "beta.s1", 2, trace=None)]},
            "1 of 1 transfer failed (untimed 1)",
        ),
        ({"sent": {AIRCRAFT: 3}}, "3 inputs sent, 2 applied"),
    ],
)
def test_whatever_is_not_accounted_for_is_a_problem(changes: dict[str, Any], problem: str) -> None:
    _, problems = judged(**changes)
    assert any(problem in found for found in problems), problems


def test_a_crossing_that_took_a_repetition_is_done_and_not_measured() -> None:
    """What led to its decision is not known, so it is held against no formula; alone it is no reason to fail."""
    repeated = Trace("t1").mark("alpha.s1", "frozen", 1).mark("alpha.h1", REPEATED, 2).mark("beta.s1", "activated", 3)
    report, problems = judged(transfers=[make_transfer("alpha.s1", "beta.s1", 2, trace=repeated.to_data())])
    (count,) = report.cases
    assert (count.transfers, count.repeated, count.failed, count.measured_hops) == (1, 1, 0, HopRange())
    assert (report.transfers, report.failed, report.latency_ms.p50) == (1, 0, None)
    assert not any("hops" in problem for problem in problems), problems


# ---- the command ----


@pytest.mark.parametrize(("finished", "status"), [(120, 0), (119, 1)])
def test_a_lost_aircraft_is_exit_status_1(
    finished: int, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def flown(*_arguments: Any) -> tuple[SectorsReport, list[str]]:
        return make_sectors_report(aircraft_finished=finished), ["alpha.4b1801-SWR1-1 lives nowhere"]

    monkeypatch.setattr(sectors, "_on_fresh_cluster", flown)
    assert cli.run_command(["run", "sectors", "--flights", "3"]) == status
    assert "alpha.4b1801-SWR1-1 lives nowhere" in capsys.readouterr().out


def test_what_a_recording_lacks_is_told_in_text_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def flown(*_arguments: Any) -> tuple[SectorsReport, list[str]]:
        return make_sectors_report(), []

    monkeypatch.setattr(sectors, "_on_fresh_cluster", flown)
    file, report = tmp_path / "rows.csv", tmp_path / "report.json"
    rows = [f"15331140{n:02}000,4b1805,SWR1,{46 + n / 10},{8 + n / 10}" for n in range(5)]
    file.write_text("\n".join(["timestamp,icao24,callsign,latitude,longitude", *rows, "x,4b1805,SWR1,46,8", ""]))
    status = cli.run_command(["run", "sectors", "--tracks", str(file), "--json", str(report), "--grid", "1x2"])
    said = capsys.readouterr().out
    assert status == 0
    assert "1 records dropped: no timestamp" in said
    assert "the first that was dropped is line 7: no timestamp" in said
    recording = json.loads(report.read_text(encoding="utf-8"))["recording"]
    assert (recording["records"], recording["points"]) == (6, 5)
    assert recording["dropped"] == {"no timestamp": 1}
    assert recording["first_dropped"] == "line 7: no timestamp"
    assert read_sectors(report).recording is not None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--grid", "0x2"], "a grid has 1 to 16 rows, not 0"),
        (["--grid", "four"], "'four' is not a grid"),
        (["--grid", "1x1"], "fewer sectors than there are instances"),
        (["--homes", "alpha"], "cannot read 'alpha'"),
        (["--hour", "noon"], "'noon' is not busiest"),
        (["--speedup", "0"], "0.0 is not in the range"),
        (["--tracks", "nowhere.json"], "nowhere.json"),
        (["--tracks", str(ROOT / "pyproject.toml")], "pyproject.toml"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_status_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["run", "sectors", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_directory_with_an_earlier_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "earlier"
    with hold_directory(directory), PortAllocator(random.Random(1)) as ports:
        lay_out(make_test_plan().cluster, directory, ports)
    assert cli.run_command(["run", "sectors", "--dir", str(directory)]) == 2
    assert "a run needs a new or empty directory" in capsys.readouterr().err


def test_real_servers_hand_a_few_aircraft_over_and_lose_nothing(tmp_path: Path) -> None:
    arguments = ["--flights", "8", "--speedup", "300", "--seed", "4", "--homes", "alpha:1,beta:1"]
    outcome = subprocess.run(
        [
            sys.executable,
            "-m",
            "batonpass.scenarios.cli.main",
            "run",
            "sectors",
            *arguments,
            "--json",
            str(tmp_path / "report.json"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "PASSED" in outcome.stdout
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (data["kind"], data["passed"], data["problems"]) == ("batonpass.sectors", True, [])
    report = read_sectors(tmp_path / "report.json")
    assert (report.aircraft_total, report.aircraft_finished, report.failed) == (8, 8, 0)
    assert report.inputs_applied == report.inputs_sent == sum(row.inputs_applied for row in report.sectors)
    assert {case.case for case in report.cases} == {"1", "2"}
    assert sum(case.transfers for case in report.cases) == report.transfers
    assert sum(row.handed_in for row in report.sectors) == sum(row.handed_out for row in report.sectors)
    assert report.sectors[0].server == "alpha.s1"
    assert (report.speedup, report.source) == (300.0, "generated flights")
