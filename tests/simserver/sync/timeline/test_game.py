"""A timeline over an event stream: what is lost, repeated, late, handed over or new makes no difference in the end."""

import random
from collections.abc import Callable

import pytest

from batonpass.simserver.sync.lockstep.driver import SimEvent
from batonpass.simserver.sync.lockstep.scene import SnapshotRefused
from batonpass.simserver.sync.timeline.effects import EffectNotice
from batonpass.simserver.sync.timeline.events import TimelineEvent
from batonpass.simserver.sync.timeline.game import TIMELINE_EVENT, TimelineGame
from batonpass.simserver.sync.timeline.peer_wire import write_messages
from batonpass.simserver.sync.timeline.persistence import dump
from batonpass.simserver.sync.timeline.sharing import InputPromise, PeerMessage, SharedInput, SharedInputRefused
from batonpass.simserver.sync.timeline.times import parts_of
from tests.simserver.sync.lockstep.games import Yard
from tests.simserver.sync.lockstep.lossy_room import Chances, Guest, LossyRoom
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Pay, make_village

# A tick of the stream is one unit of time; inputs may be in ticks that are past.
CHUNK = 20


def is_villager(sender: str, event: TimelineEvent) -> bool:
    return isinstance(event, Come | Leave | Pay)


def new_game() -> TimelineGame:
    return TimelineGame(make_village, TYPES, is_villager, chunk=CHUNK)


def game_of(guest: Guest) -> TimelineGame:
    game = guest.follower.driver
    assert isinstance(game, TimelineGame)
    return game


def play(room: LossyRoom, dice: random.Random, ticks: int, *, act: bool = True) -> int:
    """Everybody promises, and gives input now and then; returns how many were given."""
    given = 0
    for _ in range(ticks):
        room.tick()
        for guest in room.guests:
            game, now = game_of(guest), guest.follower.known
            game.me = guest.follower.public_id
            if not game.me:
                continue
            if act and game.me in game.peer.members and dice.random() < 0.05:
                try:
                    game.act(now, dice.choice([Come(dice.randrange(6)), Leave(), Pay(3)]))
                except SharedInputRefused:
                    continue
                given += 1
            game.steward.run_until(now)
            if dice.random() < 0.2:
                game.promise(max(now, game.peer.settled))
    return given


@pytest.mark.parametrize("seed", range(2))
def test_peers_of_a_stream_that_loses_repeats_and_moves_end_equal_and_so_does_one_who_joins(seed: int) -> None:
    room = LossyRoom(seed, new_game, chances=Chances(post=0.0, hand_over=0.02))
    dice = random.Random(seed)
    for _ in range(4):
        room.come()
    given = play(room, dice, 160)
    joiner = room.come()
    given += play(room, dice, 100)
    play(room, dice, 60, act=False)
    # Nobody hears more than what all have heard.
    end = min(game_of(guest).peer.settled for guest in room.guests)
    assert end > 220, "nobody holds up the others"
    assert given > 20
    states = set()
    for guest in room.guests:
        snapshot = game_of(guest).steward.snapshot_before(end)
        assert snapshot is not None
        states.add(dump(snapshot, TYPES))
        assert game_of(guest).peer.divergence is None
        assert guest.follower.desync is None
        assert game_of(guest).refused == game_of(room.guests[0]).refused or guest is joiner
    assert len(states) == 1
    assert room.counts.first_differing is None
    assert room.counts.hand_overs > 1
    assert game_of(joiner).me in game_of(room.guests[0]).peer.members
    assert game_of(joiner).steward.valid_since.base > 0
    assert room.counts.snapshots > 0, "who joins begins in the middle"


def said(origin: str, *messages: PeerMessage) -> list[SimEvent]:
    return [SimEvent(1, TIMELINE_EVENT, origin, text) for text in write_messages(messages, TYPES)]


BEGINNING = [SimEvent(1, "_a", "_", "seed")]


def test_what_is_no_message_of_a_peer_is_refused_by_all_alike_and_does_no_harm() -> None:
    one, other = new_game(), new_game()
    events = [
        *BEGINNING,
        *[SimEvent(1, TIMELINE_EVENT, "7", body) for body in ("", "no base64!", "oGFh", "x" * 20_000)],
        *said("7", InputPromise(0), SharedInput(5, Pay(1)), InputPromise(10), SharedInput(5, Pay(2))),
        SimEvent(1, "walk", "7", "1"),
    ]
    assert one.step(events) == other.step(events)
    assert list(one.refused) == list(other.refused)
    assert len(one.refused) == 5
    assert [game.peer.settled for game in (one, other)] == [10, 10]


