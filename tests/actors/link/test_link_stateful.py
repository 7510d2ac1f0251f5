"""Two ends, and everything that can happen between them, in any order hypothesis can think of.

The network loses up to 30 %, repeats, reorders, corrupts and cuts off; either side's process stops for a while,
restarts, or finds itself at another address; applications stop taking; the path is cut in one direction or both;
sessions are replaced all the time; recorded datagrams come back from elsewhere. Whatever happens:

- within one life of both ends every message arrives at most once, on an ordered channel in order and without a gap;
- nobody sends more than was granted, nor anything else that the other end calls a violation;
- what either end holds stays within the bounds of docs/reference/protocol-link.md;
- when the network is good again everything that a living end was given to send has arrived, in this life of the
  receiver or an earlier one: no deadlock, no lost news;
- and then the ends fall silent, and forget each other.

A failing run is printed as a program of rules, with the blob that repeats it.
"""

from collections import defaultdict
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.actors.link import LARGE_MESSAGE_BYTES, LinkExpired, LinkSettings
from batonpass.actors.link.ranges import MAX_RANGES
from batonpass.actors.link.sessions import MAX_HALF_OPEN, MAX_SESSIONS
from batonpass.actors.link.settings import (
    INITIAL_CREDIT_BYTES,
    INITIAL_CREDIT_MESSAGES,
    KERNEL_DATAGRAM_BYTES,
    ORDERED_CHANNELS,
)
from tests.actors.link.network import Faults, Network, Node, Transit

SIDES = st.sampled_from([0, 1])
CHANNELS = st.sampled_from([0, 1, 15, 16, 31])
PAUSES = st.sampled_from([0.0, 0.0005, 0.01, 0.3, 3.0])
SIZES = st.one_of(st.integers(0, 40), st.integers(1000, 3000), st.sampled_from([50_000]))


def encoded(life: int, channel: int, number: int, size: int) -> bytes:
    """A message that says what it is."""
    return f"{life} {channel} {number};".encode() + b"." * size


