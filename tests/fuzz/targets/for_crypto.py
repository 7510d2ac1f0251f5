"""Keys, envelopes and handshakes. What a stranger cannot sign is signed here for him, to reach what is behind."""

import json
from contextlib import suppress
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from batonpass.crypto import base64url, jose, jwe, jws, merkle, session
from batonpass.crypto.continuity import Published, Statement, first_pin, follow_untrusted, sign_reset, sign_successor
from batonpass.crypto.errors import (
    Expired,
    KeyConflict,
    Malformed,
    Replayed,
    Revoked,
    SeenFull,
    Tampered,
    UnknownSender,
    WrongReceiver,
)
from batonpass.crypto.key_forms import (
    compress_point,
    decode_compressed_point_untrusted,
    decode_point_untrusted,
    decode_scalar_untrusted,
    encode_point,
    encode_scalar,
    private_jwk,
    private_key_from_jwk_untrusted,
    private_key_from_pem_untrusted,
    private_pem,
    public_key_from_pem_untrusted,
    public_pem,
)
from batonpass.crypto.keys import Identity, RetiringIdentity
from batonpass.crypto.public_keys import PublicIdentity
from batonpass.crypto.seen import Seen
from batonpass.crypto.static_secrets import mac
from tests.fuzz.plain import NotPlain, from_json, to_json
from tests.fuzz.target import Target
from tests.fuzz.world import EPHEMERAL, IDENTITIES, NOW_S, private_key

ALPHA, BETA, MALLORY = (IDENTITIES[name] for name in ("alpha.h1", "beta.h1", "alpha.mallory"))
MAX_BYTES = 10_000
CLAIMS = jose.Claims("alpha.h1", "beta.h1", "transfer-1", 3, NOW_S + 60, "digest")
HEADER: dict[str, Any] = {
    "alg": "ES256", "typ": "batonpass-sealed", "cty": "JWE", "kid": ALPHA.public.signing_kid, "iss": "alpha.h1",
    "aud": "beta.h1", "tid": "transfer-1", "seq": 3, "exp": NOW_S + 60, "trace": "",
}  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# --- JOSE -------------------------------------------------------------------------------------------------------------


def _jwe_by(identity: Any = ALPHA) -> bytes:
    public = BETA.public
    return jwe.encrypt(b"payload", public.agreement, apu=identity.public.signing_kid, apv=public.agreement_kid)


def _sealed() -> bytes:
    return jose.seal(b"payload", CLAIMS, sender=ALPHA, receiver=BETA.public).encode()


def _open(token: str) -> object:
    opened = jose.open_untrusted(
        token,
        receiver=BETA,
        receiver_id="beta.h1",
        sender=ROTATED.public,
        now_s=NOW_S,
        max_bytes=MAX_BYTES,
        seen=Seen(16),
    )
    assert len(opened.payload) <= MAX_BYTES
    return opened


def _signed(header: Any, payload: bytes) -> str:
    """Signed by alpha; raises NotPlain for a header that cannot be written."""
    try:
        return jws.sign(header, payload, ALPHA.signing)
    except ValueError as error:
        raise NotPlain from error


def _open_signed_header(data: bytes) -> object:
    """Whatever header, signed with the right key, around a good JWE."""
    return _open(_signed(from_json(data), _jwe_by()))


def _open_signed_payload(data: bytes) -> object:
    """Whatever contents, signed with the right key: a malicious sender."""
    return _open(jws.sign(HEADER, data, ALPHA.signing))


def _statement(data: bytes) -> object:
    """The first byte chooses whether the rest is a whole statement, its payload, its header, or one of many."""
    if data[:1] == b"\x00":
        with suppress(Malformed, Tampered):
            jose.peek_statement_untrusted(_text(data[1:]))
        return jose.verify_untrusted(_text(data[1:]), sender=ROTATED.public)
    if data[:1] == b"\x03":
        text, _, proof = data[1:].partition(b"~")
        kinds = {"alg": "ES256", "typ": "batonpass-statements", "kid": ALPHA.public.signing_kid, "iss": "alpha.h1"}
        # Under the root that it leads to: what comes after that must be as hard as any other statement.
        head = jws.sign(kinds, merkle.root_untrusted(text, proof), ALPHA.signing)
        way = "~".join(base64url.encode(part).decode() for part in (text, proof))
        return jose.verify_untrusted(f"{head}~{way}", sender=ROTATED.public)
    header = {"alg": "ES256", "typ": "batonpass-statement", "kid": ALPHA.public.signing_kid, "iss": "alpha.h1"}
    if data[:1] == b"\x01":
        return jose.verify_untrusted(jws.sign(header, data[1:], ALPHA.signing), sender=ROTATED.public)
    return jose.verify_untrusted(_signed(from_json(data[1:]), b"{}"), sender=ROTATED.public)


