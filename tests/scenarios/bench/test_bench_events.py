"""`baton bench events`: every row has a worker, and the load runs against the server that does nothing."""

import sys

import pytest

from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.events.course import COURSE, JOIN_TICKS
from batonpass.scenarios.bench.events.workers import on_ideal
from batonpass.scenarios.bench.events.workers.stream_load import loaded

IDEAL = (sys.executable, "-m", on_ideal.MODULE, "serve")


def test_every_row_has_a_work_with_a_figure_for_each_of_its_subjects() -> None:
    kinds = {"join": {"replay", "snapshot"}, "push": {"on-time", "p50", "p99", "cpu"}, "poll": {"p50", "p99", "cpu"}}
    known = {*COURSE.workers, *(peer.name for peer in COURSE.peers)}
    for row in COURSE.rows:
        assert {OURS, *row.subjects} <= known
        for subject in (OURS, *row.subjects):
            work, _, figure = COURSE.work[subject, row.name].partition(":")
            kinds = {
                "join": {"replay", "snapshot"},
                "push": {"on-time", "p50", "p99", "cpu"},
                "poll": {"p50", "p99", "cpu"},
            }
            assert figure in kinds[work.partition("-")[0]]
    assert JOIN_TICKS * 50 == 3_600_000, "an hour"


@pytest.mark.parametrize("kind", ["push", "poll"])
def test_a_server_tells_ticks_to_all_clients_and_one_that_does_nothing_delivers_no_event(kind: str) -> None:
    figures = loaded(f"{kind}-2x3", 0.1, IDEAL)
    assert 0.0 < figures["on-time"] <= 1.0
    assert (figures["p50"], figures["p99"]) == (0.0, 0.0)
