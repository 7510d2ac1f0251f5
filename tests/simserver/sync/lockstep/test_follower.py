"""A client over connections that lose, delay, repeat and reorder: the same hashes, and no event lost or doubled."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.canonical import state_hash
from batonpass.simserver.sync.lockstep.desync import explain
from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent
from batonpass.simserver.sync.lockstep.follower import AnswerRefused, StreamFollower, SyncPurpose, SyncRequest
from batonpass.simserver.sync.lockstep.offline import OfflineStream
from batonpass.simserver.sync.lockstep.outbox import BATCH_EVENTS
from batonpass.simserver.sync.lockstep.recording import StreamRecording
from batonpass.simserver.sync.lockstep.schedule import Connection
from tests.budget import examples
from tests.simserver.sync.lockstep.bouncers import Bouncers
from tests.simserver.sync.lockstep.games import Yard

LONG_MS = 1_000.0


def follower_of(
    stream: str = "game", private_id: str = "me", driver: SimDriver | None = None, **options: Any
) -> StreamFollower:
    options.setdefault("join_by_snapshot", False)
    return StreamFollower(driver or Bouncers(), stream, private_id, **options)


def asked(stream: OfflineStream, request: SyncRequest, private_id: str = "me") -> Any:
    """What a stream answers, after it has been JSON."""
    assert request.ask is SyncPurpose.SYNC
    assert isinstance(request.body, dict)
    known = int(request.path.rpartition("/")[2])
    return json.loads(json.dumps(stream.answer(private_id, known, json.loads(json.dumps(request.body)))))


def synced(stream: OfflineStream, follower: StreamFollower, private_id: str = "me") -> None:
    request = follower.next_request()
    follower.take_answer(request, asked(stream, request, private_id))


def caught_up(follower: StreamFollower) -> None:
    while follower.behind:
        follower.run(LONG_MS)


def replayed(stream: OfflineStream, ticks: int, driver: SimDriver) -> list[str]:
    """The hashes of ticks 0 to `ticks` of a whole log, computed without any connection."""
    log = tuple(event for event in stream.log if event.tick <= ticks)
    return [driver.state_hash(), *map(driver.step, StreamRecording("", "", ticks, log).steps())]


class Line:
    """A connection on which a test loses, repeats and reorders, and the hashes that its client computed."""

    def __init__(self, stream: OfflineStream, follower: StreamFollower, private_id: str) -> None:
        self.stream, self.follower, self.private_id = stream, follower, private_id
        self.requests: list[SyncRequest] = []
        self.answers: list[tuple[SyncRequest, Any]] = []
        self.hashes: dict[int, str] = {}

    def do(self, what: str, pick: int) -> None:
        """Take one step of what may happen to a connection."""
        match what:
            case "ask":
                self.requests.append(self.follower.next_request())
            case "serve" if self.requests:
                request = self.requests[pick % len(self.requests)]
                self.answers.append((request, asked(self.stream, request, self.private_id)))
            case "lose" if self.requests:
                del self.requests[pick % len(self.requests)]
                self.follower.take_failure(0)
            case "hear" if self.answers:
                request, answer = self.answers[pick % len(self.answers)]
                self.follower.take_answer(request, copy.deepcopy(answer))
            case "run":
                self.run(float(pick))
            case "post":
                self.follower.driver.send_event("throw", f"{self.private_id} {pick}")
            case _:
                pass

    def run(self, elapsed_ms: float) -> None:
        before = self.follower.driver.tick
        self.follower.run(elapsed_ms)
        assert self.follower.driver.tick <= self.follower.known <= self.stream.tick, (
            "E7: never past the last known tick"
        )
        for record in self.follower.driver.records():
            if record.tick > before:
                assert self.hashes.setdefault(record.tick, record.hash) == record.hash


STEPS = st.tuples(
    st.sampled_from(["ask", "serve", "serve", "hear", "hear", "lose", "run", "post", "tick", "jump"]),
    st.integers(0, 200),
    st.integers(0, 1),
)


@settings(max_examples=examples(30))
@given(st.lists(STEPS, max_size=60))
def test_any_interleaving_of_syncs_losses_and_repetitions_gives_the_same_hashes_and_each_event_once(
    steps: list[tuple[str, int, int]],
) -> None:
    stream = OfflineStream("one")
    lines = [Line(stream, follower_of(private_id=name, driver=Yard(), jump_after=8), name) for name in ("me", "you")]
    for what, pick, which in steps:
        line = lines[which]
        if what == "tick":
            stream.advance(pick % 8)
        elif what == "jump":
            # A snapshot of the other client.
            offered = lines[1 - which].follower
            request = line.follower.next_request()._replace(ask=SyncPurpose.GET_SNAPSHOT)
            if offered.incarnation is not None:
                line.follower.take_answer(request, snapshot_of(offered.driver, offered.incarnation))
        else:
            line.do(what, pick)
    for _ in range(12):
        stream.advance(2)
        for line in lines:
            request = line.follower.next_request()
            line.follower.take_answer(request, asked(stream, request, line.private_id))
            while line.follower.behind:
                line.run(LONG_MS)
    assert all(line.follower.unacknowledged == 0 for line in lines)
    expected = replayed(stream, stream.tick, Yard())
    for line in lines:
        assert line.hashes == {tick: expected[tick] for tick in line.hashes}
        assert stream.tick in line.hashes
        posted = [pick for what, pick, which in steps if what == "post" and lines[which] is line]
        seen = [int(event.body.split()[1]) for event in stream.log if event.body.startswith(f"{line.private_id} ")]
        assert seen == posted, "E13: each event once, in the order of posting"


def snapshot_of(driver: SimDriver, incarnation: str) -> dict[str, Any]:
    state = base64.b64encode(driver.snapshot()).decode()
    votes = [{"ProxyId": "1"}, {"ProxyId": "2"}]
    return {"Incarnation": incarnation, "T": driver.tick, "State": state, "Hash": driver.state_hash(), "Votes": votes}


def test_e7_a_client_computes_no_tick_that_it_was_not_told_of() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    assert follower.run(LONG_MS) == 0
    stream.advance(3)
    synced(stream, follower)
    assert [follower.run(LONG_MS) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert (follower.driver.tick, follower.known, follower.behind) == (3, 3, 0)


def test_e8_five_syncs_and_twenty_ticks_a_second_keep_a_client_within_4_ticks() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    behind, since = [], 0
    for ms in range(0, 20_000, 10):
        if ms % 50 == 0:
            stream.advance()
        # One of 25 requests is lost, and each comes later than the one before by up to 40 ms.
        if ms % 200 == ms // 200 % 5 * 10 and ms // 200 % 25:
            synced(stream, follower)
        since = 10 + (0 if follower.run(since) else since)
        behind.append(follower.behind)
    assert max(behind[100:]) <= 9
    assert sorted(behind[100:])[len(behind) // 2] <= 4


def test_e11_a_late_joiner_replays_the_whole_log_to_the_same_hash() -> None:
    stream, early, late = OfflineStream("one"), follower_of(), follower_of(private_id="late")
    for tick in range(60):
        stream.advance()
        if tick % 9 == 0:
            early.driver.send_event("throw", str(tick))
        synced(stream, early)
        caught_up(early)
    synced(stream, late, "late")
    caught_up(late)
    assert (late.driver.tick, late.driver.state_hash()) == (60, early.driver.state_hash())


def test_a_late_joiner_with_a_snapshot_needs_no_history() -> None:
    stream, early = OfflineStream("one"), follower_of()
    stream.advance(500)
    synced(stream, early)
    caught_up(early)
    late = follower_of(private_id="late", join_by_snapshot=True)
    request = late.next_request()
    assert (request.ask, request.method, request.path) == (SyncPurpose.GET_SNAPSHOT, "GET", "/game/snapshot")
    late.take_answer(request, snapshot_of(early.driver, stream.incarnation))
    assert (late.driver.tick, late.known) == (500, 500)
    late.driver.send_event("throw", "5")
    for _ in range(3):
        stream.advance(4)
        for follower, name in ((early, "me"), (late, "late")):
            synced(stream, follower, name)
            caught_up(follower)
    assert late.driver.state_hash() == early.driver.state_hash()
    assert late.driver.tick == 512
    assert [event.body for event in stream.log if event.type == "throw"] == ["5"]


def test_without_a_snapshot_a_joiner_begins_at_the_beginning() -> None:
    stream, late = OfflineStream("one"), follower_of(join_by_snapshot=True)
    late.take_refusal(late.next_request(), 404, 0)
    stream.advance(3)
    synced(stream, late)
    assert (late.known, late.connection) == (3, Connection.HEARD)


def test_a_client_that_is_too_far_behind_jumps_by_the_snapshot_that_the_server_names() -> None:
    stream, early, slow = OfflineStream("one"), follower_of(), follower_of(private_id="slow", jump_after=100)
    stream.advance(90)
    synced(stream, early)
    caught_up(early)
    stream.advance(60)
    request = slow.next_request()
    slow.take_answer(request, {**asked(stream, request, "slow"), "Snapshot": 90})
    request = slow.next_request()
    assert request.ask is SyncPurpose.GET_SNAPSHOT
    slow.take_answer(request, snapshot_of(early.driver, stream.incarnation))
    assert (slow.driver.tick, slow.known) == (90, 150)
    synced(stream, early)
    caught_up(early)
    caught_up(slow)
    assert slow.driver.state_hash() == early.driver.state_hash()
    assert slow.next_request().ask is SyncPurpose.SYNC


def test_a_history_that_was_dropped_is_replaced_by_a_snapshot_also_of_another_incarnation() -> None:
    stream, early, gone = OfflineStream("two"), follower_of(), follower_of(private_id="gone")
    synced(OfflineStream("one"), gone, "gone")
    stream.advance(40)
    synced(stream, early)
    caught_up(early)
    gone.take_refusal(gone.next_request(), 410, 0)
    gone.take_answer(gone.next_request(), snapshot_of(early.driver, stream.incarnation))
    assert (gone.driver.tick, gone.known, gone.incarnation) == (40, 40, stream.incarnation)
    synced(stream, gone, "gone")
    assert gone.driver.state_hash() == early.driver.state_hash()


@pytest.mark.parametrize("votes", [[{"ProxyId": "1"}], [{"ProxyId": "1"}] * 2])
def test_a_snapshot_that_one_client_alone_vouches_for_is_taken_only_where_the_history_was_dropped(
    votes: list[dict[str, str]],
) -> None:
    stream, early, late = OfflineStream("one"), follower_of(), follower_of(private_id="late", join_by_snapshot=True)
    stream.advance(40)
    synced(stream, early)
    caught_up(early)
    lone = {**snapshot_of(early.driver, stream.incarnation), "Votes": votes}
    late.take_answer(late.next_request(), lone)
    assert late.driver.tick == 0
    sync = late.next_request()
    assert sync.ask is SyncPurpose.SYNC, "it replays the log instead"
    late.take_refusal(sync, 410, 0)
    late.take_answer(late.next_request(), lone)
    assert (late.driver.tick, late.driver.state_hash()) == (40, early.driver.state_hash())


def test_e13_a_sync_that_failed_neither_loses_nor_doubles_events() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    synced(stream, follower)
    for n in range(40):
        follower.driver.send_event("throw", str(n))
    # The server gets this one, and its answer is lost.
    asked(stream, follower.next_request())
    follower.take_failure(0)
    # The server never gets this one.
    follower.next_request()
    follower.take_failure(0)
    for _ in range(4):
        synced(stream, follower)
    assert [event.body for event in stream.log if event.type == "throw"] == [str(n) for n in range(40)]
    assert follower.unacknowledged == 0


def test_a_client_that_was_restarted_counts_its_events_on_from_what_the_server_has() -> None:
    stream, first, second = OfflineStream("one"), follower_of(), follower_of()
    first.driver.send_event("throw", "a")
    synced(stream, first)
    synced(stream, first)
    second.driver.send_event("throw", "b")
    request = second.next_request()
    assert request.body == {}
    second.take_answer(request, asked(stream, request))
    synced(stream, second)
    assert [event.body for event in stream.log if event.type == "throw"] == ["a", "b"]
    assert first.public_id == second.public_id == "1"


def test_e14_a_server_that_answers_nothing_for_15_s_is_lost() -> None:
    follower = follower_of()
    follower.take_failure(0)
    seen = []
    for status, now_ms in ((503, 14_000), (502, 15_000), (502, 15_001)):
        follower.take_refusal(follower.next_request(), status, now_ms)
        seen.append(follower.connection.value)
    assert seen == ["faulty", "faulty", "lost"]
    other = follower_of()
    other.take_refusal(other.next_request(), 400, 0)
    assert other.connection is Connection.LOST


def test_e15_streams_of_other_names_and_versions_are_other_addresses() -> None:
    paths = [follower_of(name, "a/b").next_request().path for name in ("game 1", "game/2")]
    assert paths == ["/game%201/a%2Fb/0", "/game%2F2/a%2Fb/0"]


def test_e16_a_stream_that_was_lost_resets_the_client_which_keeps_what_was_not_acknowledged() -> None:
    lost, stream, follower = OfflineStream("one"), OfflineStream("two"), follower_of()
    lost.advance(50)
    synced(lost, follower)
    caught_up(follower)
    follower.driver.send_event("throw", "7")
    stream.advance(2)
    synced(stream, follower)
    assert (follower.known, follower.driver.tick, follower.incarnation) == (2, 0, stream.incarnation)
    stream.advance(3)
    synced(stream, follower)
    stream.advance(3)
    synced(stream, follower)
    caught_up(follower)
    assert follower.driver.state_hash() == replayed(stream, 8, Bouncers())[8]
    assert [event.body for event in stream.log if event.type == "throw"] == ["7"]


def test_a_tick_that_goes_back_and_an_answer_of_another_incarnation_are_ignored_without_a_reset() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    stream.advance(9)
    synced(stream, follower)
    answer = asked(stream, follower.next_request())
    for change in ({"T": 5, "Events": []}, {"T": 50, "Incarnation": "other"}):
        follower.take_answer(follower.next_request(), {**answer, **change})
        assert (follower.known, follower.incarnation) == (9, stream.incarnation)


def test_two_answers_to_requests_of_the_same_tick_apply_each_event_once() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    stream.advance(3)
    synced(stream, follower)
    follower.driver.send_event("throw", "1")
    first, second = follower.next_request(), follower.next_request()
    asked(stream, first)
    stream.advance(5)
    follower.take_answer(first, asked(stream, first))
    stream.advance(5)
    follower.take_answer(second, asked(stream, second))
    caught_up(follower)
    assert follower.driver.state_hash() == replayed(stream, 13, Bouncers())[13]


def test_a_reset_that_comes_again_resets_nothing() -> None:
    lost, stream, follower = OfflineStream("one"), OfflineStream("two"), follower_of()
    synced(lost, follower)
    stream.advance(4)
    request = follower.next_request()
    reset = asked(stream, request)
    follower.take_answer(request, reset)
    stream.advance(4)
    synced(stream, follower)
    caught_up(follower)
    follower.take_answer(request, reset)
    follower.take_refusal(request, 410, 0)
    assert (follower.known, follower.driver.tick) == (8, 8)
    assert follower.next_request().ask is SyncPurpose.SYNC


def test_hashes_are_told_until_a_request_that_had_them_is_answered() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    stream.advance(10)
    synced(stream, follower)
    caught_up(follower)
    hashes = [list(row) for row in enumerate(replayed(stream, 10, Bouncers()))][1:]
    assert ticks_told(follower) == list(range(1, 11))
    request = follower.next_request()
    assert isinstance(request.body, dict)
    assert request.body["Hashes"] == hashes
    follower.take_answer(request, asked(stream, request))
    assert ticks_told(follower) == []


def ticks_told(follower: StreamFollower) -> list[int]:
    request = follower.next_request()
    assert isinstance(request.body, dict)
    return [tick for tick, _ in request.body.get("Hashes", ())]


def test_a_client_with_more_hashes_than_a_request_has_room_for_tells_the_checkpoints_first() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    stream.advance(110)
    synced(stream, follower)
    caught_up(follower)
    first = [*range(1, 29), 40, 60, 80, 100]
    assert ticks_told(follower) == first
    # The others follow while there is room.
    synced(stream, follower)
    assert ticks_told(follower) == [tick for tick in range(29, 63) if tick % 20]


def test_a_client_that_is_told_of_a_desync_tells_the_ticks_before_it_again_and_then_dumps() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    stream.advance(100)
    for _ in range(6):
        synced(stream, follower)
        caught_up(follower)
    assert ticks_told(follower) == []
    desync = {"Desync": {"T": 60, "Hashes": {"aa": ["1"], "bb": ["2"]}}}
    request = follower.next_request()
    follower.take_answer(request, {**asked(stream, request), **desync})
    assert ticks_told(follower) == list(range(41, 60))
    request = follower.next_request()
    assert request.ask is SyncPurpose.SYNC, "not the dump yet"
    earlier = {"Desync": {"T": 43, "Hashes": {"aa": ["1"], "bb": ["2"]}}}
    follower.take_answer(request, {**asked(stream, request), **earlier})
    request = follower.next_request()
    follower.take_answer(request, {**asked(stream, request), **earlier})
    assert follower.next_request().path.endswith("/desync/43")


def test_after_too_many_events_a_request_without_any_tells_the_ticks_and_then_they_are_sent_again() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    synced(stream, follower)
    follower.driver.send_event("throw", "1")
    follower.take_refusal(follower.next_request(), 429, 0)
    stream.advance(3)
    request = follower.next_request()
    assert request.body is not None
    assert "Events" not in request.body
    follower.take_answer(request, asked(stream, request))
    assert (follower.known, follower.connection) == (3, Connection.HEARD)
    synced(stream, follower)
    assert [event.body for event in stream.log if event.type == "throw"] == ["1"]
    follower.take_refusal(follower.next_request(), 429, 0)
    assert follower.connection.value == "faulty", "a server that has too many clients is not heard"


def test_requests_are_bounded() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    synced(stream, follower)
    for n in range(60):
        follower.driver.send_event("throw", "x" * (5_000 if n == 40 else 1))
    sizes: list[int] = []
    while follower.unacknowledged or not sizes:
        request = follower.next_request()
        assert isinstance(request.body, dict)
        sizes.append(len(request.body.get("Events", ())))
        assert len(json.dumps(request.body)) < 16 * 1024
        follower.take_answer(request, asked(stream, request))
    assert max(sizes) == BATCH_EVENTS
    assert sum(sizes) == 60


def test_a_desync_is_answered_by_one_dump_of_its_first_tick() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    stream.advance(20)
    synced(stream, follower)
    caught_up(follower)
    for _ in range(3):
        request = follower.next_request()
        if request.ask is SyncPurpose.SYNC:
            desync = {"Desync": {"T": 12, "Hashes": {"aa": ["1"], "bb": ["2"]}}}
            follower.take_answer(request, {**asked(stream, request), **desync})
    request = follower.next_request()
    while request.ask is SyncPurpose.SYNC:
        request = follower.next_request()
    assert (request.ask, request.method, request.path) == (SyncPurpose.PUT_DUMP, "PUT", "/game/me/desync/12")
    other = Bouncers()
    replayed(stream, 12, other)
    assert request.body is not None
    dump = json.dumps(request.body)
    follower.take_answer(request, {})
    assert {follower.next_request().ask for _ in range(4)} == {SyncPurpose.SYNC}
    assert request.body["hash"] == other.state_hash()
    assert follower.desync == (12, {"aa": ["1"], "bb": ["2"]})
    assert explain(dump, dump) is None


GOOD = {"T": 1, "Events": [], "States": [], "ProxyId": "1", "Incarnation": "a", "Acked": 0, "Oldest": 0}
EVENT = {"T": 1, "Type": "x", "Origin": "1", "Body": ""}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {**GOOD, "T": -1},
        {**GOOD, "T": 1.5},
        {**GOOD, "T": 2**60},
        {**GOOD, "Incarnation": None},
        {**GOOD, "Acked": "0"},
        {**GOOD, "Events": None},
        {**GOOD, "Events": [{**EVENT, "T": 2}]},
        {**GOOD, "Events": [{**EVENT, "T": 0}]},
        {**GOOD, "T": 3, "Events": [{**EVENT, "T": 2}, EVENT]},
        {**GOOD, "Events": [{**EVENT, "Body": 7}]},
        {**GOOD, "Desync": {"T": 1}},
    ],
)
def test_an_answer_that_is_no_reply_is_refused_and_changes_nothing(answer: Any) -> None:
    follower = follower_of()
    with pytest.raises(AnswerRefused):
        follower.take_answer(follower.next_request(), answer)
    assert (follower.known, follower.incarnation) == (0, None)


@pytest.mark.parametrize(
    "change",
    [
        {"State": "AA=="},
        {"Hash": "00"},
        {"Votes": []},
        {"T": "1"},
        {"State": "?"},
    ],
)
def test_a_snapshot_without_its_hash_or_a_vote_is_refused(change: dict[str, Any]) -> None:
    follower = follower_of(join_by_snapshot=True)
    with pytest.raises(AnswerRefused, match="no trusted snapshot"):
        follower.take_answer(follower.next_request(), {**snapshot_of(Bouncers(), "a"), **change})
    follower.take_answer(follower.next_request(), {**snapshot_of(Bouncers(), "a")})


def test_a_snapshot_of_another_game_is_refused_and_the_history_followed() -> None:
    stream, follower = OfflineStream("one"), follower_of(join_by_snapshot=True)
    yard = Yard()
    yard.step([SimEvent(1, "x", "1", "")])
    state = yard.snapshot().replace(b"Pending", b"Sending")
    other = base64.b64encode(state).decode()
    answer = {**snapshot_of(yard, "a"), "State": other, "Hash": state_hash(state)}
    with pytest.raises(AnswerRefused, match="no snapshot of Bouncers"):
        follower.take_answer(follower.next_request(), answer)
    stream.advance(2)
    synced(stream, follower)
    assert follower.known == 2


def test_a_follower_begins_with_a_new_driver() -> None:
    game = Bouncers()
    game.step([])
    with pytest.raises(ValueError, match="call start_over first"):
        follower_of(driver=game)


def test_a_client_leaves_on_purpose() -> None:
    stream, follower = OfflineStream("one"), follower_of()
    synced(stream, follower)
    request = follower.leave()
    assert isinstance(request.body, dict)
    assert request.body["Leave"] is True
    asked(stream, request)
    assert [event.type for event in stream.log] == ["_a", "_c", "_d"]
