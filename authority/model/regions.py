"""Which server simulates which part of space: a table of cells, split by borders, each with one simulation server.

The table is a k-d tree (Bentley, 1975). Its root is all of space, of one to three axes. A *border* cuts a cell in two
at one coordinate. What is below it is in the low half, what is at it or above in the high half. A *cell* is a leaf, and
has a server. So cells always partition space, and every position is in exactly one of them, however they are changed.

A cell is named by its way from the root. `c` is all of space, `c0` its low half, `c1` its high half, `c01` the high
half of `c0`. A cell keeps its name while others are changed.

Everything here is pure: a change gives another table, with the next revision. The row `regions` of the log has the
present one (`authority.procedures.regions`).
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.names import BadName, check_name
from batonpass.tree.data.data import encode

__all__ = [
    "DEFAULT_HOLD_S",
    "MAX_AXES",
    "MAX_CELLS",
    "MAX_CELL_CHARS",
    "MAX_HOLD_S",
    "ROOT_CELL",
    "Border",
    "RegionCell",
    "RegionTable",
    "divided",
    "is_cell_name",
]

MAX_AXES: Final = 3
MAX_CELLS: Final = 1024
MAX_DEPTH: Final = 30
"""Borders between the root and a cell."""
MAX_CELL_CHARS: Final = 1 + MAX_DEPTH
ROOT_CELL: Final = "c"
"""The name of all of space; those of cells begin with it."""
DEFAULT_HOLD_S: Final = 1.0
MAX_HOLD_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Border:
    """A cut at the coordinate `at` of an axis, with what is on its two sides."""

    axis: int
    at: float
    low: "Border | str"
    high: "Border | str"


_Node = Border | str
"""A border, or the server of a cell."""


@dataclass(frozen=True, slots=True)
class RegionCell:
    """A cell: its name, its server, and the box from `low` (inclusive) to `high` (exclusive), infinite at the rim."""

    name: str
    server: str
    low: tuple[float, ...]
    high: tuple[float, ...]

    def gap(self, other: "RegionCell") -> float:
        """The least distance of a position in this box from one in the other; 0 if they touch."""
        sides = zip(self.low, self.high, other.low, other.high, strict=True)
        return math.hypot(*(max(0.0, low - its_high, its_low - high) for low, high, its_low, its_high in sides))


def is_cell_name(name: str) -> bool:
    """Whether cells can have this name."""
    return name[:1] == ROOT_CELL and len(name) <= MAX_CELL_CHARS and set(name[1:]) <= {"0", "1"}


@dataclass(frozen=True)
class RegionTable:
    """The cells of space.

    Args:
        revision: counts the changes of the row, from 1.
        axes: how many axes space has. Further numbers of a position are ignored; one of fewer is nowhere.
        root: the borders and servers.
        margin: an entity leaves its server only when it is farther than this from all cells of that.
        hold_s: how long an entity stays on a server at least, before the table sends it on.
    """

    revision: int
    axes: int
    root: _Node
    margin: float = 0.0
    hold_s: float = DEFAULT_HOLD_S

    # --- where something is ----------------------------------------------------------------------------------------

    def server_at(self, position: Sequence[float]) -> str:
        """The server of the cell that a position of at least `axes` finite numbers is in."""
        node = self.root
        while not isinstance(node, str):
            node = node.low if position[node.axis] < node.at else node.high
        return node

    def cell_at(self, position: Sequence[float]) -> str:
        """The name of the cell that a position of at least `axes` finite numbers is in."""
        node, name = self.root, ROOT_CELL
        while isinstance(node, Border):
            is_low = position[node.axis] < node.at
            node, name = (node.low, f"{name}0") if is_low else (node.high, f"{name}1")
        return name

    def servers_within(self, position: Sequence[float], distance: float) -> set[str]:
        """The servers that have a cell no farther than `distance` from a position; that of its own cell among them."""
        found: set[str] = set()
        left: list[tuple[_Node, tuple[float, ...]]] = [(self.root, (0.0,) * self.axes)]
        while left:
            node, gaps = left.pop()
            if isinstance(node, str):
                found.add(node)
                continue
            along, at = position[node.axis], node.at
            near, far = (node.low, node.high) if along < at else (node.high, node.low)
            left.append((near, gaps))
            beyond = (*gaps[: node.axis], max(gaps[node.axis], abs(at - along)), *gaps[node.axis + 1 :])
            if math.hypot(*beyond) <= distance:
                left.append((far, beyond))
        return found

    def bordering(self, server: str, distance: float) -> set[str]:
        """The other servers that have a cell no farther than `distance` from a cell of this one."""
        cells = list(self.cells)
        own = [cell for cell in cells if cell.server == server]
        return {
            cell.server for cell in cells if cell.server != server and any(mine.gap(cell) <= distance for mine in own)
        }

    def is_in(self, position: Sequence[float]) -> bool:
        """Whether a position is in this space: it has a finite number for each axis."""
        return len(position) >= self.axes and all(map(math.isfinite, position[: self.axes]))

    def wanted(self, position: Sequence[float], here: str) -> str | None:
        """The server to which an entity at this position has to go from `here`, None if it stays.

        It stays within the margin of a cell of `here`, and if its position has too few numbers, or none that is finite.
        """
        if not self.is_in(position):
            return None
        server = self.server_at(position)
        if server == here or (self.margin and here in self.servers_within(position, self.margin)):
            return None
        return server

    @cached_property
    def cells(self) -> tuple[RegionCell, ...]:
        """All cells, in the order of their names."""
        return tuple(self._cells())

    def _cells(self) -> Iterator[RegionCell]:
        left = [(self.root, ROOT_CELL, (-math.inf,) * self.axes, (math.inf,) * self.axes)]
        while left:
            node, name, low, high = left.pop()
            if isinstance(node, str):
                yield RegionCell(name, node, low, high)
                continue
            axis, at = node.axis, (node.at,)
            left.append((node.high, f"{name}1", (*low[:axis], *at, *low[axis + 1 :]), high))
            left.append((node.low, f"{name}0", low, (*high[:axis], *at, *high[axis + 1 :])))

    @cached_property
    def servers(self) -> frozenset[str]:
        """Who has cells."""
        return frozenset(cell.server for cell in self.cells)

    def cell(self, name: str) -> RegionCell:
        """The cell of this name. Raises `Refused` (`not_found`)."""
        found = next((cell for cell in self.cells if cell.name == name), None)
        if found is None:
            raise Refused(Reason.NOT_FOUND, f"there is no cell {name!r:.60}", cell=name[:MAX_CELL_CHARS])
        return found

    # --- changes ---------------------------------------------------------------------------------------------------

    def split(
        self, name: str, axis: int, at: float, low_server: str | None = None, high_server: str | None = None
    ) -> "RegionTable":
        """Cut a cell in two; a half for which no server is named keeps that of the cell.

        Raises:
            Refused: `not_found`, `full`, or `outside_cell` if the border would not be within the cell.
        """
        cell = self.cell(name)
        if not 0 <= axis < self.axes or not math.isfinite(at) or not cell.low[axis] < at < cell.high[axis]:
            text = f"a border of {name} has an axis from 0 to {self.axes - 1} and is within the cell; {at} is not"
            raise Refused(Reason.OUTSIDE_CELL, text, cell=name)
        if len(self.cells) >= MAX_CELLS or len(name) >= MAX_CELL_CHARS:
            text = f"there are at most {MAX_CELLS} cells, with at most {MAX_DEPTH} borders around each"
            raise Refused(Reason.FULL, text, limit=MAX_CELLS)
        border = Border(axis, float(at), low_server or cell.server, high_server or cell.server)
        return self._changed(name, lambda _: border)

    def merge(self, name: str, server: str | None = None) -> "RegionTable":
        """Make one cell of the two halves of `name`, which are cells; of the low one's server, unless one is named.

        Raises:
            Refused: `not_found`, if they are not two cells.
        """
        low, high = self.cell(f"{name}0"), self.cell(f"{name}1")
        return self._changed(high.name[:-1], lambda _: server or low.server)

    def move(self, moves: Mapping[str, str]) -> "RegionTable":
        """Give cells to servers, all in one revision.

        Raises:
            Refused: `not_found`.
        """
        changed = self
        for name, server in moves.items():
            self.cell(name)
            changed = changed._changed(name, lambda _, server=server: server)  # type: ignore[misc]
        return replace(changed, revision=self.revision + 1)

    def _changed(self, name: str, change: Callable[[_Node], _Node]) -> "RegionTable":
        return replace(self, revision=self.revision + 1, root=_exchanged(self.root, name[1:], change))

    # --- as data ---------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str | list[float]]:
        """The borders (`[axis, at]`) and the servers of cells, each border before its low and then its high half."""
        found: list[str | list[float]] = []
        left: list[_Node] = [self.root]
        while left:
            node = left.pop()
            if isinstance(node, str):
                found.append(node)
            else:
                found.append([node.axis, node.at])
                left += [node.high, node.low]
        return found

    def to_data(self) -> dict[str, Any]:
        """As plain data for the tree and for messages."""
        return {
            "revision": self.revision,
            "axes": self.axes,
            "margin": self.margin,
            "hold_s": self.hold_s,
            "nodes": self.nodes,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` wrote.

        Raises:
            ValueError: it is no table; the sentence says why.
        """
        axes, margin, hold_s = data["axes"], data["margin"], data["hold_s"]
        if type(axes) is not int or not 1 <= axes <= MAX_AXES:
            raise ValueError(f"space has 1 to {MAX_AXES} axes, not {axes!r:.40}")
        if not (math.isfinite(margin) and margin >= 0):
            raise ValueError(f"a margin is a finite number from 0, not {margin!r:.40}")
        if not 0 <= hold_s <= MAX_HOLD_S:
            raise ValueError(f"entities are held for 0 to {MAX_HOLD_S:g} s, not {hold_s!r:.40}")
        if type(data["revision"]) is not int or data["revision"] < 1:
            raise ValueError(f"a revision is a whole number from 1, not {data['revision']!r:.40}")
        table = cls(data["revision"], axes, _root_of(data["nodes"]), float(margin), float(hold_s))
        for cell in table.cells:
            if not all(low < high for low, high in zip(cell.low, cell.high, strict=True)):
                raise ValueError(f"a border is outside of the cell that it cuts: {cell.name} is empty")
        return table

    @cached_property
    def digest(self) -> int:
        """A number of 63 bits by which this very table is recognised, never 0."""
        return int.from_bytes(hashlib.sha256(encode(self.to_data())).digest()[:8], "big") >> 1 or 1


