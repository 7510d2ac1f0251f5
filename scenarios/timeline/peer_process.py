"""One peer of `baton run timeline`, in a process of its own: python -m batonpass.scenarios.timeline.peer_process '{…}'.

It plays in the collision world, measures each of its frames, and prints lines of JSON. These are the keys by which it
takes part over the link, which are to be registered. Then follow what it has come to each second, and its result at the
end. Beside its timeline it runs one without lag hiding, which has settled inputs only.
"""

import hashlib
import json
import logging
import sys
from collections import deque
from dataclasses import asdict, dataclass, field
from random import Random
from time import thread_time_ns
from typing import Any, Final

import httpx
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.actors.http.client import HttpClient
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.subreaper import die_with_parent
from batonpass.scenarios.lockstep.way import LossyWay
from batonpass.scenarios.timeline.collisions import TYPES, Clash, Enter, Kick, make_collisions
from batonpass.simserver.sync.door.ports import PROVED
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.lockstep.schedule import TICK_MS
from batonpass.simserver.sync.play.over_link import link_transport
from batonpass.simserver.sync.play.session import StreamLost, follow_stream
from batonpass.simserver.sync.timeline.crossverify import EventTrace, traces_of
from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.game import TIMELINE_EVENT, TimelineGame
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.peer_wire import PeerMessagesRefused, read_messages_untrusted
from batonpass.simserver.sync.timeline.persistence import PersistentTypes, dump
from batonpass.simserver.sync.timeline.sharing import SharedInput, SharedInputRefused
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import parts_of

__all__ = ["CHUNK", "MODULE", "PeerFound", "PeerTask", "Reworked", "changed", "is_kick", "next_promise"]

MODULE: Final = "batonpass.scenarios.timeline.peer_process"
UNIT_MS: Final = 10
"""Of real time, for one unit of the world's."""
CHUNK: Final = 500 // UNIT_MS
BODIES: Final = 60
FASTEST: Final = 9
KICK_EVERY_S: Final = 0.8
FRAME_S: Final = 0.02
SYNC_S: Final = 0.05
CATCH_UP_MS: Final = 1_000.0
OFFER_EVERY_TICKS: Final = 40
PATIENCE_MS: Final = 3_600_000
ANSWER_S: Final = 60.0
# Of a picture.
MOST_DOTS: Final = 4_000
# Late inputs at which a peer looks to find one for it.
MOST_LOOKS: Final = 12
Cone = list[tuple[int, int, str, str]]
_TYPES: Final = PersistentTypes(TYPES)


@dataclass(frozen=True)
class PeerTask:
    """What one peer has to do.

    Attributes:
        peers: play begins when this number takes part.
        began: when it did, for one who joins later; None: that is still to come.
        player: as whom he takes part over the link; empty: he takes part over HTTP.
        home: the REST interfaces of homeservers, for who takes part over the link.
    """

    name: str
    seed: int
    stream: str
    doors: list[str]
    loss: float
    latency_ms: float
    seconds: float
    peers: int
    began: int | None = None
    player: str = ""
    home: list[str] = field(default_factory=list)

    def end_of(self, began: int) -> int:
        """No peer gives input from then on, and all states are compared there."""
        return (began + round(self.seconds * 1e3 / UNIT_MS)) // CHUNK * CHUNK


@dataclass
class Reworked:
    """What one frame had to execute again, since inputs came late.

    Attributes:
        inputs: that came with it.
        late: by how many units the earliest was.
        executed: events that were executed again, or undone.
        later: events that are later than that input: what a rollback computes again.
        remembered: all events that are remembered.
    """

    inputs: int
    late: int
    executed: int
    later: int
    remembered: int


@dataclass
class PeerFound:
    """What one peer has done and seen.

    Attributes:
        digest: of the state at the end.
        frames_ms, settled_frames_ms: processor time of each frame, with lag hiding and without it.
        unseen_ms: without lag hiding, how long each own input was under way until it acted.
        cone: of the late input that changed most, of some: time, thing, kind, and what became of each event: same, new,
            gone or other.
        refused, divergence, failure: sentences; empty if all is well.
    """

    name: str
    public_id: str = ""
    given: int = 0
    heard: int = 0
    digest: str = ""
    joined_at: int = 0
    reworked: list[Reworked] = field(default_factory=list)
    frames_ms: list[float] = field(default_factory=list)
    settled_frames_ms: list[float] = field(default_factory=list)
    unseen_ms: list[float] = field(default_factory=list)
    cone: Cone = field(default_factory=list)
    cone_at: int = 0
    refused: list[str] = field(default_factory=list)
    divergence: str = ""
    failure: str = ""
    lost: int = 0


def is_kick(_: str, event: TimelineEvent) -> bool:
    """Whether an input is one that the world can execute."""
    if not isinstance(event, Kick) or type(event.number) is not int or not 0 <= event.number < BODIES:
        return False
    velocity: object = event.velocity
    if not isinstance(velocity, tuple) or len(velocity) != 2:
        return False
    return all(type(part) is int and abs(part) <= FASTEST for part in velocity)


