"""Real members on loopback, in one process: they are added, removed and replaced while the instance works."""

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from batonpass.tree import (
    ChangeNotFinished,
    ChangeRefused,
    Member,
    NoQuorum,
    OutcomeUnknown,
    RefusedByInstance,
    Replica,
)
from tests.tree.instances import PROCEDURES, Instance, free_ports, running_instance, until


def newcomer(instance: Instance, name: str, directory: Path) -> Member:
    """A member that is not one yet: its configuration, with every other member's address to knock at."""
    (port,) = free_ports(1)
    known = next(iter(instance.configs.values()))
    member = Member(name, "127.0.0.1", port)
    doors = tuple(door for door in known.members if door.name != name)
    instance.configs[name] = replace(known, name=name, members=(*doors, member), directory=directory / name, join=True)
    return member


def roles(replica: Replica) -> dict[str, str]:
    return {member.name: member.role for member in replica.status.members}


@pytest.mark.parametrize("name", ["a first", "h9"])
async def test_a_member_joins_catches_up_and_votes(tmp_path: Path, name: str) -> None:
    async with running_instance(tmp_path, 1, compact_after_entries=20) as instance:
        leader = await instance.leader()
        for number in range(60):
            await leader.submit("count_once", str(number))
        member = newcomer(instance, name, tmp_path)
        joined = await instance.start(name)
        assert joined.status.configuration_index == -1
        await leader.add_member(member)
        assert roles(leader) == {"h0": "voter", name: "voter"}
        await joined.read_barrier(timeout_s=60)
        assert len(joined.store.children(("counted",))) == 60
        assert await joined.submit("count_once", "by the new one") == 1
        await instance.stop("h0")
        with pytest.raises((NoQuorum, OutcomeUnknown)):
            await joined.submit("count_once", "without a majority", timeout_s=0.5)
        await instance.start("h0")
        await instance.leader()


async def test_a_member_grows_an_instance_from_one_to_three_and_it_survives_its_founder(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 1) as instance:
        founder = await instance.leader()
        for name in ("h1", "h2"):
            member = newcomer(instance, name, tmp_path)
            await instance.start(name)
            await founder.add_member(member)
        await founder.submit("count_once", "x")
        await instance.stop("h0")
        heir = await instance.leader()
        assert await heir.submit("count_once", "y") == 1
        for name in ("h1", "h2"):
            await instance.stop(name)
            await instance.start(name)
        again = await instance.leader()
        await again.read_barrier(timeout_s=60)
        assert len(again.store.children(("counted",))) == 2, "after a restart the log says who the members are"
        assert sorted(roles(again)) == ["h0", "h1", "h2"]


async def test_a_removed_member_stops_with_a_sentence_and_is_refused_afterwards(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader, leaver = await instance.leader(), (await instance.follower()).status.name
        await leader.remove_member(leaver)
        await until(lambda: leaver in instance.removed)
        assert instance.removed[leaver].code == "removed_member"
        assert "not a member" in instance.removed[leaver].sentence
        with pytest.raises(RefusedByInstance, match="removed_member"):
            await Replica(instance.configs[leaver], PROCEDURES).serve()
        assert await leader.submit("count_once", "x") == 1


async def test_removing_leaders_down_to_one_hands_the_leadership_over_first(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        first = await instance.leader()
        await first.remove_member(first.status.name)
        await until(lambda: len(instance.removed) == 1)
        second, last = await instance.leader(), await instance.follower()
        assert set(roles(last)) == set(instance.running)
        assert await last.submit("count_once", "x") == 1
        await last.remove_member(second.status.name)
        await until(lambda: len(instance.removed) == 2)
        assert await last.submit("count_once", "y") == 1
        with pytest.raises(ChangeRefused, match="last_voter"):
            await last.remove_member(last.status.name)
        assert len(last.store.children(("counted",))) == 2


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "alive"])
async def test_a_member_is_replaced_dead_or_alive(tmp_path: Path, size: int, is_dead: bool) -> None:
    async with running_instance(tmp_path, size) as instance:
        leader = await instance.leader()
        for number in range(30):
            await leader.submit("count_once", str(number))
        old = (await instance.follower()).status.name
        asker = next(replica for replica in instance.replicas() if replica.status.name not in (old, leader.status.name))
        if is_dead:
            await instance.stop(old)
        member = newcomer(instance, "z9", tmp_path)
        fresh = await instance.start("z9")
        await asker.replace_member(old, member)
        await asker.replace_member(old, member)  # as one whose answer was lost: it is done, and that is no error
        assert roles(leader).keys() == (set(instance.configs) - {old})
        if not is_dead:
            await until(lambda: old in instance.removed)
        await fresh.read_barrier(timeout_s=60)
        assert len(fresh.store.children(("counted",))) == 30
        assert await fresh.submit("count_once", "x") == 1


