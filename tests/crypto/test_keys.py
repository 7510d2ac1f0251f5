"""Identities: their published form and their files."""

import contextlib
import copy
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey

from batonpass.crypto.errors import KeyFileError, Malformed
from batonpass.crypto.key_store import AGREEMENT_FILE, RING_FILE, SIGNING_FILE, KeyStore
from batonpass.crypto.keys import Identity, PublicIdentity, decode_point_untrusted, encode_point
from batonpass.crypto.pin_file import PinFile

IDENTITY = Identity.generate()


def test_a_public_identity_survives_json() -> None:
    text = json.dumps(IDENTITY.public.to_jwks())
    assert PublicIdentity.from_jwks_untrusted(json.loads(text)) == IDENTITY.public
    assert hash(PublicIdentity.from_jwks_untrusted(json.loads(text))) == hash(IDENTITY.public)


def test_one_key_does_not_both_sign_and_agree() -> None:
    """It could never be replaced either: the old one would stand among the retiring keys twice."""
    with pytest.raises(ValueError, match="both signs and agrees"):
        Identity(IDENTITY.signing, IDENTITY.signing)
    signing, agreement = IDENTITY.public.to_jwks()["keys"]
    one = {name: signing[name] for name in ("kty", "crv", "x", "y", "kid")}
    with pytest.raises(Malformed, match="both signs and agrees"):
        PublicIdentity.from_jwks_untrusted({"keys": [signing, agreement | one]})
    # Nor as one that retires.
    with pytest.raises(Malformed):
        PublicIdentity.from_jwks_untrusted(
            {"keys": [signing, agreement, *({**key, **one, "exp": 9} for key in (signing, agreement))]}
        )


def test_key_ids_are_the_thumbprints_of_rfc_7638() -> None:
    """Checked against joserfc, which computes them on its own."""
    assert IDENTITY.public.signing_kid == ECKey.import_key(IDENTITY.public.signing).thumbprint()
    assert IDENTITY.public.agreement_kid == ECKey.import_key(IDENTITY.public.agreement).thumbprint()


def test_identities_differ_when_one_key_differs() -> None:
    other = Identity(IDENTITY.signing, Identity.generate().agreement)
    assert other.public != IDENTITY.public
    assert IDENTITY.public != "IDENTITY"


def changed(index: int, **members: Any) -> dict[str, Any]:
    jwks = IDENTITY.public.to_jwks()
    jwks["keys"][index] |= members
    return jwks


@pytest.mark.parametrize(
    "obj",
    [
        None,
        [],
        {},
        {"keys": {}},
        {"keys": []},
        {"keys": [1]},
        {"keys": [{}] * 17},
        {"keys": IDENTITY.public.to_jwks()["keys"][:1]},
        {"keys": IDENTITY.public.to_jwks()["keys"][:1] * 2},
        changed(0, x="AA"),
        changed(0, x=7),
        changed(0, x="A" * 43),
        changed(0, x="A" * 42 + "B"),
        changed(0, x="!" * 43),
        changed(1, y="é" * 43),
        changed(0, kid=IDENTITY.public.agreement_kid),
        changed(0, crv="P-384"),
        changed(0, use="enc"),
    ],
)
def test_anything_else_is_malformed(obj: object) -> None:
    with pytest.raises(Malformed):
        PublicIdentity.from_jwks_untrusted(obj)


def test_a_private_key_in_a_published_set_is_refused_loudly() -> None:
    with pytest.raises(Malformed, match="private key"):
        PublicIdentity.from_jwks_untrusted(changed(0, d="AAAA"))


def test_keys_of_other_kinds_in_the_set_are_ignored() -> None:
    jwks = IDENTITY.public.to_jwks()
    jwks["keys"].insert(0, {"kty": "OKP", "crv": "Ed25519", "x": "AA", "use": "sig"})
    assert PublicIdentity.from_jwks_untrusted(jwks) == IDENTITY.public


@given(st.binary(max_size=70))
def test_bytes_are_a_point_or_malformed(data: bytes) -> None:
    for candidate in (data, b"\x04" + data[:64].ljust(64, b"\x07")):
        with contextlib.suppress(Malformed):
            assert encode_point(decode_point_untrusted(candidate)) == candidate


