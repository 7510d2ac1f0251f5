"""The plan of a run of faults: a function of its seed, fair to all kinds."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.chaos.faults import FAULTS
from batonpass.scenarios.chaos.plan import KINDS, FaultKind, draw_plan, parse_kinds

SEEDS = st.integers(0, 2**32)
SOME_KINDS = st.lists(st.sampled_from(FaultKind), min_size=1, unique=True)


def test_every_kind_is_described_and_can_be_done() -> None:
    assert KINDS.keys() == FAULTS.keys() == set(FaultKind)


@given(SEEDS, st.integers(1, 100), SOME_KINDS)
def test_the_same_seed_draws_the_same_faults_in_whatever_order_kinds_are_named(
    seed: int, faults: int, kinds: list[FaultKind]
) -> None:
    assert draw_plan(seed, faults, kinds) == draw_plan(seed, faults, kinds[::-1])


@given(SEEDS, st.integers(1, 100), SOME_KINDS)
def test_every_kind_comes_up_equally_often_give_or_take_one(seed: int, faults: int, kinds: list[FaultKind]) -> None:
    counts = Counter(fault.kind for fault in draw_plan(seed, faults, kinds))

    assert counts.total() == faults
    assert counts.keys() <= set(kinds)
    assert max(counts.values()) - min(counts.get(kind, 0) for kind in kinds) <= 1


@given(SEEDS, SOME_KINDS)
def test_a_longer_run_begins_like_a_shorter_one_of_the_same_seed(seed: int, kinds: list[FaultKind]) -> None:
    assert draw_plan(seed, 40, kinds)[:15] == draw_plan(seed, 15, kinds)


@given(SEEDS)
def test_faults_are_numbered_from_one_and_held_for_at_most_three_seconds(seed: int) -> None:
    plan = draw_plan(seed, 60, list(FaultKind))

    assert [fault.number for fault in plan] == list(range(1, 61))
    assert all(0.0 <= fault.hold_s <= 3.0 for fault in plan)
    assert all(fault.hold_s == 0.0 for fault in plan if not KINDS[fault.kind].lasts)


def test_the_dice_of_a_fault_fall_the_same_way_each_time() -> None:
    (fault,) = draw_plan(1, 1, [FaultKind.TEAR_JOURNAL])

    assert fault.dice().random() == fault.dice().random()


def test_without_kinds_there_is_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="no kind of fault"):
        draw_plan(1, 1, [])


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("kill-leader", (FaultKind.KILL_LEADER,)),
        (" stop-leader , kill-all,", (FaultKind.STOP_LEADER, FaultKind.KILL_ALL)),
        ("stop-*", (FaultKind.STOP_LEADER, FaultKind.STOP_FOLLOWER)),
        ("stop-leader,stop-*", (FaultKind.STOP_LEADER, FaultKind.STOP_FOLLOWER)),
        ("*", tuple(KINDS)),
    ],
)
def test_kinds_are_named_in_a_list_where_a_star_stands_for_the_rest(text: str, kinds: tuple[FaultKind, ...]) -> None:
    assert parse_kinds(text) == kinds


@pytest.mark.parametrize("text", ["", " , ", "murder", "kill-*,murder", "murder-*"])
def test_a_name_that_fits_nothing_is_refused_with_the_names_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="there are: kill-leader, kill-follower"):
        parse_kinds(text)
