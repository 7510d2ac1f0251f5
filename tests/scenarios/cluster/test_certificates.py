"""The certificates of a local cluster: made once, renewed in time, and good for one server alone."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.clock import Clock
from batonpass.authority.node.config import TlsSettings
from batonpass.scenarios.cluster.certificates import RENEW_BEFORE, SERVER_LASTS, authority_in, certify

NOW = datetime.fromtimestamp(Clock().unix_s(), UTC)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def is_believed(files: TlsSettings, authority: Path, host: str) -> bool:
    """Whether a client that trusts the authority, and asks for `host`, agrees with a server on keys; in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=str(authority))
    # As Python 3.13 has it by itself.
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1"])
def test_a_server_is_believed_by_its_address_and_as_localhost(tmp_path: Path, host: str) -> None:
    files = certify(tmp_path, "alpha.h1", host, NOW, write)
    assert is_believed(files, authority_in(tmp_path), host)
    assert is_believed(files, authority_in(tmp_path), "localhost")
    assert not is_believed(files, authority_in(tmp_path), "10.9.9.9")


@given(later_days=st.integers(0, 800))
def test_it_is_kept_until_it_is_due(later_days: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("cluster")
    files = certify(directory, "alpha.h1", "127.0.0.1", NOW, write)
    before = files.certificate.read_bytes(), files.key.read_bytes()
    again = certify(directory, "alpha.h1", "127.0.0.1", NOW + timedelta(days=later_days), write)
    is_kept = timedelta(days=later_days) < SERVER_LASTS - RENEW_BEFORE
    assert ((again.certificate.read_bytes(), again.key.read_bytes()) == before) is is_kept


def test_one_of_another_authority_or_address_is_made_anew(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    files = certify(mine, "alpha.h1", "127.0.0.1", NOW, write)
    foreign = certify(theirs, "alpha.h1", "127.0.0.1", NOW, write)
    write(files.certificate, foreign.certificate.read_text())
    write(files.key, foreign.key.read_text())
    assert is_believed(certify(mine, "alpha.h1", "127.0.0.1", NOW, write), authority_in(mine), "127.0.0.1")
    assert is_believed(certify(mine, "alpha.h1", "10.0.0.7", NOW, write), authority_in(mine), "10.0.0.7")


def test_a_server_can_sign_for_no_other(tmp_path: Path) -> None:
    files = certify(tmp_path, "alpha.h1", "127.0.0.1", NOW, write)
    made = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    files = certify(tmp_path, "alpha.h1", "127.0.0.1", NOW, write)
    write(files.certificate, "nothing")
    with pytest.raises(ValueError, match="PEM"):
        certify(tmp_path, "alpha.h1", "127.0.0.1", NOW, write)
