"""Judging custody: the logs of all servers side by side show whether authority ever doubled, vanished or went back.

Pure. It knows nothing of transfers: only who simulated what, from when to when, with which state (see
`simserver.entity.custody_log.Stint`). Times are monotonic nanoseconds of one machine.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

__all__ = ["Custody", "FinalAuthority", "gaps_ms", "judge"]


@dataclass(frozen=True, slots=True)
class FinalAuthority:
    """Who has authority over an entity at the end of a run, as the log has it."""

    server: str
    epoch: int
    sub: int


@dataclass
class Custody:
    """What the custody logs show.

    `gaps_ticks` has, per (entity, epoch, sub), how many ticks came due between the end of the stint before and the
    beginning of that one. No server simulated these.
    """

    two_authorities: int = 0
    no_authority: int = 0
    state_regressions: int = 0
    gaps_ticks: dict[tuple[str, int, int], int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def _found(self, kind: str, text: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.findings) < 20:
            self.findings.append(f"{kind}: {text}")


def gaps_ms(stints: Iterable[Mapping[str, Any]]) -> list[float]:
    """For how long no server simulated an entity, from the end of each stint to the beginning of the next of the
    same.
    """
    ordered = sorted(stints, key=lambda stint: (stint["entity"], stint["epoch"], stint["sub"]))
    return [
        (after["started_ns"] - before["ended_ns"]) / 1e6
        for before, after in pairwise(ordered)
        if before["entity"] == after["entity"] and before["ended_ns"]
    ]


def judge(
    stints: Iterable[Mapping[str, Any]],
    finals: Mapping[str, FinalAuthority],
    period_ns: int,
    leases_over: Mapping[str, int] = MappingProxyType({}),
) -> Custody:
    """Check the chain of custody of every entity in `finals`.

    `leases_over` says how often each server has lost its lease. What it simulated continued under a fence that had been
    raised before, elsewhere or there. Findings say so. Of what such a server had, its last tick counts as the end.

    An entity's stints, in the order of their fences, must not overlap in time and not tick after their end. Each must
    continue from the tick and the state hash with which the one before ended. The last one must still last, on the
    server and under the fence that the log names.
    """
    custody = Custody()
    by_entity: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for stint in stints:
        by_entity[stint["entity"]].append(stint)
    for entity, final in finals.items():
        chain = sorted(by_entity.get(entity, ()), key=lambda stint: (stint["epoch"], stint["sub"], stint["started_ns"]))
        if not chain:
            custody._found("no_authority", f"no server ever simulated {entity}")
            continue
        _judge_links(custody, entity, chain, period_ns, leases_over)
        _judge_end(custody, entity, chain[-1], final, leases_over)
    return custody


def _cause(leases_over: Mapping[str, int], *servers: str) -> str:
    """Why it may be that no server had authority, after the words that say so; empty if nothing explains it."""
    lost = [f"{server} ({times} times)" for server in sorted({*servers}) if (times := leases_over.get(server, 0))]
    return f": taken over, for the lease was not renewed in time and is over of {', '.join(lost)}" if lost else ""


def _end_ns(stint: Mapping[str, Any], leases_over: Mapping[str, int]) -> int:
    """When a server had last simulated what it says to have ended.

    A server that loses its lease is unleased from then on, and ends what it had when it hears that the lease is over.
    On a starved machine that is seconds later, when others may have taken it over.
    """
    return int(stint["last_tick_ns"] if leases_over.get(stint["server"], 0) else stint["ended_ns"])


def _judge_links(
    custody: Custody,
    entity: str,
    chain: list[Mapping[str, Any]],
    period_ns: int,
    leases_over: Mapping[str, int],
) -> None:
    for before, after in pairwise(chain):
        fences = (before["epoch"], before["sub"]), (after["epoch"], after["sub"])
        where = f"{entity}: {before['server']} {fences[0]} → {after['server']} {fences[1]}"
        if fences[0] == fences[1]:
            custody._found("two_authorities", f"{where}: the same fence twice")
        elif before["ended_ns"] == 0 or after["started_ns"] < _end_ns(before, leases_over):
            custody._found("two_authorities", f"{where}: the first had not ended when the second began")
        elif before["last_tick_ns"] > before["ended_ns"]:
            # What a server says of its end is one thing; that it ticked on afterwards is another.
            custody._found("two_authorities", f"{where}: the first still ticked after its end")
        if fences[1] not in (fences[0], (fences[0][0], fences[0][1] + 1), (fences[0][0] + 1, 0)):
            # Every fence has a holder; the log of that server is missing, or there was none.
            cause = _cause(leases_over, before["server"], after["server"])
            custody._found("no_authority", f"{where}: no custody log shows who had authority in between{cause}")
            continue
        if (after["started_tick"], after["started_hash"]) != (before["ended_tick"], before["ended_hash"]):
            custody._found(
                "state_regressions",
                f"{where}: ended at tick {before['ended_tick']}, went on at {after['started_tick']}",
            )
        if before["ended_ns"]:
            # Servers tick at whole multiples of the period of the one clock that they share.
            due = after["started_ns"] // period_ns - before["ended_ns"] // period_ns
            custody.gaps_ticks[(entity, *fences[1])] = max(0, due)


def _judge_end(
    custody: Custody, entity: str, last: Mapping[str, Any], final: FinalAuthority, leases_over: Mapping[str, int]
) -> None:
    if last["ended_ns"]:
        cause = _cause(leases_over, last["server"])
        custody._found(
            "no_authority", f"{entity}: no server simulates it at the end; {last['server']} was the last{cause}"
        )
    elif (last["server"], last["epoch"], last["sub"]) != (final.server, final.epoch, final.sub):
        custody._found(
            "no_authority",
            f"{entity}: the log names {final.server} at ({final.epoch}, {final.sub}), but {last['server']} simulates it"
            f" at ({last['epoch']}, {last['sub']})",
        )
