"""Who has no reason to stand for election deposes nobody, and who has one is elected soon."""

import logging
import random
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path

import pytest

from batonpass.tree.member.replica import Replica
from batonpass.tree.net.membership import Dismiss
from tests.tree.simulated_cluster import SimulatedCluster


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    healed = SimulatedCluster(
        tmp_path, random.Random(1), monkeypatch, size=3, compact_after=10_000, batch_bytes=1 << 21
    )
    healed.heal()
    return healed


def leader(cluster: SimulatedCluster) -> str:
    (name,) = [name for name in cluster.names if cluster.running(name) and cluster.raft(name).is_leader()]
    return name


def pass_time(cluster: SimulatedCluster, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
    """Let all that run do what they do, for so long or until something is the case; how long it took."""
    began_s = cluster.now_s
    while cluster.now_s < began_s + seconds and not until():
        cluster.now_s += 0.005
        for name in cluster.names:
            if cluster.running(name):
                cluster.members[name].tick()
                cluster.members[name].make_durable()
        while cluster.deliver_one():
            for name in cluster.names:
                if cluster.running(name):
                    cluster.members[name].make_durable()
    return cluster.now_s - began_s


def cut(cluster: SimulatedCluster, one: str, *others: str) -> None:
    for other in others:
        cluster.disconnect(frozenset((one, other)))


def test_a_follower_that_loses_only_its_connection_to_the_leader_deposes_nobody(cluster: SimulatedCluster) -> None:
    led, term = leader(cluster), cluster.raft(leader(cluster)).raftCurrentTerm
    half_cut = next(name for name in cluster.names if name != led)
    cut(cluster, half_cut, led)
    pass_time(cluster, 10.0)
    assert (leader(cluster), cluster.raft(led).raftCurrentTerm) == (led, term)
    assert cluster.raft(half_cut).raftCurrentTerm == term, "it asks, and raises no term"
    cluster.connect(half_cut, led)
    pass_time(cluster, 1.0)
    assert cluster.raft(half_cut).leader_name() == led


def test_a_member_that_returns_after_long_deposes_nobody(cluster: SimulatedCluster) -> None:
    led, term = leader(cluster), cluster.raft(leader(cluster)).raftCurrentTerm
    away, other = (name for name in cluster.names if name != led)
    cut(cluster, away, led, other)
    pass_time(cluster, 20.0)
    cluster.submit_somewhere()
    cluster.connect(away, led)
    cluster.connect(away, other)
    pass_time(cluster, 5.0)
    assert (leader(cluster), cluster.raft(led).raftCurrentTerm) == (led, term)
    assert cluster.converged()


def test_a_lost_leader_is_replaced_at_once_and_a_silent_one_after_an_election_timeout(
    cluster: SimulatedCluster,
) -> None:
    killed = leader(cluster)
    cluster.crash(killed)
    others = [name for name in cluster.names if name != killed]
    assert pass_time(cluster, 5.0, lambda: any(cluster.raft(name).is_leader() for name in others)) < 0.5
    cluster.members[killed].start()
    cluster.heal()
    stopped = leader(cluster)
    others = [name for name in cluster.names if name != stopped]
    waited_s = 0.0
    while not any(cluster.raft(name).is_leader() for name in others) and waited_s < 5.0:
        cluster.now_s += 0.005
        waited_s += 0.005
        for name in others:
            cluster.members[name].tick()
            cluster.members[name].make_durable()
        for pair in sorted(cluster.connections, key=sorted):
            for name in sorted(pair - {stopped}):
                (sender,) = pair - {name}
                while cluster.connections[pair][name] and sender != stopped:
                    cluster.members[name].receive(sender, cluster.connections[pair][name].popleft())
                    cluster.members[name].make_durable()
    assert 0.5 < waited_s < 1.5


@pytest.mark.parametrize("seed", range(10))
def test_after_the_loss_of_a_leader_a_command_is_committed_long_before_a_submission_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In virtual time: real replicas are given a minute by the tests, because the machine may have much else to do."""
    patience_s = signature(Replica.submit).parameters["timeout_s"].default
    cluster = SimulatedCluster(
        tmp_path, random.Random(seed), monkeypatch, size=3, compact_after=10_000, batch_bytes=1 << 21
    )
    cluster.heal()
    killed = leader(cluster)
    cluster.crash(killed)
    others = [name for name in cluster.names if name != killed]
    waited_s = pass_time(cluster, patience_s, lambda: any(cluster.raft(name).is_leader() for name in others))
    cluster.submit_somewhere()

    def applied() -> bool:
        return all(cluster.members[name].machine.store.exists(("counted", "1")) for name in others)

    waited_s += pass_time(cluster, patience_s, applied)
    assert applied()
    assert waited_s < patience_s / 4


def test_a_leader_hears_that_its_term_is_over_from_a_member_that_nobody_would_elect(cluster: SimulatedCluster) -> None:
    """Such a member follows nobody of a lower term, and asking before standing keeps it from ever deposing one."""
    led = leader(cluster)
    ahead = next(name for name in cluster.names if name != led)
    cluster.raft(ahead)._step_down(cluster.raft(led).raftCurrentTerm + 5)
    cluster.submit_somewhere()
    pass_time(cluster, 5.0)
    assert cluster.converged()
    assert len({cluster.raft(name).raftCurrentTerm for name in cluster.names}) == 1


def test_a_transfer_to_a_member_that_does_not_answer_is_given_up_and_commands_flow_again(
    cluster: SimulatedCluster,
) -> None:
    led = leader(cluster)
    target, other = (name for name in cluster.names if name != led)
    assert cluster.raft(led).transfer_leadership(target) == target
    assert not cluster.raft(led).submit(b"\0x"), "no commands meanwhile"
    for pair in list(cluster.connections):
        if target in pair:
            cluster.connections[pair][target].clear()
    cluster.now_s += 1.3
    cluster.members[led].tick()
    cluster.submit_somewhere()
    assert cluster.raft(led).is_leader()
    assert cluster.raft(led)._handover is None
    cut(cluster, target, led, other)
    pass_time(cluster, 1.0)
    assert cluster.acknowledged


def test_a_transfer_takes_no_longer_than_a_few_round_trips(cluster: SimulatedCluster) -> None:
    led = leader(cluster)
    target = next(name for name in cluster.names if name != led)
    cluster.submit_somewhere()
    cluster.raft(led).transfer_leadership(target)
    assert pass_time(cluster, 5.0, lambda: cluster.raft(target).is_leader()) < 0.3
    pass_time(cluster, 1.0)
    assert cluster.converged()
    assert cluster.acknowledged


def test_a_leader_that_heard_that_it_is_alone_has_not_forgotten_it_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one may be gone for good by then, and a leader of two would wait for it for ever."""
    pair = SimulatedCluster(tmp_path, random.Random(3), monkeypatch, size=2, compact_after=10_000, batch_bytes=1 << 21)
    pair.heal()
    led = leader(pair)
    other = next(name for name in pair.names if name != led)
    pair.raft(led).propose_change(Dismiss(other))
    while pair.raft(led).configuration.voters != (led,):
        pair.now_s += 0.01
        for name in pair.names:
            pair.members[name].tick()
            pair.deliver_one()
    pair.crash(led)
    pair.crash(other)
    pair.members[led].start()
    pass_time(pair, 2.0, lambda: pair.raft(led).is_leader())
    assert pair.raft(led).is_leader()


def test_a_reluctant_member_leads_only_if_no_other_one_stands(cluster: SimulatedCluster) -> None:
    led = leader(cluster)
    reluctant, willing = (name for name in cluster.names if name != led)
    cluster.raft(reluctant).reluctant = True
    for _ in range(3):
        cut(cluster, led, reluctant, willing)
        pass_time(cluster, 10.0, cluster.raft(willing).is_leader)
        assert cluster.raft(willing).is_leader()
        assert not cluster.raft(reluctant).is_leader()
        cluster.heal()
        led, willing = willing, led
    cut(cluster, led, reluctant, willing)
    cluster.raft(willing).reluctant = True
    pass_time(cluster, 20.0, lambda: any(cluster.raft(name).is_leader() for name in (willing, reluctant)))
    assert any(cluster.raft(name).is_leader() for name in (willing, reluctant)), "somebody has to"
