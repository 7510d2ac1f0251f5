"""Messages of peers as texts: what is written is read again, and nothing else is read."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.canonical import encode
from batonpass.simserver.sync.lockstep.driver import MAX_EVENT_BYTES, event_bytes
from batonpass.simserver.sync.timeline.peer_wire import (
    MAX_TEXT_CHARS,
    PeerMessagesRefused,
    read_messages_untrusted,
    write_messages,
)
from batonpass.simserver.sync.timeline.sharing import (
    MAX_TOLD_EVENTS,
    ChunkDigest,
    ChunkEvents,
    InputPromise,
    SharedInput,
    TakenBack,
)
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import extended
from tests.simserver.sync.timeline.village import TYPES, Leave, Pay, make_village

WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
TIMES = st.builds(extended, st.integers(0, 2**62), st.just(0), st.just(0), st.integers(0, 2**128 - 1))
MESSAGES = st.one_of(
    st.builds(SharedInput, WHOLE, st.one_of(st.builds(Pay, WHOLE), st.just(Leave()))),
    st.builds(TakenBack, WHOLE),
    st.builds(InputPromise, WHOLE),
    st.builds(ChunkDigest, WHOLE, st.text("0123456789abcdef", max_size=64)),
    st.builds(
        ChunkEvents,
        WHOLE,
        st.lists(st.tuples(TIMES, st.text("0123456789abcdef", max_size=16)), max_size=MAX_TOLD_EVENTS).map(tuple),
    ),
)


@given(st.lists(MESSAGES, max_size=150))
def test_what_was_written_is_read_in_its_order_and_each_text_fits_an_event(messages: list[Any]) -> None:
    texts = write_messages(messages, TYPES)
    assert [message for text in texts for message in read_messages_untrusted(text, TYPES)] == messages
    assert all(event_bytes("timeline", text) <= MAX_EVENT_BYTES for text in texts)


def test_the_longest_list_of_events_fits_a_text() -> None:
    time = extended(2**62, 65_535, 1_000, 2**128 - 1)
    (text,) = write_messages([ChunkEvents(2**53 - 1, ((time, "f" * 16),) * MAX_TOLD_EVENTS)], TYPES)
    assert len(text) <= MAX_TEXT_CHARS


HANDLE = TYPES.plain(TimeSteward(make_village).globals)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ["input"],
        [["input", 1, None]],
        [["input", 1, HANDLE]],
        [["input", 1, ["object", "1", 2]]],
        [["input", "1", TYPES.plain(Leave())]],
        [["input", 1, [*TYPES.plain(Pay(1))[:2], ["timeline", "1", "2"]]]],
        [["promise", 1.5]],
        [["promise", True]],
        [["back", 1, 2]],
        [["digest", 1, "f" * 65]],
        [["events", 1, [["f" * 65, ""]]]],
        [["events", 1, [["no time", ""]]]],
        [["events", 1, [["1", ""]] * (MAX_TOLD_EVENTS + 1)]],
        [["promise", 1]] * 65,
    ],
    ids=lambda rows: repr(rows)[:40],
)
def test_nothing_else_is_read(rows: list[Any]) -> None:
    with pytest.raises(PeerMessagesRefused):
        read_messages_untrusted(base64.b64encode(encode(rows)).decode(), TYPES)


def test_a_message_that_is_too_long_is_not_written() -> None:
    with pytest.raises(PeerMessagesRefused, match="at most"):
        write_messages([ChunkDigest(1, "f" * MAX_TEXT_CHARS)], TYPES)
