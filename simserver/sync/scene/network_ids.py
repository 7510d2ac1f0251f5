"""Which entity here is meant by a peer's number for an entity.

Peers that create entities at the same time give away the same ids. So a message between them names an entity by its
creator's network id and the creator's id for it. Each peer has an id of its own, which it notes in the component
Network-Entity. `@dcl/ecs` finds it by a walk over all of these for each message; here it is one look into a table.
"""

import struct
from typing import Final, NamedTuple

from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.sync.scene.codec import MAX_U32

__all__ = ["NETWORK_ENTITY", "NETWORK_PARENT", "NetworkId", "NetworkIds", "network_id_of", "network_value"]

NETWORK_ENTITY: Final = 1_075_645_054
"""The number of `core-schema::Network-Entity`."""

NETWORK_PARENT: Final = 1_420_531_287
"""The number of `core-schema::Network-Parent`."""

_VALUE: Final = struct.Struct("<qI")


class NetworkId(NamedTuple):
    """An entity, as all peers name it: the network id of its creator, and the creator's id for it."""

    network: int
    entity: int


def network_value(name: NetworkId) -> bytes:
    """The value of Network-Entity, and of Network-Parent."""
    return _VALUE.pack(name.network, name.entity)


def network_id_of(data: bytes | None) -> NetworkId | None:
    """What a value of Network-Entity says; None if it is no such value, or its network id fits no message."""
    if data is None or len(data) != _VALUE.size:
        return None
    name = NetworkId(*_VALUE.unpack(data))
    return name if 0 <= name.network <= MAX_U32 else None


class NetworkIds:
    """The entities here by their names among peers, and the names by entity.

    Args:
        max_gone: names of entities that are no more, which are remembered.
    """

    def __init__(self, max_gone: int) -> None:
        # More than one entity may bear a name, if a peer has written so: the first is meant.
        self._bearers: Final[dict[tuple[int, int], dict[int, None]]] = {}
        self._names: Final[dict[int, NetworkId]] = {}
        self._gone: Final[FifoTable[tuple[int, int], int]] = FifoTable(max_gone)

    def entity(self, name: tuple[int, int]) -> int | None:
        """The entity that is meant, which may be one that is no more; None if there never was any.

        Args:
            name: a `NetworkId`, or a plain tuple of the same.
        """
        bearers = self._bearers.get(name)
        return next(iter(bearers)) if bearers else self._gone.get(name)

    def name(self, entity: int) -> NetworkId | None:
        """The name of `entity` among peers; None if it has none."""
        return self._names.get(entity)

    def note(self, entity: int, data: bytes | None) -> None:
        """Note a new value of Network-Entity; None if it was deleted."""
        old = self._names.pop(entity, None)
        if old is not None:
            bearers = self._bearers[old]
            bearers.pop(entity, None)
            if not bearers:
                del self._bearers[old]
        name = network_id_of(data)
        if name is not None:
            self._names[entity] = name
            self._bearers.setdefault(name, {})[entity] = None

    def removed(self, entity: int) -> None:
        """Note that `entity` is no more: what is said of it is not said of a new one."""
        name = self._names.get(entity)
        self.note(entity, None)
        if name is not None and name not in self._bearers:
            self._gone[name] = entity
