"""Many messages between two servers that know each other's public keys: a handshake, then AES-GCM datagrams.

The handshake is a signed Diffie-Hellman exchange in three messages (ISO/IEC 9798-3 mutual authentication; the signed
variant that Canetti and Krawczyk prove secure, EUROCRYPT 2001). Both sides sign, with their static ES256 keys, a hash
over both ephemeral keys, both names, both static key ids, both session ids and both incarnations. So nothing of one
handshake can be used in another. The incarnation tells a restarted peer from the one that was known. The generation
orders the sessions of one pair of incarnations, so that both sides prefer the same one:

    HELLO    initiator -> responder   names, ephemeral key; padded to 1184 bytes
    ACCEPT   responder -> initiator   ephemeral key, signature
    CONFIRM  initiator -> responder   signature

Each of them also carries a MAC under the static secret of the two (`crypto.static_secrets`). So what others wrote is
dropped for 5 us, before any public-key operation and before anything is remembered. That of the HELLO covers the cookie
in the header in front of it, too. A HELLO whose cookie fits was made just now, and not recorded.

A thief who holds the static keys later cannot read what was recorded (the secret comes from the ephemeral keys alone).
Names travel in clear. HELLO is padded so that the answer is smaller than the question (no amplification). It carries a
second MAC, whose key is a hash of the responder's public keys (the `mac1` of WireGuard, Donenfeld, NDSS 2017, section
5.4.4). A stranger that does not even know its peer is dropped for the price of one short hash, and learns nothing from
the silence. That MAC also tells for which of the responder's keys the HELLO was made.

Pure: the ephemeral key is an argument, so a run can be repeated exactly.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from operator import add
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from batonpass.crypto.errors import Malformed, Tampered
from batonpass.crypto.keys import Identity, PublicIdentity, decode_point_untrusted, encode_point
from batonpass.crypto.names import is_name, require_name
from batonpass.crypto.public_keys import MAX_RETIRING
from batonpass.crypto.static_secrets import MAC_BYTES, StaticSecrets, fits, mac

VERSION: Final = 1
"""First byte of every handshake message; another version is Malformed."""

HELLO_BYTES: Final = 1184
"""With the 16-byte datagram header in front, 1200 bytes: what every path carries (RFC 9000 section 14.1)."""

TAG_BYTES: Final = 16

# version, session id, incarnation, generation, ephemeral point, length of the first name
_HELLO_HEAD: Final = struct.Struct("<BIQI65sB")
_ACCEPT_CORE: Final = struct.Struct("<BIQ65s")
_SIGNATURE_BYTES: Final = 64
_SCALAR_BYTES: Final = 32
_ACCEPT_BYTES: Final = _ACCEPT_CORE.size + _SIGNATURE_BYTES + MAC_BYTES
_CONFIRM_BYTES: Final = 1 + _SIGNATURE_BYTES + MAC_BYTES
_PROOFS_BYTES: Final = (1 + MAX_RETIRING) * MAC_BYTES
"""A HELLO has room for a MAC under each generation of the initiator's keys: the responder may know any of them."""

_CORE_BYTES: Final = HELLO_BYTES - _PROOFS_BYTES - MAC_BYTES
COOKIE_BYTES: Final = MAC_BYTES
"""Behind the header of a COOKIE."""

_COOKIE: Final = struct.Struct("<Q")
_NONCE: Final = struct.Struct("<4sQ")

# A zero byte cannot occur in the ASCII that a JWS signs, so no signature made here passes for one of an envelope.
_ACCEPT_LABEL: Final = b"\x00batonpass link accept 1\x00"
_CONFIRM_LABEL: Final = b"\x00batonpass link confirm 1\x00"
_KEYS_LABEL: Final = b"batonpass link keys 1"
_MAC_LABEL: Final = b"batonpass link hello 1"

# What a MAC under a static secret is for: the first byte is the kind of the datagram, also of a COOKIE's header.
_HELLO_KIND, _ACCEPT_KIND, _CONFIRM_KIND = b"\x01", b"\x02", b"\x03"


