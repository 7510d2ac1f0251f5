"""Messages under the ids of this replica, and the same under the names that all peers of a room know."""

from collections.abc import Iterable
from typing import Any, Final

from batonpass.simserver.sync.scene.codec import MessageKind, SceneRun, write_message
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES
from batonpass.simserver.sync.scene.network_ids import NetworkIds

__all__ = ["chunked", "local_run", "names_of", "network_messages", "renamed", "without"]

_TO_LOCAL: Final = {
    int(MessageKind.PUT_NETWORK): MessageKind.PUT,
    int(MessageKind.DELETE_NETWORK): MessageKind.DELETE,
    int(MessageKind.DELETE_ENTITY_NETWORK): MessageKind.DELETE_ENTITY,
}
_TO_NETWORK: Final = {int(local): MessageKind(network) for network, local in _TO_LOCAL.items()}
# Where the network id stands in a row.
_NETWORK_AT: Final = {
    int(MessageKind.PUT_NETWORK): 3,
    int(MessageKind.DELETE_NETWORK): 3,
    int(MessageKind.DELETE_ENTITY_NETWORK): 1,
}


def without(run: SceneRun, lost: list[int]) -> SceneRun:
    """The run without the messages at the places `lost`."""
    dropped = set(lost)
    columns = [[value for at, value in enumerate(column) if at not in dropped] for column in run.columns]
    return SceneRun(run.kind, columns)


def names_of(run: SceneRun) -> list[tuple[int, int]] | None:
    """The names of the entities, as plain tuples of what a `NetworkId` has; None if the run goes by ids."""
    network_at = _NETWORK_AT.get(run.kind)
    return None if network_at is None else list(zip(run.columns[network_at], run.columns[0], strict=True))


def renamed(run: SceneRun, entities: list[Any]) -> SceneRun:
    """A run that goes by names, with these entities in place of them."""
    columns, network_at = run.columns, _NETWORK_AT[run.kind]
    return SceneRun(_TO_LOCAL[run.kind], [entities, *columns[1:network_at], *columns[network_at + 1 :]])


def local_run(run: SceneRun, known: NetworkIds) -> SceneRun:
    """The run with ids in place of names, without messages whose names were given to nothing since they came."""
    names = names_of(run)
    if names is None:
        return run
    entities = [known.entity(name) for name in names]
    lost = [at for at, entity in enumerate(entities) if entity is None]
    if lost:
        run, entities = without(run, lost), [entity for entity in entities if entity is not None]
    return renamed(run, entities)


def network_messages(run: SceneRun, known: NetworkIds) -> Iterable[bytes]:
    """The messages of a run, with the names of entities that have one in place of their ids.

    No kind of message adds to the set of an entity under its name. So what is added to one that has a name is not told:
    its id means another entity elsewhere.
    """
    network_kind = _TO_NETWORK.get(run.kind)
    by_name = network_kind is not None or run.kind == MessageKind.APPEND
    for row in run.rows:
        name = known.name(row[0]) if by_name else None
        if name is None:
            yield write_message(run.kind, row)
        elif network_kind is not None:
            at = _NETWORK_AT[network_kind]
            yield write_message(network_kind, (name.entity, *row[1:at], name.network, *row[at:]))


def chunked(messages: Iterable[bytes]) -> list[bytes]:
    """The messages in chunks of at most 12 KiB; one that is longer by itself is in none."""
    chunks: list[list[bytes]] = []
    room = 0
    for message in messages:
        if len(message) > NETWORK_CHUNK_BYTES:
            continue
        if len(message) > room:
            chunks.append([])
            room = NETWORK_CHUNK_BYTES
        chunks[-1].append(message)
        room -= len(message)
    return [b"".join(chunk) for chunk in chunks]
