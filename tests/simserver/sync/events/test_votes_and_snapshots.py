"""What clients say of their states: the first tick at which they differ, and a state that most of them had."""

import base64
import hashlib
import json
from typing import Any, Final

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.events.json_form import (
    StreamAction,
    StreamTarget,
    read_snapshot_untrusted,
    write_desync,
    write_snapshot,
)
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer, signed_text
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.events.votes import HashVotes
from tests.simserver.sync.events.game import ONE, OTHER, Game, told

STATE: Final = b"the state of the game"
STATE_HASH: Final = hashlib.sha256(STATE).hexdigest()
GOOD: Final = STATE_HASH
BAD: Final = "bd" * 32
KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def playing(*names: str, limits: StreamLimits | None = None, ticks: int = 10) -> Game:
    """A game in which all of these are connected, at this tick."""
    game = Game(limits or StreamLimits())
    for name in names:
        game.ask(name)
    game.wait(ticks)
    for name in names:
        game.ask(name)
    return game


def say(game: Game, me: str, tick: int, state_hash: str) -> Any:
    return game.ask(me, game.stream.tick, incarnation=ONE, hashes=((tick, state_hash),)).desync


def offer(tick: int, *, state: bytes = STATE, incarnation: str = ONE, **others: bytes) -> SnapshotOffer:
    state_hash = hashlib.sha256(state).digest()
    signature = KEY.sign(signed_text(incarnation, tick, state_hash.hex()))
    fields = {"state_hash": state_hash, "key": KEY.public_key().public_bytes_raw(), "signature": signature}
    return SnapshotOffer(incarnation, tick, state, **{**fields, **others})


def offer_refused(game: Game, me: str, offered: SnapshotOffer) -> RefusalCode:
    with pytest.raises(StreamRefusal) as caught:
        game.stream.offer_snapshot(me, offered)
    return caught.value.code