def _statement_seeds() -> list[bytes]:
    good = jose.sign({"entity": "alpha.e", "epoch": 3}, sender_id="alpha.h1", sender=ALPHA).encode()
    header = {"alg": "ES256", "typ": "batonpass-statement", "kid": ALPHA.public.signing_kid, "iss": "alpha.h1"}
    many = jose.sign_all([{"entity": "alpha.e"}, {"entity": "alpha.f"}], sender_id="alpha.h1", sender=ALPHA)
    return [
        b"\x00" + good,
        b"\x00" + many[1].encode(),
        b"\x01" + b'{"a":1}',
        b"\x02" + json.dumps(header).encode(),
        b"\x03" + b'{"a":1}~' + bytes(34),
    ]


def _sealed_header(data: bytes) -> object:
    """Whatever the pattern takes is what JSON says."""
    read = jws._sealed_header_untrusted(data)
    assert read is None or read == jws.json_object_untrusted(data)
    return read


def _jws(data: bytes) -> object:
    compact = jws.read_untrusted(_text(data), max_header_chars=1536, max_chars=20_000)
    return compact.verify_untrusted(ALPHA.signing.public_key())


def _box(data: bytes) -> object:
    return jwe.box_decrypt_untrusted(data, BETA.agreement, max_bytes=MAX_BYTES)


def _jwe_header(data: bytes) -> object:
    """Whatever protected header, in an otherwise well-formed JWE."""
    protected = base64url.encode(to_json(from_json(data)))
    # By itself, as it is told ahead of its message: it must be no easier.
    jwe.agree_ahead_untrusted(protected, lambda _: BETA.agreement)
    return jwe.box_decrypt_untrusted(
        b".".join((protected, *_jwe_by().split(b".")[1:])), BETA.agreement, max_bytes=MAX_BYTES
    )


def _jwe_headers() -> list[bytes]:
    return [base64url.decode_untrusted(_jwe_by().split(b".")[0])]


# --- handshakes -------------------------------------------------------------------------------------------------------


def _initiator() -> session.Initiator:
    return session.Initiator(
        name="alpha.h1",
        identity=ALPHA,
        peer="beta.h1",
        peer_keys=BETA.public,
        session_id=7,
        incarnation=11,
        generation=1,
        ephemeral=EPHEMERAL,
    )


def _responder() -> session.Responder:
    hello = session.read_hello_untrusted(_initiator().hello, responder="beta.h1", responder_keys=BETA.public)
    return session.Responder(
        hello,
        identity=BETA,
        peer_keys=ALPHA.public,
        session_id=9,
        incarnation=13,
        ephemeral=private_key("responder"),
    )


def _hello(data: bytes) -> object:
    """As it comes; or with the MAC that everybody can make who knows our public keys."""
    if data[:1] == b"\x00":
        return session.read_hello_untrusted(data[1:], responder="beta.h1", responder_keys=BETA.public)
    covered = data[1 : 1 + session.HELLO_BYTES - 16].ljust(session.HELLO_BYTES - 16, b"\0")
    body = covered + session._hello_mac(BETA.public, covered)
    hello = session.read_hello_untrusted(body, responder="beta.h1", responder_keys=BETA.public)
    return session.Responder(
        hello, identity=BETA, peer_keys=ALPHA.public, session_id=9, incarnation=13, ephemeral=EPHEMERAL
    )


def _accept(data: bytes) -> object:
    """As it comes; or signed by the responder, whatever it says."""
    initiator = _initiator()
    if data[:1] == b"\x00":
        return initiator.finish_untrusted(data[1:])
    core = data[1 : 1 + session._ACCEPT_CORE.size]
    transcript = session._transcript(initiator._core, core, ALPHA.public, BETA.public)
    signature = session._sign(BETA, session._ACCEPT_LABEL + transcript)
    proof = mac(initiator._secrets.as_initiator()[0], session._ACCEPT_KIND, transcript, signature)
    return initiator.finish_untrusted(core + signature + proof)


def _confirm(data: bytes) -> object:
    """As it comes; or with the MAC of the initiator, whatever the signature is."""
    responder = _responder()
    if data[:1] == b"\x00":
        return responder.finish_untrusted(data[1:])
    signature = data[2:66].ljust(64, b"\0")
    proof = mac(responder._key, session._CONFIRM_KIND, responder._confirmed, signature)
    return responder.finish_untrusted(data[1:2] + signature + proof)


