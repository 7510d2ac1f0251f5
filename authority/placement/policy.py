"""Which simulation server an entity should be on: pure functions over what the servers report.

Three things move entities without a request. These are a server that is being emptied (drained), one that is hot while
others are cool, and a world that does not take them. A *policy* looks at a `View` and proposes moves; `relieve` is the
one that is used unless the configuration names another (`policy = "package.module:function"`). What a policy proposes
is not done blindly: the `authority.placement.limits.PlacementLimits` holds every policy, ours too, to minimum hold,
budget, groups and who is immovable.

Load is the part of the tick period that a server needs for its ticks. 1.0 means that it has no time left, and above it
ticks are skipped. A server is hot above `hot`, once it has been so for `hot_for_s`. A pause, of the garbage collector
or of the whole machine, is no reason to move any entity. It is relieved down to half-way between `hot` and `cool`.
After each move the target is either no higher than `cool`, or still lower than the source by `hot - cool`. Hence every
move makes the sum of the squared loads smaller. With a load that does not change there are finitely many of them, and
none is taken back. A load that wavers by less than `hot - cool` starts none.

Entities of the same affinity group interact, and move together or not at all.

Of some entities their world says that they are immovable, as long as they are in this state. They are expensive to
move, say, or in the middle of something. They stay when load is balanced, whatever that costs, and with them the part
of their group that is on the same server. Moved without them it would be parted. A drained server gives them up all the
same: its operator takes it down, and nothing may be left on it then.

The coolest server may have no room, or not know the kind. What a server would not take lately is data of the `View`:
the next-coolest is taken then. Off a drained server, who was refused by all is offered to each of them in turn.

The server with the best copy of what a dead one left resumes it, whatever its world is. And a server may be started
with another world than it had. What its world does not take (`untaken`) is stopped there. It is passed on like what is
on a drained server, each entity by itself, since that world can say nothing of it. A server that refused it lately is
not offered it again at once, so that what no server takes is offered seldom.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Final

__all__ = [
    "NO_ANCHORS",
    "Balance",
    "Move",
    "Policy",
    "Resident",
    "ServerLoad",
    "Unit",
    "View",
    "coolest",
    "emptied",
    "relieve",
    "units_of",
]

NO_ANCHORS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Balance:
    """When and how fast entities are moved for the sake of balance.

    `hot` and `cool` are parts of the tick period, `cool < hot`. Only who has reported more than `hot` for `hot_for_s`
    gives something up. An entity stays at least `min_hold_s` where it is, unless its server is drained or its world
    does not take it. At most `moves_per_s` begin in a second on average, `drain_moves_per_s` of what may not stay. A
    move back within `oscillation_s` counts as an oscillation.
    """

    hot: float = 0.75
    cool: float = 0.60
    hot_for_s: float = 1.5
    min_hold_s: float = 30.0
    moves_per_s: float = 20.0
    drain_moves_per_s: float = 2000.0
    oscillation_s: float = 120.0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, astuple(self))):
            raise ValueError("limits of placement are finite numbers")
        if not 0.0 < self.cool < self.hot:
            raise ValueError(f"cool ({self.cool}) must be above 0 and below hot ({self.hot})")
        if self.moves_per_s <= 0 or self.drain_moves_per_s <= 0:
            raise ValueError("budgets are above 0")
        if self.hot_for_s < 0 or self.min_hold_s < 0 or self.oscillation_s < 0:
            raise ValueError("times are not negative")

    @property
    def settled(self) -> float:
        """How far down a hot server is relieved."""
        return (self.hot + self.cool) / 2


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What one simulation server reported last.

    `tick_fraction` is the part of the tick period that its ticks take, with what was ordered away or to it since.
    `untaken` is how many of its entities are stopped because its world does not take them.
    """

    name: str
    tick_fraction: float
    entities: int = 0
    inputs_per_s: float = 0.0
    bytes_per_s: float = 0.0
    draining: bool = False
    untaken: int = 0


