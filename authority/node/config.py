"""Configuration that both kinds of server share: addresses, TOML loading, and one error for all of it.

A server reads one TOML file; flags of the command line override single fields. Secrets are never written into that
file: it names files that hold them, so that a configuration can be shown to every reader.

A line for people about each peer whose messages are refused because of who sealed them, or how: not one a message.

A forged, replayed or misdirected message is dropped without an answer (FAILURES rows 17 and 18), so its sender learns
nothing; an operator should. What is named is the peer of an authenticated link. What has no such name is counted by the
link alone, since any name that it gave could be another's. The line has no contents of messages and no keys, and what a
peer chose of it is shortened and quoted, so that it stays one line.

Without a clock: the caller hands over the time.
"""

import ipaddress
import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from batonpass.authority.model.addresses import check_url, ip_version
from batonpass.authority.names import INSTANCE_PATTERN, NAME_PATTERN
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.continuity import MIN_ROTATION_S
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_files import read_private

__all__ = [
    "INTERVAL_NS",
    "MAX_AUDITED",
    "MAX_REASON",
    "Address",
    "ConfigError",
    "InstanceName",
    "LinkAddress",
    "RejectedPeers",
    "RestAddress",
    "RotationPeriod",
    "ServedSettings",
    "ServerName",
    "ServerUrl",
    "Settings",
    "TelemetrySettings",
    "TlsSettings",
    "read_secret",
    "require_different",
]

_log = logging.getLogger("batonpass.authority.node.config")

ServerName = Annotated[str, Field(pattern=NAME_PATTERN)]
InstanceName = Annotated[str, Field(pattern=INSTANCE_PATTERN)]


def _rotation_period(value_s: float) -> float:
    if value_s and not MIN_ROTATION_S <= value_s <= 3650 * 86_400:
        raise ValueError(f"keys are rotated after {MIN_ROTATION_S:.0f} s to ten years, or never (0)")
    return value_s


RotationPeriod = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_rotation_period)]
"""After how many seconds a server replaces its own keys; 0 means never. See `actors.net.key_service`."""

FUNCTION_PATTERN: Final = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
MAX_HANDLERS: Final = 16

# Long enough that guessing is hopeless, short enough that a pasted book is noticed.
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 1024
MAX_SECRET_FILE_BYTES = 4096


class ConfigError(Exception):
    """The configuration cannot be used; the sentence names the file, the field and the remedy."""


class Address(BaseModel):
    """Where a server listens: a host to bind and a port (0 lets the kernel choose)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it, as far as its text says."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url(self) -> str:
        """The address as the base of an HTTP URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def _for_others(address: Address) -> Address:
    try:
        is_wildcard = ipaddress.ip_address(address.host).is_unspecified
    except ValueError:
        return address
    if is_wildcard:
        text = (
            f"{address.host} is registered as it stands, and no other server can use it: give the interface's address"
        )
        raise ValueError(text)
    return address


def _for_link(address: Address) -> Address:
    ip_version(address.host)
    return address


def _url(url: str) -> str:
    check_url(url)
    return url


RestAddress = Annotated[Address, AfterValidator(_for_others)]
"""Where the REST of a server listens that is registered with others: no wildcard."""

LinkAddress = Annotated[Address, AfterValidator(_for_link)]
"""Where a server's link listens: a numeric address, as others are to send to it; see `authority.model.addresses`."""

ServerUrl = Annotated[str, AfterValidator(_url)]
"""The base URL of another server's REST."""


def _list_of_handlers(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f'a list of functions is expected, such as ["{value}"]')
    return value


class TelemetrySettings(BaseModel):
    """Who listens to a server's telemetry: functions as `package.module:function`; see `telemetry_handlers`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    handlers: Annotated[
        tuple[Annotated[str, Field(pattern=FUNCTION_PATTERN)], ...], BeforeValidator(_list_of_handlers)
    ] = Field(default=(), max_length=MAX_HANDLERS)


class TlsSettings(BaseModel):
    """What a server proves itself by over HTTP, in PEM: its certificate (and those between), and its private key.

    `authorities` are the certificates by which it believes other servers, in place of the system's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path
    key: Path
    authorities: Path | None = None


class Settings(BaseModel):
    """Base of every server's configuration model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    FORMER: ClassVar[Mapping[str, str]] = {}
    """Names of fields in the release before, by which a file is still read, and their present names."""

    @classmethod
    def load(cls, path: Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read `path`, lay `overrides` (dotted field → value, `None` means "not given") over it, and check it.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or a field is missing, unknown or of a wrong type.
        """
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
        for former, name in cls.FORMER.items():
            _rename(path, data, former, name)
        for dotted, value in (overrides or {}).items():
            if value is not None:
                _set_dotted(data, dotted, value)
        try:
            settings = cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise ConfigError(f"{path}: {where}: {first['msg']}") from error
        if misread := _truth_taken_for_a_number(settings, data):
            raise ConfigError(f"{path}: {misread}: Input should be a number, not true or false")
        return settings


