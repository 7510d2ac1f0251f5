"""Tokens: one that is good is taken as it was said; whatever else anybody makes of it is refused, with its code."""

import base64
import hashlib
import hmac
import json
import re
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jwcrypto import jwk
from jwcrypto import jws as other_jws
from jwcrypto import jwt as other_jwt

from batonpass.crypto import jws
from batonpass.crypto.access_tokens import (
    LEEWAY_S,
    MAX_LIFE_S,
    MAX_REVOKED,
    MAX_TOKEN_CHARS,
    TokenIssuer,
    TokenRefused,
    TokenRole,
    TrustedIssuer,
)
from batonpass.crypto.errors import Malformed
from batonpass.crypto.key_forms import private_jwk, public_jwk, public_pem, thumbprint
from tests.budget import examples
from tests.tokens import NOW_S, claims_of, token_of

KEY: Final = ec.generate_private_key(ec.SECP256R1())
KID: Final = thumbprint(KEY.public_key())
ISSUER: Final = TokenIssuer("playground", KEY)
TRUSTED: Final = ISSUER.public()
HEADER: Final = {"alg": "ES256", "typ": "batonpass+jwt", "kid": KID}
GOOD: Final = ISSUER.sign(claims_of(TokenRole.OPERATOR))
few = settings(max_examples=examples(100))

names = st.from_regex(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}"), fullmatch=True)
patterns = st.from_regex(re.compile(r"/[A-Za-z0-9/._-]{0,30}\*?"), fullmatch=True)
scopes = st.lists(patterns, max_size=8).map(tuple)


def code_of(token: str, *, audience: str = "alpha", now_s: float = NOW_S, trusted: TrustedIssuer = TRUSTED) -> str:
    """Why it is refused; empty if it is not."""
    try:
        trusted.check_untrusted(token, audience, now_s)
    except TokenRefused as refused:
        return refused.code
    return ""


def signed(payload: bytes, header: dict[str, Any] = HEADER) -> str:
    """What the holder of the key may sign, by code that knows nothing of tokens."""
    return jws.sign(header, payload, KEY)


def said(**changed: Any) -> bytes:
    claims = claims_of(TokenRole.OPERATOR).to_json() | changed
    return json.dumps({name: value for name, value in claims.items() if value is not None}).encode()


def test_what_the_tests_make_is_taken() -> None:
    assert code_of(signed(said())) == code_of(GOOD) == ""


@few
@given(names, names, names, st.sampled_from(TokenRole), scopes, st.integers(1, MAX_LIFE_S))
def test_a_token_says_what_was_said(
    audience: str, subject: str, jti: str, role: TokenRole, scope: tuple[str, ...], life_s: int
) -> None:
    claims = claims_of(role, audience=audience, subject=subject, jti=jti, scope=scope, expires_s=NOW_S + life_s)
    token = ISSUER.sign(claims)
    assert TRUSTED.check_untrusted(token, audience, NOW_S) == claims
    assert len(token) <= MAX_TOKEN_CHARS


def test_another_library_reads_it_and_ours_reads_what_that_one_wrote() -> None:
    public = jwk.JWK(**public_jwk(KEY.public_key()))
    read = other_jws.JWS()
    read.deserialize(GOOD, public)
    assert json.loads(read.payload) == claims_of(TokenRole.OPERATOR).to_json()
    written = other_jwt.JWT(header=HEADER, claims=claims_of(TokenRole.OPERATOR).to_json(), algs=["ES256"])
    written.make_signed_token(jwk.JWK(**private_jwk(KEY)))
    assert code_of(written.serialize()) == ""


# --- what anybody can make of a token ---------------------------------------------------------------------------------


@settings(max_examples=examples(400))
@given(st.integers(0, len(GOOD) - 1), st.characters(codec="ascii"))
def test_with_one_character_changed_it_is_refused(place: int, other: str) -> None:
    changed = GOOD[:place] + other + GOOD[place + 1 :]
    assert (code_of(changed) == "") == (changed == GOOD)


@few
@given(st.text(max_size=60), st.integers(0, 3))
def test_what_is_no_token_is_refused(text: str, dots: int) -> None:
    assert code_of(text) == "wrong_token"
    assert code_of(text + "." * dots) == "wrong_token"
    assert code_of(GOOD + "." * (dots + 1)) == code_of(GOOD + "\n") == code_of(" " + GOOD) == "wrong_token"


@few
@given(st.integers(1, len(GOOD) - 1))
def test_a_part_of_a_token_is_refused(size: int) -> None:
    assert code_of(GOOD[:size]) == code_of(GOOD[size:]) == "wrong_token"