def test_other_curves_are_a_programming_error() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(ValueError, match="P-256"):
        Identity(key, key)


def test_an_identity_shows_no_secret_and_is_not_copied() -> None:
    secret = str(IDENTITY.signing.private_numbers().private_value)
    assert secret not in repr(IDENTITY)
    assert IDENTITY.public.signing_kid in repr(IDENTITY)
    with pytest.raises(TypeError, match="stay where they are"):
        copy.deepcopy(IDENTITY)


def test_the_first_load_creates_and_the_second_finds_the_same(tmp_path: Path) -> None:
    directory = tmp_path / "server" / "keys"
    first = KeyStore(directory).load_or_create()
    assert KeyStore(directory).load_or_create().public == first.public
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name for path in directory.iterdir()} == {SIGNING_FILE, AGREEMENT_FILE}
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_an_interrupted_creation_is_continued(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    identity = KeyStore(directory).load_or_create()
    (directory / SIGNING_FILE).unlink()
    assert KeyStore(directory).load_or_create().public.agreement_kid == identity.public.agreement_kid


def test_a_lost_agreement_key_is_not_replaced_silently(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    (directory / AGREEMENT_FILE).unlink()
    with pytest.raises(KeyFileError, match="restore it from a backup"):
        KeyStore(directory).load_or_create()


def test_keys_that_others_can_read_are_refused_with_the_remedy(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    (directory / SIGNING_FILE).chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        KeyStore(directory).load_or_create()
    (directory / SIGNING_FILE).chmod(0o600)
    directory.chmod(0o755)
    with pytest.raises(KeyFileError, match="chmod 700"):
        KeyStore(directory).load_or_create()


def test_keys_of_another_user_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    # Only root could give the file to somebody else; anybody can be somebody else.
    somebody_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody_else)
    with pytest.raises(KeyFileError, match="chown"):
        KeyStore(directory).load_or_create()


def test_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    other = ec.generate_private_key(ec.SECP384R1())
    (directory / SIGNING_FILE).write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(KeyFileError, match="not P-256"):
        KeyStore(directory).load_or_create()


def test_processes_that_start_at_once_end_up_with_one_identity(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    program = (
        "import sys\nfrom pathlib import Path\nfrom crypto.key_store import KeyStore\n"
        "sys.stdin.read()\nprint(KeyStore(Path(sys.argv[1])).load_or_create().public.signing_kid)"
    )
    arguments = [sys.executable, "-c", program, str(directory)]
    running = [subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for process in running:
        assert process.stdin is not None
        process.stdin.close()
    kids = set()
    for process in running:
        assert process.stdout is not None
        with process.stdout as out:
            kids.add(out.read().decode().strip())
        assert process.wait() == 0
    assert kids == {KeyStore(directory).load_or_create().public.signing_kid}


def test_keys_half_written_by_a_process_that_was_killed_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    secret = (directory / SIGNING_FILE).read_bytes()
    for name in (
        ".signing.pem.123.draft",
        ".signing-2.pem.123.draft",
        ".agreement-7.pem.1.draft",
        ".ring.json.9.draft",
    ):
        (directory / name).write_bytes(secret[:50])
    KeyStore(directory).load_or_create()
    assert {path.name for path in directory.iterdir()} == {SIGNING_FILE, AGREEMENT_FILE}


@pytest.mark.parametrize("name", [SIGNING_FILE, AGREEMENT_FILE, RING_FILE])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name, 0o600)
    with pytest.raises(KeyFileError, match="is no file"):
        KeyStore(directory).load_or_create()
    os.mkfifo(tmp_path / "pins", 0o600)
    with pytest.raises(KeyFileError, match="is no file"):
        PinFile(tmp_path / "pins").load()


def test_what_the_system_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "file" / "keys"):
        with pytest.raises(KeyFileError, match="cannot be"):
            KeyStore(wrong).load_or_create()


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_damaged_files_say_what_to_do(tmp_path: Path, content: bytes) -> None:
    directory = tmp_path / "keys"
    KeyStore(directory).load_or_create()
    (directory / SIGNING_FILE).write_bytes(content)
    with pytest.raises(KeyFileError, match="restore it from a backup"):
        KeyStore(directory).load_or_create()
