"""Between two processes on two cores: `remote-call`, `remote-cast`, and under them `link`, `trio-udp` and `udp`.

The payload of the bare ones is as long as a call between nodes is on the wire.
"""

import socket
import tempfile
from pathlib import Path

import trio

from batonpass.actors import ServiceSpec, System
from batonpass.actors.link import Address
from batonpass.actors.remote import Distribution
from batonpass.scenarios.bench.actors.workers.far import CHANNEL, FAR, NEAR, FarKeys, far_process
from batonpass.scenarios.bench.loops import arguments, async_rate, expect, rate, tell

TRIPS = 100
"""Round trips between two looks at the clock."""
CASTS = 10_000
"""Casts in a row before one call makes sure that they have arrived: a sixth of a mailbox."""
PAYLOAD = bytes(40)


def measure_udp(address: Address, seconds: float) -> float:
    """Round trips a second over blocking sockets: the floor."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect(address)

        def trips() -> int:
            for _ in range(TRIPS):
                udp.send(PAYLOAD)
                udp.recv(2048)
            return TRIPS

        found = rate(trips, seconds)
        udp.send(b"")
        return found


async def measure_trio_udp(address: Address, seconds: float) -> float:
    """The same through trio's sockets."""
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as udp:
        await udp.connect(address)

        async def trips() -> int:
            for _ in range(TRIPS):
                await udp.send(PAYLOAD)
                await udp.recv(2048)
            return TRIPS

        return await async_rate(trips, seconds)


async def measure_link(address: Address, directory: Path, seconds: float) -> float:
    """Round trips a second of sealed messages, without actors."""
    endpoint = FarKeys(directory).endpoint(NEAR)
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.serve)

        async def trips() -> int:
            for _ in range(TRIPS):
                endpoint.post(FAR, address, PAYLOAD, channel=CHANNEL)
                await endpoint.inbox.receive()
            return TRIPS

        found = await async_rate(trips, seconds)
        nursery.cancel_scope.cancel()
    return found


async def measure_node(work: str, address: Address, directory: Path, seconds: float) -> float:
    """Calls, or casts, a second to an actor in the other process."""
    keys = FarKeys(directory)
    keys.addresses[FAR] = address
    endpoint = keys.endpoint(NEAR)
    async with trio.open_nursery() as nursery:
        await nursery.start(endpoint.serve)
        async with System.open(NEAR) as system:
            distribution = Distribution(system, endpoint, keys)
            await system.start_child(ServiceSpec("distribution", distribution.serve))
            counting = system.remote(FAR).named("counting")
            sent = await counting.call(1)  # opens the connection

            async def trips() -> int:
                for _ in range(TRIPS):
                    await counting.call(1)
                return TRIPS

            async def casts() -> int:
                nonlocal sent
                for _ in range(CASTS):
                    counting.cast(1)
                sent += CASTS
                expect(await counting.call(1), sent)
                return CASTS

            found = await async_rate(trips if work == "remote-call" else casts, seconds)
            expect(system.stats.messages_dropped, 0)
        nursery.cancel_scope.cancel()
    return found


_FAR = {"udp": "udp", "trio-udp": "trio-udp", "link": "link", "remote-call": "node", "remote-cast": "node"}


def measure_remote(work: str, seconds: float) -> float:
    """One of the works of this program."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as name:
        directory = Path(name)
        FarKeys(directory)
        with far_process(_FAR[work], directory) as address:
            match work:
                case "udp":
                    return measure_udp(address, seconds)
                case "trio-udp":
                    return trio.run(measure_trio_udp, address, seconds)
                case "link":
                    return trio.run(measure_link, address, directory, seconds)
                case _:
                    return trio.run(measure_node, work, address, directory, seconds)


if __name__ == "__main__":
    tell(measure_remote(*arguments("batonpass")))
