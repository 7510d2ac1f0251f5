"""Sealed and signed envelopes: steps 3 and 4, 6 and 7 of the state transfer protocol, in standard JOSE.

`seal` encrypts for the receiver (compact JWE, RFC 7516: ECDH-ES with a fresh ephemeral key, A128GCM) and
signs the encrypted thing (compact JWS, RFC 7515: ES256). What Erlang's `box_encrypt` leaves open is inside
the signed bytes here: the receiver, the sender and its key, the transfer, a sequence number and the expiry.
Without them a receiver could pass a sealed message on to somebody else as if it had been meant for him, and a
recorded one could be sent again. They stand in the JWS header, which is the only thing parsed before the
signature is verified, and it is bounded.

The JWE names both parties' keys in `apu` and `apv`, which enter the key derivation (RFC 7518 section 4.6.2).
So a stranger who takes the signature off and signs the ciphertext himself is found out.

ECDSA signatures are malleable: who holds a sealed string can make a second one with the same contents.
Recognise repetitions by (sender, transfer_id, sequence), never by the string.

`sign` and `verify_untrusted` are for statements that need no secrecy, such as hand-off certificates.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from joserfc import jwe, jws
from joserfc.errors import ExceededSizeError, JoseError
from joserfc.registry import HeaderParameter
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode

from crypto.errors import Expired, Malformed, Tampered, UnknownSender, WrongReceiver
from crypto.keys import Identity, PublicIdentity
from crypto.names import is_name, require_name

MAX_HEADER_CHARS: Final = 1536
"""Bound of the base64url JWS header; ten fields of at most 128 characters need about 1,000."""

MAX_STATEMENT_BYTES: Final = 65_536
"""Bound of the JSON of a signed statement. Certificates with a long chain stay below a tenth of it."""

MAX_SEQUENCE: Final = 2**63 - 1

_SEALED_TYPE: Final = "batonpass-sealed"
_STATEMENT_TYPE: Final = "batonpass-statement"
_SIGNATURE_CHARS: Final = 86  # 64 bytes in base64url
_SEALED_FIELDS: Final = frozenset({"alg", "typ", "cty", "kid", "iss", "aud", "tid", "seq", "exp", "trace"})
_STATEMENT_FIELDS: Final = frozenset({"alg", "typ", "kid", "iss"})
_JWE_FIELDS: Final = frozenset({"alg", "enc", "epk", "apu", "apv"})
_JWE_OVERHEAD_CHARS: Final = 1024  # header with the ephemeral key, nonce, tag and dots take about 500


@dataclass(frozen=True)
class Claims:
    """What the signature binds to the contents.

    `sender` and `receiver` are server names, `transfer_id` and `sequence` say which message of which transfer
    this is, `expires_at_s` is Unix time in seconds, `trace_digest` optionally fixes the hop trace so far.
    """

    sender: str
    receiver: str
    transfer_id: str
    sequence: int
    expires_at_s: float
    trace_digest: str = ""

    def __post_init__(self) -> None:
        require_name("sender", self.sender)
        require_name("receiver", self.receiver)
        require_name("transfer_id", self.transfer_id)
        if self.trace_digest:
            require_name("trace_digest", self.trace_digest)
        if not 0 <= self.sequence <= MAX_SEQUENCE:
            raise ValueError(f"sequence {self.sequence} is outside 0..2**63-1")
        if not math.isfinite(self.expires_at_s):
            raise ValueError(f"expires_at_s is {self.expires_at_s}; give Unix seconds")


@dataclass(frozen=True)
class Opened:
    """The contents of a sealed message and what was signed with them."""

    payload: bytes
    claims: Claims


def seal(payload: bytes, claims: Claims, *, sender: Identity, receiver: PublicIdentity) -> str:
    """Encrypt `payload` for `receiver` and sign it as `sender`; only ASCII without whitespace comes out.

    The result is about 16/9 of the payload and 900 characters: base64url twice, which is what the standards
    say.
    """
    encrypted = jwe.encrypt_compact(
        {
            "alg": "ECDH-ES",
            "enc": "A128GCM",
            "apu": _party(sender.public.signing_kid),
            "apv": _party(receiver.agreement_kid),
        },
        payload,
        receiver.agreement_jwk,
        registry=_JWE_WRITER,
    )
    header = {
        "alg": "ES256",
        "typ": _SEALED_TYPE,
        "cty": "JWE",
        "kid": sender.public.signing_kid,
        "iss": claims.sender,
        "aud": claims.receiver,
        "tid": claims.transfer_id,
        "seq": claims.sequence,
        "exp": claims.expires_at_s,
        "trace": claims.trace_digest,
    }
    return jws.serialize_compact(header, encrypted, sender.signing_jwk, registry=_JWS_WRITER)


def peek_sender_untrusted(sealed: str) -> str:
    """Who a sealed message or a statement says it is from, so that its keys can be looked up. Nothing is
    proved yet.

    Raises Malformed.
    """
    header = _split_untrusted(sealed, max_chars=None).header
    sender = header.get("iss")
    if not isinstance(sender, str) or not is_name(sender):
        raise Malformed("the header does not name its sender (`iss`)")
    return sender


def open_untrusted(
    sealed: str,
    *,
    receiver: Identity,
    receiver_id: str,
    sender: PublicIdentity,
    now_s: float,
    max_bytes: int = 1_000_000,
) -> Opened:
    """Verify, then decrypt, a sealed message for `receiver_id` from `sender`; `now_s` is Unix time in
    seconds.

    Raises exactly one class of CryptoError for each way to be wrong: Malformed (not one of ours, or longer
    than a payload of `max_bytes` can be), UnknownSender (made with another key than `sender`'s), Tampered
    (signature, seal or parties do not fit), WrongReceiver, Expired. The signature is verified before anything
    but the bounded header is parsed.
    """
    parts = _split_untrusted(sealed, max_chars=_max_sealed_chars(max_bytes))
    claims = _claims_untrusted(parts.header)
    _verify_untrusted(sealed, parts.header, sender, max_bytes)
    if claims.receiver != receiver_id:
        raise WrongReceiver(f"{claims.sender} sealed this for {claims.receiver}, not for {receiver_id}")
    if now_s >= claims.expires_at_s:
        raise Expired(
            f"transfer {claims.transfer_id} from {claims.sender}: message {claims.sequence} expired "
            f"{now_s - claims.expires_at_s:.3f} s ago"
        )
    return Opened(_decrypt_untrusted(parts.payload, claims, receiver, sender, max_bytes), claims)


def sign(payload: Mapping[str, Any], *, sender: Identity, sender_id: str) -> str:
    """Sign a JSON object as a compact JWS (ES256) that names `sender_id` and its key.

    The JSON is written in one way only (sorted keys, no spaces). Raises ValueError for an object that is not
    JSON or whose text is longer than 64 KiB.
    """
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(text) > MAX_STATEMENT_BYTES:
        raise ValueError(f"a statement holds at most {MAX_STATEMENT_BYTES} bytes of JSON, this one has {len(text)}")
    header = {
        "alg": "ES256",
        "typ": _STATEMENT_TYPE,
        "kid": sender.public.signing_kid,
        "iss": require_name("sender_id", sender_id),
    }
    return jws.serialize_compact(header, text, sender.signing_jwk, registry=_JWS_WRITER)


def verify_untrusted(token: str, *, sender: PublicIdentity) -> dict[str, Any]:
    """The object that `sender` signed. Raises Malformed, UnknownSender or Tampered.

    Whose name the statement carries is `peek_sender_untrusted(token)`; the caller looked `sender` up under
    it.
    """
    parts = _split_untrusted(token, max_chars=MAX_HEADER_CHARS + _SIGNATURE_CHARS + 2 + _b64_chars(MAX_STATEMENT_BYTES))
    header = parts.header
    if header.keys() != _STATEMENT_FIELDS or header["typ"] != _STATEMENT_TYPE or not is_name(header["iss"]):
        raise Malformed("this is not a batonpass statement")
    payload = _verify_untrusted(token, header, sender, MAX_STATEMENT_BYTES)
    statement = _json_object_untrusted(payload)
    if statement is None:
        raise Malformed("the signed statement is not a JSON object")
    return statement


@dataclass(frozen=True)
class _Parts:
    header: dict[str, Any]
    payload: str


def _split_untrusted(token: str, *, max_chars: int | None) -> _Parts:
    """The parsed header and the unparsed payload of a compact JWS. Looks at no more than it must."""
    if max_chars is not None and len(token) > max_chars:
        raise Malformed(f"a signed message here is a string of at most {max_chars} characters")
    end = token.find(".", 0, MAX_HEADER_CHARS + 1)
    if end <= 0:
        raise Malformed("a signed message begins with a bounded header and a dot")
    try:
        header = _json_object_untrusted(urlsafe_b64decode(token[:end].encode("ascii")))
    except ValueError as error:  # of base64 and of a character that is not ASCII
        raise Malformed("the header is not base64url") from error
    if header is None:
        raise Malformed("the header is not a JSON object")
    if max_chars is None:
        return _Parts(header, "")
    payload, dot, signature = token[end + 1 :].partition(".")
    if not dot or len(signature) != _SIGNATURE_CHARS or not payload:
        raise Malformed("a signed message has three parts, the last an ES256 signature")
    return _Parts(header, payload)


def _json_object_untrusted(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _claims_untrusted(header: dict[str, Any]) -> Claims:
    if header.keys() != _SEALED_FIELDS or header["typ"] != _SEALED_TYPE or header["cty"] != "JWE":
        raise Malformed("this is not a sealed batonpass message")
    sequence, expires = header["seq"], header["exp"]
    if type(sequence) is not int or type(expires) not in {int, float}:
        raise Malformed("`seq` is an integer and `exp` a number of seconds")
    for field in ("iss", "aud", "tid", "trace"):
        if not is_name(header[field]) and not (field == "trace" and header[field] == ""):
            raise Malformed(f"`{field}` is not a name")
    try:
        return Claims(header["iss"], header["aud"], header["tid"], sequence, float(expires), header["trace"])
    except (ValueError, OverflowError) as error:
        raise Malformed(str(error)) from error


def _verify_untrusted(token: str, header: dict[str, Any], sender: PublicIdentity, max_bytes: int) -> bytes:
    """The payload of the compact JWS, once its signature fits `sender`'s key."""
    if header.get("alg") != "ES256":
        raise Malformed("batonpass signs with ES256 only")
    if header.get("kid") != sender.signing_kid:
        raise UnknownSender(
            f"signed with key {header.get('kid')!s:.64}, but the key known for {header.get('iss')!s:.128} is "
            f"{sender.signing_kid}"
        )
    try:
        return jws.deserialize_compact(token, sender.signing_jwk, registry=_registries(max_bytes)[0]).payload
    except ExceededSizeError as error:
        raise Malformed(f"a signed payload here has at most {max_bytes} bytes") from error
    except (JoseError, ValueError, TypeError) as error:
        raise Tampered(f"the signature in the name of {header.get('iss')!s:.128} does not fit") from error


def _decrypt_untrusted(
    encrypted: str, claims: Claims, receiver: Identity, sender: PublicIdentity, max_bytes: int
) -> bytes:
    try:
        inner = urlsafe_b64decode(encrypted.encode("ascii"))
        header = _json_object_untrusted(urlsafe_b64decode(inner[:MAX_HEADER_CHARS].partition(b".")[0]))
    except ValueError as error:
        raise Malformed(f"what {claims.sender} signed is not a compact JWE") from error
    epk = None if header is None else header.get("epk")
    if header is None or header.keys() != _JWE_FIELDS or not isinstance(epk, dict) or epk.keys() != _EPK_FIELDS:
        raise Malformed(f"what {claims.sender} signed is not a JWE of the form used here")
    if header["alg"] != "ECDH-ES" or header["enc"] != "A128GCM" or epk["crv"] != "P-256":
        raise Malformed("batonpass encrypts with ECDH-ES on P-256 and A128GCM only")
    if header["apv"] != _party(receiver.public.agreement_kid):
        raise WrongReceiver(
            f"{claims.sender} sealed this for another key of {claims.receiver}: it must fetch the new one"
        )
    if header["apu"] != _party(sender.signing_kid):
        raise Tampered(f"{claims.sender} signed what somebody else had sealed")
    try:
        plaintext = jwe.decrypt_compact(inner, receiver.agreement_jwk, registry=_registries(max_bytes)[1]).plaintext
    except ExceededSizeError as error:
        raise Malformed(f"a payload here has at most {max_bytes} bytes") from error
    except (JoseError, ValueError, TypeError, AssertionError) as error:
        raise Tampered(f"the seal of what {claims.sender} signed does not fit") from error
    return b"" if plaintext is None else plaintext


_EPK_FIELDS: Final = frozenset({"kty", "crv", "x", "y"})

_CLAIM_PARAMETERS: Final = {
    "iss": HeaderParameter("Sender", "str"),
    "aud": HeaderParameter("Receiver", "str"),
    "tid": HeaderParameter("Transfer id", "str"),
    "seq": HeaderParameter("Sequence number", "int"),
    "exp": HeaderParameter("Expiry, Unix seconds", lambda _: None),  # checked with the other claims
    "trace": HeaderParameter("Digest of the hop trace", "str"),
}


@lru_cache(maxsize=64)
def _party(kid: str) -> str:
    """A key's thumbprint as `apu`/`apv`, which are base64url of bytes."""
    return urlsafe_b64encode(kid.encode("ascii")).decode("ascii")


def _b64_chars(size_bytes: int) -> int:
    return (size_bytes * 4 + 2) // 3


def _max_sealed_chars(max_bytes: int) -> int:
    return MAX_HEADER_CHARS + _SIGNATURE_CHARS + 2 + _b64_chars(_JWE_OVERHEAD_CHARS + _b64_chars(max_bytes))


@lru_cache(maxsize=16)
def _registries(max_bytes: int) -> tuple[jws.JWSRegistry, jwe.JWERegistry]:
    """What joserfc may read; its own caps (64 KiB of ciphertext) are below an entity's state, so they follow
    `max_bytes`."""
    signed = jws.JWSRegistry(header_registry=_CLAIM_PARAMETERS, algorithms=["ES256"])
    signed.max_header_length = MAX_HEADER_CHARS
    signed.max_payload_length = _b64_chars(_JWE_OVERHEAD_CHARS + _b64_chars(max_bytes))
    encrypted = jwe.JWERegistry(algorithms=["ECDH-ES", "A128GCM"])
    encrypted.max_ciphertext_length = _b64_chars(max_bytes)
    return signed, encrypted


_JWS_WRITER, _JWE_WRITER = _registries(0)  # joserfc checks sizes only when it reads
