"""Names of actors over nodes, which the replicated tree decides, so that one never means two (unlike OTP's `:global`).

    names = TreeNames(replica, distribution)
    distribution.publish("ledger")                   # on the node that has the actor
    mine = await names.claim("ledger")               # a holder with a fence, or `NameTaken`
    ...
    holder = await names.whereis("ledger")           # on any node that has a part in the tree
    await holder.actor(system).call(("pay", holder.fence, 5))

A name is one row of the tree: the node that holds it, in which of its lives, and under which fence. It changes hands
only by compare-and-set, and the fence rises each time, also after a release. A cut cannot make two holders, because the
side without a majority decides nothing.

A holder that is cut off does not know that its name has been taken over. So what must not obey two holders, a store
say, keeps the highest fence that it has seen (`NameFence`), and refuses what comes under a lower one. Nobody loses a
name by being silent. Who has been told that the node of a holder is lost takes the name over from exactly this holder:
`claim(name, over=holder)`.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from batonpass.actors import Named, System
from batonpass.tree.member.backend import Backend
from batonpass.tree.raft.submissions import Aborted

__all__ = ["NameFence", "NameHolder", "NameTaken", "TreeNames"]

_CHANGED: Final = {"node_not_found", "mismatching_node"}


class NodeLife(Protocol):
    """Which node this is, in which of its lives; a `Distribution` is one."""

    @property
    def node(self) -> str:
        """Its name."""

    @property
    def creation(self) -> int:
        """The number of its life."""


@final
@dataclass(frozen=True, slots=True)
class NameHolder:
    """Who holds a name: the life `creation` of `node`, under `fence`."""

    name: str
    node: str
    creation: int
    fence: int

    def actor(self, system: System) -> Named:
        """The actor of this name on the node that holds it, which may be this one."""
        here = self.node == system.name
        return system.named(self.name) if here else system.remote(self.node).named(self.name)


class NameTaken(Exception):
    """Another holds the name; `holder` says who."""

    def __init__(self, holder: NameHolder) -> None:
        self.holder = holder
        super().__init__(f"{holder.node} holds the name {holder.name!r}, under fence {holder.fence}")


@final
class NameFence:
    """The highest fence that was seen of one name."""

    def __init__(self) -> None:
        self.highest = 0

    def admits(self, fence: int) -> bool:
        """Whether what comes under this fence may be done; from then on nothing under a lower one."""
        if fence < self.highest:
            return False
        self.highest = fence
        return True


@final
class TreeNames:
    """Names below one path of a tree, as seen from one node; see the head of the module.

    All raise what `Backend.submit` and `read` do. After `OutcomeUnknown` a claim may have been made: claim again.
    """

    def __init__(self, tree: Backend, here: NodeLife, path: tuple[str, ...] = ("names",)) -> None:
        self._tree: Final = tree
        self._here: Final = here
        self._path: Final = path

    async def whereis(self, name: str) -> NameHolder | None:
        """Who holds the name now (linearizable); None if nobody does."""
        return _holder(name, await self._read(name))

    async def claim(self, name: str, *, over: NameHolder | None = None) -> NameHolder:
        """Hold the name from now on; nothing if this life of the node does already.

        Raises `NameTaken` if another does, unless that is exactly `over`. An earlier life of this node is another.
        """
        while True:
            row = await self._read(name)
            holder = _holder(name, row)
            if holder is not None and holder.node == self._here.node and holder.creation == self._here.creation:
                return holder
            if holder is not None and holder != over:
                raise NameTaken(holder)
            fence = 1 if row is None else row["fence"] + 1
            mine = NameHolder(name, self._here.node, self._here.creation, fence)
            if await self._replace(name, row, {"node": mine.node, "creation": mine.creation, "fence": fence}):
                return mine

    async def release(self, holder: NameHolder) -> bool:
        """Let the name go; False if this is not its holder (any more). Its fence is kept."""
        row = {"node": holder.node, "creation": holder.creation, "fence": holder.fence}
        return await self._replace(holder.name, row, {"node": None, "creation": 0, "fence": holder.fence})

    async def _read(self, name: str) -> Any:
        try:
            return await self._tree.read("tree.get", {"path": [*self._path, name]})
        except Aborted as error:
            if error.code in _CHANGED:
                return None
            raise

    async def _replace(self, name: str, row: Any, by: dict[str, Any]) -> bool:
        """Whether it was replaced; False if the row is another than `row` now."""
        args: dict[str, Any] = {"path": [*self._path, name], "data": by}
        try:
            if row is None:
                await self._tree.submit("tree.create", args)
            else:
                await self._tree.submit("tree.compare_and_swap", {**args, "expected": row})
        except Aborted as error:
            if error.code in _CHANGED:
                return False
            raise
        return True


def _holder(name: str, row: Any) -> NameHolder | None:
    return None if row is None or row["node"] is None else NameHolder(name, row["node"], row["creation"], row["fence"])
