"""Groups on nodes: who is in them, who is told, and what becomes of members when nodes come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors import ActorSpec, NoProc, Ref, System
from batonpass.actors.groups import Groups, GroupsSpec, JoinedGroup, LeftGroup, Presence
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import node
from tests.actors.servers import Counter as CountingServer
from tests.actors.servers import Recorder

NODES = ("alpha", "beta", "gamma")


@asynccontextmanager
async def member(network: MemoryNetwork, name: str) -> AsyncIterator[tuple[System, Groups]]:
    """One life of a node with a scope."""
    groups = Groups("rooms")
    async with node(network, name) as system:
        await system.start_child(GroupsSpec("groups", groups, nodes=NODES, beat_s=1.0))
        yield system, groups


@asynccontextmanager
async def three() -> AsyncIterator[tuple[MemoryNetwork, dict[str, tuple[System, Groups]]]]:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        nursery.start_soon(network.serve)
        yield network, {name: await stack.enter_async_context(member(network, name)) for name in NODES}
        await stack.aclose()
        nursery.cancel_scope.cancel()


async def told(ref: Ref) -> list[Any]:
    """What a recorder has been told."""
    await wait_all_tasks_blocked()
    messages: list[Any] = await ref.call("all")
    return messages


def names(refs: list[Ref]) -> Counter[tuple[str, int]]:
    """Members, as every node would call them."""
    return Counter((ref.node, ref.pid) for ref in refs)


async def test_members_of_all_nodes_are_known_on_all_and_told_once(autojump_clock: MockClock) -> None:
    async with three() as (_, nodes):
        members = {name: [await system.start(Recorder, []) for _ in range(2)] for name, (system, _) in nodes.items()}
        for name, (_, groups) in nodes.items():
            groups.join("lobby", members[name])
            assert groups.local_members("lobby") == members[name], "at once, here"
        await trio.sleep(2.0)
        everybody = names([ref for refs in members.values() for ref in refs])
        for _, groups in nodes.values():
            assert len(groups.nodes) == 2
            assert names(groups.members("lobby")) == everybody
            assert groups.groups() == ["lobby"]
        for number in range(3):
            nodes["alpha"][1].broadcast("lobby", number)
        nodes["beta"][1].local_broadcast("lobby", "only here")
        nodes["beta"][1].broadcast("nobody is in it", "lost")
        await trio.sleep(1.0)
        for name, refs in members.items():
            for ref in refs:
                assert sorted(await told(ref), key=str) == [0, 1, 2] + ["only here"] * (name == "beta")
                assert [message for message in await told(ref) if isinstance(message, int)] == [0, 1, 2]


async def test_a_member_leaves_as_often_as_it_joined_or_when_it_ends(autojump_clock: MockClock) -> None:
    async with three() as (_, nodes):
        (system, groups), (_, far) = nodes["alpha"], nodes["gamma"]
        ref = await system.start(Recorder, [])
        groups.join("lobby", [ref, ref])
        groups.join(("room", 7), ref)
        await trio.sleep(2.0)
        assert names(far.members("lobby")) == Counter({("alpha", ref.pid): 2})
        far.broadcast("lobby", "twice")
        await trio.sleep(0.5)
        assert await told(ref) == ["twice", "twice"]
        assert groups.leave("lobby", ref)
        await trio.sleep(0.5)
        assert names(far.members("lobby")) == Counter({("alpha", ref.pid): 1})
        assert not groups.leave("lobby", await system.start(Recorder, []))
        ref.kill()
        assert groups.groups() == [], "in the same step"
        await trio.sleep(0.5)
        assert far.groups() == []


async def test_who_monitors_is_told_what_changes_and_what_is_there(autojump_clock: MockClock) -> None:
    async with three() as (network, nodes):
        (system, groups), (beta, far) = nodes["alpha"], nodes["beta"]
        first = await system.start(Recorder, [])
        groups.join("lobby", first)
        await trio.sleep(2.0)
        watcher, ender = await beta.start(Recorder, []), await beta.start(Recorder, [])
        watch, there = far.monitor(watcher, "lobby")
        everything, _ = far.monitor(ender)
        assert [names(refs) for refs in there.values()] == [Counter({("alpha", first.pid): 1})]
        second = await system.start(Recorder, [])
        groups.join("lobby", second)
        groups.join("cellar", second)
        await trio.sleep(0.5)
        second.kill()
        network.kill("alpha")
        await trio.sleep(20.0)
        [joined, left, lost] = await told(watcher)
        assert (type(joined), joined.monitor, joined.group, names(joined.refs)) == (
            JoinedGroup,
            watch,
            "lobby",
            Counter({("alpha", second.pid): 1}),
        )
        assert (type(left), names(left.refs)) == (LeftGroup, Counter({("alpha", second.pid): 1}))
        assert (type(lost), names(lost.refs)) == (LeftGroup, Counter({("alpha", first.pid): 1}))
        assert [message.group for message in await told(ender)].count("cellar") == 2
        assert far.demonitor(watch)
        assert not far.demonitor(watch)
        ender.kill()
        far.join("lobby", watcher)
        assert len(await told(watcher)) == 3
        assert not far.demonitor(everything)


async def test_members_of_a_lost_node_leave_and_those_of_its_next_life_are_there(autojump_clock: MockClock) -> None:
    async with three() as (network, nodes):
        for system, groups in nodes.values():
            groups.join("lobby", await system.start(Recorder, []))
        await trio.sleep(2.0)
        network.kill("gamma")
        await trio.sleep(20.0)
        for name in ("alpha", "beta"):
            assert {ref.node for ref in nodes[name][1].members("lobby")} == {"alpha", "beta"}
        async with member(network, "gamma") as (system, groups):
            groups.join("lobby", await system.start(Recorder, []))
            await trio.sleep(20.0)
            for known in (nodes["alpha"][1], nodes["beta"][1], groups):
                assert Counter(ref.node for ref in known.members("lobby")) == Counter(NODES)


async def test_a_partition_parts_and_heals(autojump_clock: MockClock) -> None:
    async with three() as (network, nodes):
        for system, groups in nodes.values():
            groups.join("lobby", await system.start(Recorder, []))
        await trio.sleep(2.0)
        network.cut.add(frozenset(("alpha", "beta")))
        await trio.sleep(40.0)
        assert {ref.node for ref in nodes["alpha"][1].members("lobby")} == {"alpha", "gamma"}
        assert {ref.node for ref in nodes["gamma"][1].members("lobby")} == set(NODES)
        late = await nodes["beta"][0].start(Recorder, [])
        nodes["beta"][1].join("lobby", late)
        network.cut.clear()
        network.changed()
        await trio.sleep(40.0)
        for _, groups in nodes.values():
            assert Counter(ref.node for ref in groups.members("lobby")) == Counter({"alpha": 1, "beta": 2, "gamma": 1})


async def test_a_scope_that_is_restarted_keeps_its_members(autojump_clock: MockClock) -> None:
    async with three() as (_, nodes):
        (system, groups), (_, far) = nodes["alpha"], nodes["beta"]
        stays, goes = await system.start(Recorder, []), await system.start(Recorder, [])
        groups.join("lobby", [stays, goes])
        await trio.sleep(2.0)
        keeper = system.whereis("groups.rooms")
        assert keeper is not None
        keeper.kill()
        with pytest.raises(NoProc):
            groups.join("lobby", stays)
        goes.kill()
        await trio.sleep(3.0)
        assert groups.local_members("lobby") == [stays]
        assert names(far.members("lobby")) == Counter({("alpha", stays.pid): 1})
        assert sorted(groups.nodes) == ["beta", "gamma"]
        groups.join("lobby", await system.start(Recorder, []))
        await trio.sleep(0.5)
        assert len(far.members("lobby")) == 2


async def test_nonsense_from_a_peer_ends_nobody(autojump_clock: MockClock) -> None:
    async with three() as (_, nodes):
        (alpha, groups), (beta, _) = nodes["alpha"], nodes["beta"]
        await trio.sleep(2.0)
        keeper = alpha.whereis("groups.rooms")
        stranger = await beta.start(Recorder, [])
        scope = beta.remote("alpha").named("groups.rooms")
        mine = await alpha.start(Recorder, [])
        groups.join("lobby", mine)
        nonsense: tuple[Any, ...] = (
            "x",
            None,
            ("tell", stranger, ["no", "group"], 1),
            ("tell",),
            ("join", stranger, 1, ["no", "group"], [stranger]),
            ("join", "beta", 1, "lobby", [stranger]),
            ("snapshot", stranger, 1, True, True, [("lobby", [mine, 5])]),
            ("leave", stranger, "x", []),
        )
        for message in nonsense:
            scope.cast(message)
        await trio.sleep(5.0)
        assert alpha.whereis("groups.rooms") is keeper
        assert groups.members("lobby") == [mine]


async def test_without_other_nodes_a_scope_is_a_registry_of_topics(system: System, autojump_clock: MockClock) -> None:
    groups = Groups("alone")
    assert groups.members("lobby") == groups.groups() == groups.nodes == groups.local_groups() == []
    with pytest.raises(NoProc):
        groups.broadcast("lobby", "x")
    await system.start_child(GroupsSpec("g", groups))
    ref = await system.start(Recorder, [])
    groups.join(1, ref)
    groups.join(True, [ref, ref])
    groups.broadcast(1, "one")
    groups.broadcast(True, "true")
    assert await told(ref) == ["one", "true", "true"]
    await trio.sleep(20.0)
    ref.kill()
    with pytest.raises(NoProc):
        groups.join("lobby", ref)
    with pytest.raises(NoProc):
        groups.monitor(ref)
    with pytest.raises(RuntimeError, match="is run by"):
        groups.open((await system.start(CountingServer, 0)).process)


async def test_groups_that_a_dict_takes_for_one_are_several(system: System, autojump_clock: MockClock) -> None:
    groups, presence = Groups("exact"), Presence("exact")
    await system.start_child(GroupsSpec("g", groups))
    await system.start_child(presence.spec("p"))
    watcher, ref = await system.start(Recorder, []), await system.start(Recorder, [])
    groups.monitor(watcher, ("room", 1))
    for group in (("room", True), ("room", 1.0), ("room", 1)):
        groups.join(group, ref)
        presence.track(ref, group, "anna", device="phone")
    [joined] = await told(watcher)
    assert type(joined.group[1]) is int
    _, there = groups.monitor(watcher)
    assert sum(map(len, there.values())) == 3
    assert presence.at(("room", True)) == {"anna": [{"device": "phone"}]}


async def test_only_a_node_itself_says_who_of_it_is_in_a_group(autojump_clock: MockClock) -> None:
    async with three() as (_, nodes):
        await trio.sleep(2.0)
        far = await nodes["beta"][0].start(Recorder, [])
        nodes["beta"][1].join("lobby", far)
        await trio.sleep(1.0)
        [known] = nodes["alpha"][1].members("lobby")
        with pytest.raises(ValueError, match="runs on 'beta'"):
            nodes["alpha"][1].join("cellar", known)
        nonsense: Any = "somebody"
        with pytest.raises(TypeError, match="by its ref, not as 's'"):
            nodes["alpha"][1].join("cellar", nonsense)
        assert nodes["alpha"][1].groups() == ["lobby"]


@pytest.mark.parametrize(
    ("options", "problem", "sentence"),
    [
        ({"groups": "rooms"}, TypeError, "groups of the child 'g' must be a Groups"),
        ({"nodes": "alpha"}, TypeError, "nodes of the child 'g' must be names, or a function"),
        ({"beat_s": 0}, ValueError, "beat_s of the child 'g' must be .* more than 0"),
    ],
)
def test_a_scope_that_is_none_is_refused(options: dict[str, Any], problem: type[Exception], sentence: str) -> None:
    with pytest.raises(problem, match=sentence):
        GroupsSpec("g", **{"groups": Groups("g"), **options})


async def test_a_scope_may_be_in_a_tree_before_there_are_other_nodes(autojump_clock: MockClock) -> None:
    groups = Groups("early")
    async with System.open(
        "alone", [GroupsSpec("g", groups, nodes=lambda: NODES), ActorSpec("m", Recorder, [])]
    ) as system:
        groups.join("lobby", system.actors()[-1])
        await trio.sleep(30.0)
        assert len(groups.members("lobby")) == 1
