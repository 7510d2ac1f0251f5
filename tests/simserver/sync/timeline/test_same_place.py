"""Two lives of one event, at different times, may predict the same thing for the same time: it happens once."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.audit import AuditedSteward
from batonpass.simserver.sync.timeline.crossverify import crossverify
from batonpass.simserver.sync.timeline.data import CounterTimeline, ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent, WrongUse
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.replay import FiatEvent
from batonpass.simserver.sync.timeline.steward import TimeSteward
from tests.budget import examples

END = 200
SLOTS = 4


@dataclass(frozen=True, slots=True)
class Delay(TimelineEvent):
    """Says how long something waits from now on."""

    slot: int
    ticks: int

    def execute(self, now: Accessor) -> None:
        now.write(now.globals[self.slot], self.ticks)


@dataclass(frozen=True, slots=True)
class Relay(TimelineEvent):
    """Counts, and hands on: to a time that depends on a delay, or to a round one that does not."""

    leg: int

    def execute(self, now: Accessor) -> None:
        now.write(now.globals[SLOTS], now.now + self.leg)
        if self.leg < 6:
            waits = now.read(now.globals[self.leg % SLOTS])
            # Two in a row may move, and the third stays where it is.
            base = now.now + 1 + waits if self.leg % 3 < 2 else (now.now // 60 + 1) * 60
            now.predict(base, Relay(self.leg + 1))


def make_relay(now: Accessor) -> Any:
    delays = [now.create(ValueTimeline, 3) for _ in range(SLOTS)]
    now.predict(10, Relay(0))
    now.predict(11, Relay(0))
    return (*delays, now.create(CounterTimeline, 0))


def legs(steward: TimeSteward) -> list[str]:
    return [repr(record) for record in steward.history()]


def test_a_prediction_whose_maker_has_moved_to_an_earlier_time_is_there_once() -> None:
    steward = AuditedSteward(make_relay)
    steward.run_until(END)
    before = legs(steward)
    earlier = FiatEvent(5, id_of(1), Delay(0, 1))
    steward.insert_fiat_event(*earlier)
    steward.run_until(END)
    assert crossverify(steward, make_relay, [earlier], END) is None
    steward.remove_fiat_event(earlier.base, earlier.id, earlier.event.priority)
    steward.run_until(END)
    assert legs(steward) == before
    steward.audit(END)


changes = st.tuples(st.integers(0, 60), st.integers(0, SLOTS - 1), st.integers(0, 9))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(changes, st.booleans(), st.integers(0, END), st.integers(0, 9)), max_size=12))
@example([((5, 0, 1), False, END, 0), ((6, 0, 2), False, 16, 9), ((6, 0, 2), True, END, 0)])
@example([((5, 0, 9), False, END, 0), ((6, 0, 0), False, 17, 0), ((6, 0, 0), True, END, 0)])
def test_the_history_is_that_of_a_replay_whatever_moves_in_it(
    moves: list[tuple[tuple[int, int, int], bool, int, int]],
) -> None:
    steward = TimeSteward(make_relay)
    fiats: dict[int, FiatEvent] = {}
    steward.run_until(END)
    for (base, slot, ticks), is_back, until, steps in moves:
        if is_back and fiats:
            _, fiat = fiats.popitem()
            steward.remove_fiat_event(fiat.base, fiat.id, fiat.event.priority)
        else:
            fiat = FiatEvent(base, id_of(base, slot, len(fiats), ticks), Delay(slot, ticks))
            if fiat.id in fiats:
                continue
            fiats[fiat.id] = fiat
            steward.insert_fiat_event(*fiat)
        for _ in range(steps):
            steward.step()
        steward.run_until(until)
        steward.snapshot_before(until // 2)
    steward.run_until(END)
    assert crossverify(steward, make_relay, list(fiats.values()), END) is None


def test_two_inputs_that_would_have_one_place_are_refused_still() -> None:
    steward = TimeSteward(make_relay)
    fiat = FiatEvent(5, id_of(1), Delay(0, 1))
    steward.insert_fiat_event(*fiat)
    with pytest.raises((WrongUse, ValueError)):
        steward.insert_fiat_event(*fiat)
