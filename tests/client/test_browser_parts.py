"""The parts of the browser's client that know neither time nor network: streams of inputs, clocks, what is drawn."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.wire.transfer import InputAck, NotHere, NotOwner
from batonpass.client.input_stream import InputStream
from tests.budget import examples
from tests.client.test_same_as_python import ANSWERS
from tests.simserver.sync.browser.node import Node

ONE = "alpha.one"
ADA = "alpha.ada"
MAX_PENDING = 2048
PERIOD_MS = 50


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = Node(ANSWERS)
    yield started
    started.close()


# --- streams of inputs ------------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 12)
FENCES = st.tuples(st.integers(0, 3), st.integers(0, 2))
SERVERS = st.sampled_from(["", "alpha.s1", "alpha.s2"])
OWNERS = st.sampled_from([ADA, "alpha.bob", ""])


def message(kind: str, applied: int, durable: int, fence: tuple[int, int], owner: str, rev: int) -> dict[str, Any]:
    said: dict[str, Any] = {"entity": ONE, "applied": applied, "epoch": fence[0], "sub": fence[1]}
    if kind == "ack":
        return said | {"durable": durable, "tick": 1}
    return said | {"owner": owner, "owner_rev": rev, "reason": "not_owner"}


MESSAGES = st.tuples(NUMBERS, NUMBERS, FENCES, OWNERS, st.integers(1, 4))
STEPS = st.one_of(
    st.tuples(st.just("add"), st.binary(max_size=2).map(bytes.hex)),
    st.tuples(st.just("send")),
    MESSAGES.map(lambda said: ("ack", message("ack", *said))),
    MESSAGES.map(lambda said: ("correct", message("correct", *said))),
    st.tuples(st.just("learn"), OWNERS, st.integers(1, 4)),
    st.tuples(st.just("again")),
    st.tuples(st.just("ask")),
    st.tuples(st.just("follow"), SERVERS, FENCES.map(list)),
    st.tuples(st.just("retarget"), SERVERS),
)


def in_python(doing: list[list[Any]]) -> list[Any]:
    """The same steps with the client for Python."""
    stream, found = InputStream(ONE, "alpha.s1"), []
    for what, now_ms, *rest in doing:
        found.append([step(stream, what, now_ms / 1000, *rest), facts(stream)])
    return found


def step(stream: InputStream, what: str, now_s: float, *rest: Any) -> Any:
    match what:
        case "add":
            stream.add(bytes.fromhex(rest[0]), now_s)
            return stream.sent
        case "send":
            return [seq for seq, _ in stream.next_to_send()]
        case "ack":
            stream.acknowledged_as(InputAck(**rest[0]), now_s)
        case "correct":
            stream.corrected(NotOwner(**rest[0]), ADA, now_s)
        case "learn":
            stream.learn_owner(rest[0], rest[1], ADA)
        case "again":
            if not stream.overdue(now_s):
                return False
            stream.start_over(now_s)
        case "ask":
            asked = stream.to_ask_with(now_s)
            return None if asked is None else asked[0]
        case "follow":
            return stream.follow(NotHere(entity=ONE, moved_to=rest[0], epoch=rest[1][0], sub=rest[1][1]))
        case "retarget":
            stream.retarget(rest[0])
        case _:
            raise AssertionError(what)
    return None


def facts(stream: InputStream) -> dict[str, Any]:
    return {
        "sent": stream.sent,
        "floor": stream.floor,
        "acknowledged": stream.acknowledged,
        "durable": stream.durable,
        "fence": list(stream.fence),
        "inFlight": stream.in_flight,
        "maxInFlight": stream.max_in_flight,
        "target": stream.target,
        "owner": stream.owner,
        "ownerRev": stream.owner_rev,
        "lost": stream.lost,
        "givenAgain": stream.given_again,
        "waiting": [[seq, data.hex()] for seq, data in stream.waiting],
        "kept": [[seq, data.hex()] for seq, data in stream.kept],
        "refused": [[seq, data.hex()] for seq, data in stream.refused],
    }


@given(st.lists(st.tuples(STEPS, st.integers(0, 1500)), max_size=40))
@settings(max_examples=examples(400))
def test_a_stream_of_inputs_does_what_that_for_python_does(node: Node, steps: list[tuple[Any, int]]) -> None:
    now_ms, doing = 0, []
    for (what, *rest), later_ms in steps:
        now_ms += later_ms
        doing.append([what, now_ms, *rest])
    assert node.ask("streamed", {"begun": True, "doing": doing}) == in_python(doing)


def test_who_comes_back_asks_how_many_inputs_were_applied_and_numbers_on(node: Node) -> None:
    ack = message("ack", 57, 50, (1, 0), "", 0)
    doing = [["ask", 3000], ["add", 3001, ""], ["ack", 3002, ack], ["add", 3003, "01"], ["send", 3004]]
    found = node.ask("streamed", {"begun": False, "doing": [doing[0], *doing[2:]]})
    assert found[0][0] == 2**53 - 1
    assert found[2][0] == 57 + MAX_PENDING + 1
    assert found[3][0] == [57 + MAX_PENDING + 1]
    assert (found[3][1]["floor"], found[3][1]["acknowledged"]) == (57 + MAX_PENDING, 57 + MAX_PENDING)


def test_a_player_that_is_new_to_an_entity_begins_with_one(node: Node) -> None:
    found = node.ask(
        "streamed", {"begun": False, "doing": [["ack", 1, message("ack", 0, 0, (1, 0), "", 0)], ["add", 2, "01"]]}
    )
    assert (found[1][0], found[1][1]["floor"]) == (1, 0)


# --- clocks and what is drawn -----------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 200), min_size=1, max_size=60), st.floats(-1e6, 1e6))
@settings(max_examples=examples(100))
def test_a_clock_goes_by_what_was_delayed_least(node: Node, delays_ms: list[float], began_ms: float) -> None:
    heard = [[n, began_ms + n * PERIOD_MS + delay_ms] for n, delay_ms in enumerate(delays_ms)]
    found = node.ask("clocked", {"tickHz": 20, "heard": heard, "at": [0, 100]})
    assert math.isclose(found["times"][0], began_ms + min(delays_ms), abs_tol=1e-3)
    assert math.isclose(found["times"][1] - found["times"][0], 100 * PERIOD_MS, abs_tol=1e-3)
    assert math.isclose(found["lateness"], max(delays_ms) - min(delays_ms), abs_tol=1e-3)


def test_a_clock_that_has_heard_nothing_knows_no_time(node: Node) -> None:
    assert node.ask("clocked", {"tickHz": 20, "heard": [[0, 7]], "at": [0]})["times"] == [7]


@given(st.lists(st.floats(0, 45), min_size=40, max_size=80))
@settings(max_examples=examples(100))
def test_what_is_drawn_goes_on_evenly_whatever_frames_come_late(node: Node, delays_ms: list[float]) -> None:
    samples = [
        {"tick": n, "atMs": n * PERIOD_MS, "latenessMs": 45, "arrivesMs": n * PERIOD_MS + delay_ms}
        for n, delay_ms in enumerate(delays_ms)
    ]
    samples.sort(key=lambda sample: sample["arrivesMs"])
    moments = [float(ms) for ms in range(1000, len(delays_ms) * PERIOD_MS, 16)]
    found = node.ask("drawn", {"samples": samples, "moments": moments})
    places = [place for place, _ in found]
    for before, after in pairwise(places):
        # A frame of 16 ms is 0.32 ticks, and a tenth more or less while the delay changes.
        assert 0.28 <= after - before <= 0.36
    for now_ms, (place, delay_ms) in zip(moments, found, strict=True):
        assert math.isclose(place, (now_ms - delay_ms) / PERIOD_MS, abs_tol=1e-6)


def test_a_watch_that_is_refused_and_not_read_is_in_the_console_once(node: Node) -> None:
    refusals = [[server, "area_too_large", "at most 256 cells"] for server in ("alpha.s1", "alpha.s2")]
    found = node.ask("refusedUnread", refusals)
    shown = ["a watch is refused: area_too_large: alpha.s1: at most 256 cells"]
    assert found == {"before": None, "shown": shown, "code": "area_too_large"}


def test_a_homeserver_without_a_majority_is_left_for_another_one(node: Node) -> None:
    found = node.ask("homes", {"statuses": {"h1": 503, "h2": 503, "h3": 200}, "asks": 4})
    assert found == {"asked": ["h1", "h2", "h3", "h3"], "found": ["unreachable", "unreachable", "answered", "answered"]}


def test_a_homeserver_that_refuses_is_kept(node: Node) -> None:
    found = node.ask("homes", {"statuses": {"h1": 409, "h2": 200}, "asks": 2})
    assert found == {"asked": ["h1", "h1"], "found": ["no_quorum", "no_quorum"]}