class ServedSettings(Settings):
    """Of a server that is asked over HTTP: by TLS, or on loopback, or without it because somebody says so."""

    name: ServerName
    rest: Address = Address()
    tls: TlsSettings | None = None
    # Beyond loopback without TLS: a proxy has it, or nobody else is on the network.
    plain_http: bool = False
    log_level: str = "INFO"
    # For people or for programs; see `scenarios.cli.log_lines`.
    log_format: Literal["text", "json"] = "text"

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        seen = (one for name, one in self if isinstance(one, Address) and name != "link" and not one.is_loopback)
        exposed = next(seen, None)
        if self.tls is None and not self.plain_http and exposed is not None:
            raise ValueError(
                f"{exposed.host} is reached from other machines: give tls.certificate and tls.key, or say "
                "plain_http = true where a proxy has TLS or the network is trusted"
            )
        return self

    @property
    def rest_url(self) -> str:
        """The base URL of its REST, as long as its port is not the kernel's to choose."""
        return self.rest.url if self.tls is None else self.rest.url.replace("http:", "https:", 1)


def _truth_taken_for_a_number(settings: BaseModel, data: Mapping[str, Any]) -> str:
    """The first field whose `true` or `false` was read as one or nothing, as Python does; empty if there is none."""
    found = (_truth_within(name, getattr(settings, name, given), given) for name, given in data.items())
    return next(filter(None, found), "")


def _truth_within(where: str, value: object, given: object) -> str:
    """As `_truth_taken_for_a_number`: of what was given for a field, and was read as `value`."""
    if isinstance(given, bool) and not isinstance(value, bool):
        return where
    if isinstance(value, BaseModel) and isinstance(given, Mapping):
        within = _truth_taken_for_a_number(value, given)
        return f"{where}.{within}" if within else ""
    if isinstance(value, list | tuple) and isinstance(given, list):
        pairs = enumerate(zip(value, given, strict=False))
        return next(filter(None, (_truth_within(f"{where}.{at}", one, raw) for at, (one, raw) in pairs)), "")
    return ""


def _rename(path: Path, data: dict[str, Any], former: str, name: str) -> None:
    if former not in data:
        return
    if name in data:
        raise ConfigError(f"{path}: {former} is the former name of {name}: give {name} alone")
    _log.warning("%s: %s is called %s now, and the next release does not read the former name", path, former, name)
    data[name] = data.pop(former)


def _set_dotted(data: dict[str, Any], dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise ConfigError(f"cannot override {dotted}: {parent} is not a table")
    data[last] = value


def read_secret(path: Path, *, min_bytes: int = MIN_SECRET_BYTES) -> bytes:
    """Read a shared secret from a file of this server's user that no other user may read.

    Raises:
        ConfigError: missing, readable by others or another user's, no file, or of an unlikely length.
    """
    try:
        secret = read_private(path, max_bytes=MAX_SECRET_FILE_BYTES).strip()
    except OSError as error:
        raise ConfigError(f"cannot read secret file {path}: {error.strerror}") from error
    except KeyFileError as error:
        raise ConfigError(f"secret file {error}") from error
    if not min_bytes <= len(secret) <= MAX_SECRET_BYTES:
        raise ConfigError(f"secret file {path} holds {len(secret)} bytes; expected {min_bytes} to {MAX_SECRET_BYTES}")
    return secret


def require_different(secrets: Mapping[str, bytes | None]) -> None:
    """Raise ConfigError if two of these secrets, by the names of their settings, are one.

    Who has one of them could do what takes the other: a client what only operators and servers may.
    """
    known: dict[bytes, str] = {}
    for setting, secret in secrets.items():
        if secret is None:
            continue
        if (other := known.setdefault(secret, setting)) != setting:
            raise ConfigError(f"{setting} and {other} hold the same secret: make one for each")


_audit_log = logging.getLogger("batonpass.audit")

INTERVAL_NS: Final = 60_000_000_000
"""Of one peer there is a line so often at most; the next one says how many there were meanwhile."""
MAX_AUDITED: Final = 1024
"""Peers that are remembered; the one with the oldest line is forgotten first, and its next line comes at once."""
MAX_REASON: Final = 200
"""Characters of the reason in a line."""


class RejectedPeers:
    """Whose messages were dropped, and how often since the last line about it."""

    def __init__(self) -> None:
        # Of each peer: when there was a line, and how many went without since.
        self._peers: FifoTable[str, tuple[int, int]] = FifoTable(MAX_AUDITED)

    def dropped(self, peer: str, error: Exception, now_ns: int) -> bool:
        """A message of `peer` was dropped because of `error`; whether there is a line about it."""
        written_ns, quiet = self._peers.get(peer, (now_ns - INTERVAL_NS, 0))
        if now_ns - written_ns < INTERVAL_NS:
            self._peers[peer] = written_ns, quiet + 1
            return False
        self._peers.pop(peer, None)
        self._peers[peer] = now_ns, 0
        reason = ascii(str(error)[:MAX_REASON])
        _audit_log.warning("audit: event=message_dropped peer=%s reason=%s unlogged_before=%d", peer, reason, quiet)
        return True
