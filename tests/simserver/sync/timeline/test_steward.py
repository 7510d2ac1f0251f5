"""A change of the past is paid for by what depends on it; rules of time, input, snapshots (T2, T6 to T9, T12, T14)."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from batonpass.simserver.sync.timeline.composites import GridTimeline, OrderedSetTimeline
from batonpass.simserver.sync.timeline.data import ConstantTimeline, CounterTimeline, ValueTimeline
from batonpass.simserver.sync.timeline.events import (
    Accessor,
    SameEventAgain,
    TimelineAbsent,
    TimelineEvent,
    WrongUse,
)
from batonpass.simserver.sync.timeline.ids import fiat_id, id_of, words_of
from batonpass.simserver.sync.timeline.inputs import InvalidInput, InvalidTime
from batonpass.simserver.sync.timeline.records import UNUSED
from batonpass.simserver.sync.timeline.sameness import ABSENT
from batonpass.simserver.sync.timeline.snapshot import TimelineSnapshot
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import (
    MAX_BASE,
    ExtendedTime,
    PastPredicted,
    ValidSince,
    extended,
    parts_of,
)


@dataclass(frozen=True, slots=True)
class Do(TimelineEvent):
    """Does what a function says; its name tells two of them apart."""

    name: str
    what: Callable[[Accessor], object]

    def execute(self, now: Accessor) -> None:
        self.what(now)


@dataclass(frozen=True, slots=True)
class Put(TimelineEvent):
    """Writes a value."""

    timeline: ValueTimeline
    value: Any

    def execute(self, now: Accessor) -> None:
        now.write(self.timeline, self.value)


@dataclass(frozen=True, slots=True)
class Copy(TimelineEvent):
    """Writes what another timeline has, made smaller, to the next."""

    source: ValueTimeline
    target: ValueTimeline
    made_smaller: int = 1

    def execute(self, now: Accessor) -> None:
        now.write(self.target, now.read(self.source) // self.made_smaller)


def values(count: int, kind: type[Any] = ValueTimeline, initial: Any = 0) -> TimeSteward:
    return TimeSteward(lambda now: tuple([now.create(kind, initial) for _ in range(count)]))


def before(steward: TimeSteward, base: int) -> TimelineSnapshot:
    snapshot = steward.snapshot_before(base)
    assert snapshot is not None
    return snapshot


def do(steward: TimeSteward, base: int, what: Callable[[Accessor], object], *, name: str = "") -> None:
    steward.insert_fiat_event(base, id_of(base, name), Do(name, what))


def test_t6_a_snapshot_has_what_was_before_its_time_and_not_what_happens_at_it() -> None:
    steward = values(1)
    (one,) = steward.globals
    steward.insert_fiat_event(5, 1, Put(one, "five"))
    assert [before(steward, base).read(one) for base in (4, 5, 6)] == [0, 0, "five"]


def test_t6_a_snapshot_stays_as_it_is_whatever_is_put_into_the_past_or_taken_from_it() -> None:
    steward = values(2)
    one, other = steward.globals
    steward.insert_fiat_event(5, 1, Put(one, "five"))
    shown = before(steward, 10)
    steward.insert_fiat_event(6, 2, Put(one, "six"))
    steward.remove_fiat_event(5, 1)
    steward.insert_fiat_event(7, 3, Put(other, "seven"))
    steward.forget_before(9)
    assert (shown.read(one), shown.read(other)) == ("five", 0)
    assert (before(steward, 10).read(one), before(steward, 10).read(other)) == ("six", "seven")


def test_a_snapshot_copies_nothing_until_something_changes_and_then_that_alone() -> None:
    steward = values(1_000)
    steward.run_until(20)
    shown = before(steward, 10)
    size = sum(map(sys.getsizeof, vars(shown).values()))
    steward.insert_fiat_event(5, 1, Put(steward.globals[0], 1))
    steward.run_until(20)
    assert sum(map(sys.getsizeof, vars(shown).values())) - size < 2_000
    assert shown.read(steward.globals[0]) == 0


def test_t7_input_for_a_frozen_time_or_one_that_is_no_time_is_refused() -> None:
    steward = values(1)
    steward.freeze_before(10)
    for base, why in (
        (9, "frozen before 10"),
        (MAX_BASE + 1, "no time"),
        (-MAX_BASE - 1, "no time"),
        (10.0, "no time"),
    ):
        with pytest.raises(InvalidTime, match=why):
            steward.insert_fiat_event(cast("int", base), 1, Put(steward.globals[0], 1))
        with pytest.raises(InvalidTime, match=why):
            steward.remove_fiat_event(cast("int", base), 1)
    for id in (-1, 1 << 128, 1.0, True):
        with pytest.raises(InvalidInput, match="128 bits"):
            steward.insert_fiat_event(10, cast("int", id), Put(steward.globals[0], 1))
    steward.insert_fiat_event(10, 1, Put(steward.globals[0], 1))


@pytest.mark.parametrize("base", [MAX_BASE + 1, 1 << 70, -MAX_BASE - 1, 1.5, True])
def test_no_history_is_frozen_or_forgotten_before_what_is_no_time(base: Any) -> None:
    steward = values(1)
    for end in (steward.freeze_before, steward.forget_before):
        with pytest.raises(InvalidTime, match="no time"):
            end(base)
    steward.insert_fiat_event(0, 1, Put(steward.globals[0], 1))


def test_t7_an_input_is_there_once_and_can_be_taken_away_once() -> None:
    steward = values(1)
    steward.insert_fiat_event(5, 1, Put(steward.globals[0], 1))
    with pytest.raises(InvalidInput, match="already"):
        steward.insert_fiat_event(5, 1, Put(steward.globals[0], 2))
    steward.remove_fiat_event(5, 1)
    with pytest.raises(InvalidInput, match="no fiat event"):
        steward.remove_fiat_event(5, 1)
    with pytest.raises(InvalidInput, match="no priority"):
        steward.remove_fiat_event(5, 1, 5_000)
    steward.run_until(10)
    steward.insert_fiat_event(5, 1, Put(steward.globals[0], 3))
    assert before(steward, 10).read(steward.globals[0]) == 3


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_t7_an_input_that_was_taken_away_may_be_put_there_again_at_once(runs: int) -> None:
    steward = values(1)
    (one,) = steward.globals
    steward.insert_fiat_event(5, 1, Put(one, 1))
    for value in (2, 2, 3):
        if runs:
            steward.run_until(10)
        steward.remove_fiat_event(5, 1)
        if runs > 1:
            steward.run_until(10)
        steward.insert_fiat_event(5, 1, Put(one, value))
        with pytest.raises(InvalidInput, match="already"):
            steward.insert_fiat_event(5, 1, Put(one, value))
    assert before(steward, 10).read(one) == 3
    assert len(list(steward.history())) == 1


def test_t7_a_prediction_cannot_be_taken_away_as_an_input() -> None:
    steward = TimeSteward(lambda now: parts_of(now.predict(5, Put(now.create(ValueTimeline, 0), 1))))
    id = steward.globals.id
    with pytest.raises(InvalidInput):
        steward.remove_fiat_event(5, id)
    # Nor by one who looks for the number that comes to its identity.
    (high, low), (first, second) = words_of(id), words_of(fiat_id(0))
    forged = (high - first) % (1 << 64) << 64 | (low - second) % (1 << 64)
    assert fiat_id(forged) == id
    with pytest.raises(InvalidInput):
        steward.remove_fiat_event(5, forged)
    with pytest.raises(InvalidInput):
        steward.insert_fiat_event(5, forged, Put(ValueTimeline(1), 1))
    assert steward.run_until(6) == 1


def test_t8_the_past_is_valid_until_it_is_frozen_and_remembered_until_it_is_forgotten() -> None:
    steward = values(1)
    steward.insert_fiat_event(5, 1, Put(steward.globals[0], 1))
    steward.run_until(20)
    before(steward, 15)
    assert steward.valid_since == steward.remembered_since == ValidSince.beginning()
    steward.freeze_before(10)
    assert (steward.valid_since, steward.remembered_since) == (ValidSince.before(10), ValidSince.beginning())
    assert before(steward, 3).read(steward.globals[0]) == 0
    steward.forget_before(8)
    assert (steward.valid_since, steward.remembered_since) == (ValidSince.before(10), ValidSince.before(8))
    assert steward.snapshot_before(7) is None
    steward.freeze_before(2)
    assert steward.valid_since == ValidSince.before(10)


def test_t12_what_is_forgotten_is_gone_and_what_comes_later_is_not() -> None:
    steward = values(1)
    (one,) = steward.globals
    for base in range(1, 100):
        steward.insert_fiat_event(base, id_of(base), Put(one, base))
    steward.forget_before(90)
    assert len(list(steward.history())) == 10 - 10
    assert len(one.times) == 1
    assert before(steward, 95).read(one) == 94
    assert len(list(steward.history())) == 5


def test_t9_a_change_has_those_executed_again_that_read_it_and_no_others() -> None:
    steward = values(6)
    cells = steward.globals
    for n in range(3):
        steward.insert_fiat_event(10 + n, id_of(n), Copy(cells[n], cells[n + 3]))
    steward.run_until(100)
    assert steward.executed == 3
    steward.insert_fiat_event(5, 9, Put(cells[1], 7))
    steward.run_until(100)
    assert steward.executed == 3 + 2
    assert [before(steward, 100).read(cell) for cell in cells[3:]] == [0, 7, 0]


def test_an_event_that_writes_the_same_as_before_stops_there() -> None:
    steward = TimeSteward(lambda now: tuple([now.create(ValueTimeline, 40) for _ in range(1_001)]))
    cells = steward.globals
    for n in range(1_000):
        steward.insert_fiat_event(10 + n, id_of(n), Copy(cells[n], cells[n + 1], 10 if n == 2 else 1))
    steward.run_until(2_000)
    steward.executed = 0
    steward.insert_fiat_event(5, 9, Put(cells[0], 45))
    steward.run_until(2_000)
    assert steward.executed == 1 + 3
    steward.remove_fiat_event(5, 9)
    steward.run_until(2_000)
    assert steward.executed == 1 + 3 + 3
    assert steward.undone == 1


def test_those_who_add_to_a_sum_do_not_depend_on_each_other_but_those_who_read_it_do() -> None:
    steward = values(2, CounterTimeline)
    total, _ = steward.globals
    for base in range(10, 20):
        do(steward, base, lambda now: now.add(total, 1))
    do(steward, 15, lambda now: now.effect(now.read(total)), name="reader")
    steward.run_until(100)
    steward.executed = 0
    do(steward, 5, lambda now: now.add(total, 100))
    steward.run_until(100)
    assert steward.executed == 2
    assert before(steward, 100).read(total) == 110


def test_one_who_asks_for_a_member_does_not_depend_on_the_others() -> None:
    steward = TimeSteward(lambda now: now.create(OrderedSetTimeline, ()))
    people = steward.globals
    do(steward, 10, lambda now: now.effect(people.has(now, "Anna")))
    do(steward, 11, lambda now: now.effect(people.members(now)))
    steward.run_until(20)
    steward.executed = 0
    do(steward, 5, lambda now: people.add(now, "Bert"))
    steward.run_until(20)
    assert steward.executed == 2
    do(steward, 6, lambda now: people.add(now, "Anna"))
    steward.run_until(20)
    assert steward.executed == 2 + 3
    assert before(steward, 20).read(people) == ("Anna", "Bert")


class Wide(GridTimeline):
    __slots__ = ()
    reach = 2


def test_one_who_looks_around_is_recorded_once_and_told_of_each_cell_in_reach_and_no_other() -> None:
    steward = TimeSteward(lambda now: now.create(Wide, None))
    grid = steward.globals
    do(steward, 10, lambda now: now.effect(grid.around(now, 0, 0)))
    steward.run_until(20)
    (record,) = steward.history()
    assert len(record.reads) == 1
    for base, place, executed in ((1, (2, -2), 2), (2, (3, 0), 1), (3, (0, 0), 2), (4, (0, -3), 1)):
        steward.executed = 0
        do(steward, base, lambda now, place=place: now.write(grid.at(*place), 1))  # type: ignore[misc]
        steward.run_until(20)
        assert steward.executed == executed, place


def test_t2_simultaneous_events_come_by_priority_then_by_identity() -> None:
    order: list[str] = []

    @dataclass(frozen=True, slots=True)
    class Late(Do):
        priority = 5

    steward = values(0)
    steward.insert_fiat_event(5, 1, Late("late", lambda now: order.append("late")))
    steward.insert_fiat_event(5, 3, Do("three", lambda now: order.append("three")))
    steward.insert_fiat_event(5, 2, Do("two", lambda now: order.append("two")))
    steward.run_until(10)
    assert order == ["two", "three", "late"]


def test_t2_an_event_may_predict_for_its_own_time_but_not_itself_nor_for_the_past_nor_without_end() -> None:
    seen: list[int] = []

    @dataclass(frozen=True, slots=True)
    class Down(TimelineEvent):
        count: int

        def execute(self, now: Accessor) -> None:
            seen.append(self.count)
            if self.count:
                now.predict(now.now, Down(self.count - 1))

    steward = values(0)
    steward.insert_fiat_event(5, 1, Down(3))
    assert (steward.step(), steward.settled_before()) == (True, 5)
    steward.run_until(6)
    assert seen == [3, 2, 1, 0]
    assert [parts_of(record.time).base for record in steward.history()] == [5] * 4
    same = Do("same", lambda now: now.predict(now.now, same))
    steward.insert_fiat_event(7, 1, same)
    with pytest.raises(SameEventAgain, match="predict it for 8"):
        steward.run_until(10)
    steward.remove_fiat_event(7, 1)
    do(steward, 8, lambda now: now.predict(7, Down(0)))
    with pytest.raises(PastPredicted):
        steward.run_until(10)


def test_a_prediction_that_is_cancelled_does_not_happen_and_does_once_the_canceller_is_undone() -> None:
    steward = TimeSteward(lambda now: (one := now.create(ValueTimeline, 0), now.predict(10, Put(one, 1))))
    one, prediction = steward.globals
    do(steward, 5, lambda now: now.cancel(prediction))
    shown = before(steward, 7)
    assert (shown.predictions(), before(steward, 20).read(one)) == ([], 0)
    steward.remove_fiat_event(5, id_of(5, ""))
    assert before(steward, 20).read(one) == 1
    assert [event for _, event in before(steward, 7).predictions()] == [Put(one, 1)]
    assert shown.predictions() == []
    do(steward, 15, lambda now: now.cancel(prediction))
    assert before(steward, 20).read(one) == 1


def test_an_input_cannot_be_cancelled_and_what_is_not_there_need_not_be() -> None:
    steward = values(1)
    do(steward, 5, lambda now: now.cancel(ExtendedTime(now.time + 1)))
    assert steward.run_until(6) == 1
    do(steward, 9, lambda now: None)
    fiat = extended(9, 0, 0, fiat_id(id_of(9, "")))

    def cancels(now: Accessor) -> None:
        now.write(steward.globals[0], 7)
        now.cancel(fiat)

    do(steward, 7, cancels, name="faulty")
    for _ in range(2):
        with pytest.raises(WrongUse, match="an input and no prediction") as raised:
            steward.run_until(10)
        assert "nothing of it was done" in raised.value.__notes__[0]
        assert steward.settled_before() == 7
    steward.remove_fiat_event(7, id_of(7, "faulty"))
    assert before(steward, 10).read(steward.globals[0]) == 0


def test_what_an_event_makes_has_the_same_identity_after_it_was_undone_and_done_again() -> None:
    made: list[ValueTimeline] = []
    steward = values(1)
    do(steward, 5, lambda now: made.append(now.create(ValueTimeline, "born")))
    assert before(steward, 10).read(made[0]) == "born"
    steward.remove_fiat_event(5, id_of(5, ""))
    assert before(steward, 10).read(made[0]) is ABSENT
    steward.forget_before(3)
    do(steward, 5, lambda now: made.append(now.create(ValueTimeline, "again")))
    assert before(steward, 10).read(made[0]) == "again"
    assert made[1] is made[0]


def test_what_is_destroyed_can_be_neither_read_nor_written() -> None:
    steward = values(1)
    (one,) = steward.globals
    do(steward, 5, lambda now: now.destroy(one))
    assert before(steward, 6).timelines() == []
    for what in (lambda now: now.read(one), lambda now: now.write(one, 1), lambda now: now.destroy(one)):
        do(steward, 7, what)
        with pytest.raises(TimelineAbsent, match="not there at 7"):
            steward.run_until(10)
        steward.remove_fiat_event(7, id_of(7, ""))


def test_a_constant_is_not_written() -> None:
    steward = values(1, ConstantTimeline, "pi")
    do(steward, 5, lambda now: now.write(steward.globals[0], "e"))
    with pytest.raises(WrongUse, match="only create and destroy"):
        steward.run_until(10)


def test_an_event_reads_what_it_wrote_itself() -> None:
    steward = values(1, CounterTimeline)
    (total,) = steward.globals
    seen: list[int] = []

    def twice(now: Accessor) -> None:
        now.add(total, 2)
        now.add(total, 3)
        seen.append(now.read(total))

    do(steward, 5, twice)
    assert (before(steward, 6).read(total), seen) == (5, [5])


def test_an_event_that_raises_has_done_nothing_is_named_and_may_be_taken_away() -> None:
    steward = values(1)
    (one,) = steward.globals

    def fails(now: Accessor) -> None:
        now.write(one, 1)
        raise RuntimeError("no")

    do(steward, 5, fails, name="faulty")
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            steward.run_until(10)
        assert "faulty" in raised.value.__notes__[0]
        assert steward.settled_before() == 5
    steward.remove_fiat_event(5, id_of(5, "faulty"))
    assert before(steward, 10).read(one) == 0
    assert list(steward.history()) == []


@pytest.mark.parametrize("is_shown", [False, True])
@pytest.mark.parametrize("is_again", [False, True])
def test_an_event_whose_operation_a_timeline_refuses_has_done_nothing_and_may_be_taken_away(
    is_again: bool, is_shown: bool
) -> None:
    steward = TimeSteward(lambda now: (now.create(CounterTimeline, 1), *[now.create(ValueTimeline, 0) for _ in "abc"]))
    total, amount, other, third = steward.globals

    def adds(now: Accessor) -> None:
        now.write(other, 1)
        now.add(total, now.read(amount))
        now.predict(now.now + 1, Put(third, 3))

    do(steward, 6, lambda now: now.add(total, 10))
    do(steward, 1, lambda now: now.write(amount, 2 if is_again else "two"), name="gives")
    do(steward, 5, adds, name="faulty")
    shown = [before(steward, 3), before(steward, 20)] if is_shown and is_again else []
    if is_again:
        steward.run_until(20)
        do(steward, 2, lambda now: now.write(amount, "two"), name="spoils")
    for _ in range(2):
        with pytest.raises(TypeError) as raised:
            steward.run_until(20)
        assert "faulty" in raised.value.__notes__[0]
        assert steward.settled_before() == 5
        assert before(steward, 5).read(other) == 0
    assert [snapshot.read(total) for snapshot in shown] == [1, 13][: len(shown)]
    if is_again:
        steward.remove_fiat_event(2, id_of(2, "spoils"))
        assert [before(steward, 20).read(one) for one in (total, other, third)] == [13, 1, 3]
    steward.remove_fiat_event(5, id_of(5, "faulty"))
    assert [before(steward, 20).read(one) for one in (total, other, third)] == [11, 0, 0]
    assert steward.settled_before() is None


def test_places_of_one_grid_are_different_values() -> None:
    steward = TimeSteward(lambda now: (now.create(GridTimeline, None), *[now.create(ValueTimeline, 0) for _ in "ab"]))
    grid, where, what = steward.globals
    do(steward, 1, lambda now: now.write(grid.at(1, 1), 7))
    do(steward, 2, lambda now: now.write(where, grid.at(0, 0)))
    do(steward, 4, lambda now: now.write(what, now.read(now.read(where))))
    assert before(steward, 5).read(what) == 0
    do(steward, 3, lambda now: now.write(where, grid.at(1, 1)))
    assert before(steward, 5).read(what) == 7


def test_places_of_one_grid_are_different_members() -> None:
    steward = TimeSteward(lambda now: (now.create(GridTimeline, None), now.create(OrderedSetTimeline, ())))
    grid, members = steward.globals
    do(steward, 1, lambda now: [members.add(now, grid.at(x, 0)) for x in (1, 0)])
    assert before(steward, 2).read(members) == (grid.at(0, 0), grid.at(1, 0))


def test_a_place_that_somebody_holds_is_the_same_one_after_it_was_forgotten() -> None:
    steward = TimeSteward(lambda now: (now.create(GridTimeline, None), now.create(OrderedSetTimeline, ())))
    grid, members = steward.globals
    cell, member = grid.at(3, 4), members.part("it")
    steward.forget_before(10)
    do(steward, 11, lambda now: (now.write(grid.at(3, 4), 9), members.add(now, "it")))
    shown = before(steward, 12)
    assert (shown.read(cell), shown.read(member)) == (9, True)
    assert (grid.at(3, 4), members.part("it")) == (cell, member)


def test_what_an_event_destroyed_it_cannot_write() -> None:
    for kind in (ValueTimeline, CounterTimeline):
        steward = values(1, kind)
        do(steward, 5, lambda now: (now.destroy(now.globals[0]), now.write(now.globals[0], 1)))
        with pytest.raises(TimelineAbsent):
            steward.run_until(6)


def test_predictions_that_are_cancelled_for_good_and_inputs_that_were_taken_away_are_forgotten() -> None:
    steward = values(1)
    (timer,) = steward.globals

    @dataclass(frozen=True, slots=True)
    class Tick(TimelineEvent):
        def execute(self, now: Accessor) -> None:
            now.cancel(now.read(timer))
            now.write(timer, now.predict(1_000_000, Put(timer, 0)))
            now.predict(now.now + 1, self)

    steward.insert_fiat_event(0, 1, Tick())
    for base in range(0, 1_000, 50):
        for _ in range(10):
            steward.insert_fiat_event(500_000, 2, Put(timer, 1))
            steward.remove_fiat_event(500_000, 2)
        steward.run_until(base)
        steward.forget_before(base)
        assert len(steward._records) < 5
        assert sum(map(len, steward._queue.later.values())) < 5
    # The queue is as good as before.
    assert steward.run_until(1_010) > 0


@pytest.mark.parametrize("priority", [-1_001, 1_001])
def test_a_kind_of_event_whose_priority_has_no_place_in_the_order_is_refused(priority: int) -> None:
    with pytest.raises(WrongUse, match="priority"):
        type("Odd", (Put,), {"priority": priority})


def test_t14_one_may_run_ahead_and_what_comes_late_changes_only_what_depends_on_it() -> None:
    steward = values(2)
    one, other = steward.globals
    steward.insert_fiat_event(50, 1, Copy(one, other))
    steward.run_until(1_000)
    assert steward.settled_before() is None
    steward.insert_fiat_event(10, 2, Put(one, 7))
    assert steward.settled_before() == 10
    assert before(steward, 1_000).read(other) == 7
    assert steward.executed == 3


def test_t14_an_event_that_is_taken_away_before_it_happened_leaves_no_trace() -> None:
    steward = values(1)
    steward.insert_fiat_event(50, 1, Put(steward.globals[0], 1))
    steward.remove_fiat_event(50, 1)
    assert steward.run_until(100) == 0
    assert steward.settled_before() is None
    assert UNUSED not in {record.state for record in steward.history()}
