"""What simulated clusters owe whom they told that something is durable, beside a plain list of all that was said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.authority.fence import Fence
from batonpass.scenarios.simulation.kernel.debts import Debts
from batonpass.scenarios.simulation.servers.promises.judge import ServersJudge
from batonpass.simserver.entity.custody_log import Stint

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


BALL, S1, S2 = "alpha.ball", "alpha.s1", "alpha.s2"


@pytest.mark.parametrize("resumed_at", [6, 7, 8])
@pytest.mark.parametrize("dead", [(S1,), (S1, f"{S1}, removed")], ids=["killed", "removed"])
def test_what_a_disk_alone_made_durable_is_owed_until_its_server_is_removed(
    dead: tuple[str, ...], resumed_at: int
) -> None:
    """A server that was the last one left of its instance was killed, and another one resumes its entity."""
    judge = ServersJudge(lambda server, entity: False, lambda server: True, lambda line: None)
    judge.begun(S1, Stint(BALL, S1, epoch=1, sub=0, started_tick=0, started_hash="0", started_ns=0))
    judge.written(BALL, Fence(1), 7)
    judge.written(BALL, Fence(0), 9)
    for name in dead:
        judge.died(name)
    judge.begun(S2, Stint(BALL, S2, epoch=3, sub=0, started_tick=resumed_at, started_hash="1", started_ns=0))
    is_owed = resumed_at < 7 and len(dead) == 1
    assert [one.kind for one in judge.violations] == ["durable-state"] * is_owed
    assert judge.was_set_back(BALL) == (resumed_at < 7)
