"""Hierarchies of which a server has died, on drained servers: in a cluster of two instances without other faults."""

from random import Random

from batonpass.authority.model.records import EntityRecord
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.run import simulate_seed
from tests.scenarios.simulation.servers.test_simulated_lapses import passing, until

TOP, CHILD, BELOW = "alpha.e2", "alpha.e0", "alpha.e6"
DEAD, DRAINED, ELSEWHERE = "alpha.s3", "beta.s2", "beta.s1"
HOW = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}


def record(cluster: ServersCluster, entity: str) -> EntityRecord:
    found = cluster.record(entity)
    assert found is not None
    return found


def move(cluster: ServersCluster, entity: str, target: str, *expected: str) -> None:
    """Have it moved, until these are there."""
    home = cluster.homes["alpha.h1"]
    home.process.start_soon(home.move, f"{entity[-2:]}-to-{target[-2:]}", entity, target, HOW)
    until(cluster, lambda: all(record(cluster, one).authority == target for one in expected))


def attach(cluster: ServersCluster, child: str, parent: str) -> None:
    by, rev = cluster.players[0].name, record(cluster, child).parent_rev
    cluster.logs["alpha"].run("entity.attach", {"entity": child, "parent": parent, "by": by, "parent_rev": rev})


def test_a_drained_child_does_not_wait_for_a_parent_that_nobody_has() -> None:
    """Nobody can freeze it: in a group with it the others would stand still for ten seconds, again and again."""
    cluster = ServersCluster(MIXES["calm"], Random("families"))
    move(cluster, CHILD, DRAINED, CHILD)
    attach(cluster, CHILD, TOP)
    attach(cluster, BELOW, CHILD)
    rights = {"entity": TOP, "by": cluster.players[0].name, "orphans": "freeze"}
    cluster.logs["alpha"].run("entity.change_rights", rights)
    passing(cluster, 3.0)  # until there is a copy on its disk
    cluster.crash(DEAD)
    until(cluster, lambda: record(cluster, TOP).authority == "")

    cluster.logs["beta"].run("server.drain", {"server": DRAINED, "drain_id": "drain-1", "now_s": 0.0})
    until(cluster, lambda: record(cluster, CHILD).authority == ELSEWHERE == record(cluster, BELOW).authority)
    refused = cluster.servers[DRAINED].counts["refused_attached"]
    assert refused == 1, "it stands still once to find out that it cannot go alone, and once to go"

    cluster.servers[DEAD].start()
    until(cluster, lambda: record(cluster, TOP).authority == DEAD)
    until(cluster, lambda: not cluster.unsettled())
    move(cluster, TOP, "alpha.s1", TOP, CHILD, BELOW)
    until(cluster, lambda: not cluster.unsettled())
    assert cluster.judge.violations == []


def test_a_group_of_which_a_member_is_left_alone_and_delegated_does_not_move_in_part() -> None:
    """A direct transfer brings a child along, which is attached elsewhere before the parent is frozen."""
    assert simulate_seed("notices", 700272).violations == ()
