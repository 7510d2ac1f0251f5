"""What GoEventStream answered, request for request, and where ours answers otherwise on purpose.

`vectors/process_traces.json` was recorded from GoEventStream's own code (github.com/michaeldgagnon/GoEventStream, built
with Go 1.19) with an injected clock: 33 traces, 769 requests. `vectors/http_transcript.json` are its answers over HTTP.
The order of several `_d` of one request, and of states, is random there, so rows are compared as sets.

Other traces than those that were recorded are made at random, and answered by a twin of the original.
"""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.events.json_form import read_path_untrusted
from batonpass.simserver.sync.events.limits import TICK_MS, StreamLimits
from batonpass.simserver.sync.events.messages import PostedEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from tests.budget import examples
from tests.simserver.sync.events.answers import answer
from tests.simserver.sync.events.goeventstream import GoEventStream

VECTORS: Final = Path(__file__).parent / "vectors"
TRACES: Final[list[dict[str, Any]]] = json.loads((VECTORS / "process_traces.json").read_text(encoding="utf-8"))
# As in the original: a stream does not pause, and its clock jumps as far as the wall clock does.
AS_THERE: Final = StreamLimits(pause=False, max_jump_ms=60_000, max_events_per_s=1_000)
# How many of the 769 rows tell of a client that came back, directly or in the log that they repeat.
ROWS_WITH_OTHER_IDS: Final = 498
# How many tell of a client that was silent for too long and was then the next to ask.
ROWS_WITH_OWN_EXPIRY: Final = 220

Event = tuple[int, str, str, str]
Row = tuple[int, list[Event], frozenset[tuple[Any, ...]]]


def in_one_order(events: Iterable[Event]) -> list[Event]:
    """The events in their order; neighbouring `_d`, whose order is random in the original, by public id."""
    ordered: list[Event] = []
    for is_leaving, group in groupby(events, key=lambda event: event[1] == "_d"):
        neighbours = list(group)
        ordered.extend(sorted(neighbours) if is_leaving else neighbours)
    return ordered


def ours(reply: StreamReply) -> Row:
    states = ((row.tick, row.origin, tuple(row.data.items())) for row in reply.states)
    return (
        reply.tick,
        in_one_order((event.tick, event.type, event.origin, event.body) for event in reply.events),
        frozenset(states),
    )


def theirs(step: dict[str, Any], names: dict[str, str]) -> Row:
    """A recorded row, with the public ids of `names` in place of those that the original gave."""

    def named(event: dict[str, Any]) -> Event:
        body = names.get(event["Body"], event["Body"]) if event["Type"] in {"_c", "_d"} else event["Body"]
        return event["T"], event["Type"], names.get(event["Origin"], event["Origin"]), body

    states = ((row["T"], names.get(row["Origin"]), tuple(row["Data"].items())) for row in step["States"])
    return step["T"], in_one_order(map(named, step["Events"])), frozenset(states)


def replayed(trace: dict[str, Any], *, beats: bool) -> list[tuple[Row, Row, Row]]:
    """For each request our answer, the recorded one with our public ids, and the recorded one as it is."""
    streams = PolledStreams(lambda: "<seed>", AS_THERE)
    streams.begin("game", trace["start"] * 1_000_000)
    names: dict[str, str] = {}
    rows = []
    for step in trace["steps"]:
        now_ns = step["now"] * 1_000_000
        if beats:
            streams.beat(now_ns)
        events = tuple(PostedEvent(event["Type"], event["Body"]) for event in step["events"] or ())
        request = StreamRequest(step["client"], step["lastKnownT"], events, step["state"])
        reply = streams.request("game", request, now_ns)
        names[step["ProxyId"]] = reply.public_id
        rows.append((ours(reply), theirs(step, names), theirs(step, {name: name for name in names})))
        assert names[step["ProxyId"]] == names.setdefault(step["client"], reply.public_id), "stable"
    return rows


def test_e1_every_row_is_the_recorded_one_but_for_public_ids_which_stay_the_same() -> None:
    # With beats every silent client is disconnected in time, also one that then asks itself.
    rows = [row for trace in TRACES for row in replayed(trace, beats=True)]
    assert [(mine, renamed) for mine, renamed, _ in rows if mine != renamed] == []
    assert len(rows) == 769
    # A client that comes back has a new public id there (fault 1), and the rows that tell of one differ in that alone.
    assert sum(mine != recorded for mine, _, recorded in rows) == ROWS_WITH_OTHER_IDS


def with_original_members(row: dict[str, Any]) -> dict[str, Any]:
    return {"T": row["T"], "Events": row["Events"], "ProxyId": row["ProxyId"]} | {
        "States": sorted(({name: state[name] for name in ("T", "Origin", "Data")} for state in row["States"]), key=str)
    }


