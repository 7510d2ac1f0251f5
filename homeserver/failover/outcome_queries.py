"""What a homeserver answers to simulation servers whose hand-overs did not come to an end by themselves.

A state was staged and nothing was heard since; an entity came by a chain of which the log may not know. Or the log gave
an entity to a server that has no state for it. And what it answers to other homes about the leases of its own servers.
Everything here may be asked again, of any member.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.model.records import Phase
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.foreign_custody import is_abroad
from batonpass.authority.wire.lease import MAX_LEASES, MAX_PEERS, LeaseOf
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    LeaseInquiry,
    LeaseWord,
    Message,
    Passed,
    ReportReply,
    StageInquiry,
    StageWord,
    Stranded,
)
from batonpass.homeserver.failover.foreign_custody import ForeignCustody
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.notices import TransferNotices

__all__ = ["OutcomeQueries"]

_Asked = TypeVar("_Asked", StageInquiry, Passed, Stranded)


class OutcomeQueries:
    """One member's answers. What is about entities of another instance is asked there.

    Args:
        recovering: told of entities that the log has begun to recover because of what a server said.
    """

    def __init__(
        self,
        store: InstanceStore,
        directory: Directory,
        federation: Federation,
        abroad: ForeignCustody,
        certificates: Certification,
        notices: TransferNotices,
        recovering: Callable[[Sequence[str]], None],
        instance: str,
    ) -> None:
        self._abroad: Final = abroad
        self._certificates: Final = certificates
        self._notices: Final = notices
        self._recovering: Final = recovering
        self._store: Final = store
        self._directory: Final = directory
        self._federation: Final = federation
        self._instance: Final = instance

    @property
    def answers(self) -> dict[type[Any], Callable[[OpenedMessage], Awaitable[Message]]]:
        """What is answered here, by kind."""
        return {
            StageInquiry: self._at_home(StageInquiry, self.stage_word),
            Passed: self._at_home(Passed, self.passed),
            Stranded: self._at_home(Stranded, self.stranded),
            LeaseInquiry: self.lease_word,
        }

    def _at_home(
        self, kind: type[_Asked], answer: Callable[[_Asked, str], Awaitable[Message]]
    ) -> Callable[[OpenedMessage], Awaitable[Message]]:
        """Answers what is about entities of this instance, by sender, and has the others answered by theirs."""

        async def answered(opened: OpenedMessage) -> Message:
            message = opened.message
            if not isinstance(message, kind):
                raise MessageError(f"{opened.message.type} is no inquiry")
            home = instance_of(message.entity)
            if home == self._instance:
                return await answer(message, opened.sender)
            reply, _ = await self._federation.exchange(home, message, opened.trace, on_path=False)
            return reply

        return answered

    async def stage_word(self, request: StageInquiry, _sender: str) -> StageWord:
        """A server asks what became of a state that it has staged."""
        await self._store.fresh()
        record, transfer = self._store.entity(request.entity), self._store.transfer(request.transfer_id)
        if record is not None and transfer is not None and transfer.entity == record.id:
            is_newest = (record.authority, record.fence) == (transfer.target, transfer.fence)
            if transfer.phase in (Phase.COMMITTED, Phase.DONE) and is_newest and transfer.target == request.target:
                certificate = self._certificates.commit(transfer)
                return StageWord(transfer_id=transfer.id, word="committed", certificate=certificate)
        # Frozen under the fence that the log still knows: it may come to a commit yet.
        is_open = record is not None and record.fence.epoch == request.epoch and record.fence <= request.fence
        # While no server has authority it may be the only state that is left to resume.
        is_open |= self._store.recovery(request.entity) is not None
        return StageWord(transfer_id=request.transfer_id, word="open" if is_open else "void")

    async def passed(self, message: Passed, sender: str) -> ReportReply:
        """A server simulates an entity that was passed to it."""
        await self._notices.learn_passes(message.entity, message.chain, sender)
        return ReportReply(transfer_id=message.transfer_id)

    async def stranded(self, message: Stranded, _sender: str) -> StageWord:
        """A server was given an entity and has no state to begin with."""
        args = message.model_dump(exclude={"type"})
        try:
            taken = await self._store.submit("recovery.strand", **args, source_over=await self._is_source_over(message))
        except Refused as refused:
            if refused.reason is Reason.LEASE_HELD:
                return StageWord(transfer_id=message.transfer_id, word="open")
            if refused.reason not in (Reason.TOO_LATE, Reason.NOT_FOUND, Reason.GONE):
                raise
        else:
            if taken:
                self._recovering([taken])
        return StageWord(transfer_id=message.transfer_id, word="void")

    async def _is_source_over(self, message: Stranded) -> bool:
        """Whether a source of another instance is dead, by its home; of one of this instance the log itself knows."""
        transfer = self._store.transfer(message.transfer_id)
        # One that was proposed while no server had the entity has no source.
        if transfer is None or message.never or not transfer.source or not is_abroad(message.entity, transfer.source):
            return False
        lease = (transfer.source, transfer.source_incarnation)
        return lease in await self._abroad.over(instance_of(transfer.source), [lease])

    async def lease_word(self, opened: OpenedMessage) -> LeaseWord:
        """The home of entities that servers of this instance have asks whether these are dead, and what is alive."""
        message = opened.message
        if not isinstance(message, LeaseInquiry):
            raise MessageError(f"{opened.message.type} is no question about leases")
        await self._store.confirmed()
        over, alive = [], []
        for lease in message.leases:
            known = self._store.lease(lease.server)
            if known is not None and known.has_outlived(lease.incarnation):
                over.append(lease)
        if message.who_is_alive:
            rows = [one for one in self._store.leases() if one.phase is not LeasePhase.OVER]
            alive = [LeaseOf(server=one.server, incarnation=one.incarnation) for one in rows[:MAX_PEERS]]
            away = self._store.away()[: MAX_LEASES - len(over)]
            over += [LeaseOf(server=one.server, incarnation=one.incarnation) for one in away]
        return LeaseWord(number=message.number, over=over, alive=alive)
