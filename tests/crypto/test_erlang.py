"""Erlang's jose itself, in both directions: what it wrote once is in test_interop.py. `.ci/run` installs it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto import jwe, jws
from batonpass.crypto.jose import Claims, seal
from batonpass.crypto.key_forms import private_pem
from batonpass.crypto.keys import Identity, thumbprint

SIZES = (0, 1, 15, 16, 17, 1000, 65_535, 300_000)
"""Around the block of AES, and larger than what anything has a buffer for."""

ALICE = Identity.generate()


def short_key() -> ec.EllipticCurvePrivateKey:
    """One with a coordinate that begins with a zero byte, which must not be left out."""
    while True:
        key = ec.generate_private_key(ec.SECP256R1())
        numbers = key.public_key().public_numbers()
        if min(numbers.x, numbers.y) < 2**248:
            return key


@pytest.mark.skipif(
    shutil.which("escript") is None or not list(Path("/usr/lib/erlang/lib").glob("jose-*")),
    reason="needs Erlang and its jose: apt-get install erlang-base erlang-jose",
)
def test_erlangs_jose_opens_and_verifies_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    agreement, receiver = short_key(), short_key()
    bob = Identity(ec.generate_private_key(ec.SECP256R1()), receiver)
    private = {"signing": ALICE.signing, "agreement": agreement, "receiver": receiver}
    for name, key in private.items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_bytes(private_pem(key))
    plaintexts = {str(number): os.urandom(size) for number, size in enumerate(SIZES)}
    for case, plaintext in plaintexts.items():
        claims = Claims("alpha.s1", "beta.s1", "tr-1", int(case), 2e9)
        (tmp_path / f"{case}.plaintext").write_bytes(plaintext)
        (tmp_path / f"{case}.box").write_bytes(jwe.box_encrypt(plaintext, receiver.public_key(), agreement))
        (tmp_path / f"{case}.sealed").write_text(seal(plaintext, claims, sender=ALICE, receiver=bob.public))
    escript = Path(__file__).with_name("erlang_jose.escript")
    done = subprocess.run(
        ["escript", escript, tmp_path, *plaintexts], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert told[:3] == [thumbprint(key.public_key()) for key in private.values()]
    assert told[3:] == [f"{case} box true signature true sealed true" for case in plaintexts]
    for case, plaintext in plaintexts.items():
        box = (tmp_path / f"{case}.erlang-box").read_bytes()
        assert jwe.box_decrypt_untrusted(box, receiver, max_bytes=len(plaintext)) == plaintext
        signed = (tmp_path / f"{case}.erlang-signed").read_text()
        compact = jws.read_untrusted(signed, max_header_chars=1536, max_chars=2_000_000)
        assert compact.verify_untrusted(ALICE.signing.public_key()) == box
