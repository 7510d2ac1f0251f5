"""Machines with one guard taken away each: runs that find nothing must show that they can find something.

Those of hand-overs are the ones that `baton simulate transfers-search` finds out; here they fail in whole clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from scenarios.simulation import handover_weaknesses
from scenarios.simulation.machines.parts import Parts

__all__ = ["WEAKNESSES", "Weakness"]


@dataclass(frozen=True)
class Weakness:
    """A guard that is missing."""

    name: str
    sentence: str
    parts: Parts


_MACHINES: Final = (
    "activates-at-once",
    "answers-once",
    "any-certificate",
    "asks-before-staged",
    "asks-once",
    "commits-for-anybody",
    "deletes-at-commit",
    "deletes-before-commit",
    "fence-not-raised",
    "refuses-without-raising",
    "resumes-on-timeout",
    "resumes-without-the-log",
    "stale-certificates",
)


def _of_hand_overs(name: str) -> Weakness:
    weakness = handover_weaknesses.WEAKNESSES[name]
    weak = weakness.parts
    procedures = {**Parts().procedures, **weak.procedures}
    return Weakness(name, weakness.sentence, Parts(weak.outgoing, weak.incoming, procedures=procedures))


_ALL: Final = (
    *map(_of_hand_overs, _MACHINES),
    Weakness("forgets-on-arrival", "how far inputs had come stays behind", Parts(keeps_cursors=False)),
    Weakness("goes-on-after-freezing", "an entity goes on while it is on its way", Parts(freezes=False)),
)

WEAKNESSES: Final[Mapping[str, Weakness]] = MappingProxyType({weakness.name: weakness for weakness in _ALL})
