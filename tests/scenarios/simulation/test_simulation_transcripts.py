"""Single stories told step by step on a simulated cluster, for what seeds find too seldom."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from batonpass.scenarios.simulation.tree.cluster import TreeCluster
from batonpass.scenarios.simulation.tree.fence import FencedMember, RaftFence
from batonpass.scenarios.simulation.tree.mixes import TreeFaultMix
from batonpass.scenarios.simulation.tree.network import Weather
from batonpass.tree.net.frames import decode_message_untrusted
from tests.mutants.tree import MUTANTS

CALM = TreeFaultMix(name="calm", purpose="nothing goes wrong by itself", weather=Weather(remembers=True))


class Story:
    """A cluster in which only what the test says happens."""

    def __init__(self, fence: RaftFence, size: int, mix: TreeFaultMix = CALM) -> None:
        self.cluster = TreeCluster(fence, mix, size, random.Random(7))
        for client in self.cluster.clients:
            client.resting = True
        self.until(lambda: len(self.cluster.leaders()) == 1)

    def until(self, condition: Callable[[], bool]) -> None:
        assert self.cluster.schedule.run_until(self.cluster.schedule.now_s + 20, condition)

    def member(self, name: str) -> FencedMember:
        return cast(FencedMember, self.cluster.member(name))

    def write(self, count: int, leader: str = "") -> None:
        if not leader:
            (leader,) = self.cluster.leaders()
        calls = [self.cluster.write_alone(leader) for _ in range(count)]
        self.until(lambda: all(call.returned_at is not None for call in calls))

    def isolate(self, name: str) -> None:
        for other in self.cluster.names:
            if other != name:
                self.cluster.network.block(name, other)
                self.cluster.network.block(other, name)

    def rejoin(self, name: str) -> None:
        for other in self.cluster.names:
            if other != name:
                self.cluster.network.unblock(name, other)
                self.cluster.network.unblock(other, name)

    def pass_time(self, seconds: float) -> None:
        until_s = self.cluster.schedule.now_s + seconds
        self.until(lambda: self.cluster.schedule.now_s >= until_s)

    def pieces(self, sender: str, receiver: str) -> list[bytes]:
        """The pieces of snapshots that were sent in this direction, whether they have arrived or not."""
        frames = self.cluster.network.past(sender, receiver)
        return [frame for frame in frames if decode_message_untrusted(frame[4:]).get("serialized") is not None]

    def hand_over(self, target: str) -> None:
        (leader,) = self.cluster.leaders()
        self.cluster.in_process(leader, lambda: self.cluster.member(leader).transfer(target), 0.0)
        self.until(lambda: self.cluster.leaders() == [target])


@pytest.mark.parametrize(
    ("fence", "counted"),
    [(RaftFence, False), (MUTANTS["acknowledgements-of-any-term"].fence, True)],
    ids=["fence", "weakened"],
)
def test_an_acknowledgement_counts_in_its_own_term_only(fence: Callable[[], RaftFence], counted: bool) -> None:
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


@pytest.mark.parametrize(
    ("fence", "believed"),
    [(RaftFence, False), (MUTANTS["commit-index-beside-snapshot"].fence, True)],
    ids=["fence", "weakened"],
)
def test_a_commit_index_beside_a_piece_of_a_snapshot_commits_nothing_of_a_log_that_was_not_compared(
    fence: Callable[[], RaftFence], believed: bool
) -> None:
    """T6: a leader of before has entries of its own where its successor has others, and committed ones."""
    story = Story(fence(), 3, replace(CALM, compact_after_entries=4))
    (old,) = story.cluster.leaders()
    story.write(1)
    story.isolate(old)
    for other in {*story.cluster.names} - {old}:
        story.cluster.network.break_connection(old, other)  # or the log itself would wait for it there
    for _ in range(3):
        story.cluster.write_alone(old)
        story.pass_time(0.02)  # each is an entry of its own
    story.until(lambda: any(name != old for name in story.cluster.leaders()))
    (new,) = {*story.cluster.leaders()} - {old}
    for _ in range(30):
        story.write(1, new)
    story.rejoin(old)
    story.until(lambda: bool(story.pieces(new, old)))
    story.cluster.network.block(new, old)
    story.cluster.frames_arrived(old, new, story.pieces(new, old)[:1])
    story.pass_time(0.1)
    assert bool(story.cluster.oracle.violations) == believed
    story.cluster.network.unblock(new, old)
    story.until(lambda: story.member(old).raft().raftLastApplied >= story.member(new).raft().raftLastApplied)


def test_a_leader_that_is_cut_off_serves_no_reads_and_acknowledges_nothing() -> None:
    story = Story(RaftFence(), 5)
    (leader,) = story.cluster.leaders()
    story.write(1)
    story.isolate(leader)
    late = story.cluster.write_alone(leader)
    story.until(lambda: any(name != leader for name in story.cluster.leaders()))
    assert late.returned_at is None
    assert not story.cluster.oracle.violations
