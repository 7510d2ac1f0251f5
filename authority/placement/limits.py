"""What holds every placement policy: minimum hold, a budget per second, groups kept together, who is immovable.

Policies may be written by users (`authority.placement.policy`). A wrong one must not be able to make entities run in
circles, or to keep the servers busy with moving them. So whatever is proposed passes through here, and what is not let
through is dropped. If it is still wanted in the next round, it will be proposed again.

Minimum hold and who is immovable count for balance only. A drained server is emptied of all, and what is stopped on a
server whose world does not take it is passed on. Moves back are counted as oscillations.

Moves that a player or a world asked for do not pass through here and are never held up. They are noted
(`PlacementLimits.noted`), because an entity that has just moved, for whatever reason, is left alone for the hold.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

from batonpass.authority.placement.policy import Balance, Move, Resident, ServerLoad, Unit, View, units_of
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_REMEMBERED", "PlacementLimits", "TokenBucket"]

V = TypeVar("V")

MAX_REMEMBERED: Final = 100_000
# Budgets are for whole entities, and a second's worth may go at once.
_BURST_S: Final = 1.0


class TokenBucket:
    """At most `per_s` tokens a second on average, one second's worth at once (RFC 2697, with entities for bytes)."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s * _BURST_S)
        self._tokens = self._most
        self._since_s: float | None = None

    def left(self, now_s: float) -> int:
        """How many tokens there are now."""
        if self._since_s is not None:
            self._tokens = min(self._most, self._tokens + max(0.0, now_s - self._since_s) * self._per_s)
        self._since_s = now_s if self._since_s is None else max(now_s, self._since_s)
        return int(self._tokens + 1e-9)

    def spend(self, count: int) -> None:
        """Take some of them; a group above a second's worth leaves a debt."""
        self._tokens -= count


class PlacementLimits:
    """Lets through which of the proposed moves may happen now; one for each leader, forgotten with it.

    `counts` is for people. It has moves let through: `moves`, `drain_moves`, and `passed_on` from where it is not
    taken. And those that were not: `held`, `immovable` (they, and their groups), `over_budget`, `nonsense` (unknown
    ends, drained targets, parts of groups). `oscillations` are moves back to where an entity was not long before.
    """

    def __init__(self, balance: Balance) -> None:
        self._balance = balance
        self._budget = TokenBucket(balance.moves_per_s)
        self._drain_budget = TokenBucket(balance.drain_moves_per_s)
        # Of each entity that moved lately: from where, and when.
        self._left: LruTable[str, tuple[str, float]] = LruTable(MAX_REMEMBERED)
        self._anchors: LruTable[str, str] = LruTable(MAX_REMEMBERED)
        self.counts: Counter[str] = Counter()

    @property
    def anchors(self) -> dict[str, str]:
        """Where groups went of which a part may still be elsewhere."""
        return dict(self._anchors)

    def admit(self, proposed: Iterable[Move], view: View, now_s: float) -> list[Move]:
        """The moves that may begin now, in the order of the proposal; groups whole."""
        servers = {server.name: server for server in view.servers}
        residents = {resident.entity: resident for resident in view.residents}
        wanted: dict[str, Move] = {}
        for move in proposed:
            if self._makes_sense(move, servers, residents) and move.entity not in wanted:
                wanted[move.entity] = move
            else:
                self.counts["nonsense"] += 1
        units = {resident.entity: unit for unit in units_of(residents.values()) for resident in unit.residents}
        admitted: list[Move] = []
        seen: set[str] = set()
        for entity in wanted:
            if entity not in seen:
                unit = units[entity]
                seen.update(resident.entity for resident in unit.residents)
                admitted += self._admit_unit(unit, wanted, draining=servers[unit.server].draining, now_s=now_s)
        return admitted

    @staticmethod
    def _makes_sense(move: Move, servers: dict[str, ServerLoad], residents: dict[str, Resident]) -> bool:
        resident, source, target = residents.get(move.entity), servers.get(move.source), servers.get(move.target)
        if resident is None or source is None or target is None:
            return False
        return resident.server == move.source and move.target != move.source and not target.draining

    def _admit_unit(self, unit: Unit, wanted: dict[str, Move], *, draining: bool, now_s: float) -> list[Move]:
        moves = [wanted[resident.entity] for resident in unit.residents if resident.entity in wanted]
        if len(moves) != len(unit.residents) or len({move.target for move in moves}) != 1:
            # A policy that tears a group apart.
            self.counts["nonsense"] += len(moves)
            return []
        must_go = draining or unit.untaken
        if not must_go and unit.immovable:
            self.counts["immovable"] += len(moves)
            return []
        if not must_go and (unit.here_s < self._balance.min_hold_s or self._is_held(unit, now_s)):
            self.counts["held"] += len(moves)
            return []
        budget = self._drain_budget if must_go else self._budget
        if budget.left(now_s) < min(len(moves), self._largest(must_go=must_go)):
            self.counts["over_budget"] += len(moves)
            return []
        budget.spend(len(moves))
        self.counts["drain_moves" if draining else "passed_on" if must_go else "moves"] += len(moves)
        for move in moves:
            self.noted(move.entity, move.source, move.target, now_s)
        if unit.group:
            self._anchors[unit.group] = moves[0].target
        return moves

    def _largest(self, *, must_go: bool) -> int:
        """What a full bucket holds: a group above it waits until the bucket is full, and not for ever."""
        per_s = self._balance.drain_moves_per_s if must_go else self._balance.moves_per_s
        return max(1, int(per_s * _BURST_S))

    def _is_held(self, unit: Unit, now_s: float) -> bool:
        for resident in unit.residents:
            left = self._left.get(resident.entity)
            if left is not None and now_s - left[1] < self._balance.min_hold_s:
                return True
        return False

    def noted(self, entity: str, source: str, target: str, now_s: float) -> None:
        """An entity moved, or is about to, for whatever reason."""
        before = self._left.get(entity)
        if before is not None and before[0] == target and now_s - before[1] < self._balance.oscillation_s:
            self.counts["oscillations"] += 1
        self._left[entity] = source, now_s

    def stayed(self, entity: str) -> None:
        """It did not move as it was about to: another may have it at once."""
        self._left.pop(entity, None)
