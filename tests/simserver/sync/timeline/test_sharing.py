"""Peers who share inputs end with the same history, and name the first event that differs (T11, T13)."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.persistence import PersistentTypes, dump
from batonpass.simserver.sync.timeline.sharing import (
    ChunkDigest,
    ChunkEvents,
    InputPromise,
    OwnHistory,
    PeerAdmitted,
    PeerInvitation,
    PeerMessage,
    SharedInput,
    SharedInputRefused,
    TakenBack,
    TimelinePeer,
)
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import parts_of
from tests.simserver.sync.timeline.village import TYPES, Come, Leave, Pay, make_village

NAMES = ("anna", "bert", "cleo", "dora")
CHUNK = 20
END = 240


@dataclass
class Room:
    """Peers, and links on which messages are late by chance, and never change places."""

    seed: int
    peers: dict[str, TimelinePeer] = field(default_factory=dict)
    ways: dict[tuple[str, str], deque[tuple[int, PeerMessage]]] = field(default_factory=dict)
    said: list[PeerMessage] = field(default_factory=list)
    coming: dict[str, tuple[PeerInvitation, dict[str, OwnHistory]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        for name in NAMES:
            others = [other for other in NAMES if other != name]
            self.peers[name] = TimelinePeer(TimeSteward(make_village), TYPES, name, others, chunk=CHUNK)
            self.ways |= {(name, other): deque() for other in others}

    def tell(self, sender: str, now: int, *messages: PeerMessage) -> None:
        self.said += messages
        for (source, _), way in self.ways.items():
            if source == sender:
                way.extend((now + self.dice.randrange(1, 30), message) for message in messages)

    def deliver(self, now: int) -> None:
        for (source, target), way in list(self.ways.items()):
            while way and way[0][0] <= now and target in self.peers:
                _, message = way.popleft()
                self.tell(target, now, *self.peers[target].receive(source, message))
                self.heard(target, source, message)

    def come(self, name: str, now: int) -> None:
        """A newcomer begins with what the first peer gives him, once all others have told him of themselves."""
        host = self.peers[NAMES[0]]
        invitation, message = host.admit(name)
        self.tell(NAMES[0], now, message)
        self.ways |= {(other, name): deque() for other in NAMES} | {(name, other): deque() for other in NAMES}
        self.coming[name] = (invitation, {NAMES[0]: host.own_history()})

    def heard(self, target: str, source: str, message: PeerMessage) -> None:
        """A peer who has heard of a newcomer tells him of himself; the newcomer begins when all have."""
        if not isinstance(message, PeerAdmitted):
            return
        invitation, histories = self.coming[message.name]
        histories[target] = self.peers[target].own_history()
        self.ways[target, message.name].clear()
        if len(histories) == len(invitation.members):
            self.peers[message.name] = TimelinePeer.joined(invitation, histories, TYPES, message.name, chunk=CHUNK)

    def run(self, *, newcomer_at: int | None = None) -> None:
        for now in range(END + 200):
            self.deliver(now)
            if now == newcomer_at:
                self.come("emil", now)
            for name, peer in list(self.peers.items()):
                # Speculatively, with what is known by now.
                peer.steward.run_until(min(now, END))
                if now < END and self.dice.randrange(12) == 0:
                    event = self.dice.choice([Come(self.dice.randrange(6)), Leave(), Pay(3)])
                    given = peer.act(now, event)
                    self.tell(name, now, given)
                    if self.dice.randrange(4) == 0:
                        self.tell(name, now, peer.take_back(given.number))
                if now % 10 == 9 and now < END + 20:
                    self.tell(name, now, *peer.promise(now + 1))

    def states(self) -> set[bytes]:
        found = set()
        for peer in self.peers.values():
            snapshot = peer.steward.snapshot_before(END)
            assert snapshot is not None
            found.add(dump(snapshot, TYPES))
        return found


@pytest.mark.parametrize("seed", range(3))
def test_t11_four_peers_with_random_delays_end_equal_and_raise_no_alarm(seed: int) -> None:
    room = Room(seed)
    room.run()
    assert len(room.states()) == 1
    assert [peer.divergence for peer in room.peers.values()] == [None] * 4
    digests = [message for message in room.said if isinstance(message, ChunkDigest)]
    assert len(digests) == 4 * len(set(digests)) >= 4 * (END // CHUNK)
    assert not any(isinstance(message, ChunkEvents) for message in room.said)


@pytest.mark.parametrize("seed", range(3))
def test_one_who_joins_in_mid_history_ends_equal_and_gives_input_like_all_others(seed: int) -> None:
    room = Room(seed)
    room.run(newcomer_at=97)
    assert len(room.peers) == 5
    assert len(room.states()) == 1
    assert [peer.divergence for peer in room.peers.values()] == [None] * 5
    assert room.peers["emil"].own_history().number > 0
    assert min(peer.settled for peer in room.peers.values()) >= END
    assert not any(isinstance(message, ChunkEvents) for message in room.said)


def test_one_who_joins_needs_to_hear_of_all_and_joins_once() -> None:
    room = Room(1)
    invitation, _ = room.peers["anna"].admit("emil")
    with pytest.raises(SharedInputRefused, match="is missing"):
        TimelinePeer.joined(invitation, {}, TYPES, "emil", chunk=CHUNK)
    with pytest.raises(SharedInputRefused, match="takes part already"):
        room.peers["anna"].admit("emil")
    for peer in ("cleo", "dora"):
        room.peers["bert"].receive(peer, InputPromise(50))
    room.peers["bert"].receive("anna", InputPromise(50))
    room.peers["bert"].promise(50)
    with pytest.raises(SharedInputRefused, match="which is settled"):
        room.peers["bert"].receive("anna", PeerAdmitted("emil", 49))


def test_t11_an_event_that_happened_on_one_side_only_is_named_on_both() -> None:
    room = Room(7)
    room.peers["cleo"].steward.insert_fiat_event(66, 1, Pay(1))
    room.run()
    assert len(room.states()) == 4 - 2
    found = {name: peer.divergence for name, peer in room.peers.items()}
    for name, divergence in found.items():
        assert divergence is not None
        assert parts_of(divergence.time).base == 66
        assert divergence.kind == ("only local" if name == "cleo" else "only remote")
        assert divergence.peer in NAMES
    assert found["cleo"] is not None
    assert found["cleo"].event == Pay(1)
    assert "only local" in str(found["cleo"])
    told = [message for message in room.said if isinstance(message, ChunkEvents)]
    assert len([message for message in told if message.chunk == 66 // CHUNK]) <= 4, "one message of each peer finds it"


MOOD = {"is": 0}


@dataclass(frozen=True, slots=True)
class Whim(TimelineEvent):
    """Depends on what no accessor told it."""

    type_id: ClassVar[int] = 0x61D8_0F3B_A92C_E745

    def execute(self, now: Accessor) -> None:
        now.write(now.globals, MOOD["is"])


def pair() -> dict[str, TimelinePeer]:
    types = PersistentTypes([Whim])
    return {
        name: TimelinePeer(
            TimeSteward(lambda now: now.create(ValueTimeline, 0)), types, name, {"anna", "bert"} - {name}, chunk=CHUNK
        )
        for name in ("anna", "bert")
    }


def test_t11_an_event_that_did_something_else_on_the_other_side_is_named() -> None:
    peers = pair()
    given = peers["anna"].act(5, Whim())
    peers["bert"].receive("anna", given)
    messages = {"anna": peers["anna"].promise(CHUNK), "bert": peers["bert"].promise(CHUNK)}
    for mood, (name, other) in enumerate((("anna", "bert"), ("bert", "anna"))):
        MOOD["is"] = mood
        peers[name].steward.run_until(CHUNK)
        messages[name] += peers[name].receive(other, InputPromise(CHUNK))
    answers = {"anna": [], "bert": []}  # type: dict[str, list[PeerMessage]]
    for name, other in (("anna", "bert"), ("bert", "anna")):
        for message in messages[other]:
            if isinstance(message, ChunkDigest):
                answers[name] += peers[name].receive(other, message)
    for name, other in (("anna", "bert"), ("bert", "anna")):
        for message in answers[other]:
            assert peers[name].receive(other, message) == []
    for peer in peers.values():
        assert peer.divergence is not None
        assert (peer.divergence.kind, peer.divergence.event) == ("differing", Whim())


def test_t13_a_local_input_acts_at_once_and_a_remote_one_at_the_time_at_which_it_was_given() -> None:
    room = Room(1)
    anna, bert = room.peers["anna"], room.peers["bert"]
    bert.steward.run_until(100)
    given = anna.act(30, Pay(500))
    for peer, base, is_there in ((anna, 31, True), (bert, 31, False)):
        snapshot = peer.steward.snapshot_before(base)
        assert snapshot is not None
        assert (snapshot.read(snapshot.globals.steps) > 400) is is_there
    bert.receive("anna", given)
    times = [parts_of(record.time).base for record in bert.steward.history() if record.event == Pay(500)]
    bert.steward.run_until(100)
    assert times == []
    assert [parts_of(one.time).base for one in bert.steward.history() if one.event == Pay(500)] == [30]


def test_an_input_that_breaks_its_senders_promise_is_refused_by_all_whatever_they_have_settled() -> None:
    room = Room(1)
    for name in ("bert", "cleo"):
        room.peers[name].receive("anna", InputPromise(50))
    room.peers["bert"].promise(90)
    for name in ("bert", "cleo"):
        with pytest.raises(SharedInputRefused, match="he promised 50"):
            room.peers[name].receive("anna", SharedInput(1, 49, Leave()))
        # The refused one has its number all the same, on all sides.
        assert room.peers[name].receive("anna", SharedInput(2, 50, Leave())) == []
    room.peers["anna"].promise(50)
    with pytest.raises(SharedInputRefused):
        room.peers["anna"].act(49, Leave())


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (SharedInput(2, 5, Leave()), "input 2 after 0"),
        (SharedInput(1, 10**9, Leave()), "too far ahead"),
        (TakenBack(1), "settled or is none"),
        (InputPromise(-1), "promises -1 after 0"),
        (InputPromise(10**9), "too far ahead"),
        (ChunkDigest(10**6, ""), "tells of chunk"),
    ],
    ids=repr,
)
def test_what_no_peer_who_keeps_the_rules_would_say_is_refused(message: PeerMessage, why: str) -> None:
    with pytest.raises(SharedInputRefused, match=why):
        Room(1).peers["anna"].receive("bert", message)


def test_one_who_has_no_part_in_it_is_not_heard_nor_is_ones_own_name() -> None:
    for sender in ("mallory", "anna"):
        with pytest.raises(SharedInputRefused, match="no part"):
            Room(1).peers["anna"].receive(sender, InputPromise(1))


def test_inputs_of_one_kind_and_time_of_two_peers_are_two() -> None:
    peers = Room(1).peers
    given = [peers[name].act(5, Leave()) for name in ("bert", "cleo")]
    for name, message in zip(("bert", "cleo"), given, strict=True):
        peers["anna"].receive(name, message)
    peers["anna"].steward.run_until(6)
    assert sum(isinstance(record.event, Leave) for record in peers["anna"].steward.history()) == 2