def test_a_snapshot_that_is_no_timeline_is_refused_and_the_game_stays_as_it_is() -> None:
    game = new_game()
    game.step([*BEGINNING, *said("7", InputPromise(40))])
    before, peer = game.state_hash(), game.peer
    for other in (Yard, TimelineGame.__bases__[0]):
        foreign: Callable[[], object] = other
        with pytest.raises(SnapshotRefused):
            game.restore(foreign().snapshot())  # type: ignore[attr-defined]
    assert (game.state_hash(), game.peer) == (before, peer)


def test_one_who_begins_with_a_snapshot_computes_the_same_hashes_from_then_on() -> None:
    game, late = new_game(), new_game()
    game.step([*BEGINNING, *said("7", InputPromise(0), SharedInput(30, Pay(5)), InputPromise(25))])
    late.restore(game.snapshot())
    for events in (said("7", SharedInput(33, Leave())), said("8", InputPromise(0)), said("7", InputPromise(60)), []):
        assert game.step(events) == late.step(events)
    assert late.peer.settled == 25


class Listener:
    """What one hears of a game's effects: at once, less what is retracted, and once they are settled."""

    def __init__(self) -> None:
        self.heard: list[EffectNotice] = []
        self.settled: list[EffectNotice] = []

    def listen(self, game: TimelineGame, now: int) -> None:
        game.steward.run_until(now)
        for notice in game.steward.take_speculative_effects():
            if notice.is_retracted:
                self.heard.remove(notice._replace(is_retracted=False))
            else:
                self.heard.append(notice)
        self.settled += game.steward.take_settled_effects()


LONG_LOG = [
    [*BEGINNING, *said("7", InputPromise(0))],
    *[said("7", SharedInput(base, Come(base % 6)), InputPromise(base - 3)) for base in range(8, 200, 8)],
    said("7", InputPromise(200)),
]


@pytest.mark.parametrize(
    ("left", "landed", "misses"),
    [(4, 5, False), (5, 6, True), (5, 14, True), (0, 20, True), (14, 14, False), (14, 6, False)],
)
def test_effects_of_one_who_jumps_are_told_once_and_what_he_misses_is_named(
    left: int, landed: int, *, misses: bool
) -> None:
    ahead, jumper = new_game(), new_game()
    everything, some = Listener(), Listener()
    snapshot = b""
    for place, events in enumerate(LONG_LOG):
        ahead.step(events)
        everything.listen(ahead, min(place * 8 + 8, 200))
        if place <= left:
            jumper.step(events)
            some.listen(jumper, min(place * 8 + 8, 200))
        if place == landed:
            snapshot = ahead.snapshot()
    jumper.restore(snapshot)
    for place, events in enumerate(LONG_LOG[landed + 1 :], landed + 1):
        jumper.step(events)
        some.listen(jumper, min(place * 8 + 8, 200))

    def is_missed(notice: EffectNotice) -> bool:
        return any(since <= parts_of(notice.time).base < until for since, until in jumper.missed)

    assert len(everything.settled) > 20
    assert sorted(everything.heard, key=repr) == sorted(everything.settled, key=repr)
    told = [notice for notice in everything.settled if not is_missed(notice)]
    assert some.settled == told
    heard = [notice for notice in some.heard if not is_missed(notice)]
    assert sorted(heard, key=repr) == sorted(told, key=repr)
    assert bool(jumper.missed) == misses
    assert len(told) < len(everything.settled) or not jumper.missed


def test_what_was_told_of_a_history_that_begins_anew_is_retracted() -> None:
    game, listener = new_game(), Listener()
    for place, events in enumerate(LONG_LOG[:6]):
        game.step(events)
        listener.listen(game, min(place * 8 + 8, 200))
    settled = len(listener.settled)
    assert len(listener.heard) > settled > 0
    game.start_over()
    listener.listen(game, 0)
    assert sorted(listener.heard, key=repr) == sorted(listener.settled, key=repr)
    assert len(listener.settled) == settled


def test_messages_wait_and_only_the_last_promise_of_several_is_sent() -> None:
    game = new_game()
    game.me = "7"
    game.step([*BEGINNING, *said("7", InputPromise(0))])
    for base in (1, 2, 3):
        game.promise(base)
    game.act(5, Pay(1))
    (sent,) = game.take_sent()
    assert sent == (TIMELINE_EVENT, write_messages([InputPromise(3), SharedInput(5, Pay(1))], TYPES)[0])
    assert game.take_sent() == []
