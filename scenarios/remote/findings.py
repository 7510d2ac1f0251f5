"""What `baton doctor` looks at: this machine, the files of a server, and an instance that runs.

Each check gives findings: what it is about, how it is, what was seen, and what to do. Nothing is changed: where a disk
is measured a file is written that has no name.
"""

import os
import resource
import shutil
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from batonpass.actors.http.tokens import MAX_ISSUER_BYTES
from batonpass.authority.node.config import Address, ConfigError, read_secret, require_different
from batonpass.crypto.access_tokens import TrustedIssuer
from batonpass.crypto.errors import CryptoError, KeyFileError
from batonpass.crypto.key_files import read_private
from batonpass.crypto.key_store import KeyStore
from batonpass.homeserver.config import HomeserverConfig, RelayConfig
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.simserver.server.config import SimserverConfig

__all__ = ["Finding", "FindingState", "check_config", "check_disk", "check_instance", "check_machine"]

_MIN_FILES: Final = 4096
_MIN_FREE_BYTES: Final = 1024**3
_SYNCS: Final = 20
_SLOW_SYNC_S: Final = 0.02
_BAD_SYNC_S: Final = 0.2
_MIN_RECEIVE_BYTES: Final = 200 * 1024
_NEWEST_RMEM: Final = Path("/proc/sys/net/core/rmem_max")
_EXTRAS: Final = {"prometheus_client": "metrics", "numpy": "arrays"}

Call = Callable[[str], Any]
"""GET of a path of a homeserver: the JSON of its answer; raises as `RemoteServer.call`."""


class FindingState(StrEnum):
    """How something is."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `remedy` is empty if all is well."""

    about: str
    state: FindingState
    seen: str
    remedy: str = ""


def _judged(about: str, seen: str, *, bad: str = "", warning: str = "") -> Finding:
    """A finding that is bad, or a warning, if there is a remedy for that."""
    if bad:
        return Finding(about, FindingState.BAD, seen, bad)
    return Finding(about, FindingState.WARNING if warning else FindingState.OK, seen, warning)


# --- this machine -----------------------------------------------------------------------------------------------------


