"""Certificates for etcd's members, so that etcd pays for mutual TLS between its members as ours do."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["PeerCertificates", "make_peer_certificates"]

# Valid for long enough on both sides of a clock that jumps.
_NOT_BEFORE = datetime(2020, 1, 1, tzinfo=UTC)
_NOT_AFTER = _NOT_BEFORE + timedelta(days=36_500)


@dataclass(frozen=True)
class PeerCertificates:
    """PEM files. One certificate serves all members, which etcd allows."""

    authority: Path
    certificate: Path
    key: Path


def make_peer_certificates(directory: Path) -> PeerCertificates:
    """An authority and a certificate for 127.0.0.1, on P-256 as ours are, in a directory that is made if needed."""
    directory.mkdir(parents=True, exist_ok=True)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _name("batonpass benchmark authority")
    authority = (
        x509.CertificateBuilder(authority_name, authority_name, authority_key.public_key(), 1, _NOT_BEFORE, _NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(authority_name, _name("etcd member"), key.public_key(), 2, _NOT_BEFORE, _NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    files = PeerCertificates(directory / "authority.pem", directory / "peer.pem", directory / "peer.key.pem")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.touch(mode=0o600)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
