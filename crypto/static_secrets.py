"""What two servers share because each knows the other's public key: keys of MACs that no other can make.

A signature proves more (to whom it was signed for, for one), and costs 44 us to check. A MAC under a static
Diffie-Hellman secret costs two, once the secret is known. So it stands in front of every message of the link's
handshake: a sender without the peer's private key is dropped before anything is computed or remembered. The static key
of WireGuard's first message is for the same (Donenfeld, NDSS 2017, section 5.4.2).

It proves nothing else. A thief of a server's agreement key can make these MACs towards that server in any name. Then it
is as without them: the signatures are checked as ever, and no key of a session is made of this secret.
"""

import hashlib
import hmac
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from batonpass.crypto.keys import Identity, PublicIdentity

MAC_BYTES: Final = 16

_LABEL: Final = b"batonpass link static 1"


def mac(key: bytes, *parts: bytes) -> bytes:
    """Keyed BLAKE2s (RFC 7693), 16 bytes. The parts must have fixed lengths. Budget: 2.3 us for a HELLO."""
    return hashlib.blake2s(b"".join(parts), digest_size=MAC_BYTES, key=key).digest()


def fits(presented: bytes, expected: bytes) -> bool:
    """Whether they are equal; takes the same time however much of it is right."""
    return hmac.compare_digest(presented, expected)


class StaticSecrets:
    """Those of this server, with every generation of its keys, and one peer with its current ones.

    Each is computed when it is first needed (36 us) and kept.
    """

    def __init__(self, identity: Identity, peer_keys: PublicIdentity) -> None:
        self.identity: Final = identity
        self.peer_keys: Final = peer_keys
        self._keys: dict[tuple[str, bool], bytes] = {}

    def as_initiator(self) -> list[bytes]:
        """One for each generation of our keys, the current one's first: the peer may know any of them."""
        return [self._key(own, initiates=True) for own in self.identity.generations]

    def as_responder(self, signing_kid: str) -> bytes:
        """That of the generation of ours which the peer has addressed, by the id of its signing key."""
        return self._key(self.addressed(signing_kid), initiates=False)

    def addressed(self, signing_kid: str) -> Identity:
        """The generation of ours with this signing key; the current one when there is none."""
        generations = self.identity.generations
        return next((one for one in generations if one.public.signing_kid == signing_kid), generations[0])

    def _key(self, own: Identity, *, initiates: bool) -> bytes:
        place = own.public.signing_kid, initiates
        key = self._keys.get(place)
        if key is None:
            parties = (own.public, self.peer_keys) if initiates else (self.peer_keys, own.public)
            kids = "".join(one.signing_kid + one.agreement_kid for one in parties)
            secret = own.agreement.exchange(ec.ECDH(), self.peer_keys.agreement)
            derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_LABEL + kids.encode("ascii"))
            key = self._keys[place] = derivation.derive(secret)
        return key
