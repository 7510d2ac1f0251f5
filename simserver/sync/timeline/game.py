"""A timeline that several peers share over an event stream: the stream is the log, and each client of it is a peer.

`TimelineGame` is a game for `lockstep.follower`, so all that holds of games of a stream holds of it: lost and repeated
requests, hand-overs and takeovers of the stream, and clients of several doors. There are snapshots for peers that join,
and hashes that are compared at every tick. What is hashed, and handed to who joins, is what follows from the log alone
(`SharedHistory`).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.entity import SimEntity
from batonpass.simserver.sync.lockstep.scene import SnapshotRefused
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.peer_wire import (
    PeerMessagesRefused,
    read_messages_untrusted,
    write_messages,
)
from batonpass.simserver.sync.timeline.persistence import NotPersistent, PersistentTypes
from batonpass.simserver.sync.timeline.sharing import (
    InputPromise,
    PeerMessage,
    SharedHistory,
    SharedInput,
    SharedInputRefused,
    TimelinePeer,
)
from batonpass.simserver.sync.timeline.steward import TimeSteward

__all__ = ["TIMELINE_EVENT", "SharedTimeline", "TimelineGame"]

TIMELINE_EVENT: Final = "timeline"
"""The type of the events in which peers speak."""
KEPT_REFUSALS: Final = 64
KEPT_GAPS: Final = 64
MAX_WAITING_MESSAGES: Final = 512
"""To be sent; more are not taken."""


class SharedTimeline(SimEntity):
    """What the peers of a stream have in common."""

    table: bytes = b""
    state: bytes = b""

    def sim_enter(self) -> None:
        """Take in what was said in the tick in which the stream began."""
        self.show(self.sim.peer.shared_state())

    def show(self, shared: SharedHistory) -> None:
        """Hold this from now on."""
        if shared.table != self.table:
            self.table = shared.table
        if shared.state != self.state:
            self.state = shared.state


class TimelineGame(SimDriver):
    """One peer's side of a timeline that is shared over a stream.

    Give it to a `StreamFollower`. Once that has a `public_id`, set `me`, and `promise` again and again.

    Args:
        make: makes the first timelines, as for `TimeSteward`.
        types: of the simulation.
        allows: whether a client, by his public id, may give an input, as for `TimelinePeer`.
        chunk: how many units of time are compared at once.
    """

    kinds = (SharedTimeline,)

    def __init__(
        self,
        make: Callable[[Accessor], Any],
        types: PersistentTypes,
        allows: Callable[[str, TimelineEvent], bool],
        *,
        chunk: int,
    ) -> None:
        self._make: Final = make
        self._types: Final = types
        self._allows: Final = allows
        self._chunk: Final = chunk
        # One, in a list: a stream may begin anew within a tick, in which no attribute is written.
        self._peers: Final = [self._new_peer()]
        self._waiting: Final[deque[PeerMessage]] = deque()
        self.refused: Final[deque[str]] = deque(maxlen=KEPT_REFUSALS)
        """Why messages of the log were refused lately, by all peers alike."""
        self.missed: Final[deque[tuple[int, int]]] = deque(maxlen=KEPT_GAPS)
        """From when until when effects are not told, since the game jumped by a snapshot."""
        super().__init__()

    @property
    def peer(self) -> TimelinePeer:
        """This peer's side of the history."""
        return self._peers[0]

    @property
    def steward(self) -> TimeSteward:
        """The history. It is another one after the game jumped by a snapshot, or the stream began anew."""
        return self.peer.steward

    @property
    def me(self) -> str:
        """The own public id; empty until it is set."""
        return self.peer.me

    @me.setter
    def me(self, public_id: str) -> None:
        self.peer.me = public_id

    # What a peer says.

    def act(self, base: int, event: TimelineEvent) -> int:
        """Give input, which acts here at once; returns its number.

        Raises:
            SharedInputRefused: as of `TimelinePeer.act`.
            PeerMessagesRefused: the event is too long.
        """
        self._require_room()
        write_messages([SharedInput(base, event)], self._types)
        number, message = self.peer.act(base, event)
        self._waiting.append(message)
        return number

    def take_back(self, number: int) -> None:
        """Have an own input not happen. Raises `SharedInputRefused`: as of `TimelinePeer.take_back`."""
        self._require_room()
        self._waiting.append(self.peer.take_back(number))

    def promise(self, base: int) -> None:
        """Take part, and give no more input before a time. Raises `SharedInputRefused`."""
        self._require_room()
        message = self.peer.promise(base)
        if self._waiting and isinstance(self._waiting[-1], InputPromise):
            self._waiting.pop()
        self._waiting.append(message)

    # The stream.

    def on_reset(self, seed: str) -> None:
        """The stream begins: so does the history."""
        self._begin_anew()
        self.spawn(SharedTimeline)

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        """A client says something; if no peer would, all refuse it."""
        if type != TIMELINE_EVENT:
            return
        try:
            messages = read_messages_untrusted(body, self._types)
        except PeerMessagesRefused as error:
            self.refused.append(f"{origin}: {error}")
            return
        for message in messages:
            try:
                self._answer(self.peer.receive(origin, message))
            except SharedInputRefused as error:
                self.refused.append(str(error))
        self._show()

    def on_disconnect(self, public_id: str) -> None:
        """A client that is gone holds up no other."""
        self._answer(self.peer.leave(public_id))
        self._show()

    def restore(self, snapshot: bytes) -> None:
        """As of `SimDriver`."""
        before = self.snapshot()
        super().restore(snapshot)
        shared = self.entities(SharedTimeline)
        try:
            if len(shared) != 1:
                raise NotPersistent(f"{len(shared)} timelines in one game")
            history = SharedHistory(shared[0].table, shared[0].state)
            peer = TimelinePeer.joined_untrusted(history, self._types, self._allows, chunk=self._chunk)
        except NotPersistent as error:
            super().restore(before)
            raise SnapshotRefused(f"this is no shared timeline: {error}") from error
        peer.me = self.me
        gap = peer.steward.take_over_effects(self.steward, is_same_history=True)
        if gap is not None:
            self.missed.append(gap)
        self._peers[0] = peer

    def start_over(self) -> None:
        """As of `SimDriver`."""
        super().start_over()
        self._begin_anew()
        self._waiting.clear()

    def take_sent(self, most: int = 1_000) -> list[tuple[str, str]]:
        """As of `SimDriver`; what waits is put into as few events as it fits."""
        sent = super().take_sent(most)
        if len(sent) == most:
            return sent
        texts = write_messages(self._waiting, self._types)
        self._waiting.clear()
        for text in texts:
            self.send_event(TIMELINE_EVENT, text)
        return [*sent, *super().take_sent(most - len(sent))]

    def _new_peer(self) -> TimelinePeer:
        return TimelinePeer(TimeSteward(self._make), self._types, self._allows, chunk=self._chunk)

    def _begin_anew(self) -> None:
        former, peer = self.peer, self._new_peer()
        peer.me = former.me
        peer.steward.take_over_effects(former.steward, is_same_history=False)
        self._peers[0] = peer

    def _show(self) -> None:
        shared = self.peer.shared_state()
        for entity in self.entities(SharedTimeline):
            entity.show(shared)

    def _answer(self, messages: list[PeerMessage]) -> None:
        for message in messages:
            if len(self._waiting) < MAX_WAITING_MESSAGES:
                self._waiting.append(message)

    def _require_room(self) -> None:
        if len(self._waiting) >= MAX_WAITING_MESSAGES:
            raise SharedInputRefused(f"{MAX_WAITING_MESSAGES} messages wait to be sent: have a follower take them")
