"""What a homeserver certifies about authority in its own name, and whose certificates it believes.

Certificates are shown to others than their receiver, so each is signed by itself; see `authority.trust.certificates`.
"""

from collections.abc import Sequence
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import EntityRecord, Role, TransferRecord
from batonpass.authority.trust.certificate_reader import Asked, CertificateReader
from batonpass.authority.trust.certificates import BrokenChain, CommitCertificate, DelegationGrant, PassCertificate
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.names.directory import Directory

__all__ = ["Certification", "args_of_pass", "commit_certificate", "delegation_grant"]


class Certification:
    """One member's certificates, and its look at those of others."""

    def __init__(self, sealer: Sealer, directory: Directory, clock: Clock) -> None:
        self._sealer: Final = sealer
        self._directory: Final = directory
        self.reader: Final = CertificateReader(self._signer_of, clock.unix_s)

    def commit(self, transfer: TransferRecord) -> str:
        """A signed word that the log gave the entity to the target of a committed transfer."""
        return self.commit_all([transfer])[0]

    def commit_all(self, transfers: Sequence[TransferRecord]) -> list[str]:
        """As `commit` of each of these; they share a signature."""
        # The target hears of a commit by its certificate alone, which comes from the old authority.
        log = self._sealer.log_for(self._sealer.name)
        claims = [commit_certificate(transfer).to_claims() | {"log": log} for transfer in transfers]
        return jose.sign_all(claims, sender=self._sealer.identity, sender_id=self._sealer.name)

    def grant(self, record: EntityRecord, replaces: str = "") -> str:
        """A signed leave for the record's group to pass the entity directly, from the fence that the log knows.

        It stands for a chain that the log has learned of, if it `replaces` one that ends in the token of this hash.
        """
        return self.grant_all([(record, replaces)])[0]

    def grant_all(self, wanted: Sequence[tuple[EntityRecord, str]]) -> list[str]:
        """As `grant` of each of these; they share a signature, which whoever reads them verifies once."""
        grants = [delegation_grant(record, replaces) for record, replaces in wanted]
        identity, name = self._sealer.identity, self._sealer.name
        tokens = jose.sign_all([grant.to_claims() for grant in grants], sender=identity, sender_id=name)
        for token, grant in zip(tokens, grants, strict=True):
            # They come back in chains, and need not be verified here.
            self.reader.signed(token, name, identity.public.signing_kid, grant)
        return tokens

    async def passes_untrusted(
        self, chain: Sequence[str], entity_id: str, asked: Asked | None = None
    ) -> list[dict[str, Any]]:
        """Verify a chain of certificates (a grant, then passes) and return the passes as the log's arguments.

        `asked` is as in `CertificateReader.chain_untrusted`.

        Raises:
            MessageError: a certificate, or how they follow from each other, is wrong; `UnprovenChain` if all that
                is wrong is a key.
            NoQuorum, PeerUnreachable: nobody can say now who signed one.
        """
        if not chain:
            return []
        _, passes = await self.reader.chain_untrusted(chain, entity_id, asked)
        return list(map(args_of_pass, passes))

    def owner_rev_of(self, chain: Sequence[str]) -> int:
        """The ownership that was granted with a chain which was verified a moment ago; 0 if that is forgotten."""
        grant = self.reader.remembered(chain[0]) if chain else None
        return grant.owner_rev if isinstance(grant, DelegationGrant) else 0

    async def followed_untrusted(
        self, chain: Sequence[str], entity_id: str, asked: Asked | None = None
    ) -> tuple[list[dict[str, Any]], bool]:
        """As `passes_untrusted`, of a chain that may break: the passes before it does, and whether it does.

        Raises:
            MessageError: a certificate is wrong, which others may see otherwise: keys come and go.
            NoQuorum, PeerUnreachable: as `passes_untrusted`.
        """
        try:
            return await self.passes_untrusted(chain, entity_id, asked), False
        except BrokenChain as broken:
            return list(map(args_of_pass, broken.followed)), True

    async def _signer_of(self, name: str, kid: str) -> tuple[Role, PublicIdentity] | None:
        row, keys = await self._directory.signer(name, kid)
        return None if row is None or keys is None else (row.role, keys)


def args_of_pass(step: PassCertificate) -> dict[str, Any]:
    """All that the log keeps of it, or decides by."""
    return {
        "transfer_id": step.transfer_id,
        "entity": step.entity,
        "source": step.source,
        "target": step.target,
        "epoch": step.epoch,
        "sub": step.sub,
        "tick": step.tick,
        "state_hash": step.state_hash,
        "incarnation": step.incarnation,
    }


def delegation_grant(record: EntityRecord, replaces: str) -> DelegationGrant:
    """What the log's delegation of an entity gives to its authority; see `Certification.grant`."""
    return DelegationGrant(
        entity=record.id,
        epoch=record.epoch,
        sub=record.sub,
        owner=record.owner,
        owner_rev=record.owner_rev,
        holder=record.authority,
        group=record.delegation,
        replaces=replaces,
    )


def commit_certificate(transfer: TransferRecord) -> CommitCertificate:
    """What the log has decided with a committed transfer."""
    return CommitCertificate(
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
