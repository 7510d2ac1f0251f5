"""Groups of simulated clusters wait for their last member for less long than real ones do, and as long in all else."""

from random import Random

from authority.group_commit import GROUP_LIFETIME_S
from scenarios.simulation.servers.cluster import Cluster
from scenarios.simulation.servers.mixes import MIXES
from scenarios.simulation.servers.patience import GROUP_S

NOW_S = 1_700_000_000


def test_a_group_has_a_few_seconds_and_its_notice() -> None:
    cluster = Cluster(MIXES["calm"], Random("patience"))
    log, members = cluster.logs["alpha"], ["alpha.e0", "alpha.e1"]
    wanted = {"group": "group-1", "entities": members, "target": "alpha.s3", "notice_ms": 1500, "now_s": float(NOW_S)}
    log.run("group.propose", wanted)
    group = cluster.store_of("alpha").group("group-1")
    assert group is not None
    assert group.expires_at_s == NOW_S + GROUP_S + 2
    assert sorted(group.members.values()) == members
    assert GROUP_S < GROUP_LIFETIME_S
    log.run("group.propose", wanted)
    assert cluster.store_of("alpha").group("group-1") == group, "asked for again, it has no less time"
