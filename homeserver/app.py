"""The composition root of a homeserver: builds the parts, starts them, and takes them down together."""

import logging

import httpx
import trio

from actors.clock import Clock
from actors.stopping import run_until_signalled
from actors.udp import LinkEndpoint
from actors.web import serve_app
from authority.records import DirectoryRow, Role
from authority.sealing import Sealer
from authority.settings import read_secret
from crypto.keys import Identity
from homeserver.backend import REFUSALS, make_backend
from homeserver.config import HomeserverConfig
from homeserver.directory import Directory
from homeserver.federation import Federation
from homeserver.node import Node, Secrets
from homeserver.rest import make_app
from homeserver.store import Store
from homeserver.transfers import Transfers
from tree.submissions import NoQuorum, OutcomeUnknown

__all__ = ["main", "run"]

_log = logging.getLogger("homeserver")


def build(config: HomeserverConfig, client: httpx.AsyncClient, clock: Clock) -> Node:
    """Wire the parts of one homeserver; nothing runs yet.

    Raises:
        ConfigError, KeyFileError: secrets or keys cannot be used.
    """
    held = Secrets(
        join_token=read_secret(config.join_token_file),
        client_token=read_secret(config.client_token_file),
        federation=read_secret(config.federation_secret_file),
        operator_token=None if config.operator_token_file is None else read_secret(config.operator_token_file),
    )
    identity = Identity.load_or_create(config.directory / "keys")
    sealer = Sealer(config.name, identity)
    replica = make_backend(config)
    store = Store(replica)
    federation = Federation(sealer, config.peers, held.federation, client, clock)
    directory = Directory(config.instance, store, federation)
    link = LinkEndpoint(config.name, identity, directory, host=config.link.host, port=config.link.port)
    transfers = Transfers(sealer, store, directory, federation, link, clock)
    return Node(config, held, clock, sealer, replica, store, federation, directory, transfers, link)


async def _register(node: Node, rest_url: str) -> None:
    """Enter this member into its own directory as soon as the instance has a leader."""
    host, port = node.link.address
    row = DirectoryRow(
        name=node.config.name,
        role=Role.HOMESERVER,
        keys=node.sealer.identity.public.to_jwks(),
        rest_url=rest_url,
        link_host=host,
        link_port=port,
    )
    while True:
        try:
            await node.store.submit("directory.register", row=row.to_data())
        except (NoQuorum, OutcomeUnknown) as error:
            _log.info("not registered yet: %s", error)
            await trio.sleep(0.2)
        else:
            node.registered = True
            _log.info("%s is ready on %s", node.config.name, rest_url)
            return


async def run(config: HomeserverConfig, *, task_status: trio.TaskStatus[Node] = trio.TASK_STATUS_IGNORED) -> None:
    """Run one homeserver until cancelled."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=50)
    async with httpx.AsyncClient(timeout=10.0, limits=limits, trust_env=False) as client:
        node = build(config, client, Clock())
        async with trio.open_nursery() as nursery:
            await nursery.start(node.replica.serve)
            await nursery.start(node.link.serve)
            urls = await nursery.start(serve_app, make_app(node), config.rest.host, config.rest.port)
            nursery.start_soon(node.serve_link)
            nursery.start_soon(_register, node, urls[0])
            task_status.started(node)


def main(config: HomeserverConfig) -> int:
    """Run one homeserver until SIGINT or SIGTERM; the exit status."""
    status = 0
    try:
        run_until_signalled(config.name, lambda: run(config))
    except* REFUSALS:
        # Why is in the log already: it is the last word of the backend.
        status = 3
    return status
