"""`baton bench events`: every row has a worker, and the load runs against the server that does nothing."""

import sys

import pytest

from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.events.course import COURSE, JOIN_TICKS
from batonpass.scenarios.bench.events.workers import on_batonpass, on_ideal
from batonpass.scenarios.bench.events.workers.stream_load import SeenByClient, loaded, noticed, served_by

IDEAL = (sys.executable, "-m", on_ideal.MODULE, "serve")
OWN = (sys.executable, "-m", on_batonpass.MODULE, "serve")
PUSHED = {"on-time", "late-p99", "p50", "p99", "tick-p99", "wait-p99", "rest-p99", "cpu"}


def test_every_row_has_a_work_with_a_figure_for_each_of_its_subjects() -> None:
    kinds = {
        "join": {"replay", "snapshot"},
        "push": PUSHED,
        "grow": {"cpu"},
        "sse": PUSHED,
        "hosted": PUSHED,
        "poll": {"p50", "p99", "cpu"},
    }
    known = {*COURSE.workers, *(peer.name for peer in COURSE.peers)}
    for row in COURSE.rows:
        assert {OURS, *row.subjects} <= known
        for subject in (OURS, *row.subjects):
            work, _, figure = COURSE.work[subject, row.name].partition(":")
            assert figure in kinds[work.partition("-")[0]]
    assert JOIN_TICKS * 50 == 3_600_000, "an hour"


def sampled(work: str, server: tuple[str, ...], figure: str) -> dict[str, float]:
    """A sample with that figure: one of a machine that is busy enough has none by its end."""
    samples = (loaded(work, 0.1, served_by(server)) for _ in range(40))
    return next(sample for sample in samples if sample[figure] > 0.0)


@pytest.mark.parametrize("kind", ["push", "poll"])
def test_a_server_tells_ticks_to_all_clients_and_one_that_does_nothing_delivers_no_event(kind: str) -> None:
    figures = sampled(f"{kind}-2x3", IDEAL, "on-time")
    assert 0.0 < figures["on-time"] <= 1.0
    assert (figures["p50"], figures["p99"]) == (0.0, 0.0)


def test_server_sent_events_of_a_door_tell_what_clients_post() -> None:
    figures = sampled("sse-1x2", OWN, "p50")
    assert figures["rest-p99"] <= figures["tick-p99"] <= figures["rest-p99"] + 50.0
    assert 0.0 < figures["p50"] <= figures["p99"] <= figures["tick-p99"]


def test_from_post_to_delivery_an_event_waits_until_its_tick_is_due_and_the_rest_is_the_servers() -> None:
    quick = SeenByClient(told=[(10.00, 0, 1), (10.05, 1, 2)])
    # Its second tick came 8 ms late, with an event that was posted 20 ms before that tick was due.
    slow = SeenByClient(told=[(10.00, 0, 1), (10.058, 1, 2)], events=[(2, 10.03, 10.058)])
    # Of another stream: its ticks are due at other moments. Both came at once, so the first was a tick late.
    other = SeenByClient(told=[(20.013, 0, 2)])
    figures = noticed([(1, quick), (1, slow), (2, other)])
    assert figures["p99"] == figures["tick-p99"] == pytest.approx(28.0)
    assert figures["wait-p99"] == pytest.approx(20.0)
    assert figures["rest-p99"] == pytest.approx(8.0)
    assert figures["late-p99"] == pytest.approx(50.0)
    assert noticed([(1, quick), (1, slow)])["late-p99"] == pytest.approx(8.0)
    # One client was told it early, which is when it had it.
    quick.events, quick.early = [(2, 10.03, 10.05)], {10.03: 10.034}
    assert noticed([(1, quick)])["p99"] == pytest.approx(4.0)
    assert noticed([(1, quick)])["tick-p99"] == pytest.approx(20.0)
    quick.events, quick.early = [], {}
    # It came after its tick was closed, though before any client was told so: the rules let it wait one tick, not two.
    slow.events[:] = [(2, 9.999, 10.058)]
    assert noticed([(1, quick), (1, slow)])["rest-p99"] == pytest.approx(9.0)
