"""What strangers can make an endpoint do and hold, by numbers."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link import Link
from batonpass.actors.link.frames import DatagramKind, write_header
from batonpass.actors.net.endpoint import LinkEndpoint, LinkFull
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.session import Initiator

ALPHA, BETA, STRANGER = Identity.generate(), Identity.generate(), Identity.generate()


class Directory:
    """Knows `known`, and answers when it is `open`."""

    def __init__(self, known: dict[str, PublicIdentity] | None = None) -> None:
        self.open = trio.Event()
        self.asked: list[str] = []
        self.known = known or {}

    async def keys_of(self, name: str) -> PublicIdentity | None:
        self.asked.append(name)
        await self.open.wait()
        return self.known.get(name)


@pytest.fixture
async def endpoint(nursery: trio.Nursery) -> LinkEndpoint:
    endpoint = LinkEndpoint("beta.s1", BETA, Directory())
    await nursery.start(endpoint.serve)
    return endpoint


@pytest.fixture
def stranger(endpoint: LinkEndpoint) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.connect(endpoint.address)
        yield udp


def initiator_of(number: int, name: str = "", identity: Identity = STRANGER) -> Initiator:
    return Initiator(
        name=name or f"nobody{number}.s1",
        identity=identity,
        peer="beta.s1",
        peer_keys=BETA.public,
        session_id=1 + number,
        incarnation=1,
        generation=1,
        ephemeral=ec.generate_private_key(ec.SECP256R1()),
    )


def hello(number: int, name: str = "", identity: Identity = STRANGER) -> bytes:
    """Of a stranger who knows beta's public keys, as anybody may."""
    return write_header(DatagramKind.HELLO, 0, 0) + initiator_of(number, name, identity).hello


async def answer(udp: socket.socket) -> bytes:
    """What comes back."""
    with trio.fail_after(90):
        await trio.lowlevel.wait_readable(udp)
    return udp.recv(2000)


async def with_cookie(udp: socket.socket, number: int, name: str = "", identity: Identity = STRANGER) -> bytes:
    """A HELLO of somebody who receives at his address: with the cookie that the first one got."""
    initiator = initiator_of(number, name, identity)
    udp.send(write_header(DatagramKind.HELLO, 0, 0) + initiator.hello)
    cookie = await answer(udp)
    assert cookie[0] == DatagramKind.COOKIE
    initiator.read_cookie_untrusted(cookie[:16], cookie[16:])
    value = int.from_bytes(cookie[8:16], "little")
    initiator.take_cookie(value)
    return write_header(DatagramKind.HELLO, 0, value) + initiator.hello


def directory_of(endpoint: LinkEndpoint) -> Directory:
    assert isinstance(endpoint._peer_keys._directory, Directory)
    return endpoint._peer_keys._directory


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(90):
        while not condition():  # noqa: ASYNC110 -- what is waited for are counters, which have no event
            await trio.sleep(0.002)


async def test_strangers_cause_a_bounded_number_of_look_ups_at_a_time(
    endpoint: LinkEndpoint, stranger: socket.socket
) -> None:
    """Sixteen without a cookie, and two for each address that has one."""
    for number in range(40):
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("cookies_sent", 0) == 24)
    for _ in range(24):
        assert len(await answer(stranger)) == 32
    for number in range(40, 44):
        stranger.send(await with_cookie(stranger, number))
    await until(lambda: endpoint.stats.get("dropped_lookup_rate", 0) == 2)
    directory = directory_of(endpoint)
    await until(lambda: len(directory.asked) == 18)
    directory.open.set()
    await until(lambda: endpoint.stats.get("dropped_unknown_peer", 0) == 18)
    assert endpoint.stats["links"] == 0
    assert not endpoint._admission._strangers._lookups


async def test_whoever_floods_with_names_from_his_own_address_leaves_others_their_look_ups(
    endpoint: LinkEndpoint, stranger: socket.socket
) -> None:
    directory = directory_of(endpoint)
    directory.known["alpha.s1"] = ALPHA.public
    for number in range(16):
        stranger.send(hello(number))
    await until(lambda: len(directory.asked) == 16)
    for number in range(20, 30):
        stranger.send(await with_cookie(stranger, number))
    await until(lambda: endpoint.stats.get("dropped_lookup_rate", 0) == 8)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.bind(("127.0.0.77", 0))
        udp.connect(endpoint.address)
        udp.send(await with_cookie(udp, 50, "alpha.s1", ALPHA))
        await until(lambda: "alpha.s1" in directory.asked)
        directory.open.set()
        assert (await answer(udp))[0] == DatagramKind.ACCEPT