class TwoEnds(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        seed=st.integers(0, 2**32),
        datagram_bytes=st.sampled_from([1200, 9000, 61_440]),
        rekey_after=st.sampled_from([20, 2**21]),
    )
    def begin(self, seed: int, datagram_bytes: int, rekey_after: int) -> None:
        self.settings = replace(
            LinkSettings(),
            max_datagram_bytes=datagram_bytes,
            window_messages=32,
            rekey_after_datagrams=rekey_after,
            give_up_after_s=1e6,
        )
        self.network = Network(seed, settings=self.settings)
        self.lives = [0, 0]
        # What the present life of each side has sent, by channel; and what each pair of lives has received.
        self.sent: list[dict[int, int]] = [defaultdict(int), defaultdict(int)]
        self.received: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
        self.addresses = 0

    def node(self, side: int) -> Node:
        return self.network.nodes[side]

    # What happens

    @rule(side=SIDES, channel=CHANNELS, size=SIZES, count=st.sampled_from([1, 1, 5, 40]))
    def send(self, side: int, channel: int, size: int, count: int) -> None:
        for _ in range(count if size < 5000 else 1):
            number = self.sent[side][channel]
            self.sent[side][channel] += 1
            self.network.send(self.node(side), encoded(self.lives[side], channel, number, size), channel)

    @rule(
        channels=st.lists(CHANNELS, min_size=1, max_size=3),
        size=st.sampled_from([10, 500, 3000]),
        count=st.integers(1, 8),
        duration_s=PAUSES,
    )
    def talk(self, channels: list[int], size: int, count: int, duration_s: float) -> None:
        """Both sides send for a while."""
        for _ in range(count):
            for side in (0, 1):
                for channel in channels:
                    self.send(side, channel, size, 1)
            self.network.run_for(duration_s / 10)

    @rule(side=SIDES, channel=CHANNELS)
    def send_large(self, side: int, channel: int) -> None:
        if self.settings.max_datagram_bytes > 9000:
            self.send(side, channel, LARGE_MESSAGE_BYTES + 1, 1)

    @rule(duration_s=PAUSES)
    def wait(self, duration_s: float) -> None:
        self.network.run_for(duration_s)

    @rule(
        lose=st.sampled_from([0.0, 0.02, 0.3]),
        repeat=st.sampled_from([0.0, 0.3]),
        corrupt=st.sampled_from([0.0, 0.1]),
        delay_s=st.sampled_from([0.00005, 0.005, 0.3]),
        jitter_s=st.sampled_from([0.0, 0.02]),
    )
    def become(self, lose: float, repeat: float, corrupt: float, delay_s: float, jitter_s: float) -> None:
        self.network.faults = Faults(lose, repeat, corrupt, delay_s, jitter_s)

    @rule(passing=st.sampled_from([(True, True), (True, True), (True, False), (False, True), (False, False)]))
    def cut(self, passing: tuple[bool, bool]) -> None:
        """Whether what each side sends gets through at all."""

        def passes(transit: Transit) -> bool:
            return passing[transit.source != self.network.alpha.address]

        self.network.passes = passes

    @rule(side=SIDES, is_taking=st.booleans())
    def take(self, side: int, is_taking: bool) -> None:
        self.node(side).is_taking = is_taking
        self.network.pump(self.node(side))

    @rule(side=SIDES, duration_s=st.sampled_from([0.05, 1.0, 6.0]), count=st.sampled_from([0, 3, 60]))
    def pause(self, side: int, duration_s: float, count: int) -> None:
        """The process of one side does not run for a while; the other one goes on, and sends."""
        self.node(side).is_paused = True
        for _ in range(count):
            self.send(1 - side, 1, 500, 1)
        self.network.run_for(duration_s)
        self.network.resume(self.node(side))

    @rule(side=SIDES, elsewhere=st.booleans())
    def restart(self, side: int, elsewhere: bool) -> None:
        """The process ends and begins anew, remembering nothing."""
        node = self.node(side)
        self.note(side, all_of_it=True)
        node.is_paused = False
        node.socket_buffer.clear()
        if elsewhere:
            self.move(side)
        node.start(self.network.now)
        self.lives[side] += 1
        self.sent[side].clear()

    @rule(side=SIDES)
    def move(self, side: int) -> None:
        """Another address, and nobody says so: what is under way to the old one is lost."""
        self.addresses += 1
        self.node(side).address = (f"10.0.{side}.1", self.addresses)

    @precondition(lambda self: self.network.history)
    @rule(which=st.floats(0, 1), elsewhere=st.booleans())
    def come_back(self, which: float, elsewhere: bool) -> None:
        """Somebody has recorded a datagram, and sends it again."""
        transit = self.network.history[int(which * (len(self.network.history) - 1))]
        source = ("6.6.6.6", 6) if elsewhere else transit.source
        for node in self.network.nodes:
            self.network.deliver(Transit(source, node.address, transit.datagram))

    # What holds

    def note(self, side: int, *, all_of_it: bool = False) -> None:
        """What a side has received so far; `all_of_it` takes even what its application has left lying."""
        node = self.node(side)
        while all_of_it and (message := node.link.take()) is not None:
            node.received.append(message)
        for channel, data in node.received:
            sender_life, sent_on, number = map(int, data[: data.index(b";")].split())
            assert sent_on == channel
            received = self.received[side, self.lives[side], sender_life, channel]
            if channel < ORDERED_CHANNELS:
                assert not received or number == received[-1] + 1, "a gap or a repetition"
            else:
                assert number not in received, "a repetition"
            received.append(number)
        node.received.clear()

    @invariant()
    def everything_arrives_once_and_in_order(self) -> None:
        for side in (0, 1):
            self.note(side)

    @invariant()
    def nobody_breaks_the_rules(self) -> None:
        for node in self.network.nodes:
            assert not node.counters["dropped_violation"]
            assert not node.counters["dropped_messages"]

    @invariant()
    def what_is_held_is_bounded(self) -> None:
        for node in self.network.nodes:
            incoming, recovery, sessions = node.link._incoming, node.link._recovery, node.link._sessions
            channels = incoming._channels
            waiting = [data for channel in channels[:ORDERED_CHANNELS] for data in channel.complete.values()]
            begun = [one.total_bytes for channel in channels for one in channel.assemblies.values()]
            charged = [size for size in [*map(len, waiting), *begun] if size <= LARGE_MESSAGE_BYTES]
            assert incoming._unfinished.held_bytes == sum(charged)
            # Beyond the window only what a restarted peer may use before it has heard how much there is.
            untaken_bytes, untaken_messages = incoming.untaken
            assert untaken_bytes + sum(charged) <= self.settings.window_bytes + INITIAL_CREDIT_BYTES
            assert untaken_messages + len(charged) <= self.settings.window_messages + INITIAL_CREDIT_MESSAGES
            assert len(begun) - len(charged) + len(waiting) <= 1 + self.settings.window_messages
            # A probe, a ping and a datagram that was begun may go beyond the window.
            most_bytes = self.settings.max_flight_bytes + 8 * (self.settings.max_datagram_bytes + KERNEL_DATAGRAM_BYTES)
            assert recovery._flight_bytes <= most_bytes
            assert len(sessions.live) <= MAX_SESSIONS
            assert len(sessions._half_open) <= MAX_HALF_OPEN
            assert len(node.ids.used) <= MAX_SESSIONS + MAX_HALF_OPEN + 1
            assert len(node.link.arrivals.ranges.descending()) <= MAX_RANGES

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        network = self.network
        network.faults = Faults()
        network.passes = lambda _: True
        for side in (0, 1):
            self.node(side).is_taking = True
            network.resume(self.node(side))
        for side in (0, 1):
            self.send(side, 0, 0, 1)  # where the other one is now, is what the application knows
        network.run(lambda: network.is_quiet, limit_s=2000)
        for side in (0, 1):
            self.note(side)
            self.all_was_received(side)
        self.nobody_breaks_the_rules()
        self.what_is_held_is_bounded()
        self.both_fall_silent()

    def all_was_received(self, side: int) -> None:
        """What this side was sent by the present life of the other, by this life of its own and the earlier ones."""
        sender_life = self.lives[1 - side]
        for channel, count in self.sent[1 - side].items():
            arrived = {
                number
                for life in range(self.lives[side] + 1)
                for number in self.received[side, life, sender_life, channel]
            }
            assert arrived == set(range(count)), f"channel {channel}: {set(range(count)) - arrived} is missing"

    def both_fall_silent(self) -> None:
        """Nothing is sent and nothing is timed any more but the end of the link."""
        network = self.network
        network.run_for(2 * self.settings.retire_after_s)
        sent = len(network.history)
        network.run_for(2 * self.settings.idle_expiry_s)
        assert len(network.history) == sent
        for node in network.nodes:
            assert LinkExpired(0) in node.events
            assert not node.ids.used


TwoEnds.TestCase.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)
test_two_ends = TwoEnds.TestCase
