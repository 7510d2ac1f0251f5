"""What simulated clusters owe whom they told that something is durable, beside a plain list of all that was said."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.scenarios.simulation.kernel.debts import Debts

amounts = st.integers(0, 5)


class Promises(RuleBasedStateMachine):
    """Debts of one thing, and every promise that was made of it: after how many deaths, and how far."""

    def __init__(self) -> None:
        super().__init__()
        self.debts = Debts()
        self.promises: list[tuple[int, int]] = []

    @rule(server=st.sampled_from(["s1", "s2", "s3"]))
    def a_server_dies(self, server: str) -> None:
        self.debts.died(server)

    @rule(upto=amounts, late=st.integers(0, 2))
    def somebody_is_told(self, upto: int, late: int) -> None:
        """Perhaps of a copy of before the last deaths."""
        after = max(0, len(self.debts.deaths) - late)
        self.debts.owe("thing", upto, after)
        self.promises.append((after, upto))

    @rule(upto=amounts)
    def it_is_gone_on_with(self, upto: int) -> None:
        has_lost = any(known > upto for _, known in self.promises)
        self.promises = [(after, min(known, upto)) for after, known in self.promises]
        assert self.debts.settle("thing", upto) <= has_lost

    @invariant()
    def what_is_owed_is_the_most_that_was_promised_and_that_no_two_deaths_since_excuse(self) -> None:
        kept = [upto for after, upto in self.promises if len(set(self.debts.deaths[after:])) < 2]
        assert self.debts.owed("thing") == max(kept, default=0)


TestPromises = Promises.TestCase


@given(st.lists(st.sampled_from(["s1", "s2"])))
def test_one_server_may_die_as_often_as_it_likes(deaths: list[str]) -> None:
    debts = Debts()
    for server in deaths:
        debts.died(server)
    assert debts.is_waived(0) == (len(set(deaths)) == 2)