def _cookie(data: bytes) -> object:
    """The first 16 bytes are the header. As it comes; or with what shows that the HELLO was seen."""
    initiator = _initiator()
    header, body = data[1:17].ljust(16, b"\0"), data[17:]
    if data[:1] == b"\x01":
        body = session.echo_cookie(header, initiator.hello[-16:])
    return initiator.read_cookie_untrusted(header, body)


def _cookies() -> list[bytes]:
    initiator = _initiator()
    header = bytes([5, 0, 0, 0, 7, 0, 0, 0]) + b"a cookie"
    proved = mac(initiator._secrets.as_initiator()[0], header, initiator.hello[17:82])
    return [b"\x00" + header + proved, b"\x01" + header, b"\x00" + header + bytes(16)]


def _datagram(data: bytes) -> object:
    """The first 24 bytes are counter and header, the rest is sealed."""
    opened = session.Session(seal_key=b"k" * 16, seal_salt=b"salt", open_key=b"o" * 16, open_salt=b"salt")
    counter = int.from_bytes(data[:8].ljust(8, b"\0"), "little")
    sealed = memoryview(data)[24:]
    room = memoryview(bytearray(max(len(sealed) - 16, 0)))
    try:
        opened.open_into_untrusted(counter, data[8:24], sealed, room)
    except Tampered:
        return opened.open_untrusted(counter, data[8:24], sealed)  # which it is not there either
    assert opened.open_untrusted(counter, data[8:24], sealed) == room
    return bytes(room)


def _datagram_run(data: bytes) -> object:
    """Eight bytes of counter, one of the size of what is sealed, then whole datagrams."""
    opened = session.Session(seal_key=b"k" * 16, seal_salt=b"salt", open_key=b"o" * 16, open_salt=b"salt")
    size = 16 + (data[8] if len(data) > 8 else 0)
    datagrams = [data[at : at + size] for at in range(9, len(data) - size + 1, size)]
    headers, sealed = [one[:16] for one in datagrams], [one[16:] for one in datagrams]
    return opened.open_run_untrusted(int.from_bytes(data[:7].ljust(7, b"\0"), "little"), headers, sealed)


def _datagram_run_seeds() -> list[bytes]:
    sealed = [AESGCM(b"o" * 16).encrypt(b"salt" + bytes([n]) + bytes(7), b"frames", bytes(16)) for n in (0, 1)]
    return [bytes(8) + bytes([len(sealed[0])]) + b"".join(bytes(16) + one for one in sealed)]


def _datagram_seeds() -> list[bytes]:
    sealed = AESGCM(b"o" * 16).encrypt(b"salt" + bytes(8), b"frames", bytes(16))
    return [bytes(24) + sealed, bytes(24)]


def _accepted() -> bytes:
    return _responder().accept


def _confirmed() -> bytes:
    """The signatures of two responders differ, so this one does not fit; but it is entered as far as it can be."""
    return _initiator().finish_untrusted(_accepted())[1]


# --- keys -------------------------------------------------------------------------------------------------------------

OLD, OLDER = IDENTITIES["alpha.s1"], IDENTITIES["alpha.s2"]
ROTATED = Identity(
    ALPHA.signing,
    ALPHA.agreement,
    (RetiringIdentity(Identity(OLD.signing, OLD.agreement), round(NOW_S) + 600),),
    {MALLORY.public.signing_kid: round(NOW_S)},
)


def _jwks(data: bytes) -> object:
    keys = PublicIdentity.from_jwks_untrusted(from_json(data))
    assert keys == PublicIdentity.from_jwks_untrusted(keys.to_jwks())
    return keys


def _jwks_seeds() -> list[bytes]:
    return [json.dumps(identity.public.to_jwks()).encode() for identity in (ALPHA, ROTATED)]


def _private_jwk(data: bytes) -> object:
    jwk = from_json(data)
    return private_key_from_jwk_untrusted(jwk) if isinstance(jwk, dict) else None


def _raw_keys(data: bytes) -> None:
    for read in (
        decode_point_untrusted,
        decode_compressed_point_untrusted,
        decode_scalar_untrusted,
        public_key_from_pem_untrusted,
        private_key_from_pem_untrusted,
    ):
        with suppress(Malformed):
            read(data)


def _raw_key_seeds() -> list[bytes]:
    public = EPHEMERAL.public_key()
    return [
        encode_point(public), b"\x04" + bytes(64), compress_point(public), encode_scalar(EPHEMERAL), bytes(32),
        public_pem(public), private_pem(EPHEMERAL),
    ]  # fmt: skip


