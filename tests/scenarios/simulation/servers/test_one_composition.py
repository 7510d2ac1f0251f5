"""The server that is simulated is the one that is shipped: what is wired in one of them is wired in the other."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from random import Random
from types import FunctionType, MethodType
from typing import Any

import pytest
import trio

from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.service import AsyncService
from batonpass.actors.http.client import HttpClient
from batonpass.scenarios.simulation.servers import simserver
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.server import build, main
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.dispatch import Durable, SimserverNode
from batonpass.simserver.server.main import Shell, open_shell, supervision_tree

NAME = "alpha.s1"
OURS, PLAYED = "batonpass.simserver.", "batonpass.scenarios."
Wires = set[tuple[str, str]]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    tmp_path = tmp_path_factory.mktemp("shipped")
    (tmp_path / "join").write_text("a join token of some length")
    (tmp_path / "join").chmod(0o600)
    config = SimserverConfig(
        name=NAME,
        instance="alpha",
        directory=tmp_path / "s1",
        home_urls=("http://home.invalid",),
        join_token_file=tmp_path / "join",
        world="batonpass.simserver.world.demo_balls:Balls",
    )
    client = HttpClient()
    trio.run(client.aclose)
    return open_shell(config, client, InstanceClock(Clock(), NAME))


@pytest.fixture(scope="module")
def simulated() -> SimserverNode:
    return ServersCluster(replace(MIXES["calm"], entities=0), Random("composition")).servers[NAME].node


# --- what is wired to what -------------------------------------------------------------------------------------------


def wires_of(node: SimserverNode) -> Wires:
    """Which part of a server has which other one, or calls it: by attributes, from the whole on.

    What is behind a port, and on disk, is another thing in each; of it counts what of the server it calls.
    """
    outside = {**vars(node.ports), **vars(node.durable), "config": node.config, "world": node.environment.world}
    outside |= {"ports": node.ports, "durable": node.durable}
    names = {id(one): name for name, one in outside.items()}
    wires, seen, waiting = Wires(), set[int](), [node]
    while waiting:
        part = waiting.pop()
        for name, value in attributes(part):
            for one in several(value):
                at = f"{type(part).__qualname__}.{name}"
                if id(one) in names:
                    wires.add((at, f"port {names[id(one)]}"))
                elif what := called(one, outside):
                    wires.add((at, what))
                elif type(one).__module__.startswith(OURS):
                    wires.add((at, type(one).__qualname__))
                    if id(one) not in seen:
                        seen.add(id(one))
                        waiting.append(one)
    for name, port in outside.items():
        for _, one in attributes(port):
            if isinstance(one, MethodType) and id(one.__self__) in seen:
                wires.add((f"port {name}", called(one, outside)))
    return wires


def attributes(part: Any) -> Iterator[tuple[str, Any]]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    found = dict(getattr(part, "__dict__", {})) | {name: getattr(part, name) for name in slots if hasattr(part, name)}
    yield from found.items()


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value.values()) if isinstance(value, Mapping) else [value]


def called(value: Any, outside: Mapping[str, Any]) -> str:
    """What a callback calls; empty if the value is none, or only the simulation is told."""
    if isinstance(value, partial):
        return called(value.func, outside)
    if isinstance(value, MethodType):
        if (port := next((name for name, one in outside.items() if one == value), "")) != "":
            return f"calls port {port}"
        of, does = value.__self__, value.__func__.__name__
        if (port := next((name for name, one in outside.items() if one is of), "")) != "":
            return f"calls port {port}.{does}"
        return "" if type(of).__module__.startswith(PLAYED) else f"calls {type(of).__qualname__}.{does}"
    return (
        f"calls {value.__qualname__}" if isinstance(value, FunctionType) and value.__module__.startswith(OURS) else ""
    )


def test_whatever_is_wired_in_a_shipped_server_is_wired_in_a_simulated_one(
    shipped: Shell, simulated: SimserverNode
) -> None:
    there, here = wires_of(shipped.node), wires_of(simulated)
    assert len(there) > 200
    assert there - here == set()
    assert here - there == set()


def test_the_wires_that_a_simulation_lacked_once_are_there(simulated: SimserverNode) -> None:
    wires = wires_of(simulated)
    assert {
        ("PassSigning._signed", "calls port certificates.signed"),
        ("_Simulated.find_way_back", "calls LogRollback.find_way_back"),
        ("SimserverNode.foreign_entities", "ForeignEntities"),
        ("Arrivals._lease", "LeaseKeeper"),
        ("port sealer", "calls LeaseKeeper.heard_log"),
        ("port home", "calls LeaseKeeper.why_not_asked"),
        ("LeaseKeeper._log_watermark", "port log_watermark"),
    } <= wires


@pytest.mark.parametrize("kind", [SimserverPorts, Durable, build.PartTypes, build.BuildLimits])
def test_a_port_has_no_default_but_for_the_shipped_class_or_size(kind: type) -> None:
    """So that nobody can forget one."""
    defaults = {one.name for one in fields(kind) if one.default is not one.default_factory}
    assert bool(defaults) == (kind in (build.PartTypes, build.BuildLimits))


_OPTIONAL = ("system", "scenes", "streams", "shows", "stream_pushes")
"""Where its actors run, once they do; and scenes, event streams and shows, if its world has them."""


def test_every_port_leads_somewhere(shipped: Shell, simulated: SimserverNode) -> None:
    for node in (shipped.node, simulated):
        assert all(getattr(node.ports, one.name) is not None for one in fields(SimserverPorts))
        assert all(getattr(node, one.name) is not None for one in fields(SimserverNode) if one.name not in _OPTIONAL)


def test_what_runs_of_the_parts_runs_in_both(shipped: Shell, simulated: SimserverNode) -> None:
    names = [child.id for child in supervision_tree(shipped).children]
    for node in (shipped.node, simulated):
        own = [name for name, _ in build.services(node)]
        assert [name for name in names if name in own] == own
        served = {type(serve.__self__) for _, serve in build.services(node) if isinstance(serve, MethodType)}
        parts = (vars(node).values(), vars(node.ports).values())
        # Sockets and actors are not simulated.
        elsewhere = {type(node.ledger), type(node.link), type(node.outbox), type(node.ports.home), SimserverNode}
        serving = {type(one) for some in parts for one in some if hasattr(type(one), "serve")}
        assert serving - elsewhere == served


def test_another_service_would_run_in_both(shipped: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    async def serve(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        served.append("another")

    def services(node: SimserverNode) -> tuple[tuple[str, AsyncService], ...]:
        return ("another", serve), *build.services(node), ("last", serve)

    monkeypatch.setattr(main, "services", services)
    monkeypatch.setattr(simserver, "services", services)
    assert {"another", "last"} <= {child.id for child in supervision_tree(shipped).children}
    cluster = ServersCluster(replace(MIXES["calm"], entities=0), Random("composition"))
    assert served == ["another"] * 2 * len(cluster.servers)
