"""What a homeserver tells authorities unasked: who owns an entity, where it may be passed, that it has ended.

And how the log learns of what was passed on directly. Nothing here is decided: what could not be told is told again.
"""

import logging
from collections.abc import Sequence
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, TransferRecord
from batonpass.authority.trust.certificates import token_hash
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Delegation, Despawn, OwnerWord
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.certificates import CertificateChains, Certification
from batonpass.homeserver.transfer.parcels import NOT_TOLD, Post

__all__ = ["TransferNotices", "owner_word"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")


def owner_word(record: EntityRecord) -> OwnerWord:
    """The owner of an entity, for its authority."""
    return OwnerWord(
        entity=record.id,
        owner=record.owner,
        owner_rev=record.owner_rev,
        timeout_s=record.owner_timeout_s,
        stands_still=record.stands_still,
    )


class TransferNotices:
    """One member's part."""

    def __init__(
        self, store: InstanceStore, post: Post, certificates: Certification, chains: CertificateChains
    ) -> None:
        self._store: Final = store
        self._post: Final = post
        self._certificates: Final = certificates
        self._chains: Final = chains

    # --- owners ----------------------------------------------------------------------------------------------------

    def knows_of_owner(self, record: EntityRecord, owner_rev: int, chain: Sequence[str]) -> bool:
        """Whether its authority knows of its owner by the certificate of the log, or by the chain by which it came.

        Word of a later one was sent to the authority that the log named then: of direct passes it learns afterwards.
        """
        return record.owner_rev <= (min(owner_rev, self._certificates.owner_rev_of(chain)) if chain else owner_rev)

    async def tell_of_owner_since(self, transfer: TransferRecord, chain: Sequence[str]) -> None:
        """Tell the new authority, which came to it by this chain, of an owner of which that may not know."""
        record = self._store.entity(transfer.entity)
        if record is None or not record.authority or self.knows_of_owner(record, transfer.owner_rev, chain):
            return
        try:
            await self.tell_owner(record)
        except NOT_TOLD as error:
            _log.info("the authority of %s was not told its owner: %s", record.id, error)

    async def tell_owner(self, record: EntityRecord) -> None:
        """Tell the authority of an entity who owns it now.

        Raises:
            NOT_TOLD: it cannot be told now; it asks when the new owner gives its first input.
        """
        trace = Trace(f"owner-{record.owner_rev:08d}")
        await self._post.post(owner_word(record), trace, record.authority, on_path=False)

    # --- delegations -----------------------------------------------------------------------------------------------

    async def deliver_delegation(self, record: EntityRecord, replaces: str = "") -> None:
        """Hand the grant of a delegated entity to its holder; see `Certification.grant`.

        Raises:
            NOT_TOLD: it cannot be told now; the caller may delegate the entity again.
        """
        message = Delegation(entity=record.id, grant=self._certificates.grant(record, replaces))
        await self._post.post(message, Trace(f"delegate-{record.id}"), record.authority, on_path=False)

    async def learn_passes(self, entity_id: str, chain: Sequence[str], by: str) -> None:
        """Bring the log up to date with direct passes, as a server tells them, and give the holder a new grant.

        Raises:
            MessageError, Refused, NoQuorum, OutcomeUnknown, PeerUnreachable: as `CertificateChains.passes` and
            `InstanceStore.submit`.
        """
        passes = await self._chains.passes(chain, entity_id, by)
        if not passes:
            return
        await self._store.submit("transfer.passed", entity=entity_id, passes=passes)
        record, fence = self._store.entity(entity_id), Fence(passes[-1]["epoch"], passes[-1]["sub"])
        if record is None or not record.delegation or record.fence != fence:
            return
        try:
            await self.deliver_delegation(record, replaces=token_hash(chain[-1]))
        except NOT_TOLD as error:
            # The holder keeps its longer chain, which is as good; the next report brings the next grant.
            _log.info("the new grant of %s was not delivered: %s", entity_id, error)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def despawn(self, entity: str, authority: str, epoch: int) -> None:
        """Tell the last authority of a deleted entity that it is gone.

        Raises:
            NOT_TOLD: it cannot be told now; the caller may delete the entity again.
        """
        if not authority:
            return  # No server had it; those that may have it still are told as long as it takes (`deletion_notices`).
        message = Despawn(entity=entity, epoch=epoch)
        await self._post.post(message, Trace(f"despawn-{entity}"[:64]), authority, on_path=False)
