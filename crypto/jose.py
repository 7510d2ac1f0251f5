"""Sealed and signed envelopes: steps 3 and 4, 6 and 7 of the state transfer protocol, in standard JOSE.

`seal` encrypts for the receiver (compact JWE, RFC 7516: ECDH-ES with a fresh ephemeral key, A128GCM) and signs the
encrypted thing (compact JWS, RFC 7515: ES256). What Erlang's `box_encrypt` leaves open is inside the signed bytes here:
the receiver, the sender and its key, the transfer, a sequence number and the expiry. Without them a receiver could pass
a sealed message on to another as if it had been meant for that one. And a recorded one could be sent again. They stand
in the JWS header, which is the only thing parsed before the signature is verified, and it is bounded.

The JWE names both parties' keys in `apu` and `apv`, which enter the key derivation (RFC 7518 section 4.6.2).
So a stranger who takes the signature off and signs the ciphertext again is found out.

ECDSA signatures are malleable: who holds a sealed string can make a second one with the same contents.
Recognise repetitions by (sender, transfer_id, sequence), never by the string.

`sign` and `verify_untrusted` are for statements that need no secrecy, such as hand-off certificates. Many that are made
at one moment cost one signature (`sign_all`). It is over the root of a Merkle tree of them, and each statement carries
its way up. A receiver of some of them verifies one signature, and each can be shown by itself.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto import base64url, jwe, jws, merkle
from batonpass.crypto.base64url import encoded_chars
from batonpass.crypto.errors import CryptoError, Expired, Malformed, Tampered, WrongReceiver
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.names import are_names, is_name, require_name
from batonpass.crypto.nesting import is_deeper
from batonpass.crypto.seen import Seen, require_short_life
from batonpass.crypto.verified import Verified

MAX_HEADER_CHARS: Final = 1536
"""Bound of the base64url JWS header; ten fields of at most 128 characters need about 1,000."""

MAX_STATEMENT_BYTES: Final = 65_536
"""Bound of the JSON of a signed statement. Certificates with a long chain stay below a tenth of it."""

MAX_SEQUENCE: Final = 2**63 - 1

_WRITER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_SEALED_TYPE: Final = "batonpass-sealed"
_STATEMENT_TYPE: Final = "batonpass-statement"
_STATEMENTS_TYPE: Final = "batonpass-statements"
_NOBODY: Final[Mapping[str, jwe.AgreedKey]] = {}
_SEALED_FIELDS: Final = frozenset({"alg", "typ", "cty", "kid", "iss", "aud", "tid", "seq", "exp", "trace"})
_OPTIONAL_FIELDS: Final = frozenset({"log"})
_STATEMENT_FIELDS: Final = frozenset({"alg", "typ", "kid", "iss"})


@dataclass(frozen=True)
class Claims:
    """What the signature binds to the contents.

    `sender` and `receiver` are server names; `transfer_id` and `sequence` say which message of which transfer this is;
    `expires_at_s` is Unix time in seconds. `trace_digest` optionally fixes the hop trace so far. `log` says where the
    sender's log stands, as a text, if it is anything to the receiver.
    """

    sender: str
    receiver: str
    transfer_id: str
    sequence: int
    expires_at_s: float
    trace_digest: str = ""
    log: str = ""

    def __post_init__(self) -> None:
        optional = (self.trace_digest or self.transfer_id, self.log or self.transfer_id)
        if not are_names(self.sender, self.receiver, self.transfer_id, *optional):
            require_name("sender", self.sender)
            require_name("receiver", self.receiver)
            require_name("transfer_id", self.transfer_id)
            require_name("trace_digest", self.trace_digest)
            require_name("log", self.log)
        if not 0 <= self.sequence <= MAX_SEQUENCE:
            raise ValueError(f"sequence {self.sequence} is outside 0..2**63-1")
        if not math.isfinite(self.expires_at_s):
            raise ValueError(f"expires_at_s is {self.expires_at_s}; give Unix seconds")


@dataclass(frozen=True)
class Opened:
    """The contents of a sealed message and what was signed with them; `content_type` is what the sender calls them."""

    payload: bytes
    claims: Claims
    content_type: str = ""


def seal(
    payload: bytes,
    claims: Claims,
    *,
    sender: Identity,
    receiver: PublicIdentity,
    ready: jwe.ContentKey | None = None,
) -> str:
    """Encrypt `payload` for `receiver` and sign it as `sender`; only ASCII without whitespace comes out.

    The result is about 16/9 of the payload and 900 characters: base64url twice, which is what the standards
    say. `ready` is a key that was agreed on before, for these two parties (`agree`), and is used up by this.
    """
    key = agree(sender=sender, receiver=receiver) if ready is None else ready
    encrypted = key.encrypt(payload)
    return jws.sign_encoded(_sealed_header(claims, sender.public.signing_kid), encrypted, sender.signing)


def _sealed_header(claims: Claims, kid: str) -> bytes:
    """As `jws.encode_header`, to the byte, in a quarter of the time: names need no escapes (`crypto.names`)."""
    log = f',"log":"{claims.log}"' if claims.log else ""
    return base64url.encode(
        f'{{"alg":"ES256","typ":"{_SEALED_TYPE}","cty":"JWE","kid":"{kid}","iss":"{claims.sender}",'
        f'"aud":"{claims.receiver}","tid":"{claims.transfer_id}","seq":{claims.sequence},'
        f'"exp":{claims.expires_at_s!r},"trace":"{claims.trace_digest}"{log}}}'.encode("ascii")
    )


def agree(*, sender: Identity, receiver: PublicIdentity, content_type: str = "") -> jwe.ContentKey:
    """A key for one message of `sender` to `receiver`: most of what sealing costs, and it can be done ahead of it.

    `content_type` stands in the header of what is encrypted (`cty`), under the seal and the signature.
    """
    apu, apv = sender.public.signing_kid, receiver.agreement_kid
    return jwe.agree(receiver.agreement, apu=apu, apv=apv, cty=content_type)


def agree_ahead_untrusted(header: bytes, *, receiver: Identity, now_s: float) -> jwe.AgreedKey:
    """Agree on the key of a message that is still to come, by what it will begin with (`jwe.ContentKey.header`).

    Raises a CryptoError as `open_untrusted` does for the message: Malformed, WrongReceiver, Expired, Revoked.
    """
    return jwe.agree_ahead_untrusted(header, lambda apv: receiver.agreement_key(apv, now_s))


def peek_untrusted(sealed: str) -> tuple[str, str]:
    """Who a sealed message or a statement says it is from, so that its keys can be looked up. With which of them it
    says it is signed, so that newer ones can be fetched. Nothing is proved yet.

    Raises Malformed.
    """
    header = jws.read_header_untrusted(sealed, max_header_chars=MAX_HEADER_CHARS)
    return _sender_untrusted(header), _kid_untrusted(header)


def peek_sender_untrusted(sealed: str) -> str:
    """The sender of `peek_untrusted` alone. Raises Malformed."""
    return _sender_untrusted(jws.read_header_untrusted(sealed, max_header_chars=MAX_HEADER_CHARS))


def peek_key_untrusted(sealed: str) -> str:
    """The key of `peek_untrusted` alone. Raises Malformed."""
    return _kid_untrusted(jws.read_header_untrusted(sealed, max_header_chars=MAX_HEADER_CHARS))


def _sender_untrusted(header: Mapping[str, Any]) -> str:
    sender = header.get("iss")
    if not isinstance(sender, str) or not is_name(sender):
        raise Malformed("the header does not name its sender (`iss`)")
    return sender


def _kid_untrusted(header: Mapping[str, Any]) -> str:
    kid = header.get("kid")
    if not isinstance(kid, str) or not is_name(kid):
        raise Malformed("the header does not name a key (`kid`)")
    return kid


def open_untrusted(
    sealed: str,
    *,
    receiver: Identity,
    receiver_id: str,
    sender: PublicIdentity,
    now_s: float,
    max_bytes: int = 1_000_000,
    seen: Seen | None = None,
    agreed: Mapping[str, jwe.AgreedKey] = _NOBODY,
    whatever_age: bool = False,
) -> Opened:
    """Verify, then decrypt, a sealed message for `receiver_id` from `sender`; `now_s` is Unix time in
    seconds.

    Raises exactly one class of CryptoError for each way to be wrong. Malformed: not one of ours, or longer than a
    payload of `max_bytes` can be. UnknownSender: made with a key that is none of `sender`'s. Tampered: signature, seal
    or parties do not fit. WrongReceiver. Expired: also when a key it was made with or for has been replaced, and the
    overlap is over. Revoked: such a key. With `seen`: Replayed or SeenFull. A message that is valid for more than
    another 600 s, or what the `seen` allows, is Malformed. The signature is verified before anything but the bounded
    header is parsed.

    Give a `seen` where doing twice what a message asks for would be wrong. Where a repetition must get its answer
    again, because the first may have been lost, recognise it by (sender, transfer_id, sequence) instead.

    `agreed` are keys of messages to come, by their senders (`agree_ahead_untrusted`). `whatever_age` is for messages
    that prove in another way that they are new: when they say that they expire counts for nothing.
    """
    signed = jws.read_untrusted(sealed, max_header_chars=MAX_HEADER_CHARS, max_chars=_max_sealed_chars(max_bytes))
    claims = _claims_untrusted(signed.header)
    encrypted = _verify_untrusted(signed, sender, now_s)
    if claims.receiver != receiver_id:
        raise WrongReceiver(f"{claims.sender} sealed this for {claims.receiver}, not for {receiver_id}")
    if not whatever_age and now_s >= claims.expires_at_s:
        raise Expired(
            f"transfer {claims.transfer_id} from {claims.sender}: message {claims.sequence} expired "
            f"{now_s - claims.expires_at_s:.3f} s ago by the clock here: it was kept back, or the two clocks differ"
        )
    if seen is None and not whatever_age:
        require_short_life(claims.expires_at_s, now_s)
    apu = str(signed.header["kid"])
    ahead = agreed.get(claims.sender)
    payload, content_type = _decrypt_untrusted(encrypted, claims, receiver, apu, now_s, max_bytes, ahead)
    if seen is not None:
        seen.admit(signed.signed, sender=claims.sender, expires_at_s=claims.expires_at_s, now_s=now_s)
    return Opened(payload, claims, content_type)


def sign(payload: Mapping[str, Any], *, sender: Identity, sender_id: str) -> str:
    """Sign a JSON object as a compact JWS (ES256) that names `sender_id` and its key.

    The JSON is written in one way only (sorted keys, no spaces). Raises ValueError for an object that is not
    JSON, whose text is longer than 64 KiB, or that is nested deeper than `jws.MAX_JSON_LEVELS`.
    """
    header = _statement_header(_STATEMENT_TYPE, sender.public.signing_kid, sender_id)
    return jws.sign_encoded(header, _statement_text(payload), sender.signing)


def sign_all(payloads: Sequence[Mapping[str, Any]], *, sender: Identity, sender_id: str) -> list[str]:
    """Sign several JSON objects at once, each as `sign` would; several share one signature.

    Raises ValueError as `sign`, and for more than 1024.
    """
    if len(payloads) < 2:
        return [sign(payload, sender=sender, sender_id=sender_id) for payload in payloads]
    texts = [_statement_text(payload) for payload in payloads]
    root, proofs = merkle.root_and_proofs(texts)
    header = _statement_header(_STATEMENTS_TYPE, sender.public.signing_kid, sender_id)
    signed = jws.sign_encoded(header, root, sender.signing)
    return [
        f"{signed}~{base64url.encode(text).decode('ascii')}~{base64url.encode(proof).decode('ascii')}"
        for text, proof in zip(texts, proofs, strict=True)
    ]


# The same for every statement of a server, until its keys change.
@lru_cache(maxsize=64)
def _statement_header(kind: str, kid: str, sender_id: str) -> bytes:
    return jws.encode_header({"alg": "ES256", "typ": kind, "kid": kid, "iss": require_name("sender_id", sender_id)})


def _statement_text(payload: Mapping[str, Any]) -> bytes:
    if is_deeper(payload, jws.MAX_JSON_LEVELS):
        raise ValueError(f"a statement is nested at most {jws.MAX_JSON_LEVELS} levels deep")
    text = _WRITER.encode(payload).encode("ascii")
    if len(text) > MAX_STATEMENT_BYTES:
        raise ValueError(f"a statement holds at most {MAX_STATEMENT_BYTES} bytes of JSON, this one has {len(text)}")
    return text


def verify_untrusted(
    token: str, *, sender: PublicIdentity, now_s: float = -math.inf, verified: Verified | None = None
) -> dict[str, Any]:
    """The object that `sender` signed. Raises Malformed, UnknownSender, Expired, Revoked or Tampered.

    Without a `now_s` (Unix time in seconds), a key that is retiring counts as good: directories leave out those whose
    time is over. Whose name the statement carries is `peek_sender_untrusted(token)`; the caller looked `sender` up
    under it. With `verified`, a signature that is known to fit is not verified again; all the rest is.
    """
    head, is_of_many, way = token.partition("~")
    signed = _head_of_many(head) if is_of_many else _head(head, _STATEMENT_TYPE, _MAX_STATEMENT_CHARS)
    payload = _signed_payload_untrusted(head, signed, sender, now_s, verified)
    return jws.json_object_untrusted(_text_of_many_untrusted(way, payload) if is_of_many else payload)


def _head(head: str, kind: str, max_chars: int) -> jws.CompactJws:
    """What is signed of a statement of this kind, taken apart. Nothing is proved yet. Raises Malformed."""
    signed = jws.read_untrusted(head, max_header_chars=MAX_HEADER_CHARS, max_chars=max_chars)
    header = signed.header
    if header.keys() != _STATEMENT_FIELDS or header["typ"] != kind or not is_name(header["iss"]):
        raise Malformed("this is not a batonpass statement")
    return signed


# The same for all that share it, which come one after the other; at 4 kB each.
@lru_cache(maxsize=64)
def _head_of_many(head: str) -> jws.CompactJws:
    return _head(head, _STATEMENTS_TYPE, _MAX_HEAD_CHARS)


def is_of_many(token: str) -> bool:
    """Whether a statement shares its signature with others (`sign_all`)."""
    return "~" in token


def peek_statement_untrusted(token: str) -> dict[str, Any]:
    """What a statement says, of which nothing is proved: any sender may have written it.

    Raises Malformed, or Tampered for one of many that does not lead to the root that it comes with.
    """
    head, is_of_many, way = token.partition("~")
    signed = jws.read_untrusted(head, max_header_chars=MAX_HEADER_CHARS, max_chars=_MAX_STATEMENT_CHARS)
    payload = signed.read_verified()
    return jws.json_object_untrusted(_text_of_many_untrusted(way, payload) if is_of_many else payload)


def _signed_payload_untrusted(
    head: str, signed: jws.CompactJws, sender: PublicIdentity, now_s: float, verified: Verified | None
) -> bytes:
    if verified is None:
        return _verify_untrusted(signed, sender, now_s)
    key, kid = _key_untrusted(signed.header, sender, now_s), str(signed.header["kid"])
    if verified.knows(head, kid):
        return signed.read_verified()
    payload = _fitting_untrusted(signed, key)
    verified.note(head, kid)
    return payload


def _text_of_many_untrusted(way: str, root: bytes) -> bytes:
    """The one of many statements that leads to the root that is signed."""
    encoded, _, proof = way.partition("~")
    if len(encoded) > encoded_chars(MAX_STATEMENT_BYTES) or len(proof) > encoded_chars(merkle.MAX_PROOF_BYTES):
        raise Malformed("a statement, or its way up, is too long")
    text = base64url.decode_untrusted(encoded.encode("ascii", errors="replace"))
    if merkle.root_untrusted(text, base64url.decode_untrusted(proof.encode("ascii", errors="replace"))) != root:
        raise Tampered("this statement is none of those that were signed")
    return text


def _max_chars(payload_bytes: int) -> int:
    return MAX_HEADER_CHARS + jws.SIGNATURE_CHARS + 2 + encoded_chars(payload_bytes)


_MAX_STATEMENT_CHARS: Final = _max_chars(MAX_STATEMENT_BYTES)
_MAX_HEAD_CHARS: Final = _max_chars(merkle.ROOT_BYTES)


# A program has few bounds, and asks with each message.
@lru_cache(maxsize=16)
def _max_sealed_chars(payload_bytes: int) -> int:
    return _max_chars(jwe.OVERHEAD_CHARS + encoded_chars(payload_bytes))


def _claims_untrusted(header: dict[str, Any]) -> Claims:
    if header.keys() - _OPTIONAL_FIELDS != _SEALED_FIELDS or header["typ"] != _SEALED_TYPE or header["cty"] != "JWE":
        raise Malformed("this is not a sealed batonpass message")
    sequence, expires = header["seq"], header["exp"]
    texts = type(header["trace"]) is str and type(log := header.get("log", "")) is str
    if not texts or type(sequence) is not int or type(expires) not in {int, float}:
        raise Malformed("`seq` is an integer, `exp` a number of seconds, and `trace` and `log` are texts")
    try:
        # Which looks at each of the names.
        return Claims(header["iss"], header["aud"], header["tid"], sequence, float(expires), header["trace"], log)
    except (ValueError, OverflowError) as error:
        raise Malformed(str(error)) from error


def _verify_untrusted(signed: jws.CompactJws, sender: PublicIdentity, now_s: float) -> bytes:
    """The payload, once its signature fits `sender`'s key."""
    return _fitting_untrusted(signed, _key_untrusted(signed.header, sender, now_s))


