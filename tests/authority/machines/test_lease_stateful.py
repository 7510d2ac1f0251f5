"""No two holders of a lease, under hypothesis: any clocks within their drift, pauses, losses, and changes of granter.

The same rules, each with one taken away, must be seen to break: a search that finds nothing has to show that it can.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.authority.machines.lease import Granter, LeaseTerms
from tests.authority.lease_model import FASTEST, SLOWEST, LeaseModel, Rules, clocks

INDEX = st.integers(0, 7)
NODE = st.integers(0, 1)
PERMILLE = st.sampled_from([SLOWEST, 1000, FASTEST])


class Leases(RuleBasedStateMachine):
    @initialize(offsets=st.tuples(*[st.integers(0, 10**15)] * 4), permilles=st.tuples(*[PERMILLE] * 4))
    def begin(self, offsets: tuple[int, ...], permilles: tuple[int, ...]) -> None:
        self.model = LeaseModel(clocks(list(offsets), list(permilles)), Rules())
        self.model.take_office(0)

    @rule(ms=st.sampled_from([1, 30, 100, 240, 500, 1100]))
    def time(self, ms: int) -> None:
        self.model.pass_time(ms)

    @rule(granter=NODE)
    def takes_office(self, granter: int) -> None:
        self.model.take_office(granter)

    @rule(granter=NODE)
    def looks(self, granter: int) -> None:
        self.model.look(granter)

    @rule(granter=NODE, times=st.integers(4, 8))
    def looks_for_long(self, granter: int, times: int) -> None:
        """As often as it has to in order not to doubt itself."""
        for _ in range(times):
            self.model.pass_time(200)
            self.model.look(granter)

    @precondition(lambda self: self.model.expiries)
    @rule(which=INDEX)
    def log_ends(self, which: int) -> None:
        self.model.expire(which)

    @rule(process=NODE)
    def renews(self, process: int) -> None:
        self.model.renew(process)

    @rule(process=NODE, granter=NODE)
    def renews_in_one_go(self, process: int, granter: int) -> None:
        """What happens nearly always."""
        before = len(self.model.network)
        self.model.renew(process)
        if len(self.model.network) > before:
            self.model.arrive(before, granter, again=False)
        if len(self.model.network) > before:
            self.model.confirm(before)
            self.model.answer(before)

    @precondition(lambda self: self.model.network)
    @rule(which=INDEX, granter=NODE, again=st.booleans())
    def arrives(self, which: int, granter: int, again: bool) -> None:
        self.model.arrive(which, granter, again=again)

    @precondition(lambda self: self.model.network)
    @rule(which=INDEX)
    def log_answers(self, which: int) -> None:
        self.model.confirm(which)

    @precondition(lambda self: self.model.network)
    @rule(which=INDEX)
    def answers(self, which: int) -> None:
        self.model.answer(which)

    @precondition(lambda self: self.model.network)
    @rule(which=INDEX)
    def loses(self, which: int) -> None:
        self.model.lose(which)

    @rule(process=NODE, paused=st.booleans())
    def pauses(self, process: int, paused: bool) -> None:
        self.model.pause(process, paused=paused)

    @invariant()
    def nobody_acts_under_a_lease_that_is_over(self) -> None:
        if hasattr(self, "model"):
            self.model.check()


TestNeverTwoHolders = Leases.TestCase
TestNeverTwoHolders.settings = settings(stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


class _ShortTerm(Granter):
    """Ends leases sooner than their holders stop."""

    def __init__(self, terms: LeaseTerms) -> None:
        super().__init__(LeaseTerms(terms.holder_ns * 3 // 4))


class _ForgetsWhoCameBefore(Granter):
    """Takes the office as if it had been its own all along."""

    def took_office(self, office: int, now_ns: int) -> None:
        super().took_office(office, now_ns)
        self._since_ns = now_ns - 10 * self.terms.granter_ns


class _GrantsWhatItEnds(Granter):
    """Grants what the log was told to end."""

    def heard(self, server: str, incarnation: int, renewal: int, received_ns: int) -> bool:
        self._ending.discard((server, incarnation))
        return super().heard(server, incarnation, renewal, received_ns)


MUTANTS: dict[str, Callable[[], Rules]] = {
    "the-granters-term-is-shorter": lambda: Rules(granter=_ShortTerm),
    "a-new-granter-does-not-wait": lambda: Rules(granter=_ForgetsWhoCameBefore),
    "grants-what-it-ends": lambda: Rules(granter=_GrantsWhatItEnds),
    "the-holder-counts-from-the-answer": lambda: Rules(counts_from_reply=True),
    "the-granter-does-not-ask-the-log": lambda: Rules(asks_the_log=False),
    "anybody-may-end-a-lease": lambda: Rules(office_is_checked=False),
}


def walk(rules: Rules, seed: int, steps: int) -> None:
    """A long run in which what nearly always happens happens nearly always, and anything else now and then."""
    dice = Random(seed)
    offsets = [dice.randrange(10**15) for _ in range(4)]
    model = LeaseModel(clocks(offsets, dice.choices([SLOWEST, 1000, FASTEST], k=4)), rules)
    model.take_office(0)
    for _ in range(steps):
        _step(model, dice)
        model.check()


def _walks(rules: Callable[[], Rules], seeds: int) -> None:
    for seed in range(seeds):
        walk(rules(), seed, 2000)


def _step(model: LeaseModel, dice: Random) -> None:
    node, which = dice.randrange(2), dice.randrange(8)
    match dice.choices(range(9), weights=[30, 3, 10, 20, 20, 20, 2, 1, 5])[0]:
        case 0:
            model.pass_time(dice.choice([1, 30, 60, 100]))
            for granter in (0, 1):
                if dice.random() < 0.95:
                    model.look(granter)
        case 1:
            model.look(node)
        case 2:
            model.renew(node)
        case 3 if model.network:
            model.arrive(which, node, again=dice.random() < 0.1)
        case 4 if model.network:
            model.confirm(which)
        case 5 if model.network:
            model.answer(which)
        case 6 if model.network:
            model.lose(which)
        case 7:
            model.take_office(node)
        case 8 if model.expiries:
            model.expire(which)
        case _:
            model.pause(node, paused=dice.random() < 0.2)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_is_missing_is_found(mutant: str) -> None:
    with pytest.raises(AssertionError, match="act"):
        _walks(MUTANTS[mutant], 200)


def test_failures_row_22_and_25_long_runs_with_any_clocks_find_nothing() -> None:
    _walks(Rules, 60)
