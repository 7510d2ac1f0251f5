"""Fault mixes: what goes wrong in a run, how often and for how long, as data.

Rates are per virtual second and for the whole cluster, times in seconds as (shortest, longest), shares between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from batonpass.scenarios.simulation.tree.network import Weather

__all__ = ["MIXES", "TreeFaultMix"]

Range = tuple[float, float]

_FAIR_WEATHER: Final = Weather()


@dataclass(frozen=True, kw_only=True)
class TreeFaultMix:
    """One kind of bad luck."""

    name: str
    purpose: str

    # --- processes and machines
    crash: float = 0.0  # one member, between two things it does
    crash_on_disk: float = 0.0  # one member, inside one of its next disk operations
    crash_all: float = 0.0  # all members at the same instant
    crash_leader: float = 0.0
    power_cut_share: float = 0.7  # of the crashes lose or tear what was not synced; the others are kill -9
    recovery_crash_share: float = 0.1  # of the restarts crash again inside the recovery
    down_s: Range = (0.05, 1.5)
    pause: float = 0.0  # one member is paused, as after SIGSTOP
    pause_leader: float = 0.0
    pause_s: Range = (0.1, 2.5)

    # --- the network
    cut: float = 0.0  # between two members, both ways
    cut_one_way: float = 0.0
    isolate: float = 0.0  # one member from all others
    isolate_leader: float = 0.0
    halve: float = 0.0  # the cluster in two parts
    cut_s: Range = (0.2, 3.0)
    reset_share: float = 0.5  # of the cuts end the connections, the others only delay what is under way
    reset: float = 0.0  # one connection ends, and is made again
    slow: float = 0.0  # one direction becomes slow
    slow_extra_s: Range = (0.2, 3.0)
    slow_s: Range = (0.5, 4.0)
    echo: float = 0.0  # what was sent in one direction before arrives once more, out of order
    weather: Weather = _FAIR_WEATHER

    # --- what makes ordinary things rare or frequent
    batch_bytes: int = 1 << 21
    compact_after_entries: int = 10_000
    burst: float = 0.0  # many writes at once by a client that does not wait for them
    burst_writes: tuple[int, int] = (5, 40)

    # --- what operators do
    transfer: float = 0.0  # hand the leadership to another member
    change: float = 0.0  # add, remove or replace a member, while there is no other change

    def rates(self) -> Mapping[str, float]:
        """The faults that have a rate, by the names of their fields."""
        return {
            field.name: rate
            for field in fields(self)
            if field.type is float and not field.name.endswith("_share") and (rate := getattr(self, field.name)) > 0
        }


_MIXES: Final = (
    TreeFaultMix(
        name="crashes",
        purpose="members crash anywhere, also inside disk operations and all at once",
        crash=0.3,
        crash_on_disk=0.6,
        crash_all=0.15,
        crash_leader=0.1,
        burst=0.3,
        compact_after_entries=60,
    ),
    TreeFaultMix(
        name="compaction",
        purpose="snapshots and compaction all the time, and members that need the snapshot of another",
        crash=0.15,
        crash_on_disk=0.6,
        crash_all=0.05,
        isolate=0.2,
        burst=0.8,
        compact_after_entries=8,
        down_s=(0.2, 2.5),
    ),
    TreeFaultMix(
        name="partitions",
        purpose="cuts both ways and one way, isolated leaders, and connections that end or stall",
        cut=0.3,
        cut_one_way=0.4,
        isolate=0.1,
        isolate_leader=0.3,
        halve=0.15,
        reset=0.3,
        crash_leader=0.05,
        burst=0.4,
        compact_after_entries=40,
    ),
    TreeFaultMix(
        name="small-batches",
        purpose="log suffixes longer than one message, on leaders that return from isolation and members that restart",
        isolate_leader=0.4,
        crash=0.1,
        crash_on_disk=0.15,
        reset=0.2,
        burst=1.2,
        batch_bytes=700,
        compact_after_entries=60,
    ),
    TreeFaultMix(
        name="slow",
        purpose="delays of seconds in one direction, pauses, old frames that come again, many elections",
        slow=0.5,
        echo=15.0,
        pause=0.15,
        pause_leader=0.2,
        reset=0.3,
        reset_share=0.9,
        transfer=0.5,
        isolate_leader=0.5,
        halve=0.8,
        cut_s=(0.3, 1.5),
        burst=2.0,
        burst_writes=(1, 8),
        compact_after_entries=40,
        weather=Weather(latency_s=(0.0002, 0.01), spike_share=0.01, spike_s=0.5, late_share=0.8, remembers=True),
    ),
    TreeFaultMix(
        name="membership",
        purpose="members come, go and are replaced, the leader among them, while members crash and networks split",
        change=4.0,
        transfer=0.3,
        crash=0.6,
        crash_on_disk=0.2,
        crash_all=0.1,
        crash_leader=0.1,
        isolate=0.1,
        isolate_leader=0.1,
        halve=0.2,
        reset=0.2,
        burst=0.3,
        compact_after_entries=40,
    ),
    TreeFaultMix(
        name="everything",
        purpose="all of this, each of it seldom",
        crash=0.1,
        crash_on_disk=0.15,
        crash_all=0.03,
        crash_leader=0.05,
        pause=0.05,
        pause_leader=0.05,
        cut=0.1,
        cut_one_way=0.1,
        isolate_leader=0.1,
        halve=0.05,
        reset=0.1,
        slow=0.2,
        transfer=0.1,
        change=0.3,
        burst=0.5,
        batch_bytes=1500,
        compact_after_entries=20,
        weather=Weather(latency_s=(0.0002, 0.005), spike_share=0.01, spike_s=0.2, late_share=0.3),
    ),
)

MIXES: Final[Mapping[str, TreeFaultMix]] = MappingProxyType({mix.name: mix for mix in _MIXES})