def _exchanged(node: _Node, way: str, change: Callable[[_Node], _Node]) -> _Node:
    if not way or isinstance(node, str):
        return change(node)
    if way[0] == "0":
        return replace(node, low=_exchanged(node.low, way[1:], change))
    return replace(node, high=_exchanged(node.high, way[1:], change))


def _root_of(nodes: Sequence[Any]) -> _Node:
    """The tree whose borders and servers stand in this order. Raises `ValueError`."""
    if len(nodes) > 2 * MAX_CELLS - 1:
        raise ValueError(f"there are at most {MAX_CELLS} cells")
    done: list[_Node] = []
    # From the end, each border finds its two halves done: the low one last.
    for node in reversed(nodes):
        if isinstance(node, str):
            try:
                done.append(check_name(node))
            except BadName as error:
                raise ValueError(str(error)) from error
        elif len(done) < 2:
            raise ValueError("a border has no cell on one of its sides")
        else:
            done.append(_border(node, done.pop(), done.pop()))
    if len(done) != 1:
        raise ValueError(f"{len(done)} cells without a border between them are no space")
    if _depth(done[0]) > MAX_DEPTH:
        raise ValueError(f"a cell has at most {MAX_DEPTH} borders around it")
    return done[0]


def _border(said: Any, low: _Node, high: _Node) -> Border:
    if not isinstance(said, list | tuple) or len(said) != 2:
        raise ValueError(f"a border is an axis and a coordinate, not {said!r:.60}")
    axis, at = said
    if axis not in range(MAX_AXES) or isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
        raise ValueError(f"a border is an axis and a finite coordinate, not {said!r:.60}")
    return Border(int(axis), float(at), low, high)


