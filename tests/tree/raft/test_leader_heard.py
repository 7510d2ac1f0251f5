"""Who leads is who was heard of lately, and a member that was busy listens before it judges who is silent."""

import logging
import random
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batonpass.tree.data.work_budget import MAX_STEPS
from batonpass.tree.machine.commands import Command, encode_command, encode_entry
from batonpass.tree.net.membership import ChangeRefused, Dismiss
from batonpass.tree.raft.raft import APPLIED_STEPS, COMMAND_KIND, Timing
from tests.budget import examples
from tests.tree.simulated_cluster import SimulatedCluster

ELECTION_MAX_S = Timing().election_max_s
# As on a machine that is three times as slow as a small one: the longest command then takes a second.
SECONDS_PER_STEP = 4e-6


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def healed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    cluster = SimulatedCluster(
        directory, random.Random(1), monkeypatch, size=3, compact_after=10_000, batch_bytes=1 << 21
    )
    cluster.heal()
    return cluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    return healed(tmp_path, monkeypatch)


def parts(cluster: SimulatedCluster) -> tuple[str, list[str]]:
    """The leader, and the others."""
    (led,) = [name for name in cluster.names if cluster.raft(name).is_leader()]
    return led, [name for name in cluster.names if name != led]


def deliver(cluster: SimulatedCluster, stopped: Collection[str]) -> None:
    """Everything that is under way between those that run; connections stay, also to the others."""
    while True:
        found = [
            (pair, name)
            for pair in sorted(cluster.connections, key=sorted)
            for name, queue in cluster.connections[pair].items()
            if queue and name not in stopped
        ]
        if not found:
            return
        for pair, name in found:
            (sender,) = pair - {name}
            while cluster.connections[pair][name]:
                cluster.members[name].receive(sender, cluster.connections[pair][name].popleft())
                cluster.members[name].make_durable()


def pass_time(cluster: SimulatedCluster, seconds: float, stopped: Collection[str] = ()) -> None:
    """Let time pass while some members are stopped, as by SIGSTOP."""
    end_s = cluster.now_s + seconds
    while cluster.now_s < end_s:
        cluster.now_s += 0.005
        for name in cluster.names:
            if name not in stopped:
                cluster.members[name].tick()
                cluster.members[name].make_durable()
        deliver(cluster, stopped)


def test_a_leader_that_is_not_heard_any_more_is_not_named_though_its_connection_stands(
    cluster: SimulatedCluster,
) -> None:
    led, (one, other) = parts(cluster)
    assert cluster.raft(one).leader_name() == led
    assert cluster.raft(one).why_no_leader() == ""
    pass_time(cluster, ELECTION_MAX_S + 0.2, stopped=[led, other])
    raft = cluster.raft(one)
    assert raft.leader_name() is None
    assert raft.why_no_leader() == f"its leader {led} has not been heard of for {ELECTION_MAX_S + 0.2:.1f} s"
    pass_time(cluster, 30.0, stopped=[led, other])
    assert raft.leader_name() is None
    pass_time(cluster, 3.0)
    assert {cluster.raft(name).leader_name() for name in cluster.names} == {parts(cluster)[0]}


def test_a_leader_that_no_majority_answers_does_not_say_that_it_leads(cluster: SimulatedCluster) -> None:
    led, others = parts(cluster)
    pass_time(cluster, ELECTION_MAX_S + 0.1, stopped=others)
    raft = cluster.raft(led)
    assert raft.is_leader(), "it tries on"
    assert raft.leader_name() is None
    assert raft.why_no_leader().startswith("it leads, but no majority of the members has answered it for 1.")
    assert not any(progress.connected for progress in raft.progress().values())
    pass_time(cluster, 0.3)
    assert cluster.raft(led).leader_name() == led


def test_one_silent_follower_of_two_takes_nothing_from_the_leader(cluster: SimulatedCluster) -> None:
    led, (one, other) = parts(cluster)
    pass_time(cluster, 10.0, stopped=[one])
    assert cluster.raft(led).leader_name() == cluster.raft(other).leader_name() == led
    assert {name: seen.connected for name, seen in cluster.raft(led).progress().items()} == {one: False, other: True}


def test_the_members_are_not_changed_into_a_majority_that_is_silent(cluster: SimulatedCluster) -> None:
    led, (one, other) = parts(cluster)
    pass_time(cluster, 2.0, stopped=[one])
    with pytest.raises(ChangeRefused, match="no majority of the voters could be reached"):
        cluster.raft(led).propose_change(Dismiss(other))
    with pytest.raises(ChangeRefused, match=f"{one} is not connected to the leader {led}, or is silent"):
        cluster.raft(led).transfer_leadership(one)