def _published(items: Any) -> Published:
    """Statements of which those that are objects get signed: by alpha's old keys, or, as resets, by beta."""
    if not isinstance(items, list) or not all(isinstance(item, dict | str) for item in items):
        raise NotPlain
    tokens = []
    for item in items:
        if isinstance(item, str):
            tokens.append(item)
            continue
        name, identity = ("beta.h1", BETA) if item.get("reset") else ("alpha.s1", OLD)
        try:
            tokens.append(jose.sign(item, sender=identity, sender_id=name))
        except ValueError as error:
            raise NotPlain from error
    return Published(len(tokens) + 1, ALPHA.public, tuple(tokens))


def _follow(data: bytes) -> object:
    pin = first_pin("alpha.s1", Published(1, OLD.public))
    shown = _published(from_json(data))
    return follow_untrusted(
        "alpha.s1", shown, pin, resetter=lambda name: BETA.public if name == "beta.h1" else None, now_s=NOW_S
    )


def _follow_seeds() -> list[bytes]:
    old = Published(1, OLD.public)
    tokens = [
        sign_successor("alpha.s1", old, ALPHA.public, signer=OLD, now_s=NOW_S),
        sign_reset(
            "alpha.s1", old, ALPHA.public, signer=BETA, signer_id="beta.h1", now_s=NOW_S, reason="the disk is lost"
        ),
    ]
    objects = [json.loads(base64url.decode_untrusted(token.split(".")[1].encode())) for token in tokens]
    return [to_json([item]) for item in (*tokens, *objects)]


def _key_statement(data: bytes) -> object:
    return Statement.from_data_untrusted(from_json(data))


def _key_statements() -> list[bytes]:
    return [to_json(json.loads(seed)[0]) for seed in _follow_seeds()[2:]]


SEALED_ERRORS = (Malformed, UnknownSender, Tampered, WrongReceiver, Expired, Replayed, Revoked, SeenFull)

