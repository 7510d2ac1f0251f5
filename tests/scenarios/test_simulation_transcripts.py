"""Single stories told step by step on a simulated cluster, for what seeds find too seldom."""

import random
from collections.abc import Callable
from typing import cast

import pytest

from scenarios.simulation.cluster import Cluster
from scenarios.simulation.fence import Fence, FencedMember
from scenarios.simulation.mixes import FaultMix
from scenarios.simulation.network import Weather
from scenarios.simulation.weaknesses import WEAKNESSES

CALM = FaultMix(name="calm", purpose="nothing goes wrong by itself", weather=Weather(remembers=True))


class Story:
    """A cluster in which only what the test says happens."""

    def __init__(self, fence: Fence, size: int) -> None:
        self.cluster = Cluster(fence, CALM, size, random.Random(7))
        for client in self.cluster.clients:
            client.resting = True
        self.until(lambda: len(self.cluster.leaders()) == 1)

    def until(self, condition: Callable[[], bool]) -> None:
        assert self.cluster.schedule.run_until(self.cluster.schedule.now_s + 20, condition)

    def member(self, name: str) -> FencedMember:
        return cast(FencedMember, self.cluster.member(name))

    def write(self, count: int) -> None:
        (leader,) = self.cluster.leaders()
        calls = [self.cluster.write_alone(leader) for _ in range(count)]
        self.until(lambda: all(call.returned_at is not None for call in calls))

    def isolate(self, name: str) -> None:
        for other in self.cluster.names:
            if other != name:
                self.cluster.network.block(name, other)
                self.cluster.network.block(other, name)

    def hand_over(self, target: str) -> None:
        (leader,) = self.cluster.leaders()
        self.cluster.in_process(leader, lambda: self.cluster.member(leader).transfer(target), 0.0)
        self.until(lambda: self.cluster.leaders() == [target])


@pytest.mark.parametrize(
    ("fence", "counted"),
    [(Fence, False), (WEAKNESSES["acknowledgements-of-any-term"].fence, True)],
    ids=["fence", "weakened"],
)
def test_an_acknowledgement_counts_in_its_own_term_only(fence: Callable[[], Fence], counted: bool) -> None:
    """T5: what a follower had in an earlier term may have been replaced since; only a new answer says what it has."""
    story = Story(fence(), 3)
    for _ in range(3):
        story.write(1)
    (leader,) = story.cluster.leaders()
    follower, other = (name for name in story.cluster.names if name != leader)
    story.until(lambda: story.member(leader).raft().progress()[follower].match_index > 3)
    story.isolate(follower)
    story.hand_over(other)
    story.write(1)
    story.hand_over(leader)
    assert story.member(leader).raft().progress()[follower].match_index == 0
    for frame in story.cluster.network.past(follower, leader):
        story.cluster.frames_arrived(leader, follower, [frame])
    assert (story.member(leader).raft().progress()[follower].match_index > 0) == counted


def test_a_leader_that_is_cut_off_serves_no_reads_and_acknowledges_nothing() -> None:
    story = Story(Fence(), 5)
    (leader,) = story.cluster.leaders()
    story.write(1)
    story.isolate(leader)
    late = story.cluster.write_alone(leader)
    story.until(lambda: any(name != leader for name in story.cluster.leaders()))
    assert late.returned_at is None
    assert not story.cluster.oracle.violations