@dataclass(frozen=True)
class Hello:
    """What a HELLO claims. A server that knows its initiator finds out with `proves` that it wrote it, once. That it
    does so now, and receives what is sent to it, is proved by its CONFIRM, or by a cookie that fits.
    """

    initiator: str
    responder: str
    session_id: int
    incarnation: int
    generation: int
    ephemeral_point: bytes
    core: bytes
    """What the transcript covers: all but the MACs, which change with the cookie."""
    proofs: bytes = b""
    mac: bytes = b""
    cookie: int = 0
    """From the header; 0 is none."""
    responder_kid: str = ""
    """The signing key of ours that stands for the generation it was made for; empty for the current one."""

    def proves(self, secrets: StaticSecrets) -> bool:
        """Whether its initiator holds the private key of `secrets.peer_keys`. Budget: 3 us; the first time 40."""
        expected = _hello_proof(secrets.as_responder(self.responder_kid), self.cookie, self.core)
        return any(fits(self.proofs[at : at + MAC_BYTES], expected) for at in range(0, len(self.proofs), MAC_BYTES))


@dataclass(frozen=True)
class Established:
    """A finished handshake: whom the peer proved to be follows from the keys it was checked with."""

    session: "Session"
    peer_session_id: int
    peer_incarnation: int
    peer_kid: str
    """The id of the signing key with which the peer has proved its name."""


class Session:
    """AES-128-GCM in both directions. The caller never uses a counter twice for sealing."""

    __slots__ = ("_open", "_open_salt", "_seal", "_seal_salt")

    def __init__(self, *, seal_key: bytes, seal_salt: bytes, open_key: bytes, open_salt: bytes) -> None:
        self._seal = AESGCM(seal_key)
        self._seal_salt = seal_salt
        self._open = AESGCM(open_key)
        self._open_salt = open_salt

    @property
    def sealing(self) -> tuple[Callable[[bytes, bytes, bytes], bytes], bytes]:
        """What `seal` is made of: (nonce, plaintext, header) to ciphertext and tag, and the salt, which a nonce of 12
        bytes begins with. The counter follows, little-endian.
        """
        return self._seal.encrypt, self._seal_salt

    @property
    def opening(self) -> tuple[Callable[[bytes, bytes | memoryview, bytes | memoryview], bytes], bytes]:
        """What `open_untrusted` is made of, likewise. Raises InvalidTag, or ValueError."""
        return self._open.decrypt, self._open_salt

    def seal(self, counter: int, header: bytes, plaintext: bytes | memoryview) -> bytes:
        """Ciphertext and 16-byte tag; `header` is authenticated with it. `counter` must be new, 0 to 2**64 - 1."""
        return self._seal.encrypt(_NONCE.pack(self._seal_salt, counter), plaintext, header)

    def seal_run(self, counter: int, headers: Sequence[bytes], plaintexts: Iterable[bytes]) -> list[bytes]:
        """Whole datagrams, header first, with counters from `counter` on: as many as there are plaintexts, each of
        which is asked for when it is sealed. Budget: 1.2 us each at 1200 bytes."""
        nonces = map(_NONCE.pack, repeat(self._seal_salt), count(counter))
        return list(map(add, headers, map(self._seal.encrypt, nonces, plaintexts, headers)))

    def open_run_untrusted(self, counter: int, headers: Iterable[bytes], sealed: Iterable[bytes]) -> list[bytes]:
        """What the peer sealed in datagrams with counters from `counter` on. Raises Tampered when one of them is not
        the peer's. Budget: 1.1 us each at 1200 bytes."""
        nonces = map(_NONCE.pack, repeat(self._open_salt), count(counter))
        try:
            return list(map(self._open.decrypt, nonces, sealed, headers))
        except (InvalidTag, ValueError) as error:
            raise Tampered("the tag of a datagram does not fit") from error

    def open_into_untrusted(
        self, counter: int, header: bytes | memoryview, sealed: bytes | memoryview, room: memoryview
    ) -> None:
        """As `open_untrusted`, into `room`, which is as long as what was sealed. What is in it after an error has not
        been authenticated."""
        try:
            self._open.decrypt_into(_NONCE.pack(self._open_salt, counter), sealed, header, room)
        except (InvalidTag, ValueError) as error:
            raise Tampered("the tag of this datagram does not fit") from error

    def open_untrusted(self, counter: int, header: bytes | memoryview, sealed: bytes | memoryview) -> bytes:
        """What the peer sealed. Raises Tampered when header, counter or contents are not the peer's."""
        try:
            return self._open.decrypt(_NONCE.pack(self._open_salt, counter), sealed, header)
        except (InvalidTag, ValueError) as error:
            raise Tampered("the tag of this datagram does not fit") from error


