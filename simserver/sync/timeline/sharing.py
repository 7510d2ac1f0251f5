"""One peer's side of a history that several peers share: inputs alone travel, and every peer ends with the same events.

A local input acts at once. It is told to the others, who put it at the time at which it was given, however late it is.

*What is settled.* Each peer promises, again and again, to give no more input before a time. An input that breaks its
sender's own promise is refused, by every peer alike: all of them hear the messages of a peer in the order in which
he sent them. Neither clocks nor delays have a part in it. Before the least promise nothing changes any more. Only there
are digests compared, chunk by chunk, so a copy that is behind raises no alarm. When two differ, each side tells the
digests of its events in the chunk once, and both name the first that differs.

*Identities* are never taken from the network: they are hashes of the sender, whom the link has proved, of the number of
his inputs so far, and of their kind.

Pure: messages come in by `receive` and go out as return values; deliver them to all others, each peer's in order.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from batonpass.simserver.sync.lockstep.canonical import encode
from batonpass.simserver.sync.timeline.crossverify import EventTrace, traces_of
from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.ids import DeterministicRandomId, id_of
from batonpass.simserver.sync.timeline.persistence import PersistentTypes, dump, load_untrusted
from batonpass.simserver.sync.timeline.steward import InvalidInput, InvalidTime, TimeSteward
from batonpass.simserver.sync.timeline.times import ExtendedTime, beginning_of, parts_of

__all__ = [
    "ChunkDigest",
    "ChunkEvents",
    "InputPromise",
    "OwnHistory",
    "PeerAdmitted",
    "PeerInvitation",
    "PeerMessage",
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


class SharedInputRefused(ValueError):
    """A message breaks a rule, and nothing was done; the sentence names its sender."""


class SharedInput(NamedTuple):
    """An input of its sender, his `number`th, from 1."""

    number: int
    base: int
    event: TimelineEvent


class TakenBack(NamedTuple):
    """The sender's `number`th input did not happen."""

    number: int


class InputPromise(NamedTuple):
    """The sender gives no more input before `base`."""

    base: int


class ChunkDigest(NamedTuple):
    """What the sender's events of a settled chunk come to."""

    chunk: int
    digest: str


class ChunkEvents(NamedTuple):
    """The digest of each of the sender's events in a chunk, by extended time."""

    chunk: int
    events: tuple[tuple[ExtendedTime, str], ...]


class PeerAdmitted(NamedTuple):
    """Another peer takes part, and gives no input before `begin`. Send him your `own_history`, then what follows."""

    name: str
    begin: int


PeerMessage = SharedInput | TakenBack | InputPromise | ChunkDigest | ChunkEvents | PeerAdmitted


class OwnHistory(NamedTuple):
    """What a newcomer has to know of one peer, before that peer's next messages."""

    promise: int
    number: int
    inputs: tuple[SharedInput, ...]
    """Those that may be later than the state that the newcomer begins with."""


