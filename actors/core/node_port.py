"""What a system asks of what connects it to other nodes (`actors.remote`), without knowing how it does that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from batonpass.actors.core.named import Named
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from batonpass.actors.core.ref import Ref


class NamedThere(Named, ABC):
    """A ref by a name that is published on another node."""

    __slots__ = ()

    @property
    @abstractmethod
    def node(self) -> str:
        """The node."""

    @abstractmethod
    async def lookup(self, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Ref | None:
        """A ref to the actor that has the name now, if there is one. Raises as a call does."""


class NodePort(Protocol):
    """Another node, by its name."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def connected(self) -> bool:
        """Whether a connection to it is open."""

    def named(self, name: str) -> NamedThere:
        """A ref by a name that is published there, now or later."""

    async def whereis(self, name: str) -> Ref | None:
        """A ref to the actor that has this published name now, if there is one. Raises as a call does."""


class DistributionPort(Protocol):
    """What connects a system to other nodes."""

    def show(self, name: str, target: Ref | Named) -> None:
        """Let every peer reach `target` by `name`, whatever it meant before. Raises ValueError for what is no name."""

    def remote(self, node: str) -> NodePort:
        """Another node, there or not. Raises ValueError for what is no name, and for this node's own."""