def _depth(node: _Node) -> int:
    deepest, left = 0, [(node, 0)]
    while left:
        one, depth = left.pop()
        deepest = max(deepest, depth)
        if isinstance(one, Border):
            left += [(one.low, depth + 1), (one.high, depth + 1)]
    return deepest


def divided(servers: Sequence[str], low: Sequence[float], high: Sequence[float]) -> _Node:
    """The borders by which each of these servers gets as large a part of a box as the others; the rim is infinite.

    The longest side is cut first, and between as many servers as there are on each side.

    Raises:
        ValueError: there is no server, or the box has no room for these.
    """
    if not servers:
        raise ValueError("name one server or more")
    if len(servers) > MAX_CELLS:
        raise ValueError(f"there are at most {MAX_CELLS} cells")
    if len(servers) == 1:
        return servers[0]
    if not low or len(low) != len(high):
        raise ValueError("to share space among several servers takes the two corners of a box")
    sides = [end - begin for begin, end in zip(low, high, strict=True)]
    axis = sides.index(max(sides))
    half = len(servers) // 2
    at = low[axis] + sides[axis] * half / len(servers)
    if not (math.isfinite(at) and low[axis] < at < high[axis]):
        raise ValueError("the corners of the box have to be finite, and the second one above the first")
    below, above = [*high[:axis], at, *high[axis + 1 :]], [*low[:axis], at, *low[axis + 1 :]]
    return Border(axis, at, divided(servers[:half], low, below), divided(servers[half:], above, high))
