"""Reading signed certificates: whose they are, whether they verify, and how those of a chain follow from each other.

A chain of certificates comes again with every pass, one link longer. What is remembered is that this very text was
signed with this key in this name, and what it says. Of the last chain of an entity it is remembered that its links
follow from each other. So a chain costs what is new in it; whether the keys are still good, and what their owners are,
is asked every time.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import Role
from batonpass.authority.names import instance_of
from batonpass.authority.trust.certificates import (
    BrokenChain,
    CommitCertificate,
    DelegationGrant,
    KeyNotGood,
    PassCertificate,
    UnprovenChain,
    check_chain,
)
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.errors import CryptoError, Expired, Revoked, UnknownSender
from batonpass.crypto.keys import PublicIdentity
from batonpass.crypto.verified import Verified

__all__ = ["MAX_CHAINS", "MAX_KNOWN", "Asked", "CertificateReader", "Chain"]

T = TypeVar("T")
Chain = tuple[DelegationGrant, Sequence[PassCertificate]]
C = TypeVar("C", CommitCertificate, DelegationGrant, PassCertificate)

MAX_KNOWN: Final = 4096
"""Certificates that are remembered, at 3 kB each; the longest unused is verified again when it comes."""
MAX_CHAINS: Final = 1024
"""Entities whose last chain is remembered; those of others are looked at link by link."""
# Longer ones, which few have, are not: a pass takes some 1 kB.
_MAX_LINKS: Final = 8


@dataclass(frozen=True, slots=True)
class _KnownCertificate:
    signer: str
    kid: str
    certificate: CommitCertificate | DelegationGrant | PassCertificate


@dataclass(frozen=True, slots=True)
class _KnownChain:
    """A chain whose links follow from each other: its tokens, who signed them with which key, and what they say."""

    tokens: Sequence[str]
    signers: frozenset[tuple[str, str, Role]]
    grant: DelegationGrant
    passes: Sequence[PassCertificate]


Found = tuple[Role, PublicIdentity] | None
"""The role and the keys that are good now of who bears a name and signs with a key of an id; None if there is none."""

Asked = dict[tuple[str, str], Found]
"""Who bears a name and signs with a key of an id, as far as it was found out at one moment."""

Reading = Generator[tuple[str, str], Found, T]
"""Reads, and asks on the way who bears a name and signs with a key of this id."""


def _nothing_at_hand(_name: str, _kid: str) -> Found:
    return None


class CertificateReader:
    """Reads certificates for one server.

    Args:
        signer_of: finds out who has signed.
        now_s: Unix time in seconds by which keys are judged.
        signer_at_hand: the same for those of whom it is known already; None for all others.
    """

    def __init__(
        self,
        signer_of: Callable[[str, str], Awaitable[Found]],
        now_s: Callable[[], float],
        signer_at_hand: Callable[[str, str], Found] = _nothing_at_hand,
    ) -> None:
        self._signer_of: Final = signer_of
        self._signer_at_hand: Final = signer_at_hand
        self._now_s: Final = now_s
        self._known: LruTable[str, _KnownCertificate] = LruTable(MAX_KNOWN)
        self._chains: LruTable[str, _KnownChain] = LruTable(MAX_CHAINS)
        # For certificates that share a signature.
        self._verified: Final = Verified()

    async def _asking(self, reading: Reading[T]) -> T:
        """Read to the end."""
        found: Found = None
        try:
            wanted = next(reading)
            while True:
                found = await self._signer_of(*wanted)
                wanted = reading.send(found)
        except StopIteration as done:
            result: T = done.value
            return result

    def _at_hand(self, reading: Reading[T]) -> T | None:
        """Read to the end, if no other has to be asked for that; else None."""
        try:
            wanted = next(reading)
            while (found := self._signer_at_hand(*wanted)) is not None:
                wanted = reading.send(found)
        except StopIteration as done:
            result: T = done.value
            return result
        return None

    async def read_untrusted(self, token: str, kind: type[C], role: Role) -> tuple[str, C]:
        """A certificate of this kind, and who signed it, which is a server of this role.

        Raises:
            MessageError: it is not that, or does not verify; `KeyNotGood` if that is for its key alone.
            What `signer_of` raises.
        """
        return await self._asking(self._reading_untrusted(token, kind, role))

    def at_hand_untrusted(self, token: str, kind: type[C], role: Role) -> tuple[str, C] | None:
        """As `read_untrusted`; None if a server would have to be asked who has signed."""
        return self._at_hand(self._reading_untrusted(token, kind, role))

    def _reading_untrusted(
        self, token: str, kind: type[C], role: Role, asked: Asked | None = None
    ) -> Reading[tuple[str, C]]:
        """Read one. `asked` is what was found out so far in the same reading."""
        try:
            known = self._known.get(token)
            signer, kid = jose.peek_untrusted(token) if known is None else (known.signer, known.kid)
            found = asked.get((signer, kid)) if asked else None
            if found is None:
                found = yield signer, kid
            if asked is not None:
                asked[signer, kid] = found
            if found is None:
                raise KeyNotGood(f"{signer} is no known {role}")
            if found[0] is not role:
                raise MessageError(f"{signer} is no known {role}")
            if known is None:
                # What shares its signature with nothing is remembered here, whole.
                shared = self._verified if jose.is_of_many(token) else None
                claims = jose.verify_untrusted(token, sender=found[1], now_s=self._now_s(), verified=shared)
                known = _KnownCertificate(signer, kid, kind.from_claims_untrusted(claims))
            else:
                found[1].signing_key(kid, self._now_s())
        except (Expired, Revoked, UnknownSender) as error:
            raise KeyNotGood(f"a certificate does not verify: {error}") from error
        except CryptoError as error:
            raise MessageError(f"a certificate does not verify: {error}") from error
        if not isinstance(known.certificate, kind):
            raise MessageError(f"not a {kind.__name__}")
        self._known[token] = known
        return signer, known.certificate

    def remembered(self, token: str) -> CommitCertificate | DelegationGrant | PassCertificate | None:
        """What a certificate says that was verified here; None if it was not, or so long ago that it is forgotten."""
        known = self._known.get(token)
        return None if known is None else known.certificate

    def signed(
        self,
        token: str,
        signer: str,
        kid: str,
        certificate: CommitCertificate | DelegationGrant | PassCertificate,
        before: Sequence[str] = (),
    ) -> None:
        """This server itself signed it, in the name `signer` and with the key `kid`: it need not be verified here.

        With `before`, the chain that a pass continues: what comes back continues a chain that is known then.
        """
        self._known[token] = _KnownCertificate(signer, kid, certificate)
        known = self._chains.get(certificate.entity) if before else None
        if known is None or not isinstance(certificate, PassCertificate) or list(before) != known.tokens:
            return
        try:
            check_chain(known.grant, before[-1], [(token, certificate)], known.passes)
        except BrokenChain:
            # The server that is sent it says so.
            return
        passes = [*known.passes, certificate]
        self._remember_chain([*before, token], certificate.entity, known.grant, passes, known)

    async def grant_untrusted(self, token: str, entity: str) -> DelegationGrant:
        """A grant of the entity's home instance. Raises as `read_untrusted`."""
        return await self._asking(self._reading_grant_untrusted(token, entity))

    def _reading_grant_untrusted(self, token: str, entity: str, asked: Asked | None = None) -> Reading[DelegationGrant]:
        signer, grant = yield from self._reading_untrusted(token, DelegationGrant, Role.HOMESERVER, asked)
        return _of_home(signer, grant, entity)

    async def chain_untrusted(self, chain: Sequence[str], entity: str, asked: Asked | None = None) -> Chain:
        """The grant of the entity's home instance and the passes that follow from it.

        Several that came at one moment may share what is `asked` about their signers.

        Raises:
            MessageError: as of `read_untrusted`; `BrokenChain`; `UnprovenChain` if all that is wrong is a key.
            What `signer_of` raises.
        """
        return await self._asking(self._reading_chain_untrusted(chain, entity, asked))

    def chain_at_hand_untrusted(self, chain: Sequence[str], entity: str) -> Chain | None:
        """As `chain_untrusted`; None if a server would have to be asked who has signed."""
        return self._at_hand(self._reading_chain_untrusted(chain, entity))

    def _reading_chain_untrusted(self, chain: Sequence[str], entity: str, asked: Asked | None = None) -> Reading[Chain]:
        if len(chain) < 2:
            raise MessageError(f"the chain of {entity} holds no pass")
        # A few servers pass it to and fro: each of them is looked up once.
        asked = {} if asked is None else asked
        unproven: list[KeyNotGood] = []
        before = yield from self._beginning(chain, entity, asked)
        try:
            grant = before.grant if before else (yield from self._reading_grant_untrusted(chain[0], entity, asked))
        except KeyNotGood as error:
            unproven.append(error)
            grant = _of_home(*_claimed_untrusted(chain[0], DelegationGrant), entity)
        known = before.passes if before else ()
        steps = []
        for token in chain[len(known) + 1 :]:
            read = self._again(token, asked)
            if read is None:
                try:
                    read = yield from self._reading_untrusted(token, PassCertificate, Role.SIMSERVER, asked)
                except KeyNotGood as error:
                    unproven.append(error)
                    read = _claimed_untrusted(token, PassCertificate)
            signer, step = read
            if signer != step.source:
                raise MessageError(f"a pass by {step.source} is signed by another")
            steps.append((token, step))
        if unproven:
            raise _unproven(unproven[0], grant, chain[len(known)], steps, known)
        check_chain(grant, chain[len(known)], steps, known)
        passes = [*known, *(step for _, step in steps)]
        self._remember_chain(chain, entity, grant, passes, before)
        return grant, passes

    def _beginning(self, chain: Sequence[str], entity: str, asked: Asked) -> Reading[_KnownChain | None]:
        """What this chain begins with, if that came before and its signer is still to be believed."""
        known = self._chains.get(entity)
        if known is None or len(known.tokens) > len(chain) or list(chain[: len(known.tokens)]) != known.tokens:
            return None
        for signer, kid, role in known.signers:
            found = asked.get((signer, kid))
            if found is None:
                found = asked[signer, kid] = yield signer, kid
            if found is None or found[0] is not role or kid != found[1].signing_kid:
                # What exactly is wrong, or that it is not, is told link by link.
                return None
        return known

    def _remember_chain(
        self,
        chain: Sequence[str],
        entity: str,
        grant: DelegationGrant,
        passes: Sequence[PassCertificate],
        before: _KnownChain | None,
    ) -> None:
        """Keep it; `before` is what it begins with, if that was known."""
        begun = len(before.tokens) if before is not None else 0
        links = [self._known.get(token) for token in chain[begun:]]
        if len(chain) > _MAX_LINKS or None in links:
            self._chains.pop(entity, None)
            return
        signers = before.signers if before is not None else frozenset()
        for place, link in enumerate(links, start=begun):
            if link is not None:
                role = Role.SIMSERVER if place else Role.HOMESERVER
                signers |= {(link.signer, link.kid, role)}
        self._chains[entity] = _KnownChain(list(chain), signers, grant, passes)

    def _again(self, token: str, asked: Mapping[tuple[str, str], Found]) -> tuple[str, PassCertificate] | None:
        """A pass that is known, by a server that has been found out; None for any other, of which the rest is to be
        told."""
        known = self._known.get(token)
        found = None if known is None else asked.get((known.signer, known.kid))
        if known is None or found is None or found[0] is not Role.SIMSERVER:
            return None
        if not isinstance(known.certificate, PassCertificate) or known.kid != found[1].signing_kid:
            return None
        self._known.move_to_end(token)
        return known.signer, known.certificate


def _of_home(signer: str, grant: DelegationGrant, entity: str) -> DelegationGrant:
    if grant.entity != entity or instance_of(signer) != instance_of(entity):
        raise MessageError(f"the delegation of {entity} is not from its home instance")
    return grant


def _claimed_untrusted(token: str, kind: type[C]) -> tuple[str, C]:
    """In whose name a certificate is, and what it says; nothing is proved. Raises `MessageError`."""
    try:
        return jose.peek_sender_untrusted(token), kind.from_claims_untrusted(jose.peek_statement_untrusted(token))
    except CryptoError as error:
        raise MessageError(f"a certificate cannot be read: {error}") from error


def _unproven(
    why: KeyNotGood,
    grant: DelegationGrant,
    parent: str,
    steps: Sequence[tuple[str, PassCertificate]],
    known: Sequence[PassCertificate],
) -> MessageError:
    """What is to be said of a chain with a key that is not good: what could not have happened is not looked for."""
    try:
        check_chain(grant, parent, steps, known)
    except BrokenChain as broken:
        return MessageError(f"{why}; and {broken}")
    return UnprovenChain(str(why), steps[-1][1])
