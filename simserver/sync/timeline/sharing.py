"""One peer's side of a history that several peers share: inputs alone travel, and every peer ends with the same events.

A local input acts at once. It is told to the others, who put it at the time at which it was given, however late it is.
All messages are in one log, which every peer reads in the same order, his own among them. The log proves who sent what.

*What is shared* follows from the log alone: who takes part, what was promised, which inputs count, and the state before
a chunk of time. A newcomer begins with all of that (`shared_state`), at any place of the log. Beside it each peer has
what he gave himself and has not read in the log yet.

*What is settled.* Each peer promises, again and again, to give no more input before a time; who does takes part. An
input that breaks its sender's own promise is refused, by every peer alike, since all read the same log. Neither clocks
nor delays have a part in it. Before the least promise nothing changes any more. Only there are digests compared, chunk
by chunk, so a copy that is behind raises no alarm. When two differ, each side tells the digests of its events in the
chunk once, and both name the first that differs.

*Identities* are never taken from the network. They are hashes of the sender, whom the log proves, of the number of his
inputs in the log so far, and of their kind.
"""

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, decode_untrusted_state, encode
from batonpass.simserver.sync.timeline.crossverify import EventTrace, traces_of
from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.ids import DeterministicRandomId, id_of
from batonpass.simserver.sync.timeline.inputs import InvalidInput, InvalidTime
from batonpass.simserver.sync.timeline.persistence import NotPersistent, PersistentTypes, dump, load_untrusted
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import ExtendedTime, beginning_of, parts_of

__all__ = [
    "MAX_TOLD_EVENTS",
    "ChunkDigest",
    "ChunkEvents",
    "InputPromise",
    "PeerMessage",
    "SharedHistory",
    "SharedInput",
    "SharedInputRefused",
    "TakenBack",
    "TimelineDivergence",
    "TimelinePeer",
]

MAX_CHUNKS_AHEAD: Final = 1_024
"""How far beyond what is settled an input, a promise or a digest may be."""
MAX_REMEMBERED_CHUNKS: Final = 64
MAX_TIMELINE_PEERS: Final = 64
MAX_COUNTED: Final = 1_024
"""Senders whose inputs are counted; of those who left, the one that came first is forgotten."""
MAX_WAITING_INPUTS: Final = 256
"""Of one peer, that are later than the last chunk that is settled."""
MAX_ALL_INPUTS: Final = 4_096
"""Of all peers together."""
MAX_UNHEARD: Final = 256
"""Own inputs that were given and not read in the log yet."""
MAX_TOLD_EVENTS: Final = 96
"""Of a chunk, the first of which are told when digests differ."""


class SharedInputRefused(ValueError):
    """A message breaks a rule, and nothing was done; the sentence names its sender."""


class SharedInput(NamedTuple):
    """An input of its sender; its number counts those of one sender in the log, from 1."""

    base: int
    event: TimelineEvent


class TakenBack(NamedTuple):
    """The sender's `number`th input did not happen."""

    number: int


class InputPromise(NamedTuple):
    """The sender takes part, and gives no more input before `base`."""

    base: int


class ChunkDigest(NamedTuple):
    """What the sender's events of a settled chunk come to."""

    chunk: int
    digest: str


class ChunkEvents(NamedTuple):
    """The digest of each of the sender's events in a chunk, by extended time; the first `MAX_TOLD_EVENTS`."""

    chunk: int
    events: tuple[tuple[ExtendedTime, str], ...]


PeerMessage = SharedInput | TakenBack | InputPromise | ChunkDigest | ChunkEvents


class SharedHistory(NamedTuple):
    """What follows from the log alone."""

    table: bytes
    """Who takes part, what was promised, and the inputs since the state; canonical bytes."""
    state: bytes
    """A dump of the state before the first chunk that is not settled."""


class TimelineDivergence(NamedTuple):
    """The first event of which two peers' settled histories differ."""

    peer: str
    time: ExtendedTime
    kind: str
    """`only local`, `only remote`, or `differing`."""
    event: TimelineEvent | None
    """What it is here."""

    def __str__(self) -> str:
        base, iteration, priority, id = parts_of(self.time)
        name = f"the event at {base} (iteration {iteration}, priority {priority}, id {id:032x})"
        return f"{name} is {self.kind}, compared with {self.peer}; here it is {self.event!r}"


