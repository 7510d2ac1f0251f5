"""Creating an entity: its record in the log, then its first life on the server that the record names.

A server says that it lives once it would outlive that server (`simserver.durability.creation_barrier`), and then the
log is told so, before any server or player is. An entity lost before that is created anew by a repeated request.

A player who is not answered repeats the same creation at any member, and that is one creation. The log answers with the
record that there is, and the server that the entity lives already, or once more that it refuses it. What a server would
not have is taken back, and its name is free again. The next entity of that name begins under a higher epoch, so that
nothing that is still on its way from before means it.

Creations of one moment share what a single one costs: the steps of the log (`entity.each`), the parcel to their server,
its copies and its disk, and the parcel of its answers. Each succeeds or fails by itself.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from batonpass.actors.base.clock import Bell, Clock
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.model.standing import Standing
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Spawn, Spawned
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.group_commit import Gather, GroupCommit
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["SPAWN_TIMEOUT_S", "EntityCreation", "SpawnNotTold", "SpawnUnconfirmed"]

SPAWN_TIMEOUT_S: Final = 5.0
_WHY_NOT: Final = "its server died before it had confirmed, and whether another server has a copy is being found out"
# How soon a request that waits for a server looks whether the entity was deleted meanwhile; then after twice as long.
_LOOK_S: Final = 0.25


class SpawnNotTold(Exception):
    """The record is in the log, and its server cannot be reached now."""


class SpawnUnconfirmed(Exception):
    """Whether the entity lives is not known, the text says why. To repeat the creation tells."""


@dataclass(slots=True)
class _WaitingForSpawn:
    """A request that waits for a server's word on an entity."""

    record: EntityRecord
    bell: Bell
    answer: Spawned | None = None


class EntityCreation:
    """One member's part. `post` sends a sealed message to a server (`Post.post`), `gather` is as of the ports."""

    def __init__(
        self, store: InstanceStore, post: Callable[..., Awaitable[None]], clock: Clock, gather: Gather
    ) -> None:
        self._store: Final = store
        self._log: Final = gather(GroupCommit(store, each="entity.each").submit_all)
        self._post: Final = post
        self._clock: Final = clock
        self._waiting: Final[dict[str, list[_WaitingForSpawn]]] = {}

    async def create(self, params: Mapping[str, object], **wanted: Any) -> tuple[EntityRecord, str]:
        """Create an entity, by the arguments of `entity.create`: its record, and why its server will not have it.

        Raises:
            Refused: as `InstanceStore.submit`; or the server would not have it for a reason that has a code.
            NoQuorum, OutcomeUnknown: as `InstanceStore.submit`.
            SpawnNotTold, SpawnUnconfirmed: to repeat it tells what became of it.
        """
        record = EntityRecord.from_data(await self._log.do(("entity.create", {"confirms": True, **wanted})))
        if record.fence != Fence(record.born):
            # A late repetition: it lives and has moved on. Spawning it again would set its state back to the beginning.
            if record.unconfirmed and record.standing is not Standing.SIMULATED:
                raise SpawnUnconfirmed(self._why_not(record))
            return await self._confirmed(record), ""
        if not record.unconfirmed:
            # A repetition: its server has said that it lives. To ask that again would cost as much as the first time,
            # and clients repeat themselves when servers are slow.
            return record, ""
        answer = await self._spawn(record, params)
        if not answer.reason:
            return await self._confirmed(record), ""
        await self._discard(record)
        if answer.code:
            raise Refused(Reason(answer.code), f"{record.id} is not spawned: {answer.reason}", entity=record.id)
        return record, answer.reason

    async def _spawn(self, record: EntityRecord, params: Mapping[str, object]) -> Spawned:
        """Have the authority simulate a new entity; its answer has no reason if it does, else that against it."""
        waiting = _WaitingForSpawn(record, self._clock.bell())
        self._waiting.setdefault(record.id, []).append(waiting)
        message = Spawn(
            entity=record.id,
            kind=record.kind,
            epoch=record.epoch,
            owner=record.owner,
            owner_rev=record.owner_rev,
            params=dict(params),
            incarnation=record.incarnation,
        )
        try:
            try:
                await self._post(message, Trace(f"spawn-{record.id}"[:64]), record.authority, on_path=False)
            except NOT_TOLD as error:
                raise SpawnNotTold(str(error)) from error
            await self._waited(waiting)
        finally:
            left = [one for one in self._waiting.pop(record.id) if one is not waiting]
            if left:
                self._waiting[record.id] = left
        if waiting.answer is None:
            raise SpawnUnconfirmed(f"{record.authority} did not confirm in time")
        return waiting.answer

    async def _waited(self, waiting: _WaitingForSpawn) -> None:
        """Wait for the word on it; `Refused` (`gone`) if it is deleted meanwhile."""
        until_ns = self._clock.monotonic_ns() + round(SPAWN_TIMEOUT_S * 1e9)
        # This member's copy may be behind the creation.
        was_there, look_s = False, _LOOK_S
        while waiting.answer is None:
            left_s = (until_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0:
                return
            await waiting.bell.wait(min(left_s, look_s))
            look_s *= 2
            record = self._store.entity(waiting.record.id)
            is_there = record is not None and record.born == waiting.record.born
            if was_there and not is_there and waiting.answer is None:
                self._over(waiting.record)
            was_there = is_there

    def _over(self, record: EntityRecord) -> NoReturn:
        grave = self._store.grave(record.id)
        if grave is not None and not grave.get("free"):
            text = f"{record.id} was deleted before {record.authority} had said that it lives"
            raise Refused(Reason.GONE, text, entity=record.id)
        # It ended with its server, or another member was told that this will not have it.
        raise SpawnUnconfirmed(f"{record.authority} has not said that {record.id} lives, and that name is free again")

    def _why_not(self, record: EntityRecord) -> str:
        row = self._store.recovery(record.id)
        if row is None or not row.held or row.target:
            return _WHY_NOT
        return (
            f"its server died before it had confirmed, and it waits for {row.last}, by its policy for orphans "
            f"(freeze): start that again, or remove it for good (baton server remove {row.last})"
        )

    def spawned(self, message: Spawned, sender: str) -> bool:
        """A server's word on an entity; whether a request waits for it, and it is the one that was asked."""
        is_awaited = False
        for one in self._waiting.get(message.entity, ()):
            # Not of an earlier entity of this name, which was taken back. An older server does not say of which.
            if one.record.authority == sender and message.epoch in (0, one.record.born):
                one.answer, is_awaited = message, True
                one.bell.ring()
        return is_awaited

    async def _confirmed(self, record: EntityRecord) -> EntityRecord:
        """Have the log know that it is kept, before the requester is told: from then on it is never created anew."""
        if not record.unconfirmed:
            return record
        step = "entity.confirm", {"entity": record.id, "born": record.born}
        return EntityRecord.from_data(await self._log.do(step))

    async def _discard(self, record: EntityRecord) -> None:
        """Take back the record of an entity that its first server would not spawn."""
        try:
            step = {"entity": record.id, "server": record.authority, "epoch": record.born}
            await self._log.do(("entity.discard", step))
        except Refused as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
