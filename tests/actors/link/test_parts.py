"""The arithmetic of the link, each part against an obviously correct twin or its rule."""

import itertools
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.link import LinkSettings
from batonpass.actors.link import deadlines as deadlines_module
from batonpass.actors.link.congestion import CongestionWindow, RoundTrip
from batonpass.actors.link.deadlines import Deadlines
from batonpass.actors.link.frames import Ack, Message, Piece
from batonpass.actors.link.gate import COOKIE_EPOCH_S, Allowance, HandshakeGate, HelloVerdict
from batonpass.actors.link.incoming import IncomingMessages
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.outgoing_message import OutgoingRun
from batonpass.actors.link.ranges import MAX_RANGES, SETTLED_COUNTERS, CounterRanges
from batonpass.actors.link.settings import (
    INITIAL_CREDIT_BYTES,
    INITIAL_CREDIT_MESSAGES,
    LARGE_MESSAGE_BYTES,
    RESERVED_CREDIT_BYTES,
    SMALL_MESSAGE_BYTES,
)
from batonpass.crypto.errors import Malformed
from batonpass.crypto.session import Hello


class TestCounterRanges:
    @given(st.lists(st.integers(0, 100), max_size=200))
    def test_it_is_the_set_of_what_was_added(self, counters: list[int]) -> None:
        ranges = CounterRanges()
        for counter in counters:
            ranges.add(counter)
        listed = list(ranges.descending())
        assert {counter for first, last in listed for counter in range(first, last + 1)} == set(counters)
        assert all(above[0] > below[1] + 1 for above, below in itertools.pairwise(listed))
        assert ranges.largest == max(counters, default=-1)
        assert bool(ranges) == bool(counters)

    @given(st.permutations(range(0, 4 * MAX_RANGES, 2)))
    def test_the_highest_runs_are_kept(self, counters: list[int]) -> None:
        ranges = CounterRanges()
        for counter in sorted(counters[: MAX_RANGES // 2]) + counters[MAX_RANGES // 2 :]:
            ranges.add(counter)
        assert len(list(ranges.descending())) <= MAX_RANGES
        assert ranges.largest == max(counters)


class TestDeadlines:
    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.booleans())))
    def test_nothing_is_looked_at_later_than_its_earliest_deadline(self, script: list[tuple[int, int, bool]]) -> None:
        for least in (0, 64):
            with mock.patch.object(deadlines_module, "LEAST", least):
                self.nothing_is_late(script)

    def nothing_is_late(self, script: list[tuple[int, int, bool]]) -> None:
        deadlines: Deadlines[int] = Deadlines()
        earliest: dict[int, float] = {}
        for item, deadline_s, is_removal in script:
            if is_removal:
                deadlines.remove(item)
                earliest.pop(item, None)
            else:
                is_first = deadlines.add(item, deadline_s)
                earliest[item] = min(earliest.get(item, deadline_s), deadline_s)
                if deadline_s < min(earliest.values()) or earliest == {item: deadline_s}:
                    assert is_first or deadlines.next_s is not None
            assert deadlines.next_s is None or not earliest or deadlines.next_s <= min(earliest.values())
        for now in range(51):
            due = deadlines.pop_due(now)
            assert sorted(due) == sorted(item for item, deadline_s in earliest.items() if deadline_s == now)
        assert deadlines.next_s is None

    def test_a_link_that_is_quiet_for_a_moment_again_and_again_leaves_nothing(self) -> None:
        deadlines: Deadlines[str] = Deadlines()
        for number in range(5000):
            for link in ("a", "b"):
                # Its keys end in an hour; something is sent, and is to be acknowledged soon.
                deadlines.add(link, 3600.0)
                deadlines.add(link, number + 0.5)
            assert sorted(deadlines.pop_due(number + 0.5)) == ["a", "b"]
            assert len(deadlines) <= 2 * 2 + deadlines_module.LEAST
        for link in ("a", "b"):
            deadlines.add(link, 3600.0)
        assert sorted(deadlines.pop_due(3600.0)) == ["a", "b"]
        assert len(deadlines) == 0


