"""Groups of simulated clusters wait for their last member for less long than real ones do, and as long in all else."""

from random import Random

from batonpass.authority.model.records import Rule
from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.patience import GROUP_S

NOW_S = 1_700_000_000


def test_a_group_has_a_few_seconds_and_its_notice() -> None:
    cluster = ServersCluster(MIXES["calm"], Random("patience"))
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


def test_a_group_that_a_master_allows_has_no_more() -> None:
    cluster = ServersCluster(MIXES["calm"], Random("patience"))
    log, store = cluster.logs["alpha"], cluster.store_of("alpha")
    parent, child = store.entity("alpha.e0"), store.entity("alpha.e1")
    assert parent is not None
    assert child is not None
    below = child.changed(parent=parent.id, authority=parent.authority, incarnation=parent.incarnation)
    log.store.put(("entities", child.id), below.to_data())
    log.store.put(("entities", parent.id), parent.changed(children=(child.id,), rule=Rule.ASK).to_data())
    wanted = {"transfer_id": "transfer-1", "entity": parent.id, "target": "alpha.s3", "requester": "beta.bob"}
    assert log.run("transfer.propose", wanted | {"now_s": NOW_S - 1.0})["phase"] == "asked"
    answer = {"transfer_id": "transfer-1", "by": parent.master, "allow": True, "now_s": float(NOW_S)}
    assert log.run("transfer.answer", answer)["phase"] == "permitted"
    group = store.group("transfer-1")
    assert group is not None
    assert sorted(group.members.values()) == [parent.id, child.id]
    assert group.expires_at_s == NOW_S + GROUP_S
