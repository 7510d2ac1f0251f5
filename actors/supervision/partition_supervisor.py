"""Many copies of one child, and a way to find the one that is responsible for a key.

As Elixir's PartitionSupervisor. The children are numbered from 0, each is restarted alone, and `via` is the address of
the child that has the key at the moment of use. Keys that are equal have the same partition on every node and in every
run.

On the one thread of a node partitions do not compute in parallel. So there is no right number of them that depends on
the machine, and none is assumed. What they are good for here: a callback that waits (`async def`) or a crash holds up
one part of the keys and not all. Each partition has a mailbox with a bound of its own. Code that was written for
partitions behaves as it would on many threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

from batonpass.actors.base.stable_hash import stable_hash
from batonpass.actors.base.steps import Steps
from batonpass.actors.core.checks import need_count
from batonpass.actors.core.children import (
    ActorSpec,
    ChildCounts,
    ChildInfo,
    ChildSpec,
    ChildType,
    SupervisorAddress,
    SupervisorError,
)
from batonpass.actors.core.named import Named
from batonpass.actors.core.process import Process
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.restart import Strategy
from batonpass.actors.core.server import Stop
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.supervisor import Child, Supervisor, SupervisorFlags

if TYPE_CHECKING:
    from batonpass.actors.core.system import System


@dataclass(frozen=True)
class PartitionSupervisorSpec(ChildSpec):
    """A partition supervisor as a child: `partitions` times the same `child`, whose own id does not matter.

    `with_arguments(arg, partition)` makes the argument of one partition from that of the `child`, an `ActorSpec` then.

    Raises `ValueError` if there is no partition, if the child has a name, which only one of them could have, or if it
    is significant.
    """

    type: ClassVar[ChildType] = "supervisor"

    child: ChildSpec = field(kw_only=False)
    partitions: int = field(kw_only=True)
    with_arguments: Callable[[Any, int], Any] | None = field(default=None, kw_only=True)
    strategy: Strategy = field(default=Strategy.ONE_FOR_ONE, kw_only=True)
    max_restarts: int = field(default=3, kw_only=True)
    window_s: float = field(default=5.0, kw_only=True)
    shutdown_s: float | None = field(default=None, kw_only=True)
    start_timeout_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        need_count(f"partitions of {self.id!r}", self.partitions, least=1)
        if not isinstance(self.child, ChildSpec):
            raise TypeError(f"{self.id!r}: child must be one ChildSpec, not {self.child!r}")
        flags = SupervisorFlags((), self.strategy, self.max_restarts, self.window_s)
        object.__setattr__(self, "strategy", flags.strategy)
        if self.child.name is not None:
            raise ValueError(f"{self.id!r}: partitions cannot share the name {self.child.name!r}; find them with `via`")
        if self.child.significant:
            raise ValueError(f"{self.id!r}: partitions cannot be significant: their supervisor has no auto_shutdown")
        if self.with_arguments is not None and not isinstance(self.child, ActorSpec):
            raise ValueError(f"{self.id!r}: with_arguments is for an ActorSpec, not a {type(self.child).__name__}")

    def start_nowait(self, system: System, parent: Process) -> Process:
        """Start the supervisor and all partitions, in the order of their numbers."""
        children = tuple(self._child(partition) for partition in range(self.partitions))
        flags = SupervisorFlags(children, self.strategy, self.max_restarts, self.window_s)
        return ServerProcess.start_nowait(system, PartitionSupervisor, flags, self.name, parent)

    def _child(self, partition: int) -> ChildSpec:
        if self.with_arguments is not None and isinstance(self.child, ActorSpec):
            return replace(self.child, id=partition, arg=self.with_arguments(self.child.arg, partition))
        return replace(self.child, id=partition)


@final
class _PartitionRoutes:
    """What a partition supervisor shows to those who look for a partition, as its `started_value`."""

    __slots__ = ("children", "count")

    def __init__(self, children: tuple[Child, ...]) -> None:
        self.children = children
        self.count = len(children)
        """How many of them keys belong to, from the first on."""


class PartitionSupervisor(Supervisor):
    """See the head of the module. Start one with a `PartitionSupervisorSpec`; talk to it with the functions below.

    `Supervisor.terminate_child` and `restart_child` work as well, with the number of the partition as id.
    """

    # Client functions

    @staticmethod
    def via(supervisor: SupervisorAddress, key: Hashable) -> Partition:
        """The address of the partition for `key`: to call, cast and send to. No partition there now: `NoProc`.

        An integer belongs to partition `abs(key) % partitions`, a ref goes by its pid, everything else by
        `stable_hash`, which says what a key may be. Raises `TypeError` for what may not.
        """
        return Partition(supervisor, key)

    @staticmethod
    def partitions(supervisor: SupervisorAddress) -> int:
        """How many partitions there are, running or not. Raises `SupervisorError`: no such supervisor."""
        routes = _routes(supervisor)
        if routes is None:
            raise SupervisorError(f"{supervisor} is not running, so it has no partitions")
        return routes.count

    @staticmethod
    async def resize(supervisor: SupervisorAddress, partitions: int) -> int:
        """Divide the keys among the first `partitions` from now on, and end the others, or start them again.

        Most keys belong to another partition then, and no state goes along. The supervisor keeps as many as it was
        started with at most, and begins with all of them after a restart. How many there were before. Raises
        `ValueError` for more, `TypeError` for no number, and what `terminate_child` and `restart_child` raise.
        """
        routes = _routes(supervisor)
        if routes is None:
            raise SupervisorError(f"{supervisor} is not running, so it has no partitions")
        need_count("partitions", partitions, least=1)
        if partitions > len(routes.children):
            raise ValueError(f"{supervisor} has {len(routes.children)} partitions at most, so not {partitions}")
        before = routes.count
        if partitions > before:
            for number in range(before, partitions):
                await Supervisor.restart_child(supervisor, number)
        routes.count = partitions
        for number in reversed(range(partitions, before)):
            await Supervisor.terminate_child(supervisor, number)
        return before

    @staticmethod
    async def which_children(supervisor: SupervisorAddress) -> list[ChildInfo]:
        """All partitions, by number."""
        return await Supervisor.which_children(supervisor)

    @staticmethod
    async def count_children(supervisor: SupervisorAddress) -> ChildCounts:
        """How many partitions there are, how many of them run, and of which type they are."""
        return await Supervisor.count_children(supervisor)

    # Callbacks

    def init(self, arg: SupervisorFlags) -> Stop[None] | Awaitable[Stop[None] | None] | None:
        """Start the partitions."""
        result = super().init(arg)
        self.ref.process.started_value = _PartitionRoutes(tuple(self._children.values()))
        return result

    def _add(self, spec: ChildSpec) -> Steps[Ref | None]:
        raise SupervisorError(f"{self.ref} has a fixed number of partitions: {spec.id!r} cannot be added")

    def _delete(self, child_id: Hashable) -> None:
        raise SupervisorError(f"{self.ref} has a fixed number of partitions: {child_id!r} cannot be deleted")


@final
class _Router:
    """Looks up the partition for one key, in place of a registry of names."""

    __slots__ = ("_hash", "_supervisor")

    def __init__(self, supervisor: SupervisorAddress, key: Hashable) -> None:
        self._supervisor = supervisor
        if isinstance(key, int):
            self._hash = abs(key)
        else:
            self._hash = key.pid if isinstance(key, Ref) else stable_hash(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Router) and self._supervisor == other._supervisor and self._hash == other._hash

    def __hash__(self) -> int:
        return hash((self._supervisor, self._hash))

    def whereis(self, _key: Hashable, /) -> Ref | None:
        """Who is responsible for the key now, if any. Raises `SupervisorError` for other kinds of supervisor."""
        routes = _routes(self._supervisor)
        return None if routes is None else routes.children[self._hash % routes.count].ref


@final
class Partition(Named):
    """The child that is responsible for a key at the moment of use; made by `PartitionSupervisor.via`."""

    __slots__ = ("supervisor",)

    def __init__(self, supervisor: SupervisorAddress, key: Hashable) -> None:
        super().__init__(_Router(supervisor, key), key)
        self.supervisor = supervisor

    def __repr__(self) -> str:
        return f"<the partition of {self.supervisor} for {self.name!r}>"


def _routes(supervisor: SupervisorAddress) -> _PartitionRoutes | None:
    ref = supervisor if isinstance(supervisor, Ref) else supervisor.ref
    if ref is None or not ref.alive:
        return None
    routes = ref.started_value
    if not isinstance(routes, _PartitionRoutes):
        raise SupervisorError(f"{ref} is no partition supervisor")
    return routes
