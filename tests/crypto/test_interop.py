"""What we write, others read, and the other way round: joserfc, jwcrypto, and what Erlang's jose has written."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwe as joserfc_jwe
from joserfc import jws as joserfc_jws
from joserfc.jwk import ECKey
from jwcrypto import jwe as jwcrypto_jwe
from jwcrypto import jwk as jwcrypto_jwk
from jwcrypto import jws as jwcrypto_jws

from batonpass.crypto import jwe, jws
from batonpass.crypto.base64url import decode_untrusted, encode
from batonpass.crypto.errors import Malformed, Tampered
from batonpass.crypto.jose import Claims, Opened, open_untrusted, seal
from batonpass.crypto.keys import Identity, thumbprint
from tests.budget import examples

NOW_S = 1_700_000_000.0
ERLANG: dict[str, Any] = json.loads((Path(__file__).parent / "erlang_jose.json").read_text())

# A scalar of P-256 makes a key: so the keys are random, and a failing one is shown.
scalars = st.integers(1, 2**255)
identities = st.lists(scalars, min_size=2, max_size=2, unique=True).map(
    lambda two: Identity(ec.derive_private_key(two[0], ec.SECP256R1()), ec.derive_private_key(two[1], ec.SECP256R1()))
)
# jwcrypto takes an empty plaintext for a failure; that we read and write it, Erlang's first box shows.
payloads = st.binary(min_size=1, max_size=3000)
Library = str
LIBRARIES = pytest.mark.parametrize("library", ["joserfc", "jwcrypto"])


def joserfc_registry() -> joserfc_jws.JWSRegistry:
    return joserfc_jws.JWSRegistry(algorithms=["ES256"], strict_check_header=False)


def verify(library: Library, token: str, key: ec.EllipticCurvePublicKey) -> bytes:
    if library == "joserfc":
        return joserfc_jws.deserialize_compact(token, ECKey.import_key(key), registry=joserfc_registry()).payload
    signature = jwcrypto_jws.JWS()
    signature.deserialize(token)
    signature.verify(jwcrypto_jwk.JWK.from_pyca(key))
    payload: bytes = signature.payload
    return payload


def sign(library: Library, header: dict[str, Any], payload: bytes, key: ec.EllipticCurvePrivateKey) -> str:
    if library == "joserfc":
        return joserfc_jws.serialize_compact(header, payload, ECKey.import_key(key), registry=joserfc_registry())
    signature = jwcrypto_jws.JWS(payload)
    signature.add_signature(jwcrypto_jwk.JWK.from_pyca(key), protected=json.dumps(header))
    token: str = signature.serialize(compact=True)
    return token


def decrypt(library: Library, token: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    if library == "joserfc":
        registry = joserfc_jwe.JWERegistry(algorithms=["ECDH-ES", "A128GCM"])
        plaintext = joserfc_jwe.decrypt_compact(token, ECKey.import_key(key), registry=registry).plaintext
        return b"" if plaintext is None else plaintext
    encryption = jwcrypto_jwe.JWE(algs=["ECDH-ES", "A128GCM"])
    encryption.deserialize(token, jwcrypto_jwk.JWK.from_pyca(key))
    payload: bytes = encryption.payload
    return payload


def encrypt(library: Library, header: dict[str, Any], plaintext: bytes, key: ec.EllipticCurvePublicKey) -> str:
    if library == "joserfc":
        registry = joserfc_jwe.JWERegistry(algorithms=["ECDH-ES", "A128GCM"])
        return joserfc_jwe.encrypt_compact(header, plaintext, ECKey.import_key(key), registry=registry)
    encryption = jwcrypto_jwe.JWE(plaintext, json.dumps(header))
    encryption.add_recipient(jwcrypto_jwk.JWK.from_pyca(key))
    token: str = encryption.serialize(compact=True)
    return token


@LIBRARIES
@given(alice=identities, bob=identities, payload=payloads)
@settings(max_examples=examples(25))
def test_others_verify_and_decrypt_what_we_seal(
    library: Library, alice: Identity, bob: Identity, payload: bytes
) -> None:
    claims = Claims("alpha.s1", "beta.s1", "tr-1", 7, NOW_S + 10, "digest")
    inner = verify(library, seal(payload, claims, sender=alice, receiver=bob.public), alice.public.signing)
    assert decrypt(library, inner.decode("ascii"), bob.agreement) == payload


@LIBRARIES
@given(alice=identities, bob=identities, payload=payloads)
@settings(max_examples=examples(25))
def test_we_open_what_others_encrypt_and_sign(library: Library, alice: Identity, bob: Identity, payload: bytes) -> None:
    claims = Claims("alpha.s1", "beta.s1", "tr-1", 7, NOW_S + 10, "digest")
    parties = {"apu": alice.public.signing_kid, "apv": bob.public.agreement_kid}
    inner = encrypt(library, {"alg": "ECDH-ES", "enc": "A128GCM", **parties}, payload, bob.public.agreement)
    ours = seal(b"", claims, sender=alice, receiver=bob.public)
    header = jws.read_header_untrusted(ours, max_header_chars=1536)
    token = sign(library, header, inner.encode("ascii"), alice.signing)
    opened = open_untrusted(token, receiver=bob, receiver_id="beta.s1", sender=alice.public, now_s=NOW_S)
    assert opened == Opened(payload, claims)


# --- Erlang's jose ----------------------------------------------------------------------------------------------------


def erlang_key(name: str) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(ERLANG[f"{name}_pem"].encode(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


ALICE, BOB = erlang_key("alice"), erlang_key("bob")


def test_both_call_a_key_by_the_same_thumbprint() -> None:
    assert thumbprint(ALICE.public_key()) == ERLANG["alice_thumbprint"]
    assert thumbprint(BOB.public_key()) == ERLANG["bob_thumbprint"]


@pytest.mark.parametrize("box", ERLANG["boxes"], ids=lambda box: f"{len(box['plaintext_hex']) // 2}-bytes")
def test_we_open_what_box_encrypt_of_erlang_has_written(box: dict[str, str]) -> None:
    opened = jwe.box_decrypt_untrusted(box["compact"].encode(), BOB, max_bytes=10_000)
    assert opened == bytes.fromhex(box["plaintext_hex"])
    with pytest.raises(Tampered):
        jwe.box_decrypt_untrusted(box["compact"].encode(), ALICE, max_bytes=10_000)


def test_we_verify_what_erlang_has_signed() -> None:
    signed = jws.read_untrusted(ERLANG["signed_box"], max_header_chars=100, max_chars=4000)
    box = signed.verify_untrusted(ALICE.public_key())
    assert jwe.box_decrypt_untrusted(box, BOB, max_bytes=100) == b"For Bob's eyes only."


def test_our_box_is_erlangs_byte_for_byte_except_for_what_is_random() -> None:
    theirs = ERLANG["boxes"][0]["compact"].encode().split(b".")
    ours = jwe.box_encrypt(b"For Bob's eyes only.", BOB.public_key(), ALICE).split(b".")
    assert ours[:2] == theirs[:2]
    assert [len(part) for part in ours] == [len(part) for part in theirs]


@given(alice=scalars, bob=scalars, payload=payloads)
@settings(max_examples=examples(25))
def test_others_open_our_boxes(alice: int, bob: int, payload: bytes) -> None:
    sender, receiver = (ec.derive_private_key(scalar, ec.SECP256R1()) for scalar in (alice, bob))
    token = jwe.box_encrypt(payload, receiver.public_key(), sender)
    assert jwe.box_decrypt_untrusted(token, receiver, max_bytes=3000) == payload
    assert decrypt("joserfc", token.decode(), receiver) == payload
    assert decrypt("jwcrypto", token.decode(), receiver) == payload


# --- the parts --------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_base64url_comes_back(data: bytes) -> None:
    assert decode_untrusted(encode(data)) == data


@given(st.binary(max_size=50))
def test_base64url_reads_nothing_else(text: bytes) -> None:
    try:
        data = decode_untrusted(text)
    except Malformed:
        return
    # The unused bits of the last character may be set; everything else is one to one.
    assert encode(data)[: len(text) - 1] == text[:-1]
    assert len(encode(data)) == len(text)


def _without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda header: {key: value for key, value in header.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        _without("epk"),
        _without("apu"),
        lambda header: header | {"zip": "DEF"},
        lambda header: header | {"crit": ["exp"], "exp": 1},
        lambda header: header | {"kid": "x", "jku": "https://example.org/keys"},
        lambda header: header | {"kid": 1},
        lambda header: header | {"typ": None},
        lambda header: header | {"cty": ["x"]},
        lambda header: header | {"apu": "="},
        lambda header: header | {"apv": 1},
        lambda header: header | {"epk": header["epk"] | {"d": "AA"}},
        lambda header: header | {"epk": header["epk"] | {"crv": "P-384"}},
        lambda header: header | {"epk": header["epk"] | {"x": header["epk"]["y"]}},
        lambda header: header | {"epk": header["epk"] | {"x": "é"}},
        lambda header: header | {"epk": None},
    ],
)
def test_an_encryption_of_another_form_is_malformed(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    token = jwe.box_encrypt(b"x", BOB.public_key(), ALICE).split(b".")
    header = json.loads(decode_untrusted(token[0]))
    token[0] = encode(json.dumps(change(header)).encode())
    with pytest.raises(Malformed):
        jwe.read_untrusted(b".".join(token), max_bytes=10)


@LIBRARIES
def test_members_that_only_describe_the_message_are_read_past(library: Library) -> None:
    """Programs write them as they please; they are covered by the seal like the rest of the header."""
    header = {"alg": "ECDH-ES", "enc": "A128GCM", "apu": "QQ", "apv": "Qg"}
    header |= {"typ": "JOSE", "cty": "text/plain", "kid": "bob-1"}
    token = encrypt(library, header, b"state", BOB.public_key()).encode("ascii")
    assert jwe.box_decrypt_untrusted(token, BOB, max_bytes=10) == b"state"
    first, *rest = token.split(b".")
    changed = json.loads(decode_untrusted(first)) | {"kid": "bob-2"}
    with pytest.raises(Tampered):
        jwe.box_decrypt_untrusted(b".".join([encode(json.dumps(changed).encode()), *rest]), BOB, max_bytes=10)


def test_a_member_given_twice_is_malformed() -> None:
    with pytest.raises(Malformed):
        jws.json_object_untrusted(b'{"alg": "ES256", "alg": "none"}')


def test_changed_parties_do_not_open() -> None:
    read = jwe.read_untrusted(jwe.box_encrypt(b"x", BOB.public_key(), ALICE), max_bytes=10)
    header = read.header
    swapped = [
        replace(read, header=other) for other in (replace(header, apu=header.apv), replace(header, apv=header.apu))
    ]
    for other in (*swapped, replace(read, nonce=bytes(12))):
        with pytest.raises(Tampered):
            other.decrypt_untrusted(BOB)
