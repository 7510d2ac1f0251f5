"""Judging the chain of custody of an entity when servers were killed: what they wrote down, and when they died.

Pure. As `scenarios.custody`, with two differences: whoever was killed while it simulated has ended then, whatever it
had no time to write; and what goes on after that does so from a copy, which may be of an earlier tick. That no input
was lost or applied twice by that is for others to check.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["Kill", "judge_chain", "latest"]


@dataclass(frozen=True)
class Kill:
    """A server was gone at this time (monotonic nanoseconds)."""

    server: str
    at_ns: int


def latest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Stints as they were at last, from the lines that were written at their beginnings and ends; by fence and time."""
    stints = {(row["server"], row["entity"], row["epoch"], row["sub"], row["started_ns"]): row for row in rows}
    return sorted(stints.values(), key=lambda row: (row["epoch"], row["sub"], row["started_ns"]))


def judge_chain(stints: Sequence[Mapping[str, Any]], kills: Iterable[Kill]) -> list[str]:
    """What is wrong with the stints of one entity, `latest` first applied, as sentences."""
    kills = tuple(kills)
    problems = []
    for before, after in pairwise(stints):
        where = f"{_name(before)} → {_name(after)}"
        end_ns = _end_ns(before, kills)
        if (before["epoch"], before["sub"]) == (after["epoch"], after["sub"]):
            problems.append(f"{where}: the same fence twice")
        elif end_ns is None or after["started_ns"] < end_ns:
            problems.append(f"{where}: the first had not ended when the second began")
        ended, began = (before["ended_tick"], before["ended_hash"]), (after["started_tick"], after["started_hash"])
        if before["ended_ns"] and ended != began and not _was_killed(before, after, kills):
            problems.append(f"{where}: ended at tick {before['ended_tick']}, went on at {after['started_tick']}")
    return problems


def _was_killed(before: Mapping[str, Any], after: Mapping[str, Any], kills: tuple[Kill, ...]) -> bool:
    """Whether the server of the first stint died before the second began, with what it had frozen."""
    return any(k.server == before["server"] and before["started_ns"] <= k.at_ns <= after["started_ns"] for k in kills)


def _end_ns(stint: Mapping[str, Any], kills: tuple[Kill, ...]) -> int | None:
    if stint["ended_ns"]:
        return int(stint["ended_ns"])
    return min((k.at_ns for k in kills if k.server == stint["server"] and k.at_ns >= stint["started_ns"]), default=None)


def _name(stint: Mapping[str, Any]) -> str:
    return f"{stint['server']} ({stint['epoch']}, {stint['sub']})"
