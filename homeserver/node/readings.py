"""What a homeserver tells Prometheus of what is so now: its log and its instance (docs/guides/metrics.md)."""

from collections.abc import Iterator

from batonpass.authority.node.metrics import Reading
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.tree.disk.disk import SYNC_TIMES
from batonpass.tree.member.status import Latency

__all__ = ["homeserver_readings"]


def homeserver_readings(node: HomeserverNode) -> Iterator[Reading]:
    """As this member knows it; nothing is asked of others, and nothing takes longer with more entities."""
    status, store = node.replica.status, node.replica.store
    yield Reading.of("has_leader", "1 if this member knows who leads its log.", status.leader is not None)
    yield Reading.of("is_leader", "1 if this member leads its log.", status.is_leader)
    yield Reading.of("ready", "1 if it has applied something of the leader's term.", status.ready)
    yield Reading.of("writable", "0 while what keeps the log takes no changes.", not status.cannot_write)
    yield Reading.of("leader_term", "The term of the log: it rises with each election.", status.term)
    yield Reading.of("proposals_committed", "The last entry of the log that is committed.", status.commit_index)
    yield Reading.of("proposals_applied", "The last entry of the log that is applied here.", status.applied_index)
    latency = status.latency
    yield Reading.of("proposals_answered", "Commands submitted here and answered.", latency.count, "counter")
    quantiles = {"0.5": latency.p50_ms / 1e3, "0.99": latency.p99_ms / 1e3, "1": latency.max_ms / 1e3}
    help_ = "How long the commands took that were answered here lately."
    yield Reading("proposal_recent_duration_seconds", help_, quantiles, "quantile")
    yield Reading.of("disk_syncs", "Syncs of files of this process.", SYNC_TIMES.count, "counter")
    synced = Latency.of(SYNC_TIMES.count, tuple(SYNC_TIMES.last_ns))
    quantiles = {"0.5": synced.p50_ms / 1e3, "0.99": synced.p99_ms / 1e3, "1": synced.max_ms / 1e3}
    yield Reading("disk_sync_recent_duration_seconds", "How long the last of them took.", quantiles, "quantile")
    connected = {member.name: float(member.connected) for member in status.members}
    yield Reading("peer_connected", "1 if this member is connected to the other.", connected, "member")
    yield Reading.of("tree_nodes", "Nodes of the tree.", store.node_count)
    yield Reading.of("tree_revision", "Changes of the tree, ever.", store.revision)
    for name, help_ in (("entities", "Entities of this instance."), ("servers", "Servers that are registered.")):
        view = store.view((name,))
        yield Reading.of(f"home_{name}", help_, 0 if view is None else view.child_count)
    yield Reading.of("clock_off", "1 if the clock of its host is to be looked at.", bool(node.clock.why))