class TestDesync:
    def test_equal_hashes_are_no_desync(self) -> None:
        game = playing("a", "b")
        assert [say(game, me, tick, GOOD) for tick in range(1, 11) for me in "ab"] == [None] * 20

    def test_the_first_tick_with_two_hashes_is_told_to_all_with_the_clients_behind_each(self) -> None:
        game = playing("a", "b", "c")
        for me in "abc":
            say(game, me, 4, GOOD)
        say(game, "a", 7, GOOD)
        assert say(game, "b", 7, BAD) == (7, {GOOD: ("1",), BAD: ("2",)})
        assert say(game, "c", 7, GOOD) == (7, {GOOD: ("1", "3"), BAD: ("2",)})
        say(game, "a", 5, GOOD)
        assert say(game, "b", 5, BAD).tick == 5
        assert say(game, "c", 9, GOOD).tick == 5

    def test_the_first_vote_of_a_client_for_a_tick_counts(self) -> None:
        game = playing("a", "b")
        say(game, "a", 7, GOOD)
        say(game, "a", 7, BAD)
        assert say(game, "b", 7, GOOD) is None

    def test_ticks_that_were_not_sent_or_are_too_old_have_no_votes(self) -> None:
        game = playing("a", "b", limits=StreamLimits(hash_window_ticks=5))
        for tick in (0, 5, 11, 2**50, -3):
            say(game, "a", tick, GOOD)
            assert say(game, "b", tick, BAD) is None
        say(game, "a", 6, GOOD)
        assert say(game, "b", 6, BAD).tick == 6

    def test_votes_for_checkpoints_are_taken_for_longer(self) -> None:
        game = playing("a", "b", limits=StreamLimits(hash_window_ticks=5, checkpoint_window_ticks=60), ticks=100)
        for tick in (30, 40, 90):
            say(game, "a", tick, GOOD)
            assert say(game, "b", tick, BAD) is None
        say(game, "a", 60, GOOD)
        assert say(game, "b", 60, BAD).tick == 60

    def test_votes_for_the_ticks_since_the_checkpoint_before_a_desync_find_the_first_one_however_late(self) -> None:
        game = playing("a", "b", limits=StreamLimits(hash_window_ticks=5, checkpoint_window_ticks=60), ticks=100)
        say(game, "a", 60, GOOD)
        say(game, "b", 60, BAD)
        game.stream.store_dump("a", 60, "<a>")
        for tick, first in ((40, 60), (55, 55), (57, 55), (30, 55), (37, 37)):
            say(game, "a", tick, GOOD)
            assert say(game, "b", tick, BAD if tick != 40 else GOOD).tick == first
        assert game.stream.dumps == {}
        # Votes for ticks that are searched no more are forgotten.
        assert [tick for tick, _ in game.stream.as_data()["votes"]["votes"]] == [60, 37]

    def test_one_that_is_over_is_searched_too_but_not_beyond_what_was_settled_before_it(self) -> None:
        game = playing("a", "b", ticks=100)
        for tick, theirs in ((48, BAD), (50, GOOD), (60, BAD), (61, GOOD)):
            say(game, "a", tick, GOOD)
            say(game, "b", tick, theirs)
        for tick, first in ((49, 60), (55, 55)):
            say(game, "a", tick, GOOD)
            assert say(game, "b", tick, BAD).tick == first

    def test_it_is_over_when_those_who_disagreed_agree_at_a_later_tick(self) -> None:
        game = playing("a", "b", "c")
        say(game, "a", 5, GOOD)
        say(game, "b", 5, BAD)
        for me in "ab":
            game.stream.store_dump(me, 5, f"<{me}>")
        assert say(game, "a", 8, GOOD).tick == 5
        assert say(game, "b", 8, GOOD) is None
        # One that comes late and had one of the two does not begin it anew.
        assert say(game, "c", 5, BAD) is None
        assert game.stream.desync is not None
        say(game, "a", 10, GOOD)
        say(game, "a", 9, GOOD)
        assert say(game, "b", 9, BAD).tick == 9

    def test_one_that_is_over_before_anybody_heard_of_it_is_told_until_both_sides_have_shown_why(self) -> None:
        game = playing("a", "b", "c")
        game.ask("a", 10, incarnation=ONE, hashes=((5, GOOD), (6, GOOD)))
        assert game.ask("b", 10, incarnation=ONE, hashes=((5, BAD), (6, GOOD))).desync == (
            5,
            {GOOD: ("1",), BAD: ("2",)},
        )
        game.stream.store_dump("a", 5, "<a>")
        assert game.ask("c", 10).desync is not None
        game.stream.store_dump("b", 5, "<b>")
        assert game.ask("c", 10).desync is None

    @pytest.mark.parametrize("leaves", [False, True])
    def test_one_that_is_over_is_not_told_when_it_is_too_old_or_a_side_has_left(self, leaves: bool) -> None:
        game = playing("a", "b", limits=StreamLimits(hash_window_ticks=5, checkpoint_window_ticks=5))
        game.ask("a", 10, incarnation=ONE, hashes=((6, GOOD), (7, GOOD)))
        assert game.ask("b", 10, incarnation=ONE, hashes=((6, BAD), (7, GOOD))).desync is not None
        if leaves:
            game.ask("b", leave=True)
        else:
            game.wait(1)
        assert game.ask("a").desync is None

    def test_it_is_not_told_any_more_when_one_side_has_left(self) -> None:
        game = playing("a", "b", "c")
        say(game, "a", 5, GOOD)
        say(game, "b", 5, BAD)
        game.ask("b", leave=True)
        assert game.ask("a").desync is None
        say(game, "a", 9, GOOD)
        assert say(game, "c", 9, BAD).tick == 9

    def test_each_side_can_leave_a_dump_and_both_are_there_to_be_compared(self) -> None:
        game = playing("a", "b", "c")
        for me, state_hash in (("a", GOOD), ("b", BAD), ("c", GOOD)):
            say(game, me, 5, state_hash)
        for me in "abc":
            game.stream.store_dump(me, 5, f"<{me}>")
        assert game.stream.desync is not None
        assert json.loads(write_desync(ONE, game.stream.desync, game.stream.dumps)) == {
            "Incarnation": ONE,
            "T": 5,
            "Hashes": {GOOD: ["1", "3"], BAD: ["2"]},
            "Dumps": sorted(
                [{"Hash": GOOD, "ProxyId": "1", "Dump": "<a>"}, {"Hash": BAD, "ProxyId": "2", "Dump": "<b>"}],
                key=lambda row: row["Hash"],
            ),
        }

    def test_a_dump_without_a_desync_and_one_too_many_are_refused(self) -> None:
        game = playing("a", "b", "c")
        with pytest.raises(StreamRefusal, match="no desync"):
            game.stream.store_dump("a", 5, "")
        for me, state_hash in (("a", "0" * 64), ("b", "1" * 64), ("c", "2" * 64)):
            say(game, me, 5, state_hash)
        with pytest.raises(StreamRefusal, match="no desync"):
            game.stream.store_dump("a", 6, "")
        game.stream.store_dump("a", 5, "")
        game.stream.store_dump("b", 5, "")
        with pytest.raises(StreamRefusal, match="2 dumps"):
            game.stream.store_dump("c", 5, "")
        with pytest.raises(StreamRefusal, match="not connected"):
            game.stream.store_dump("nobody", 5, "")

    def test_votes_desync_and_dumps_are_in_the_data(self) -> None:
        game = playing("a", "b", "c")
        say(game, "a", 5, GOOD)
        say(game, "b", 5, BAD)
        game.stream.store_dump("a", 5, "dump")
        data = game.stream.as_data()
        game.stream = StreamMachine.from_data(cbor2.loads(cbor2.dumps(data)))
        assert game.stream.as_data() == data
        assert say(game, "c", 5, BAD) == (5, {GOOD: ("1",), BAD: ("2", "3")})

    def test_votes_cost_no_more_however_many_clients_have_come_and_gone(self) -> None:
        votes = HashVotes(StreamLimits(max_clients=2))
        votes.connect("1", 1)
        votes.vote("1", 5, bytes.fromhex(GOOD))
        for number in range(2, 500):
            votes.connect(f"{number}", 2)
            votes.vote(f"{number}", 5, bytes.fromhex(GOOD))
            votes.disconnect(f"{number}", 2)
        assert len(cbor2.dumps(votes.as_data())) < 250
        # Of those that have gone the latest are remembered.
        votes.connect("500", 2)
        votes.vote("500", 5, bytes.fromhex(BAD))
        notice = votes.last_desync
        assert notice is not None
        assert set(notice.hashes[GOOD]) == {"1", "499", "498"}


