"""Whether what a drain moves runs where it goes, before all of it is moved there.

In a rolling upgrade a server is drained onto those of the next release. If the world of that fails on what comes, every
entity would be stopped there, one after the other. So to a server whose world has another schema version than that of
the drained one a unit of each kind goes ahead. The others follow when the server has reported since. If it reports that
the first one failed, the whole drain stops (`homeserver.placement.balancer`), whatever the versions are.

Pure: time goes in. What is remembered is in the memory of the leader; the next one has another unit go ahead.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from batonpass.authority.placement.policy import Move, Resident

__all__ = ["TRIAL_S", "DrainTrials"]

TRIAL_S: Final = 5.0
"""What has not arrived by then is not waited for: another unit goes ahead."""
# Its server may not have heard that it is to go ahead when a census was taken so soon after.
_HEARD_S: Final = 0.5
_Key = tuple[str, str, str]
"""From which server, to which, and of which kind."""


@dataclass(slots=True)
class _Trial:
    """Those that go ahead, since when; and since when all of them are seen to have arrived, if they are."""

    at_s: float
    entities: set[str] = field(default_factory=set)
    arrived_s: float | None = None
    has_passed: bool = False


class DrainTrials:
    """Of all drains of one instance.

    Args:
        kind_of: of which kind an entity is; empty for one of another instance, which is not waited for.
        authority_of: on which server the log has it.
        reported_s: when a server reported last.
    """

    def __init__(
        self, kind_of: Callable[[str], str], authority_of: Callable[[str], str], reported_s: Callable[[str], float]
    ) -> None:
        self._kind_of: Final = kind_of
        self._authority_of: Final = authority_of
        self._reported_s: Final = reported_s
        self._trials: dict[_Key, _Trial] = {}

    def admit(
        self,
        moves: Sequence[Move],
        residents: Iterable[Resident],
        drained: Collection[str],
        are_alike: Callable[[str, str], bool],
        now_s: float,
    ) -> list[Move]:
        """Those of these moves that need not wait: all but those off the `drained` servers for which others go ahead.

        `residents` are those that were still where they are named; `are_alike` says of two servers whether their worlds
        have the same schema version. A unit goes whole or not at all.
        """
        groups = {one.entity: one.group for one in residents}
        self._look(groups, drained, now_s)
        units: dict[tuple[str, str, str], list[Move]] = defaultdict(list)
        for move in moves:
            group = groups.get(move.entity, "")
            units[move.source, group, "" if group else move.entity].append(move)
        admitted: list[Move] = []
        for unit in units.values():
            keys = {self._key(move) for move in unit if move.source in drained and self._kind_of(move.entity)}
            untried = {key for key in keys if not (are_alike(key[0], key[1]) or self._has_passed(key))}
            if untried & self._trials.keys():
                continue
            self._trials |= {key: _Trial(now_s) for key in untried}
            for move in unit:
                if (key := self._key(move)) in untried:
                    self._trials[key].entities.add(move.entity)
            admitted += unit
        return admitted

    def _key(self, move: Move) -> _Key:
        return move.source, move.target, self._kind_of(move.entity)

    def _has_passed(self, key: _Key) -> bool:
        trial = self._trials.get(key)
        return trial is not None and trial.has_passed

    def _look(self, still_there: Collection[str], drained: Collection[str], now_s: float) -> None:
        """See what has come of those that went ahead; another one does for those of which nothing came."""
        for key, trial in list(self._trials.items()):
            if key[0] not in drained:
                del self._trials[key]
                continue
            if trial.has_passed:
                continue
            if trial.arrived_s is None and all(self._authority_of(one) == key[1] for one in trial.entities):
                trial.arrived_s = now_s
            if trial.arrived_s is not None:
                trial.has_passed = self._reported_s(key[1]) > trial.arrived_s
                continue
            is_refused = now_s - trial.at_s > _HEARD_S and trial.entities <= set(still_there)
            if is_refused or now_s - trial.at_s > TRIAL_S:
                del self._trials[key]
