"""The hop trace: what crossed the wire, counted there, and what a stranger may not do to it."""

import json
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.wire import hop_routes as routes
from batonpass.authority.wire.hops import MAX_HOPS, MAX_MARKS, REPEATED, BadTrace, Hop, Mark, Trace

SERVERS = st.sampled_from(["alpha.s1", "alpha.h1", "beta.h1", "beta.s1", "relay.r1"])
KINDS = st.sampled_from(["handoff", "admit", "grant", "activate", "direct"])
TIMES = st.integers(0, 2**63 - 1)


@st.composite
def traces(draw: st.DrawFn, min_hops: int = 0) -> Trace:
    """Traces as servers make them: every hop arrived, except perhaps the last."""
    trace = Trace("transfer-1")
    for _ in range(draw(st.integers(min_hops, 6))):
        trace = trace.leave(draw(SERVERS), draw(KINDS), draw(TIMES)).arrive(draw(SERVERS), draw(TIMES), draw(TIMES))
    if draw(st.booleans()):
        trace = trace.leave(draw(SERVERS), draw(KINDS), draw(TIMES))
    for _ in range(draw(st.integers(0, 3))):
        trace = trace.mark(draw(SERVERS), draw(KINDS), draw(TIMES))
    return trace


def test_a_trace_is_of_one_way_if_it_has_both_ends_and_no_mark_of_a_repetition() -> None:
    whole = Trace("t").mark("alpha.s1", "frozen", 1).mark("alpha.s2", "activated", 2)
    assert not whole.is_repeated
    assert whole.mark("alpha.h1", REPEATED, 3).is_repeated
    assert Trace("t").mark("alpha.s1", "frozen", 1).is_repeated, "it was not the target that said that it simulates"
    assert Trace("t").mark("alpha.s2", "activated", 2).is_repeated, "it was told by other means than its own request"


def test_a_hop_leaves_and_arrives() -> None:
    left = Trace("transfer-1").leave("alpha.s1", "handoff", 5)
    assert left.under_way
    assert left.hops == (Hop(1, "handoff", "alpha.s1", "", 5, 0, 0),)
    arrived = left.arrive("alpha.h1", 9, 100)
    assert not arrived.under_way
    assert arrived.hops == (Hop(1, "handoff", "alpha.s1", "alpha.h1", 5, 9, 100),)


def test_hops_are_numbered_as_they_cross() -> None:
    trace = Trace("transfer-1").leave("alpha.s1", "handoff", 1).arrive("alpha.h1", 2).leave("alpha.h1", "grant", 3)
    assert [hop.number for hop in trace.hops] == [1, 2]


def test_a_message_cannot_leave_before_the_last_one_arrived() -> None:
    with pytest.raises(BadTrace, match="hop 1 of transfer transfer-1 has not arrived"):
        Trace("transfer-1").leave("alpha.s1", "handoff", 1).leave("alpha.h1", "grant", 2)


def test_nothing_arrives_that_did_not_leave() -> None:
    with pytest.raises(BadTrace, match="no hop under way"):
        Trace("transfer-1").arrive("alpha.h1", 1)
    with pytest.raises(BadTrace, match="no hop under way"):
        Trace("transfer-1").leave("alpha.s1", "handoff", 1).arrive("alpha.h1", 1).arrive("alpha.h1", 1)


def test_a_routing_loop_ends() -> None:
    trace = Trace("transfer-1")
    for _ in range(MAX_HOPS):
        trace = trace.leave("relay.r1", "handoff", 1).arrive("relay.r2", 1)
    with pytest.raises(BadTrace, match="routing loop"):
        trace.leave("relay.r1", "handoff", 1)


def test_marks_are_bounded_and_the_first_of_a_label_counts() -> None:
    trace = Trace("transfer-1")
    for number in range(MAX_MARKS + 3):
        trace = trace.mark("alpha.s1", "frozen", number)
    assert len(trace.marks) == MAX_MARKS
    assert trace.at("frozen") == 0
    assert trace.at("activated") is None


# --- the digest that the sealing server signs -------------------------------------------------------------------------


@given(traces(min_hops=1), st.data())
def test_the_digest_of_a_beginning_outlives_whatever_follows(trace: Trace, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(trace.hops)))
    beginning = Trace(trace.transfer_id, trace.hops[:count])
    assert trace.digest(count) == beginning.digest()


def test_the_receiver_may_write_where_and_when_the_last_hop_arrived() -> None:
    left = Trace("transfer-1").leave("alpha.s1", "handoff", 5)
    assert left.arrive("alpha.h1", 9, 100).digest(1) == left.digest()


@given(traces(min_hops=1), st.data())
def test_nothing_else_of_a_signed_hop_can_be_changed(trace: Trace, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(trace.hops) - 1))
    field = data.draw(st.sampled_from(["kind", "src"] + (["dst"] if place < len(trace.hops) - 1 else [])))
    rows = trace.to_data()
    rows["hops"][place][["number", "kind", "src", "dst"].index(field)] = "gamma.s9"
    assert Trace.from_data_untrusted(rows).digest() != trace.digest()


