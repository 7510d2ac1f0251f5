"""Which servers would not take what drain or balance ordered, so that it is ordered elsewhere for a while.

An order is a message without an answer. A source that asks the target for room, and is refused, simulates the entity as
before and puts nothing into the log. So that an order came to nothing is learned from the next census: the entity is
still there, and not on its way. If it had been frozen for it, the log has the reason.

What is remembered follows from that. A target without room takes no entity, one that does not know the kind takes none
of the kind. If no reason is known and none of the kind that was ordered there at once has left, the same is supposed,
until one of them arrives. Otherwise only this entity is not ordered there again. Each for `REFUSED_S`: then the target
is tried again, because there may be room by then, or a new release.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from batonpass.authority.errors import Reason
from batonpass.authority.placement.policy import Resident
from batonpass.authority.wire.placement import MoveItem
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_REMEMBERED", "REFUSED_S", "Refusals"]

REFUSED_S: Final = 10.0
MAX_REMEMBERED: Final = 65_536
# An entity that is in the census again so soon after the order was declined, and not frozen. A server leaves an entity
# alone for two seconds or longer that it had frozen in vain; and that may have been for a reason of its own.
_PROMPT_S: Final = 1.5
# What has not come to anything by then is not known to have been refused.
_OPEN_S: Final = 60.0
# Before a kind: those of it whose own servers do not take them. No kind begins so.
_UNTAKEN: Final = "\0"
_Targets = dict[str, tuple[float, float]]
"""Of each target when it refused, and until when that counts."""


@dataclass(slots=True)
class _Batch:
    """What was ordered to one target at once, of which none has been seen to be still where it was: `gone`."""

    target: str
    at_s: float
    lasts_s: float
    gone: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Order:
    transfer_id: str
    source: str
    batch: _Batch


class _Table:
    """Who or what was refused by which targets lately; what was refused longest ago is forgotten first."""

    def __init__(self) -> None:
        self._rows: LruTable[str, _Targets] = LruTable(MAX_REMEMBERED)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def note(self, name: str, target: str, now_s: float, lasts_s: float) -> None:
        self._rows.setdefault(name, {})[target] = now_s, now_s + lasts_s
        self._rows.move_to_end(name)

    def forget_all_of(self, target: str) -> None:
        for name in [name for name, row in self._rows.items() if target in row]:
            self.forget(name, target)

    def forget(self, name: str, target: str) -> None:
        row = self._rows.get(name, {})
        row.pop(target, None)
        if not row:
            self._rows.pop(name, None)

    def refused_by(self, name: str, now_s: float) -> dict[str, float]:
        """The targets by which this was refused, and how long ago."""
        row = self._rows.get(name)
        if row is None:
            return {}
        for target in [target for target, (_, until_s) in row.items() if now_s >= until_s]:
            self.forget(name, target)
        return {target: now_s - at_s for target, (at_s, _) in row.items()}


class Refusals:
    """What came of the orders of one leader, forgotten with it.

    `kind_of` says of which kind an entity is, `""` if that is not known; `reason_of` why a transfer is refused by the
    log: None if it knows none of this id, `""` if it is not refused.
    """

    def __init__(self, kind_of: Callable[[str], str], reason_of: Callable[[str], str | None]) -> None:
        self._kind_of: Final = kind_of
        self._reason_of: Final = reason_of
        self._orders: LruTable[str, _Order] = LruTable(MAX_REMEMBERED)
        self._of_entities: Final = _Table()
        self._of_kinds: Final = _Table()
        self._of_all: Final = _Table()

    def ordered(self, source: str, items: Iterable[MoveItem], now_s: float, hold_s: float) -> None:
        """A source is told to hand these over; they are not ordered again for `hold_s`."""
        batches: dict[str, _Batch] = {}
        for item in items:
            batch = batches.setdefault(item.target, _Batch(item.target, now_s, hold_s + REFUSED_S))
            batch.gone.add(item.entity)
            self._orders[item.entity] = _Order(item.transfer_id, source, batch)
        while self._orders and self._is_old(now_s):
            self._orders.popitem(last=False)

    def _is_old(self, now_s: float) -> bool:
        return now_s - next(iter(self._orders.values())).batch.at_s > _OPEN_S

    def still_there(self, residents: Iterable[Resident], asked_s: float, now_s: float) -> list[str]:
        """These are where they were and not on their way, as a census says that was asked for at `asked_s`.

        Returns who of them was refused.
        """
        refused: list[str] = []
        unexplained: dict[int, tuple[_Batch, list[Resident]]] = {}
        for resident in residents:
            order = self._orders.get(resident.entity)
            if order is None or order.source != resident.server or order.batch.at_s >= asked_s:
                continue
            del self._orders[resident.entity]
            batch, reason = order.batch, self._reason_of(order.transfer_id)
            if reason == "":
                continue
            refused.append(resident.entity)
            batch.gone.discard(resident.entity)
            self._of_entities.note(resident.entity, batch.target, now_s, batch.lasts_s)
            if reason == Reason.CAPACITY:
                self._of_all.note("", batch.target, now_s, REFUSED_S)
            elif reason == Reason.INCOMPATIBLE:
                self._note_kind(self._sort_of(resident), batch.target, now_s)
            elif reason is None and asked_s - batch.at_s <= _PROMPT_S:
                unexplained.setdefault(id(batch), (batch, []))[1].append(resident)
        for batch, stayed in unexplained.values():
            kinds = {self._kind_of(entity) for entity in batch.gone}
            taken = kinds | {_UNTAKEN + kind for kind in kinds}
            for kind in {self._sort_of(resident) for resident in stayed} - taken:
                self._note_kind(kind, batch.target, now_s)
        return refused

    def _sort_of(self, resident: Resident) -> str:
        """Its kind; what its own server does not take is of a form of its own, which says nothing of others."""
        kind = self._kind_of(resident.entity)
        return _UNTAKEN + kind if kind and resident.untaken else kind

    def _note_kind(self, kind: str, target: str, now_s: float) -> None:
        if kind:
            self._of_kinds.note(kind, target, now_s, REFUSED_S)

    def arrived(self, entity: str, target: str) -> None:
        """A target has taken one: it has room, and knows the kind."""
        self._of_entities.forget(entity, target)
        self._of_all.forget("", target)
        if self._of_kinds and (kind := self._kind_of(entity)):
            self._of_kinds.forget(kind, target)
            self._of_kinds.forget(_UNTAKEN + kind, target)

    def opened(self, target: str) -> None:
        """A target is drained no more: whatever it refused may have been for that, also if it shows only now."""
        for table in (self._of_entities, self._of_kinds, self._of_all):
            table.forget_all_of(target)
        for entity in [entity for entity, order in self._orders.items() if order.batch.target == target]:
            del self._orders[entity]

    def of(self, residents: Iterable[Resident], now_s: float) -> Mapping[str, Mapping[str, float]]:
        """Which targets refused these lately, and how many seconds ago."""
        if not (self._of_entities or self._of_kinds or self._of_all):
            return MappingProxyType({})
        by_all = self._of_all.refused_by("", now_s)
        found: dict[str, Mapping[str, float]] = {}
        for resident in residents:
            row = dict(by_all)
            tables = [self._of_entities.refused_by(resident.entity, now_s)]
            if self._of_kinds:
                tables.append(self._of_kinds.refused_by(self._sort_of(resident), now_s))
            for table in tables:
                for target, ago_s in table.items():
                    row[target] = min(ago_s, row.get(target, ago_s))
            if row:
                found[resident.entity] = MappingProxyType(row)
        return MappingProxyType(found)
