"""Ownership: authorities ask their home instances, and say which owners they have not heard for too long."""

import logging

from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.names import instance_of
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import OwnerRequest, OwnerWord
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory, check_speaks_for
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.transfer.notices import TransferNotices, owner_word
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["OwnerAnswers"]

_log = logging.getLogger("batonpass.homeserver.transfer.owners")


class OwnerAnswers:
    """One member's answers to authorities that ask which player owns what they simulate."""

    def __init__(
        self,
        instance: str,
        store: InstanceStore,
        directory: Directory,
        federation: Federation,
        notices: TransferNotices,
    ) -> None:
        self._instance = instance
        self._store = store
        self._directory = directory
        self._federation = federation
        self._notices = notices

    async def answer(self, opened: OpenedMessage) -> OwnerWord:
        """The log's word, perhaps from another instance; a player that was silent for too long counts as gone first.

        Raises:
            MessageError, Refused, PeerUnreachable, NoQuorum, OutcomeUnknown: as `Transfers.reply`.
        """
        request = opened.message
        if not isinstance(request, OwnerRequest):
            raise MessageError(f"{request.type} is no question about an owner")
        home = instance_of(request.entity)
        if home != self._instance:
            reply, _ = await self._federation.exchange(home, request, opened.trace, on_path=False)
            if not isinstance(reply, OwnerWord):
                raise MessageError(f"{home} answered a question about an owner with {reply.type}")
            return reply
        # Entities whose owners are silent are asked about in dozens.
        await self._store.confirmed()
        record = self._store.entity(request.entity)
        if record is None:
            await self._tell_of_end(request.entity)
            raise Refused(Reason.NOT_FOUND, f"there is no entity {request.entity}", entity=request.entity)
        if request.silent_s and 0 < record.owner_timeout_s <= request.silent_s:
            record = await self._gone(request, record, opened.sender)
        return owner_word(record)

    async def _tell_of_end(self, entity: str) -> None:
        """A server that asks about an entity that has ended has not heard so: its last authority is told once more."""
        grave = self._store.grave(entity)
        if grave is None or not grave["authority"]:
            return
        try:
            await self._notices.despawn(entity, grave["authority"], grave["epoch"])
        except NOT_TOLD as error:
            _log.info("%s was not told that %s has ended: %s", grave["authority"], entity, error)

    async def _gone(self, request: OwnerRequest, record: EntityRecord, sender: str) -> EntityRecord:
        await check_speaks_for(self._directory, sender, record.authority)
        answer = await self._store.submit(
            "entity.owner_silent",
            entity=record.id,
            source=record.authority,
            owner_rev=request.owner_rev,
            silent_s=request.silent_s,
        )
        return await self.carry_out(answer)

    async def carry_out(self, answer: dict[str, object]) -> EntityRecord:
        """Tell the authority of what the log did because an owner has gone; the record before it ended, or after that.

        An authority that cannot be told asks later, and hears that there is another owner, or no such entity.
        """
        record, grave = EntityRecord.from_data(answer["record"]), answer["grave"]
        try:
            if isinstance(grave, dict):
                await self._notices.despawn(record.id, grave["authority"], grave["epoch"])
            else:
                await self._notices.tell_owner(record)
        except NOT_TOLD as error:
            _log.info("the authority of %s was not told that its owner has gone: %s", record.id, error)
        return record