async def test_names_that_the_directory_knows_are_worth_no_link_and_no_answer(
    endpoint: LinkEndpoint, stranger: socket.socket
) -> None:
    directory = directory_of(endpoint)
    directory.known = {f"nobody{number}.s1": ALPHA.public for number in range(12)}
    directory.open.set()
    for number in range(12):
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("dropped_unproved", 0) == 12)
    for number in range(12):  # their keys are known now, and they are not asked for again
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("dropped_unproved", 0) == 24)
    assert len(directory.asked) == 12
    assert endpoint.stats["links"] == endpoint.stats.get("datagrams_out", 0) == 0
    assert not endpoint._ids.links


async def test_a_crowded_endpoint_makes_links_for_fresh_cookies_only(
    endpoint: LinkEndpoint, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.actors.net.link_table._CROWDED_LINKS", 1)
    monkeypatch.setattr("batonpass.actors.net.link_table._MAX_LINKS", 2)
    names = [f"alpha{number}.s1" for number in range(3)]
    directory = directory_of(endpoint)
    directory.known = dict.fromkeys(names, ALPHA.public)
    directory.open.set()
    stranger.send(hello(0, names[0], ALPHA))
    assert (await answer(stranger))[0] == DatagramKind.ACCEPT
    stranger.send(await with_cookie(stranger, 1, names[1], ALPHA))
    assert (await answer(stranger))[0] == DatagramKind.ACCEPT
    stranger.send(await with_cookie(stranger, 2, names[2], ALPHA))
    await until(lambda: endpoint.stats.get("dropped_handshake_rate", 0) == 1)
    assert endpoint.stats["links"] == 2


async def test_a_bounded_number_of_unknown_names_is_remembered(
    endpoint: LinkEndpoint, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint._peer_keys._unknown_until_s, "max_entries", 4)
    directory = endpoint._peer_keys._directory
    assert isinstance(directory, Directory)
    directory.open.set()
    for number in range(10):
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("dropped_unknown_peer", 0) == 10)
    assert len(endpoint._peer_keys._unknown_until_s) == 4


async def test_hellos_beyond_the_rate_are_dropped(endpoint: LinkEndpoint, stranger: socket.socket) -> None:
    """Also good ones: peers with good keys may mean ill."""
    directory = directory_of(endpoint)
    directory.known["alpha.s1"] = ALPHA.public
    directory.open.set()
    endpoint._gate._tokens, endpoint._gate._rate_per_s = 0.0, 0.0
    endpoint._gate._refilled_s = trio.current_time()
    for number in range(5):
        stranger.send(await with_cookie(stranger, number, "alpha.s1", ALPHA))
    await until(lambda: endpoint.stats.get("dropped_handshake_rate", 0) == 5)
    assert endpoint.stats["links"] == 0


async def test_an_endpoint_talks_to_a_bounded_number_of_peers(
    endpoint: LinkEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.actors.net.link_table._MAX_LINKS", 3)
    for number in range(3):
        endpoint.post(f"peer{number}.s1", ("127.0.0.1", 9), b"x")
    with pytest.raises(LinkFull, match="3 peers"):
        endpoint.post("peer3.s1", ("127.0.0.1", 9), b"x")
    assert endpoint.stats["links"] == 3


async def test_a_peer_whose_datagrams_are_costly_does_not_keep_others_from_their_turn(
    endpoint: LinkEndpoint, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading ends when it has taken its time, however many datagrams wait; the rest is read in later turns."""
    turns: list[int] = []
    clock = [0.0]
    drain, receive = endpoint._poller._drain, endpoint._demultiplexer.on_datagram

    def counted() -> bool:
        turns.append(0)
        return drain()

    def costly(*arguments: Any) -> tuple[int, Link | None]:
        turns[-1] += 1
        clock[0] += 0.003
        return receive(*arguments)

    monkeypatch.setattr(endpoint._poller, "_drain", counted)
    monkeypatch.setattr(endpoint._demultiplexer, "on_datagram", costly)
    began_s = trio.current_time()
    monkeypatch.setattr(endpoint, "_now", lambda: began_s + clock[0])
    for _ in range(40):
        stranger.send(b"noise")
    await until(lambda: endpoint.stats.get("dropped_malformed", 0) == 40)
    assert max(turns) == 2
