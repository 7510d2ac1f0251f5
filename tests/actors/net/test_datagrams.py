"""The socket that sends and receives trains: cut as the kernel says, and as good without them."""

import errno
import random
import socket
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.net.datagrams import (
    MAX_TRAIN_BYTES,
    MAX_TRAIN_DATAGRAMS,
    DatagramSocket,
    Outbound,
    is_loopback_path,
    segments_of,
    train_length,
)

HERE = ("127.0.0.1", 9)
ELSEWHERE = ("127.0.0.2", 9)


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
        udp.bind(("127.0.0.1", 0))
        yield udp


def received(endpoint: DatagramSocket) -> list[bytes]:
    datagrams: list[bytes] = []
    while True:
        try:
            arrived, segment_bytes, _ = endpoint.receive()
        except BlockingIOError:
            return datagrams
        datagrams += segments_of(bytes(arrived), segment_bytes)


SIZES = st.lists(st.sampled_from([0, 1, 100, 1199, 1200, 1200, 1200, 1200, 20_000, 61_440]), max_size=80)


@given(SIZES, st.data())
def test_a_train_has_one_place_and_one_size_and_fits_one_call(sizes: list[int], data: st.DataObject) -> None:
    datagrams: list[Outbound] = [(bytes(size), data.draw(st.sampled_from([HERE, HERE, ELSEWHERE]))) for size in sizes]
    at = 0
    while at < len(datagrams):
        count = train_length(datagrams, at)
        train = datagrams[at : at + count]
        lengths = [len(datagram) for datagram, _ in train]
        assert 1 <= len(train) == count <= MAX_TRAIN_DATAGRAMS
        assert len({address for _, address in train}) == 1
        if count > 1:
            assert sum(lengths) <= MAX_TRAIN_BYTES
            assert set(lengths[:-1]) == {lengths[0]}
            assert 0 < lengths[-1] <= lengths[0]
        at += count


@given(st.binary(max_size=300), st.integers(-5, 400))
def test_cutting_loses_nothing_whatever_size_is_reported(arrived: bytes, segment_bytes: int) -> None:
    segments = segments_of(arrived, segment_bytes)
    assert b"".join(segments) == arrived
    assert len(segments) >= 1
    if 0 < segment_bytes < len(arrived):
        assert {len(segment) for segment in segments[:-1]} <= {segment_bytes}
        assert 0 < len(segments[-1]) <= segment_bytes
    else:
        assert segments == [arrived]


@pytest.mark.parametrize(
    "sizes", [[1200] * 54, [1200] * 100 + [7], [61_440] * 3, [100, 1200, 1200, 50, 50, 0, 50], [5]]
)
def test_what_is_sent_arrives_as_the_same_datagrams(udp: socket.socket, sizes: list[int]) -> None:
    endpoint = DatagramSocket(udp, Counter())
    noise = random.Random(1)
    datagrams: list[Outbound] = [(noise.randbytes(size), udp.getsockname()) for size in sizes]
    assert endpoint.send(datagrams) == len(datagrams)
    assert received(endpoint) == [datagram for datagram, _ in datagrams]


def test_contents_that_look_like_lengths_move_no_cut(udp: socket.socket) -> None:
    """Every datagram claims, at every place, to be of some other length."""
    endpoint = DatagramSocket(udp, Counter())
    datagrams: list[Outbound] = [(bytes([number, 0]) * 600, udp.getsockname()) for number in range(40)]
    assert endpoint.send(datagrams) == 40
    assert received(endpoint) == [datagram for datagram, _ in datagrams]


class Refusing:
    """A kernel that refuses trains."""

    def __init__(self, code: int, *, knows: bool = True, full_after: int = 10**6) -> None:
        self.code = code
        self.knows = knows
        self.full_after = full_after
        self.trains_tried = 0
        self.sent: list[bytes] = []

    def setsockopt(self, *_: object) -> None:
        raise OSError(errno.ENOPROTOOPT, "no GRO")

    def getsockopt(self, *_: object) -> int:
        if not self.knows:
            raise OSError(errno.ENOPROTOOPT, "no GSO")
        return 0

    def sendmsg(self, *_: object) -> int:
        self.trains_tried += 1
        raise OSError(self.code, "no")

    def sendto(self, datagram: bytes, _: object) -> int:
        if len(self.sent) >= self.full_after:
            raise BlockingIOError
        self.sent.append(datagram)
        return len(datagram)


TRAIN: list[Outbound] = [(bytes([number]) * 1200, HERE) for number in range(20)]


@pytest.mark.parametrize(
    ("code", "tries"),
    [(errno.EIO, 1), (errno.EOPNOTSUPP, 1), (errno.ENOPROTOOPT, 1), (errno.EINVAL, 2), (errno.EMSGSIZE, 2)],
)
def test_a_refused_train_leaves_one_by_one_and_is_counted(code: int, tries: int) -> None:
    """What the kernel will always say is believed the first time; what depends on the path is tried again."""
    counters: Counter[str] = Counter()
    kernel = Refusing(code)
    endpoint = DatagramSocket(kernel, counters)  # type: ignore[arg-type]  # a fake
    for _ in range(2):
        assert endpoint.send(TRAIN) == 20
    assert kernel.sent == [datagram for datagram, _ in TRAIN] * 2
    assert kernel.trains_tried == counters["trains_refused"] == tries
    assert counters["gro_refused"] == 1
    assert endpoint.sends_trains == (tries == 2)


def test_a_kernel_that_does_not_know_trains_gets_none() -> None:
    kernel = Refusing(errno.EIO, knows=False)
    endpoint = DatagramSocket(kernel, Counter())  # type: ignore[arg-type]  # a fake
    assert endpoint.send(TRAIN) == 20
    assert (len(kernel.sent), kernel.trains_tried) == (20, 0)


def test_what_does_not_fit_the_kernel_is_for_later_or_lost_like_any_other() -> None:
    endpoint = DatagramSocket(Refusing(errno.EAGAIN), Counter())  # type: ignore[arg-type]  # a fake
    assert endpoint.send(TRAIN) == 0  # full before the train: all of it is kept
    counters: Counter[str] = Counter()
    endpoint = DatagramSocket(Refusing(errno.EIO, full_after=5), counters)  # type: ignore[arg-type]  # a fake
    assert endpoint.send(TRAIN) == 20  # full within a train that leaves one by one: what is left is lost on the way
    assert counters["dropped_send_buffer"] == 15
    assert endpoint.send(TRAIN) == 0
    unreachable = Refusing(errno.ENETUNREACH)
    endpoint = DatagramSocket(unreachable, counters)  # type: ignore[arg-type]  # a fake
    assert endpoint.send(TRAIN) == 20
    assert counters["socket_errors"] == 1


def test_loopback_is_told_from_the_rest_by_its_mtu() -> None:
    assert is_loopback_path(socket.AF_INET, ("127.0.0.1", 9))
    assert not is_loopback_path(socket.AF_INET6, ("::1", 9))
    assert not is_loopback_path(socket.AF_INET, ("255.255.255.255", 9))  # no way there without asking for it