class Initiator:
    """The side that opens: send `hello`, feed the ACCEPT to `finish_untrusted`, send the CONFIRM it returns."""

    def __init__(
        self,
        *,
        name: str,
        identity: Identity,
        peer: str,
        peer_keys: PublicIdentity,
        session_id: int,
        incarnation: int,
        generation: int,
        ephemeral: ec.EllipticCurvePrivateKey,
        secrets: StaticSecrets | None = None,
    ) -> None:
        """`secrets` saves computing those of `identity` and `peer_keys` again."""
        self._secrets = secrets if secrets is not None else StaticSecrets(identity, peer_keys)
        self._peer_keys = peer_keys
        self._ephemeral = ephemeral
        self._core = _write_core(
            name=name,
            peer=peer,
            session_id=session_id,
            incarnation=incarnation,
            generation=generation,
            ephemeral=ephemeral,
        )
        self.hello = b""
        self.take_cookie(0)

    def take_cookie(self, cookie: int) -> None:
        """Make `hello` anew, to be sent with this cookie in its header; 0 is none."""
        proofs = b"".join(_hello_proof(key, cookie, self._core) for key in self._secrets.as_initiator())
        covered = self._core + proofs.ljust(_PROOFS_BYTES, b"\x00")
        self.hello = covered + _hello_mac(self._peer_keys, covered)

    def read_cookie_untrusted(self, header: bytes, body: bytes) -> bool:
        """Whether a COOKIE that answers `hello` is the peer's for certain, or only of a sender that has seen `hello`.

        Raises Malformed, or Tampered when it answers something else.
        """
        if len(body) != COOKIE_BYTES:
            raise Malformed(f"a COOKIE has {COOKIE_BYTES} bytes behind its header")
        point = encode_point(self._ephemeral.public_key())
        if any(fits(body, mac(key, header, point)) for key in self._secrets.as_initiator()):
            return True
        if not fits(body, echo_cookie(header, self.hello[-MAC_BYTES:])):
            raise Tampered("this COOKIE does not answer the HELLO that was sent")
        return False

    def finish_untrusted(self, accept: bytes) -> tuple[Established, bytes]:
        """The session, and the CONFIRM to send. Raises Malformed, or Tampered when the peer did not sign this."""
        if len(accept) != _ACCEPT_BYTES or accept[0] != VERSION:
            raise Malformed(f"an ACCEPT has {_ACCEPT_BYTES} bytes and version {VERSION}")
        core, signature = accept[: _ACCEPT_CORE.size], accept[_ACCEPT_CORE.size : -MAC_BYTES]
        _, peer_session_id, peer_incarnation, point = _ACCEPT_CORE.unpack(core)
        own, key, transcript = self._as_known_untrusted(core, signature, accept[-MAC_BYTES:])
        _verify_untrusted(self._peer_keys, _ACCEPT_LABEL + transcript, signature)
        initiator_half, responder_half = _derive(self._ephemeral, decode_point_untrusted(point), transcript)
        session = Session(
            seal_key=initiator_half[0],
            seal_salt=initiator_half[1],
            open_key=responder_half[0],
            open_salt=responder_half[1],
        )
        confirmed = _confirmed(transcript, signature)
        own_signature = _sign(own, _CONFIRM_LABEL + confirmed)
        confirm = bytes([VERSION]) + own_signature + mac(key, _CONFIRM_KIND, confirmed, own_signature)
        return Established(session, peer_session_id, peer_incarnation, self._peer_keys.signing_kid), confirm

    def _as_known_untrusted(self, core: bytes, signature: bytes, presented: bytes) -> tuple[Identity, bytes, bytes]:
        """The generation of our keys by which the responder knows us, the static secret and the transcript with it.

        A peer that has not heard yet of our newest keys knows us by those that are retiring. Raises Tampered.
        """
        for own, key in zip(self._secrets.identity.generations, self._secrets.as_initiator(), strict=True):
            transcript = _transcript(self._core, core, own.public, self._peer_keys)
            if fits(presented, mac(key, _ACCEPT_KIND, transcript, signature)):
                return own, key, transcript
        raise Tampered("this ACCEPT was not made by the peer")