class TimelinePeer:
    """A peer of a shared history.

    Args:
        steward: his copy; all begin with equal ones.
        types: of the simulation, for digests and dumps.
        allows: whether a sender, by his proved name, may give an input. What events are given from elsewhere is for the
            simulation to say; what it lets pass must not raise when it is executed.
        begin: the time with which sharing begins, the beginning of a chunk; no peer gives input before.
        chunk: how many units of time are compared at once.

    Attributes:
        me: his own name, which the log proves to the others; empty until it is known. He only listens till then.
        steward: the history, with own inputs that were not read in the log yet.
        divergence: the first event that differs from a peer's, if one does.
    """

    def __init__(
        self,
        steward: TimeSteward,
        types: PersistentTypes,
        allows: Callable[[str, TimelineEvent], bool],
        *,
        begin: int = 0,
        chunk: int,
    ) -> None:
        if begin % chunk:
            raise ValueError(f"sharing begins at {begin}: give a multiple of the chunk, which is {chunk}")
        self.me = ""
        self.steward: Final = steward
        self.divergence: TimelineDivergence | None = None
        self._types: Final = types
        self._allows: Final = allows
        self._chunk: Final = chunk
        # What follows from the log alone.
        self._promises: Final[dict[str, int]] = {}
        self._numbers: Final[FifoTable[str, int]] = FifoTable(MAX_COUNTED)
        self._inputs: Final[dict[tuple[str, int], SharedInput]] = {}
        self._settled = begin
        self._compared = begin // chunk
        self._state = self._dumped()
        # Its own.
        self._promised = begin
        # With their numbers.
        self._unheard: Final[deque[tuple[int, SharedInput]]] = deque()
        self._withdrawn: Final[set[int]] = set()
        self._digests: Final[dict[int, str]] = {}
        self._heard: Final[dict[tuple[str, int], str]] = {}
        self._told: Final[set[int]] = set()
        # The lists of events that were looked at, by sender and chunk: each is looked at once.
        self._seen: Final[set[tuple[str, int]]] = set()

    @property
    def settled(self) -> int:
        """The time before which no input comes any more: the least promise."""
        return self._settled

    @property
    def members(self) -> frozenset[str]:
        """Who takes part."""
        return frozenset(self._promises)

    # ---- what this peer says ----

    def act(self, base: int, event: TimelineEvent) -> tuple[int, SharedInput]:
        """Give input: it acts here at once. Returns its number, and what to put into the log.

        Raises:
            SharedInputRefused: `base` is before the own promise, or too far ahead, or the event is not allowed. Or this
                peer takes no part yet, or too many inputs were not read in the log yet.
        """
        message = SharedInput(base, event)
        if self.me not in self._promises:
            raise SharedInputRefused("this peer takes no part yet: promise, and wait until that is read in the log")
        if base < self._promised_here:
            raise SharedInputRefused(f"{self.me!r} gives input for {base}, and has promised {self._promised_here}")
        if len(self._unheard) >= MAX_UNHEARD:
            raise SharedInputRefused(f"{MAX_UNHEARD} inputs of {self.me!r} were not read in the log yet: wait for them")
        self._check(self.me, message)
        number = self._numbers.get(self.me, 0) + len(self._unheard) + 1
        self._insert(self.me, number, message)
        self._unheard.append((number, message))
        return number, message

    def take_back(self, number: int) -> TakenBack:
        """Have an own input not happen. Returns what to put into the log.

        Raises:
            SharedInputRefused: it is promised not to change, or is none.
        """
        given = self._inputs.get((self.me, number)) or dict(self._unheard).get(number)
        is_open = self.me in self._promises and number not in self._withdrawn
        if given is None or not is_open or given.base < self._promised_here:
            raise SharedInputRefused(f"{self.me!r} takes back input {number}, which is settled or is none")
        self._remove(self.me, number, given)
        self._withdrawn.add(number)
        return TakenBack(number)

    def promise(self, base: int) -> InputPromise:
        """Take part, and give no more input before a time. Returns what to put into the log.

        Raises:
            SharedInputRefused: a later time was promised, or it is too far ahead.
        """
        sender = self.me or "this peer"
        if base < self._promised_here:
            raise SharedInputRefused(f"{sender!r} promises {base} after {self._promised_here}")
        self._check_near(sender, base)
        self._promised = base
        return InputPromise(base)

    # ---- the log ----

    def receive(self, sender: str, message: PeerMessage) -> list[PeerMessage]:
        """Take the next message of the log, an own one too. Returns what to put into the log.

        Args:
            sender: his name, which the log proves.
            message: what he said.

        Raises:
            SharedInputRefused: it breaks a rule, by which every peer refuses it.
        """
        if isinstance(message, InputPromise):
            return self._heed(sender, message.base)
        number = 0
        if isinstance(message, SharedInput) and sender in self._numbers:
            # A refused one has its number all the same.
            self._numbers[sender] = number = self._numbers[sender] + 1
        is_here = sender == self.me and number > 0 and self._is_expected(number, message)
        try:
            if sender not in self._promises:
                raise SharedInputRefused(f"{sender!r} has no part in this history: promise first")
            match message:
                case SharedInput():
                    self._take(sender, number, message, is_here=is_here)
                case TakenBack():
                    self._undo(sender, message.number)
                case ChunkDigest():
                    return self._hear(sender, message)
                case ChunkEvents():
                    return self._compare(sender, message)
        except SharedInputRefused:
            if is_here and isinstance(message, SharedInput) and number not in self._withdrawn:
                self._remove(sender, number, message)
            raise
        return []

    def leave(self, sender: str) -> list[PeerMessage]:
        """Take no more notice of a peer, which is gone; its inputs stay. Returns what to put into the log."""
        if self._promises.pop(sender, None) is None:
            return []
        if sender == self.me:
            self._forget_own()
        for heard in [heard for heard in self._heard if heard[0] == sender]:
            del self._heard[heard]
        return self._settle()

    # ---- newcomers ----

    def shared_state(self) -> SharedHistory:
        """Return what follows from the log alone; it is equal on all peers at one place of the log."""
        plain = self._types.plain
        table = [
            self._settled,
            self._compared,
            [[name, base] for name, base in self._promises.items()],
            [[name, number] for name, number in self._numbers.items()],
            [[sender, number, given.base, plain(given.event)] for (sender, number), given in self._inputs.items()],
        ]
        return SharedHistory(encode(table), self._state)

    @classmethod
    def joined_untrusted(
        cls,
        shared: SharedHistory,
        types: PersistentTypes,
        allows: Callable[[str, TimelineEvent], bool],
        *,
        chunk: int,
    ) -> "TimelinePeer":
        """Return the side of a newcomer who begins at a place of the log. Give it what comes after that place.

        Raises:
            NotPersistent: the bytes are no shared state.
        """
        steward = load_untrusted(shared.state, types)
        try:
            settled, compared, promises, numbers, inputs = decode_untrusted_state(shared.table)
            peer = cls(steward, types, allows, begin=compared * chunk, chunk=chunk)
            peer._settled = int(settled)
            if len(promises) > MAX_TIMELINE_PEERS or len(inputs) > MAX_ALL_INPUTS:
                raise NotPersistent("a shared history has too many peers or inputs")
            peer._promises.update({str(name): int(base) for name, base in promises})
            for name, number in numbers:
                peer._numbers[str(name)] = int(number)
            for sender, number, base, plain in inputs:
                given = SharedInput(int(base), types.event_untrusted(plain))
                peer._insert(str(sender), int(number), given)
                peer._inputs[str(sender), int(number)] = given
            steward.freeze_before(peer._settled)
        except (NotCanonical, SharedInputRefused, ValueError, TypeError, OverflowError) as error:
            raise NotPersistent(f"these {len(shared.table)} bytes are no shared history: {error}") from error
        return peer

    # ---- inputs ----

    @property
    def _promised_here(self) -> int:
        """What this peer has promised, whether or not that was read in the log yet."""
        return max(self._promised, self._promises.get(self.me, self._settled))

    def _is_expected(self, number: int, message: PeerMessage) -> bool:
        """Whether an own input is here already; if it is not the one that was expected, none of them counts."""
        if self._unheard and self._unheard[0] == (number, message):
            self._unheard.popleft()
            return True
        self._forget_own()
        return False

    def _take(self, sender: str, number: int, message: SharedInput, *, is_here: bool) -> None:
        if message.base < self._promises[sender]:
            raise SharedInputRefused(
                f"{sender!r} gives input for {message.base}, and has promised {self._promises[sender]}"
            )
        waiting = sum(name == sender for name, _ in self._inputs)
        if waiting >= MAX_WAITING_INPUTS or len(self._inputs) >= MAX_ALL_INPUTS:
            raise SharedInputRefused(f"{sender!r} gives input, and {waiting} of his wait to be settled already")
        self._check(sender, message)
        if not is_here:
            self._insert(sender, number, message)
        self._inputs[sender, number] = message

    def _check(self, sender: str, message: SharedInput) -> None:
        self._check_near(sender, message.base)
        if not self._allows(sender, message.event):
            raise SharedInputRefused(f"{sender!r} may not give {message.event!r:.200}")

    def _id(self, sender: str, number: int, event: TimelineEvent) -> DeterministicRandomId:
        return id_of("fiat", sender, number, type(event).type_id)

    def _insert(self, sender: str, number: int, given: SharedInput) -> None:
        try:
            self.steward.insert_fiat_event(given.base, self._id(sender, number, given.event), given.event)
        except (InvalidTime, InvalidInput) as error:
            raise SharedInputRefused(f"{sender!r} gives input that cannot be: {error}") from error

    def _remove(self, sender: str, number: int, given: SharedInput) -> None:
        id = self._id(sender, number, given.event)
        self.steward.remove_fiat_event(given.base, id, type(given.event).priority)

    def _undo(self, sender: str, number: int) -> None:
        known = self._inputs.get((sender, number))
        if known is None or known.base < self._promises[sender]:
            raise SharedInputRefused(f"{sender!r} takes back input {number}, which is settled or is none")
        del self._inputs[sender, number]
        if sender == self.me and number in self._withdrawn:
            self._withdrawn.discard(number)
        else:
            self._remove(sender, number, known)

    def _forget_own(self) -> None:
        """Have the steward hold what the log says, and nothing that is only given here."""
        for number, given in self._unheard:
            if number not in self._withdrawn:
                self._remove(self.me, number, given)
        for number in self._withdrawn:
            if (known := self._inputs.get((self.me, number))) is not None:
                self._insert(self.me, number, known)
        self._unheard.clear()
        self._withdrawn.clear()

    # ---- promises ----

    def _heed(self, sender: str, base: int) -> list[PeerMessage]:
        known = self._promises.get(sender)
        if known is None and len(self._promises) >= MAX_TIMELINE_PEERS:
            raise SharedInputRefused(f"{sender!r} is one too many: {MAX_TIMELINE_PEERS} peers take part")
        # What is settled stays so, however late its first promise comes. Those that it sent before it had read how the
        # first one was taken may be earlier than that, and promise nothing new.
        base = max(base, self._settled if known is None else known)
        self._check_near(sender, base)
        self._promises[sender] = base
        if sender not in self._numbers:
            self._numbers[sender] = 0
        return self._settle()

    def _check_near(self, sender: str, base: int) -> None:
        if base > self._settled + MAX_CHUNKS_AHEAD * self._chunk:
            raise SharedInputRefused(f"{sender!r} is at {base}, and what is settled at {self._settled}: too far ahead")

    # ---- what is settled ----

    def _settle(self) -> list[PeerMessage]:
        if self._promises:
            self._settled = max(self._settled, min(self._promises.values()))
        own = [*self._unheard, *[(number, self._inputs.get((self.me, number))) for number in self._withdrawn]]
        if any(given is not None and given.base < self._settled for _, given in own):
            # Said while this peer took no part: all others refuse it.
            self._forget_own()
        self.steward.freeze_before(self._settled)
        messages: list[PeerMessage] = []
        before = self._compared
        while (self._compared + 1) * self._chunk <= self._settled:
            messages += self._settle_chunk()
        if self._compared > before:
            for known in [key for key, given in self._inputs.items() if given.base < self._compared * self._chunk]:
                del self._inputs[known]
            self._state = self._dumped()
        return messages if self.me in self._promises else []

    def _settle_chunk(self) -> list[PeerMessage]:
        chunk = self._compared
        self._compared += 1
        self.steward.run_until(self._compared * self._chunk)
        digest = sha256(encode([[f"{time:x}", one] for time, one in self._events(chunk)])).hexdigest()
        self._digests[chunk] = digest
        messages: list[PeerMessage] = [ChunkDigest(chunk, digest)]
        for heard in [heard for heard in self._heard if heard[1] == chunk]:
            if self._heard.pop(heard) != digest:
                messages += self._tell(chunk)
        self._forget(chunk - MAX_REMEMBERED_CHUNKS)
        return messages

    def _dumped(self) -> bytes:
        snapshot = self.steward.snapshot_before(self._compared * self._chunk)
        if snapshot is None:
            raise InvalidTime(f"the steward has forgotten {self._compared * self._chunk}: leave forgetting to the peer")
        return dump(snapshot, self._types)

    def _forget(self, chunk: int) -> None:
        if self._digests.pop(chunk, None) is not None:
            self._told.discard(chunk)
            self._seen.difference_update([seen for seen in self._seen if seen[1] <= chunk])
            self.steward.forget_before((chunk + 1) * self._chunk)

    def _hear(self, sender: str, message: ChunkDigest) -> list[PeerMessage]:
        if message.chunk >= self._compared:
            if message.chunk > self._compared + MAX_CHUNKS_AHEAD:
                raise SharedInputRefused(
                    f"{sender!r} tells of chunk {message.chunk}; {self._compared} is the next here"
                )
            self._heard[sender, message.chunk] = message.digest
            return []
        mine = self._digests.get(message.chunk, message.digest)
        return [] if mine == message.digest else self._tell(message.chunk)

    def _tell(self, chunk: int) -> list[PeerMessage]:
        if chunk in self._told:
            return []
        self._told.add(chunk)
        return [ChunkEvents(chunk, tuple(self._events(chunk)[:MAX_TOLD_EVENTS]))]

    def _compare(self, sender: str, message: ChunkEvents) -> list[PeerMessage]:
        if sender == self.me or message.chunk not in self._digests or (sender, message.chunk) in self._seen:
            return []
        self._seen.add((sender, message.chunk))
        mine, yours = dict(self._events(message.chunk)), dict(message.events)
        if len(yours) >= MAX_TOLD_EVENTS:
            # What comes after these was not told.
            last = max(yours)
            mine = {time: one for time, one in mine.items() if time <= last}
        for time in sorted(mine.keys() | yours.keys()):
            if mine.get(time) != yours.get(time):
                kind = "only remote" if time not in mine else "only local" if time not in yours else "differing"
                traces = {trace.time: trace.event for trace in self._traces(message.chunk)}
                if self.divergence is None or time < self.divergence.time:
                    self.divergence = TimelineDivergence(sender, time, kind, traces.get(time))
                return self._tell(message.chunk)
        return []

    def _traces(self, chunk: int) -> list[EventTrace]:
        begin = beginning_of(chunk * self._chunk)
        return [trace for trace in traces_of(self.steward, (chunk + 1) * self._chunk) if trace.time >= begin]

    def _events(self, chunk: int) -> list[tuple[ExtendedTime, str]]:
        plain = self._types.plain
        events = []
        for trace in self._traces(chunk):
            writes = sorted(
                [f"{id:x}", repr(place), repr(operation)] for (id, place), operation in trace.writes.items()
            )
            did = [plain(trace.event), writes, sorted(f"{time:x}" for time in trace.predictions)]
            events.append((trace.time, sha256(encode(did)).hexdigest()[:16]))
        return events