class TestSnapshots:
    def test_one_is_trusted_when_more_than_half_and_at_least_two_had_its_hash(self) -> None:
        game = playing("a", "b", "c")
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM
        say(game, "a", 5, GOOD)
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM
        say(game, "b", 5, GOOD)
        game.stream.offer_snapshot("a", offer(5))
        assert game.ask("c").snapshot == 5

    @pytest.mark.parametrize(("names", "votes"), [("a", 1), ("ab", 1), ("abc", 1), ("abcd", 2), ("abcde", 2)])
    def test_fewer_votes_are_no_quorum(self, names: str, votes: int) -> None:
        game = playing(*names)
        for me in names[:votes]:
            say(game, me, 5, GOOD)
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM

    def test_slow_clients_have_the_time_of_the_window_of_checkpoints_to_report(self) -> None:
        game = playing("a", "b", "c", ticks=20)
        game.wait(1_000)
        for me in "ab":
            say(game, me, 20, GOOD)
        game.stream.offer_snapshot("a", offer(20))
        assert game.stream.snapshot is not None

    def test_a_tick_of_which_it_is_forgotten_who_was_there_has_no_quorum(self) -> None:
        game = playing("a", "b", limits=StreamLimits(hash_window_ticks=5, checkpoint_window_ticks=5), ticks=100)
        for me in "ab":
            say(game, me, 98, GOOD if me == "a" else BAD)
        for name in "cdef":
            game.ask(name)
        game.wait(50)
        for name in "cdef":
            say(game, name, 98, GOOD)
        assert offer_refused(game, "c", offer(98)) is RefusalCode.NO_QUORUM

    def test_clients_that_came_after_the_tick_have_no_say(self) -> None:
        game = playing("a", "b", "c")
        for me in "xyz":
            game.ask(me, 10, incarnation=ONE)
            say(game, me, 5, GOOD)
        say(game, "a", 5, GOOD)
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM
        assert offer_refused(game, "x", offer(5)) is RefusalCode.NO_QUORUM
        say(game, "b", 5, GOOD)
        assert offer_refused(game, "x", offer(5)) is RefusalCode.NO_QUORUM
        assert game.stream.offer_snapshot("a", offer(5)).voters == ("1", "2")

    def test_the_bytes_and_the_signature_are_checked(self) -> None:
        game = playing("a", "b")
        for me in "ab":
            say(game, me, 5, GOOD)
        good = offer(5)
        assert offer_refused(game, "a", offer(5, state_hash=bytes.fromhex(BAD))) is RefusalCode.NO_QUORUM
        forged = SnapshotOffer(ONE, 5, b"other", good.state_hash, good.key, good.signature)
        assert offer_refused(game, "a", forged) is RefusalCode.BAD_SNAPSHOT
        assert offer_refused(game, "a", offer(5, signature=offer(6).signature)) is RefusalCode.BAD_SNAPSHOT
        assert offer_refused(game, "a", offer(5, key=b"short")) is RefusalCode.BAD_SNAPSHOT
        assert offer_refused(game, "a", offer(5, incarnation=OTHER)) is RefusalCode.OTHER_INCARNATION
        assert offer_refused(game, "nobody", good) is RefusalCode.UNKNOWN_CLIENT
        assert game.stream.snapshot is None

    def test_others_that_had_it_add_their_signatures_and_an_older_one_is_refused(self) -> None:
        game = playing("a", "b", "c")
        for me in "ab":
            for tick in (4, 5):
                say(game, me, tick, GOOD)
        game.stream.offer_snapshot("a", offer(5))
        trusted = game.stream.offer_snapshot("b", offer(5))
        assert set(trusted.signatures) == {"1", "2"}
        assert offer_refused(game, "c", offer(5)) is RefusalCode.NO_QUORUM
        assert offer_refused(game, "a", offer(4)) is RefusalCode.OLD_SNAPSHOT
        key = base64.b64encode(KEY.public_key().public_bytes_raw()).decode()
        signature = base64.b64encode(offer(5).signature).decode()
        assert json.loads(write_snapshot(ONE, trusted)) == {
            "Incarnation": ONE,
            "T": 5,
            "State": base64.b64encode(STATE).decode(),
            "Hash": GOOD,
            "Votes": [{"ProxyId": name, "Key": key, "Signature": signature} for name in "12"],
        }

    def test_a_snapshot_is_read_from_its_json(self) -> None:
        good = offer(5)
        target = StreamTarget(StreamAction.PUT_SNAPSHOT, "game", "a", 5)
        body = {
            "Incarnation": ONE,
            "State": base64.b64encode(STATE).decode(),
            "Hash": GOOD,
            "Key": base64.b64encode(good.key).decode(),
            "Signature": base64.b64encode(good.signature).decode(),
        }
        assert read_snapshot_untrusted(target, json.dumps(body).encode(), StreamLimits()) == good
        small = StreamLimits(max_snapshot_bytes=len(STATE) - 1)
        with pytest.raises(StreamRefusal) as caught:
            read_snapshot_untrusted(target, json.dumps(body).encode(), small)
        assert caught.value.code is RefusalCode.BODY_TOO_LARGE
        for wrong in ({"State": "*"}, {"Hash": "AB"}, {"Hash": None}, {"Key": 1}):
            with pytest.raises(StreamRefusal) as caught:
                read_snapshot_untrusted(target, json.dumps(body | wrong).encode(), StreamLimits())
            assert caught.value.code is RefusalCode.BAD_BODY

    def test_what_is_signed_is_specified_to_the_byte(self) -> None:
        assert signed_text("ab", 7, "cd") == b"batonpass snapshot\nab\n7\ncd"


