"""The fence: which of two claims of authority is the newer one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, MAX_EPOCH, Fence, check_epoch

EPOCHS = st.integers(0, MAX_EPOCH - 1)
FENCES = st.builds(Fence, EPOCHS, EPOCHS)


@given(FENCES)
def test_a_change_through_the_log_starts_the_sub_epochs_anew(fence: Fence) -> None:
    assert fence.raised() == Fence(fence.epoch + 1, 0)


@given(FENCES)
def test_a_direct_pass_stays_in_its_epoch(fence: Fence) -> None:
    assert fence.passed() == Fence(fence.epoch, fence.sub + 1)


@given(FENCES)
def test_every_change_of_authority_is_above_the_one_before_and_the_log_above_every_pass(fence: Fence) -> None:
    assert fence < fence.passed() < fence.raised()


@given(FENCES, st.integers(1, MAX_EPOCH // EPOCHS_OF_A_HISTORY))
def test_one_step_leads_to_the_next_epoch_or_sub_epoch_or_to_the_beginning_of_a_later_block(
    fence: Fence, block: int
) -> None:
    begins = Fence(block * EPOCHS_OF_A_HISTORY)
    assert begins.begins_block
    assert not begins.passed().begins_block
    assert not Fence(0).begins_block
    assert fence.raised().may_follow(fence)
    assert fence.passed().may_follow(fence)
    assert begins.may_follow(fence) == (begins.epoch > fence.epoch)
    assert not fence.may_follow(fence)
    assert not begins.raised().may_follow(Fence(begins.epoch - 1))
    assert not begins.passed().may_follow(Fence(begins.epoch - 1, 7))


@given(FENCES, FENCES)
def test_fences_compare_by_epoch_first(one: Fence, other: Fence) -> None:
    expected = one.epoch < other.epoch or (one.epoch == other.epoch and one.sub < other.sub)
    assert (one < other) is expected


@pytest.mark.parametrize("legal", [0, 1, MAX_EPOCH])
def test_epochs_have_63_bits(legal: int) -> None:
    assert check_epoch(legal) == legal


@pytest.mark.parametrize("illegal", [-1, MAX_EPOCH + 1])
def test_an_epoch_never_wraps(illegal: int) -> None:
    with pytest.raises(OverflowError, match=str(illegal)):
        check_epoch(illegal)


def test_the_last_fence_cannot_be_raised_or_passed() -> None:
    last = Fence(MAX_EPOCH, MAX_EPOCH)
    with pytest.raises(OverflowError):
        last.raised()
    with pytest.raises(OverflowError):
        last.passed()
