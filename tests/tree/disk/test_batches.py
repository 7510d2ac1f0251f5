"""Files of batches: how much of one is used, which is known by the zeros that follow."""

import pytest

from batonpass.tree.disk.batches import ALLOCATE_BYTES, length_without_zeros

BLOCK_BYTES = 64 * 1024


@pytest.mark.parametrize(
    "zeros", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, ALLOCATE_BYTES]
)
@pytest.mark.parametrize("used", [b"", b"\1", b"\0\1", bytes(BLOCK_BYTES) + b"\1", b"\1" * (BLOCK_BYTES - 1)], ids=len)
@pytest.mark.parametrize("start", [0, 1, 20])
def test_zeros_at_the_end_are_not_used_and_all_others_are(used: bytes, zeros: int, start: int) -> None:
    contents = bytes([7]) * start + used + bytes(zeros)
    assert length_without_zeros(contents, start) == len(used)
    assert length_without_zeros(contents, len(contents)) == 0