class Responder:
    """The side that answers: send `accept`, feed the CONFIRM to `finish_untrusted`. Until then nothing is proved."""

    def __init__(
        self,
        hello: Hello,
        *,
        identity: Identity,
        peer_keys: PublicIdentity,
        session_id: int,
        incarnation: int,
        ephemeral: ec.EllipticCurvePrivateKey,
        secrets: StaticSecrets | None = None,
    ) -> None:
        """For a HELLO that `proves`. `secrets` saves computing those of `identity` and `peer_keys` again.

        Raises Malformed when the ephemeral key of the HELLO is not on the curve.
        """
        secrets = secrets if secrets is not None else StaticSecrets(identity, peer_keys)
        own = secrets.addressed(hello.responder_kid)
        self._key = secrets.as_responder(hello.responder_kid)
        point = encode_point(ephemeral.public_key())
        core = _ACCEPT_CORE.pack(VERSION, session_id, incarnation, point)
        transcript = _transcript(hello.core, core, peer_keys, own.public)
        initiator_half, responder_half = _derive(ephemeral, decode_point_untrusted(hello.ephemeral_point), transcript)
        signature = _sign(own, _ACCEPT_LABEL + transcript)
        self._established = Established(
            Session(
                seal_key=responder_half[0],
                seal_salt=responder_half[1],
                open_key=initiator_half[0],
                open_salt=initiator_half[1],
            ),
            hello.session_id,
            hello.incarnation,
            peer_keys.signing_kid,
        )
        self._peer_keys = peer_keys
        self._confirmed = _confirmed(transcript, signature)
        self.accept: Final = core + signature + mac(self._key, _ACCEPT_KIND, transcript, signature)

    def finish_untrusted(self, confirm: bytes) -> Established:
        """The session, now that the initiator has proved its name. Raises Malformed or Tampered."""
        if len(confirm) != _CONFIRM_BYTES or confirm[0] != VERSION:
            raise Malformed(f"a CONFIRM has {_CONFIRM_BYTES} bytes and version {VERSION}")
        signature = confirm[1:-MAC_BYTES]
        if not fits(confirm[-MAC_BYTES:], mac(self._key, _CONFIRM_KIND, self._confirmed, signature)):
            raise Tampered("this CONFIRM was not made by the peer")
        _verify_untrusted(self._peer_keys, _CONFIRM_LABEL + self._confirmed, signature)
        return self._established


def prove_cookie(secrets: StaticSecrets, hello: Hello, header: bytes) -> bytes:
    """What stands behind the header of a COOKIE that answers `hello`, whose initiator is known.

    It is good with any cookie by which the HELLO is sent by then: the COOKIE of another may have come in between.
    """
    return mac(secrets.as_responder(hello.responder_kid), header, hello.ephemeral_point)


def echo_cookie(header: bytes, hello_mac: bytes) -> bytes:
    """What stands there when the initiator's keys are not known: it shows that the HELLO with this MAC was seen."""
    return mac(hello_mac, header)