def next_promise(now: int, ends: list[int], settled: int, promised: int) -> int:
    """What a peer promises now: nothing beyond the end of play, which all compare, and never less than before.

    Args:
        now: the time that he shows.
        ends: when play ends, once it has begun. He may have promised more till then.
        settled: what is settled.
        promised: what he promised before; it holds when he takes part again after he was taken for gone.
    """
    return max(min([now, *[end + 1 for end in ends]]), settled, promised)


class WatchedTimeline(TimelineGame):
    """Notes which inputs came, and when enough peers took part for play to begin: at one place of the log, for all."""

    def __init__(self, peers: int, began: int | None) -> None:
        self.came: Final[deque[tuple[str, SharedInput]]] = deque()
        self.began: Final[list[int]] = [] if began is None else [began]
        self._needed: Final = peers
        super().__init__(make_collisions, _TYPES, is_kick, chunk=CHUNK)

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        """As of `TimelineGame`."""
        super().on_client_event(type, origin, body)
        if not self.began and len(self.peer.members) >= self._needed:
            self.began.append(self.peer.settled)
        if type == TIMELINE_EVENT:
            try:
                messages = read_messages_untrusted(body, _TYPES)
            except PeerMessagesRefused:
                return
            self.came.extend((origin, message) for message in messages if isinstance(message, SharedInput))


class Player:
    """A peer, its way to the doors, and the timeline beside it that hides no lag."""

    def __init__(self, task: PeerTask, net: httpx.AsyncBaseTransport) -> None:
        dice = Random(f"{task.seed} {task.name}")
        key = Ed25519PrivateKey.from_private_bytes(dice.randbytes(32))
        public = key.public_key().public_bytes_raw()
        self._task: Final = task
        self._dice: Final = dice
        self._way: Final = LossyWay(net, dice, task.loss, 0.0, task.latency_ms / 1e3)
        self._game: Final = WatchedTimeline(task.peers, task.began)
        self._follower: Final = StreamFollower(
            self._game,
            task.stream,
            PROVED if task.player else f"{task.name}-{dice.getrandbits(64):016x}",
            sign=lambda text: (public, key.sign(text)),
            offer_every=OFFER_EVERY_TICKS,
            fault_window_ms=PATIENCE_MS,
        )
        self._found: Final = PeerFound(task.name)
        self._plain: TimeSteward | None = None
        self._steward: TimeSteward | None = None
        self._numbers: Final[dict[str, int]] = {}
        self._waiting: Final[deque[tuple[int, float]]] = deque()
        self._known = self._now = self._second = self._promised = self._looked = 0
        self._known_since_s = 0.0
        self._next_kick = 0.0
        self._done = trio.Event()

    async def play(self) -> PeerFound:
        """Play to the end, and until all that was given is settled."""
        try:
            async with HttpClient(transport=self._way) as http, trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, http)
                await self._done.wait()
                nursery.cancel_scope.cancel()
        except* StreamLost as lost:
            self._found.failure = str(lost.exceptions[0])
        found = self._found
        found.lost = self._way.log.lost
        found.refused = [*self._game.refused][:5]
        found.divergence = str(self._game.peer.divergence or "")
        return found

    async def _follow(self, http: HttpClient) -> None:
        doors = self._task.doors
        await follow_stream(
            self._follower,
            doors,
            http=http,
            sync_s=SYNC_S,
            frame_s=FRAME_S,
            patience_s=ANSWER_S,
            on_frame=self._frame,
        )

    def _frame(self, _: int) -> None:
        game, follower = self._game, self._follower
        # What is in the log is better known now than at a steady pace: a timeline has a pace of its own.
        follower.run(CATCH_UP_MS)
        if not follower.public_id or game.tick == 0:
            return
        game.me = self._found.public_id = follower.public_id
        if self._steward is not game.steward:
            self._begin()
        before, now = self._now, self._time()
        came = [one for one in game.came if one[0] != game.me]
        self._settled_frame()
        self._work(came, before, now)
        if self._is_played(now) and now >= self._next_kick and game.me in game.peer.members:
            self._kick(now)
        promised = next_promise(now, self._ends(), game.peer.settled, self._promised)
        if promised > self._promised or game.me not in game.peer.members:
            game.promise(promised)
            self._promised = promised
        self._look()

    def _ends(self) -> list[int]:
        """When play ends, once it has begun."""
        return [self._task.end_of(began) for began in self._game.began]

    def _is_played(self, now: int) -> bool:
        return any(now < end for end in self._ends())

    def _begin(self) -> None:
        """The history is another one: this peer has joined it."""
        game = self._game
        self._steward, self._plain = game.steward, TimeSteward(make_collisions)
        # The timeline beside it begins with the world's beginning, so only those who were there then have one.
        if game.steward.remembered_since.base > 0:
            self._plain, self._found.joined_at = None, game.steward.remembered_since.base
        self._now = max(self._now, game.peer.settled)

    def _time(self) -> int:
        now_s = trio.current_time()
        if self._follower.known != self._known:
            self._known, self._known_since_s = self._follower.known, now_s
        since_ms = min((now_s - self._known_since_s) * 1e3, 20 * TICK_MS)
        self._now = max(self._now, int((self._known * TICK_MS + since_ms) / UNIT_MS))
        return self._now

    def _work(self, came: list[tuple[str, SharedInput]], before: int, now: int) -> None:
        """A frame with lag hiding: what came late is put into the past, and then time passes."""
        steward, found = self._game.steward, self._found
        earliest = min((given.base for _, given in came), default=now)
        is_late = earliest < before
        is_shown = is_late and self._looked < MOST_LOOKS and self._second > self._task.seconds / 3
        traces = self._traces(earliest, before) if is_shown else {}
        counted, began_ns = steward.executed + steward.undone, thread_time_ns()
        steward.run_until(before)
        again_ns, executed = thread_time_ns() - began_ns, steward.executed + steward.undone - counted
        if is_late:
            times = [parts_of(record.time).base for record in steward.history()]
            later = sum(earliest <= base < before for base in times)
            found.reworked.append(Reworked(len(came), before - earliest, executed, later, len(times)))
        if is_shown:
            self._looked += 1
            cone = _cone(traces, self._traces(earliest, before))
            if not found.cone or changed(cone) > changed(found.cone):
                found.cone, found.cone_at = cone, earliest
        began_ns = thread_time_ns()
        steward.run_until(now)
        found.frames_ms.append((again_ns + thread_time_ns() - began_ns) / 1e6)
        found.heard += len(came)

    def _traces(self, since: int, until: int) -> dict[int, EventTrace]:
        # A thing whose events are not computed yet is shown as it was.
        records = [one for one in traces_of(self._game.steward, until) if parts_of(one.time).base >= since]
        return {one.time: one for one in records[:MOST_DOTS]}

    def _settled_frame(self) -> None:
        """The same frame without lag hiding: time passes where nothing changes any more."""
        game, plain = self._game, self._plain
        while game.came:
            sender, given = game.came.popleft()
            self._numbers[sender] = number = self._numbers.get(sender, 0) + 1
            if plain is not None and is_kick(sender, given.event) and plain.valid_since.allows(given.base):
                plain.insert_fiat_event(given.base, id_of(sender, number), given.event)
        settled, now_s = game.peer.settled, trio.current_time()
        while self._waiting and self._waiting[0][0] < settled:
            self._found.unseen_ms.append((now_s - self._waiting.popleft()[1]) * 1e3)
        if plain is not None:
            began_ns = thread_time_ns()
            plain.run_until(settled)
            self._found.settled_frames_ms.append((thread_time_ns() - began_ns) / 1e6)
            plain.forget_before(settled)

    def _kick(self, now: int) -> None:
        dice = self._dice
        velocity = (dice.randint(-FASTEST, FASTEST), dice.randint(-FASTEST, FASTEST))
        self._next_kick = now + dice.expovariate(1.0 / KICK_EVERY_S) * 1e3 / UNIT_MS
        try:
            self._game.act(now, Kick(dice.randrange(BODIES), velocity))
        except SharedInputRefused as error:
            self._found.refused.append(str(error))
            return
        self._found.given += 1
        self._waiting.append((now, trio.current_time()))

    def _look(self) -> None:
        """Say how far this has come, once a second, and end when all is settled."""
        if not self._game.began:
            return
        began, (end,), settled = self._game.began[0], self._ends(), self._game.peer.settled
        second = (min(self._now, end) - began) * UNIT_MS // 1_000
        if second > self._second:
            self._second = second
            _say({"second": second, "began": began})
        if settled >= end and not self._done.is_set():
            snapshot = self._game.steward.snapshot_before(end)
            if snapshot is not None:
                self._found.digest = hashlib.sha256(dump(snapshot, _TYPES)).hexdigest()
            self._done.set()


