"""A cluster on disk: its directory, secrets, ports, and one configuration file per server.

```
DIR/                    0700
  cluster.json          what the cluster consists of and which ports it uses, for the next start
  cluster.lock          held while the cluster runs
  secrets/              0600 each: <instance>.raft and .join, federation, the issuer of tokens, and three tokens of it:
                        <instance>.client-token, .operator-token and .simserver-operator-token
  alpha.h1/             one folder per server
    config.toml         written anew at every start
    server.log
    state/              the server's own: keys, journal, checkpoints
```

Nothing here starts a process or waits.

Write plain data as TOML 1.0; the standard library only reads it.

It covers what configurations consist of: strings, numbers, booleans, lists, and tables in tables. What it writes,
`tomllib` reads back as the same data.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from batonpass.actors.base.clock import Clock
from batonpass.authority.node.config import Address, Settings, TelemetrySettings
from batonpass.homeserver.config import DEFAULT_LEASE_TERM_S, HomeserverConfig, MemberConfig, PeerConfig, RelayConfig
from batonpass.scenarios.cluster.certificates import certify
from batonpass.scenarios.cluster.ports import PortAllocator, PortTaken
from batonpass.scenarios.cluster.token_issuer import issuer_file_in, renew_tokens
from batonpass.scenarios.cluster.topology import BadSpec, ClusterSpec, InstanceRoute, NextHop
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS

__all__ = [
    "Blueprint",
    "DirectoryUnusable",
    "ProcessRole",
    "ServerPlan",
    "client_token_in",
    "hold_directory",
    "homeserver_urls_in",
    "lay_out",
    "operator_token_in",
    "remembered_spec",
    "require_unused",
    "to_toml",
]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(data: Mapping[str, object]) -> str:
    """`data` as the text of a TOML document, plain values first, then a section per table.

    Raises:
        TypeError: a value has no TOML form (None, bytes, ...); the message names its key.
    """
    return "\n".join(_section(data, ())).strip("\n") + "\n"


def _section(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    later: list[tuple[str, Mapping[str, object]]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            later.append((key, value))
        else:
            yield f"{_key(key)} = {_value(value, (*path, key))}"
    for key, value in later:
        yield ""
        yield f"[{'.'.join(_key(part) for part in (*path, key))}]"
        yield from _section(value, (*path, key))


def _value(value: object, path: tuple[str, ...]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            # repr is the shortest text that reads back as the same number; TOML has its own words for the rest.
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return _string(value)
        case Mapping():
            inside = (f"{_key(key)} = {_value(item, (*path, str(key)))}" for key, item in value.items())
            return "{" + ", ".join(inside) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray):
            items = [_value(item, (*path, str(index))) for index, item in enumerate(value)]
            if items and isinstance(value[0], Mapping):
                return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
            return "[" + ", ".join(items) + "]"
        case _:
            raise TypeError(f"{'.'.join(path)}: a {type(value).__name__} cannot be written as TOML")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are all valid in TOML; only DEL must be escaped there in addition.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


MANIFEST = "cluster.json"
LOCK = "cluster.lock"
FORMAT = 1
SECRET_BYTES = 32


class DirectoryUnusable(EnvironmentFailed):
    """The cluster directory cannot be used; the sentence names the path and the remedy."""


class ProcessRole(StrEnum):
    """What a server process is; also the command of `baton` that runs it."""

    HOMESERVER = "homeserver"
    SIMSERVER = "simserver"
    RELAY = "relay"


@dataclass(frozen=True)
class ServerPlan:
    """One server to be started: who it is, where it will be reached, and where its files are."""

    name: str
    role: ProcessRole
    instance: str
    rest_url: str
    link_address: tuple[str, int] | None
    directory: Path
    config_file: Path
    log_file: Path


@dataclass(frozen=True)
class Blueprint:
    """All servers of a cluster in the order in which they are started, with their files in place."""

    spec: ClusterSpec
    directory: Path
    servers: tuple[ServerPlan, ...]

    def client_token_file(self, instance: str) -> Path:
        """The file with the bearer token that a client of `instance` shows."""
        return client_token_in(self.directory, instance)

    def operator_token_file(self, instance: str) -> Path:
        """The file with the bearer token that an operator of `instance` shows to its homeservers."""
        return operator_token_in(self.directory, instance)

    def simserver_operator_token_file(self, instance: str) -> Path:
        """The file with the bearer token that an operator of `instance` shows to its simulation servers."""
        return _simserver_operator_token_file(self.directory, instance)


@contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Create `directory` (0700) if it is missing and keep others from running a cluster in it meanwhile.

    Raises:
        BadSpec: it cannot be made.
        DirectoryUnusable: it is open to other users, or a cluster runs in it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
    except OSError as error:
        text = f"dir: cannot create the cluster directory {directory}: {error.strerror}; give one that can be made"
        raise BadSpec(text) from error
    if mode & 0o077:
        raise DirectoryUnusable(
            f"the cluster directory {directory} is open to other users and will hold secrets; "
            f"run: chmod 700 {directory}"
        )
    with (directory / LOCK).open("a") as lock:
        try:
            # Freed by the kernel when the last holder is gone, so a killed cluster leaves no stale lock.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise DirectoryUnusable(
                f"a cluster is running in {directory}; stop it first, or give another --dir"
            ) from error
        yield


def remembered_spec(directory: Path) -> ClusterSpec | None:
    """The cluster that an earlier start left in `directory`, or None if there is none.

    Raises:
        DirectoryUnusable: there is one, but its description cannot be read.
    """
    manifest = _read_manifest(directory)
    return None if manifest is None else manifest.spec


def homeserver_urls_in(directory: Path) -> tuple[str, list[str]] | None:
    """The first instance of the cluster in `directory`, and where its homeservers are; None if there is no cluster.

    Raises:
        DirectoryUnusable: its description cannot be read.
    """
    manifest = _read_manifest(directory)
    if manifest is None:
        return None
    instance = next(iter(manifest.spec.instances))
    places = [Address(port=manifest.ports[name]["rest"]) for name in manifest.spec.homeserver_names(instance)]
    return instance, [_url_of(place, manifest.spec) for place in places]


def _url_of(address: Address, spec: ClusterSpec) -> str:
    return address.url.replace("http:", "https:", 1) if spec.tls else address.url


def require_unused(directory: Path | None) -> None:
    """For runs that begin with an empty log: refuse a directory that holds a cluster already.

    Raises:
        BadSpec: it does.
    """
    if directory is not None and remembered_spec(directory) is not None:
        raise BadSpec(f"dir: {directory} holds a cluster with its log already; a run needs a new or empty directory")


def lay_out(spec: ClusterSpec, directory: Path, ports: PortAllocator) -> Blueprint:
    """Write everything the servers of `spec` need into `directory`; keep the secrets and ports that are there.

    Done again while the cluster runs, with the same `ports`, it makes room for servers that are added to it.

    Raises:
        BadSpec: the directory holds other instances than `spec`, or a world option has no TOML form.
        DirectoryUnusable: the directory cannot be written, or what is there cannot be read.
        PortTaken: a port used by the earlier start is in use now, or none is free.
    """
    directory = directory.resolve()
    try:
        to_toml(spec.world_options)
    except TypeError as error:
        raise BadSpec(f"world option {error}") from error
    earlier = _read_manifest(directory)
    if earlier is not None and dict(earlier.spec.instances) != dict(spec.instances):
        raise BadSpec(
            f"{directory} holds the instances {_written(earlier.spec)}, not {_written(spec)}; members are part of an "
            "instance's log, so start it with the same --instances, or give another --dir"
        )
    try:
        _write_secrets(spec, directory)
        drafts = _draft(spec, directory, _PortTable(ports, {} if earlier is None else earlier.ports, spec.hosts))
        for config in drafts.configs:
            _write_config(config, directory)
        _write_manifest(_BlueprintManifest(replace(spec, directory=directory), drafts.ports), directory)
    except OSError as error:
        raise DirectoryUnusable(f"cannot write {error.filename or directory}: {error.strerror}") from error
    servers = tuple(_plan(config, directory) for config in drafts.configs)
    return Blueprint(replace(spec, directory=directory), directory, servers)


# ---- configurations ----

_Config = HomeserverConfig | SimserverConfig | RelayConfig
_ROLES: dict[type[Settings], ProcessRole] = {
    HomeserverConfig: ProcessRole.HOMESERVER,
    SimserverConfig: ProcessRole.SIMSERVER,
    RelayConfig: ProcessRole.RELAY,
}


@dataclass(frozen=True)
class _Drafts:
    configs: tuple[_Config, ...]
    ports: dict[str, dict[str, int]]


class _PortTable:
    """Ports by server and purpose: those of the earlier start where there are any, else newly chosen.

    A cluster that runs holds its ports already; only those of new servers are new.
    """

    def __init__(self, ports: PortAllocator, earlier: dict[str, dict[str, int]], hosts: Mapping[str, str]) -> None:
        self._ports = ports
        self._hosts = hosts
        self._earlier = earlier
        self._held = set(ports.held)
        self.table: dict[str, dict[str, int]] = {}

    def port(self, server: str, purpose: str) -> int:
        mine = self.table.setdefault(server, {})
        if purpose not in mine:
            known = self._earlier.get(server, {}).get(purpose)
            if known is None:
                mine[purpose] = self._ports.choose()
            elif known in self._held:
                self._held.remove(known)
                mine[purpose] = known
            else:
                try:
                    self._ports.claim(known)
                except PortTaken as error:
                    raise PortTaken(f"{server} cannot have its {purpose} port back: {error}") from error
                mine[purpose] = known
        return mine[purpose]

    def address(self, server: str, purpose: str) -> Address:
        return Address(host=self.host(server), port=self.port(server, purpose))

    def host(self, server: str) -> str:
        return self._hosts.get(server, Address().host)


def _draft(spec: ClusterSpec, directory: Path, ports: _PortTable) -> _Drafts:
    hops = spec.next_hops()

    def url(name: str) -> str:
        return _url_of(ports.address(name, "rest"), spec)

    now = datetime.fromtimestamp(Clock().unix_s(), UTC)

    def served(name: str) -> dict[str, Any]:
        """How a server is asked over HTTP."""
        try:
            tls = certify(directory, name, ports.host(name), now, _write_private) if spec.tls else None
        except ValueError as error:
            text = f"a certificate or key of {name} in {directory} is damaged ({error}): remove it, and it is made anew"
            raise DirectoryUnusable(text) from error
        log = {"log_level": spec.log_level, "log_format": spec.log_format}
        return {"rest": ports.address(name, "rest"), "tls": tls, "plain_http": spec.plain_http, **log}

    homes = {i: tuple(map(url, spec.homeserver_names(i))) for i in spec.instances}
    relays = {name: (url(name),) for name in spec.relay_names}
    telemetry = TelemetrySettings(handlers=spec.telemetry_handlers)
    # Pages are from a homeserver, and connect to the doors of all servers.
    origins = () if spec.pages is None else tuple(url for urls in homes.values() for url in urls)

    def peers(of: str) -> tuple[PeerConfig, ...]:
        def urls(target: str, hop: NextHop) -> tuple[str, ...]:
            return homes[target] if hop.via is None else relays[hop.via]

        return tuple(PeerConfig(instance=to, urls=urls(to, hop), hops=hop.hops) for to, hop in hops[of].items())

    configs: list[_Config] = [
        RelayConfig(
            name=name,
            directory=directory / name / "state",
            **served(name),
            peers=peers(name),
        )
        for name in spec.relay_names
    ]
    for instance in spec.instances:
        members = tuple(
            MemberConfig(name=n, host=ports.host(n), raft_port=ports.port(n, "raft"), rest_url=url(n))
            for n in spec.homeserver_names(instance)
        )
        configs += [
            HomeserverConfig(
                name=name,
                instance=instance,
                directory=directory / name / "state",
                **served(name),
                link=ports.address(name, "link"),
                members=members,
                peers=peers(instance),
                raft_secret_file=_secret_file(directory, f"{instance}.raft"),
                join_token_file=_secret_file(directory, f"{instance}.join"),
                token_issuer_file=issuer_file_in(directory),
                federation_secret_file=_secret_file(directory, "federation"),
                telemetry=telemetry,
                pages=spec.pages,
                player_origins=origins,
                lease_term_s=DEFAULT_LEASE_TERM_S if spec.lease_term_s is None else spec.lease_term_s,
            )
            for name in spec.homeserver_names(instance)
        ]
    chosen = {"world": spec.world, "tick_hz": spec.tick_hz}
    optional: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    configs += [
        SimserverConfig(
            name=name,
            instance=instance,
            directory=directory / name / "state",
            **served(name),
            link=ports.address(name, "link"),
            home_urls=homes[instance],
            join_token_file=_secret_file(directory, f"{instance}.join"),
            token_issuer_file=issuer_file_in(directory),
            world_options=dict(spec.world_options),
            telemetry=telemetry,
            player_origins=origins,
            stream_door=ports.address(name, "streams") if spec.world == EVENT_STREAMS else None,
            **optional,
        )
        for instance in spec.instances
        for name in spec.simserver_names(instance)
    ]
    return _Drafts(tuple(configs), ports.table)


def _plan(config: _Config, directory: Path) -> ServerPlan:
    link = None if isinstance(config, RelayConfig) else (config.link.host, config.link.port)
    folder = directory / config.name
    return ServerPlan(
        name=config.name,
        role=_ROLES[type(config)],
        instance=config.name.partition(".")[0],
        rest_url=config.rest_url,
        link_address=link,
        directory=folder,
        config_file=folder / "config.toml",
        log_file=folder / "server.log",
    )


def _write_config(config: _Config, directory: Path) -> None:
    plan = _plan(config, directory)
    text = to_toml(config.model_dump(mode="json", exclude_none=True))
    (plan.directory / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
    plan.directory.chmod(0o700)
    heading = f"# {plan.name}: {plan.role}; written anew at every start of the cluster in {directory}\n"
    _write_private(plan.config_file, heading + text)


# ---- secrets ----


def _secret_file(directory: Path, name: str) -> Path:
    return directory / "secrets" / name


def client_token_in(directory: Path, instance: str) -> Path:
    """The file with the token of programs, for the homeservers of an instance."""
    return _secret_file(directory, f"{instance}.client-token")


def operator_token_in(directory: Path, instance: str) -> Path:
    """The same of operators."""
    return _secret_file(directory, f"{instance}.operator-token")


def _simserver_operator_token_file(directory: Path, instance: str) -> Path:
    # Not the homeservers' token: an attacker who takes over a simulation server must not be able to change the members.
    return _secret_file(directory, f"{instance}.simserver-operator-token")


def _write_secrets(spec: ClusterSpec, directory: Path) -> None:
    (directory / "secrets").mkdir(mode=0o700, exist_ok=True)
    names = ["federation"]
    for instance in spec.instances:
        names += [f"{instance}.raft", f"{instance}.join"]
    for name in names:
        path = _secret_file(directory, name)
        if not path.exists():
            _write_private(path, secrets.token_urlsafe(SECRET_BYTES) + "\n")
    renew_tokens(directory, spec.instances, Clock().unix_s(), _write_private)


# ---- the manifest ----


@dataclass(frozen=True)
class _BlueprintManifest:
    spec: ClusterSpec
    ports: dict[str, dict[str, int]]


def _write_manifest(manifest: _BlueprintManifest, directory: Path) -> None:
    spec = manifest.spec
    data = {
        "format": FORMAT,
        "instances": dict(spec.instances),
        "simservers": spec.simservers,
        "simserver_numbers": {name: list(numbers) for name, numbers in spec.simserver_numbers.items()},
        "relays": spec.relays,
        "routes": [[route.first, route.last, list(route.through)] for route in spec.routes],
        "world": spec.world,
        "world_options": dict(spec.world_options),
        "tick_hz": spec.tick_hz,
        "lease_term_s": spec.lease_term_s,
        "log_level": spec.log_level,
        "log_format": spec.log_format,
        "telemetry_handlers": list(spec.telemetry_handlers),
        "pages": None if spec.pages is None else str(spec.pages),
        "tls": spec.tls,
        "ports": manifest.ports,
    }
    _write_private(directory / MANIFEST, json.dumps(data, indent=2) + "\n")


def _read_manifest(directory: Path) -> _BlueprintManifest | None:
    path = directory / MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise DirectoryUnusable(
                f"{path} has format {data['format']}, this version reads {FORMAT}; give another --dir"
            )
        spec = ClusterSpec(
            instances=data["instances"],
            simservers=data["simservers"],
            simserver_numbers={n: tuple(map(int, rows)) for n, rows in data.get("simserver_numbers", {}).items()},
            relays=data["relays"],
            routes=tuple(InstanceRoute(first, last, tuple(through)) for first, last, through in data["routes"]),
            world=data["world"],
            world_options=data["world_options"],
            tick_hz=data["tick_hz"],
            lease_term_s=data.get("lease_term_s"),
            log_level=data["log_level"],
            log_format=data.get("log_format", "text"),
            telemetry_handlers=tuple(map(str, data.get("telemetry_handlers", ()))),
            pages=None if data.get("pages") is None else Path(data["pages"]),
            tls=bool(data.get("tls", False)),
            directory=directory,
        )
        ports = {name: {what: int(port) for what, port in mine.items()} for name, mine in data["ports"].items()}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DirectoryUnusable(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DirectoryUnusable(f"{path} is damaged ({error}); restore it, or give another --dir") from error
    return _BlueprintManifest(spec, ports)


def _written(spec: ClusterSpec) -> str:
    return ",".join(f"{name}:{count}" for name, count in spec.instances.items())


def _write_private(path: Path, text: str) -> None:
    """Replace `path` by a file that only we may read, all of it or nothing."""
    fresh = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    # Never readable by others, not even before a chmod.
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
