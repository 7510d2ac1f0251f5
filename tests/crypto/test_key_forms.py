"""One key, three ways to write it down, each read back as the same key and by other people's libraries."""

import json
import subprocess
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey

from batonpass.crypto import key_forms
from batonpass.crypto.errors import Malformed

KEY = ec.generate_private_key(ec.SECP256R1())
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
SCALARS = st.integers(1, ORDER - 1)


def key_of(scalar: int) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(scalar, ec.SECP256R1())


@given(SCALARS)
def test_every_form_is_read_back_as_the_same_key(scalar: int) -> None:
    key = key_of(scalar)
    public = key.public_key()
    name = key_forms.thumbprint(public)
    private_forms = [
        key_forms.decode_scalar_untrusted(key_forms.encode_scalar(key)),
        key_forms.private_key_from_jwk_untrusted(json.loads(json.dumps(key_forms.private_jwk(key)))),
        key_forms.private_key_from_pem_untrusted(key_forms.private_pem(key)),
    ]
    public_forms = [
        key_forms.decode_point_untrusted(key_forms.encode_point(public)),
        key_forms.decode_compressed_point_untrusted(key_forms.compress_point(public)),
        key_forms.public_key_from_jwk_untrusted(key_forms.public_jwk(public)),
        key_forms.public_key_from_pem_untrusted(key_forms.public_pem(public)),
        *(form.public_key() for form in private_forms),
    ]
    assert {key_forms.thumbprint(form) for form in public_forms} == {name}
    assert key_forms.is_kid(name)


def test_the_thumbprint_of_the_example_in_rfc_7517_appendix_a() -> None:
    """Its P-256 key; the thumbprint was computed with joserfc and jwcrypto."""
    jwk = {
        "kty": "EC",
        "crv": "P-256",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    }
    name = key_forms.thumbprint(key_forms.public_key_from_jwk_untrusted(jwk))
    assert name == ECKey.import_key(dict(jwk)).thumbprint() == "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s"


def test_a_small_key_keeps_its_leading_zeros() -> None:
    assert key_forms.encode_scalar(key_of(1)) == bytes(31) + b"\x01"
    assert len(key_forms.private_jwk(key_of(1))["d"]) == 43


def test_openssl_reads_both_pem_files() -> None:
    for pem, more in ((key_forms.private_pem(KEY), ()), (key_forms.public_pem(KEY.public_key()), ("-pubin",))):
        done = subprocess.run(
            ["openssl", "pkey", "-noout", "-text", *more], input=pem, capture_output=True, check=True, timeout=20
        )
        assert b"prime256v1" in done.stdout


READERS: list[Any] = [
    key_forms.decode_point_untrusted,
    key_forms.decode_compressed_point_untrusted,
    key_forms.decode_scalar_untrusted,
    key_forms.public_key_from_pem_untrusted,
    key_forms.private_key_from_pem_untrusted,
]


@pytest.mark.parametrize("read", READERS, ids=lambda read: str(read.__name__))
@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_key_are_malformed(read: Any, data: bytes) -> None:
    try:
        read(data)
    except Malformed:
        return
    assert read in READERS[:3]


@pytest.mark.parametrize(
    "pem",
    [
        key_forms.public_pem(KEY.public_key()),
        key_forms.private_pem(KEY) * 20,
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ],
    # They are drawn anew in each process, and workers have to name tests alike.
    ids=["a public key", "too long", "too short"],
)
def test_what_is_no_private_key_in_pem_is_malformed(pem: bytes) -> None:
    with pytest.raises(Malformed):
        key_forms.private_key_from_pem_untrusted(pem)


@pytest.mark.parametrize("scalar", [0, ORDER, 2**256 - 1])
def test_scalars_outside_the_group_are_malformed(scalar: int) -> None:
    with pytest.raises(Malformed, match="below the order"):
        key_forms.decode_scalar_untrusted(scalar.to_bytes(32, "big"))


def test_two_halves_of_different_keys_are_malformed() -> None:
    jwk = key_forms.private_jwk(KEY) | {"d": key_forms.private_jwk(key_of(7))["d"]}
    with pytest.raises(Malformed, match="another key"):
        key_forms.private_key_from_jwk_untrusted(jwk)


@given(st.one_of(st.text(max_size=50), st.none(), st.integers(), st.binary(min_size=32, max_size=32)))
def test_only_thumbprints_are_key_ids(value: object) -> None:
    assert not key_forms.is_kid(value) or (isinstance(value, str) and len(value) == key_forms.KID_CHARS)
    assert not key_forms.is_kid("A" * 42 + "B")
