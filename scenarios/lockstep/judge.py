"""Whether the clients of a run have all seen the same, and nothing was lost, doubled or in another order. Pure.

What counts is what clients computed and applied, not what servers believe. Every client's own list of what it posted is
held against the events that all clients applied.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from batonpass.scenarios.lockstep.game import TALLIED
from batonpass.simserver.sync.lockstep.driver import SimEvent

__all__ = ["LockstepClient", "LockstepJudgement", "gap_around", "judge_lockstep", "news_of"]

MAX_SENTENCES: Final = 20


@dataclass
class LockstepClient:
    """What one client has done and seen.

    Attributes:
        name: in sentences.
        public_id: as the stream knows it; empty if no door ever answered.
        posted: the bodies of its events, in the order of posting.
        hashes: of the state, by the tick after which it was taken.
        events: that it applied, in order.
        told: when a door told it a tick, and which, in the order of asking.
        resets: how often it was told to begin anew.
        refused: what doors said no to.
        unacknowledged: of its events, at the end.
        failure: why it stopped before the end, if it did.
        restored: from which tick to which one it went by a snapshot.
        syncs: its requests that were answered.
        lost: its requests that were lost on the way, or whose answers were.
        leads_ticks: when it had computed a tick, and how many known ones it had not computed then.
        catch_ups_ms: how long it was farther behind than is usual, each time that it was.
    """

    name: str
    public_id: str = ""
    posted: Sequence[str] = ()
    hashes: Mapping[int, str] = field(default_factory=dict)
    events: Sequence[SimEvent] = ()
    told: Sequence[tuple[float, int]] = ()
    resets: int = 0
    refused: Sequence[str] = ()
    unacknowledged: int = 0
    failure: str = ""
    restored: Sequence[tuple[int, int]] = ()
    syncs: int = 0
    lost: int = 0
    leads_ticks: Sequence[tuple[float, int]] = ()
    catch_ups_ms: Sequence[float] = ()


@dataclass
class LockstepJudgement:
    """How often each rule was broken; a good run has zeros only, and compared something."""

    compared_ticks: int = 0
    """At which two clients or more had a hash."""
    posted: int = 0
    applied: int = 0
    """Events of clients, each once, however many applied it."""
    divergences: int = 0
    """Ticks at which two clients had different hashes, or applied different events."""
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    """Clients whose events were applied in another order than that of posting."""
    refused: int = 0
    went_back: int = 0
    """Times that a client was told a lower tick than before, or to begin anew."""
    unfinished: int = 0
    """Clients that did not come to the last tick, or whose events were not all acknowledged."""
    sentences: list[str] = field(default_factory=list)

    def broken(self) -> dict[str, int]:
        """The rules that do not hold, with how often they were broken."""
        names = ("divergences", "lost", "doubled", "reordered", "refused", "went_back", "unfinished")
        return {name: count for name in names if (count := getattr(self, name))}

    def say(self, sentence: str) -> None:
        """Add a sentence, unless there are enough."""
        if len(self.sentences) < MAX_SENTENCES:
            self.sentences.append(sentence)


def judge_lockstep(clients: Sequence[LockstepClient], last_tick: int) -> LockstepJudgement:
    """Judge a run whose clients all had to come to `last_tick`."""
    found = LockstepJudgement()
    _judge_hashes(found, clients)
    applied = _judge_logs(found, clients)
    for client in clients:
        _judge_posted(found, client, applied.get(client.public_id, []) if client.public_id else [])
        _judge_course(found, client, last_tick)
    foreign = sorted(set(applied) - {client.public_id for client in clients})
    for origin in foreign:
        found.doubled += len(applied[origin])
        found.say(f"{len(applied[origin])} events are of {origin!r}, which is no client of this run")
    return found


def gap_around(clients: Iterable[LockstepClient], at_s: float, until_s: float) -> list[float]:
    """For each client that played then, the longest time without a new tick that touches this span, in milliseconds."""
    gaps_ms: list[float] = []
    for client in clients:
        news = news_of(client.told)
        touching = [(later - sooner) * 1e3 for sooner, later in pairwise(news) if sooner <= until_s and later >= at_s]
        if touching and news[0] <= at_s:
            gaps_ms.append(max(touching))
    return gaps_ms


def news_of(told: Iterable[tuple[float, int]]) -> list[float]:
    """When it was told a tick that it did not know."""
    known, news = -1, []
    for at_s, tick in told:
        if tick > known:
            known = tick
            news.append(at_s)
    return news


def _judge_hashes(found: LockstepJudgement, clients: Sequence[LockstepClient]) -> None:
    by_tick: defaultdict[int, dict[str, list[str]]] = defaultdict(dict)
    for client in clients:
        for tick, state_hash in client.hashes.items():
            by_tick[tick].setdefault(state_hash, []).append(client.name)
    found.compared_ticks = sum(sum(map(len, hashes.values())) > 1 for hashes in by_tick.values())
    divergent = sorted(tick for tick, hashes in by_tick.items() if len(hashes) > 1)
    found.divergences += len(divergent)
    if divergent:
        groups = "; ".join(
            f"{state_hash[:12]} of {_names(names)}" for state_hash, names in by_tick[divergent[0]].items()
        )
        found.say(f"tick {divergent[0]} is the first of {len(divergent)} with several states: {groups}")
    if not found.compared_ticks:
        found.unfinished += 1
        found.say("no two clients computed the same tick, so nothing was compared")


def _judge_logs(found: LockstepJudgement, clients: Sequence[LockstepClient]) -> dict[str, list[SimEvent]]:
    """Compare what clients applied, tick by tick; the events of each origin, from all ticks that a client computed."""
    rows: dict[int, tuple[str, list[SimEvent]]] = {}
    for client in clients:
        mine: defaultdict[int, list[SimEvent]] = defaultdict(list)
        for event in client.events:
            mine[event.tick].append(event)
        for tick in client.hashes:
            whose, theirs = rows.setdefault(tick, (client.name, mine[tick]))
            if theirs != mine[tick]:
                found.divergences += 1
                found.say(f"{whose} and {client.name} applied different events in tick {tick}")
    applied: defaultdict[str, list[SimEvent]] = defaultdict(list)
    for tick in sorted(rows):
        for event in rows[tick][1]:
            if event.type == TALLIED:
                applied[event.origin].append(event)
    found.applied = sum(map(len, applied.values()))
    return dict(applied)


def _judge_posted(found: LockstepJudgement, client: LockstepClient, applied: Sequence[SimEvent]) -> None:
    found.posted += len(client.posted)
    bodies = [event.body for event in applied]
    places = {body: place for place, body in enumerate(client.posted)}
    # What still waits at a client is not lost: that client has not come to the end.
    settled = client.posted[: len(client.posted) - client.unacknowledged]
    lost = [body for body in settled if body not in set(bodies)]
    once = list(dict.fromkeys(bodies))
    doubled = len(bodies) - sum(body in places for body in once)
    order = [places[body] for body in once if body in places]
    found.lost += len(lost)
    found.doubled += doubled
    if lost:
        found.say(f"{len(lost)} of {len(client.posted)} events of {client.name} were never applied, first {lost[0]!r}")
    if doubled:
        found.say(f"{doubled} events were applied as {client.name}'s beyond what it posted")
    if order != sorted(order):
        found.reordered += 1
        found.say(f"events of {client.name} were applied in another order than that of posting")


def _judge_course(found: LockstepJudgement, client: LockstepClient, last_tick: int) -> None:
    back = [(before, after) for (_, before), (_, after) in pairwise(client.told) if after < before]
    found.went_back += len(back) + client.resets
    if back:
        found.say(f"{client.name} was told tick {back[0][1]} after tick {back[0][0]}")
    if client.resets:
        found.say(f"{client.name} was told to begin anew")
    found.refused += len(client.refused)
    if client.refused:
        found.say(f"{client.name} was refused: {client.refused[0]}")
    # Of the tick of a snapshot there is no hash of its own: it was held against that of the others when it was taken.
    reached = max((*client.hashes, *(tick for _, tick in client.restored)), default=0)
    if client.failure or reached < last_tick or client.unacknowledged:
        found.unfinished += 1
        why = client.failure or f"it is at tick {reached} of {last_tick}, and {client.unacknowledged} events wait"
        heard = f"of its requests {client.lost} were lost, and {client.syncs} were answered with a tick"
        found.say(f"{client.name} did not come to the end: {why}; {heard}")


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
