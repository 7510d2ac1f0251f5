"""batonpass: two link endpoints that know each other's keys."""

import logging
import sys
from collections.abc import Callable, Sequence

import trio

from batonpass.actors.link import Address, LinkSettings
from batonpass.actors.link.settings import MIN_DATAGRAM_BYTES
from batonpass.actors.net.datagrams import DatagramSocket, Outbound
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.crypto.jose import Claims, open_untrusted, seal
from batonpass.crypto.keys import Identity, PublicIdentity, decode_point_untrusted, encode_point
from batonpass.scenarios.bench.link.workers.conversation import (
    BULK,
    BULK_WINDOW,
    COUNTED,
    COUNTED_WINDOWS,
    SMALL,
    WINDOW,
    Stopwatch,
    answer_to,
    async_rtt,
    is_lost,
    other_end,
    ready,
    share_left,
)
from batonpass.scenarios.bench.link.workers.envelopes import SIZES, processor_time
from batonpass.scenarios.bench.loops import arguments, tell

MODULE = "batonpass.scenarios.bench.link.workers.on_batonpass"
SMALL_WINDOW = COUNTED_WINDOWS * WINDOW
GOODPUT = {"goodput": "bulk-1200", "goodput-network": "bulk-1200-network"}


class LossySocket(DatagramSocket):
    """Loses one datagram in a hundred on the way out."""

    def send(self, datagrams: Sequence[Outbound]) -> int:
        """All of them, but those that are lost."""
        left = [at for at in range(len(datagrams)) if not is_lost()]
        taken = super().send([datagrams[at] for at in left])
        return len(datagrams) if taken == len(left) else left[taken]

    def send_one(self, datagram: bytes, address: Address) -> bool:
        """Likewise."""
        return is_lost() or super().send_one(datagram, address)


class Lossy(LinkEndpoint):
    """Both ends lose them."""

    socket_class = LossySocket


class PairDirectory:
    """Knows the one other end there is."""

    def __init__(self) -> None:
        self.keys: dict[str, PublicIdentity] = {}

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """Its keys."""
        return self.keys.get(name)


def settings_for(work: str) -> LinkSettings:
    """Of an endpoint for this work."""
    if "network" in work:
        return LinkSettings(max_datagram_bytes=MIN_DATAGRAM_BYTES, loopback_tolerated_loss=0.0)
    return LinkSettings(max_datagram_bytes=MIN_DATAGRAM_BYTES) if "1200" in work else LinkSettings()


def endpoint(name: str, identity: Identity, directory: PairDirectory, work: str) -> LinkEndpoint:
    """An endpoint for this work."""
    kind = Lossy if work.endswith("-loss") else LinkEndpoint
    return kind(name, identity, directory, inbox_capacity=SMALL_WINDOW, settings=settings_for(work))


async def serve(work: str, client_keys: str) -> None:
    """Answer every message, until the process is ended."""
    directory, identity = PairDirectory(), Identity.generate()
    directory.keys["client"] = from_text(client_keys)
    server = endpoint("server", identity, directory, work)
    async with trio.open_nursery() as nursery:
        host, port = await nursery.start(server.serve)
        ready(host, port, to_text(identity.public))
        async for received in server.inbox:
            answer = answer_to(received.message)
            if answer is not None:
                server.post("client", received.address, bytes(answer))


def to_text(keys: PublicIdentity) -> str:
    """Public keys as a word for a command line."""
    return (encode_point(keys.signing) + encode_point(keys.agreement)).hex()


def from_text(text: str) -> PublicIdentity:
    """What `to_text` wrote."""
    data = bytes.fromhex(text)
    return PublicIdentity(decode_point_untrusted(data[:65]), decode_point_untrusted(data[65:]))


async def measure(work: str, seconds: float) -> float:
    """The figure of one work."""
    directory, identity = PairDirectory(), Identity.generate()
    with other_end(MODULE, work, to_text(identity.public)) as (host, port, keys):
        directory.keys["server"] = from_text(keys)
        client = endpoint("client", identity, directory, work)
        async with trio.open_nursery() as nursery:
            await nursery.start(client.serve)
            figure = await converse(client, (host, int(port)), work, seconds)
            nursery.cancel_scope.cancel()
    return figure


async def converse(client: LinkEndpoint, server: tuple[str, int], work: str, seconds: float) -> float:
    """One client's side."""
    if work == "rtt":

        async def there_and_back() -> None:
            client.post("server", server, SMALL)
            await client.inbox.receive()

        return await async_rtt(there_and_back, seconds)
    if work == "messages":
        watch = Stopwatch(seconds)
        for _ in range(COUNTED_WINDOWS - 1):
            post_window(client, server)
        while True:
            post_window(client, server)
            await client.inbox.receive()
            if not watch.count(WINDOW):
                return watch.per_second
    small = work == "echo"
    message, window = (SMALL, WINDOW) if small else (BULK, BULK_WINDOW)
    for _ in range(window):
        client.post("server", server, message)
    watch = Stopwatch(seconds)
    while True:
        await client.inbox.receive()
        client.post("server", server, message)
        if not watch.count(1):
            return watch.per_second if small else watch.per_second * len(BULK) / 1e6


def post_window(client: LinkEndpoint, server: tuple[str, int]) -> None:
    """One message after the other; which of them share a datagram is the link's business."""
    for _ in range(WINDOW):
        client.post("server", server, COUNTED)


def envelope() -> Callable[[bytes], bytes]:
    """Seal and open."""
    alice, bob = Identity.generate(), Identity.generate()
    claims = Claims("alpha.s1", "beta.s1", "tr-1", 7, 2.0, "digest")

    def both(payload: bytes) -> bytes:
        sealed = seal(payload, claims, sender=alice, receiver=bob.public)
        opened = open_untrusted(
            sealed, receiver=bob, receiver_id="beta.s1", sender=alice.public, now_s=1.0, max_bytes=len(payload)
        )
        return opened.payload

    return both


if __name__ == "__main__":
    logging.disable()
    todo, duration_s = arguments("batonpass")
    if todo == "serve":
        trio.run(serve, sys.argv[3], sys.argv[4])
    elif todo in GOODPUT:
        tell(trio.run(share_left, measure, GOODPUT[todo], duration_s))
    elif todo in SIZES:
        tell(processor_time(envelope(), todo, duration_s))
    else:
        tell(trio.run(measure, todo, duration_s))
