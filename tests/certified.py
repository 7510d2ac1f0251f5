"""Certificates for tests, as a cluster makes them."""

from datetime import UTC, datetime
from pathlib import Path

from batonpass.actors.base.clock import Clock
from batonpass.authority.node.config import TlsSettings
from batonpass.scenarios.cluster.certificates import certify

__all__ = ["certified"]


def certified(directory: Path, name: str) -> TlsSettings:
    """The files of a server of a cluster in this directory, valid now, for loopback."""
    return certify(directory, name, "127.0.0.1", datetime.fromtimestamp(Clock().unix_s(), UTC), _write)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