def test_followers_that_were_busy_hear_the_leader_out_before_they_depose_it(cluster: SimulatedCluster) -> None:
    led, others = parts(cluster)
    term = cluster.raft(led).raftCurrentTerm
    for away_s in (1.5, 2.0, 2.3):
        cluster.now_s += away_s
        for _ in range(2):  # each has its turns before it has read anything of the leader's
            for name in others:
                cluster.members[name].tick()
                cluster.members[name].make_durable()
            deliver(cluster, [led])
        pass_time(cluster, 1.0)
        assert (parts(cluster)[0], cluster.raft(led).raftCurrentTerm) == (led, term), away_s


@pytest.mark.parametrize("longer_s", [0.1, 0.4])
def test_what_held_up_all_members_deposes_no_leader_that_takes_somewhat_longer_than_others(
    cluster: SimulatedCluster, longer_s: float
) -> None:
    led, _ = parts(cluster)
    term = cluster.raft(led).raftCurrentTerm
    for away_s in (1.7, 1.9):
        cluster.now_s += away_s
        pass_time(cluster, longer_s, stopped=[led])
        pass_time(cluster, 2.0)
        assert (parts(cluster)[0], cluster.raft(led).raftCurrentTerm) == (led, term), away_s


def test_a_member_that_was_busy_listens_once_and_stands_then(cluster: SimulatedCluster) -> None:
    led, others = parts(cluster)
    cluster.now_s += 5.0
    for name in others:
        cluster.members[name].tick()
    pass_time(cluster, 2.0, stopped=[led])
    (new,) = [name for name in others if cluster.raft(name).is_leader()]
    assert cluster.raft(new).leader_name() == new


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(15))
@given(entries=st.lists(st.lists(st.integers(0, MAX_STEPS + 10), min_size=1, max_size=12), min_size=1, max_size=4))
def test_no_commands_however_long_depose_a_leader_or_keep_it_from_its_heartbeats(
    tmp_path_factory: pytest.TempPathFactory, entries: list[list[int]]
) -> None:
    """Every step takes all members time; the leader must be heard throughout, and nobody stand for election."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        cluster = healed(tmp_path_factory.mktemp("busy"), monkeypatch)
        led, _ = parts(cluster)
        term, number, slices = cluster.raft(led).raftCurrentTerm, 0, 0
        for entry in entries:
            commands = []
            for steps in entry:
                number += 1
                commands.append(encode_command(Command("work", steps, "hostile", number)))
            assert cluster.raft(led).submit(COMMAND_KIND + encode_entry(commands))
        while not (slices and cluster.converged()):
            slices += 1
            assert slices < 2000
            longest = 0
            for name, member in cluster.members.items():
                before = member.machine.store.steps_taken
                cluster.raft(name).tick() if not member.journal.dirty else cluster.tick(name)
                member.make_durable()
                longest = max(longest, member.machine.store.steps_taken - before)
            assert longest <= APPLIED_STEPS + MAX_STEPS
            cluster.now_s += 0.005 + longest * SECONDS_PER_STEP
            deliver(cluster, ())
            assert [cluster.raft(name).leader_name() for name in cluster.names] == [led] * 3
        assert (parts(cluster)[0], cluster.raft(led).raftCurrentTerm) == (led, term)
        assert cluster.members[led].machine.answer_to("hostile", number) is not None


def test_a_snapshot_is_of_a_moment_between_two_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedCluster(tmp_path, random.Random(3), monkeypatch, size=3, compact_after=3, batch_bytes=1 << 21)
    cluster.heal()
    led, _ = parts(cluster)
    for number in range(1, 40):
        commands = [encode_command(Command("count_once", number, "c", number * 2))]
        commands.append(encode_command(Command("work", APPLIED_STEPS, "c", number * 2 + 1)))
        cluster.raft(led).submit(COMMAND_KIND + encode_entry(commands * 2))
        pass_time(cluster, 0.1)
    for name in cluster.names:
        cluster.crash(name)
    cluster.heal()
    cluster.check()
    store = cluster.members[led].machine.store
    assert [store.get(("counted", str(number))) for number in range(1, 40)] == [1] * 39
    assert all((tmp_path / name / "snapshot").exists() for name in cluster.names)
