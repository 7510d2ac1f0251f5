"""The buffer, against a list that is cut at the right end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.stages import Keep
from batonpass.actors.stages.buffer import Buffer


@given(
    size=st.integers(0, 10),
    keep=st.sampled_from(Keep),
    steps=st.lists(st.tuples(st.sampled_from(["store", "take"]), st.integers(0, 15)), max_size=30),
)
def test_it_keeps_what_a_list_cut_to_size_keeps(size: int, keep: Keep, steps: list[tuple[str, int]]) -> None:
    buffer, twin = Buffer(size, keep), list[int]()
    made = dropped = 0
    for action, count in steps:
        if action == "store":
            events = list(range(made, made + count))
            made += count
            everything = twin + events
            twin = everything[:size] if keep is Keep.FIRST else everything[len(everything) - size :] if size else []
            if len(everything) <= size:
                twin = everything
            lost = len(everything) - len(twin)
            dropped += lost
            assert buffer.store(events) == lost
        else:
            assert buffer.take(count) == twin[:count]
            twin = twin[count:]
        assert len(buffer) == len(twin) <= size
        assert buffer.dropped == dropped


@pytest.mark.parametrize("keep", Keep)
def test_what_was_let_in_beyond_the_bound_is_not_thrown_out_to_get_back_to_it(keep: Keep) -> None:
    buffer = Buffer(2, keep)
    buffer.store_all([1, 2, 3, 4])
    assert buffer.store([5]) == 1
    assert buffer.take(9) == ([1, 2, 3, 4] if keep is Keep.FIRST else [2, 3, 4, 5])


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold -1 events"):
        Buffer(-1)


def test_a_buffer_without_a_bound_keeps_everything() -> None:
    buffer = Buffer(None)
    for number in range(0, 30_000, 100):
        assert buffer.store(range(number, number + 100)) == 0
    assert (len(buffer), buffer.dropped) == (30_000, 0)
    assert buffer.take(3) == [0, 1, 2]
