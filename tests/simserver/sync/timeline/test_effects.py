"""An effect is told at once and taken back if need be, or exactly once, in order, when it is settled."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.effects import EffectNotice
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import parts_of
from tests.budget import examples


@dataclass(frozen=True, slots=True)
class Say(TimelineEvent):
    """Tells what the timeline had, and writes."""

    value: int

    def execute(self, now: Accessor) -> None:
        now.effect(("was", now.read(now.globals)))
        now.effect("wrote")
        now.write(now.globals, self.value)


def world() -> TimeSteward:
    return TimeSteward(lambda now: now.create(ValueTimeline, 0))


def told(notices: list[EffectNotice]) -> list[tuple[int, object, bool]]:
    return [(parts_of(time).base, what, is_retracted) for time, what, is_retracted in notices]


def test_what_was_told_and_turns_out_otherwise_is_retracted() -> None:
    steward = world()
    steward.insert_fiat_event(10, 1, Say(1))
    steward.run_until(20)
    assert told(steward.take_speculative_effects()) == [(10, ("was", 0), False), (10, "wrote", False)]
    steward.insert_fiat_event(5, 2, Say(7))
    steward.run_until(20)
    assert told(steward.take_speculative_effects()) == [
        (5, ("was", 0), False),
        (5, "wrote", False),
        (10, "wrote", True),
        (10, ("was", 0), True),
        (10, ("was", 7), False),
        (10, "wrote", False),
    ]
    steward.remove_fiat_event(10, 1)
    steward.run_until(20)
    assert told(steward.take_speculative_effects()) == [(10, "wrote", True), (10, ("was", 7), True)]
    assert steward.take_speculative_effects() == []


def test_what_came_and_went_before_somebody_looked_is_not_told() -> None:
    steward = world()
    steward.insert_fiat_event(10, 1, Say(1))
    steward.run_until(20)
    steward.remove_fiat_event(10, 1)
    steward.run_until(20)
    assert steward.take_speculative_effects() == []


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 40)), max_size=12))
def test_settled_effects_are_told_once_in_order_and_those_that_were_told_at_once_come_to_the_same(
    inputs: list[tuple[int, int]],
) -> None:
    steward = world()
    settled: list[EffectNotice] = []
    heard: list[tuple[int, object]] = []
    for number, (ahead, run) in enumerate([*inputs, (1, 100), (1, 100)]):
        base = steward.valid_since.base + ahead if number else ahead
        steward.insert_fiat_event(base, id_of(number), Say(number))
        steward.run_until(run)
        for time, what, is_retracted in steward.take_speculative_effects():
            if is_retracted:
                heard.remove((time, what))
            else:
                heard.append((time, what))
        steward.freeze_before(number * 3)
        settled += steward.take_settled_effects()
    steward.run_until(200)
    steward.freeze_before(200)
    settled += steward.take_settled_effects()
    assert [notice.time for notice in settled] == sorted(notice.time for notice in settled)
    assert not any(notice.is_retracted for notice in settled)
    wanted = [(record.time, what) for record in steward.history() for what in record.effects]
    assert [(time, what) for time, what, _ in settled] == wanted
    for time, what, is_retracted in steward.take_speculative_effects():
        if is_retracted:
            heard.remove((time, what))
        else:
            heard.append((time, what))
    assert sorted(heard, key=repr) == sorted(wanted, key=repr)


def test_effects_of_a_time_that_is_not_up_to_date_are_not_settled() -> None:
    steward = world()
    steward.insert_fiat_event(10, 1, Say(1))
    steward.insert_fiat_event(20, 2, Say(1))
    steward.freeze_before(50)
    assert steward.take_settled_effects() == []
    steward.run_until(15)
    assert [base for base, _, _ in told(steward.take_settled_effects())] == [10, 10]
    steward.forget_before(50)
    assert steward.take_settled_effects() == []
