"""The arithmetic of demand, against GenStage's documentation and against somebody who counts on his fingers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.stages import ExcessEvents
from batonpass.actors.stages.demand import Portion, SubscriptionDemand


def test_the_defaults_are_those_of_genstage() -> None:
    demand = SubscriptionDemand()
    assert (demand.maximum, demand.minimum) == (1000, 500)
    assert demand.begin() == 1000


def test_max_1000_and_min_750_asks_for_more_only_after_250() -> None:
    demand = SubscriptionDemand(1000, 750)
    demand.begin()
    assert demand.receive(249) == [Portion(249, 0)]
    assert demand.receive(1) == [Portion(1, 250)]


def test_what_comes_is_handled_in_batches_of_max_less_min() -> None:
    demand = SubscriptionDemand(1000, 750)
    demand.begin()
    assert demand.receive(1000) == [Portion(250, 250)] * 4


def test_max_1_asks_for_one_event_after_the_other() -> None:
    demand = SubscriptionDemand(1)
    assert demand.begin() == 1
    assert demand.receive(1) == [Portion(1, 1)]


@pytest.mark.parametrize(("maximum", "minimum"), [(0, None), (10, 10), (10, -1), (-1, None)])
def test_what_is_no_demand_is_refused(maximum: int, minimum: int | None) -> None:
    with pytest.raises(ValueError, match="min_demand must be"):
        SubscriptionDemand(maximum, minimum)


def test_a_producer_that_sends_too_much_is_found_out() -> None:
    demand = SubscriptionDemand(10)
    demand.begin()
    with pytest.raises(ExcessEvents, match="sent 11 events when only 10"):
        demand.receive(11)


class Fingers:
    """One event at a time; the fingers are what is pending."""

    def __init__(self, maximum: int, minimum: int) -> None:
        self.maximum, self.minimum = maximum, minimum
        self.fingers = ["finger"] * maximum

    def receive(self, count: int) -> list[Portion]:
        portions = []
        size = 0
        for number in range(1, count + 1):
            self.fingers.pop()
            size += 1
            if size == self.maximum - self.minimum or number == count:
                ask = 0
                if len(self.fingers) <= self.minimum:
                    while len(self.fingers) < self.maximum:
                        self.fingers.append("finger")
                        ask += 1
                portions.append(Portion(size, ask))
                size = 0
        return portions


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, int, list[float]]:
    maximum = draw(st.integers(1, 30))
    return maximum, draw(st.integers(0, maximum - 1)), draw(st.lists(st.floats(0, 1), max_size=30))


@given(histories())
def test_it_counts_like_somebody_who_counts_on_his_fingers(history: tuple[int, int, list[float]]) -> None:
    maximum, minimum, shares = history
    demand, fingers = SubscriptionDemand(maximum, minimum), Fingers(maximum, minimum)
    asked = demand.begin()
    for share in shares:
        # As much as a producer may send: what was asked for and did not come yet.
        count = round(share * asked)
        portions = demand.receive(count)
        assert portions == fingers.receive(count)
        asked += sum(portion.ask for portion in portions) - count
        assert demand.pending == asked == len(fingers.fingers)
        assert minimum < asked <= maximum, "never too much on its way, and never so little that a producer has to wait"
