"""Many datagrams handled at a time are as good as one by one: same messages, same checks, no shared memory."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import Link, LinkSettings
from batonpass.actors.link.assembly import Assembly
from batonpass.actors.link.frames import (
    MIN_PIECE_BYTES,
    LargeWant,
    Piece,
    data_run_length,
    piece_head,
    read_piece_run_untrusted,
)
from batonpass.actors.link.incoming import IncomingMessages
from batonpass.actors.link.large import REACH_BYTES
from batonpass.actors.link.settings import MIN_DATAGRAM_BYTES, UNORDERED_AHEAD
from batonpass.actors.net.demultiplexer import Demultiplexer
from batonpass.crypto.errors import Malformed
from tests.actors.link.network import Network, Transit

LARGE = LinkSettings(max_datagram_bytes=4200, initial_flight_bytes=2 * 1024 * 1024)
SETTINGS = LinkSettings(max_datagram_bytes=MIN_DATAGRAM_BYTES, initial_flight_bytes=2 * 1024 * 1024)


def joined(settings: LinkSettings = SETTINGS) -> Network:
    network = Network(settings=settings)
    network.send(network.alpha, b"hello")
    network.run(lambda: bool(network.beta.received) and network.is_quiet)
    network.beta.received.clear()
    return network


def sealed(network: Network, messages: list[bytes]) -> list[bytes]:
    """What alpha sends for these, kept from the network."""
    for message in messages:
        network.alpha.link.send(message, network.now)
    return [datagram for datagram, _ in network.alpha.link.datagrams_to_send(network.now)]


def glued(datagrams: list[bytes]) -> list[list[bytes]]:
    """Runs of one size, as a kernel glues them."""
    trains: list[list[bytes]] = []
    for datagram in datagrams:
        if trains and len(trains[-1][0]) == len(datagram) and len(trains[-1]) < 50:
            trains[-1].append(datagram)
        else:
            trains.append([datagram])
    return trains


def deliver(link: Link, train: list[bytes], now: float, source: tuple[str, int]) -> bool:
    """As the shell does; whether the train was taken as one."""
    size = len(train[0])
    left = b"".join(train)
    was_taken = False
    while count := data_run_length(left, size):
        if not link.receive_train(left[: count * size], size, now, source):
            break
        left = left[count * size :]
        was_taken = True
    for at in range(0, len(left), size):
        link.receive(left[at : at + size], now, source)
    return was_taken


def state(link: Link) -> tuple[object, ...]:
    held = [
        (number, assembly.missing, assembly.pieces)
        for channel in link._incoming._channels
        for number, assembly in channel.assemblies.items()
    ]
    arrivals = link.arrivals
    replay = arrivals.replay
    return replay._top, list(replay._ring), arrivals.ranges.descending(), held, link._incoming._used_bytes


def arrive(network: Network, datagrams: list[bytes]) -> None:
    """As the shell does with large ones that it takes from the kernel together."""
    link = network.beta.link
    session = link._sessions.current
    assert session is not None
    counters = network.beta.counters
    demultiplexer = Demultiplexer({session.session_id: link}, counters, lambda *_: None, lambda *_: None)
    source = network.alpha.address
    arrived = [(memoryview(bytearray(datagram)), 0, source) for datagram in datagrams]
    demultiplexer.on_arrivals(arrived, network.now, {})


@contextmanager
def one_by_one() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batonpass.actors.net.demultiplexer._LARGE_BYTES", 2**20)
        yield


def test_large_pieces_that_come_together_are_deciphered_where_they_belong() -> None:
    network = joined(LARGE)
    message = random.Random(1).randbytes(100_000)
    opened: list[int] = []

    def counted(self: Assembly, first: int, heads: list[bytes], open_into: Callable[[int, memoryview], bool]) -> int:
        opened.append(open_run(self, first, heads, open_into))
        return opened[-1]

    open_run = Assembly.open_run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Assembly, "open_run", counted)
        datagrams = sealed(network, [message])
        for at in range(0, len(datagrams), 8):
            arrive(network, datagrams[at : at + 8])
    assert sum(opened) >= len(datagrams) * 3 // 4
    received = network.beta.link.take()
    assert received is not None
    assert received.data == message
    assert type(received.data) is bytes


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 60_000), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["drop", "repeat", "flip", "swap", "fine", "fine"]), st.integers(0, 99)), max_size=8
    ),
)
def test_large_pieces_together_are_as_good_as_one_by_one(
    seed: int, sizes: list[int], faults: list[tuple[str, int]]
) -> None:
    """Whatever the network does: the same is counted, acknowledged and held after each batch, and nothing is lost."""
    dice = random.Random(seed)
    messages = [dice.randbytes(size) for size in sizes]
    together, alone = joined(LARGE), joined(LARGE)
    for network in (together, alone):
        datagrams = sealed(network, messages)
        for batch, (fault, which) in enumerate([*faults, *[("fine", 0)] * len(datagrams)]):
            some = datagrams[batch * 6 : batch * 6 + 6]
            if some:
                damage(some, fault, which % len(some))
            if network is together:
                arrive(network, some)
            else:
                with one_by_one():
                    arrive(network, some)
    assert state(together.beta.link) == state(alone.beta.link)
    assert together.beta.counters == alone.beta.counters
    for network in (together, alone):
        network.pump(network.beta)
        network.run(lambda network=network: network.is_quiet, limit_s=60)  # type: ignore[misc]
        assert [message.data for message in network.beta.received] == messages
        assert not network.beta.counters["dropped_violation"]


def damage(datagrams: list[bytes], fault: str, at: int) -> None:
    if fault == "drop":
        del datagrams[at]
    elif fault == "repeat":
        datagrams.insert(at, datagrams[at])
    elif fault == "flip":
        datagrams[at] = datagrams[at][:-1] + bytes([datagrams[at][-1] ^ 1])
    elif fault == "swap":
        datagrams[0], datagrams[at] = datagrams[at], datagrams[0]


def test_a_piece_that_is_not_the_one_expected_harms_none_that_has_arrived() -> None:
    """Its counter is in sequence and its size is right, so it is deciphered where another one belongs."""
    network = joined(LARGE)
    sender = network.alpha.link._sender
    session = network.alpha.link._sessions.current
    assert session is not None
    dice = random.Random(3)
    size = 5000
    parts = [0, 1, 3, 2, 4, 5]
    pieces = {part: dice.randbytes(size) for part in parts}
    datagrams = [sender.seal(session, piece_head(2, 0, 6 * size, size, part) + pieces[part]) for part in parts]
    arrive(network, datagrams)
    received = network.beta.link.take()
    assert received is not None
    assert received.data == b"".join(pieces[part] for part in range(6))


def test_pieces_in_sequence_are_taken_at_once() -> None:
    network = joined()
    message = random.Random(1).randbytes(300_000)
    trains = glued(sealed(network, [message]))
    before = network.beta.counters["datagrams_in"]
    taken = [deliver(network.beta.link, train, network.now, network.alpha.address) for train in trains]
    assert taken.count(True) >= 5
    received = network.beta.link.take()
    assert received is not None
    assert received.data == message
    assert network.beta.counters["datagrams_in"] - before == sum(map(len, trains))


@given(st.integers(0, 2**32), st.lists(st.integers(0, 60_000), min_size=1, max_size=6))
def test_whatever_happens_to_a_train_messages_arrive_once_and_in_order(seed: int, sizes: list[int]) -> None:
    network = joined()
    dice = random.Random(seed)
    messages = [dice.randbytes(size) for size in sizes]
    for train in glued(sealed(network, messages)):
        for _ in range(dice.choice([1, 1, 1, 2])):  # repeated as a whole
            bad = list(train)
            match dice.randrange(6):
                case 0:
                    del bad[dice.randrange(len(bad))]
                case 1:
                    bad.insert(dice.randrange(len(bad)), bad[dice.randrange(len(bad))])
                case 2:
                    at = dice.randrange(len(bad))
                    broken = bytearray(bad[at])
                    broken[dice.randrange(len(broken))] ^= 1
                    bad[at] = bytes(broken)
                case 3:
                    dice.shuffle(bad)
                case _:
                    pass
            if bad:
                deliver(network.beta.link, bad, network.now, network.alpha.address)
    network.pump(network.beta)
    network.run(lambda: network.is_quiet, limit_s=60)
    network.pump(network.beta)
    assert [message.data for message in network.beta.received] == messages
    assert not network.beta.counters["dropped_violation"]


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_forged_datagram_in_a_train_changes_nothing_but_itself(place: str) -> None:
    network = joined()
    train = glued(sealed(network, [bytes(100_000)]))[0]
    at = {"first": 0, "middle": 20, "last": len(train) - 1}[place]
    forged = [*train[:at], train[at][:-1] + bytes([train[at][-1] ^ 1]), *train[at + 1 :]]
    before = state(network.beta.link)
    whole = b"".join(forged)
    assert not network.beta.link.receive_train(whole, len(train[0]), network.now, network.alpha.address)
    assert state(network.beta.link) == before
    for datagram in forged:
        network.deliver(Transit(network.alpha.address, network.beta.address, datagram))
    assert network.beta.counters["dropped_bad_tag"] == 1


def test_a_train_from_elsewhere_or_of_no_session_or_come_again_is_looked_at_one_by_one() -> None:
    network = joined()
    trains = glued(sealed(network, [bytes(200_000)]))
    link, size = network.beta.link, len(trains[0][0])
    whole = b"".join(trains[0])
    assert not link.receive_train(whole, size, network.now, ("6.6.6.6", 6))
    nobody = b"".join(datagram[:4] + bytes(4) + datagram[8:] for datagram in trains[0])
    assert not link.receive_train(nobody, size, network.now, network.alpha.address)
    assert deliver(link, trains[0], network.now, network.alpha.address)
    assert not deliver(link, trains[0], network.now, network.alpha.address)
    assert network.beta.counters["dropped_replayed"] == len(trains[0])


@given(st.binary(max_size=200), st.integers(1, 60))
def test_noise_is_a_run_only_as_far_as_it_is_headers_in_sequence(noise: bytes, size: int) -> None:
    count = data_run_length(noise, size)
    assert 0 <= count <= len(noise) // size
    headers = [noise[at : at + 16] for at in range(0, count * size, size)]
    for counter, header in enumerate(headers[1:], int.from_bytes(noise[8:16], "little") + 1):
        assert header == noise[:8] + counter.to_bytes(8, "little")


PIECE = bytes(MIN_PIECE_BYTES)


def bodies(total: int, first: int, count: int) -> list[bytes]:
    return [piece_head(0, 0, total, MIN_PIECE_BYTES, first + at) + PIECE for at in range(count)]


def test_only_consecutive_whole_pieces_of_one_message_are_a_run() -> None:
    usual = bodies(100_000, 3, 10)
    run = read_piece_run_untrusted(usual)
    assert run is not None
    assert run[0][:5] == (0, 0, 100_000, MIN_PIECE_BYTES, 3)
    assert list(run[1]) == [PIECE] * 10
    other = piece_head(1, 0, 100_000, MIN_PIECE_BYTES, 6) + PIECE
    for unusual in (
        [*usual[:3], other, *usual[4:]],
        usual[::-1],
        [usual[0], *usual],
        [*usual[:3], b"\x04", *usual[4:]],
    ):
        assert read_piece_run_untrusted(unusual) is None
    with pytest.raises(Malformed):
        read_piece_run_untrusted(bodies(5000, 3, 8))  # runs beyond its message


def test_a_run_takes_credit_once_and_overwrites_nothing() -> None:
    incoming = IncomingMessages(window_bytes=100_000, window_messages=64)
    first = Piece(0, 0, 90_000, MIN_PIECE_BYTES, 0, PIECE)
    assert incoming.on_piece_run(first, [PIECE] * 10)
    assert incoming._used_bytes == 90_000
    assert not incoming.on_piece_run(first, [b"x" * MIN_PIECE_BYTES] * 10)  # they are there already
    assert not incoming.on_piece_run(first._replace(part=9), [PIECE] * 2)  # one of them is
    assert not incoming.on_piece_run(first._replace(total_bytes=90_001, part=20), [PIECE])
    assert incoming.on_piece_run(first._replace(part=10), [PIECE] * 5)
    assert incoming._used_bytes == 90_000
    with pytest.raises(Malformed, match="credit"):
        incoming.on_piece_run(first._replace(number=1), [PIECE] * 2)
    assert list(incoming._channels[0].assemblies) == [0]


def test_a_message_shares_no_memory_with_what_arrives_later() -> None:
    """The shell reuses its receive buffer; what the application was given must not change under its hands."""
    network = Network(settings=replace(SETTINGS, max_datagram_bytes=61_440))
    network.send(network.alpha, b"hello")
    network.run(lambda: bool(network.beta.received) and network.is_quiet)
    buffer = bytearray(65_536)
    noise = random.Random(2)
    messages = [noise.randbytes(size) for size in (50, 200_000, 3000)]
    taken: list[bytes] = []
    for datagram in sealed(network, messages):
        buffer[: len(datagram)] = datagram
        network.beta.link.receive(memoryview(buffer)[: len(datagram)], network.now, network.alpha.address)
        buffer[:] = bytes(len(buffer))
        while (message := network.beta.link.take()) is not None:
            taken.append(message.data)
    assert taken == messages
    assert all(type(message) is bytes for message in taken)


def test_a_run_on_an_unordered_channel_is_not_begun_further_ahead_than_a_single_piece() -> None:
    """Else a peer could make us remember numbers without end, of messages that came while an earlier one is missing."""
    incoming = IncomingMessages(window_bytes=8 * 2**20, window_messages=64)
    first = Piece(20, UNORDERED_AHEAD, 90_000, MIN_PIECE_BYTES, 0, PIECE)
    with pytest.raises(Malformed, match="too far ahead"):
        incoming.on_piece_run(first, [PIECE] * 3)
    assert incoming.on_piece_run(first._replace(number=UNORDERED_AHEAD - 1), [PIECE] * 3)


def test_a_run_of_a_large_message_reaches_no_further_ahead_than_a_single_piece() -> None:
    incoming = IncomingMessages(window_bytes=8 * 2**20, window_messages=64)
    total_bytes = 2 * REACH_BYTES
    incoming.on_want(LargeWant(1, total_bytes))
    assert incoming.large_news(0.0)
    near = REACH_BYTES // MIN_PIECE_BYTES
    first = Piece(2, 0, total_bytes, MIN_PIECE_BYTES, near - 3, PIECE)
    assert incoming.on_piece_run(first, [PIECE] * 3)
    assert not incoming.on_piece_run(first._replace(part=near), [PIECE] * 3)
