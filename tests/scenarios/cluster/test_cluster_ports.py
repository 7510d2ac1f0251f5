"""Ports that nobody takes between choosing and binding."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.cluster.ports import PortAllocator, PortTaken, ports_outside
from tests.scenarios.fakes import dice


@pytest.fixture
def ports() -> Iterator[PortAllocator]:
    with PortAllocator(dice(1)) as ports:
        yield ports


def listen_as_a_server_does(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@given(st.integers(1, 65_535), st.integers(1, 65_535))
def test_no_port_is_one_the_kernel_gives_to_outgoing_connections(first: int, last: int) -> None:
    first, last = min(first, last), max(first, last)
    below, above = range(1_024, first), range(max(last + 1, 1_024), 65_536)

    if max(len(below), len(above)) < 1_000:
        with pytest.raises(PortTaken, match=r"sysctl net\.ipv4\.ip_local_port_range"):
            ports_outside(first, last)
    else:
        candidates = ports_outside(first, last)
        assert len(candidates) >= 1_000
        assert set(candidates) <= set(below) | set(above)


def test_ports_below_the_usual_ephemeral_range_are_preferred() -> None:
    assert ports_outside(32_768, 60_999) == range(15_000, 32_768)


def test_chosen_ports_differ(ports: PortAllocator) -> None:
    chosen = [ports.choose() for _ in range(50)]

    assert len(set(chosen)) == 50


def test_two_clusters_with_the_same_dice_get_different_ports(ports: PortAllocator) -> None:
    with PortAllocator(dice(1)) as others:
        assert {ports.choose() for _ in range(20)}.isdisjoint({others.choose() for _ in range(20)})


def test_a_server_can_listen_on_its_reserved_port_and_again_after_a_crash(ports: PortAllocator) -> None:
    port = ports.choose()

    for _ in range(2):
        with listen_as_a_server_does(port), socket.create_connection(("127.0.0.1", port), timeout=5.0):
            pass
        # Closing the listener first leaves a connection in TIME_WAIT, as a crash does.


def test_a_server_can_bind_udp_on_its_reserved_port(ports: PortAllocator) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", ports.choose()))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_never_chosen(kind: socket.SocketKind) -> None:
    with PortAllocator(dice(7)) as first:
        favourite = first.choose()
    with socket.socket(socket.AF_INET, kind) as occupant:
        occupant.bind(("127.0.0.1", favourite))
        with PortAllocator(dice(7)) as second:
            assert second.choose() != favourite


def test_a_cluster_gets_its_earlier_ports_back(ports: PortAllocator) -> None:
    port = ports.choose()
    ports.close()

    with PortAllocator(dice(2)) as later:
        later.claim(port)


def test_a_port_that_another_program_listens_on_is_named(ports: PortAllocator) -> None:
    port = ports.choose()
    refused = pytest.raises(PortTaken, match=f"port {port} on 127.0.0.1 is used by another program")

    with listen_as_a_server_does(port), PortAllocator(dice(2)) as later, refused:
        later.claim(port)


def test_no_port_is_claimed_twice(ports: PortAllocator) -> None:
    port = ports.choose()

    with pytest.raises(PortTaken, match="claimed twice"):
        ports.claim(port)
