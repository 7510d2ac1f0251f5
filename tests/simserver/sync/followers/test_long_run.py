"""A short version of the long run: the same faults, fewer frames."""

import pytest

from tests.simserver.sync.followers.long_run import run_long


@pytest.mark.parametrize("mode", ["state", "delta", "inputs"])
def test_a_show_with_faults_and_three_kills_has_one_content_for_each_frame(mode: str) -> None:
    """R17."""
    result = run_long(2_000, 3, 11, mode)
    assert not result["faults"]
    assert not result["behind"]
    assert not result["two_contents"]
    assert len(result["killed"]) == 3