class TestAllowance:
    def test_the_first_half_of_a_burst_is_answered_the_rest_needs_a_cookie_and_then_there_is_nothing(self) -> None:
        allowance = Allowance(rate_per_s=1.0, burst=10, now=0.0)
        assert self.given(allowance, 7, 0.0) == [HelloVerdict.ANSWER] * 6 + [HelloVerdict.COOKIE]
        assert self.given(allowance, 5, 0.0, is_fresh=True) == [HelloVerdict.ANSWER] * 4 + [HelloVerdict.DROP]

    def given(self, allowance: Allowance, count: int, now: float, *, is_fresh: bool = False) -> list[HelloVerdict]:
        """What so many are given, one after the other."""
        verdicts = []
        for _ in range(count):
            verdicts.append(allowance.judge(now, is_fresh=is_fresh))
            if verdicts[-1] is HelloVerdict.ANSWER:
                allowance.take()
        return verdicts

    def test_it_fills_up_again_with_time_and_not_above_the_burst(self) -> None:
        allowance = Allowance(rate_per_s=1.0, burst=10, now=0.0)
        assert self.given(allowance, 6, 0.0) == [HelloVerdict.ANSWER] * 6
        assert self.given(allowance, 1, 0.5) == [HelloVerdict.COOKIE]
        assert self.given(allowance, 7, 1e6) == [HelloVerdict.ANSWER] * 6 + [HelloVerdict.COOKIE]


class TestHandshakeGate:
    SOURCE = ("10.0.0.1", 1)
    HELLO = Hello("a", "b", 1, 2, 3, bytes(65), b"")

    def gate(self, secret: bytes = b"k" * 32) -> HandshakeGate:
        return HandshakeGate(secret, rate_per_s=1.0, burst=10, now=0.0)

    def test_a_cookie_is_good_for_its_hello_its_address_and_for_a_while(self) -> None:
        gate = self.gate()
        shown = replace(self.HELLO, cookie=gate.cookie(self.HELLO, self.SOURCE, 0.0))
        assert gate.is_fresh(shown, self.SOURCE, 2 * COOKIE_EPOCH_S - 0.1)
        assert not gate.is_fresh(shown, self.SOURCE, 2 * COOKIE_EPOCH_S)
        assert not gate.is_fresh(shown, ("10.0.0.2", 1), 0.0)
        assert not gate.is_fresh(shown, ("10.0.0.1", 2), 0.0)
        assert not gate.is_fresh(replace(shown, session_id=2), self.SOURCE, 0.0)
        assert not gate.is_fresh(replace(shown, ephemeral_point=bytes(64) + b"x"), self.SOURCE, 0.0)
        assert not gate.is_fresh(self.HELLO, self.SOURCE, 0.0)

    def test_another_secret_makes_other_cookies(self) -> None:
        other = self.gate(b"l" * 32).cookie(self.HELLO, self.SOURCE, 0.0)
        assert other != self.gate().cookie(self.HELLO, self.SOURCE, 0.0) != 0


class TestCongestion:
    def test_the_probe_timeout_follows_what_is_measured(self) -> None:
        round_trip = RoundTrip(0.033)
        assert round_trip.probe_timeout_s(0.002) == pytest.approx(0.033 + 4 * 0.0165 + 0.002)
        for _ in range(50):
            round_trip.add_sample(0.2, 0.0)
        assert round_trip.smoothed_s == pytest.approx(0.2)
        assert round_trip.probe_timeout_s(0.002) == pytest.approx(0.204, abs=0.001)

    def test_what_the_peer_waited_is_not_the_path(self) -> None:
        round_trip = RoundTrip(0.033)
        round_trip.add_sample(0.1, 0.0)
        for _ in range(50):
            round_trip.add_sample(0.17, 0.05)
        assert round_trip.smoothed_s == pytest.approx(0.12, abs=0.001)

    def test_a_peer_cannot_lie_the_round_trip_below_the_shortest_seen(self) -> None:
        round_trip = RoundTrip(0.033)
        for _ in range(50):
            round_trip.add_sample(0.1, 10.0)
        assert round_trip.smoothed_s == pytest.approx(0.1)

    def test_the_window_doubles_halves_once_per_round_trip_and_keeps_its_bounds(self) -> None:
        window = CongestionWindow(10_000, 2000, 30_000)
        window.on_acked(10_000, 0.5, 0.6)
        assert window.bytes == 20_000
        window.on_acked(50_000, 0.5, 0.6)
        assert window.bytes == 30_000
        window.on_lost(1000, 1.0, 2.0)
        window.on_lost(1000, 1.5, 2.1)
        assert not window.may_grow_by(1.9)  # sent before the loss was seen
        assert window.bytes == 15_000
        assert window.may_grow_by(2.5)
        window.on_acked(15_000, 2.5, 2.6)
        assert window.bytes == 16_000  # one datagram per round trip from now on
        for sent_s in range(3, 20):
            window.on_lost(1000, sent_s, sent_s + 0.5)
        assert window.bytes == 2000
        window.collapse()
        assert window.bytes == 2000

    def test_on_loopback_a_few_losses_in_a_round_trip_say_nothing_and_many_do(self) -> None:
        window = CongestionWindow(1_600_000, 2400, 2_000_000, tolerated_loss=1 / 16)
        for round_trip in range(1, 20):
            window.on_lost(60_000, round_trip, round_trip + 0.5)
            window.on_lost(40_000, round_trip + 0.4, round_trip + 0.6)
        assert window.bytes == 1_600_000
        window.on_lost(60_000, 30, 30.5)
        window.on_lost(40_001, 30.4, 30.6)
        assert window.bytes == 800_000

    def test_on_loopback_a_small_window_may_lose_four_datagrams(self) -> None:
        window = CongestionWindow(12_000, 2400, 2_000_000, tolerated_loss=1 / 16)
        window.on_lost(4800, 1.0, 1.5)
        assert window.bytes == 12_000
        window.on_lost(1200, 1.4, 1.6)
        assert window.bytes == 6000


