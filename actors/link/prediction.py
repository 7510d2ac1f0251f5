"""The usual datagram, in one function for each direction (header prediction: Jacobson, "4BSD TCP Header Prediction",
CCR 20(2), 1990).

Question and answer, one small message in each datagram together with the acknowledgement of the one before. That is
nearly everything where a round trip counts. `Receiver` and `Sender` with `Link` are what the protocol is; here is what
they do in this one case, without the calls in between. That it comes to the same is tested, byte for byte and field for
field (tests/actors/link/test_usual_path.py).

What seldom changes is looked at once and then taken to be so (`Agenda.is_usual`) until anything but these two functions
has been called. What is left are a few comparisons for each datagram, all of them before anything is changed. Whatever
they do not expect goes the long way. This knows the other parts from inside; none of them knows of this.
"""

import struct
from functools import partial
from typing import Final

from cryptography.exceptions import InvalidTag

from batonpass.actors.link.frames import HEADER, HEADER_BYTES, DatagramKind
from batonpass.actors.link.incoming import ReceivedMessage
from batonpass.actors.link.outgoing_message import Chunk, OutgoingMessage
from batonpass.actors.link.parts import LinkParts, WithParts
from batonpass.actors.link.receiver import Receiver
from batonpass.actors.link.sender import Sender
from batonpass.actors.link.sessions import LiveSession
from batonpass.actors.link.settings import (
    CHANNELS,
    KERNEL_DATAGRAM_BYTES,
    NEVER,
    ORDERED_CHANNELS,
    RESERVED_CREDIT_BYTES,
    Address,
)
from batonpass.crypto.session import TAG_BYTES

UNUSUAL: Final = -1
"""Instead of a channel: the datagram was taken the long way."""

Departure = tuple[bytes, Address, float]
"""A datagram, where it goes, and when the link must be looked at, if that is sooner than before, or NEVER."""

_ACK_MESSAGE: Final = struct.Struct("<BQIQQBIIBBQH")
"""An acknowledgement with one range, and the head of a message."""

_MESSAGE: Final = struct.Struct("<BBQH")
_DATA: Final = int(DatagramKind.DATA)
_ACK_FRAME, _MESSAGE_FRAME = 1, 2
_HEADS_BYTES: Final = _ACK_MESSAGE.size
_LEAST_BYTES: Final = HEADER_BYTES + _HEADS_BYTES + TAG_BYTES
_MOST_BYTES: Final = 8192
"""Of a datagram, both ways: a sealed message of a hand-over with its chain. Larger ones cost so much that the rest does
not matter. They would count for more in what is in flight, and in what is to be acknowledged at once.
"""

_NONCE: Final = struct.Struct("<4sQ")
_MAX_SPAN: Final = 2**31
"""Of the counters that have arrived: an acknowledgement tells of twice as many, and a session ends sooner than that."""


_new_received: Final = partial(tuple.__new__, ReceivedMessage)


