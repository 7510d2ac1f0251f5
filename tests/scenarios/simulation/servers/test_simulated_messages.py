"""Messages between entities in simulated clusters: what one has had, the other had sent for good."""

import pytest

from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.run import simulate, simulate_seed
from batonpass.simserver.post.post_office import PostOffice
from tests.mutants.servers.messages import AnswersWhatIsNotKept, SendsWhatIsNotKept


def test_messages_come_once_and_in_order_while_entities_move_and_servers_die() -> None:
    outcome = simulate_seed("messages", 0)
    assert outcome.violations == ()
    assert outcome.moves > 0
    assert outcome.takeovers > 0
    assert outcome.delivered > 50


@pytest.mark.parametrize(("guardless", "first"), [(SendsWhatIsNotKept, 0), (AnswersWhatIsNotKept, 6)])
def test_what_is_taken_for_durable_before_a_copy_is_kept_is_lost_or_was_never_sent(
    guardless: type[PostOffice], first: int
) -> None:
    # After a change of what is simulated, another seed may be the first that has a violation.
    for seed in range(first, first + 20):
        if found := simulate(MIXES["messages"], seed, ServersParts(post_office=guardless)).violations:
            assert found[0].kind in {"message-order", "not-settled"}
            return
    pytest.fail("no seed has a violation without the guard")