class PeerInvitation(NamedTuple):
    """What a newcomer begins with."""

    state: bytes
    """A dump of what is settled."""
    base: int
    """Before this time."""
    begin: int
    """He gives no input before."""
    members: tuple[str, ...]
    """Whose `own_history` he needs."""


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
        types: of the simulation, for digests.
        me: his proved name.
        others: the proved names of the others.
        begin: the time with which sharing begins; nobody gives input before.
        chunk: how many units of time are compared at once.
    """

    def __init__(
        self,
        steward: TimeSteward,
        types: PersistentTypes,
        me: str,
        others: Iterable[str],
        *,
        begin: int = 0,
        chunk: int,
    ) -> None:
        self.steward: Final = steward
        self.divergence: TimelineDivergence | None = None
        self._types: Final = types
        self._me: Final = me
        self._chunk: Final = chunk
        self._promises: Final = dict.fromkeys((me, *others), begin)
        self._numbers: Final = dict.fromkeys(self._promises, 0)
        # Those that may still be taken back, by sender and number.
        self._inputs: Final[dict[tuple[str, int], SharedInput]] = {}
        # His own that are not forgotten, for newcomers.
        self._own: Final[dict[int, SharedInput]] = {}
        self._compared: int = -(-begin // chunk)
        self._digests: Final[dict[int, str]] = {}
        self._heard: Final[dict[tuple[str, int], str]] = {}
        self._told: Final[set[int]] = set()

    @property
    def settled(self) -> int:
        """The time before which no input comes any more: the least promise."""
        return min(self._promises.values())

    def act(self, base: int, event: TimelineEvent) -> SharedInput:
        """Give input: it acts here at once. Returns what to tell the others.

        Raises:
            SharedInputRefused: `base` is before the own promise, or too far ahead.
        """
        message = SharedInput(self._numbers[self._me] + 1, base, event)
        self._insert(self._me, message)
        self._own[message.number] = message
        return message

    def take_back(self, number: int) -> TakenBack:
        """Have an own input not happen. Returns what to tell the others. Raises `SharedInputRefused`: it is settled."""
        message = TakenBack(number)
        self._remove(self._me, message)
        del self._own[number]
        return message

    def promise(self, base: int) -> list[PeerMessage]:
        """Promise to give no more input before a time. Returns what to tell the others, in this order."""
        message = InputPromise(base)
        self._heed(self._me, message)
        return [message, *self._settle()]

    def receive(self, sender: str, message: PeerMessage) -> list[PeerMessage]:
        """Take a message of another peer. Returns what to tell all others.

        Args:
            sender: the name that the link has proved.
            message: his next one.

        Raises:
            SharedInputRefused: it breaks a rule.
        """
        if sender not in self._promises or sender == self._me:
            raise SharedInputRefused(f"{sender!r} has no part in this history")
        match message:
            case SharedInput():
                self._insert(sender, message)
            case TakenBack():
                self._remove(sender, message)
            case InputPromise():
                self._heed(sender, message)
                return self._settle()
            case ChunkDigest():
                return self._hear(sender, message)
            case ChunkEvents():
                return self._compare(sender, message)
            case PeerAdmitted():
                self._admit(sender, message)
        return []

    # ---- newcomers ----

    def admit(self, name: str) -> tuple[PeerInvitation, PeerAdmitted]:
        """Have another peer take part. One of the peers does this for all newcomers, always the same one.

        Returns:
            What to give to the newcomer, besides the own `own_history`; and what to tell all others.

        Raises:
            SharedInputRefused: he takes part already, or there are 64 peers.
        """
        # No peer has settled more than this one has promised, so none has settled what the newcomer may still change.
        message = PeerAdmitted(name, self._promises[self._me])
        members = tuple(self._promises)
        self._admit(self._me, message)
        base = self._compared * self._chunk
        snapshot = self.steward.snapshot_before(base)
        if snapshot is None:
            raise SharedInputRefused(f"{self._me!r} has forgotten what is settled before {base}")
        return PeerInvitation(dump(snapshot, self._types), base, message.begin, members), message

    def own_history(self) -> OwnHistory:
        """Return what a newcomer has to know of this peer, before the messages that follow."""
        return OwnHistory(self._promises[self._me], self._numbers[self._me], tuple(self._own.values()))

    @classmethod
    def joined(
        cls,
        invitation: PeerInvitation,
        histories: Mapping[str, OwnHistory],
        types: PersistentTypes,
        me: str,
        *,
        chunk: int,
    ) -> "TimelinePeer":
        """Return a newcomer's side, when all histories are there. Give it what the others sent after these.

        Raises:
            NotPersistent: the state cannot be read.
            SharedInputRefused: a history is missing, or has an input that cannot be.
        """
        if missing := [name for name in invitation.members if name not in histories]:
            raise SharedInputRefused(f"{me!r} cannot join: the history of {missing[0]!r} is missing")
        steward = load_untrusted(invitation.state, types)
        peer = cls(steward, types, me, invitation.members, begin=invitation.base, chunk=chunk)
        peer._promises[me] = invitation.begin
        for name in invitation.members:
            history = histories[name]
            for given in history.inputs:
                if given.base >= invitation.base:
                    peer._numbers[name] = given.number - 1
                    peer._insert(name, given)
            peer._promises[name], peer._numbers[name] = history.promise, history.number
        return peer

    def _admit(self, sender: str, message: PeerAdmitted) -> None:
        if message.name in self._promises or len(self._promises) >= MAX_TIMELINE_PEERS:
            raise SharedInputRefused(f"{sender!r} admits {message.name!r}, who takes part already, or is one too many")
        if message.begin < self.settled:
            raise SharedInputRefused(f"{sender!r} admits {message.name!r} at {message.begin}, which is settled")
        self._promises[message.name], self._numbers[message.name] = message.begin, 0

    # ---- inputs ----

    def _id(self, sender: str, message: SharedInput) -> DeterministicRandomId:
        return id_of("fiat", sender, message.number, type(message.event).type_id)

    def _insert(self, sender: str, message: SharedInput) -> None:
        if message.number != self._numbers[sender] + 1:
            raise SharedInputRefused(f"{sender!r} gives input {message.number} after {self._numbers[sender]}")
        self._numbers[sender] = message.number
        if message.base < self._promises[sender]:
            raise SharedInputRefused(f"{sender!r} gives input for {message.base}; he promised {self._promises[sender]}")
        self._check_near(sender, message.base)
        try:
            self.steward.insert_fiat_event(message.base, self._id(sender, message), message.event)
        except (InvalidTime, InvalidInput) as error:
            raise SharedInputRefused(f"{sender!r} gives input that cannot be: {error}") from error
        self._inputs[sender, message.number] = message

    def _remove(self, sender: str, message: TakenBack) -> None:
        known = self._inputs.pop((sender, message.number), None)
        if known is None or known.base < self._promises[sender]:
            raise SharedInputRefused(f"{sender!r} takes back input {message.number}, which is settled or is none")
        self.steward.remove_fiat_event(known.base, self._id(sender, known), type(known.event).priority)

    def _heed(self, sender: str, message: InputPromise) -> None:
        if message.base < self._promises[sender]:
            raise SharedInputRefused(f"{sender!r} promises {message.base} after {self._promises[sender]}")
        self._check_near(sender, message.base)
        self._promises[sender] = message.base

    def _check_near(self, sender: str, base: int) -> None:
        if base > self.settled + MAX_CHUNKS_AHEAD * self._chunk:
            raise SharedInputRefused(f"{sender!r} is at {base}, and what is settled at {self.settled}: too far ahead")

    # ---- what is settled ----

    def _settle(self) -> list[PeerMessage]:
        settled = self.settled
        self.steward.freeze_before(settled)
        for known in [key for key, given in self._inputs.items() if given.base < settled]:
            del self._inputs[known]
        messages: list[PeerMessage] = []
        while (self._compared + 1) * self._chunk <= settled:
            chunk = self._compared
            self._compared += 1
            self.steward.run_until(self._compared * self._chunk)
            digest = sha256(encode([[f"{time:x}", one] for time, one in self._events(chunk)])).hexdigest()
            self._digests[chunk] = digest
            messages.append(ChunkDigest(chunk, digest))
            for peer in self._promises:
                heard = self._heard.pop((peer, chunk), digest)
                if heard != digest:
                    messages += self._tell(chunk)
            self._forget(chunk - MAX_REMEMBERED_CHUNKS)
        return messages

    def _forget(self, chunk: int) -> None:
        if self._digests.pop(chunk, None) is not None:
            self._told.discard(chunk)
            for number in [number for number, given in self._own.items() if given.base < chunk * self._chunk]:
                del self._own[number]
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
        return [ChunkEvents(chunk, tuple(self._events(chunk)))]

    def _compare(self, sender: str, message: ChunkEvents) -> list[PeerMessage]:
        if message.chunk not in self._digests:
            return []
        mine, yours = dict(self._events(message.chunk)), dict(message.events)
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
            events.append((trace.time, sha256(encode(did)).hexdigest()))
        return events