class Prediction(WithParts):
    """The short way through one link."""

    __slots__ = (
        "_ack_delay_s",
        "_address",
        "_channels",
        "_chunks",
        "_first",
        "_free",
        "_in_flight",
        "_lasts",
        "_least_wait_s",
        "_max_ack_delay_s",
        "_most_bytes",
        "_most_sealed",
        "_open",
        "_open_salt",
        "_receiver",
        "_seal",
        "_seal_salt",
        "_sender",
        "_session",
        "_session_id",
    )

    _session: LiveSession

    def __init__(self, parts: LinkParts, sender: Sender, receiver: Receiver) -> None:
        super().__init__(parts)
        self._sender = sender
        self._receiver = receiver
        self._in_flight = parts.recovery._in_flight
        # The message that left last, in the shape in which it is in flight; and when it has arrived, to be used again.
        self._chunks: tuple[Chunk, ...] | None = None
        self._free: tuple[Chunk, ...] | None = None
        self._session_id = 0

    def arm(self) -> bool:
        """Whether everything is as usual that does not change from one usual datagram to the next; then it is kept at
        hand."""
        session, ranges, settings = self._sessions.current, self._arrivals.ranges, self._arrivals.settings
        address = self._path.address
        if (
            session is None
            or address is None
            or not self._outgoing.has_nothing_to_send
            or not ranges.is_one_run
            or not self._arrivals.replay.has_sequence_to(ranges.largest)
            or ranges.largest - ranges.smallest > _MAX_SPAN
            or not self._recovery.is_calm
            or not self._agenda.is_clear
            or self._path.is_asking
            or self._silence.is_away
            or self._sender.is_hindered
            or not self._incoming.is_roomy
            or settings.max_flight_bytes <= 8 * _MOST_BYTES
        ):
            return False
        self._session = session
        self._session_id = session.session_id
        self._address = address
        self._lasts = ranges.lasts
        self._first = ranges.smallest
        self._open, self._open_salt = session.session.opening
        self._seal, self._seal_salt = session.session.sealing
        self._channels = self._incoming.channels
        # Less than a full datagram: so the acknowledgement of a lone one never makes the congestion window grow.
        self._most_bytes = min(settings.max_datagram_bytes - 1, _MOST_BYTES) - _LEAST_BYTES
        self._most_sealed = settings.rekey_after_datagrams
        self._least_wait_s = settings.min_pto_s
        self._ack_delay_s = settings.ack_delay_s
        self._max_ack_delay_s = settings.max_ack_delay_s
        self._agenda.is_usual = True
        return True

    def receive(  # noqa: PLR0915 -- see the module
        self, session_id: int, counter: int, datagram: memoryview, now: float, source: Address
    ) -> int:
        """Take a DATA datagram whose header was read already. Never raises.

        The channel of the message in it, when there was one, and there is nothing to be done but taking it and, some
        time later, acknowledging it. Otherwise UNUSUAL. Budget: 3 us, of which opening it is 0.7.
        """
        arrivals, agenda, size_bytes = self._arrivals, self._agenda, len(datagram)
        if (
            not _LEAST_BYTES <= size_bytes <= _MOST_BYTES
            or not (agenda.is_usual or self.arm())
            or session_id != self._session_id
            or counter != self._lasts[0] + 1
            or source != self._address
            or arrivals.ack_s != NEVER
            or now >= agenda.timer_s
        ):
            self._receiver.receive_data(session_id, counter, datagram, now, source)
            return UNUSUAL
        try:
            body = self._open(_NONCE.pack(self._open_salt, counter), datagram[HEADER_BYTES:], datagram[:HEADER_BYTES])
        except (InvalidTag, ValueError):
            self._receiver.receive_data(session_id, counter, datagram, now, source)
            return UNUSUAL
        channel_number: int
        (
            ack,
            largest,
            delay_us,
            credit_bytes,
            credit_messages,
            runs,
            gap,
            length,
            frame,
            channel_number,
            number,
            size,
        ) = _ACK_MESSAGE.unpack_from(body)
        in_flight, incoming = self._in_flight, self._incoming
        sent = in_flight.get(largest)
        channel = self._channels[channel_number % CHANNELS]
        used_bytes = incoming._used_bytes + size
        if (
            ack != _ACK_FRAME
            or frame != _MESSAGE_FRAME
            or number != channel.next_number
            or sent is None
            or sent[2] is not self._chunks
            or len(in_flight) != 1
            or size != len(body) - _HEADS_BYTES
            or channel_number >= ORDERED_CHANNELS
            or runs != 1
            or gap
            or length > largest
            or channel.complete
            or channel.assemblies
            or used_bytes > incoming._granted_bytes
            or incoming._used_messages >= incoming._granted_messages
        ):
            alone = self._receive_alone(counter, body, size_bytes, now) if ack == _MESSAGE_FRAME else UNUSUAL
            if alone == UNUSUAL:
                self._receiver.receive_opened(self._session, counter, body, size_bytes, now, source)
            return alone
        # Nothing was changed until here, and nothing can go wrong from here on.
        counters, silence = self._counters, self._silence
        counters["datagrams_in"] += 1
        counters["bytes_in"] += size_bytes
        silence.last_activity_s = now
        silence.due_since_s = NEVER
        # The acknowledgement: `LossRecovery.on_ack`, `Outgoing.on_acked`, `Outgoing.on_credit`.
        del in_flight[largest]
        recovery, outgoing = self._recovery, self._outgoing
        self._free = self._chunks
        acked = self._chunks[0][0]
        recovery._flight_bytes = 0
        if largest > recovery._largest_acked:  # noqa: PLR1730 -- a call less, as below
            recovery._largest_acked = largest
        outgoing._started[acked.channel].popleft()
        outgoing.held_bytes = outgoing.held_messages = 0
        if credit_bytes > outgoing._credit_bytes:
            outgoing._credit_bytes = credit_bytes
            outgoing._reserve_bytes = RESERVED_CREDIT_BYTES
        if credit_messages > outgoing._credit_messages:  # noqa: PLR1730
            outgoing._credit_messages = credit_messages
        round_trip, sample_s = recovery.round_trip, now - sent[0]
        if sample_s > round_trip.smoothed_s or not largest & 7 or not round_trip.was_measured:  # `is_news`
            delay_s = delay_us / 1e6
            round_trip.add_sample(sample_s, delay_s if delay_s < self._max_ack_delay_s else self._max_ack_delay_s)
        # The message: `Incoming.on_messages`.
        channel.next_number = number + 1
        incoming._used_bytes = used_bytes
        incoming._used_messages += 1
        incoming._claimed.get(channel_number, incoming._ready).append(
            _new_received((channel_number, body[_HEADS_BYTES:]))
        )
        # The datagram: `Arrivals.note` and `Arrivals.note_ack_due`.
        arrivals.replay._top = counter
        self._lasts[0] = counter
        arrivals.largest_s = now
        arrivals.unacked_datagrams = 1
        arrivals.unacked_bytes = size_bytes
        arrivals.ack_s = now + self._ack_delay_s
        return channel_number

    def _receive_alone(self, counter: int, body: bytes, size_bytes: int, now: float) -> int:
        """As `receive`, for a message without an acknowledgement, after a pause.

        UNUSUAL, and nothing has happened, when there is any doubt.
        """
        _, channel_number, number, size = _MESSAGE.unpack_from(body)
        channel, incoming = self._channels[channel_number % CHANNELS], self._incoming
        used_bytes = incoming._used_bytes + size
        if (
            number != channel.next_number
            or size != len(body) - _MESSAGE.size
            or channel_number >= ORDERED_CHANNELS
            or channel.complete
            or channel.assemblies
            or used_bytes > incoming._granted_bytes
            or incoming._used_messages >= incoming._granted_messages
        ):
            return UNUSUAL
        self._counters["datagrams_in"] += 1
        self._counters["bytes_in"] += size_bytes
        self._silence.last_activity_s = now
        self._silence.due_since_s = NEVER
        channel.next_number = number + 1
        incoming._used_bytes = used_bytes
        incoming._used_messages += 1
        ready = incoming._claimed.get(channel_number, incoming._ready)
        ready.append(_new_received((channel_number, body[_MESSAGE.size :])))
        arrivals = self._arrivals
        arrivals.replay._top = counter
        self._lasts[0] = counter
        arrivals.largest_s = now
        arrivals.unacked_datagrams = 1
        arrivals.unacked_bytes = size_bytes
        arrivals.ack_s = now + self._ack_delay_s
        return int(channel_number)

    def send(self, data: bytes, now: float, channel: int = 0) -> Departure | None:  # noqa: PLR0915 -- see the module
        """As `Link.send` and then `datagrams_to_send`, for a small message that has nothing to wait for.

        None, and nothing has happened, when there is anything else to do or any doubt. Budget: 3 us.
        """
        agenda, in_flight, size = self._agenda, self._in_flight, len(data)
        if in_flight or not (agenda.is_usual or self.arm()):
            return None
        outgoing, session = self._outgoing, self._session
        used_bytes = outgoing._used_bytes + size
        if (
            now >= agenda.timer_s
            or size > self._most_bytes
            or not 0 <= channel < ORDERED_CHANNELS
            or used_bytes > outgoing._credit_bytes
            or outgoing._used_messages >= outgoing._credit_messages
            or session.sealed_datagrams >= self._most_sealed
        ):
            return None
        # The message: `Outgoing.enqueue` and `Outgoing.fill`. Nothing is in flight, lost or waiting: nothing is held.
        number = outgoing._next_number[channel]
        outgoing._next_number[channel] = number + 1
        outgoing._used_bytes = used_bytes
        outgoing._used_messages += 1
        outgoing.held_bytes = size
        outgoing.held_messages = 1
        chunks = self._free
        if chunks is None:
            message = OutgoingMessage(channel, data)
            message.started_chunks = 1
            message.is_wanted = True
            chunks = self._chunks = ((message, 0),)
        else:
            self._free = None
            message = chunks[0][0]
            message.channel = channel
            message.data = data
        message.number = number
        outgoing._started[channel].append(message)
        silence = self._silence
        silence.last_activity_s = now
        if silence.due_since_s == NEVER:
            silence.due_since_s = now
        # The datagram: `Sender.fill`, `Arrivals.write_ack`, `Incoming.tell`.
        sender, arrivals = self._sender, self._arrivals
        counter = sender.next_counter
        sender.next_counter = counter + 1
        session.sealed_datagrams += 1
        if arrivals.ack_s == NEVER:
            body = _MESSAGE.pack(_MESSAGE_FRAME, channel, number, size) + data
        else:
            incoming, largest = self._incoming, self._lasts[0]
            granted_bytes, granted_messages = incoming._granted_bytes, incoming._granted_messages
            incoming._tell_at_bytes = granted_bytes + incoming._tell_after_bytes
            incoming._tell_at_messages = granted_messages + incoming._tell_after_messages
            body = (
                _ACK_MESSAGE.pack(
                    _ACK_FRAME,
                    largest,
                    int((now - arrivals.largest_s) * 1e6),  # less than `idle_expiry_s`, or it were that timer's turn
                    granted_bytes,
                    granted_messages,
                    1,
                    0,
                    largest - self._first,
                    _MESSAGE_FRAME,
                    channel,
                    number,
                    size,
                )
                + data
            )
            arrivals.ack_s = NEVER
            arrivals.unacked_datagrams = arrivals.unacked_bytes = 0
        header = HEADER.pack(_DATA, 0, 0, session.peer_session_id, counter)
        datagram = header + self._seal(_NONCE.pack(self._seal_salt, counter), body, header)
        # In flight: `LossRecovery.record`.
        size_bytes = len(datagram)
        recovery = self._recovery
        recovery._flight_bytes = charge_bytes = size_bytes + KERNEL_DATAGRAM_BYTES
        in_flight[counter] = (now, charge_bytes, chunks)
        recovery._last_sent_s = now
        counters = self._counters
        counters["datagrams_out"] += 1
        counters["bytes_out"] += size_bytes
        if agenda.timer_s <= now + self._least_wait_s:  # `LossRecovery.is_timed_by`
            return datagram, self._address, NEVER
        timer_s = agenda.timer_s = min(agenda.timer_s, recovery.next_timer())
        return datagram, self._address, timer_s
