"""What a homeserver certifies about authority in its own name, and whose certificates it believes.

Certificates are shown to others than their receiver, so each is signed by itself; see `authority.certificates`.
"""

from collections.abc import Sequence
from typing import Any, Final

from actors.clock import Clock
from authority.certificates import CommitCertificate, DelegationGrant, PassCertificate, check_chain
from authority.errors import MessageError
from authority.names import instance_of
from authority.records import EntityRecord, Role, TransferRecord
from authority.sealing import Sealer
from crypto import jose
from crypto.errors import CryptoError
from crypto.verified import Verified
from homeserver.directory import Directory

__all__ = ["Certification"]


class Certification:
    """One member's certificates, and its look at those of others."""

    def __init__(self, sealer: Sealer, directory: Directory, clock: Clock) -> None:
        self._sealer: Final = sealer
        self._directory: Final = directory
        self._clock: Final = clock
        self._verified_before: Final = Verified()

    def commit(self, transfer: TransferRecord) -> str:
        """A signed word that the log gave the entity to the target of a committed transfer."""
        certificate = CommitCertificate(
            entity=transfer.entity,
            epoch=transfer.epoch,
            sub=transfer.sub,
            transfer_id=transfer.id,
            source=transfer.source,
            target=transfer.target,
            tick=transfer.tick,
            state_hash=transfer.state_hash,
            owner=transfer.owner,
            owner_rev=transfer.owner_rev,
            incarnation=transfer.incarnation,
        )
        return jose.sign(certificate.to_claims(), sender=self._sealer.identity, sender_id=self._sealer.name)

    def grant(self, record: EntityRecord) -> str:
        """A signed leave for the record's group to pass the entity directly, from the fence that the log knows."""
        grant = DelegationGrant(
            entity=record.id,
            epoch=record.epoch,
            sub=record.sub,
            owner=record.owner,
            owner_rev=record.owner_rev,
            holder=record.authority,
            group=record.delegation,
        )
        return jose.sign(grant.to_claims(), sender=self._sealer.identity, sender_id=self._sealer.name)

    async def passes_untrusted(self, chain: Sequence[str], entity_id: str) -> list[dict[str, Any]]:
        """Verify a chain of certificates (a grant, then passes) and return the passes as the log's arguments.

        Raises:
            MessageError: a certificate, or how they follow from each other, is wrong.
            NoQuorum, PeerUnreachable: nobody can say now who signed one.
        """
        if not chain:
            return []
        grant = DelegationGrant.from_claims_untrusted(await self._verified(chain[0], Role.HOMESERVER))
        steps = []
        for token in chain[1:]:
            steps.append((token, PassCertificate.from_claims_untrusted(await self._verified(token, Role.SIMSERVER))))
            if jose.peek_sender_untrusted(token) != steps[-1][1].source:
                raise MessageError(f"a pass by {steps[-1][1].source} is signed by somebody else")
        check_chain(grant, chain[0], steps)
        if grant.entity != entity_id or instance_of(jose.peek_sender_untrusted(chain[0])) != instance_of(entity_id):
            raise MessageError(f"the chain is not one of {entity_id}'s home")
        return [step.model_dump(mode="json") for _, step in steps]

    async def _verified(self, token: str, role: Role) -> dict[str, Any]:
        try:
            signer = jose.peek_sender_untrusted(token)
            row = await self._directory.row(signer)
            keys = None if row is None else self._directory.parse(row)
            if row is None or keys is None or row.role is not role:
                raise MessageError(f"{signer} is no known {role}")
            return jose.verify_untrusted(token, sender=keys, now_s=self._clock.unix_s(), verified=self._verified_before)
        except CryptoError as error:
            raise MessageError(f"a certificate does not verify: {error}") from error
