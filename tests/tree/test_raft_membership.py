"""Members join, leave, are replaced and pass the leadership on, through crashes and lost connections."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

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
