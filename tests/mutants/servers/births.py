"""Servers that lack one guard of how entities begin and end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures import delete as deletion
from batonpass.authority.procedures import entity as entity_procedures
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Despawn, Despawned, Spawn
from batonpass.homeserver.node.composition import Kinds
from batonpass.homeserver.transfer.deletion_notices import DeletionNotices
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.durability.creation_barrier import CreationBarrier
from batonpass.simserver.failover.spawn import EntitySpawns, SpawnRefusal
from tests.mutants.servers.groups import changed

__all__ = ["BIRTH_MUTANTS"]


class _BeginsAgain(EntitySpawns):
    """Does not look whether the entity lives here, or has lived here."""

    def _why_not(self, message: Spawn) -> SpawnRefusal | None:
        if self._holdings.get(message.entity) is not None:
            return SpawnRefusal()
        epoch, refusal = self._refused.get(message.entity, (0, SpawnRefusal()))
        return refusal if epoch >= message.epoch else None


class _ChangesItsMind(EntitySpawns):
    """Does not remember what it would not have."""

    def _begun(self, message: Spawn) -> SpawnRefusal:
        refusal = super()._begun(message)
        self._refused.clear()
        return refusal


class _TellsAtOnce(CreationBarrier):
    """Says that an entity lives as soon as it does."""

    def when_kept(self, _entity: str, _asker: str, tell: Callable[[], None]) -> None:
        tell()


class _LooksNoFurther(EntitySpawns):
    """Ends what is here, and forgets of what comes later that it has ended."""

    def despawn(self, message: Despawn, opened: OpenedMessage) -> None:
        if self._holdings.get(message.entity) is not None:
            super().despawn(message, opened)
        else:
            answer = Despawned(entity=message.entity, epoch=message.epoch)
            self._outbox.send(answer, opened.trace, opened.sender, on_path=False)


class _TellsOnce(DeletionNotices):
    """Takes for granted that a server that was told has heard."""

    async def _tell(self, entity: str) -> None:
        row: Mapping[str, Any] = self._store.farewell(entity) or {"servers": ()}
        for server in row["servers"]:
            self._heard[entity, server] = row["epoch"]


def _no_grave(_rows: Rows, _entity: str) -> None:
    return None


BIRTH_MUTANTS: Final[Sequence[tuple[str, str, ServersParts]]] = (
    (
        "names-again",
        "the name of what was deleted may be given again",
        ServersParts(procedures=changed(entity_procedures, "grave_of", _no_grave, "entity.create")),
    ),
    ("begins-again", "what has lived somewhere begins there once more", ServersParts(births=_BeginsAgain)),
    ("changes-its-mind", "a world that would not have an entity is asked again", ServersParts(births=_ChangesItsMind)),
    (
        "tells-at-once",
        "that an entity lives is said before another server has it",
        ServersParts(creation_barrier=_TellsAtOnce),
    ),
    ("looks-no-further", "what has not come yet may come after its end", ServersParts(births=_LooksNoFurther)),
    (
        "tells-once",
        "a server that is told that an entity has ended is believed to have heard",
        ServersParts(home=Kinds(deletion_notices=_TellsOnce)),
    ),
    (
        "forgets-groups",
        "of servers that may have an entity only its authority is told of its end",
        ServersParts(
            procedures=changed(
                deletion,
                "_who_may_have_it",
                lambda _rows, record: {record.authority: record.incarnation} if record.authority else {},
                "entity.delete",
            )
        ),
    ),
)
"""Name, what is missing, and the servers that lack it."""
