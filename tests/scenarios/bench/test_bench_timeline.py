"""`baton bench timeline`: all who are measured compute the same, and each late input executes its cone and no more."""

import pytest

from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.timeline import objects
from batonpass.scenarios.bench.timeline.course import COURSE
from batonpass.scenarios.bench.timeline.workers import by_hand, on_batonpass, on_heapq, on_rollback, on_twin


@pytest.fixture(autouse=True)
def _few_things(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (objects, by_hand, on_batonpass, on_heapq, on_rollback, on_twin):
        monkeypatch.setattr(module, "OBJECTS", 100)


def test_every_row_has_a_worker_for_each_of_its_subjects() -> None:
    for row in COURSE.rows:
        assert {OURS, *row.subjects} <= COURSE.workers.keys()


@pytest.mark.parametrize("group", [1, 10, 100])
def test_a_late_input_executes_its_cone_and_no_more_and_gives_what_computing_all_of_it_again_gives(group: int) -> None:
    assert on_batonpass.late_us(group, 1) > 0
    steward = on_batonpass.things(group)
    steward.run_until(objects.PRESENT)
    steward.insert_fiat_event(objects.late_at(), 0, objects.Gust(steward.globals[0], 3))
    snapshot = steward.snapshot_before(objects.PRESENT)
    assert snapshot is not None
    ours = sorted(value for timeline in snapshot.timelines() if isinstance(value := snapshot.read(timeline), tuple))
    loop = by_hand.PlainLoop(group)
    loop.run_until(objects.late_at())
    loop.winds[0] = 3
    loop.run_until(objects.PRESENT)
    rollback = on_rollback.RollbackLoop(group)
    rollback.run_frames(0, objects.PRESENT)
    rollback.go_back(objects.late_at())
    rollback.winds[0] = 3
    rollback.run_frames(objects.late_at(), objects.PRESENT)
    assert ours == sorted(loop.things) == sorted(rollback.things)


def test_what_is_measured_is_asserted_while_it_is_measured() -> None:
    for figure in (
        on_batonpass.straight_us(),
        on_batonpass.worst_us(),
        on_batonpass.memory_bytes("memory"),
        on_twin.replay_us(10, 1),
        on_rollback.straight_us(),
        on_rollback.late_us(10, 2),
        by_hand.everything_again_us(10, 1),
        on_heapq.everything_again_us(10, 1),
    ):
        assert figure > 0


def test_a_chain_of_a_thousand_stops_at_its_third_link_which_is_unchanged() -> None:
    assert on_batonpass.chain_events() == 3


def test_memory_is_flat_when_the_past_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of fewer things, the figures that are kept meanwhile are a part that counts.
    monkeypatch.setattr(on_batonpass, "OBJECTS", 2_000)
    assert on_batonpass.memory_bytes("memory-flat") < 1.1
