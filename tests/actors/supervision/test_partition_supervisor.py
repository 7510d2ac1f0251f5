"""Partition supervisors: many copies of one child, found by key."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    ActorSpec,
    ChildSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    From,
    NoProc,
    Partition,
    PartitionSupervisor,
    PartitionSupervisorSpec,
    Reply,
    Restart,
    Server,
    ServiceSpec,
    Supervisor,
    SupervisorError,
    System,
)
from tests.actors.servers import Counter

via = PartitionSupervisor.via


class Teller(Server[Any]):
    """Answers any call with what it was started with."""

    def handle_call(self, request: Any, from_: From, state: Any) -> Reply[Any]:
        return Reply(state)


async def start(system: System, child: ChildSpec | None = None, **flags: Any) -> Any:
    flags = {"partitions": 3, **flags}
    await system.start_child(
        PartitionSupervisorSpec("parts", child or ActorSpec("x", Teller, "arg"), name="p", **flags)
    )
    return system.named("p")


async def test_an_integer_belongs_to_the_partition_of_its_remainder(system: System) -> None:
    parts = await start(system, with_arguments=lambda arg, partition: (arg, partition))
    assert [await via(parts, key).call("?") for key in range(6)] == [("arg", n) for n in (0, 1, 2, 0, 1, 2)]
    assert [await via(parts, -key).call("?") for key in range(1, 5)] == [("arg", n) for n in (1, 2, 0, 1)]


async def test_every_other_key_always_belongs_to_the_same_partition(system: System) -> None:
    parts = await start(system, partitions=8, with_arguments=lambda arg, partition: partition)
    names = [f"player-{number}" for number in range(50)]
    owners = [await via(parts, name).call("?") for name in names]
    assert len(set(owners)) == 8
    assert owners == [await via(system.root.process.system.named("p"), name).call("?") for name in names]


async def test_a_ref_goes_by_its_pid(system: System) -> None:
    parts = await start(system, with_arguments=lambda arg, partition: partition)
    for _ in range(3):
        ref = await system.start(Counter, 0)
        assert await via(parts, ref).call("?") == ref.pid % 3


async def test_partitions_are_counted_and_shown_by_number(system: System) -> None:
    parts = await start(system)
    assert PartitionSupervisor.partitions(parts) == 3
    counts = await PartitionSupervisor.count_children(parts)
    assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (3, 3, 0, 3)
    assert [(child.id, child.type) for child in await PartitionSupervisor.which_children(parts)] == [
        (number, "worker") for number in range(3)
    ]


async def test_an_address_goes_on_working_after_a_crash_and_others_do_not_notice(system: System) -> None:
    parts = await start(system, ActorSpec("counter", Counter, 0))
    one, two = via(parts, 1), via(parts, 2)
    one.cast(5)
    two.cast(7)
    first_life = one.ref
    one.cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert one.ref is not first_life
    assert [await one.call("get"), await two.call("get")] == [0, 7]


async def test_a_partition_that_was_terminated_is_not_there(system: System) -> None:
    parts = await start(system, ActorSpec("counter", Counter, 0))
    await Supervisor.terminate_child(parts, 1)
    one = via(parts, 1)
    assert not one.alive
    one.cast(1)
    one.send("nobody hears it")
    with pytest.raises(NoProc, match="partition"):
        await one.call("get")
    await Supervisor.restart_child(parts, 1)
    assert await one.call("get") == 0


async def test_the_number_of_partitions_is_fixed(system: System) -> None:
    parts = await start(system)
    with pytest.raises(SupervisorError, match="fixed"):
        await Supervisor.start_child(parts, ActorSpec("more", Counter, 0))
    with pytest.raises(SupervisorError, match="fixed"):
        await Supervisor.delete_child(parts, 1)
    assert PartitionSupervisor.partitions(parts) == 3


async def test_dynamic_supervisors_may_be_partitions(system: System) -> None:
    parts = await start(system, DynamicSupervisorSpec("each"))
    for number in range(9):
        await DynamicSupervisor.start_child(via(parts, f"player-{number}"), ActorSpec("x", Counter, 0))
    counts = [await DynamicSupervisor.count_children(via(parts, number)) for number in range(3)]
    assert sum(count.active for count in counts) == 9
    assert (await PartitionSupervisor.count_children(parts)).supervisors == 3


async def test_without_a_supervisor_there_are_no_partitions(system: System) -> None:
    gone: Partition = via(system.named("nobody"), "key")
    assert gone.ref is None
    with pytest.raises(NoProc):
        await gone.call("?")
    with pytest.raises(SupervisorError, match="not running"):
        PartitionSupervisor.partitions(system.named("nobody"))
    with pytest.raises(SupervisorError, match="no partition supervisor"):
        PartitionSupervisor.partitions(system.root)


async def test_a_partition_that_waits_holds_up_only_its_own_keys(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Slow(Server[None]):
        async def handle_call(self, request: float, from_: From, state: None) -> Reply[None]:
            await trio.sleep(request)
            return Reply(None)

    parts = await start(system, ActorSpec("slow", Slow))
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for key in range(3):
            nursery.start_soon(via(parts, key).call, 2.0)
    assert trio.current_time() - began_s == 2.0


async def serve(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()


@pytest.mark.parametrize(
    ("child", "flags", "complaint"),
    [
        (ActorSpec("a", Counter, 0), {"partitions": 0}, "1 or more"),
        (ActorSpec("a", Counter, 0, name="one"), {"partitions": 2}, "name"),
        (ActorSpec("a", Counter, 0, restart=Restart.TEMPORARY, significant=True), {"partitions": 2}, "significant"),
        (ServiceSpec("a", serve), {"partitions": 2, "with_arguments": lambda arg, partition: arg}, "ActorSpec"),
    ],
)
def test_what_makes_no_sense_is_refused(child: ChildSpec, flags: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PartitionSupervisorSpec("parts", child, **flags)


def test_a_key_without_a_stable_hash_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be a key"):
        via(None, 1.5)  # type: ignore[arg-type]  # the key is looked at first


async def test_fewer_partitions_have_all_keys_and_more_have_them_again(system: System) -> None:
    await system.start_child(PartitionSupervisorSpec("p", ActorSpec("c", Counter, 0), partitions=4, name="p"))
    supervisor = system.named("p")
    before = [PartitionSupervisor.via(supervisor, key).ref for key in range(8)]
    assert await PartitionSupervisor.resize(supervisor, 2) == 4
    assert PartitionSupervisor.partitions(supervisor) == 2
    assert [PartitionSupervisor.via(supervisor, key).ref for key in range(8)] == [*before[:2]] * 4
    assert [ref is not None and ref.alive for ref in before[:4]] == [True, True, False, False]
    assert await PartitionSupervisor.resize(supervisor, 3) == 2
    third = PartitionSupervisor.via(supervisor, 2).ref
    assert third is not None
    assert third not in before
    assert await PartitionSupervisor.via(supervisor, 5).call("get") == 0
    with pytest.raises(ValueError, match="has 4 partitions at most, so not 5"):
        await PartitionSupervisor.resize(supervisor, 5)
    wrong: Any = "2"
    with pytest.raises(TypeError, match="partitions must be a whole number"):
        await PartitionSupervisor.resize(supervisor, wrong)
    with pytest.raises(ValueError, match="1 or more"):
        await PartitionSupervisor.resize(supervisor, 0)
    assert PartitionSupervisor.partitions(supervisor) == 3
