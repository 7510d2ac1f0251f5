"""Which server simulates an entity: simulation servers ask their home instances, to bring messages to it."""

from batonpass.authority.errors import MessageError
from batonpass.authority.names import instance_of
from batonpass.authority.wire.messages import AuthorityRequest, AuthorityWord
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import Federation

__all__ = ["AuthorityAnswers"]


class AuthorityAnswers:
    """One member's answers."""

    def __init__(self, instance: str, store: InstanceStore, federation: Federation) -> None:
        self._instance = instance
        self._store = store
        self._federation = federation

    async def answer(self, opened: OpenedMessage) -> AuthorityWord:
        """The log's word, perhaps from another instance. Of one to which no way leads there are no entities.

        Raises:
            MessageError, PeerUnreachable, NoQuorum, OutcomeUnknown: as `Transfers.reply`.
        """
        request = opened.message
        if not isinstance(request, AuthorityRequest):
            raise MessageError(f"{request.type} is no question about an authority")
        home = instance_of(request.entity)
        if home != self._instance:
            if self._federation.hops_to(home) is None:
                return AuthorityWord(entity=request.entity, standing="unknown")
            reply, _ = await self._federation.exchange(home, request, opened.trace, on_path=False)
            if not isinstance(reply, AuthorityWord):
                raise MessageError(f"{home} answered a question about an authority with {reply.type}")
            return reply
        # Entities are asked about in dozens.
        await self._store.confirmed()
        record = self._store.entity(request.entity)
        if record is None:
            was_there = self._store.grave(request.entity) is not None
            return AuthorityWord(entity=request.entity, standing="deleted" if was_there else "unknown")
        epoch, server = record.fence.epoch, record.authority
        return AuthorityWord(entity=record.id, standing="known", server=server, epoch=epoch)