def filled(outgoing: OutgoingMessages, room_bytes: int = 1168) -> list[tuple[int, int, int]]:
    """(channel, number, part) of what the next datagram would carry."""
    return [
        (message.channel, number, part)
        for message, part in outgoing.fill(room_bytes, [])
        for number in (
            range(message.number, message.number + len(message.contents))
            if isinstance(message, OutgoingRun)
            else [message.number]
        )
    ]


class TestOutgoing:
    def outgoing(self) -> OutgoingMessages:
        return OutgoingMessages(body_bytes=1168, max_bytes=10_000_000, max_messages=1000)

    def test_channels_take_turns(self) -> None:
        outgoing = self.outgoing()
        outgoing.enqueue(bytes(5000), 1)
        outgoing.enqueue(b"a", 2)
        outgoing.enqueue(b"b", 2)
        outgoing.enqueue(b"c", 3)
        order = list(itertools.chain.from_iterable(filled(outgoing) for _ in range(8)))
        assert order == [(1, 0, 0), (2, 0, 0), (2, 1, 0), (3, 0, 0), *((1, 0, part) for part in (1, 2, 3, 4))]
        assert not outgoing.has_chunks

    def test_a_message_starts_only_when_all_of_it_is_within_the_credit(self) -> None:
        outgoing = self.outgoing()
        outgoing.enqueue(bytes(INITIAL_CREDIT_BYTES + 1), 0)
        outgoing.enqueue(b"small, but on the same channel", 0)
        outgoing.enqueue(bytes(SMALL_MESSAGE_BYTES + 1), 1)
        outgoing.enqueue(b"small", 2)
        assert not outgoing.fits_credit(SMALL_MESSAGE_BYTES + 1)
        assert filled(outgoing) == [(2, 0, 0)]
        assert outgoing.waits_for_credit
        assert not outgoing.has_chunks
        enough_bytes = INITIAL_CREDIT_BYTES + 1 + len(b"small") + RESERVED_CREDIT_BYTES
        outgoing.on_credit(Ack([(0, 0)], 0.0, enough_bytes - 1, 100))
        assert filled(outgoing) == []
        outgoing.on_credit(Ack([(0, 0)], 0.0, enough_bytes, 100))
        assert filled(outgoing) == [(0, 0, 0)]

    def test_the_number_of_messages_is_within_the_credit_too(self) -> None:
        outgoing = self.outgoing()
        for _ in range(INITIAL_CREDIT_MESSAGES + 1):
            outgoing.enqueue(b"", 0)
        assert len(filled(outgoing)) == INITIAL_CREDIT_MESSAGES
        assert outgoing.waits_for_credit

    def test_credit_that_comes_late_or_twice_changes_nothing(self) -> None:
        outgoing = self.outgoing()
        outgoing.on_credit(Ack([(0, 0)], 0.0, 2_000_000, 100))
        outgoing.on_credit(Ack([(0, 0)], 0.0, 1_000_000, 50))
        assert outgoing.fits_credit(2_000_000 - RESERVED_CREDIT_BYTES)
        assert not outgoing.fits_credit(2_000_001 - RESERVED_CREDIT_BYTES)

    def test_what_was_lost_goes_first_and_what_was_acknowledged_meanwhile_does_not_go(self) -> None:
        outgoing = self.outgoing()
        outgoing.enqueue(bytes(3000), 0)
        chunks = [chunk for _ in range(2) for chunk in outgoing.fill(1168, [])]
        assert outgoing.on_lost(tuple(chunks)) == 2
        outgoing.on_acked((chunks[0],))
        assert outgoing.on_lost((chunks[0],)) == 0
        assert filled(outgoing) == [(0, 0, 1)]
        assert filled(outgoing) == [(0, 0, 2)]

    def test_acknowledging_everything_twice_leaves_nothing(self) -> None:
        outgoing = self.outgoing()
        outgoing.enqueue(bytes(3000), 0)
        chunks = tuple(chunk for _ in range(3) for chunk in outgoing.fill(1168, []))
        outgoing.on_acked(chunks)
        outgoing.on_acked(chunks)
        assert outgoing.is_empty
        assert outgoing.held_bytes == 0


PIECE = bytes(1024)