TARGETS = [
    Target(
        "base64url",
        base64url.decode_untrusted,
        ["batonpass.crypto.base64url:decode_untrusted"],
        lambda: [b"AAEC", b"_-8", b"QQ"],
        (Malformed,),
    ),
    Target(
        "jose-peek",
        lambda data: (
            jose.peek_untrusted(_text(data)),
            jose.peek_sender_untrusted(_text(data)),
            jose.peek_key_untrusted(_text(data)),
        ),
        [
            "batonpass.crypto.jose:peek_untrusted",
            "batonpass.crypto.jose:peek_sender_untrusted",
            "batonpass.crypto.jose:peek_key_untrusted",
            "batonpass.crypto.jose:_sender_untrusted",
            "batonpass.crypto.jose:_kid_untrusted",
            "batonpass.crypto.jws:read_header_untrusted",
            "batonpass.crypto.jws:json_object_untrusted",
        ],
        lambda: [_sealed()],
        (Malformed,),
    ),
    Target(
        "jose-sealed-header",
        _sealed_header,
        ["batonpass.crypto.jws:_sealed_header_untrusted"],
        lambda: [base64url.decode_untrusted(_sealed().split(b".")[0])],
        (),
    ),
    Target(
        "jose-open",
        lambda data: _open(_text(data)),
        [
            "batonpass.crypto.jose:open_untrusted",
            "batonpass.crypto.jose:_claims_untrusted",
            "batonpass.crypto.jose:_verify_untrusted",
            "batonpass.crypto.jose:_key_untrusted",
            "batonpass.crypto.jose:_fitting_untrusted",
            "batonpass.crypto.jose:_decrypt_untrusted",
        ],
        lambda: [_sealed()],
        SEALED_ERRORS,
    ),
    Target(
        "jose-open-header", _open_signed_header, [], lambda: [json.dumps(HEADER).encode()], SEALED_ERRORS, plain="json"
    ),
    Target(
        "jose-open-payload", _open_signed_payload, [], lambda: [_jwe_by(), _jwe_by(MALLORY)], SEALED_ERRORS, slow=True
    ),
    Target(
        "jose-statement",
        _statement,
        [
            "batonpass.crypto.jose:peek_statement_untrusted",
            "batonpass.crypto.jose:verify_untrusted",
            "batonpass.crypto.jose:_signed_payload_untrusted",
            "batonpass.crypto.jose:_text_of_many_untrusted",
            "batonpass.crypto.merkle:root_untrusted",
        ],
        _statement_seeds,
        (Malformed, UnknownSender, Tampered, Expired, Revoked),
    ),
    Target(
        "jws",
        _jws,
        ["batonpass.crypto.jws:read_untrusted", "batonpass.crypto.jws:CompactJws.verify_untrusted"],
        lambda: [_sealed()],
        (Malformed, Tampered),
    ),
    Target(
        "jwe",
        _box,
        [
            "batonpass.crypto.jwe:box_decrypt_untrusted",
            "batonpass.crypto.jwe:read_untrusted",
            "batonpass.crypto.jwe:CompactJwe.decrypt_untrusted",
        ],
        lambda: [_jwe_by()],
        (Malformed, Tampered),
    ),
    Target(
        "jwe-header",
        _jwe_header,
        [
            "batonpass.crypto.jwe:agree_ahead_untrusted",
            "batonpass.crypto.jwe:_header_untrusted",
            "batonpass.crypto.jwe:_fields_untrusted",
            "batonpass.crypto.jwe:_coordinate_untrusted",
        ],
        _jwe_headers,
        (Malformed, Tampered),
        plain="json",
    ),
    Target(
        "jwks",
        _jwks,
        [
            "batonpass.crypto.public_keys:PublicIdentity.from_jwks_untrusted",
            "batonpass.crypto.public_keys:_our_jwks_untrusted",
            "batonpass.crypto.public_keys:_retiring_untrusted",
            "batonpass.crypto.public_keys:_revoked_untrusted",
            "batonpass.crypto.public_keys:_unix_s_untrusted",
            "batonpass.crypto.key_forms:public_key_from_jwk_untrusted",
            "batonpass.crypto.key_forms:_number_untrusted",
            "batonpass.crypto.key_forms:_canonical_untrusted",
        ],
        _jwks_seeds,
        (Malformed,),
        plain="json",
    ),
    Target(
        "private-jwk",
        _private_jwk,
        ["batonpass.crypto.key_forms:private_key_from_jwk_untrusted"],
        lambda: [to_json(private_jwk(EPHEMERAL))],
        (Malformed,),
        plain="json",
    ),
    Target(
        "raw-keys",
        _raw_keys,
        [
            "batonpass.crypto.key_forms:decode_point_untrusted",
            "batonpass.crypto.key_forms:decode_compressed_point_untrusted",
            "batonpass.crypto.key_forms:decode_scalar_untrusted",
            "batonpass.crypto.key_forms:_point_untrusted",
            "batonpass.crypto.key_forms:public_key_from_pem_untrusted",
            "batonpass.crypto.key_forms:private_key_from_pem_untrusted",
        ],
        _raw_key_seeds,
    ),
    Target(
        "key-statements",
        _follow,
        [
            "batonpass.crypto.continuity:follow_untrusted",
            "batonpass.crypto.continuity:newest_reset_untrusted",
            "batonpass.crypto.continuity:_path_untrusted",
            "batonpass.crypto.continuity:read_statement_untrusted",
            "batonpass.crypto.continuity:_head_untrusted",
            "batonpass.crypto.continuity:_verified_untrusted",
        ],
        _follow_seeds,
        (KeyConflict,),
        plain="json",
        slow=True,
    ),
    Target(
        "key-statement",
        _key_statement,
        ["batonpass.crypto.continuity:Statement.from_data_untrusted"],
        _key_statements,
        (Malformed,),
        plain="json",
    ),
    Target(
        "hello",
        _hello,
        ["batonpass.crypto.session:read_hello_untrusted", "batonpass.crypto.session:_name_untrusted"],
        lambda: [bytes([way]) + _initiator().hello for way in (0, 1)],
        (Malformed,),
    ),
    Target(
        "accept",
        _accept,
        [
            "batonpass.crypto.session:Initiator.finish_untrusted",
            "batonpass.crypto.session:Initiator._as_known_untrusted",
            "batonpass.crypto.session:_verify_untrusted",
        ],
        lambda: [bytes([way]) + _accepted() for way in (0, 1)],
        (Malformed, Tampered),
    ),
    Target(
        "confirm",
        _confirm,
        ["batonpass.crypto.session:Responder.finish_untrusted"],
        lambda: [bytes([way]) + _confirmed() for way in (0, 1)],
        (Malformed, Tampered),
    ),
    Target(
        "cookie", _cookie, ["batonpass.crypto.session:Initiator.read_cookie_untrusted"], _cookies, (Malformed, Tampered)
    ),
    Target(
        "sealed-datagrams",
        _datagram_run,
        ["batonpass.crypto.session:Session.open_run_untrusted"],
        _datagram_run_seeds,
        (Tampered,),
    ),
    Target(
        "sealed-datagram",
        _datagram,
        ["batonpass.crypto.session:Session.open_untrusted", "batonpass.crypto.session:Session.open_into_untrusted"],
        _datagram_seeds,
        (Tampered,),
    ),
]