def check_machine(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """What every server of this machine stands on."""
    version = ".".join(map(str, sys.version_info[:3]))
    is_old = sys.version_info < (3, 11)
    yield _judged("python", f"Python {version}", bad="install Python 3.11 or newer" if is_old else "")
    is_slow = "--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    remedy = "use a Python built with --enable-optimizations, as distributions have: it is faster"
    yield _judged("python build", "not optimized" if is_slow else "optimized", warning=remedy if is_slow else "")
    if "PYTHONDONTWRITEBYTECODE" in environment:
        text = "unset PYTHONDONTWRITEBYTECODE, or each process compiles all sources when it starts"
        yield _judged("bytecode", "not kept", warning=text)
    for module, extra in _EXTRAS.items():
        is_there = find_spec(module) is not None
        text = f"if it is wanted: pip install 'batonpass[{extra}]'"
        yield _judged(f"extra {extra}", "installed" if is_there else "not installed", warning="" if is_there else text)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < _MIN_FILES
    text = f"raise it to {_MIN_FILES} or more: LimitNOFILE= of systemd, or ulimit -n (at most {hard} here)"
    yield _judged("open files", f"{soft} at most", warning=text if few else "")
    yield from _check_udp()
    yield from _check_names()


def _check_udp() -> Iterator[Finding]:
    try:
        room = int(_NEWEST_RMEM.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return
    text = f"sysctl -w net.core.rmem_max={2 * 1024 * 1024}, or bursts of the link are dropped"
    is_small = room < _MIN_RECEIVE_BYTES
    yield _judged("datagrams", f"{room // 1024} KiB may wait for a reader", warning=text if is_small else "")


def _check_names() -> Iterator[Finding]:
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo("localhost", None)}
    except OSError as error:
        yield _judged("localhost", f"is not found: {error.strerror}", bad="put 127.0.0.1 localhost into /etc/hosts")
        return
    text = "" if "127.0.0.1" in found else "put 127.0.0.1 localhost into /etc/hosts, or give servers numeric addresses"
    yield _judged("localhost", ", ".join(sorted(found)), warning=text)


def check_disk(directory: Path, sync: Callable[[int], None] = os.fsync) -> Iterator[Finding]:
    """Whether a log may be kept in a directory that is there: its room, and how long it takes to be sure of a write."""
    about = f"disk of {directory}"
    try:
        free = shutil.disk_usage(directory).free
        slowest = _slowest_sync_s(directory, sync)
    except OSError as error:
        yield _judged(about, f"cannot be written: {error.strerror}", bad="give it to the user who runs the server")
        return
    is_full = free < _MIN_FREE_BYTES
    yield _judged(about, f"{free / 1e9:.1f} GB free", bad="make room: a full disk ends the server" if is_full else "")
    text = "put it on a disk of its own: every change of the log waits for a sync"
    slow = {"bad": text} if slowest > _BAD_SYNC_S else {"warning": text if slowest > _SLOW_SYNC_S else ""}
    yield _judged(f"syncs of {directory}", f"the slowest of {_SYNCS} took {slowest * 1e3:.1f} ms", **slow)


def _slowest_sync_s(directory: Path, sync: Callable[[int], None]) -> float:
    slowest = 0.0
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.monotonic()
            sync(file.fileno())
            slowest = max(slowest, time.monotonic() - began)
    return slowest


# --- the files of a server --------------------------------------------------------------------------------------------

AnyServer = HomeserverConfig | SimserverConfig | RelayConfig
_SECRETS: Final = (
    "join_token_file",
    "client_token_file",
    "federation_secret_file",
    "operator_token_file",
    "raft_secret_file",
)


def check_config(file: Path) -> Iterator[Finding]:
    """The configuration of one server, its secrets, its keys, and where it listens. It need not run."""
    found = _load(file)
    if not isinstance(found, HomeserverConfig | SimserverConfig | RelayConfig):
        yield _judged(f"{file}", found, bad="mend the file: docs/guides/cluster.md has one of each kind")
        return
    yield _judged(f"{file}", f"of {found.name}")
    yield from _check_secrets(found)
    yield from _check_issuer(found)
    yield from _check_keys(found)
    for what, address, kind in _addresses(found):
        yield _check_address(f"{what} of {found.name}", address, kind)
    if found.directory.is_dir():
        yield from check_disk(found.directory)


def _load(file: Path) -> AnyServer | str:
    """The configuration, of whichever kind of server it is, or what is wrong with it."""
    kinds: Sequence[type[AnyServer]] = (HomeserverConfig, SimserverConfig, RelayConfig)
    errors = []
    for kind in kinds:
        try:
            return kind.load(file)
        except ConfigError as error:
            errors.append((kind.__name__.removesuffix("Config").lower(), str(error)))
    if len({text for _, text in errors}) == 1:
        return errors[0][1]
    return "; ".join(f"as a {kind}: {text}" for kind, text in errors)


def _check_issuer(config: AnyServer) -> Iterator[Finding]:
    """Whether the tokens of clients can be believed."""
    file = getattr(config, "token_issuer_file", None)
    if file is None:
        return
    what = f"token_issuer_file of {config.name}"
    try:
        believed = TrustedIssuer.from_json_untrusted(read_private(file, max_bytes=MAX_ISSUER_BYTES))
    except (OSError, CryptoError) as error:
        yield _judged(what, str(error), bad="take it from `baton tokens issuer`, chmod 600, of the server's user")
    else:
        yield _judged(what, f"tokens of {believed.name} are believed, but for {len(believed.revoked)} revoked ones")


def _check_secrets(config: AnyServer) -> Iterator[Finding]:
    held: dict[str, bytes | None] = {}
    for field in _SECRETS:
        path = getattr(config, field, None)
        if path is None:
            continue
        try:
            held[field] = read_secret(path)
        except ConfigError as error:
            text = "make it: a line of 32 random characters, chmod 600, of the user who runs the server"
            yield _judged(f"{field} of {config.name}", str(error), bad=text)
    try:
        require_different(held)
    except ConfigError as error:
        yield _judged(f"secrets of {config.name}", str(error), bad="make another one for each")
    else:
        yield _judged(f"secrets of {config.name}", f"{len(held)} are readable by their owner alone, each another")


def _check_keys(config: AnyServer) -> Iterator[Finding]:
    directory = config.directory / "keys"
    if not directory.is_dir():
        yield _judged(f"keys of {config.name}", "not made yet: its first start makes them")
        return
    try:
        KeyStore(directory).load_ring()
    except (KeyFileError, OSError) as error:
        yield _judged(f"keys of {config.name}", str(error), bad="docs/reference/keys.md says how to get new ones")
    else:
        yield _judged(f"keys of {config.name}", "readable by their owner alone")


def _addresses(config: AnyServer) -> Iterator[tuple[str, Address, socket.SocketKind]]:
    yield "REST", config.rest, socket.SOCK_STREAM
    link = getattr(config, "link", None)
    if link is not None:
        yield "link", link, socket.SOCK_DGRAM


def _check_address(about: str, address: Address, kind: socket.SocketKind) -> Finding:
    where = f"{address.host}:{address.port}"
    try:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=kind)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
    except OSError as error:
        text = "this is right if the server runs; else end what listens there, or choose another port or address"
        return _judged(about, f"{where}: {error.strerror}", warning=text)
    return _judged(about, f"{where} is free")