@given(traces(min_hops=1))
def test_another_transfer_and_another_number_of_hops_have_other_digests(trace: Trace) -> None:
    assert Trace("transfer-2", trace.hops).digest() != trace.digest()
    assert Trace(trace.transfer_id, trace.hops[:-1]).digest() != trace.digest()


def test_two_signed_hops_cannot_be_folded_into_one() -> None:
    """The digest separates with control characters, so no text of a trace may hold one."""
    two = Trace("transfer-1").leave("alpha.s1", "handoff", 1).arrive("alpha.h1", 2).leave("alpha.h1", "admit", 3)
    folded = "handoff\x1falpha.s1\x1falpha.h1\x1e2\x1fadmit"
    forged = Trace("transfer-1").leave("alpha.h1", folded, 1)
    assert forged.digest() == two.digest(), "were it not for the check below"
    with pytest.raises(BadTrace, match="printable"):
        Trace.from_data_untrusted(forged.to_data())


# --- from the wire ----------------------------------------------------------------------------------------------------


@given(traces())
def test_a_trace_survives_cbor_and_json(trace: Trace) -> None:
    assert Trace.from_data_untrusted(cbor2.loads(cbor2.dumps(trace.to_data()))) == trace
    assert Trace.from_data_untrusted(json.loads(json.dumps(trace.to_data()))) == trace


def valid() -> dict[str, Any]:
    trace = Trace("transfer-1").leave("alpha.s1", "handoff", 1).arrive("alpha.h1", 2).leave("alpha.h1", "grant", 3)
    return trace.mark("alpha.s1", "frozen", 1).to_data()


def _with(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data = valid()
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        valid() | {"more": 1},
        _with(("transfer_id",), ""),
        _with(("transfer_id",), "x" * 129),
        _with(("transfer_id",), 7),
        _with(("transfer_id",), "\ud800"),
        _with(("hops",), "no list"),
        _with(("marks",), {}),
        _with(("hops",), [[1, "k", "alpha.s1", "alpha.h1", 0, 0, 0]] * (MAX_HOPS + 1)),
        _with(("marks",), [["alpha.s1", "frozen", 0]] * (MAX_MARKS + 1)),
        _with(("hops", 0), [1, "k"]),
        _with(("hops", 0), 7),
        _with(("marks", 0), ["alpha.s1", "frozen"]),
        _with(("marks", 0), 7),
        _with(("hops", 0, 0), 2),
        _with(("hops", 0, 0), True),
        _with(("hops", 0, 1), "tab\t"),
        _with(("hops", 0, 2), "no name"),
        _with(("hops", 0, 3), ""),
        _with(("hops", 0, 3), None),
        _with(("hops", 0, 4), -1),
        _with(("hops", 0, 4), 1.5),
        _with(("hops", 0, 5), 2**63),
        _with(("marks", 0, 0), "no name"),
        _with(("marks", 0, 1), ""),
        _with(("marks", 0, 2), "soon"),
    ],
)
def test_anything_else_is_a_bad_trace_and_a_bad_message(data: object) -> None:
    with pytest.raises(BadTrace):
        Trace.from_data_untrusted(data)
    assert issubclass(BadTrace, MessageError)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_hostile_data_gives_a_trace_or_a_bad_trace(transfer_id: Any, hops: Any, marks: Any) -> None:
    for data in (transfer_id, {"transfer_id": transfer_id, "hops": hops, "marks": marks}):
        try:
            trace = Trace.from_data_untrusted(data)
        except BadTrace:
            continue
        trace.digest()
        assert Trace.from_data_untrusted(trace.to_data()) == trace


def test_marks_keep_their_server() -> None:
    assert Trace.from_data_untrusted(valid()).marks == (Mark("alpha.s1", "frozen", 1),)


# --- what traces share ------------------------------------------------------------------------------------------------


@given(traces(), traces())
def test_traces_are_equal_if_their_hops_and_marks_are(one: Trace, other: Trace) -> None:
    """Whether their routes are one object, which tables that forget decide, or two."""
    assert (one == other) is ((one.hops, one.marks) == (other.hops, other.marks))
    routes.marked.cache_clear()
    routes.route_of.cache_clear()
    again = Trace.from_data_untrusted(one.to_data())
    assert (again, hash(again)) == (one, hash(one))
    assert again.mark("alpha.s1", "frozen", 1) == one.mark("alpha.s1", "frozen", 1)
    assert Trace(one.transfer_id, one.hops, one.marks) == one != one.to_data()


def test_what_is_no_route_is_looked_at_every_time_and_what_is_known_is_bounded() -> None:
    for _ in range(2):
        with pytest.raises(BadTrace):
            Trace.from_data_untrusted(_with(("hops", 0, 2), "no name"))
    for table in (routes.left, routes.arrived, routes.marked, routes.route_of, routes.signed_text):
        assert table.cache_info().maxsize is not None
