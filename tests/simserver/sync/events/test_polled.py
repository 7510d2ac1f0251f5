"""Many streams by name, on a clock that nothing can make jump."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import PostedEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from tests.simserver.sync.events.game import told

MS = 1_000_000


def streams(**limits: Any) -> PolledStreams:
    numbers: Iterator[int] = count(1)
    return PolledStreams(lambda: f"{next(numbers):032x}", StreamLimits(**limits))


def ask(of: PolledStreams, name: str, me: str, known: int, ms: int) -> StreamReply:
    return of.request(name, StreamRequest(me, known), ms * MS)


def refused(of: PolledStreams, name: str, request: StreamRequest, ms: int) -> RefusalCode:
    with pytest.raises(StreamRefusal) as caught:
        of.request(name, request, ms * MS)
    return caught.value.code


def test_e4_a_tick_has_passed_after_more_than_50_ms_and_what_is_left_over_counts() -> None:
    game = streams()
    ticks = [ask(game, "game", "me", 0, ms).tick for ms in (7, 57, 58, 107, 108, 257, 258)]
    assert ticks == [0, 0, 1, 1, 2, 5, 5]


def test_e4_a_stream_is_forgotten_after_more_than_60000_ms_without_a_request() -> None:
    game = streams(max_jump_ms=60_000)
    first = ask(game, "game", "me", 0, 0).incarnation
    game.beat(30_000 * MS)
    assert ask(game, "game", "me", 0, 60_000).incarnation == first
    game.beat(90_000 * MS)
    game.beat(120_001 * MS)
    assert len(game) == 0
    assert ask(game, "game", "me", 0, 120_002).incarnation != first


def test_e15_streams_know_nothing_of_each_other() -> None:
    game = streams()
    ask(game, "game v1", "me", 0, 0)
    game.request("game v1", StreamRequest("me", 0, (PostedEvent("move", ""),)), 100 * MS)
    other = ask(game, "game v2", "me", 0, 150)
    assert (other.tick, other.events, other.public_id) == (0, (), "1")
    assert list(game) == ["game v1", "game v2"]


def test_e16_a_server_that_starts_again_tells_old_clients_a_new_beginning_and_new_ones_to_reset() -> None:
    before, after = streams(), PolledStreams(lambda: "f" * 32)
    ask(before, "game", "old", 0, 0)
    old = ask(before, "game", "old", 0, 1_000)
    told_before = told(old)
    ask(after, "game", "old", old.tick, 0)
    reply = ask(after, "game", "old", old.tick, 100)
    assert (old.tick, told_before[0], told(reply)[0]) == (20, f"1 _a {1:032x}", "21 _a " + "f" * 32)
    assert after.request("game", StreamRequest("new", 20, incarnation=f"{1:032x}"), 100 * MS).reset


def test_a_suspended_server_jumps_no_farther_than_its_bound_and_says_what_it_left_out() -> None:
    game = streams()
    ask(game, "game", "me", 0, 0)
    ask(game, "game", "you", 0, 0)
    reply = ask(game, "game", "me", 0, 3_600_000)
    assert (reply.tick, game.skipped_ms) == (100, 3_595_000)
    # Nobody was disconnected by it.
    assert told(ask(game, "game", "me", reply.tick, 3_600_060)) == []
    assert game.find("game", 3_600_060 * MS).connected == 2


def test_a_clock_that_goes_back_stops_nothing() -> None:
    game = streams()
    ask(game, "game", "me", 0, 1_000)
    assert ask(game, "game", "me", 0, 0).tick == 0
    assert ask(game, "game", "me", 0, 1_060).tick == 1


def test_beats_disconnect_the_silent_and_then_time_waits() -> None:
    game = streams()
    ask(game, "game", "me", 0, 0)
    for ms in range(0, 40_001, 100):
        game.beat(ms * MS)
    reply = ask(game, "game", "me", 0, 40_010)
    assert reply.tick == 202
    assert told(reply)[2:] == ["1 _d 1", "1 _c 1"]


def test_a_connection_that_is_open_is_told_each_tick_and_keeps_its_client_and_stream() -> None:
    game = streams()
    known = ask(game, "game", "me", 0, 0).tick
    heard = []
    for ms in range(60, 80_000, 1_000):
        game.present_tick("game", ms * MS)
        (reply,) = game.replies_for("game", [("me", known)])
        assert isinstance(reply, StreamReply)
        known = reply.tick
        heard.extend(told(reply))
        game.beat(ms * MS)
    assert [text[:4] for text in heard] == ["1 _a", "1 _c"]
    assert known == 79_060 // 50


def test_streams_tick_at_few_moments_however_many_they_are() -> None:
    game = streams()
    for ms in range(50):
        ask(game, f"game {ms}", "me", 0, ms)
    due_ms = [game.present_tick(f"game {ms}", 50 * MS)[1] // MS for ms in range(50)]
    assert sorted(set(due_ms)) == list(range(51, 101, 5))
    assert due_ms == sorted(due_ms), "none ticks after one that began later"


def test_a_refused_request_begins_no_stream_and_keeps_none() -> None:
    game = streams(max_events_per_s=1)
    many = StreamRequest("me", 0, (PostedEvent("move", ""),) * 2)
    assert refused(game, "game", many, 0) is RefusalCode.TOO_MANY_EVENTS
    assert len(game) == 0


def test_one_stream_too_many_is_refused_until_another_is_forgotten() -> None:
    game = streams(max_streams=1, max_jump_ms=60_001)
    ask(game, "one", "me", 0, 0)
    assert refused(game, "two", StreamRequest("me", 0), 60_000) is RefusalCode.TOO_MANY_STREAMS
    ask(game, "two", "me", 0, 60_001)


def test_what_is_not_there_is_refused_by_name() -> None:
    game = streams()
    with pytest.raises(StreamRefusal, match="no stream 'game'"):
        game.find("game", 0)
    ask(game, "game", "me", 0, 0)
    refusal, reply = game.replies_for("game", [("you", 0), ("me", 0)])
    assert isinstance(refusal, StreamRefusal)
    assert (refusal.code, refusal.status) == (RefusalCode.UNKNOWN_CLIENT, 404)
    assert "does not know the client" in refusal.message
    assert isinstance(reply, StreamReply), "the other client is told"
