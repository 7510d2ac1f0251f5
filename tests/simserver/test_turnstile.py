"""Places for those who leave: never more than there are, in order, and nobody waits beside a free one for good."""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from authority.outgoing import FIRST_RETRY_NS
from simserver.departing import Plan
from simserver.patience import EACH_NS, MAX_FIRST_RETRY_NS, Patience
from simserver.turnstile import AT_ONCE, Turnstile

PLACES = 2
entities = st.sampled_from("abcdef")
targets = st.sampled_from(["near", "far"])


@dataclass(frozen=True)
class Leaver:
    entity: str
    target: str


class Doors(RuleBasedStateMachine):
    """A turnstile used as `Departures` uses it, beside a model of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.turnstile: Turnstile[Leaver] = Turnstile(PLACES)
        self.under_way: dict[str, str] = {}
        self.queue: list[Leaver] = []

    @rule(entity=entities, where=targets)
    def wants_to_leave(self, entity: str, where: str) -> None:
        leaver = Leaver(entity, where)
        if entity in self.under_way or self.turnstile.waits(entity):
            return
        if self.turnstile.enter(leaver):
            self.under_way[entity] = where
        else:
            self.turnstile.wait(leaver)
            self.turnstile.wait(Leaver(entity, "elsewhere"))
            self.queue.append(leaver)

    @rule(entity=entities)
    def has_left(self, entity: str) -> None:
        self.turnstile.leave(entity)
        target = self.under_way.pop(entity, "")
        while (following := self.turnstile.following(target)) is not None:
            assert following == next(leaver for leaver in self.queue if leaver.target == target)
            self.queue.remove(following)
            assert self.turnstile.enter(following)
            self.under_way[following.entity] = target

    @invariant()
    def places_are_few_and_none_is_free_while_somebody_waits(self) -> None:
        taken = Counter(self.under_way.values())
        assert all(count <= PLACES for count in taken.values())
        assert all(taken[leaver.target] == PLACES for leaver in self.queue)
        assert self.turnstile.waiting == len(self.queue)


TestDoors = Doors.TestCase


@given(st.lists(st.integers(0, 10**11)))
def test_patience_has_bounds_whatever_happened(durations: list[int]) -> None:
    patience = Patience()
    for duration_ns in durations:
        patience.took(duration_ns)
    assert FIRST_RETRY_NS <= patience.first_retry_ns <= MAX_FIRST_RETRY_NS


def test_patience_grows_when_hand_overs_take_long_and_comes_back() -> None:
    patience = Patience()
    assert patience.first_retry_ns == FIRST_RETRY_NS
    for _ in range(20):
        patience.took(700_000_000)
    assert 700_000_000 < patience.first_retry_ns < 1_400_000_000
    for _ in range(60):
        patience.took(3_000_000)
    assert patience.first_retry_ns == FIRST_RETRY_NS


def test_one_of_many_has_patience_for_those_before_it() -> None:
    patience = Patience()
    assert patience.first_retry_beside_ns(0) == FIRST_RETRY_NS
    assert patience.first_retry_beside_ns(10) == FIRST_RETRY_NS + 10 * EACH_NS
    assert patience.first_retry_beside_ns(100_000) == MAX_FIRST_RETRY_NS


def test_in_company_all_wait_for_all_and_in_a_group_nobody_for_anybody() -> None:
    alone = Plan("transfer-1", "alpha.e", "alpha.s2")
    assert (alone.others(0), alone.others(7)) == (0, 7)
    together = replace(alone, in_company=True)
    assert (together.others(0), together.others(AT_ONCE + 1)) == (AT_ONCE, AT_ONCE + 1)
    assert replace(alone, grouped=True).others(7) == 0
