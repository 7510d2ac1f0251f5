"""Judging the chain of custody of an entity when servers were killed: what they wrote down, and when they died.

Pure. As `scenarios.judge.custody`, with two differences. A server that was killed while it simulated has ended then,
whatever it had no time to write. One that was away until its lease was over has ended with its last tick. What follows
after that does so from a copy, which may be of an earlier tick. That no input was lost or applied twice by that is for
others to check.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

__all__ = ["Loss", "ServerKill", "judge_chain", "latest"]


class Loss(StrEnum):
    """How a server was lost to the others until its lease was over."""

    KILLED = "killed"
    PAUSED = "paused"
    """It was paused, and went on when its lease was over."""
    PARTED = "parted"
    """It went on, and had to stop by itself."""


@dataclass(frozen=True)
class ServerKill:
    """A server was gone at this time (monotonic nanoseconds)."""

    server: str
    at_ns: int
    loss: Loss = Loss.KILLED


def latest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Stints as they were at last, from the lines that were written at their beginnings and ends; by fence and time."""
    stints = {(row["server"], row["entity"], row["epoch"], row["sub"], row["started_ns"]): row for row in rows}
    return sorted(stints.values(), key=lambda row: (row["epoch"], row["sub"], row["started_ns"]))


def judge_chain(stints: Sequence[Mapping[str, Any]], kills: Iterable[ServerKill]) -> list[str]:
    """What is wrong with the stints of one entity, `latest` first applied, as sentences."""
    kills = tuple(kills)
    problems = []
    for before, after in pairwise([stint for stint in stints if not _stood_still(stint, kills)]):
        where = f"{_name(before)} → {_name(after)}"
        end_ns = _end_ns(before, kills)
        if (before["epoch"], before["sub"]) == (after["epoch"], after["sub"]):
            problems.append(f"{where}: the same fence twice")
        elif end_ns is None or after["started_ns"] < end_ns:
            late = "for good" if end_ns is None else f"by {(end_ns - after['started_ns']) / 1e6:.1f} ms"
            problems.append(f"{where}: the first had not ended when the second began, {late}")
        ended, began = (before["ended_tick"], before["ended_hash"]), (after["started_tick"], after["started_hash"])
        if before["ended_ns"] and ended != began and not _was_lost(before, after, kills):
            problems.append(f"{where}: ended at tick {before['ended_tick']}, went on at {after['started_tick']}")
    return problems


def _stood_still(stint: Mapping[str, Any], kills: tuple[ServerKill, ...]) -> bool:
    """Whether it was begun by a server that had been paused beyond its lease, and that ended it without a tick."""
    paused = any(
        k.loss is Loss.PAUSED and k.server == stint["server"] and k.at_ns <= stint["started_ns"] for k in kills
    )
    return paused and stint["ended_ns"] and not stint["last_tick_ns"]


def _was_lost(before: Mapping[str, Any], after: Mapping[str, Any], kills: tuple[ServerKill, ...]) -> bool:
    """Whether the server of the first stint was lost before the second began, with what it had frozen."""
    return any(
        (k.server == before["server"] and k.at_ns <= after["started_ns"] and k.at_ns >= before["started_ns"])
        or _has_lapsed(before, k)
        for k in kills
    )


def _has_lapsed(stint: Mapping[str, Any], kill: ServerKill) -> bool:
    """Whether a stint ended because its server was away until its lease was over."""
    is_its = kill.server == stint["server"] and kill.loss is not Loss.KILLED
    return is_its and bool(stint["ended_ns"]) and kill.at_ns <= stint["ended_ns"]


def _end_ns(stint: Mapping[str, Any], kills: tuple[ServerKill, ...]) -> int | None:
    """When a stint was over: as its server says, or when that was killed.

    A server that is away until its lease is over ends it when it hears of that. It must not have ticked since the lease
    was over: its last tick is the end.
    """
    if any(_has_lapsed(stint, kill) for kill in kills):
        return int(stint["last_tick_ns"] or stint["started_ns"])
    if stint["ended_ns"]:
        return int(stint["ended_ns"])
    return min((k.at_ns for k in kills if k.server == stint["server"] and k.at_ns >= stint["started_ns"]), default=None)


def _name(stint: Mapping[str, Any]) -> str:
    return f"{stint['server']} ({stint['epoch']}, {stint['sub']})"
