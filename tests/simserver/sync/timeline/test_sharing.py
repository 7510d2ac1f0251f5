"""Peers who share inputs end with the same history, and name the first event that differs (T11, T13)."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.persistence import NotPersistent, PersistentTypes
from batonpass.simserver.sync.timeline.sharing import (
    MAX_WAITING_INPUTS,
    ChunkDigest,
    ChunkEvents,
    InputPromise,
    PeerMessage,
    SharedHistory,
    SharedInput,
    SharedInputRefused,
    TakenBack,
    TimelinePeer,
)
from batonpass.simserver.sync.timeline.times import parts_of
from tests.simserver.sync.timeline.sharing_room import CHUNK, END, NAMES, Room, is_villager, new_peer
from tests.simserver.sync.timeline.village import TYPES, Leave, Pay


@pytest.mark.parametrize("seed", range(2))
def test_t11_four_peers_with_random_delays_end_equal_and_raise_no_alarm(seed: int) -> None:
    room = Room(seed)
    room.run()
    assert room.ends_equal()
    assert [peer.divergence for peer in room.peers.values()] == [None] * 4
    digests = room.said(ChunkDigest)
    assert len(digests) == 4 * len(set(digests)) >= 4 * (END // CHUNK)
    assert not room.said(ChunkEvents)
    assert len(room.said(SharedInput)) > 20


@pytest.mark.parametrize("seed", range(2))
def test_one_who_joins_in_mid_history_ends_equal_and_gives_input_like_all_others(seed: int) -> None:
    room = Room(seed)
    room.run(newcomer_at=97)
    assert len(room.peers) == 5
    assert room.ends_equal()
    assert [peer.divergence for peer in room.peers.values()] == [None] * 5
    assert any(sender == "emil" and isinstance(message, SharedInput) for sender, message in room.log)
    assert not room.said(ChunkEvents)


@pytest.mark.parametrize("seed", range(4))
def test_one_who_is_gone_holds_up_nobody_and_what_he_says_afterwards_counts_for_nobody(seed: int) -> None:
    room = Room(seed)
    room.run(gone_at=60)
    assert room.ends_equal()
    assert not room.said(ChunkEvents)
    assert "dora" in room.peers["anna"].members, "who promises again takes part again"


def test_one_who_was_gone_may_say_again_what_the_log_has_only_now() -> None:
    room = Room(171)
    room.run(newcomer_at=100, gone_at=31)
    assert room.ends_equal()
    assert not any(room.refused.values())


def test_what_a_newcomer_is_given_is_read_with_care() -> None:
    shared = new_peer("anna").shared_state()
    for table in (b"", b"\x80", shared.table + b"\x00"):
        with pytest.raises(NotPersistent):
            TimelinePeer.joined_untrusted(SharedHistory(table, shared.state), TYPES, is_villager, chunk=CHUNK)
    with pytest.raises(NotPersistent):
        TimelinePeer.joined_untrusted(SharedHistory(shared.table, b""), TYPES, is_villager, chunk=CHUNK)


def test_t11_an_event_that_happened_on_one_side_only_is_named_on_both() -> None:
    room = Room(7)
    room.peers["cleo"].steward.insert_fiat_event(66, 1, Pay(1))
    room.run()
    assert len(room.states()) == 2
    found = {name: peer.divergence for name, peer in room.peers.items()}
    for name, divergence in found.items():
        assert divergence is not None
        assert parts_of(divergence.time).base == 66
        assert divergence.kind == ("only local" if name == "cleo" else "only remote")
        assert divergence.peer in NAMES
    assert found["cleo"] is not None
    assert found["cleo"].event == Pay(1)
    assert "only local" in str(found["cleo"])
    told = [message for _, message in room.log if isinstance(message, ChunkEvents) and message.chunk == 66 // CHUNK]
    assert 2 <= len(told) <= 4, "one message of each peer finds it"


MOOD = {"is": 0}


@dataclass(frozen=True, slots=True)
class Whim(TimelineEvent):
    """Depends on what no accessor told it."""

    type_id: ClassVar[int] = 0x61D8_0F3B_A92C_E745

    def execute(self, now: Accessor) -> None:
        now.write(now.globals, MOOD["is"])


def pair(**options: object) -> dict[str, TimelinePeer]:
    """Two peers who take part, both."""
    peers = {name: new_peer(name, **options) for name in ("anna", "bert")}  # type: ignore[arg-type]
    tell(peers, *[(name, peer.promise(0)) for name, peer in peers.items()])
    return peers


def tell(peers: dict[str, TimelinePeer], *log: tuple[str, PeerMessage]) -> list[tuple[str, PeerMessage]]:
    return [
        (name, answer) for name, peer in peers.items() for sender, said in log for answer in peer.receive(sender, said)
    ]


def test_t11_an_event_that_did_something_else_on_the_other_side_is_named() -> None:
    peers = pair(types=PersistentTypes([Whim]), make=lambda now: now.create(ValueTimeline, 0))
    _, given = peers["anna"].act(5, Whim())
    tell(peers, ("anna", given))
    for mood, peer in enumerate(peers.values()):
        MOOD["is"] = mood
        peer.steward.run_until(CHUNK)
    said: list[tuple[str, PeerMessage]] = [(name, peer.promise(CHUNK)) for name, peer in peers.items()]
    while said:
        said = tell(peers, *said)
    for peer in peers.values():
        assert peer.divergence is not None
        assert (peer.divergence.kind, peer.divergence.event) == ("differing", Whim())


def test_t13_a_local_input_acts_at_once_and_a_remote_one_at_the_time_at_which_it_was_given() -> None:
    peers = pair()
    anna, bert = peers.values()
    bert.steward.run_until(100)
    _, given = anna.act(30, Pay(500))
    for peer, base, is_there in ((anna, 31, True), (bert, 31, False)):
        snapshot = peer.steward.snapshot_before(base)
        assert snapshot is not None
        assert (snapshot.read(snapshot.globals.steps) > 400) is is_there
    bert.receive("anna", given)
    bert.steward.run_until(100)
    assert [parts_of(one.time).base for one in bert.steward.history() if one.event == Pay(500)] == [30]


def test_what_was_taken_back_is_gone_here_at_once_and_stays_so_when_the_log_comes_to_it() -> None:
    peers = pair()
    anna, bert = peers.values()

    def pays(peer: TimelinePeer) -> int:
        peer.steward.run_until(50)
        return sum(one.event == Pay(500) for one in peer.steward.history())

    number, given = anna.act(30, Pay(500))
    assert pays(anna) == 1
    back = anna.take_back(number)
    assert pays(anna) == 0
    tell(peers, ("anna", given))
    assert (pays(anna), pays(bert)) == (0, 1)
    tell(peers, ("anna", back))
    assert (pays(anna), pays(bert)) == (0, 0)
    assert anna.shared_state() == bert.shared_state()


def test_an_input_that_breaks_its_senders_promise_is_refused_by_all_whatever_they_have_settled() -> None:
    peers = pair()
    tell(peers, ("anna", InputPromise(50)))
    peers["bert"].receive("bert", InputPromise(90))
    for peer in peers.values():
        with pytest.raises(SharedInputRefused, match="has promised 50"):
            peer.receive("anna", SharedInput(49, Leave()))
        assert peer.receive("anna", SharedInput(50, Leave())) == []
    peers["anna"].receive("bert", InputPromise(90))
    assert peers["anna"].shared_state() == peers["bert"].shared_state()
    with pytest.raises(SharedInputRefused, match="has promised 50"):
        peers["anna"].act(49, Leave())


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (SharedInput(10**9, Leave()), "too far ahead"),
        (TakenBack(1), "settled or is none"),
        (InputPromise(10**9), "too far ahead"),
        (ChunkDigest(10**6, ""), "tells of chunk"),
    ],
    ids=repr,
)
def test_what_no_peer_who_keeps_the_rules_would_say_is_refused(message: PeerMessage, why: str) -> None:
    peer = pair()["anna"]
    before = peer.shared_state()
    with pytest.raises(SharedInputRefused, match=why):
        peer.receive("bert", message)
    assert peer.shared_state().state == before.state


def test_an_input_that_the_simulation_does_not_allow_is_refused() -> None:
    peer = pair()["anna"]
    peer.receive("mallory", InputPromise(0))
    with pytest.raises(SharedInputRefused, match="may not give"):
        peer.receive("mallory", SharedInput(5, Leave()))


def test_one_who_has_not_promised_has_no_part_in_it() -> None:
    peer = new_peer("anna")
    with pytest.raises(SharedInputRefused, match="no part"):
        peer.receive("bert", SharedInput(5, Leave()))
    with pytest.raises(SharedInputRefused, match="takes no part yet"):
        peer.act(5, Leave())
    peer.receive("anna", peer.promise(0))
    peer.act(5, Leave())


def test_who_promises_late_holds_up_nobody_before_and_changes_nothing_that_is_settled() -> None:
    peers = pair()
    tell(peers, ("anna", InputPromise(50)), ("bert", InputPromise(50)))
    tell(peers, ("emil", InputPromise(0)))
    # Said before it was read how the first one was taken.
    tell(peers, ("emil", InputPromise(20)))
    assert {peer.settled for peer in peers.values()} == {50}
    for peer in peers.values():
        with pytest.raises(SharedInputRefused, match="has promised 50"):
            peer.receive("emil", SharedInput(49, Leave()))


def test_one_who_gives_very_many_inputs_keeps_nobody_else_from_giving_some() -> None:
    peers = pair()
    for _ in range(MAX_WAITING_INPUTS):
        tell(peers, ("bert", SharedInput(5, Leave())))
    for peer in peers.values():
        with pytest.raises(SharedInputRefused, match="wait to be settled"):
            peer.receive("bert", SharedInput(5, Leave()))
    tell(peers, ("anna", peers["anna"].act(5, Leave())[1]))
    assert peers["anna"].shared_state() == peers["bert"].shared_state()


@dataclass(frozen=True, slots=True)
class Shout(TimelineEvent):
    """Is louder than what was heard before."""

    type_id: ClassVar[int] = 0x90C3_5F7E_1B28_D46A

    def execute(self, now: Accessor) -> None:
        now.write(now.globals, now.read(now.globals) + 1)
        now.effect(now.read(now.globals))


def test_what_is_told_for_good_is_told_once_and_in_order_on_all_peers_whatever_was_told_before() -> None:
    peers = pair(types=PersistentTypes([Shout]), make=lambda now: now.create(ValueTimeline, 0))
    anna, bert = peers.values()
    given = [("anna", anna.act(30, Shout())[1]), ("bert", bert.act(20, Shout())[1])]
    for peer in peers.values():
        peer.steward.run_until(60)
        assert [(notice.what, notice.is_retracted) for notice in peer.steward.take_speculative_effects()] == [
            (1, False)
        ]
        assert peer.steward.take_settled_effects() == []
    tell(peers, *given)
    for peer in peers.values():
        peer.steward.run_until(60)
    assert [(one.what, one.is_retracted) for one in anna.steward.take_speculative_effects()] == [
        (1, False),
        (1, True),
        (2, False),
    ]
    for base in (25, 60):
        tell(peers, ("anna", InputPromise(base)), ("bert", InputPromise(base)))
        told = [[notice.what for notice in peer.steward.take_settled_effects()] for peer in peers.values()]
        assert told == [[1], [1]] if base == 25 else [[2], [2]]
    assert [peer.steward.take_settled_effects() for peer in peers.values()] == [[], []]


def test_an_input_whose_identity_is_that_of_another_is_refused_by_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = pair()
    monkeypatch.setattr(TimelinePeer, "_id", lambda *_: 7)
    tell(peers, ("anna", SharedInput(5, Leave())))
    for peer in peers.values():
        with pytest.raises(SharedInputRefused, match="'bert' gives input that cannot be: there is a fiat event"):
            peer.receive("bert", SharedInput(5, Leave()))
    assert len({peer.shared_state() for peer in peers.values()}) == 1
    for peer in peers.values():
        peer.steward.run_until(6)
        assert sum(isinstance(record.event, Leave) for record in peer.steward.history()) == 1


def test_inputs_of_one_kind_and_time_of_two_peers_are_two() -> None:
    peers = pair()
    tell(peers, *[(name, peer.act(5, Leave())[1]) for name, peer in peers.items()])
    for peer in peers.values():
        peer.steward.run_until(6)
        assert sum(isinstance(record.event, Leave) for record in peer.steward.history()) == 2
