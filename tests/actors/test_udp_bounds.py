"""What strangers can make an endpoint do and hold, by numbers."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec

from actors.link.frames import Kind, write_header
from actors.udp import LinkEndpoint, LinkFull
from crypto.keys import Identity, PublicIdentity
from crypto.session import Initiator

BETA, STRANGER = Identity.generate(), Identity.generate()


class Directory:
    """Knows nobody, and answers when it is `open`."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.asked: list[str] = []

    async def keys_of(self, name: str) -> PublicIdentity | None:
        self.asked.append(name)
        await self.open.wait()
        return None


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


def hello(number: int) -> bytes:
    """Of a stranger who knows beta's public keys, as anybody may."""
    initiator = Initiator(
        name=f"nobody{number}.s1",
        identity=STRANGER,
        peer="beta.s1",
        peer_keys=BETA.public,
        session_id=1 + number,
        incarnation=1,
        generation=1,
        ephemeral=ec.generate_private_key(ec.SECP256R1()),
    )
    return write_header(Kind.HELLO, 0, 0) + initiator.hello


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 -- what is waited for are counters, which have no event
            await trio.sleep(0.002)


async def test_strangers_cause_a_bounded_number_of_look_ups_at_a_time(
    endpoint: LinkEndpoint, stranger: socket.socket
) -> None:
    for number in range(40):
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("dropped_lookup_rate", 0) == 8)
    directory = endpoint._directory
    assert isinstance(directory, Directory)
    await until(lambda: len(directory.asked) == 32)
    directory.open.set()
    await until(lambda: endpoint.stats.get("dropped_unknown_peer", 0) == 32)
    assert endpoint.stats["links"] == 0
    assert endpoint.stats.get("datagrams_out", 0) == 0


async def test_a_bounded_number_of_unknown_names_is_remembered(
    endpoint: LinkEndpoint, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.udp._MAX_UNKNOWN_NAMES", 4)
    directory = endpoint._directory
    assert isinstance(directory, Directory)
    directory.open.set()
    for number in range(10):
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("dropped_unknown_peer", 0) == 10)
    assert len(endpoint._unknown_until_s) == 4


async def test_hellos_beyond_the_rate_are_dropped(endpoint: LinkEndpoint, stranger: socket.socket) -> None:
    endpoint._gate._tokens, endpoint._gate._rate_per_s = 0.0, 0.0
    endpoint._gate._refilled_s = trio.current_time()
    for number in range(5):
        stranger.send(hello(number))
    await until(lambda: endpoint.stats.get("dropped_handshake_rate", 0) == 5)
    assert endpoint.stats.get("datagrams_out", 0) == 0


async def test_an_endpoint_talks_to_a_bounded_number_of_peers(
    endpoint: LinkEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.udp._MAX_LINKS", 3)
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
    drain, receive = endpoint._lookout._drain, endpoint._on_datagram

    def counted() -> None:
        turns.append(0)
        drain()

    def costly(*arguments: Any) -> None:
        turns[-1] += 1
        clock[0] += 0.003
        receive(*arguments)

    monkeypatch.setattr(endpoint._lookout, "_drain", counted)
    monkeypatch.setattr(endpoint, "_on_datagram", costly)
    began_s = trio.current_time()
    monkeypatch.setattr("actors.udp.trio.current_time", lambda: began_s + clock[0])
    for _ in range(40):
        stranger.send(b"noise")
    await until(lambda: endpoint.stats.get("dropped_malformed", 0) == 40)
    assert max(turns) == 2