def test_what_is_longer_than_any_token_is_not_read() -> None:
    # The signature fits: only the length is wrong.
    long = signed(said() + b" " * MAX_TOKEN_CHARS)
    assert code_of(long) == "wrong_token"
    assert code_of(signed(said() + b" " * 100)) == ""
    assert code_of("a" * 10_000_000) == "wrong_token"


def _spelled(header: dict[str, Any], payload: bytes, signature: bytes) -> str:
    parts = (json.dumps(header).encode(), payload, signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "HS384", "HS512", "ES384", "ES256K", "RS256", "EdDSA"])
def test_another_algorithm_is_refused_also_with_the_public_key_as_the_secret(algorithm: str) -> None:
    header = HEADER | {"alg": algorithm}
    pem = public_pem(KEY.public_key())
    der = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    unsigned = _spelled(header, said(), b"").encode()[:-1]
    for secret in (pem, pem.strip(), der, json.dumps(public_jwk(KEY.public_key())).encode(), b""):
        mac = hmac.new(secret, unsigned, hashlib.sha256).digest()
        assert code_of(_spelled(header, said(), mac)) == "wrong_token"
    assert code_of(_spelled(header, said(), b"")) == "wrong_token"
    assert code_of(_spelled(header, said(), b"\0" * 64)) == "wrong_token"
    assert code_of(signed(said(), header)) == "wrong_token"


def test_another_header_is_refused_though_the_signature_fits() -> None:
    others: list[dict[str, Any]] = [
        HEADER | {"typ": "JWT"},
        HEADER | {"typ": "at+jwt"},
        HEADER | {"crit": ["exp"]},
        HEADER | {"b64": True},
        HEADER | {"jku": "https://mallory.invalid/keys"},
        HEADER | {"jwk": public_jwk(KEY.public_key())},
        HEADER | {"x5u": "https://mallory.invalid/"},
        HEADER | {"kid": 7},
        HEADER | {"kid": [KID]},
        {"alg": "ES256", "kid": KID},
        {"alg": "ES256", "typ": "batonpass+jwt"},
    ]
    for header in others:
        assert code_of(signed(said(), header)) == "wrong_token", header


def test_a_member_that_stands_twice_is_refused() -> None:
    payload = said().decode()
    twice = payload[:-1] + ', "role": "viewer"}'
    assert code_of(signed(twice.encode())) == "wrong_token"
    header = json.dumps(HEADER)[:-1] + ', "alg": "ES256"}'
    encoded = base64.urlsafe_b64encode(header.encode()).rstrip(b"=")
    assert code_of(jws.sign_encoded(encoded, said(), KEY)) == "wrong_token"


def test_the_key_of_another_is_refused_under_either_name() -> None:
    mallory = ec.generate_private_key(ec.SECP256R1())
    claims = claims_of(TokenRole.OPERATOR)
    assert code_of(TokenIssuer("playground", mallory).sign(claims)) == "wrong_token"
    assert code_of(jws.sign(HEADER, said(), mallory)) == "wrong_token"
    assert code_of(token_of(TokenRole.OPERATOR)) == "wrong_token"


# --- what the holder of the key may have said -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"role": "admin"},
        {"role": "OPERATOR"},
        {"role": ["operator"]},
        {"role": None},
        {"exp": None},
        {"nbf": None},
        {"iat": None},
        {"jti": None},
        {"aud": None},
        {"sub": None},
        {"iss": None},
        {"aud": ["alpha", "beta"]},
        {"aud": ["alpha"]},
        {"exp": True},
        {"exp": float(NOW_S)},
        {"exp": str(NOW_S + 60)},
        {"exp": 10**30},
        {"nbf": -1},
        {"exp": NOW_S + MAX_LIFE_S + 1},
        {"exp": NOW_S - 10, "nbf": NOW_S},
        {"scope": ""},
        {"scope": "tree"},
        {"scope": ["/v1/tree"]},
        {"scope": "/a  /b"},
        {"scope": "/a*b"},
        {"scope": " ".join(["/a"] * 9)},
        {"admin": True},
        {"sub": "a b"},
        {"sub": "a\u2028b"},
    ],
)
def test_what_cannot_be_said_is_refused_though_the_signature_fits(changed: dict[str, Any]) -> None:
    assert code_of(signed(said(**changed))) == "wrong_token"
    assert code_of(signed(b"[1]")) == code_of(signed(b"\xff")) == code_of(signed(b"")) == "wrong_token"


@few
@given(names.filter("alpha".__ne__))
def test_a_token_for_others_or_of_another_issuer_is_refused(other: str) -> None:
    assert code_of(ISSUER.sign(claims_of(audience=other))) == "wrong_audience"
    assert code_of(GOOD, audience=other) == "wrong_audience"
    if other != "playground":
        assert code_of(signed(said(iss=other))) == "wrong_issuer"
        with pytest.raises(ValueError, match="this issuer is playground"):
            ISSUER.sign(claims_of(issuer=other))


