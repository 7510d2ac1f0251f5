"""Certificates for a TLS test of etcd: an authority, a server on loopback, a client, and an authority nobody knows."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["certificates", "tls_context"]

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(days=36500)


class _Authority:
    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder(self.name, self.name, self.key.public_key(), 1, BEGIN, END)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        self.certificate = builder.sign(self.key, hashes.SHA256())

    def issue(self, name: str, directory: Path) -> None:
        """A certificate for both ends: etcd's gateway is a client of its own server."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        serial = x509.random_serial_number()
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            x509.CertificateBuilder(self.name, subject, key.public_key(), serial, BEGIN, END)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        (directory / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (directory / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(not signs, False, False, False, False, signs, signs, False, False)


def certificates(directory: Path) -> dict[str, Path]:
    """The files by name: ca.pem, server.pem, server.key, client.pem, client.key, other.pem."""
    for name in ("ca", "other"):
        authority = _Authority(name)
        (directory / f"{name}.pem").write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
        if name == "ca":
            authority.issue("server", directory)
            authority.issue("client", directory)
    return {path.name: path for path in directory.glob("*.*")}


def tls_context(files: dict[str, Path]) -> ssl.SSLContext:
    """For a client that holds the client's certificate."""
    context = ssl.create_default_context(cafile=str(files["ca.pem"]))
    context.load_cert_chain(files["client.pem"], files["client.key"])
    return context
