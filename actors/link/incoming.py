"""Messages on their way in: pieces put together, every channel in order, each message once, all within our credit."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from batonpass.actors.link.assembly import Assembly
from batonpass.actors.link.frames import LargeWant, Message, MessageRun, Piece, write_grant
from batonpass.actors.link.large import LargeBudget, LargeGrants
from batonpass.actors.link.settings import (
    CHANNELS,
    INITIAL_CREDIT_BYTES,
    INITIAL_CREDIT_MESSAGES,
    LARGE_MESSAGE_BYTES,
    ORDERED_CHANNELS,
    UNORDERED_AHEAD,
)
from batonpass.actors.link.unfinished import LATE_S, Unfinished, UnfinishedBudget
from batonpass.crypto.errors import Malformed


class NoRoom(Exception):
    """What the earlier lives of a peer that has restarted left untaken leaves no room, or what other peers have begun
    to send. It will send this again."""


class ReceivedMessage(NamedTuple):
    """A complete message, in the order of its channel if that has one."""

    channel: int
    data: bytes


# What `ReceivedMessage(...)` does, for a third of the price.
_new_received: Final = partial(tuple.__new__, ReceivedMessage)


class _Channel:
    __slots__ = ("assemblies", "awaited", "awaited_s", "complete", "next_number")

    def __init__(self) -> None:
        self.next_number = 0
        self.assemblies: dict[int, Assembly] = {}
        self.complete: dict[int, bytes] = {}  # beyond `next_number`: waiting for it, or (unordered) handed on already
        # Number of a message that waits for those before it, while others wait for its room, and since when.
        self.awaited = -1
        self.awaited_s = 0.0

    def is_late(self, now: float, *, is_ordered: bool) -> bool:
        """Whether a message that was unfinished LATE_S ago, when a peer waited for its room, still is."""
        oldest_s = now
        for assembly in self.assemblies.values():
            if assembly.total_bytes <= LARGE_MESSAGE_BYTES:
                assembly.seen_s = min(assembly.seen_s, now)
                oldest_s = min(oldest_s, assembly.seen_s)
        if is_ordered and self.complete:
            if self.awaited < self.next_number:
                self.awaited, self.awaited_s = max(self.complete), now
            oldest_s = min(oldest_s, self.awaited_s)
        return now >= oldest_s + LATE_S


class IncomingMessages:
    """What one peer has sent and the application has not taken."""

    def __init__(
        self,
        *,
        window_bytes: int,
        window_messages: int,
        large_budget: LargeBudget | None = None,
        unfinished_budget: UnfinishedBudget | None = None,
        on_late: Callable[[], object] = lambda: None,
        on_credit: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_late` ends the link of a peer that keeps others waiting for what it does not send; what it had begun to
        send is dropped by then. `on_credit` is called when something was taken and the peer
        should be told (`should_tell`)."""
        self._on_credit = on_credit
        self._on_late = on_late
        self._large_assembly: Assembly | None = None  # the last one that has started
        self._large = LargeGrants(large_budget or LargeBudget(), self._large_missing, self._give_up)
        self._unfinished = Unfinished(unfinished_budget or UnfinishedBudget(), self._is_late, self._give_up)
        self._window_bytes = window_bytes
        self._window_messages = window_messages
        self._tell_after_bytes = -(-window_bytes // 4)
        self._tell_after_messages = -(-window_messages // 4)
        self._ready: deque[ReceivedMessage] = deque()
        # Channels that a part of the program takes for itself, so that it need not wait until others have taken theirs.
        self._claimed: dict[int, deque[ReceivedMessage]] = {}
        self.is_asked_for_large = False
        """The peer wants to send a large message, or may not know yet that it may: `large_news` has something to do."""
        self._begin()

    def _begin(self) -> None:
        self._channels = [_Channel() for _ in range(CHANNELS)]
        self._used_bytes = 0
        self._used_messages = 0
        # What an earlier incarnation left untaken is still held: it narrows the window of the next until it is taken.
        untaken_bytes, untaken_messages = self.untaken
        self._granted_bytes = max(self._window_bytes - untaken_bytes, INITIAL_CREDIT_BYTES)
        self._granted_messages = max(self._window_messages - untaken_messages, INITIAL_CREDIT_MESSAGES)
        # Used and granted count from here on, so with these they tell what all lives together hold.
        self._bytes_of_earlier_lives = untaken_bytes + self._granted_bytes
        self._messages_of_earlier_lives = untaken_messages + self._granted_messages
        # A restarted peer presumes the initial credit, whatever was left. From then on its sum is watched.
        self._is_cramped = (
            untaken_bytes > self._window_bytes - INITIAL_CREDIT_BYTES
            or untaken_messages > self._window_messages - INITIAL_CREDIT_MESSAGES
        )
        # What the peer presumes to begin with, and a quarter of the window.
        self._tell_at_bytes = INITIAL_CREDIT_BYTES + self._tell_after_bytes
        self._tell_at_messages = INITIAL_CREDIT_MESSAGES + self._tell_after_messages

    def claim(self, channel: int) -> None:
        """From now on messages of this channel are taken with `take(channel)` alone."""
        if channel not in self._claimed:
            everything = list(self._ready)
            self._ready.clear()  # it stays the same object: its reader may hold it
            self._ready.extend(message for message in everything if message.channel != channel)
            self._claimed[channel] = deque(message for message in everything if message.channel == channel)

    def ready_of(self, claimed: int | None) -> Sequence[ReceivedMessage]:
        """What can be taken: of a channel that is claimed, or of all that is claimed by none. The same object always,
        so that one need not ask again."""
        return self._ready if claimed is None else self._claimed[claimed]

    def has_ready(self, claimed: int | None = None) -> bool:
        """A message can be taken: of the claimed channel, or of any that is claimed by none."""
        return bool(self._ready if claimed is None else self._claimed.get(claimed))

    @property
    def has_any_ready(self) -> bool:
        """A message can be taken, of whatever channel."""
        return bool(self._ready) or any(self._claimed.values())

    @property
    def untaken(self) -> tuple[int, int]:
        """Bytes and number of the messages charged to the credit that can be taken."""
        sizes = [len(message.data) for ready in (self._ready, *self._claimed.values()) for message in ready]
        charged = [size for size in sizes if size <= LARGE_MESSAGE_BYTES]
        return sum(charged), len(charged)

    @property
    def is_empty(self) -> bool:
        """Nothing is held, not even a part of a message."""
        is_held = any(
            channel.assemblies or (channel.complete and number < ORDERED_CHANNELS)
            for number, channel in enumerate(self._channels)
        )
        return not self.has_any_ready and not is_held

    @property
    def is_roomy(self) -> bool:
        """Nothing but the credit bounds what the peer may begin, and it has asked for nothing beside it."""
        return not (self._is_cramped or self.is_asked_for_large)

    @property
    def channels(self) -> Sequence[_Channel]:
        """What is expected on each, and what is there beyond it."""
        return self._channels

    @property
    def credit(self) -> tuple[int, int]:
        """Absolute (bytes, messages) that the peer may have started since its beginning."""
        return self._granted_bytes, self._granted_messages

    def tell(self) -> tuple[int, int]:
        """The `credit`, which the peer is being told now."""
        granted_bytes, granted_messages = self._granted_bytes, self._granted_messages
        self._tell_at_bytes = granted_bytes + self._tell_after_bytes
        self._tell_at_messages = granted_messages + self._tell_after_messages
        return granted_bytes, granted_messages

    @property
    def should_tell(self) -> bool:
        """A quarter of the window has become free since the peer was told, or a large message can be granted."""
        return (
            self._granted_messages >= self._tell_at_messages
            or self._granted_bytes >= self._tell_at_bytes
            or (self.is_asked_for_large and self._large.is_waiting)
        )

    def on_want(self, frame: LargeWant) -> None:
        """Raises Malformed when it cannot be the turn of that one."""
        if not self._large.want(frame.ordinal, frame.total_bytes):
            raise Malformed("the peer asks for a large message before its turn")
        self.is_asked_for_large = True

    def large_news(self, now: float) -> bytes:
        """What to tell the peer with an acknowledgement when it `is_asked_for_large`."""
        self._large.grant(now)
        return write_grant(self._large.granted) if self._large.must_tell else b""

    def take(self, claimed: int | None = None) -> ReceivedMessage | None:
        """The next message, as `has_ready`; taking it gives its credit back. Budget: 0.4 us."""
        ready = self._ready if claimed is None else self._claimed.get(claimed)
        if not ready:
            return None
        message = ready.popleft()
        size_bytes = len(message[1])
        if size_bytes > LARGE_MESSAGE_BYTES:
            self._large.release()
        else:
            self._granted_bytes += size_bytes
            self._granted_messages += 1
        if (
            self._granted_messages >= self._tell_at_messages
            or self._granted_bytes >= self._tell_at_bytes
            or self.is_asked_for_large
        ) and self.should_tell:
            self._on_credit()
        return message

    def on_message(self, frame: Message) -> None:
        """Raises Malformed when the peer breaks its credit. Budget: 0.7 us."""
        channel_number, number, data = frame
        channel = self._channels[channel_number]
        if number < channel.next_number or number in channel.complete:
            return
        if number in channel.assemblies:
            raise Malformed("the peer sent a message whole that it had begun to send in pieces")
        if channel_number >= ORDERED_CHANNELS:
            _require_near(channel, number)
        self._charge(len(data), is_unfinished=channel_number < ORDERED_CHANNELS and number != channel.next_number)
        self._complete(channel_number, number, data)

    def on_messages(self, run: MessageRun) -> None:
        """As `on_message` for each of them. Budget: 0.5 us, and 0.2 us each."""
        channel_number, number, contents = run
        channel = self._channels[channel_number]
        count = len(contents)
        size_bytes = len(contents[0]) if count == 1 else sum(map(len, contents))
        if (
            number != channel.next_number
            or channel_number >= ORDERED_CHANNELS
            or channel.complete
            or channel.assemblies
            or self._is_cramped
            or self._used_bytes + size_bytes > self._granted_bytes
            or self._used_messages + count > self._granted_messages
        ):
            for at, data in enumerate(contents, number):
                self.on_message(Message(channel_number, at, data))
            return
        channel.next_number = number + count
        self._used_bytes += size_bytes
        self._used_messages += count
        ready = self._claimed.get(channel_number, self._ready)
        if count == 1:
            ready.append(_new_received((channel_number, contents[0])))
        else:
            ready.extend([_new_received((channel_number, data)) for data in contents])

    def on_piece(self, frame: Piece) -> None:
        """Raises Malformed when the peer breaks its credit or cuts one message in two ways. Budget: 0.6 us."""
        channel_number, number, total_bytes, piece_bytes, part, data = frame
        channel = self._channels[channel_number]
        if number < channel.next_number or number in channel.complete:
            return
        assembly = channel.assemblies.get(number)
        if assembly is None:
            if channel_number >= ORDERED_CHANNELS:
                _require_near(channel, number)
            assembly = self._begin_assembly(channel, number, total_bytes, piece_bytes)
        elif total_bytes != assembly.total_bytes or piece_bytes != assembly.piece_bytes:
            raise Malformed("the peer cut one message in two ways")
        if assembly.has(part):
            return
        if total_bytes > LARGE_MESSAGE_BYTES and not assembly.reaches(part):
            raise Malformed("a piece of a large message is too far ahead of what is missing")
        assembly.put(part, data)
        if not assembly.missing:
            del channel.assemblies[number]
            if assembly is self._large_assembly:
                self._large_assembly = None  # it would keep the pieces
            elif channel_number >= ORDERED_CHANNELS or number == channel.next_number:
                self._unfinished.release(total_bytes)
            self._complete(channel_number, number, assembly.message())

    def begun(self, piece: Piece) -> Assembly | None:
        """The message that this is a piece of, while pieces of it are missing."""
        return self._channels[piece.channel].assemblies.get(piece.number)

    def on_piece_run(self, first: Piece, contents: Sequence[bytes | memoryview]) -> bool:
        """As `on_piece` for the pieces from `first` on, when nothing is special about them; False, and nothing has
        changed, when one is there already, or they complete the message. Raises Malformed as `on_piece`, and changes
        nothing then either. Budget: 0.1 us each."""
        channel_number, number, total_bytes, piece_bytes, part, _ = first
        channel = self._channels[channel_number]
        assembly = channel.assemblies.get(number)
        if assembly is None:
            pieces = -(-total_bytes // piece_bytes)
            if number < channel.next_number or number in channel.complete or pieces <= len(contents):
                return False
            if channel_number >= ORDERED_CHANNELS:
                _require_near(channel, number)
            assembly = self._begin_assembly(channel, number, total_bytes, piece_bytes)
        elif total_bytes != assembly.total_bytes or piece_bytes != assembly.piece_bytes:
            return False
        end = part + len(contents)
        if assembly.missing <= len(contents) or not assembly.has_none_of(part, end):
            return False
        if total_bytes > LARGE_MESSAGE_BYTES and not assembly.reaches(end - 1):
            return False
        assembly.put_run(part, contents)
        return True

    def _begin_assembly(self, channel: _Channel, number: int, total_bytes: int, piece_bytes: int) -> Assembly:
        self._charge(total_bytes, is_unfinished=True)
        assembly = channel.assemblies[number] = Assembly(total_bytes, piece_bytes)
        if total_bytes > LARGE_MESSAGE_BYTES:
            self._large_assembly = assembly
        return assembly

    def _large_missing(self) -> int:
        return 0 if self._large_assembly is None else self._large_assembly.missing

    def _give_up(self) -> None:
        self.restart()
        self._on_late()

    def _is_late(self, now: float) -> bool:
        late = [channel.is_late(now, is_ordered=at < ORDERED_CHANNELS) for at, channel in enumerate(self._channels)]
        return any(late)

    def on_refused(self, now: float) -> None:
        """Something has raised NoRoom: if others hold what is missing, they must complete it in time."""
        self._unfinished.refused(now)

    def _charge(self, size_bytes: int, *, is_unfinished: bool) -> None:
        if size_bytes > LARGE_MESSAGE_BYTES:
            if not self._large.start(size_bytes):
                raise Malformed("the peer sends a large message that was not granted")
            self.is_asked_for_large = False
            return
        if self._used_bytes + size_bytes > self._granted_bytes or self._used_messages >= self._granted_messages:
            raise Malformed("the peer sends more than its credit")
        if self._is_cramped:
            self._require_room(size_bytes)
        if is_unfinished and not self._unfinished.reserve(size_bytes):
            raise NoRoom
        self._used_bytes += size_bytes
        self._used_messages += 1

    def _require_room(self, size_bytes: int) -> None:
        """Raises NoRoom when all lives of the peer together would exceed the window and one initial credit.

        What is held is what this life has used and earlier ones had left, less what was taken, which is what was
        granted again. So it costs the same however much is held.
        """
        held_bytes = self._used_bytes + self._bytes_of_earlier_lives - self._granted_bytes
        held_messages = self._used_messages + self._messages_of_earlier_lives - self._granted_messages
        if (
            held_bytes + size_bytes > self._window_bytes + INITIAL_CREDIT_BYTES
            or held_messages + 1 > self._window_messages + INITIAL_CREDIT_MESSAGES
        ):
            raise NoRoom

    def _complete(self, channel_number: int, number: int, data: bytes) -> None:
        channel = self._channels[channel_number]
        ready = self._claimed.get(channel_number, self._ready)
        if channel_number >= ORDERED_CHANNELS:
            channel.complete[number] = b""  # only to know it again
            while channel.complete.pop(channel.next_number, None) is not None:
                channel.next_number += 1
            self._hand_on(ready, channel_number, data)
            return
        if number != channel.next_number:
            channel.complete[number] = data
            return
        following: bytes | None = data
        while following is not None:
            channel.next_number += 1
            if len(following) > LARGE_MESSAGE_BYTES:
                self._large.is_ready = True
            ready.append(_new_received((channel_number, following)))
            following = channel.complete.pop(channel.next_number, None) if channel.complete else None
            if following is not None and len(following) <= LARGE_MESSAGE_BYTES:
                self._unfinished.release(len(following))

    def _hand_on(self, ready: deque[ReceivedMessage], channel_number: int, data: bytes) -> None:
        ready.append(_new_received((channel_number, data)))
        if len(data) > LARGE_MESSAGE_BYTES:
            self._large.is_ready = True

    def restart(self) -> None:
        """The peer has lost its memory: half-received messages are gone, complete ones can still be taken."""
        self._large_assembly = None
        self._large.restart()
        self._unfinished.clear()
        self.is_asked_for_large = False
        self._begin()


def _require_near(channel: _Channel, number: int) -> None:
    """Raises Malformed when the numbers of an unordered channel run further apart than they may."""
    if number >= channel.next_number + UNORDERED_AHEAD:
        raise Malformed("a message of an unordered channel is too far ahead of what is missing")