@dataclass(frozen=True, slots=True)
class Resident:
    """One entity and where it is: for how long, what it costs (a part of the tick period), and its affinity group.

    An `immovable` one leaves a server only if that is drained, or a client asks for it. One that is `untaken` is
    stopped on its server, whose world does not take it.
    """

    entity: str
    server: str
    here_s: float = 0.0
    cost: float = 0.0
    group: str = ""
    immovable: bool = False
    untaken: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees: every server that reported lately, and the residents of those that may have to give some up.

    `anchors` says of affinity groups that are under way where the part went that has left already. `refused` names
    for residents the servers that would not take them lately, each with how many seconds ago that was.
    """

    servers: tuple[ServerLoad, ...]
    residents: tuple[Resident, ...] = ()
    anchors: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    """An entity should go from one server to another."""

    entity: str
    source: str
    target: str


Policy = Callable[[View, Balance], Sequence[Move]]
"""Proposes moves; a pure function of its arguments."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What moves together: one entity, or the part of an affinity group that is on one server."""

    server: str
    group: str
    cost: float
    residents: tuple[Resident, ...]

    @property
    def here_s(self) -> float:
        """Since when all of it has been here."""
        return min(resident.here_s for resident in self.residents)

    @property
    def immovable(self) -> bool:
        """Whether one of it is, so that all of it stays: to move the others would part them."""
        return any(resident.immovable for resident in self.residents)

    @property
    def untaken(self) -> bool:
        """Whether one of it is, so that it has to go."""
        return any(resident.untaken for resident in self.residents)


def units_of(residents: Iterable[Resident]) -> list[Unit]:
    """The residents as units, the most expensive first; equals by name, so that the answer depends on nothing else."""
    parts: dict[tuple[str, str, str], list[Resident]] = defaultdict(list)
    for resident in residents:
        key = (resident.server, resident.group, "") if resident.group else (resident.server, "", resident.entity)
        parts[key].append(resident)
    units = []
    for (server, group, _), members in parts.items():
        members.sort(key=lambda resident: resident.entity)
        units.append(Unit(server, group, sum(member.cost for member in members), tuple(members)))
    units.sort(key=lambda unit: (-unit.cost, unit.residents[0].entity))
    return units


def coolest(servers: Iterable[ServerLoad]) -> str | None:
    """Where something new should go: the server with the lowest load that is not drained; None if there is none."""
    open_ones = [(_rank(one.tick_fraction, one.entities), one.name) for one in servers if not one.draining]
    return min(open_ones)[1] if open_ones else None


def relieve(view: View, balance: Balance) -> list[Move]:
    """Empty the servers that are drained, and move from hot to cool ones.

    The servers that are drained come first. Their units go to whichever server is coolest then, however hot: none may
    stay, immovable or not. Nothing is moved to a server that is drained, or that did not report. Nor is it to one that
    refused it lately, but off a drained server if all did. Off a hot server nothing is moved that is immovable.
    """
    loads = _Loads(view.servers)
    draining = {server.name for server in view.servers if server.draining}
    units = units_of(view.residents)
    moves: list[Move] = []
    for unit in units:
        if unit.server in draining:
            moves += _moves(unit, _emptied_to(unit, loads, view), loads)
    for unit in units:
        if unit.server not in draining and loads.of(unit.server) > balance.hot:
            loads.hot.add(unit.server)
        if unit.server in loads.hot and loads.of(unit.server) > balance.settled and not unit.immovable:
            moves += _moves(unit, _relieved_to(unit, loads, view, balance), loads)
    return moves


def emptied(view: View, proposed: Iterable[Move]) -> list[Move]:
    """The moves of what may not stay, on drained servers or as its server's world does not take it.

    As proposed where that can be done, the rest as in `relieve`. So no policy can stop a drain. It
    can be done if all of a unit is to go to one server, which takes entities and has not refused it lately.
    """
    loads = _Loads(view.servers)
    draining = {server.name for server in view.servers if server.draining}
    wanted = {move.entity: move for move in proposed}
    moves: list[Move] = []
    unnamed: list[Unit] = []
    for unit in units_of(view.residents):
        if unit.server in draining or unit.untaken:
            target = _proposed_for(unit, wanted, loads, view)
            moves += _moves(unit, target, loads)
            if target is None:
                unnamed.append(unit)
    for unit in unnamed:
        moves += _moves(unit, _emptied_to(unit, loads, view), loads)
    return moves


# A microsecond of a tick of 50 ms. What sleeps costs nothing now, and may wake. Of two servers with next to nothing to
# do, the one with less to do by chance would be given all of it.
_LEAST_COST: Final = 2e-5


def _rank(load: float, entities: int) -> float:
    """By which a place is found for what has to go, or is new: each entity counts, also one that takes no time."""
    return load + _LEAST_COST * entities


def _load(load: float, _entities: int) -> float:
    return load