@pytest.mark.parametrize("leads", [True, False])
async def test_a_member_may_be_asked_to_have_itself_replaced(tmp_path: Path, *, leads: bool) -> None:
    async with running_instance(tmp_path, 3) as instance:
        old = await (instance.leader() if leads else instance.follower())
        member = newcomer(instance, "z9", tmp_path)
        fresh = await instance.start("z9")
        # As soon as it is gone it stops, and says so all the same.
        await old.replace_member(old.status.name, member)
        await until(lambda: old.status.name in instance.removed)
        await fresh.read_barrier(timeout_s=60)
        assert roles(fresh).keys() == (set(instance.configs) - {old.status.name})


async def test_a_member_that_lost_its_disk_comes_back_by_removal_and_addition(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader = await instance.leader()
        await leader.submit("count_once", "x")
        name = (await instance.follower()).status.name
        await instance.stop(name)
        shutil.rmtree(tmp_path / name)
        config = instance.configs[name] = replace(instance.configs[name], join=True)
        with pytest.raises(RefusedByInstance, match="lost_memory"):
            await Replica(config, PROCEDURES).serve()
        await leader.remove_member(name)
        shutil.rmtree(tmp_path / name)
        returned = await instance.start(name)
        await leader.add_member(config.me)
        await returned.read_barrier(timeout_s=60)
        assert len(returned.store.children(("counted",))) == 1


async def test_the_leadership_goes_where_it_is_wanted_and_no_command_is_lost(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        await instance.leader()
        answers: list[int] = []

        async def write(replica: Replica, name: str) -> None:
            for number in range(40):
                answers.append(await replica.submit("count_once", f"{name}-{number}"))

        async with trio.open_nursery() as nursery:
            for replica in instance.replicas():
                nursery.start_soon(write, replica, replica.status.name)
            for name in ("h0", "h1", "h2", "h1"):
                asker = instance.replicas()[len(answers) % 3]
                assert await asker.transfer_leadership(name) == name
            before = (await instance.leader()).status.name
            assert await instance.replicas()[0].transfer_leadership() != before
        assert answers == [1] * 120


async def test_what_cannot_be_is_refused_with_a_code(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        leader, follower = await instance.leader(), await instance.follower()
        taken = follower.status.members[0]
        requests: dict[str, Callable[[], Awaitable[object]]] = {
            "unknown_member": lambda: follower.remove_member("nobody"),
            "address_in_use": lambda: leader.add_member(Member("new", taken.host, taken.port)),
            "already_member": lambda: follower.add_member(Member("h0", "127.0.0.1", 1)),
            "bad_member": lambda: leader.add_member(Member("new", "", 1)),
            "not_a_voter": lambda: follower.transfer_leadership("nobody"),
        }
        for code, ask in requests.items():
            with pytest.raises(ChangeRefused) as refused:
                await ask()
            assert refused.value.code == code
        with pytest.raises(ChangeNotFinished, match="has not caught up yet, or cannot be reached"):
            await leader.add_member(Member("absent", "127.0.0.1", free_ports(1)[0]), timeout_s=0.5)
        assert roles(leader)["absent"] == "learner"
        await follower.remove_member("absent")
        assert await leader.transfer_leadership(leader.status.name) == leader.status.name


async def test_a_removal_that_would_leave_no_majority_to_be_reached_is_refused(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 5) as instance:
        leader = await instance.leader()
        followers = [name for name in instance.running if name != leader.status.name]
        for name in followers[:2]:
            await instance.stop(name)
        await until(lambda: sum(member.connected for member in leader.status.members) == 3)
        with pytest.raises(ChangeRefused) as refused:
            await leader.remove_member(followers[2])
        assert refused.value.code == "no_majority"
        await leader.remove_member(followers[0])
        assert await leader.submit("count_once", "x") == 1
