"""The other process of the rows that need two: answers, on another core, until its standard input is closed.

`PYTHON -m scenarios.bench.actors.workers.far WHAT DIRECTORY` prints its address. `WHAT` is what it answers with:

udp       a blocking UDP socket that sends back what it gets
trio-udp  the same with trio's socket
link      a link endpoint that sends back what it gets
node      a node with a published actor that counts

`DIRECTORY` holds the keys of both processes; the near one makes them first.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from batonpass.actors import ServiceSpec, System
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.remote import Distribution
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import PublicIdentity
from batonpass.scenarios.bench.actors.workers.counting import CountingServer

NEAR, FAR = "near", "far"
CHANNEL = 1


class FarKeys:
    """Two processes that know each other; also where the far one is."""

    def __init__(self, directory: Path) -> None:
        self.identities = {name: KeyStore(directory / name).load_or_create() for name in (NEAR, FAR)}
        self.addresses: dict[str, Address] = {}

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """For the link."""
        identity = self.identities.get(name)
        return None if identity is None else identity.public

    async def address_of(self, name: str) -> Address | None:
        """For distribution."""
        return self.addresses.get(name)

    def endpoint(self, name: str) -> LinkEndpoint:
        """The link of one of the two."""
        return LinkEndpoint(name, self.identities[name], self)


@contextmanager
def far_process(what: str, directory: Path) -> Iterator[Address]:
    """The far process, for the length of the block, on another core than this one if there is another."""
    cores = set(range(os.cpu_count() or 1))
    here = {max(os.sched_getaffinity(0))}
    argv = [sys.executable, "-m", __name__, what, str(directory)]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, cores - here or here),  # noqa: PLW1509 -- no threads here
    ) as process:
        assert process.stdin is not None  # noqa: S101 -- asked for above
        assert process.stdout is not None  # noqa: S101
        try:
            host, port = process.stdout.readline().split()
            yield host.decode(), int(port)
        finally:
            process.stdin.close()


def _say(address: Address) -> None:
    print(*address, flush=True)  # noqa: T201


def _answer_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        _say(udp.getsockname())
        while True:
            message, source = udp.recvfrom(2048)
            if not message:
                return
            udp.sendto(message, source)


async def _answer_trio_udp() -> None:
    udp = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
    await udp.bind(("127.0.0.1", 0))
    _say(udp.getsockname())
    while True:
        message, source = await udp.recvfrom(2048)
        await udp.sendto(message, source)


async def _answer_link(keys: FarKeys) -> None:
    endpoint = keys.endpoint(FAR)
    async with trio.open_nursery() as nursery:
        _say(await nursery.start(endpoint.serve))
        async for received in endpoint.inbox:
            endpoint.post(received.peer, received.address, received.message, channel=CHANNEL)


async def _be_a_node(keys: FarKeys) -> None:
    endpoint = keys.endpoint(FAR)
    async with trio.open_nursery() as nursery:
        address = await nursery.start(endpoint.serve)
        async with System.open(FAR) as system:
            await system.start(CountingServer, name="counting")
            distribution = Distribution(system, endpoint, keys)
            distribution.publish("counting")
            await system.start_child(ServiceSpec("distribution", distribution.serve))
            _say(address)
            await trio.sleep_forever()


async def _until_told(what: str, directory: Path) -> None:
    async with trio.open_nursery() as nursery:
        if what == "trio-udp":
            nursery.start_soon(_answer_trio_udp)
        else:
            nursery.start_soon(_answer_link if what == "link" else _be_a_node, FarKeys(directory))
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "udp":
        _answer_udp()
    else:
        trio.run(_until_told, sys.argv[1], Path(sys.argv[2]))
