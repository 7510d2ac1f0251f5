"""What a homeserver certifies about authority in its own name, and which certificates it believes.

Certificates are shown to others than their receiver, so each is signed by itself; see `authority.trust.certificates`.

Chains of direct passes that come home, and those of which a key is not good any more.

A chain that verifies is the log's to follow. One that would be good, if a key had not been revoked or ended since, may
have been verified by the server that was passed the entity. It cannot be shown whether it was: home cannot follow it,
nor take it for nothing. So the entity is *contested*. Its fence is raised, and every server that is alive is asked what
it has of it. The one that simulates it freezes it, and one resumes it (`homeserver.failover.takeover`). Until then the
server that brought the chain is told that nothing is decided (`unproven`). After that the log answers it as any server
of the past.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, Role, TransferRecord
from batonpass.authority.trust.certificate_reader import Asked, CertificateReader
from batonpass.authority.trust.certificates import (
    BrokenChain,
    CommitCertificate,
    DelegationGrant,
    PassCertificate,
    UnprovenChain,
)
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.directory import Directory

__all__ = ["CertificateChains", "Certification", "args_of_pass", "commit_certificate", "delegation_grant"]


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
        """As `grant` of each of these; they share a signature, which a reader verifies once."""
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
            NoQuorum, PeerUnreachable: the signer of one cannot be looked up now.
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


_log = logging.getLogger("batonpass.homeserver.transfer.certificates")


class CertificateChains:
    """One member's look at the chains of its instance's entities.

    Args:
        contested: told of each entity that is looked for because of its chain.
    """

    def __init__(self, certificates: Certification, store: InstanceStore, contested: Callable[[str], None]) -> None:
        self._certificates: Final = certificates
        self._store: Final = store
        self._contested: Final = contested

    async def passes(self, chain: Sequence[str], entity: str, by: str, transfer_id: str = "") -> list[dict[str, Any]]:
        """The passes of a chain, as the log's arguments; none if the log is beyond what cannot be proved of them.

        Args:
            by: the server that says that it was passed the entity, or has passed it on.
            transfer_id: what that is about, if it may be open; it has its result then.

        Raises:
            Refused: `unproven` while the authority of the entity is looked for; `no_delegation` if `by` has nothing to
                say.
            MessageError, NoQuorum, PeerUnreachable: as `Certification.passes_untrusted`.
            OutcomeUnknown: the log did not say what it made of it.
        """
        try:
            return await self._certificates.passes_untrusted(chain, entity)
        except UnprovenChain as error:
            await self._contest(error, entity, by, transfer_id)
            return []

    async def followed(
        self, chain: Sequence[str], entity: str, by: str, transfer_id: str
    ) -> tuple[list[dict[str, Any]], bool]:
        """As `passes`, of a chain that may break: the passes before it does, and whether it does."""
        try:
            return await self._certificates.followed_untrusted(chain, entity)
        except UnprovenChain as error:
            await self._contest(error, entity, by, transfer_id)
            return [], False

    async def _contest(self, error: UnprovenChain, entity: str, by: str, transfer_id: str) -> None:
        last = error.last
        transfers = [name for name in dict.fromkeys((last.transfer_id, transfer_id)) if name]
        is_open = await self._store.submit(
            "recovery.contest", entity=entity, epoch=last.epoch, sub=last.sub, by=by, transfers=transfers
        )
        if is_open:
            self._contested(entity)
            text = f"the server that has {entity} is looked for, as {by} cannot prove what became of it: {error}"
            _log.warning("%s", text)
            raise Refused(Reason.UNPROVEN, text, entity=entity)
