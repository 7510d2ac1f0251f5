"""The server that is simulated is the one that is shipped: what is wired in one of them is wired in the other."""

from dataclasses import fields, replace
from random import Random
from types import MethodType

import pytest
import trio

from batonpass.actors.core.service import AsyncService
from batonpass.scenarios.simulation.servers import simserver
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.server import build, main
from batonpass.simserver.server.dispatch import Durable, SimserverNode
from batonpass.simserver.server.main import Shell, supervision_tree
from tests.wiring.servers import NAME, shipped_in
from tests.wiring.wires import wires_of


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return shipped_in(tmp_path_factory.mktemp("shipped"))


@pytest.fixture(scope="module")
def simulated() -> SimserverNode:
    return ServersCluster(replace(MIXES["calm"], entities=0), Random("composition")).servers[NAME].node


# --- what is wired to what -------------------------------------------------------------------------------------------


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


_OPTIONAL = ("system", "scenes", "streams", "shows", "stream_pushes", "neighbours")
"""Where its actors run, once they do; and scenes, event streams, shows and neighbours, if its world has them."""


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
