"""A short version of the long run: the same faults, fewer frames."""

import pytest

from tests.simserver.sync.followers.long_run import run_long


@pytest.mark.parametrize("mode", ["state", "delta", "inputs"])
def test_a_show_with_faults_and_three_kills_has_one_content_for_each_frame(mode: str) -> None:
    """R17."""
    result = run_long(1_000, 3, 11, mode)
    assert not result["faults"]
    assert not result["behind"]
    assert not result["two_contents"]
    assert len(result["killed"]) == 3
    assert result["kinds"][mode] > 600, "it is about frames of this kind"


@pytest.mark.parametrize("mode", ["state", "delta", "inputs"])
def test_a_node_that_starts_at_frame_10000_has_the_hash_of_all_others_from_then_on(mode: str) -> None:
    """R16. A show has no more of its past at its frame 10,000 than at its 60th, so it begins shortly before."""
    result = run_long(10_080, 0, 3, mode, nodes=3, first=9_970, join_at=10_000, harms=0)
    late = result["late_node"]
    assert not result["faults"]
    assert 10_000 <= late["started_at"] < 10_010
    assert 0 < late["k"] <= 3
    assert late["equal"] > 60
