"""A history against a naive replay: equal in all that events did, or the first event that differs is named."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.crossverify import crossverify
from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.replay import FiatEvent
from batonpass.simserver.sync.timeline.steward import TimeSteward
from tests.budget import examples
from tests.simserver.sync.timeline.village import Come, Leave, Pay, make_village

villagers = st.one_of(st.builds(Come, st.integers(0, 5)), st.just(Leave()), st.builds(Pay, st.integers(-9, 9)))


@settings(max_examples=examples(15), deadline=None)
@given(inputs=st.lists(st.tuples(st.integers(0, 90), villagers, st.integers(0, 120)), max_size=10))
def test_a_history_is_that_of_a_replay_in_all_that_its_events_did(inputs: list[tuple[int, TimelineEvent, int]]) -> None:
    steward = TimeSteward(make_village)
    fiats = [FiatEvent(base, id_of(number), event) for number, (base, event, _) in enumerate(inputs)]
    for fiat, (_, _, until) in zip(fiats, inputs, strict=True):
        steward.insert_fiat_event(*fiat)
        steward.run_until(until)
    assert crossverify(steward, make_village, fiats, 60) is None
    steward.forget_before(40)
    assert crossverify(steward, make_village, fiats, 100) is None


@dataclass(frozen=True, slots=True)
class Toll(TimelineEvent):
    """Writes what a variable has that no accessor knows: an untracked read."""

    type_id: ClassVar[int] = 0x3E57_A0C1_9D48_F26B
    price: ClassVar[int] = 1

    def execute(self, now: Accessor) -> None:
        now.write(now.globals, Toll.price)
        if Toll.price > 1:
            now.predict(now.now + 5, Toll())


def test_an_untracked_read_is_found_at_the_first_event_that_it_makes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(now: Accessor) -> ValueTimeline:
        return now.create(ValueTimeline, 0)

    steward = TimeSteward(make)
    fiats = [FiatEvent(base, id_of(base), Toll()) for base in (10, 30)]
    for fiat in fiats:
        steward.insert_fiat_event(*fiat)
    steward.run_until(100)
    monkeypatch.setattr(Toll, "price", 2)
    difference = crossverify(steward, make, fiats, 100)
    assert difference is not None
    assert difference.here is not None
    assert difference.there is not None
    assert difference.here.time == difference.there.time == fiats[0].time
    assert "Toll() at 10" in str(difference)
    assert "did write 1" in str(difference)
    assert "and write 2" in str(difference)


def test_an_event_that_is_on_one_side_only_is_named_with_its_side() -> None:
    steward = TimeSteward(make_village)
    fiat = FiatEvent(10, id_of(1), Pay(1))
    steward.insert_fiat_event(*fiat)
    other = FiatEvent(7, id_of(2), Pay(2))
    assert str(crossverify(steward, make_village, [], 50)).startswith("Pay(amount=1) at 10")
    assert str(crossverify(steward, make_village, [], 50)).endswith("is only here")
    assert str(crossverify(steward, make_village, [fiat, other], 50)).endswith("is only there")


@dataclass(frozen=True, slots=True)
class Plan(TimelineEvent):
    """Predicts for long after, or cancels that."""

    after: int = 0

    def execute(self, now: Accessor) -> None:
        if self.after:
            now.write(now.globals, now.predict(now.now + self.after, Plan()))
        else:
            now.cancel(now.read(now.globals))


def test_what_was_cancelled_before_it_was_forgotten_may_be_cancelled_again() -> None:
    def make(now: Accessor) -> ValueTimeline:
        return now.create(ValueTimeline, 0)

    steward = TimeSteward(make)
    fiats = [FiatEvent(base, id_of(base), Plan(after)) for base, after in ((1, 100), (5, 0), (15, 0))]
    for fiat in fiats:
        steward.insert_fiat_event(*fiat)
    steward.forget_before(10)
    assert crossverify(steward, make, fiats, 200) is None