def test_the_twin_answers_as_the_original_did() -> None:
    for trace in TRACES:
        twin = GoEventStream(trace["start"])
        for step in trace["steps"]:
            row = twin.process(step["now"], step["client"], step["lastKnownT"], step["events"] or (), step["state"])
            mine, recorded = with_original_members(row), with_original_members(step)
            for each in (mine, recorded):
                each["Events"] = in_one_order(tuple(event.values()) for event in each["Events"])
            assert mine == recorded


GAPS_MS: Final = (
    0,
    1,
    13,
    49,
    50,
    51,
    99,
    100,
    101,
    150,
    200,
    777,
    4_999,
    9_999,
    10_000,
    10_001,
    20_002,
    59_999,
    60_000,
)
texts = st.text(max_size=6)
posted = st.lists(st.tuples(texts.filter(lambda kind: kind[:1] not in {"_", "$"}), texts), max_size=3)


@st.composite
def traces(draw: st.DrawFn) -> dict[str, Any]:
    """A trace that nobody recorded: four clients ask at all kinds of moments, and repeat what they knew before."""
    now_ms = start_ms = draw(st.integers(0, 1_000_000))
    twin, steps = GoEventStream(start_ms), list[dict[str, Any]]()
    knew: dict[str, list[int]] = {}
    for _ in range(draw(st.integers(1, 25))):
        now_ms += draw(st.sampled_from(GAPS_MS))
        client = draw(st.sampled_from(["p1", "p2", "é", "p 4"]))
        known = draw(st.sampled_from(knew.setdefault(client, [0, -1])))
        events = [{"Type": kind, "Body": body} for kind, body in draw(posted)]
        state = draw(st.none() | st.dictionaries(texts, texts, max_size=2).map(lambda data: dict(sorted(data.items()))))
        row = twin.process(now_ms, client, known, events, state)
        knew[client].append(row["T"])
        steps.append({"now": now_ms, "client": client, "lastKnownT": known, "events": events, "state": state, **row})
    return {"start": start_ms, "steps": steps}


@settings(max_examples=examples(200))
@given(traces())
def test_e1_rows_of_any_other_trace_are_those_of_the_original_too(trace: dict[str, Any]) -> None:
    assert [(mine, renamed) for mine, renamed, _ in replayed(trace, beats=True) if mine != renamed] == []


def test_without_beats_only_the_disconnection_of_a_client_by_its_own_request_is_missing() -> None:
    rows = [row for trace in TRACES for row in replayed(trace, beats=False)]
    differing = [(mine, renamed) for mine, renamed, _ in rows if mine != renamed]
    assert len(differing) == ROWS_WITH_OWN_EXPIRY
    for (tick, events, states), (their_tick, their_events, their_states) in differing:
        assert tick == their_tick
        # Nothing is there that was not recorded, but states that the original forgot with the disconnection.
        assert their_states <= states
        missing = Counter(their_events)
        missing.subtract(events)
        assert min(missing.values()) >= 0
        gone = sorted((when, body, kind) for when, kind, _, body in missing.elements())
        assert [kind for _, _, kind in gone] == ["_c", "_d"] * (len(gone) // 2)
        assert [pair[:2] for pair in gone[::2]] == [pair[:2] for pair in gone[1::2]]


def test_e2_every_answer_over_http_is_the_recorded_one_byte_for_byte_with_members_added_behind() -> None:
    transcript = json.loads((VECTORS / "http_transcript.json").read_text(encoding="utf-8"))
    seeds = iter(["5577006791947779410", "8674665223082153551"])
    streams, limits = PolledStreams(lambda: next(seeds)), StreamLimits()
    began_ms: dict[str, int] = {}
    now_ms, answered, refused = 0, 0, []
    for row in transcript:
        if row["method"] == "OPTIONS":
            continue  # Without a stream: the HTTP server answers it.
        name = row["path"].split("/")[1]
        recorded = row.get("responseBody")
        if recorded is not None:
            tick = json.loads(recorded)["T"]
            now_ms = began_ms.setdefault(name, now_ms) + tick * TICK_MS + (tick > 0)
        try:
            target = read_path_untrusted(row["method"], row["path"], limits)
            text = answer(streams, target, row["requestBody"].encode(), now_ms * 1_000_000)
        except StreamRefusal as error:
            # There the connection was closed without an answer.
            refused.append((row["path"], error.code, error.status, "error" in row))
            continue
        assert text.startswith(recorded[:-1] + ',"Incarnation":')
        answered += 1
    assert answered == 8
    assert refused == [("/foo/me/0", RefusalCode.BAD_BODY, 400, True), ("/foo", RefusalCode.BAD_PATH, 404, True)]
