"""Machines with one guard taken away each: runs that find nothing must show that they can find something.

Those of hand-overs are the ones that `baton simulate transfers-search` finds out; here they fail in whole clusters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from batonpass.authority.machines.lease import Granter
from batonpass.scenarios.simulation.machines.keeping import Keeping
from batonpass.scenarios.simulation.machines.parts import MachineParts
from tests.mutants import search

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A guard that is missing."""

    name: str
    sentence: str
    parts: MachineParts


_MACHINES: Final = (
    "activates-at-once",
    "answers-once",
    "any-certificate",
    "asks-before-staged",
    "asks-once",
    "commits-for-anybody",
    "deletes-at-commit",
    "deletes-before-commit",
    "refuses-without-raising",
    "resumes-on-timeout",
    "resumes-without-the-log",
    "stale-certificates",
)


def _of_hand_overs(name: str) -> Mutant:
    mutant = search.MUTANTS[name]
    weak = mutant.parts
    procedures = {**MachineParts().procedures, **weak.procedures}
    return Mutant(name, mutant.sentence, MachineParts(weak.outgoing, weak.incoming, procedures=procedures))


class _NeverStops(Keeping):
    def may_act(self) -> bool:
        return bool(self.incarnation)


class _ActsForAnotherLife(Keeping):
    def is_for_this_life(self, incarnation: int) -> bool:
        return True


class _KeepsItsEntities(Keeping):
    def _step_down(self) -> None: ...


class _HastyGranter(Granter):
    def overdue(self, leases: Iterable[tuple[str, int]], now_ns: int) -> list[tuple[str, int]]:
        # As if it were half a term later.
        return super().overdue(leases, now_ns + self.terms.granter_ns // 2)


_DEATHS: Final = (
    Mutant("never-stops", "a server goes on when its lease has run out", MachineParts(keeping=_NeverStops)),
    Mutant(
        "acts-for-another-life",
        "a server that came back begins with what an earlier life of it was given",
        MachineParts(keeping=_ActsForAnotherLife),
    ),
    Mutant(
        "keeps-its-entities", "a server whose lease is over keeps what it has", MachineParts(keeping=_KeepsItsEntities)
    ),
    Mutant(
        "hasty-granter",
        "leases are ended before the servers that have them have stopped",
        MachineParts(granter=_HastyGranter),
    ),
)

_ALL: Final = (
    *_DEATHS,
    *map(_of_hand_overs, _MACHINES),
    Mutant("forgets-on-arrival", "how far inputs had come stays behind", MachineParts(keeps_cursors=False)),
    Mutant("goes-on-after-freezing", "an entity goes on while it is on its way", MachineParts(freezes=False)),
)

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({mutant.name: mutant for mutant in _ALL})
