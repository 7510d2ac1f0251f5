"""Timelines of many parts: a part that changes concerns those that read it, and not those that read another one."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from batonpass.simserver.sync.timeline.data import DataTimeline, FoldedTimeline, TimelineChange
from batonpass.simserver.sync.timeline.events import Accessor
from batonpass.simserver.sync.timeline.sameness import ABSENT
from batonpass.simserver.sync.timeline.times import END_OF_TIME, ExtendedTime

__all__ = ["GridTimeline", "OrderedSetTimeline", "order_of"]


class GridTimeline(DataTimeline):
    """Cells by whole-number coordinates, of any number of dimensions; those that were never written have the default.

    An event that looks at all cells around one of them would be recorded at each of these. `around` records it once, in
    the middle, and a cell that changes tells the middles in its reach. This is the invalidation by hand of TimeSteward;
    the auditor checks it like all else.

    Class attributes to override: `default_value`, `reach` (how far `around` looks), `type_id`.
    """

    __slots__ = ("_cells", "_over", "_watches")
    type_id = 0x6B3D_E8A1_0F75_924C
    default_value: ClassVar[Any] = 0
    reach: ClassVar[int] = 0

    def __init__(self, id: int, default: Any = ABSENT, key: Any = None) -> None:
        super().__init__(id, default, key)
        self._cells: Final[dict[tuple[int, ...], DataTimeline]] = {}
        # Somebody may still hold a cell that was forgotten.
        self._over: Final[WeakValueDictionary[tuple[int, ...], DataTimeline]] = WeakValueDictionary()
        self._watches: Final[dict[tuple[int, ...], DataTimeline]] = {}

    def at(self, *place: int) -> DataTimeline:
        """Return the cell at a place: a timeline, to be read and written as any other."""
        cell = self._cells.get(place)
        if cell is None:
            place = _one_name(place)
            over = self._over.pop(place, None)
            cell = self._cells[place] = _GridCell(self, place) if over is None else over
        return cell

    def around(self, now: Accessor, *place: int) -> tuple[Any, ...]:
        """Return the values of all cells at most `reach` away in each dimension, row by row, with one dependency."""
        watch = self._watches.get(place)
        if watch is None:
            watch = self._watches[place] = DataTimeline(self.id, key=("around", *place))
        now.depend(watch)
        return tuple([now.peek(self.at(*near)) for near in self.near(place)])

    def near(self, place: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Give the places in reach of a place, in order."""
        steps = range(-self.reach, self.reach + 1)
        return (
            tuple([at + step for at, step in zip(place, by, strict=True)]) for by in product(steps, repeat=len(place))
        )

    def watches_near(self, place: tuple[int, ...]) -> Iterator[DataTimeline]:
        """Give those who look around a place in whose reach this one is."""
        if self._watches:
            for near in self.near(place):
                if (watch := self._watches.get(near)) is not None:
                    yield watch

    def part(self, key: Any) -> DataTimeline:
        """As of `DataTimeline`: the cell of a place."""
        return self if key is None else self.at(*key)

    def parts(self) -> Iterable[DataTimeline]:
        """As of `DataTimeline`."""
        return (self, *self._cells.values(), *self._watches.values())

    def forget_before(self, time: Any) -> None:
        """As of `DataTimeline`; cells that were never written are made again when they are asked for."""
        super().forget_before(time)
        for place in [place for place, cell in self._cells.items() if cell.is_untouched()]:
            self._over[place] = self._cells.pop(place)
        for place in [place for place, watch in self._watches.items() if watch.is_untouched()]:
            del self._watches[place]


class _GridCell(DataTimeline):
    __slots__ = ("_grid",)
    watched = True

    def __init__(self, grid: GridTimeline, place: tuple[int, ...]) -> None:
        super().__init__(grid.id, grid.default_value, place)
        self._grid: Final = grid

    def put(self, time: ExtendedTime, operation: Any) -> TimelineChange | None:
        former, is_last = self.values[-1], self.times[-1] < time
        change = super().put(time, operation)
        return (END_OF_TIME, former, operation) if is_last else change

    def dependents(self) -> Iterable[DataTimeline]:
        return (self, *self._grid.watches_near(self.key))


