"""Each rule that the auditor checks finds a fault that was put there, and names the event (T10)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from batonpass.scenarios.timeline.handshakes import Tweak, make_philosophers
from batonpass.simserver.sync.timeline.audit import AuditedSteward, AuditFailed
from batonpass.simserver.sync.timeline.composites import GridTimeline
from batonpass.simserver.sync.timeline.data import CounterTimeline, DataTimeline, TimelineChange, ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.records import EventRecord
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import ExtendedTime, beginning_of
from tests.simserver.sync.timeline.village import Come, Leave, Pay, make_village


@dataclass(frozen=True, slots=True)
class Act(TimelineEvent):
    """Does what a function says; its name is looked for in what the auditor says."""

    name: str
    what: Callable[[Accessor], object]

    def execute(self, now: Accessor) -> None:
        self.what(now)


def world(*kinds: type[DataTimeline], initial: Any = 0) -> AuditedSteward:
    return AuditedSteward(lambda now: tuple([now.create(kind, initial) for kind in kinds]))


def act(steward: AuditedSteward, base: int, name: str, what: Callable[[Accessor], object]) -> None:
    steward.insert_fiat_event(base, id_of(base, name), Act(name, what))


def found(rule: str, culprit: str | None, act: Callable[[], object]) -> None:
    """The auditor finds that a rule is broken, and says by which event."""
    with pytest.raises(AuditFailed) as caught:
        act()
    assert caught.value.rule == rule
    assert getattr(caught.value.event, "name", None) == culprit
    if culprit is not None:
        assert f"'{culprit}'" in str(caught.value)


def test_a_world_without_faults_passes_whatever_is_put_into_its_past() -> None:
    steward = AuditedSteward(make_village)
    for base in (80, 20, 50, 10, 65, 30):
        steward.insert_fiat_event(base, id_of(base), (Come(base % 6), Leave(), Pay(3))[base % 3])
        steward.run_until(90)
    steward.remove_fiat_event(50, id_of(50), 0)
    steward.audit(90)
    assert steward.snapshot_before(60) is not None
    steward.forget_before(40)
    steward.audit(90)


def test_the_philosophers_pass() -> None:
    steward = AuditedSteward(make_philosophers)
    steward.run_until(200)
    steward.insert_fiat_event(50, 1, Tweak(3))
    steward.audit(250)


def test_a1_a_change_that_a_later_event_would_see_and_is_not_told_of() -> None:
    steward = world(ValueTimeline)
    (one,) = steward.globals
    act(steward, 10, "peeks", lambda now: now.effect(now.peek(one)))
    steward.run_until(20)
    act(steward, 5, "changes", lambda now: now.write(one, 1))
    found("A1", "peeks", lambda: steward.run_until(20))


def test_a1_an_invalidation_by_hand_that_does_not_reach_far_enough() -> None:
    class Narrow(GridTimeline):
        __slots__ = ()
        reach = 1

        def around(self, now: Accessor, *place: int) -> tuple[Any, ...]:
            return (*super().around(now, *place), now.peek(self.at(place[0] + 2, place[1])))

    steward = world(Narrow, initial=None)
    (grid,) = steward.globals
    act(steward, 10, "looks", lambda now: grid.around(now, 0, 0))
    steward.run_until(20)
    act(steward, 4, "near", lambda now: now.write(grid.at(1, 1), 1))
    steward.run_until(20)
    act(steward, 5, "far", lambda now: now.write(grid.at(2, 0), 1))
    found("A1", "looks", lambda: steward.run_until(20))


def test_a2_a_value_that_is_changed_in_place() -> None:
    steward = world(ValueTimeline, initial=None)
    (one,) = steward.globals
    act(steward, 1, "makes", lambda now: now.write(one, [1]))
    act(steward, 5, "mutates", lambda now: now.read(one).append(2))
    found("A2", "mutates", lambda: steward.run_until(20))


def test_a2_an_operation_that_reaches_into_the_past() -> None:
    class Backwards(ValueTimeline):
        __slots__ = ()

        def put(self, time: ExtendedTime, operation: Any) -> TimelineChange | None:
            if operation == 7:
                self.values[1] = 7
            return super().put(time, operation)

    steward = world(Backwards)
    (one,) = steward.globals
    act(steward, 5, "reads", lambda now: now.read(one))
    act(steward, 10, "writes", lambda now: now.write(one, 7))
    found("A2", "writes", lambda: steward.run_until(20))


def test_a3_an_operation_that_stays_when_its_event_is_undone() -> None:
    class Sticky(ValueTimeline):
        __slots__ = ()

        def drop(self, time: ExtendedTime) -> TimelineChange | None:
            return None

    steward = world(Sticky)
    act(steward, 5, "undone", lambda now: now.write(steward.globals[0], 1))
    steward.run_until(20)
    steward.remove_fiat_event(5, id_of(5, "undone"))
    found("A3", "undone", lambda: steward.run_until(20))


def test_a4_an_event_that_keeps_something_between_executions() -> None:
    times: list[int] = []

    def counts(now: Accessor) -> None:
        times.append(1)
        now.write(now.globals[0], len(times))

    steward = world(ValueTimeline)
    act(steward, 5, "counts", counts)
    found("A4", "counts", lambda: steward.run_until(20))


def test_a4_an_operation_that_is_not_replaced_when_its_event_is_executed_again() -> None:
    class First(ValueTimeline):
        __slots__ = ()

        def put(self, time: ExtendedTime, operation: Any) -> TimelineChange | None:
            return None if time in self.times else super().put(time, operation)

    steward = world(ValueTimeline, First)
    one, other = steward.globals
    act(steward, 10, "copies", lambda now: now.write(other, now.read(one)))
    steward.run_until(20)
    act(steward, 5, "changes", lambda now: now.write(one, 1))
    found("A4", "copies", lambda: steward.run_until(20))


def test_a5_an_event_that_reads_a_timeline_without_its_accessor() -> None:
    steward = world(ValueTimeline)
    (one,) = steward.globals
    act(steward, 5, "grabs", lambda now: now.write(one, one.values[-1] + 1))
    found("A5", "grabs", lambda: steward.run_until(20))


def test_a5_two_operations_of_one_event_that_come_to_something_else_as_one() -> None:
    class Forgets(CounterTimeline):
        __slots__ = ()

        def joined(self, former: Any, operation: Any) -> Any:
            return operation

    def twice(now: Accessor) -> None:
        now.write(one, 1)
        now.write(one, 2)

    steward = world(Forgets)
    (one,) = steward.globals
    act(steward, 5, "twice", twice)
    found("A5", "twice", lambda: steward.run_until(20))


class KeepsPredictions(AuditedSteward):
    """A steward with a fault: it forgets that an event does not predict something any more."""

    def _stop_asking(self, record: EventRecord, made_at: ExtendedTime) -> None:
        pass


def test_a6_a_prediction_that_no_event_makes_any_more() -> None:
    steward = KeepsPredictions(lambda now: (now.create(ValueTimeline, 0),))
    (one,) = steward.globals
    later = Act("predicted", lambda now: None)
    act(steward, 5, "predicts", lambda now: None if now.read(one) else now.predict(50, later))
    steward.run_until(20)
    act(steward, 2, "changes", lambda now: now.write(one, 1))
    found("A6", "predicted", lambda: steward.snapshot_before(20))


def test_a6_a_prediction_that_an_event_made_and_that_is_lost() -> None:
    steward = world(ValueTimeline)
    later = Act("lost", lambda now: None)
    act(steward, 5, "predicts", lambda now: now.predict(50, later))
    steward.run_until(20)
    del steward._records[max(steward._records)]
    found("A6", "lost", lambda: steward.snapshot_before(20))


def test_a7_an_event_that_removes_an_input() -> None:
    steward = world(ValueTimeline)
    act(steward, 9, "input", lambda now: None)

    def removes(now: Accessor) -> None:
        (fiat,) = [record for record in steward._records.values() if record.time > now.time]
        fiat.asked = False

    act(steward, 5, "removes", removes)
    found("A7", "removes", lambda: steward.run_until(7))


def test_a7_an_event_that_makes_an_input() -> None:
    steward = world(ValueTimeline)
    other = Act("input", lambda now: None)
    act(steward, 10, "gives", lambda now: TimeSteward.insert_fiat_event(steward, 20, 1, other))
    found("A7", "gives", lambda: steward.run_until(20))


def test_a8_a_timeline_that_forgets_too_much() -> None:
    class Forgetful(ValueTimeline):
        __slots__ = ()

        def forget_before(self, time: ExtendedTime) -> None:
            super().forget_before(time)
            self.values[0] = 0

    steward = world(Forgetful)
    (one,) = steward.globals
    act(steward, 5, "writes", lambda now: now.write(one, 1))
    act(steward, 15, "reads", lambda now: now.read(one))
    steward.run_until(20)
    with pytest.raises(AuditFailed, match="forget_before") as caught:
        steward.forget_before(10)
    assert caught.value.rule == "A8"


def test_a9_a_snapshot_that_keeps_what_was_at_another_time() -> None:
    class Stale(ValueTimeline):
        __slots__ = ()

        def frozen_at(self, time: ExtendedTime) -> Any:
            return self.value_before(beginning_of(0))

    steward = world(Stale)
    act(steward, 5, "writes", lambda now: now.write(steward.globals[0], 1))
    found("A9", "writes", lambda: steward.snapshot_before(10))


def test_a10_an_event_that_depends_on_what_another_left_in_a_variable() -> None:
    left = {"it": 0}
    steward = world(ValueTimeline)
    (one,) = steward.globals
    act(steward, 10, "takes", lambda now: now.write(one, left["it"]))
    steward.run_until(20)
    act(steward, 5, "leaves", lambda now: left.update(it=1))
    found("A10", "takes", lambda: steward.audit(20))


def test_a10_an_event_that_finds_in_a_timeline_what_a_replay_has_elsewhere() -> None:
    steward = world(ValueTimeline, ValueTimeline)
    one, other = steward.globals
    act(steward, 10, "looks", lambda now: now.write(now.globals[1], now.globals[0].last_value))
    steward.run_until(20)
    assert one.last_value == other.last_value == 0
    found("A10", "looks", lambda: steward.audit(20))


def test_a11_a_handle_of_what_is_destroyed() -> None:
    steward = world(ValueTimeline, ValueTimeline)
    one, other = steward.globals
    act(steward, 1, "points", lambda now: now.write(one, ("at", other)))
    act(steward, 2, "ends", lambda now: now.destroy(other))
    act(steward, 5, "follows", lambda now: now.read(one))
    found("A11", "follows", lambda: steward.run_until(20))


def test_an_event_that_raises_is_named_and_may_be_taken_away() -> None:
    steward = world(ValueTimeline)
    act(steward, 10, "fails", lambda now: now.write(now.globals[0], 1 // 0))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            steward.run_until(20)
        assert "'fails'" in caught.value.__notes__[0]
        assert steward.settled_before() == 10
    steward.remove_fiat_event(10, id_of(10, "fails"))
    steward.audit(20)
    assert steward.settled_before() is None
