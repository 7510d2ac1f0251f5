"""What a player makes of words of several authorities that come late and in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.wire.transfer import InputAck, NotOwner
from batonpass.client.input_stream import InputStream
from tests.scenarios.players.test_input_stream import PLAYER


def heard_by(stream: InputStream, word: InputAck | NotOwner) -> None:
    if isinstance(word, InputAck):
        stream.acknowledged_as(word, 0.0)
    else:
        stream.corrected(word, PLAYER, 0.0)


def ack_of(fence: tuple[int, int], applied: int, durable: int = 0) -> InputAck:
    epoch, sub = fence
    return InputAck(entity="alpha.ball", applied=applied, durable=durable, tick=applied, epoch=epoch, sub=sub)


def correction_of(fence: tuple[int, int], applied: int, owner: str = PLAYER) -> NotOwner:
    epoch, sub = fence
    reason = "stale_ownership"
    return NotOwner(entity="alpha.ball", reason=reason, owner=owner, owner_rev=1, applied=applied, epoch=epoch, sub=sub)


def stream_of_ten() -> InputStream:
    stream = InputStream("alpha.ball", "alpha.s1")
    for number in range(10):
        stream.add(b"%d" % number, 0.0)
    stream.next_to_send()
    return stream


@pytest.mark.parametrize("last_word", [ack_of((1, 0), 9, 9), correction_of((1, 0), 9)])
@pytest.mark.parametrize("later", [(1, 1), (2, 0)])
def test_failures_row_44_the_last_word_of_a_former_authority_acknowledges_nothing(
    last_word: InputAck | NotOwner, later: tuple[int, int]
) -> None:
    """The new one went on from a copy, and has to get again what the former one had applied."""
    stream = stream_of_ten()
    heard_by(stream, ack_of((1, 0), 8, 4))
    heard_by(stream, ack_of(later, 6, 4))
    assert (stream.acknowledged, len(stream.waiting)) == (6, 4)
    heard_by(stream, last_word)
    assert (stream.fence, stream.acknowledged, stream.durable, len(stream.waiting)) == (later, 6, 4, 4)


def test_failures_row_44_nor_does_it_say_what_was_applied_of_an_ownership_that_is_over() -> None:
    stream = stream_of_ten()
    heard_by(stream, ack_of((1, 0), 5))
    heard_by(stream, correction_of((2, 0), 5, owner="alpha.bob"))
    heard_by(stream, ack_of((1, 0), 8))
    assert (stream.acknowledged, len(stream.refused)) == (5, 5)
    heard_by(stream, ack_of((2, 0), 7))
    assert (stream.acknowledged, len(stream.refused)) == (7, 3)


WORDS = st.tuples(
    st.sampled_from(((1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1))),
    st.integers(0, 10),
    st.booleans(),
)


@given(st.lists(WORDS, min_size=1, max_size=30))
def test_failures_row_44_whatever_words_come_in_whichever_order_a_player_never_goes_back(
    words: list[tuple[tuple[int, int], int, bool]],
) -> None:
    stream, shown = stream_of_ten(), ((0, 0), 0)
    for fence, applied, is_correction in words:
        is_past = fence < stream.fence
        heard_by(stream, correction_of(fence, applied) if is_correction else ack_of(fence, applied))
        now = (stream.fence, stream.acknowledged)
        assert now >= shown
        assert not (is_past and now != shown), "a word of the past changes nothing"
        shown = now
    newest = max(fence for fence, _, _ in words)
    assert shown == (newest, max(applied for fence, applied, _ in words if fence == newest))