@few
@given(st.integers(-(2**33), 2**33))
def test_it_is_good_from_then_until_then_by_clocks_that_differ_a_little(off_s: int) -> None:
    now_s = NOW_S + off_s
    expected = ""
    if off_s < -LEEWAY_S:
        expected = "token_too_early"
    elif off_s >= 3600 + LEEWAY_S:
        expected = "token_expired"
    assert code_of(GOOD, now_s=now_s) == expected


@few
@given(patterns, st.text("abc/.*", max_size=12))
def test_a_scope_has_its_paths_and_no_other(pattern: str, rest: str) -> None:
    claims = claims_of(scope=(pattern,))
    begin = pattern.removesuffix("*")
    assert claims.covers(begin)
    assert claims.covers(begin + rest) == (pattern.endswith("*") or not rest)
    assert not claims.covers("x" + begin)
    assert claims_of().covers(rest)


# --- what a server believes -------------------------------------------------------------------------------------------


def test_the_file_of_an_issuer_has_no_private_key_and_is_read_back() -> None:
    revoked = TRUSTED.without("0002", NOW_S + 5, NOW_S)
    text = revoked.to_json()
    assert private_jwk(KEY)["d"] not in text
    read = TrustedIssuer.from_json_untrusted(text.encode())
    assert (read.name, read.kids, read.revoked) == ("playground", [KID], {"0002": NOW_S + 5})
    assert code_of(GOOD, trusted=read) == ""
    assert KEY.private_numbers().private_value not in vars(read).values()
    assert "private" not in repr(ISSUER)


def test_of_two_keys_either_is_believed_so_that_one_can_follow_the_other() -> None:
    later = TokenIssuer("playground", ec.generate_private_key(ec.SECP256R1()))
    both = TrustedIssuer("playground", [*TRUSTED.keys, *later.public().keys])
    assert code_of(GOOD, trusted=both) == code_of(later.sign(claims_of()), trusted=both) == ""
    assert code_of(GOOD, trusted=later.public()) == "wrong_token"


def test_a_revoked_token_is_refused_until_its_time_is_over_and_forgotten_then() -> None:
    trusted = TRUSTED.without("0001", NOW_S + 3600, NOW_S)
    assert code_of(GOOD, trusted=trusted) == "token_revoked"
    assert code_of(ISSUER.sign(claims_of(jti="0002")), trusted=trusted) == ""
    # Said again for a shorter time, it is still revoked for the longer one.
    again = trusted.without("0001", NOW_S + 1, NOW_S)
    assert again.revoked == {"0001": NOW_S + 3600}
    last = NOW_S + 3600 + LEEWAY_S - 1
    assert code_of(GOOD, trusted=again.without("0009", last + 9, last), now_s=last) == "token_revoked"
    assert again.without("0009", last + 9, last + 1).revoked == {"0009": last + 9}


def test_so_many_are_revoked_at_most() -> None:
    full = TrustedIssuer("playground", TRUSTED.keys, {f"t{one}": NOW_S + 9 for one in range(MAX_REVOKED)})
    assert TrustedIssuer.from_json_untrusted(full.to_json().encode()).revoked == full.revoked
    with pytest.raises(ValueError, match="replace the key of the issuer"):
        full.without("one more", NOW_S + 9, NOW_S)
    assert len(full.without("later", NOW_S + 999, NOW_S + 9 + LEEWAY_S).revoked) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": 7},
        {"issuer": "a b"},
        {"keys": []},
        {"keys": [7]},
        {"keys": [public_jwk(KEY.public_key())] * 9},
        {"keys": [public_jwk(KEY.public_key()) | {"kid": "x" * 43}]},
        {"revoked": {}},
        {"revoked": ["0001"]},
        {"revoked": [{"jti": "0001"}]},
        {"revoked": [{"jti": "0001", "exp": True}]},
        {"revoked": [{"jti": f"t{one}", "exp": 1} for one in range(MAX_REVOKED + 1)]},
    ],
)
def test_another_file_is_no_file_of_an_issuer(changed: dict[str, Any]) -> None:
    text = json.dumps(json.loads(TRUSTED.to_json()) | changed)
    with pytest.raises(Malformed):
        TrustedIssuer.from_json_untrusted(text.encode())


def test_an_issuer_has_a_name() -> None:
    with pytest.raises(ValueError, match="no name of an issuer"):
        TokenIssuer("a b", KEY)
    with pytest.raises(ValueError, match="no name"):
        claims_of(subject="")
