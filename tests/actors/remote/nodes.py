"""Nodes joined by a `MemoryNetwork`, for tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Container
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from batonpass.actors import Ref, Restart, Server, ServiceSpec, System
from batonpass.actors.remote import Codec, Distribution, DistributionSettings
from tests.actors.remote.memory_link import MemoryNetwork


@asynccontextmanager
async def node(
    network: MemoryNetwork,
    name: str,
    *,
    controllers: Container[str] = (),
    codec: Codec | None = None,
    settings: DistributionSettings | None = None,
) -> AsyncIterator[System]:
    """One life of one node. Leaving the block kills it: nobody is told."""
    link = network.link(name)
    async with System.open(name) as system:
        distribution = Distribution(
            system,
            link,
            network,
            codec=codec,
            controllers=controllers,
            settings=settings,
            randbytes=random.Random(f"{name} {network.lives[name]}").randbytes,
        )
        spec = ServiceSpec("distribution", distribution.serve, restart=Restart.TEMPORARY)
        await system.start_child(spec)
        try:
            yield system
        finally:
            if network.links.get(name) is link:
                network.kill(name)


@asynccontextmanager
async def two_nodes(
    *,
    controllers: Container[str] = (),
    settings: DistributionSettings | None = None,
    codecs: tuple[Codec, Codec] | None = None,
) -> AsyncIterator[tuple[MemoryNetwork, System, System]]:
    """`alpha` and `beta`."""
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        nursery.start_soon(network.serve)
        alpha, beta = [
            await stack.enter_async_context(
                node(
                    network,
                    name,
                    controllers=controllers,
                    settings=settings,
                    codec=codecs[place] if codecs is not None else None,
                )
            )
            for place, name in enumerate(("alpha", "beta"))
        ]
        yield network, alpha, beta
        await stack.aclose()
        nursery.cancel_scope.cancel()


def held(system: System) -> dict[str, int]:
    """What the distribution of a node holds that must be gone when nobody wants it any more."""
    assert isinstance(system.distribution, Distribution)
    stats = system.distribution.stats
    return {what: stats[what] for what in ("calls_out", "monitors_out", "calls_in", "monitors_in", "links")}


NOTHING = {"calls_out": 0, "monitors_out": 0, "calls_in": 0, "monitors_in": 0, "links": 0}


def distribution_of(system: System) -> Distribution:
    assert isinstance(system.distribution, Distribution)
    return system.distribution


async def show(system: System, server: type[Server[Any]], arg: Any = None, name: str = "it") -> Ref:
    """Start an actor and publish it under its name."""
    ref = await system.start(server, arg, name=name)
    distribution_of(system).publish(name)
    return ref
