"""What a simulation server tells Prometheus of what is so now, and what it has counted (docs/guides/metrics.md)."""

from collections.abc import Iterator
from typing import Final

from batonpass.authority.node.metrics import Reading
from batonpass.simserver.server.dispatch import SimserverNode

__all__ = ["simserver_readings"]

# Counts that are promised under these names; all others may change their names between releases.
_PROMISED: Final = {
    "inputs": "Inputs that players and programs sent.",
    "ticks_skipped": "Ticks that were left out because the ones before took too long.",
    "ticks_without_lease": "Ticks that were not simulated for want of a lease.",
    "world_failed": "Times that the world raised.",
}


def simserver_readings(node: SimserverNode) -> Iterator[Reading]:
    """As this server knows it; nothing takes longer with more entities."""
    lease, holdings = node.lease.to_data(), node.holdings
    yield Reading.of("entities", "Entities that live here, running or frozen.", len(holdings))
    yield Reading.of("entities_leaving", "Hand-overs under way from here.", len(node.departures))
    yield Reading.of("entities_asleep", "Entities that are not ticked until something is due.", holdings.asleep)
    yield Reading.of("entities_passivated", "Entities whose memory was given back.", holdings.passive)
    help_ = "Entities that would wait for this server if it died now, as there is no copy of them yet."
    yield Reading.of("entities_without_copy", help_, node.replication.waiting())
    yield Reading.of("ticks", "Ticks since the start.", node.ticks, "counter")
    for name, help_ in _PROMISED.items():
        yield Reading.of(name, help_, node.counts[name], "counter")
    yield Reading.of(
        "lease_remaining_seconds", "How long the lease lasts if it is not renewed.", lease["left_ms"] / 1e3
    )
    yield Reading.of("incarnation", "Lives of this server under leases.", lease["incarnation"])
    yield Reading.of("ledger_unwritten", "Notes of the ledger that wait for the disk.", node.ledger.unwritten)
    yield Reading.of("clock_off", "1 if the clock of its host is to be looked at.", bool(node.clock.why))
    counts = {name: float(count) for name, count in sorted(node.counts.items()) if name not in _PROMISED}
    help_ = "What was dropped, refused, repeated, by name; names may change between releases."
    yield Reading("debugging_events", help_, counts, "event", kind="counter")
    link = {name: float(count) for name, count in sorted(node.link.stats.items())}
    yield Reading("debugging_link", "Numbers of the link, by name; names may change.", link, "what")
