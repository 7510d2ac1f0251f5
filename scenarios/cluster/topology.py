"""What a local cluster consists of: instances, their servers, relays, and the ways between instances.

Everything here is a value; `blueprint` turns it into files and `cluster` into processes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from batonpass.authority.names import INSTANCE_PATTERN
from batonpass.authority.node.config import FUNCTION_PATTERN, MAX_HANDLERS

__all__ = [
    "RELAY_INSTANCE",
    "BadSpec",
    "ClusterSpec",
    "InstanceRoute",
    "NextHop",
    "parse_instances",
    "parse_route",
]

RELAY_INSTANCE = "relay"
"""The instance part of every relay's name; no logical instance can have it."""

MAX_HOMESERVERS = 9
MAX_SIMSERVERS = 99
MAX_RELAYS = 9
# The longest way a homeserver's configuration can express: `PeerConfig.hops`.
MAX_HOPS = 8

_INSTANCE = re.compile(INSTANCE_PATTERN)


class BadSpec(ValueError):
    """The description of a cluster makes no sense; the sentence names the part and shows how to write it."""


@dataclass(frozen=True)
class InstanceRoute:
    """The way between two instances, in both directions: through these relays, `first`'s side first."""

    first: str
    last: str
    through: tuple[str, ...]


@dataclass(frozen=True)
class NextHop:
    """Where a server sends what is meant for another instance.

    `via` is a relay, or None for that instance's own homeservers; `hops` counts the messages until it is there.
    """

    via: str | None
    hops: int


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster to be started.

    Args:
        instances: homeservers per logical instance, for example `{"alpha": 3, "beta": 3}`.
        simservers: simulation servers per instance.
        simserver_numbers: the numbers of those of instances to which some were added at run time, or from which some
            were removed. The others have 1 to `simservers`.
        relays: how many relays there are; their names are `relay.r1`, `relay.r2`, ...
        routes: pairs of instances that reach each other only through relays; all other pairs talk directly.
        world: the simulation, as `package.module:ClassName`; None leaves the simulation servers' own default.
        world_options: handed to the world as it stands.
        tick_hz: simulation steps per second; None leaves the default.
        hosts: addresses of servers that are not on 127.0.0.1, by name.
        lease_term_s: how long a silent simulation server keeps what it simulates; None leaves the default.
        directory: where configurations, keys, journals and logs live, to be used again by a later start. None is a
            fresh temporary directory that is removed at the end.
        log_level: of every server.
        log_format: lines for people (`text`) or for programs (`json`), of every server.
        telemetry_handlers: who listens to the telemetry of every server but the relays, as `package.module:function`.
        pages: the folder of pages that homeservers hand out at `/play/`, which may connect to all doors.
        tls: whether servers are asked by TLS, with certificates of the cluster's own authority.
        plain_http: without TLS, whether servers may listen beyond loopback.

    Raises:
        BadSpec: a name, a count or a route is impossible.
    """

    instances: Mapping[str, int]
    simservers: int = 2
    simserver_numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    relays: int = 0
    routes: tuple[InstanceRoute, ...] = ()
    world: str | None = None
    world_options: Mapping[str, Any] = field(default_factory=dict)
    tick_hz: float | None = None
    lease_term_s: float | None = None
    hosts: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    log_level: str = "INFO"
    log_format: Literal["text", "json"] = "text"
    telemetry_handlers: tuple[str, ...] = ()
    pages: Path | None = None
    tls: bool = False
    plain_http: bool = False

    def __post_init__(self) -> None:
        if not self.instances:
            raise BadSpec("a cluster needs at least one instance, for example --instances alpha:3")
        for name, count in self.instances.items():
            _check_instance(name)
            _check_count(f"homeservers of {name}", count, 1, MAX_HOMESERVERS)
        _check_count("simulation servers per instance", self.simservers, 0, MAX_SIMSERVERS)
        for name in self.simserver_numbers:
            if name not in self.instances:
                raise BadSpec(f"simulation servers: there is no instance {name!r}")
            _check_count(f"simulation servers of {name}", len(self._numbers(name)), 0, MAX_SIMSERVERS)
        _check_count("relays", self.relays, 0, MAX_RELAYS)
        _check_count("telemetry handlers", len(self.telemetry_handlers), 0, MAX_HANDLERS)
        for handler in self.telemetry_handlers:
            if not re.fullmatch(FUNCTION_PATTERN, handler):
                raise BadSpec(f"cannot read telemetry handler {handler!r}; write package.module:function")
        for route in self.routes:
            self._check_route(route)
        self.next_hops()

    @property
    def relay_names(self) -> tuple[str, ...]:
        """`relay.r1`, `relay.r2`, ..."""
        return tuple(f"{RELAY_INSTANCE}.r{number}" for number in range(1, self.relays + 1))

    def homeserver_names(self, instance: str) -> tuple[str, ...]:
        """`alpha.h1`, `alpha.h2`, ..."""
        return tuple(f"{instance}.h{number}" for number in range(1, self.instances[instance] + 1))

    def simserver_names(self, instance: str) -> tuple[str, ...]:
        """`alpha.s1`, `alpha.s2`, ..."""
        return tuple(f"{instance}.s{number}" for number in self._numbers(instance))

    def with_simserver(self, instance: str) -> tuple["ClusterSpec", str]:
        """The cluster with one simulation server more, and its name.

        Raises:
            BadSpec: there is no such instance, or it has as many as there may be.
        """
        if instance not in self.instances:
            raise BadSpec(f"there is no instance {instance!r}; the instances are {', '.join(self.instances)}")
        numbers = self._numbers(instance)
        number = max(numbers, default=0) + 1
        spec = replace(self, simserver_numbers={**self.simserver_numbers, instance: (*numbers, number)})
        return spec, f"{instance}.s{number}"

    def without_simserver(self, name: str) -> "ClusterSpec":
        """The cluster without one of its simulation servers.

        Raises:
            BadSpec: there is none of that name.
        """
        instance = name.partition(".")[0]
        if instance not in self.instances or name not in self.simserver_names(instance):
            raise BadSpec(f"there is no simulation server {name!r} in this cluster")
        numbers = tuple(number for number in self._numbers(instance) if f"{instance}.s{number}" != name)
        return replace(self, simserver_numbers={**self.simserver_numbers, instance: numbers})

    def _numbers(self, instance: str) -> tuple[int, ...]:
        return tuple(self.simserver_numbers.get(instance, range(1, self.simservers + 1)))

    def hops_between(self, first: str, last: str) -> int:
        """H: how many messages carry something from one instance to the other; 1 when they talk directly."""
        return self.next_hops()[first][last].hops

    def next_hops(self) -> dict[str, dict[str, NextHop]]:
        """For each instance and each relay: the next hop towards every other instance.

        A relay that is on no route to some instance reaches it directly, so that no relay is without a purpose.

        Raises:
            BadSpec: two routes contradict each other at a relay they share.
        """
        table: dict[str, dict[str, NextHop]] = {name: {} for name in (*self.instances, *self.relay_names)}
        through = {frozenset((route.first, route.last)): route for route in self.routes}
        for first, last in combinations(self.instances, 2):
            route = through.get(frozenset((first, last)), InstanceRoute(first, last, ()))
            _enter(table, (route.first, *route.through, route.last))
            _enter(table, (route.last, *reversed(route.through), route.first))
        for relay in self.relay_names:
            for instance in self.instances:
                table[relay].setdefault(instance, NextHop(via=None, hops=1))
        return table

    def _check_route(self, route: InstanceRoute) -> None:
        where = f"route {route.first}:{route.last}"
        for end in (route.first, route.last):
            if end not in self.instances:
                raise BadSpec(f"{where}: there is no instance {end!r}; the instances are {', '.join(self.instances)}")
        if route.first == route.last:
            raise BadSpec(f"{where}: a route joins two different instances")
        for relay in route.through:
            if relay not in self.relay_names:
                raise BadSpec(
                    f"{where}: there is no {relay}; with --relays {self.relays} the relays are "
                    f"{', '.join(self.relay_names) or 'none'}"
                )
        if len(set(route.through)) != len(route.through):
            raise BadSpec(f"{where}: it passes the same relay twice")
        if len(route.through) >= MAX_HOPS:
            raise BadSpec(f"{where}: at most {MAX_HOPS - 1} relays on one route")
        same_pair = [other for other in self.routes if {other.first, other.last} == {route.first, route.last}]
        if len(same_pair) > 1:
            raise BadSpec(f"{where}: given twice; a pair of instances has one route, used in both directions")


def parse_instances(text: str) -> dict[str, int]:
    """Read `alpha:3,beta:3`: logical instances and how many homeservers each has.

    Raises:
        BadSpec: anything else; the sentence quotes the part that is wrong.
    """
    instances: dict[str, int] = {}
    for part in text.split(","):
        name, colon, count = part.strip().partition(":")
        if not colon or not count.isascii() or not count.isdigit() or len(count) > 3:
            raise BadSpec(f"instances: cannot read {part.strip()[:40]!r}; write name:count, for example alpha:3,beta:3")
        if name in instances:
            raise BadSpec(f"instances: {name} is there twice")
        _check_instance(name)
        _check_count(f"homeservers of {name}", int(count), 1, MAX_HOMESERVERS)
        instances[name] = int(count)
    return instances


def parse_route(text: str) -> InstanceRoute:
    """Read `alpha:gamma=r1,r2`: alpha and gamma reach each other through relay.r1 and relay.r2 only.

    Raises:
        BadSpec: anything else.
    """
    match = re.fullmatch(r"([a-z][a-z0-9-]*):([a-z][a-z0-9-]*)=(r\d+(?:,r\d+)*)", text.strip())
    if match is None:
        raise BadSpec(f"route: cannot read {text[:60]!r}; write first:last=relays, for example alpha:gamma=r1,r2")
    first, last, relays = match.groups()
    return InstanceRoute(first, last, tuple(f"{RELAY_INSTANCE}.{relay}" for relay in relays.split(",")))


def _check_instance(name: str) -> None:
    if not _INSTANCE.fullmatch(name):
        raise BadSpec(
            f"instances: {name[:40]!r} is not a name: a small letter, then up to 15 small letters, digits or -"
        )
    if name == RELAY_INSTANCE:
        raise BadSpec(f"instances: {name!r} is how relays are called; choose another name")


def _check_count(what: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        raise BadSpec(f"{what}: {count} is not between {least} and {most}")


def _enter(table: dict[str, dict[str, NextHop]], way: tuple[str, ...]) -> None:
    """Enter one direction of one route at every stop of it."""
    *stops, target = way
    for position, stop in enumerate(stops):
        hops = len(stops) - position
        entry = NextHop(via=stops[position + 1] if hops > 1 else None, hops=hops)
        known = table[stop].setdefault(target, entry)
        if known != entry:
            raise BadSpec(
                f"routes contradict each other: {stop} would reach {target} both through "
                f"{known.via or 'its homeservers'} and through {entry.via or 'its homeservers'}"
            )
