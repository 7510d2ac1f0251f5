"""From what the clients of a run have seen to its report. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

from batonpass.scenarios.lockstep.judge import LockstepClient, gap_around, judge_lockstep, news_of
from batonpass.scenarios.lockstep.plan import LockstepPlan
from batonpass.scenarios.report.model import LockstepMove, LockstepReport, LockstepSecond, LockstepViolations
from batonpass.scenarios.report.statistics import median, summarise

__all__ = ["SeenMove", "lockstep_report"]


@dataclass(frozen=True)
class SeenMove:
    """The stream came to another server; times are of the clock that clients have."""

    kind: Literal["hand-over", "failover"]
    source: str
    target: str
    began_s: float
    ended_s: float


def lockstep_report(
    plan: LockstepPlan,
    clients: Sequence[LockstepClient],
    moves: Sequence[SeenMove],
    last_tick: int,
    began_s: float,
    facts: Mapping[str, Any],
) -> LockstepReport:
    """Make the report.

    Args:
        plan: what was to happen.
        clients: what they have seen.
        moves: what happened to the stream.
        last_tick: to which all clients had to come.
        began_s: when the run began.
        facts: the fields of `RunFacts`.
    """
    found = judge_lockstep(clients, last_tick)
    intervals_ms = [gap_ms for client in clients for _, gap_ms in _intervals(client)]
    syncs = sum(client.syncs for client in clients)
    last_s = max((client.told[-1][0] for client in clients if client.told), default=began_s)
    took_s = max(last_s - began_s, 1e-3)
    # One that begins by a snapshot has joined by it; every other one is a jump.
    joined = sum(bool(client.restored) and client.restored[0][0] == 0 for client in clients)
    late = {client.name for client in plan.clients if client.is_late}
    by_replay = sum(client.name in late and not (client.restored and client.restored[0][0] == 0) for client in clients)
    catch_ups_ms = [took_ms for client in clients for took_ms in client.catch_ups_ms]
    return LockstepReport(
        **facts,
        violations=LockstepViolations(**found.broken()),
        clients=len(clients),
        late_joiners=len(late),
        joined_by_snapshot=joined,
        joined_by_replay=by_replay,
        seconds=plan.seconds,
        loss=plan.loss,
        jitter_ms=plan.jitter_ms,
        ticks=last_tick,
        compared_ticks=found.compared_ticks,
        events_posted=found.posted,
        events_applied=found.applied,
        syncs=syncs,
        syncs_lost=sum(client.lost for client in clients),
        syncs_per_s=syncs / took_s,
        lead_ticks=summarise([lead for client in clients for _, lead in client.leads_ticks]),
        interval_ms=summarise(intervals_ms),
        catch_ups=len(catch_ups_ms),
        catch_up_ms=summarise(catch_ups_ms),
        jumps=sum(len(client.restored) for client in clients) - joined,
        moves=tuple(
            LockstepMove(
                kind=move.kind,
                at_s=move.began_s - began_s,
                source=move.source,
                target=move.target,
                took_ms=(move.ended_s - move.began_s) * 1e3,
                gap_ms=summarise(gap_around(clients, move.began_s, move.ended_s)),
            )
            for move in moves
        ),
        timeline=_timeline(clients, began_s),
        last_hash=next((client.hashes[last_tick] for client in clients if last_tick in client.hashes), ""),
        findings=tuple(found.sentences),
    )


def _intervals(client: LockstepClient) -> list[tuple[float, float]]:
    """When a client was told something new, and how long it had waited for that, in milliseconds."""
    return [(later, (later - sooner) * 1e3) for sooner, later in pairwise(news_of(client.told))]


def _timeline(clients: Sequence[LockstepClient], began_s: float) -> tuple[LockstepSecond, ...]:
    syncs, ticks = Counter[int](), defaultdict[int, int](int)
    leads, intervals_ms = defaultdict[int, list[int]](list), defaultdict[int, float](float)
    for client in clients:
        for told_s, tick in client.told:
            second = int(told_s - began_s)
            syncs[second] += 1
            ticks[second] = max(ticks[second], tick)
        for looked_s, lead in client.leads_ticks:
            leads[int(looked_s - began_s)].append(lead)
        for came_s, interval_ms in _intervals(client):
            second = int(came_s - began_s)
            intervals_ms[second] = max(intervals_ms[second], interval_ms)
    highest = accumulate((ticks[second] for second in range(max(syncs, default=-1) + 1)), max)
    return tuple(
        LockstepSecond(
            at_s=second,
            syncs=syncs[second],
            tick=tick,
            lead_ticks=median(leads[second]) or 0.0,
            interval_ms=intervals_ms[second],
        )
        for second, tick in enumerate(highest)
    )
