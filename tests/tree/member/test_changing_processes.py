"""Members in processes of their own are added, replaced and removed while others are killed and clients write."""

from pathlib import Path

import trio

from tests.tree.member.test_member_processes import ProcessInstance, process_instance


async def everything_is_there_once(instance: ProcessInstance, acknowledged: set[str]) -> None:
    for member in instance.processes.values():
        counts = (await member.ask("dump", "dump"))["counts"]
        assert acknowledged <= counts.keys(), "something acknowledged was lost"
        assert set(counts.values()) == {1}, "something was applied twice"


async def begin_load(instance: ProcessInstance, life: int) -> None:
    for name, member in instance.processes.items():
        await member.order("load", client=f"{name}.{life}", writers=2)


async def test_a_killed_member_is_replaced_although_the_leader_and_the_newcomer_are_killed_meanwhile(
    tmp_path: Path,
) -> None:
    async with process_instance(tmp_path) as instance:
        acknowledged: set[str] = set()
        await begin_load(instance, 0)
        for member in instance.processes.values():
            await member.more_acknowledged(30)
        leader = await instance.leader()
        lost, asker = (name for name in instance.names if name != leader)
        gone = instance.processes.pop(lost)
        await gone.kill()
        acknowledged.update(gone.acknowledged)
        await instance.start_newcomer("h9")
        order = {"old": lost, "new": "h9", "port": instance.newcomers["h9"]}
        await instance.processes[asker].order("replace", **order)
        # Somewhere between its admission and its vote, or just after: the outcome must be the same.
        await trio.sleep(0.05)
        for name in ("h9", leader):
            killed = instance.processes.pop(name)
            await killed.kill()
            acknowledged.update(killed.acknowledged)
            await instance.start(name)
        await instance.processes[asker].event("changed")
        await instance.processes[asker].more_acknowledged(30)
        for member in instance.processes.values():
            acknowledged.update(member.acknowledged)
        await everything_is_there_once(instance, acknowledged)
        roles = (await instance.processes[asker].ask("members", "members"))["roles"]
        assert roles == {leader: "voter", asker: "voter", "h9": "voter"}


async def test_the_leader_is_removed_under_load_and_never_comes_back(tmp_path: Path) -> None:
    async with process_instance(tmp_path) as instance:
        await begin_load(instance, 0)
        for member in instance.processes.values():
            await member.more_acknowledged(30)
        leader = await instance.leader()
        await instance.processes[leader].order("remove", name=leader)
        removed = instance.processes.pop(leader)
        assert (await removed.event("refused"))["codes"] == ["removed_member"]
        await removed.process.wait()
        acknowledged = set(removed.acknowledged)
        again = await instance.start(leader)
        assert (await again.event("refused"))["codes"] == ["removed_member"]
        await instance.processes.pop(leader).process.wait()
        for member in instance.processes.values():
            await member.more_acknowledged(30)
            acknowledged.update(member.acknowledged)
        await everything_is_there_once(instance, acknowledged)
