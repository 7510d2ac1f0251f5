"""Members join, leave, are replaced and pass the leadership on, through crashes and lost connections."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from batonpass.tree.net.membership import Admit, Dismiss, Member
from tests.tree.changing_cluster import ChangingCluster


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_while_members_come_and_go(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    cluster = ChangingCluster(
        tmp_path,
        dice,
        monkeypatch,
        compact_after=dice.choice([8, 40, 10_000]),
        batch_bytes=dice.choice([300, 1 << 21]),
        founders=dice.choice([1, 3, 3, 5]),
    )
    for _ in range(4):
        fault_rate = dice.choice([0.0, 0.02, 0.06])
        for _ in range(600):
            cluster.step(fault_rate)
        cluster.heal()
        cluster.check()
    assert cluster.acknowledged, "the run must have done something"


def test_a_member_that_is_dismissed_and_admitted_again_gets_the_log_although_its_leader_forgot_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said so only once and then ignored whatever began later: for as long as the connection and the term lasted."""
    cluster = ChangingCluster(tmp_path, random.Random(1), monkeypatch, compact_after=10_000, batch_bytes=1 << 21)
    cluster.heal()
    (leader,) = [name for name in cluster.names if cluster.raft(name).is_leader()]
    newcomer = "h3"

    def change(proposed: Admit | Dismiss) -> None:
        index = cluster.raft(leader).propose_change(proposed)
        for _ in range(10):
            cluster.turn()
        assert cluster.raft(leader).configuration.index >= index

    admission = Admit(Member(newcomer, "sim", 4))
    cluster.held.add((newcomer, leader))
    change(admission)
    change(Dismiss(newcomer))
    cluster.held.clear()
    cluster.turn()  # what the newcomer lacks is heard by the leader now, which does not listen
    change(admission)
    cluster.heal()
    cluster.check()
    assert newcomer in cluster.raft(leader).configuration.voters
    assert len(cluster.leaders) == 1, "without another election"