class TestIncoming:
    def incoming(self) -> IncomingMessages:
        return IncomingMessages(window_bytes=100_000, window_messages=64)

    def test_a_channel_waits_for_what_is_missing_and_the_others_do_not(self) -> None:
        incoming = self.incoming()
        incoming.on_message(Message(0, 1, b"second"))
        incoming.on_message(Message(1, 0, b"other channel"))
        assert [incoming.take(), incoming.take()] == [(1, b"other channel"), None]
        incoming.on_message(Message(0, 0, b"first"))
        assert [incoming.take(), incoming.take(), incoming.take()] == [(0, b"first"), (0, b"second"), None]
        assert incoming.is_empty

    def test_nothing_is_taken_twice(self) -> None:
        incoming = self.incoming()
        for _ in range(2):
            incoming.on_message(Message(0, 0, b"x"))
            incoming.on_message(Message(0, 2, b"z"))
            incoming.on_piece(Piece(1, 0, 1200, 1024, 0, PIECE))
        incoming.on_piece(Piece(1, 0, 1200, 1024, 1, bytes(176)))
        incoming.on_piece(Piece(1, 0, 1200, 1024, 1, bytes(176)))
        assert [incoming.take(), incoming.take(), incoming.take()] == [(0, b"x"), (1, bytes(1200)), None]

    def test_taking_gives_credit_back_and_a_quarter_of_the_window_is_worth_telling(self) -> None:
        incoming = self.incoming()
        incoming.tell()
        assert incoming.credit == (100_000, 64)
        for number in range(16):
            incoming.on_message(Message(0, number, b"x"))
        for _ in range(15):
            incoming.take()
        told = [incoming.should_tell]
        incoming.take()
        told.append(incoming.should_tell)
        incoming.tell()
        told.append(incoming.should_tell)
        assert told == [False, True, False]
        assert incoming.credit == (100_016, 80)

    def test_bytes_beyond_the_credit_are_a_violation_before_anything_is_allocated(self) -> None:
        incoming = self.incoming()
        incoming.on_piece(Piece(0, 0, 99_999, 1024, 0, PIECE))
        incoming.on_message(Message(1, 0, b"x"))
        with pytest.raises(Malformed, match="credit"):
            incoming.on_message(Message(1, 1, b"y"))
        with pytest.raises(Malformed, match="credit"):
            incoming.on_piece(Piece(2, 0, LARGE_MESSAGE_BYTES, 1024, 0, PIECE))

    def test_messages_beyond_the_credit_are_a_violation(self) -> None:
        incoming = self.incoming()
        for number in range(64):
            incoming.on_message(Message(number % 16, 1 + number // 16, b""))
        with pytest.raises(Malformed, match="credit"):
            incoming.on_message(Message(0, 0, b""))

    def test_one_message_cut_in_two_ways_is_a_violation(self) -> None:
        incoming = self.incoming()
        incoming.on_piece(Piece(0, 0, 2000, 1024, 0, PIECE))
        for frame in (Piece(0, 0, 2000, 1100, 1, bytes(900)), Piece(0, 0, 2001, 1024, 1, PIECE)):
            with pytest.raises(Malformed, match="two ways"):
                incoming.on_piece(frame)
        with pytest.raises(Malformed, match="whole"):
            incoming.on_message(Message(0, 0, b"x"))

    def test_what_an_earlier_peer_left_untaken_narrows_the_window_of_the_next(self) -> None:
        incoming = self.incoming()
        for number in range(20):
            incoming.on_message(Message(0, number, bytes(1000)))
        incoming.restart()
        assert incoming.credit == (80_000, 44)
        for _ in range(20):
            assert incoming.take() == (0, bytes(1000))
        assert incoming.credit == (100_000, 64)
        incoming.on_message(Message(0, 0, b"of the new one"))
        assert incoming.take() == (0, b"of the new one")


@pytest.mark.parametrize(
    "change",
    [
        {"max_datagram_bytes": 1199},
        {"max_datagram_bytes": 65_000},
        {"window_bytes": LARGE_MESSAGE_BYTES},
        {"queue_bytes": LARGE_MESSAGE_BYTES},
        {"window_messages": 31},
    ],
)
def test_settings_that_could_not_work_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(LinkSettings(), **change)


def test_what_lies_below_a_gap_is_forgotten_when_a_flight_has_come_since() -> None:
    ranges = CounterRanges()
    for counter in (*range(10), *range(11, 11 + SETTLED_COUNTERS)):
        ranges.add(counter)
        ranges.forget_settled()
    assert ranges.descending() == [(11, 10 + SETTLED_COUNTERS), (0, 9)]
    ranges.add(11 + SETTLED_COUNTERS)
    ranges.forget_settled()
    assert ranges.descending() == [(11, 11 + SETTLED_COUNTERS)]
