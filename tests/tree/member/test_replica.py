"""Real members on loopback, in one process: commit, fail over, restart, read, and survive odd commands."""

import math
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from batonpass.tree import Aborted, DirectoryInUse, MalformedCommand, NoQuorum, OutcomeUnknown, Replica, ReplicaConfig
from batonpass.tree.raft.raft_member import Timing
from tests.tree.instances import configs, running_instance, until


async def test_one_member_alone_commits_and_remembers(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 1) as instance:
        replica = await instance.leader()
        await replica.submit("tree.put", {"path": ["a"], "data": 1})
        await instance.stop("h0")
        replica = await instance.start("h0")
        await replica.read_barrier()
        assert replica.store.get(("a",)) == 1


async def test_leader_and_followers_commit_and_everybody_sees_it(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        for number, replica in enumerate(instance.replicas()):
            assert await replica.submit("count_once", str(number)) == 1
        for replica in instance.replicas():
            await replica.read_barrier()
            assert replica.store.children(("counted",)) == ("0", "1", "2")
        assert len({replica.store.digest() for replica in instance.replicas()}) == 1


async def test_many_commands_at_once_from_everywhere_apply_once_each(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        answers: list[int] = []

        async def submit(replica: Replica, name: str) -> None:
            answers.append(await replica.submit("count_once", name))

        async with trio.open_nursery() as nursery:
            for number in range(150):
                nursery.start_soon(submit, instance.replicas()[number % 3], str(number))
        assert answers == [1] * 150


def _has(replica: Replica, number: int) -> bool:
    return bool(replica.store.get(("a",)) == number)


async def test_followers_hear_of_a_commit_long_before_the_next_heartbeat(tmp_path: Path) -> None:
    # Heartbeats beyond the test's deadline; whoever meets the others without a leader stands early all the same.
    async with running_instance(tmp_path, 3, timing=Timing(200.0, 700.0, 800.0)) as instance:
        leader = await instance.leader()
        await leader.submit("tree.put", {"path": ["a"], "data": 0})
        for replica in instance.replicas():
            await replica.read_barrier()
        # Several: something else may happen to bring the word of one along.
        for number in range(1, 6):
            await leader.submit("tree.put", {"path": ["a"], "data": number})
            for replica in instance.replicas():
                await until(partial(_has, replica, number))


async def test_the_others_go_on_when_the_leader_stops_and_it_catches_up_when_it_returns(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader = (await instance.leader()).status.name
        await (await instance.follower()).submit("count_once", "before")
        await instance.stop(leader)
        for replica in instance.replicas():
            assert await replica.submit("count_once", f"without leader, {replica.status.name}") == 1
        returned = await instance.start(leader)
        await returned.read_barrier()
        assert returned.store.count_children(("counted",)) == 3


async def test_everything_acknowledged_survives_a_restart_of_all(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        for number in range(20):
            await (await instance.follower()).submit("count_once", str(number))
        for name in list(instance.configs):
            await instance.stop(name)
        for name in instance.configs:
            await instance.start(name)
        for replica in instance.replicas():
            await replica.read_barrier(timeout_s=60)
            assert replica.store.count_children(("counted",)) == 20


async def test_a_member_that_missed_a_compaction_gets_a_snapshot(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3, compact_after_entries=20) as instance:
        follower = (await instance.follower()).status.name
        await instance.stop(follower)
        replica = await instance.leader()
        for number in range(100):
            await replica.submit("count_once", str(number))
        returned = await instance.start(follower)
        await returned.read_barrier(timeout_s=60)
        assert returned.store.count_children(("counted",)) == 100
        assert (tmp_path / follower / "snapshot").exists()
        await instance.stop(follower)
        again = await instance.start(follower)
        await again.read_barrier(timeout_s=60)
        assert again.store.digest() == replica.store.digest()


async def test_a_command_submitted_again_under_its_id_is_applied_once(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        for replica in instance.replicas():
            assert await replica.submit("count_once", "x", command_id=("browser 7", 1)) == 1
        assert await (await instance.leader()).submit("count_once", "x", command_id=("browser 7", 2)) == 2


async def test_refusals_reach_the_caller_with_their_code(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        replica = await instance.follower()
        with pytest.raises(Aborted) as refused:
            await replica.submit("tree.update", {"path": ["missing"], "data": 1})
        assert refused.value.code == "node_not_found"
        with pytest.raises(Aborted) as refused:
            await replica.submit("no such procedure")
        assert refused.value.code == "unknown_procedure"
        with pytest.raises(MalformedCommand):
            await replica.submit("tree.put", {"path": ["big"], "data": b"x" * 2_000_000})
        assert await replica.submit("count_once", "after all that") == 1


async def test_without_a_majority_nothing_is_submitted_and_nothing_is_confirmed(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        await instance.leader()
        await instance.stop("h1")
        await instance.stop("h2")
        (replica,) = instance.replicas()
        # A leader that lost its majority needs a while to see it, and takes commands until then.
        await until(lambda: replica.status.leader is None)
        with pytest.raises(NoQuorum):
            await replica.submit("count_once", "x", timeout_s=0.3)
        with pytest.raises(NoQuorum):
            await replica.read_barrier(timeout_s=0.3)
        await instance.start("h1")
        assert await replica.submit("count_once", "x", timeout_s=60) == 1


async def test_a_leader_that_lost_its_majority_does_not_know_the_outcome(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader = await instance.leader()
        others = [name for name in instance.configs if name != leader.status.name]
        for name in others:
            await instance.stop(name)
        with pytest.raises(OutcomeUnknown) as unknown:
            await leader.submit("count_once", "x", timeout_s=0.3)
        for name in others:
            await instance.start(name)
        assert await leader.submit("count_once", "x", timeout_s=60, command_id=unknown.value.command_id) == 1


async def test_waiting_for_a_change_wakes_members_that_did_nothing(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader, watcher = await instance.leader(), await instance.follower()
        await watcher.read_barrier()
        seen = watcher.applied_index
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leader.submit, "count_once", "x")
            assert await watcher.changed(seen) > seen
        assert await watcher.changed(seen) > seen, "a change since then has happened already"


async def test_the_status_tells_who_leads_and_who_is_there(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader = await instance.leader()
        await leader.submit("count_once", "x")
        status = leader.status
        assert status.is_leader
        assert status.leader == status.name
        assert [member.name for member in status.members] == ["h0", "h1", "h2"]
        assert all(member.connected for member in status.members)
        assert status.applied_index == status.commit_index
        assert status.latency.count == 1
        assert 0 < status.latency.p50_ms <= status.latency.max_ms
        assert status.rounds > 0


async def test_a_replica_that_is_not_running_submits_nothing(tmp_path: Path) -> None:
    (config,) = configs(tmp_path, 1)
    replica = Replica(config, {})
    with pytest.raises(NoQuorum, match="not running"):
        await replica.submit("tree.noop")
    with pytest.raises(NoQuorum):
        await replica.read_barrier(timeout_s=0.01)
    assert not replica.status.ready


async def test_two_members_cannot_share_a_directory(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 1) as instance:
        with pytest.raises(DirectoryInUse, match="h0"):
            await Replica(instance.configs["h0"], {}).serve()


async def test_a_port_in_use_is_an_os_error(tmp_path: Path) -> None:
    async with running_instance(tmp_path / "first", 1) as instance:
        config = instance.configs["h0"]
        taken = ReplicaConfig("homeserver", "alpha", "h0", config.members, tmp_path / "second", config.secret)
        with pytest.raises(OSError, match="in use"):
            await Replica(taken, {}).serve()


def test_a_configuration_must_name_its_own_member_and_each_once(tmp_path: Path) -> None:
    (config,) = configs(tmp_path, 1)
    with pytest.raises(ValueError, match="not among"):
        ReplicaConfig("homeserver", "alpha", "stranger", config.members, tmp_path, config.secret)
    with pytest.raises(ValueError, match="same name"):
        ReplicaConfig("homeserver", "alpha", "h0", config.members * 2, tmp_path, config.secret)


async def test_whoever_tries_again_at_once_can_be_cancelled(tmp_path: Path) -> None:
    (config,) = configs(tmp_path, 1)
    replica = Replica(config, {})
    for attempt in (lambda: replica.submit("tree.noop"), replica.read_barrier):
        with trio.move_on_after(0.01) as scope:
            while True:
                with pytest.raises(NoQuorum):
                    await attempt()
        assert scope.cancelled_caught


async def test_waiting_for_ever_is_allowed_and_waiting_for_no_number_is_not(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 1) as instance:
        replica = await instance.leader()
        assert await replica.submit("tree.noop", timeout_s=math.inf) is None
        with pytest.raises(ValueError, match="not a number"):
            await replica.submit("tree.noop", timeout_s=math.nan)


async def test_whoever_waits_for_entries_learns_that_the_member_stopped(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 1) as instance:
        replica = await instance.leader()
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(NoQuorum, match="not running"):
                    await replica.changed()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await instance.stop(replica.status.name)
        with pytest.raises(NoQuorum, match="not running"):
            await replica.wait_applied(10**9)
        with pytest.raises(NoQuorum, match="not running"):
            await replica.read_barrier()


@pytest.mark.parametrize("at_leader", [True, False])
async def test_more_than_the_connections_take_at_once_arrives_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_leader: bool
) -> None:
    """With a bound below what waits, a connection must not be cut for being full, again and again."""
    monkeypatch.setattr("batonpass.tree.net.transport.MAX_OUTBOX_BYTES", 6 * 1024 * 1024)
    monkeypatch.setattr("batonpass.tree.member.replica.CONGESTED_BYTES", 1024 * 1024)
    async with running_instance(tmp_path, 3) as instance:
        replica = await instance.leader() if at_leader else await instance.follower()

        async def put(number: int) -> None:
            data = b"x" * 60_000
            await replica.submit("tree.put", {"path": ["big", str(number)], "data": data}, timeout_s=60.0)

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(put, number)
        await replica.read_barrier(timeout_s=60)
        assert replica.store.count_children(("big",)) == 300