class OrderedSetTimeline(FoldedTimeline):
    """Members in an order that all machines share. Asking for one member does not depend on the others.

    Members are integers (`True` is 1), texts, bytes, timelines, and tuples of these. Its value is a tuple of them,
    which is copied by each change: it is for up to some thousands. Make it with `()`.
    """

    __slots__ = ("_members", "_over")
    type_id = 0x31C9_7A54_E60B_8FD2

    def __init__(self, id: int, default: Any = ABSENT, key: Any = None) -> None:
        super().__init__(id, default, key)
        self._members: Final[dict[Any, DataTimeline]] = {}
        self._over: Final[WeakValueDictionary[Any, DataTimeline]] = WeakValueDictionary()

    def add(self, now: Accessor, member: Any) -> None:
        """Have a member in it from now on."""
        now.write(self, ((member, True),))
        now.write(self.part(member), True)

    def discard(self, now: Accessor, member: Any) -> None:
        """Have a member in it no longer."""
        now.write(self, ((member, False),))
        now.write(self.part(member), False)

    def has(self, now: Accessor, member: Any) -> bool:
        """Whether a member is in it."""
        return bool(now.read(self.part(member)))

    def members(self, now: Accessor) -> tuple[Any, ...]:
        """Return all members in their order."""
        members: tuple[Any, ...] = now.read(self)
        return members

    def apply(self, before: Any, operation: Any) -> Any:
        """As of `FoldedTimeline`: additions and removals, one after the other."""
        members = list(before)
        for member, is_in in operation:
            order = order_of(member)
            at = bisect_left(members, order, key=order_of)
            if (at < len(members) and order_of(members[at]) == order) is not is_in:
                members[at : at if is_in else at + 1] = [_one_name(member)] if is_in else []
        return tuple(members)

    def joined(self, former: Any, operation: Any) -> Any:
        """As of `FoldedTimeline`."""
        return (*former, *operation)

    def part(self, key: Any) -> DataTimeline:
        """As of `DataTimeline`: whether a member is in it."""
        if key is None:
            return self
        # Not by the member itself: another copy of a timeline is the same member.
        order = order_of(key)
        part = self._members.get(order)
        if part is None:
            over = self._over.pop(order, None)
            part = self._members[order] = (
                DataTimeline(self.id, default=False, key=_one_name(key)) if over is None else over
            )
        return part

    def parts(self) -> Iterable[DataTimeline]:
        """As of `DataTimeline`."""
        return (self, *self._members.values())

    def forget_before(self, time: Any) -> None:
        """As of `DataTimeline`."""
        super().forget_before(time)
        for order in [order for order, part in self._members.items() if part.is_untouched()]:
            self._over[order] = self._members.pop(order)


def _one_name(key: Any) -> Any:
    """Return a member, or a place, as it is saved: `True` is 1 in all orders, so it is saved as 1."""
    if isinstance(key, bool):
        return int(key)
    return tuple([_one_name(part) for part in key]) if isinstance(key, tuple) else key


def order_of(value: Any) -> tuple[Any, ...]:
    """Return what a member of a set, or a place in a timeline, is sorted by: the same on all machines.

    Raises:
        TypeError: it has no such order.
    """
    if isinstance(value, int):
        return (0, int(value))
    if isinstance(value, str):
        return (1, value)
    if isinstance(value, bytes):
        return (2, value)
    if isinstance(value, DataTimeline):
        return (3, value.id) if value.key is None else (3, value.id, order_of(value.key))
    if isinstance(value, tuple):
        return (4, tuple([order_of(part) for part in value]))
    raise TypeError(f"{value!r} has no order on all machines: give integers, texts, bytes, timelines, or tuples")
