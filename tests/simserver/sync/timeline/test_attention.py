"""The queue of events gives the earliest first, whatever is pushed between two of them."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.attention import AttentionQueue
from batonpass.simserver.sync.timeline.records import EventRecord, new_record
from batonpass.simserver.sync.timeline.times import extended
from tests.simserver.sync.timeline.village import Leave

moments = st.tuples(st.integers(-3, 6), st.integers(0, 3))


def record(moment: tuple[int, int]) -> EventRecord:
    base, id = moment
    return new_record(extended(base, 0, 0, id), Leave(), None)


def taken(queue: AttentionQueue, end: int) -> EventRecord | None:
    if queue.due:
        return queue.due.pop() if queue.base < end else None
    return queue.due.pop() if queue.advance(end) else None


@given(steps=st.lists(moments | st.integers(-3, 8), max_size=60))
def test_it_gives_the_earliest_before_an_end_and_nothing_else(steps: list[tuple[int, int] | int]) -> None:
    queue, expected = AttentionQueue(), []
    for step in (*steps, *[9] * 61):
        if isinstance(step, tuple):
            queue.push(record(step))
            expected.append(step)
            continue
        found = taken(queue, step)
        due = min(expected, default=None)
        if due is None or due[0] >= step:
            assert found is None
        else:
            assert found is not None
            assert found.time == record(due).time
            expected.remove(due)
    assert not expected
