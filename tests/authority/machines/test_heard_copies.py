"""A follower that hears authorities late, again and in any order: what it keeps never goes back (FAILURES row 44)."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy, CopyTable

BALL, OTHER = "alpha.ball", "alpha.other"
# A direct pass keeps the epoch, and a change through the log raises it.
FENCES = (Fence(1), Fence(1).passed(), Fence(1).passed().passed(), Fence(2), Fence(2).passed(), Fence(3))
HEARD = st.lists(st.tuples(st.sampled_from(FENCES), st.integers(0, 9)), min_size=1, max_size=30)


def copy(fence: Fence, tick: int, size: int = 1) -> Copy:
    return Copy(fence, tick, b"x" * size, f"{fence.epoch}-{fence.sub}-{tick}")


def test_failures_row_44_the_last_word_of_a_former_authority_is_dropped_and_not_acknowledged() -> None:
    table = CopyTable(1000, 10)
    assert table.offer(BALL, copy(Fence(1), 5), 0)
    assert table.offer(BALL, copy(Fence(1, 1), 3), 0), "what was passed directly may begin before the last copy"
    for late in (copy(Fence(1), 5), copy(Fence(1), 9)):
        assert not table.offer(BALL, late, 0)
    assert table.offer(BALL, copy(Fence(1, 1), 2), 0), "of the same authority, which has a later one kept here"
    assert table.offer(BALL, copy(Fence(2), 1), 0)
    assert not table.offer(BALL, copy(Fence(1, 1), 9), 0)
    assert table.get(BALL) == copy(Fence(2), 1)


@given(HEARD)
def test_failures_row_44_whatever_comes_in_whichever_order_the_highest_fence_is_kept(
    heard: Sequence[tuple[Fence, int]],
) -> None:
    table, highest = CopyTable(1000, 10), heard[0][0]
    before: tuple[Fence, int] | None = None
    for fence, tick in heard:
        highest = max(highest, fence)
        assert table.offer(BALL, copy(fence, tick), 0) is (fence == highest)
        kept = table.get(BALL)
        assert kept is not None
        assert before is None or kept.rank >= before
        before = kept.rank
    assert before == max(heard)


@given(st.lists(st.tuples(st.sampled_from(FENCES), st.integers(0, 9), st.sampled_from((1, 40, 99))), max_size=30))
def test_failures_row_44_nor_does_what_had_no_room_let_an_earlier_one_in(
    heard: Sequence[tuple[Fence, int, int]],
) -> None:
    """Its copies find no room, make room for others when they are stale, or are too large to be kept at all."""
    table, highest = CopyTable(50, 10, fresh_ns=2), Fence(0)
    for now_ns, (fence, tick, size) in enumerate(heard):
        is_kept = table.offer(BALL, copy(fence, tick, size), now_ns)
        highest = max(highest, fence)
        assert fence == highest or not is_kept
        if size == 40:
            table.offer(OTHER, copy(Fence(1), now_ns, size), now_ns)
