"""The fence around PySyncObj keeps Raft's safety sentences through crashes, lost connections and compaction."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree.simulated_cluster import SimulatedCluster


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_and_members_never_differ(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    compact_after = dice.choice([8, 40, 10_000])
    batch_bytes = dice.choice([200, 1 << 21])
    cluster = SimulatedCluster(
        tmp_path,
        dice,
        monkeypatch,
        size=dice.choice([3, 3, 5]),
        compact_after=compact_after,
        batch_bytes=batch_bytes,
    )
    for _ in range(4):
        fault_rate = dice.choice([0.0, 0.002, 0.02])
        for _ in range(600):
            cluster.step(fault_rate)
        cluster.heal()
        cluster.check()
    assert cluster.acknowledged, "the run must have done something"


def test_a_conflicting_tail_longer_than_a_batch_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock PySyncObj sends back and forth for ever when both the tail and the news are longer than one batch."""
    dice = random.Random(5)
    cluster = SimulatedCluster(tmp_path, dice, monkeypatch, size=3, compact_after=10_000, batch_bytes=300)
    cluster.heal()
    (old,) = [name for name in cluster.names if cluster.raft(name).is_leader()]
    for pair in sorted(cluster.connections, key=sorted):
        if old in pair:
            cluster.disconnect(pair)
    for _ in range(60):
        cluster.submit_somewhere()
    cluster.tick(old)
    others = [name for name in cluster.names if name != old]
    while not any(cluster.raft(name).is_leader() for name in others):
        cluster.now_s += 0.05
        for name in others:
            cluster.members[name].tick()
            cluster.members[name].make_durable()
        while cluster.deliver_one():
            pass
    for _ in range(60):
        cluster.submit_somewhere()
    cluster.heal()
    cluster.check()
