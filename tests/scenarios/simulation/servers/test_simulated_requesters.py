"""Requesters that are gone when what they asked for is granted, and the target with them."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES

ENTITY, TARGET, HOME = "alpha.e0", "alpha.s2", "alpha.h1"


def until(cluster: ServersCluster, done: Callable[[], bool]) -> None:
    """Let time pass until it is so, a minute of it at most."""
    assert cluster.schedule.run_until(cluster.schedule.now_s + 60.0, done), "it does not come about"


@pytest.mark.parametrize("returns", [True, False])
def test_failures_row_38_what_was_committed_to_a_vanished_target_for_a_requester_that_left_goes_on(
    returns: bool,
) -> None:
    """As row 13: the entity is taken from the dead target, and goes on; the requester owns it, wherever it is."""
    cluster = ServersCluster(replace(MIXES["calm"], move=0.0), Random("requesters"))
    cluster.worlds_wander = False
    cluster.schedule.run_until(cluster.schedule.now_s + 1.0)
    record = cluster.record(ENTITY)
    assert record is not None
    requester = next(player for player in cluster.players if player.name != record.owner)
    how = {"direct": False, "transport": "link", "mode": "eager", "requester": requester.name}
    home, target = cluster.homes[HOME], cluster.servers[TARGET]
    home.process.start_soon(home.move, "transfer-1", ENTITY, TARGET, how)
    requester.go_away()
    until(cluster, lambda: (now := cluster.record(ENTITY)) is not None and now.authority == TARGET)
    assert target.holding(ENTITY) is None, "committed, and not begun with"
    cluster.crash(TARGET)
    if returns:
        target.start()
    else:
        cluster.gone[TARGET] = None
    for player in cluster.players:
        player.resting = True

    def goes_on() -> bool:
        now = cluster.record(ENTITY)
        return now is not None and bool(now.authority) and now.epoch > 2 and not cluster.unsettled()

    until(cluster, goes_on)
    now = cluster.record(ENTITY)
    assert now is not None
    assert (now.owner, now.owner_rev) == (requester.name, 2), "what was committed stays committed"
    assert cluster.judge.violations == []