def changed(cone: Cone) -> int:
    """How many of the events that are later than an input it made others."""
    return sum(became != "same" for _, _, _, became in cone)


def _cone(before: dict[int, EventTrace], after: dict[int, EventTrace]) -> Cone:
    rows = []
    for time in sorted(before.keys() | after.keys()):
        was, one = before.get(time), after.get(time)
        shown = one or was
        if shown is not None:
            what = "new" if was is None else "gone" if one is None else "same" if one.is_like(was) else "other"
            rows.append((parts_of(shown.time).base, _thing(shown.event), type(shown.event).__name__, what))
    return rows


def _thing(event: TimelineEvent) -> int:
    match event:
        case Enter(number) | Kick(number=number) | Clash(one=number):
            return number
        case _:
            return -1


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _play(task: PeerTask) -> PeerFound:
    if task.player:
        identity = Identity.generate()
        _say({"keys": identity.public.to_jwks()["keys"]})
        async with link_transport(task.player, identity, task.home) as link:
            return await Player(task, link).play()
    async with httpx.AsyncHTTPTransport(trust_env=False) as net:
        return await Player(task, net).play()


def main(arguments: list[str]) -> None:
    """Play, and print."""
    die_with_parent()
    logging.disable()
    found = trio.run(_play, PeerTask(**json.loads(arguments[0])))
    _say({"found": asdict(found)})


if __name__ == "__main__":
    main(sys.argv[1:])