# --- an instance that runs --------------------------------------------------------------------------------------------


def check_instance(url: str, call: Call) -> Iterator[Finding]:
    """An instance, as the homeserver at `url` sees it."""
    try:
        health = call("/healthz")
    except (EnvironmentFailed, RemoteRefused) as error:
        yield _judged(url, str(error), bad="start it, or see its log; `baton homeserver --config FILE` starts one")
        return
    off = health["clock"]
    yield _judged(url, f"{health['name']} is ready", warning=f"set the clock of its host: {off}" if off else "")
    try:
        seen = call("/v1/map")
    except (EnvironmentFailed, RemoteRefused) as error:
        yield _judged(f"map of {url}", str(error), warning="give the client token, with --token-file")
        return
    yield from _check_map(seen)
    yield from _check_recoveries(call)


_REMEDIES: Final = {
    "members": "start it again; if it is gone for good: baton cluster replace",
    "servers": "start it again; its entities go on elsewhere when its lease is over (baton recoveries)",
}
_STATES: Final = {
    "ok": FindingState.OK,
    "warning": FindingState.WARNING,
    "unknown": FindingState.WARNING,
    "down": FindingState.BAD,
}


def _check_map(seen: Mapping[str, Any]) -> Iterator[Finding]:
    text = f"{seen['leader'] or 'no homeserver'} leads, {seen['entities']:,} entities"
    leaderless = "" if seen["leader"] else "have a majority of its homeservers run and reach each other"
    yield _judged(f"instance {seen['instance']}", text, bad=leaderless)
    if not seen["servers"]:
        text = "start one: baton simserver --config FILE"
        yield _judged("simulation servers", "there is none", warning=text)
    for kind, remedy in _REMEDIES.items():
        for one in seen[kind]:
            state = _STATES[one["health"]]
            is_well = state is FindingState.OK
            hint = "" if is_well else remedy if state is FindingState.BAD else "see docs/reference/operations.md"
            yield Finding(one["name"], state, one["why"] or "well", hint)


def _check_recoveries(call: Call) -> Iterator[Finding]:
    view = call("/v1/recoveries")
    if view["log_went_back"]:
        text = "put the newer log back; if it is gone for good: baton cluster accept-loss"
        yield _judged("log", view["log_went_back"], bad=text)
    lost = [row for row in view["waiting"] if row["standing"] == "lost"]
    waiting = len(view["waiting"]) - len(lost)
    if lost:
        text = "start their last server with its disk; baton recoveries names them"
        yield _judged("lost entities", f"{len(lost):,}, for example {lost[0]['entity']}", bad=text)
    if waiting:
        text = "wait, or see baton recoveries"
        yield _judged("entities of dead servers", f"{waiting:,} wait for another one", warning=text)
