"""What of a stream may be told: nothing that the copy from which a failover resumes does not have."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.hosting.publication import MAX_NUMBERED, StreamPublication
from batonpass.simserver.sync.hosting.world import LEAD_TICKS


def test_a_tick_without_a_change_is_told_at_once() -> None:
    stream = StreamPublication(7)
    stream.committed(8, None, changed=False)
    assert stream.tick == 8


def test_a_change_and_all_after_it_are_told_when_a_copy_has_them() -> None:
    stream = StreamPublication(7)
    stream.committed(8, 1, changed=True)
    stream.committed(9, None, changed=False)
    assert stream.tick == 7
    stream.kept(1)
    assert stream.tick == 9


def test_no_more_than_the_lead_is_told_beyond_the_last_copy() -> None:
    stream = StreamPublication(0)
    for tick in range(1, 3 * LEAD_TICKS):
        stream.committed(tick, None, changed=False)
    assert stream.tick == LEAD_TICKS


def test_a_change_without_an_input_wants_one_by_which_its_copy_is_known() -> None:
    stream = StreamPublication(0)
    stream.committed(1, None, changed=True)
    owed = [stream.owes_number]
    stream.committed(2, 1, changed=False)
    owed.append(stream.owes_number)
    stream.kept(1)
    assert (stream.tick, owed, stream.owes_number) == (2, [True, False], False)


def test_word_of_a_copy_may_come_before_word_of_its_tick() -> None:
    stream = StreamPublication(0)
    stream.kept(1)
    stream.committed(1, 1, changed=True)
    assert stream.tick == 1


def test_of_a_stream_that_was_handed_over_nothing_is_told_before_it_has_a_copy_here() -> None:
    """The state that came passes over no ticks: a failover may begin with it again."""
    stream = StreamPublication(7, was_handed_over=True)
    stream.committed(8, None, changed=False)
    assert (stream.tick, stream.owes_number) == (7, True)
    stream.committed(9, 4, changed=False)
    assert (stream.tick, stream.owes_number) == (7, False)
    stream.kept(4)
    stream.committed(10, None, changed=False)
    assert (stream.tick, stream.owes_number) == (10, False)


def test_a_stream_that_no_copy_is_made_of_takes_no_more_memory() -> None:
    stream = StreamPublication(0)
    for tick in range(1, 3 * MAX_NUMBERED):
        stream.committed(tick, tick, changed=True)
    assert len(stream._numbered) == MAX_NUMBERED
    stream.kept(3 * MAX_NUMBERED)
    assert stream.tick == 3 * MAX_NUMBERED - 1


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60),
    st.lists(st.integers(0, 60), max_size=60),
    st.integers(0, 5),
)
def test_what_was_told_is_in_every_copy_from_which_it_may_be_resumed_but_for_empty_ticks(
    ticks: list[tuple[bool, bool]], copies: list[int], begins: int
) -> None:
    stream, number, numbers, kept_tick, told = StreamPublication(begins), 0, {0: begins}, begins, begins
    changes = []
    for at, (changed, numbered) in enumerate(ticks):
        tick = begins + 1 + at
        number += numbered
        if numbered:
            numbers[number] = tick
        changes += [tick] * changed
        stream.committed(tick, number if numbered else None, changed=changed)
        if at < len(copies) and copies[at] <= number:
            stream.kept(copies[at])
            kept_tick = max(kept_tick, numbers[copies[at]])
        assert stream.tick >= told, "nothing is taken back"
        told = stream.tick
        assert not [change for change in changes if kept_tick < change <= told]
        assert told <= kept_tick + LEAD_TICKS
