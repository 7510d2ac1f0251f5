"""Sends that wait for credit: in order on each channel, and a big one holds up no small one of another."""

from collections import defaultdict
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import LARGE_MESSAGE_BYTES, Link
from batonpass.actors.link.settings import RESERVED_CREDIT_BYTES, SMALL_MESSAGE_BYTES
from batonpass.actors.net.waiting_sends import WaitingSend, WaitingSends

BIG = SMALL_MESSAGE_BYTES + 1


class Credit:
    """A link as far as these ask it: so much credit, of which bigger messages leave a reserve."""

    peer = "beta.s1"

    def __init__(self, credit_bytes: int = 0) -> None:
        self.credit_bytes = credit_bytes
        self.room_bytes = 0  # for large ones
        self.is_credit_awaited = False
        self.sent: list[tuple[int, bytes]] = []

    def fits_credit(self, size_bytes: int) -> bool:
        if size_bytes > LARGE_MESSAGE_BYTES:
            return size_bytes <= self.room_bytes
        reserve_bytes = RESERVED_CREDIT_BYTES if size_bytes > SMALL_MESSAGE_BYTES else 0
        return size_bytes + reserve_bytes < self.credit_bytes

    def send(self, data: bytes, now: float, channel: int) -> None:
        if len(data) <= LARGE_MESSAGE_BYTES:
            self.credit_bytes -= len(data)
        self.sent.append((channel, data))


class Sender:
    """As the endpoint does it."""

    def __init__(self, link: Credit) -> None:
        self.credit, self.link = link, cast(Link, link)
        self.waiting = WaitingSends()

    def send(self, message: bytes, channel: int) -> bool:
        """Whether it did not have to wait."""
        if self.credit.fits_credit(len(message)) and self.waiting.may_overtake(self.link, message, channel):
            self.credit.send(message, 0.0, channel)
            return True
        self.waiting.add(self.link, WaitingSend(message, channel))
        self.waiting.serve(self.link, 0.0)
        return False


def test_a_small_one_goes_past_a_big_one_on_another_channel_and_not_on_the_same() -> None:
    sender = Sender(Credit(RESERVED_CREDIT_BYTES))
    assert not sender.send(bytes(BIG), 1)
    assert sender.send(b"small", 2)
    assert not sender.send(b"small", 1)
    assert sender.credit.sent == [(2, b"small")]
    sender.credit.credit_bytes += BIG + 10
    sender.waiting.serve(sender.link, 0.0)
    assert [channel for channel, _ in sender.credit.sent] == [2, 1, 1]
    assert not sender.waiting.links
    assert not sender.credit.is_credit_awaited


def test_small_ones_that_came_later_do_not_starve_a_big_one() -> None:
    sender = Sender(Credit(RESERVED_CREDIT_BYTES))
    sender.send(bytes(BIG), 1)
    passed = 0
    while sender.send(bytes(1000), 2):
        passed += 1
        sender.credit.credit_bytes += 500  # half of it comes back
        assert passed < 1000
    assert 150 < passed < 250
    sender.credit.credit_bytes += 2 * RESERVED_CREDIT_BYTES
    sender.waiting.serve(sender.link, 0.0)
    assert [channel for channel, _ in sender.credit.sent][-2:] == [1, 2]
    assert sender.send(bytes(1000), 2)  # and they may again


def test_a_small_one_that_waits_behind_a_big_one_goes_as_soon_as_there_is_credit_for_it() -> None:
    sender = Sender(Credit(0))
    sender.send(bytes(BIG), 1)
    assert not sender.send(b"small", 2)
    sender.credit.credit_bytes = 100
    sender.waiting.serve(sender.link, 0.0)
    assert sender.credit.sent == [(2, b"small")]


SIZES = st.sampled_from([0, 10, 1000, SMALL_MESSAGE_BYTES, BIG, 100_000, 3_000_000, LARGE_MESSAGE_BYTES + 1])
STEPS = st.one_of(st.tuples(st.integers(0, 3), SIZES), st.integers(1, 5_000_000))


@given(st.lists(STEPS, max_size=40))
def test_every_channel_keeps_its_order_and_nothing_is_left(steps: list[tuple[int, int] | int]) -> None:
    sender = Sender(Credit(RESERVED_CREDIT_BYTES))
    said: dict[int, list[int]] = defaultdict(list)
    for step in steps:
        if isinstance(step, int):
            sender.credit.credit_bytes += step
            sender.credit.room_bytes += step
            sender.waiting.serve(sender.link, 0.0)
        else:
            channel, size = step
            said[channel].append(size)
            sender.send(bytes(size), channel)
    sender.credit.room_bytes = 10**9
    for _ in range(3):
        sender.credit.credit_bytes += 10**9
        sender.waiting.serve(sender.link, 0.0)
    got: dict[int, list[int]] = defaultdict(list)
    for channel, data in sender.credit.sent:
        got[channel].append(len(data))
    assert got == said
    assert not sender.waiting.links
