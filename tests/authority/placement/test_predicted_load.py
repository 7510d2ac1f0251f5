"""Balance by loads that are averages over the last second: as much is moved as has to be, and nobody gets hot by it.

The real meter, policy, governor and expected loads. Servers report once a second and the balancer looks once a second,
at another moment of it; what it has moved is in the next report only in part.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.placement.limits import PlacementLimits
from batonpass.authority.placement.policy import Balance, Move, Resident, ServerLoad, View, relieve
from batonpass.authority.placement.predicted_load import SHOWN_AFTER_S, PredictedLoads
from batonpass.simserver.server.load_report import LoadMeter

PERIOD_MS, COST_MS = 50, 2.5
A, B = "alpha.s1", "alpha.s2"
BALANCE = Balance()


class Pair:
    """Two servers, all entities on the first. A tick that takes longer than its period has the next ones skipped."""

    def __init__(self, entities: int) -> None:
        self.placement_limits, self.expected = PlacementLimits(BALANCE), PredictedLoads()
        self.where = {f"alpha.e{number:03}": A for number in range(entities)}
        self.came_ms = dict.fromkeys(self.where, -100_000)
        self.meters = {name: LoadMeter(PERIOD_MS * 1_000_000) for name in (A, B)}
        self.busy_until_ms = dict.fromkeys(self.meters, 0.0)
        self.reported_ms = 0
        self.moved = 0

    @property
    def entities(self) -> Counter[str]:
        return Counter(self.where.values())

    @property
    def loads(self) -> dict[str, float]:
        """As they are."""
        return {name: COST_MS / PERIOD_MS * self.entities[name] for name in self.meters}

    def plays(self, phase_ms: int, seconds: int) -> None:
        for now_ms in range(PERIOD_MS, seconds * 1000, PERIOD_MS):
            self.tick(now_ms)
            if now_ms % 1000 == 0:
                self.reported_ms = now_ms
                for meter in self.meters.values():
                    meter.measure(now_ms * 1_000_000, entities=0, leaving=0, inputs=0, moved_bytes=0)
            if now_ms % 1000 == phase_ms and now_ms > 1000:
                self.round(now_ms)

    def tick(self, now_ms: int) -> None:
        for name, meter in self.meters.items():
            if now_ms >= self.busy_until_ms[name]:
                used_ms = COST_MS * self.entities[name]
                self.busy_until_ms[name] = now_ms + used_ms
                meter.ticked(round(used_ms * 1e6))

    def round(self, now_ms: int) -> None:
        said = {name: meter.last.tick_ppm / 1e6 for name, meter in self.meters.items()}
        loads = {name: self.expected.of(name, load, self.reported_ms / 1000) for name, load in said.items()}
        residents = tuple(
            Resident(entity, name, (now_ms - self.came_ms[entity]) / 1000, said[name] / self.entities[name])
            for entity, name in self.where.items()
            if loads[name] > BALANCE.hot
        )
        view = View(tuple(ServerLoad(name, loads[name], self.entities[name]) for name in self.meters), residents)
        admitted = self.placement_limits.admit(relieve(view, BALANCE), view, now_ms / 1000)
        self.expected.ordered(admitted, {one.entity: one.cost for one in residents}, now_ms / 1000)
        for move in admitted:
            self.where[move.entity], self.came_ms[move.entity] = move.target, now_ms
        self.moved += len(admitted)


@pytest.mark.parametrize("phase_ms", range(0, 1000, 100))
def test_a_hot_server_is_relieved_as_far_as_is_said_and_no_further(phase_ms: int) -> None:
    """18 of 0.05 each are 0.9, and `Balance.settled` is 0.675: five have to go. Up to eight went."""
    pair = Pair(18)
    pair.plays(phase_ms, 10)
    assert pair.moved == 5


@pytest.mark.parametrize("phase_ms", range(0, 1000, 100))
@pytest.mark.parametrize("entities", [16, 22, 26, 28])
def test_nobody_gets_hot_by_what_is_moved_to_it(entities: int, phase_ms: int) -> None:
    """What has just come is held, so the target could not be relieved: 28 of 0.05 each made it up to 0.90.

    Above 0.75 + 0.60 in all, the first server stays hot: more would make the second one so.
    """
    pair = Pair(entities)
    pair.plays(phase_ms, 20)
    assert pair.loads[B] <= BALANCE.hot
    if entities * COST_MS / PERIOD_MS <= BALANCE.hot + BALANCE.cool:
        assert pair.loads[A] <= BALANCE.hot


def test_what_was_ordered_counts_until_a_report_can_know_of_all_of_it() -> None:
    expected = PredictedLoads()
    expected.ordered([Move("alpha.a", A, B), Move("alpha.b", A, B), Move("alpha.c", B, A)], {"alpha.a": 0.3}, 10.0)
    expected.ordered([Move("alpha.b", A, B)], {"alpha.b": 0.2}, 11.0)
    at = [10.5, 11.5, 10.0 + SHOWN_AFTER_S, 11.0 + SHOWN_AFTER_S]
    assert [expected.of(A, 1.0, one) for one in at] == pytest.approx([0.5, 0.5, 0.8, 1.0])
    assert [expected.of(B, 0.1, one) for one in at] == pytest.approx([0.6, 0.6, 0.3, 0.1])
    assert expected.of("alpha.s3", 0.4, 10.5) == 0.4
    assert expected.of(A, 0.1, 10.5) == 0.0


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), max_size=200))
def test_who_is_moved_to_seems_no_cooler_by_it_and_who_is_moved_off_no_hotter(steps: list[tuple[float, float]]) -> None:
    expected, now_s = PredictedLoads(), 0.0
    for pause_s, cost in steps:
        now_s += pause_s
        expected.ordered([Move("alpha.a", A, B)], {"alpha.a": cost}, now_s)
        assert expected.of(A, 0.5, now_s) <= 0.5 <= expected.of(B, 0.5, now_s)
    assert len(expected._ordered) <= len(steps)
    expected.ordered([Move("alpha.a", A, B)], {}, now_s + 20.0)
    assert len(expected._ordered) == 1, "what is of long ago is forgotten"
