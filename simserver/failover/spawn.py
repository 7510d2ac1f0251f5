"""How entities begin on a server for the first time, and how they end there for good: by their home instance's word.

That one has begun is said when it would outlive this server (`simserver.durability.creation_barrier`).
"""

import logging
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from batonpass.actors.base.errors import said, traceback_of
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Despawn, Despawned, NotHere, Spawn, Spawned
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.durability.creation_barrier import CreationBarrier
from batonpass.simserver.entity.table import Holdings, StateTooLarge, WorldFailed
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.admission import Reception
from batonpass.simserver.transfer.source.departures import Departures

__all__ = ["MAX_REFUSED", "EntitySpawns", "SpawnRefusal"]

_log: Final = logging.getLogger(__name__)

# Entities that this server would not have; the oldest are forgotten first, and then may be had if they are asked again.
MAX_REFUSED: Final = 4096


class SpawnRefusal(NamedTuple):
    """Why an entity does not begin here, and the stable code of that, if it has one. Without a text, it does or did."""

    text: str = ""
    code: Literal["", "state_too_large"] = ""


class EntitySpawns:
    """One server's part. The caller that hands a message in checks who may say so.

    Args:
        fence_raised: has arrivals listen to nothing of an entity under a lower fence.
        creation_barrier: has what begins here kept before it is told of; without, it is told at once.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        reception: Reception,
        departures: Departures,
        fence_raised: Callable[[str, Fence], None],
        creation_barrier: CreationBarrier | None,
    ) -> None:
        self._holdings: Final = holdings
        self._reception: Final = reception
        self._departures: Final = departures
        self._outbox: Final = ports.outbox
        self._lease: Final = lease
        self._fence_raised: Final = fence_raised
        self._counts: Final = ports.counts
        self._creation_barrier: Final = creation_barrier
        self._refused: LruTable[str, tuple[int, SpawnRefusal]] = LruTable(MAX_REFUSED)

    def spawn(self, message: Spawn, opened: OpenedMessage) -> None:
        """The home instance has created an entity and gives it to this server to simulate first."""
        if message.incarnation and message.incarnation != self._lease.incarnation:
            self._counts["leave_of_another_life"] += 1
            return
        refusal = self._why_not(message)
        if refusal is None:
            refusal = self._begun(message)
        answer = Spawned(entity=message.entity, reason=refusal.text, epoch=message.epoch, code=refusal.code)

        def tell() -> None:
            self._outbox.send(answer, Trace(opened.trace.transfer_id), opened.sender, on_path=False)

        if refusal.text or self._creation_barrier is None:
            tell()
        else:
            self._creation_barrier.when_kept(message.entity, opened.sender, tell)

    def _why_not(self, message: Spawn) -> SpawnRefusal | None:
        """What was said before of this very spawn, empty if the entity lived; None if nothing was."""
        epoch, refusal = self._refused.get(message.entity, (0, SpawnRefusal()))
        if epoch >= message.epoch:
            # The first asker may have taken the entity back by now: every later question must get the same answer.
            return refusal
        entity, fence = message.entity, Fence(message.epoch)
        holding, gone, lived = self._holdings.get(entity), self._holdings.gone(entity), self._holdings.lived(entity)
        if holding is not None:
            if holding.fence >= fence:
                return SpawnRefusal()
            # The log has forgotten the deletion of an earlier one of this name before this server had heard of it.
            is_over = self._ended(entity, fence)
            return (
                None if is_over else self._keep(message, SpawnRefusal("an earlier entity of its name is still leaving"))
            )
        # Words of lower fences are of an earlier entity of this name, which the log has forgotten.
        if gone is not None and gone.fence >= fence:
            return SpawnRefusal() if gone.moved_to else SpawnRefusal("it has ended")
        # An entity that lived here before a restart is given back by its home instance, from a copy that is left.
        return SpawnRefusal() if lived is not None and lived >= fence else None

    def _begun(self, message: Spawn) -> SpawnRefusal:
        try:
            if self._reception.is_full():
                raise ValueError("this server has no room for another entity")
            ownership = Ownership(message.owner, message.owner_rev)
            self._holdings.spawn(message.entity, message.kind, message.params, Fence(message.epoch), ownership)
        except StateTooLarge as error:
            return self._keep(message, SpawnRefusal(str(error), "state_too_large"))
        except ValueError as error:
            return self._keep(message, SpawnRefusal(_sentence(error) or "the world would not have it"))
        except WorldFailed as error:
            # Without an answer the record would stay, of an entity that no server simulates.
            self._counts["spawn_failed"] += 1
            text = "the world failed to spawn %s, a %s\n%s"
            _log.error(text, message.entity, message.kind, traceback_of(error))
            return self._keep(message, SpawnRefusal(_sentence(error)))
        self._refused.pop(message.entity, None)
        if self._creation_barrier is not None:
            self._creation_barrier.born(message.entity, Fence(message.epoch))
        return SpawnRefusal()

    def _keep(self, message: Spawn, refusal: SpawnRefusal) -> SpawnRefusal:
        self._refused[message.entity] = (message.epoch, refusal)
        return refusal

    def despawn(self, message: Despawn, opened: OpenedMessage) -> None:
        """The entity was deleted: it ends here, and never begins under an earlier fence.

        Unless it is on its way out: then the log tells the asker, and home hears of it when it says so again.
        """
        fence = Fence(message.epoch)
        if not self._ended(message.entity, fence):
            self._counts["despawn_not_yet"] += 1
            return
        answer = Despawned(entity=message.entity, epoch=message.epoch)
        self._outbox.send(answer, Trace(opened.trace.transfer_id), opened.sender, on_path=False)

    def _ended(self, entity: str, fence: Fence) -> bool:
        """See that nothing of it is simulated here under a lower fence; whether that is so."""
        holding, gone = self._holdings.get(entity), self._holdings.gone(entity)
        if holding is not None and holding.fence < fence and self._departures.is_leaving(entity):
            return False
        self._fence_raised(entity, fence)
        if (holding is not None and holding.fence >= fence) or (gone is not None and gone.fence >= fence):
            return True
        for source in self._holdings.leave(entity, "", fence):
            self._outbox.tell_player(source, NotHere(entity=entity, epoch=fence.epoch))
        return True


def _sentence(error: Exception) -> str:
    """What an error says, as it fits a message: its text is of the world, which may have taken it from anywhere."""
    try:
        text = str(error)
    except Exception:
        text = said(error)
    return text[:200].encode(errors="replace").decode()
