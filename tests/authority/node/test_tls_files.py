"""The files by which a server proves itself over HTTP and believes others (`batonpass.authority.node.tls_files`)."""

import ssl
from pathlib import Path

import pytest

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.node.config import ConfigError, TlsSettings
from batonpass.authority.node.tls_files import believe_authorities, context_of
from tests.certified import certified


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsSettings:
    monkeypatch.setattr("batonpass.actors.http.client._Believed.context", None)
    return certified(tmp_path, "alpha.s1")


def test_a_server_proves_itself_by_the_files_that_it_has(files: TlsSettings) -> None:
    assert isinstance(context_of(files), ssl.SSLContext)
    assert context_of(None) is None


def test_it_believes_its_authority_alone_if_one_is_named(files: TlsSettings) -> None:
    believe_authorities(None)
    assert len(trusted_authorities().get_ca_certs()) != 1
    believe_authorities(files)
    (known,) = trusted_authorities().get_ca_certs()
    assert "batonpass cluster" in str(known["subject"])


def test_files_that_cannot_be_used_are_an_error_of_the_configuration(files: TlsSettings) -> None:
    files.certificate.write_text("no certificate")
    with pytest.raises(ConfigError, match="tls:"):
        context_of(files)
    assert files.authorities is not None
    files.authorities.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"tls\.authorities:"):
        believe_authorities(files)
