"""Certificates of a local cluster: an authority of its own, and one certificate for each server.

```
DIR/secrets/tls-authority.pem    what clients believe the servers by: `baton --ca-file`, `curl --cacert`
DIR/secrets/tls-authority.key    with which `baton up` signs; servers never read it
DIR/alpha.h1/tls.pem             of one server, made anew once less than `RENEW_BEFORE` is left
DIR/alpha.h1/tls.key
```
"""

import ipaddress
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from batonpass.authority.node.config import TlsSettings

__all__ = ["authority_in", "certify"]

# Browsers take none for longer than 398 days of public authorities, Apple none for longer than 825 of any.
AUTHORITY_LASTS: Final = timedelta(days=3650)
SERVER_LASTS: Final = timedelta(days=397)
RENEW_BEFORE: Final = timedelta(days=90)
_SKEW: Final = timedelta(hours=1)
Write = Callable[[Path, str], None]
"""Writes a file that is for its owner alone."""


def authority_in(directory: Path) -> Path:
    """The certificate of the authority of a cluster in this directory."""
    return directory / "secrets" / "tls-authority.pem"


def certify(directory: Path, name: str, host: str, now: datetime, write: Write) -> TlsSettings:
    """The certificate of a server, valid for a good while, which is made where there is none.

    Args:
        directory: of the cluster.
        host: the address at which the server listens.

    Raises:
        OSError: a file cannot be read or written; ValueError if one is damaged.
    """
    authority, authority_key = _authority(directory, now, write)
    folder = directory / name
    files = TlsSettings(certificate=folder / "tls.pem", key=folder / "tls.key", authorities=authority_in(directory))
    if _is_good(files.certificate, files.key, authority, host, now):
        return files
    key = ec.generate_private_key(ec.SECP256R1())
    addresses = {ipaddress.ip_address(host), ipaddress.ip_address("127.0.0.1")}
    names = [x509.DNSName("localhost"), *map(x509.IPAddress, sorted(addresses, key=str))]
    made = (
        _begun(name, key, authority.subject, now, SERVER_LASTS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The key first: a certificate without its key would be taken for good.
    write(files.key, _pem(key))
    write(files.certificate, made.public_bytes(Encoding.PEM).decode())
    return files


def _authority(directory: Path, now: datetime, write: Write) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    file = authority_in(directory)
    key_file = file.with_suffix(".key")
    if file.exists():
        key = load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file} is no key of batonpass")
        return x509.load_pem_x509_certificate(file.read_bytes()), key
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"batonpass cluster {directory.name}"[:64]
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    made = (
        _begun(name, key, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), now, AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write(key_file, _pem(key))
    write(file, made.public_bytes(Encoding.PEM).decode())
    return made, key


def _begun(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, now: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasts)
    )


def _is_good(certificate: Path, key: Path, authority: x509.Certificate, host: str, now: datetime) -> bool:
    """Whether a certificate is there that this authority has signed for this host, and that lasts for a while."""
    if not certificate.exists() or not key.exists():
        return False
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    is_of_host = ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    try:
        found.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return is_of_host and now + RENEW_BEFORE < found.not_valid_after_utc


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