def read_hello_untrusted(body: bytes, *, cookie: int = 0, responder: str, responder_keys: PublicIdentity) -> Hello:
    """Parse a HELLO meant for us: its length, its MAC under our public keys and only then its fields.

    `cookie` is what its header says. Whose HELLO it is, is another question: `Hello.proves`.

    The MAC tells for which generation of `responder_keys` it was made. Raises Malformed, also when it was made for
    other keys or another name than ours.
    """
    if len(body) != HELLO_BYTES or body[0] != VERSION:
        raise Malformed(f"a HELLO has {HELLO_BYTES} bytes and version {VERSION}")
    covered, presented = body[:-MAC_BYTES], body[-MAC_BYTES:]
    addressed = [keys for keys in responder_keys.generations if fits(_hello_mac(keys, covered), presented)]
    if not addressed:
        raise Malformed("this HELLO was not made for the keys of this server")
    core = body[:_CORE_BYTES]
    _, session_id, incarnation, generation, point, initiator_length = _HELLO_HEAD.unpack_from(core)
    initiator, rest = _name_untrusted(core[_HELLO_HEAD.size :], initiator_length)
    named, padding = _name_untrusted(rest[1:], rest[0])
    if named != responder or padding.count(0) != len(padding):
        raise Malformed("this HELLO is for another server, or its padding is not zero")
    return Hello(
        initiator,
        named,
        session_id,
        incarnation,
        generation,
        point,
        core,
        body[_CORE_BYTES:-MAC_BYTES],
        presented,
        cookie,
        addressed[0].signing_kid,
    )


def _write_core(
    *,
    name: str,
    peer: str,
    session_id: int,
    incarnation: int,
    generation: int,
    ephemeral: ec.EllipticCurvePrivateKey,
) -> bytes:
    initiator = require_name("name", name).encode("ascii")
    responder = require_name("peer", peer).encode("ascii")
    point = encode_point(ephemeral.public_key())
    fields = b"".join(
        (
            _HELLO_HEAD.pack(VERSION, session_id, incarnation, generation, point, len(initiator)),
            initiator,
            bytes([len(responder)]),
            responder,
        )
    )
    return fields.ljust(_CORE_BYTES, b"\x00")


def _hello_proof(key: bytes, cookie: int, core: bytes) -> bytes:
    return mac(key, _HELLO_KIND, _COOKIE.pack(cookie), core)


def _hello_mac(responder_keys: PublicIdentity, covered: bytes) -> bytes:
    kids = (responder_keys.signing_kid + responder_keys.agreement_kid).encode("ascii")
    return mac(hashlib.blake2s(_MAC_LABEL + kids).digest(), covered)


def _name_untrusted(data: bytes, length: int) -> tuple[str, bytes]:
    name = data[:length].decode("ascii", errors="replace")
    if len(data) <= length or not is_name(name):
        raise Malformed("a name in a HELLO is 1 to 128 visible ASCII characters")
    return name, data[length:]


def _transcript(hello_core: bytes, accept_core: bytes, initiator: PublicIdentity, responder: PublicIdentity) -> bytes:
    """SHA-256 over everything both sides said and who they are. All parts have fixed lengths, so they need no
    framing."""
    kids = initiator.signing_kid + initiator.agreement_kid + responder.signing_kid + responder.agreement_kid
    return hashlib.sha256(hello_core + accept_core + kids.encode("ascii")).digest()


def _confirmed(transcript: bytes, accept_signature: bytes) -> bytes:
    return hashlib.sha256(transcript + accept_signature).digest()


def _derive(
    ours: ec.EllipticCurvePrivateKey, theirs: ec.EllipticCurvePublicKey, transcript: bytes
) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """(key, salt) that the initiator seals with, and those of the responder: HKDF-SHA256 (RFC 5869)."""
    secret = ours.exchange(ec.ECDH(), theirs)
    okm = HKDF(algorithm=hashes.SHA256(), length=40, salt=transcript, info=_KEYS_LABEL).derive(secret)
    return (okm[:16], okm[32:36]), (okm[16:32], okm[36:40])


def _sign(identity: Identity, message: bytes) -> bytes:
    r, s = decode_dss_signature(identity.signing.sign(message, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(_SCALAR_BYTES, "big") + s.to_bytes(_SCALAR_BYTES, "big")


def _verify_untrusted(signer: PublicIdentity, message: bytes, signature: bytes) -> None:
    r = int.from_bytes(signature[:_SCALAR_BYTES], "big")
    s = int.from_bytes(signature[_SCALAR_BYTES:], "big")
    try:
        signer.signing.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise Tampered("this handshake was not signed with the key known for the peer") from error