class TestHistory:
    def trusted(self, limits: StreamLimits) -> Game:
        game = playing("a", "b", limits=limits)
        for me in "ab":
            say(game, me, 5, GOOD)
        game.ask("a", 10, "move")
        game.stream.offer_snapshot("a", offer(5))
        return game.wait(1)

    def test_it_is_kept_until_the_log_is_full_and_then_dropped_before_the_trusted_snapshot(self) -> None:
        game = self.trusted(StreamLimits(max_events=4))
        assert (len(game.stream), game.stream.oldest) == (4, 0)
        game.ask("a", 10, "move")
        assert (len(game.stream), game.stream.oldest) == (2, 5)

    def test_it_is_dropped_at_once_if_it_is_not_to_be_kept(self) -> None:
        game = self.trusted(StreamLimits(keep_history=False))
        assert game.stream.oldest == 5

    def test_a_client_that_would_need_it_is_refused_and_begins_from_the_snapshot(self) -> None:
        game = self.trusted(StreamLimits(keep_history=False))
        connected = game.stream.connected
        assert game.refused("c", 0) is RefusalCode.HISTORY_DROPPED
        assert game.refused("c", 500) is RefusalCode.HISTORY_DROPPED
        assert game.refused("c", 9, incarnation=OTHER) is RefusalCode.HISTORY_DROPPED
        assert game.refused("a", 4) is RefusalCode.HISTORY_DROPPED
        assert game.stream.connected == connected
        reply = game.ask("c", 5, incarnation=ONE)
        assert (told(reply), reply.reset, reply.oldest) == (["11 move 1", "11 _c 3"], False, 5)
        with pytest.raises(StreamRefusal, match="were dropped"):
            game.stream.reply_for("c", 4)

    def alone(self, events: int, **settings: Any) -> Game:
        game = playing("a", limits=StreamLimits(max_events=8, keep_history=False, **settings))
        say(game, "a", 5, GOOD)
        game.ask("a", 10, *["move"] * events)
        return game

    def test_a_client_that_is_alone_has_its_snapshot_trusted_once_the_log_is_half_full_lest_it_be_full_for_good(
        self,
    ) -> None:
        game = self.alone(1)
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM
        game.ask("a", 10, "move")
        game.stream.offer_snapshot("a", offer(5))
        assert (len(game.stream), game.stream.oldest) == (4, 0), "what it says alone is relied on when it must be"
        assert game.ask("a", 10, *["move"] * 5).snapshot == 5
        assert game.stream.oldest == 5

    def test_it_is_not_trusted_while_another_client_is_there_or_if_one_was_there_at_the_tick(self) -> None:
        game = self.alone(2)
        game.ask("b", 10, incarnation=ONE)
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM
        game.wait(10)
        say(game, "a", 12, GOOD)
        game.ask("b", 12, incarnation=ONE, leave=True)
        assert offer_refused(game, "a", offer(12)) is RefusalCode.NO_QUORUM
        game.stream.offer_snapshot("a", offer(5))

    def test_a_stream_may_be_told_to_trust_no_client_that_is_alone(self) -> None:
        game = self.alone(6, trust_lone=False)
        assert offer_refused(game, "a", offer(5)) is RefusalCode.NO_QUORUM
        assert game.refused("a", 10, "move") is RefusalCode.STREAM_FULL

    def test_the_snapshot_and_what_was_dropped_are_in_the_data(self) -> None:
        game = self.trusted(StreamLimits(keep_history=False))
        data = game.stream.as_data()
        stream = StreamMachine.from_data(cbor2.loads(cbor2.dumps(data)))
        assert stream.as_data() == data
        assert (stream.oldest, stream.snapshot) == (5, game.stream.snapshot)