class _Coolest:
    """The servers that are not drained, by what `key` makes of load and entities: the lowest comes first.

    In a heap: there may be many servers, and very many units.
    """

    def __init__(
        self, of: Mapping[str, tuple[float, int]], names: Iterable[str], key: Callable[[float, int], float]
    ) -> None:
        self._of: Final = of
        self._key: Final = key
        # With every load that a server has had: what is not its load any more is dropped when it comes to the top.
        self._heap = [(key(*of[name]), *of[name], name) for name in names]
        heapq.heapify(self._heap)

    def changed(self, name: str) -> None:
        """A server has another load now."""
        heapq.heappush(self._heap, (self._key(*self._of[name]), *self._of[name], name))

    def lowest(self, but: str) -> str | None:
        """The first that is not `but`."""
        aside = None
        while self._heap:
            _, load, entities, name = self._heap[0]
            if name != but and (load, entities) == self._of[name]:
                break
            entry = heapq.heappop(self._heap)
            if name == but and (load, entities) == self._of[name]:
                aside = entry
        found = self._heap[0][3] if self._heap else None
        if aside is not None:
            heapq.heappush(self._heap, aside)
        return found


class _Loads:
    """The loads as they will be after the moves so far."""

    def __init__(self, servers: Iterable[ServerLoad]) -> None:
        self._of = {server.name: (server.tick_fraction, server.entities) for server in servers}
        self._open = {server.name for server in servers if not server.draining}
        self._by_load: Final = _Coolest(self._of, self._open, _load)
        self._by_rank: Final = _Coolest(self._of, self._open, _rank)
        self.hot: set[str] = set()

    def of(self, name: str) -> float:
        """Its load; nothing for one that did not report, so that it is never thought hot."""
        return self._of.get(name, (0.0, 0))[0]

    def knows_open(self, name: str) -> bool:
        return name in self._open

    def lowest(self, but: str, refusing: Collection[str] = (), *, by_rank: bool = False) -> str | None:
        """The server with the lowest load that is not drained, not `but`, and none of those `refusing`."""
        if not refusing:
            return (self._by_rank if by_rank else self._by_load).lowest(but)
        key = _rank if by_rank else _load
        takers = [
            (key(*self._of[name]), *self._of[name], name) for name in self._open if name != but and name not in refusing
        ]
        return min(takers)[3] if takers else None

    def moved(self, unit: Unit, target: str) -> None:
        for name, sign in ((unit.server, -1), (target, 1)):
            load, entities = self._of.get(name, (0.0, 0))
            self._of[name] = load + sign * unit.cost, entities + sign * len(unit.residents)
            if name in self._open:
                self._by_load.changed(name)
                self._by_rank.changed(name)


def _refusing(unit: Unit, view: View) -> dict[str, float]:
    """Who would not take any of a unit lately, and how many seconds ago."""
    refusing: dict[str, float] = {}
    if view.refused:
        for resident in unit.residents:
            for name, ago_s in view.refused.get(resident.entity, {}).items():
                refusing[name] = min(ago_s, refusing.get(name, ago_s))
    return refusing


def _proposed_for(unit: Unit, wanted: Mapping[str, Move], loads: _Loads, view: View) -> str | None:
    """Where a unit is to go by a proposal that can be followed."""
    moves = [wanted.get(resident.entity) for resident in unit.residents]
    ends = {None if move is None else (move.source, move.target) for move in moves}
    end = ends.pop()
    if ends or end is None or end[0] != unit.server or end[1] == unit.server:
        return None
    return end[1] if loads.knows_open(end[1]) and end[1] not in _refusing(unit, view) else None


def _emptied_to(unit: Unit, loads: _Loads, view: View) -> str | None:
    """Where the others of its group went, else the coolest; if all have refused it, the one that did longest ago.

    That one only if its server is drained, so that an operator waits for it.
    """
    refusing = _refusing(unit, view)
    anchor = view.anchors.get(unit.group) if unit.group else None
    if anchor is not None and anchor != unit.server and loads.knows_open(anchor) and anchor not in refusing:
        return anchor
    target = loads.lowest(unit.server, refusing, by_rank=True)
    if target is not None or not refusing or loads.knows_open(unit.server):
        return target
    asked = [
        (-ago_s, loads.of(name), name)
        for name, ago_s in refusing.items()
        if name != unit.server and loads.knows_open(name)
    ]
    return min(asked)[2] if asked else None


def _relieved_to(unit: Unit, loads: _Loads, view: View, balance: Balance) -> str | None:
    """The coolest server that has not refused the unit, if it may take it. If it may not, no other may."""
    target = loads.lowest(unit.server, _refusing(unit, view))
    if target is None or unit.cost <= 0.0:
        return None
    after, left = loads.of(target) + unit.cost, loads.of(unit.server) - unit.cost
    fits = after <= balance.cool or after + (balance.hot - balance.cool) <= left
    return target if fits else None


def _moves(unit: Unit, target: str | None, loads: _Loads) -> list[Move]:
    if target is None:
        return []
    loads.moved(unit, target)
    return [Move(resident.entity, unit.server, target) for resident in unit.residents]
