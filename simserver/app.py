"""The composition root of a simulation server: builds the parts, starts them, and takes them down together."""

import logging
from collections import Counter

import httpx
import trio

from actors.clock import Clock
from actors.stopping import run_until_signalled
from actors.system import System
from actors.udp import LinkEndpoint
from actors.web import serve_app
from authority.sealing import Sealer
from authority.settings import read_secret
from crypto.keys import Identity
from simserver.arrivals import Arrivals
from simserver.config import SimserverConfig
from simserver.courier import Courier
from simserver.custody import CustodyLog
from simserver.departures import Departures
from simserver.entity import EntityEnvironment
from simserver.holdings import Holdings, Tombstone
from simserver.home import Home, HomeRefused
from simserver.ledger import Ledger
from simserver.node import Node
from simserver.status import make_status_app
from simserver.world import load_world

__all__ = ["main", "run"]

_log = logging.getLogger("simserver")


def build(
    config: SimserverConfig, client: httpx.AsyncClient, system: System, nursery: trio.Nursery, clock: Clock
) -> Node:
    """Wire the parts of one simulation server; nothing runs yet.

    Raises:
        ConfigError, KeyFileError: the world, secrets or keys cannot be used.
    """
    identity = Identity.load_or_create(config.directory / "keys")
    sealer = Sealer(config.name, identity)
    home = Home(sealer, config.instance, config.home_urls, read_secret(config.join_token_file), client, clock)
    link = LinkEndpoint(config.name, identity, home, host=config.link.host, port=config.link.port)
    counts: Counter[str] = Counter()
    courier = Courier(sealer, home, link, clock, nursery, counts)
    custody = CustodyLog(config.name)

    def count(what: str) -> None:
        counts[what] += 1

    environment = EntityEnvironment(
        server=config.name,
        world=load_world(config.world, config.world_options),
        period_s=1.0 / config.tick_hz,
        custody=custody,
        monotonic_ns=clock.monotonic_ns,
        acknowledge=courier.tell_player,
        # Departures need the holdings, which need this environment: the one knot, tied by a late look-up.
        wants_to_go=lambda entity, destination: departures.wants_to_go(entity, destination),  # noqa: PLW0108
        count=count,
    )
    ledger = Ledger(config.name, config.directory / "tree")
    holdings = Holdings(system, environment, ledger)
    departures = Departures(sealer, home, courier, holdings, clock, nursery, counts)
    arrivals = Arrivals(sealer, home, courier, holdings, departures, clock, counts)
    return Node(
        config,
        clock,
        sealer,
        home,
        link,
        courier,
        holdings,
        departures,
        arrivals,
        custody,
        ledger,
        counts,
        operator_token=None if config.operator_token_file is None else read_secret(config.operator_token_file),
    )


async def _register(node: Node, rest_url: str) -> None:
    await node.home.register(rest_url, node.link.address)
    node.registered = True
    _log.info("%s is ready on %s", node.config.name, rest_url)


async def run(config: SimserverConfig, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> None:
    """Run one simulation server until cancelled."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=50)
    async with (
        httpx.AsyncClient(timeout=10.0, limits=limits, trust_env=False) as client,
        System.open(config.name) as system,
        trio.open_nursery() as nursery,
    ):
        node = build(config, client, system, nursery, Clock())
        node.system = system
        await nursery.start(node.ledger.serve)
        for entity, moved_to, fence in node.ledger.moved():
            node.holdings.remember(entity, Tombstone(moved_to, fence))
        await nursery.start(node.link.serve)
        urls = await nursery.start(serve_app, make_status_app(node), config.rest.host, config.rest.port)
        nursery.start_soon(node.serve_link)
        nursery.start_soon(node.serve_ticks)
        nursery.start_soon(_register, node, urls[0])
        task_status.started(node)


def main(config: SimserverConfig) -> int:
    """Run one simulation server until SIGINT or SIGTERM; the exit status."""
    status = 0
    try:
        run_until_signalled(config.name, lambda: run(config))
    except* HomeRefused as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        _log.critical("%s stops: its home instance refused it: %s", config.name, error)
        status = 3
    return status
