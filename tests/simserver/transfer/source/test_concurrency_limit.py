"""Places for those who leave: never more than there are, in order, and nobody waits beside a free one for good."""

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.authority.machines.source import FIRST_RETRY_NS
from batonpass.simserver.transfer.source.backoff import EACH_NS, MAX_FIRST_RETRY_NS, RetryTimeout
from batonpass.simserver.transfer.source.concurrency import AT_ONCE, ConcurrencyLimit
from batonpass.simserver.transfer.source.departure import DeparturePlan

PLACES = 3
BYTES = 10
entities = st.sampled_from("abcdef")
targets = st.sampled_from(["near", "far"])


@dataclass(frozen=True)
class Leaver:
    entity: str
    target: str
    state_bytes: int = 0


class Doors(RuleBasedStateMachine):
    """A turnstile used as `Departures` uses it, beside a model of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.concurrency_limit: ConcurrencyLimit[Leaver] = ConcurrencyLimit(PLACES, BYTES)
        self.under_way: dict[str, Leaver] = {}
        self.queue: list[Leaver] = []

    @rule(entity=entities, where=targets, state_bytes=st.integers(0, 12))
    def wants_to_leave(self, entity: str, where: str, state_bytes: int) -> None:
        leaver = Leaver(entity, where, state_bytes)
        if entity in self.under_way or self.concurrency_limit.waits(entity):
            return
        if self.concurrency_limit.enter(leaver, state_bytes):
            self.under_way[entity] = leaver
        else:
            self.concurrency_limit.wait(leaver)
            self.concurrency_limit.wait(Leaver(entity, "elsewhere"))
            self.queue.append(leaver)

    @rule(entity=entities)
    def has_left(self, entity: str) -> None:
        self.concurrency_limit.leave(entity)
        self.others_follow(self.under_way.pop(entity, Leaver(entity, "")).target)

    @rule(entity=entities)
    def has_sent_its_state(self, entity: str) -> None:
        leaver = self.under_way.get(entity, Leaver(entity, ""))
        assert self.concurrency_limit.lighten(entity) == (leaver.state_bytes > 0)
        if entity in self.under_way:
            self.under_way[entity] = replace(leaver, state_bytes=0)
        self.others_follow(leaver.target)

    def others_follow(self, target: str) -> None:
        while (following := self.concurrency_limit.following(target)) is not None:
            assert following == next(leaver for leaver in self.queue if leaver.target == target)
            self.queue.remove(following)
            assert self.concurrency_limit.enter(following, following.state_bytes)
            self.under_way[following.entity] = following

    def is_full(self, target: str) -> bool:
        taken = [leaver.state_bytes for leaver in self.under_way.values() if leaver.target == target]
        return len(taken) >= PLACES or sum(taken) >= BYTES

    @invariant()
    def places_are_few_and_none_is_free_while_somebody_waits(self) -> None:
        taken = Counter(leaver.target for leaver in self.under_way.values())
        assert all(count <= PLACES for count in taken.values())
        for target in taken:
            sizes = [leaver.state_bytes for leaver in self.under_way.values() if leaver.target == target]
            assert sum(sizes) - max(sizes) < BYTES or len(sizes) == 1, "but for one, all fit in"
        assert all(self.is_full(leaver.target) for leaver in self.queue)
        assert all(self.concurrency_limit.is_full(target) == self.is_full(target) for target in ("near", "far"))
        assert self.concurrency_limit.waiting == len(self.queue)


TestDoors = Doors.TestCase


def test_of_large_states_few_are_under_way_and_others_follow_when_a_quarter_of_the_bytes_has_left() -> None:
    concurrency_limit: ConcurrencyLimit[Leaver] = ConcurrencyLimit(16, 8)
    leavers = [Leaver(entity, "near") for entity in "abcdefghij"]
    assert [concurrency_limit.enter(leaver, 1) for leaver in leavers] == [True] * 8 + [False] * 2
    for leaver in leavers[8:]:
        concurrency_limit.wait(leaver)
    assert concurrency_limit.enter(Leaver("k", "far"), 9), "each server has its own"
    concurrency_limit.leave("a")
    assert not concurrency_limit.is_worth_while("near")
    concurrency_limit.leave("b")
    assert concurrency_limit.is_worth_while("near")
    assert concurrency_limit.following("near") == leavers[8]


@given(st.lists(st.integers(0, 10**11)))
def test_patience_has_bounds_whatever_happened(durations: list[int]) -> None:
    patience = RetryTimeout()
    for duration_ns in durations:
        patience.took(duration_ns)
    assert FIRST_RETRY_NS <= patience.first_retry_ns <= MAX_FIRST_RETRY_NS


def test_patience_grows_when_hand_overs_take_long_and_comes_back() -> None:
    patience = RetryTimeout()
    assert patience.first_retry_ns == FIRST_RETRY_NS
    for _ in range(20):
        patience.took(700_000_000)
    assert 700_000_000 < patience.first_retry_ns < 1_400_000_000
    for _ in range(60):
        patience.took(3_000_000)
    assert patience.first_retry_ns == FIRST_RETRY_NS


def test_one_of_many_has_patience_for_those_before_it() -> None:
    patience = RetryTimeout()
    assert patience.first_retry_beside_ns(0) == FIRST_RETRY_NS
    assert patience.first_retry_beside_ns(10) == FIRST_RETRY_NS + 10 * EACH_NS
    assert patience.first_retry_beside_ns(100_000) == MAX_FIRST_RETRY_NS


def test_in_company_all_wait_for_all_and_in_a_group_for_those_before_them() -> None:
    alone = DeparturePlan("transfer-1", "alpha.e", "alpha.s2")
    assert (alone.others(0), alone.others(7)) == (0, 7)
    together = replace(alone, in_company=True)
    assert (together.others(0), together.others(AT_ONCE + 1)) == (AT_ONCE, AT_ONCE + 1)
    assert replace(alone, grouped=True).others(7) == 7
