"""Certificates by which the members of one instance know each other, made from the secret they share.

The instance's certificate authority is a P-256 key derived from the secret (HKDF, RFC 5869). So every member can make
the same one, and it has not to be run. Each member has a key of its own and signs its own certificate, whose URI names
kind, instance and member. A stranger without the secret can make neither; a member could impersonate another member of
its own instance, which the shared secret allows anyway.

Certificates do not expire: they are worth what the secret is worth, and changing the secret changes the authority. So
no clock is looked at to judge one, and a member whose clock shows any year is a member.
"""

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from batonpass.tree.disk.disk import replace_file

__all__ = ["Credentials", "InstanceSecretTooShort", "KeyFileExposed", "member_uri"]

MIN_SECRET_BYTES: Final = 16
# Order of the P-256 group (FIPS 186-5), for a private key in [1, n - 1] from 48 derived bytes.
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_NOT_BEFORE: Final = datetime(2020, 1, 1, tzinfo=UTC)
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h (since 1.1.0), for which Python has no name.
_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
# RFC 5280, 4.1.2.5: the value for certificates without a well-defined end.
_NOT_AFTER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class InstanceSecretTooShort(ValueError):
    """The instance's secret is too short to be one; use at least 16 random bytes."""


class KeyFileExposed(Exception):
    """A private key file can be read by others."""


def member_uri(kind: str, instance: str, name: str) -> str:
    """The URI in a member's certificate. Names are escaped so that no two members share one."""
    return "batonpass://" + "/".join(part.encode().hex() for part in (kind, instance, name))


class Credentials:
    """A member's key and certificate, kept in its directory, and the TLS 1.3 contexts made of them."""

    def __init__(self, directory: Path, secret: bytes, *, kind: str, instance: str, name: str) -> None:
        """Load or make the key and the certificate. Raises `InstanceSecretTooShort`, `KeyFileExposed`, `OSError`."""
        if len(secret) < MIN_SECRET_BYTES:
            raise InstanceSecretTooShort(
                f"the secret of instance {instance!r} has {len(secret)} bytes; use at least {MIN_SECRET_BYTES}"
            )
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority_key = _authority_key(secret, kind, instance)
        authority = _authority_certificate(authority_key, instance)
        key_file, certificate_file = directory / "member.key.pem", directory / "member.cert.pem"
        key = _load_or_create_key(key_file)
        # Made anew at every start: it is cheap, and then it always fits the configuration.
        certificate = _member_certificate(key, authority_key, authority, member_uri(kind, instance, name))
        replace_file(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
        self.client_context: Final = _context(ssl.PROTOCOL_TLS_CLIENT, authority, key_file, certificate_file)
        self.server_context: Final = _context(ssl.PROTOCOL_TLS_SERVER, authority, key_file, certificate_file)


def _authority_key(secret: bytes, kind: str, instance: str) -> ec.EllipticCurvePrivateKey:
    info = b"batonpass instance authority v1\0" + kind.encode() + b"\0" + instance.encode()
    derived = HKDF(algorithm=hashes.SHA256(), length=48, salt=None, info=info).derive(secret)
    return ec.derive_private_key(int.from_bytes(derived, "big") % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def _authority_name(instance: str) -> x509.Name:
    # A common name has at most 64 characters (RFC 5280, appendix A).
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"batonpass {instance}"[:64])])


def _authority_certificate(key: ec.EllipticCurvePrivateKey, instance: str) -> x509.Certificate:
    name = _authority_name(instance)
    return (
        x509.CertificateBuilder(name, name, key.public_key(), 1, _NOT_BEFORE, _NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _member_certificate(
    key: ec.EllipticCurvePrivateKey, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, uri: str
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "batonpass member")])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    serial = x509.random_serial_number()
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        x509.CertificateBuilder(authority.subject, subject, key.public_key(), serial, _NOT_BEFORE, _NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _load_or_create_key(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        replace_file(path, pem, mode=0o600)
        return key
    if os.stat(path).st_mode & 0o077:
        raise KeyFileExposed(f"{path} can be read by others; run: chmod 600 {path}")
    try:
        key_read = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise KeyFileExposed(f"{path} is empty or damaged; move it away and it will be made anew") from error
    if not isinstance(key_read, ec.EllipticCurvePrivateKey):
        raise KeyFileExposed(f"{path} is not a P-256 key; move it away and it will be made anew")
    return key_read


def _context(protocol: int, authority: x509.Certificate, key_file: Path, certificate_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Peers are known by the URI in their certificate, not by a host name; see `tls.py`.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _NO_CHECK_TIME
    context.load_verify_locations(cadata=authority.public_bytes(serialization.Encoding.PEM).decode())
    context.load_cert_chain(certificate_file, key_file)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # sessions are not resumed
    return context