def _key_untrusted(header: Mapping[str, Any], sender: PublicIdentity, now_s: float) -> ec.EllipticCurvePublicKey:
    """The key that the header names, if it is a good one of `sender`."""
    if header.get("alg") != "ES256":
        raise Malformed("batonpass signs with ES256 only")
    try:
        return sender.signing_key(str(header.get("kid")), now_s)
    except CryptoError as error:
        raise type(error)(f"{header.get('iss')!s:.128}: {error}") from error


def _fitting_untrusted(signed: jws.CompactJws, key: ec.EllipticCurvePublicKey) -> bytes:
    try:
        return signed.verify_untrusted(key)
    except Tampered as error:
        raise Tampered(f"the signature in the name of {signed.header.get('iss')!s:.128} does not fit") from error


def _decrypt_untrusted(
    token: bytes,
    claims: Claims,
    receiver: Identity,
    sender_kid: str,
    now_s: float,
    max_bytes: int,
    agreed: jwe.AgreedKey | None,
) -> tuple[bytes, str]:
    """The payload, and what its sender calls it."""
    try:
        encrypted = jwe.read_untrusted(token, max_bytes=max_bytes, agreed=agreed)
    except Malformed as error:
        raise Malformed(f"what {claims.sender} signed: {error}") from error
    header = encrypted.header
    try:
        key = receiver.agreement_key(header.apv, now_s)
    except CryptoError as error:
        raise type(error)(f"{claims.sender} wrote to {claims.receiver}: {error}") from error
    if header.apu != sender_kid:
        raise Tampered(f"{claims.sender} signed what another had sealed")
    try:
        return encrypted.decrypt_untrusted(key), header.cty
    except Tampered as error:
        raise Tampered(f"the seal of what {claims.sender} signed does not fit") from error
