"""What pg was recorded to do, on one node and on three, and what groups do: the same, but for what is named here."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors import NoProc, Ref, Supervisor, System
from batonpass.actors.groups import Groups, GroupsSpec, JoinedGroup
from tests.actors.groups.test_group_nodes import member, three
from tests.actors.oracle.lines import Raw, Transcript
from tests.actors.servers import Recorder

RECORDED = Path(__file__).with_name("otp_pg.txt")

HERE = {
    # A group is its members: pg has an empty one after that.
    "groups after that": "[:a]",
    # Who has ended is refused at once.
    "join of one that has ended, and who is there in the end": "{:noproc, []}",
}
NODES = {
    # Members do not lose a group because a supervisor restarts its scope.
    "the scope of a runs again: members of a on b": "[:a]",
}


def told(messages: Iterable[Any]) -> list[Any]:
    """Who has come and gone, one by one."""
    return [
        ("join" if isinstance(message, JoinedGroup) else "leave", message.group)
        for message in messages
        for _ in message.refs
    ]


class Told:
    """What one that monitors has been told since it was looked at last."""

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self._seen = 0

    async def new(self) -> list[Any]:
        await wait_all_tasks_blocked()
        messages = await self.ref.call("all")
        new, self._seen = messages[self._seen :], len(messages)
        return told(new)


async def test_groups_of_one_node_do_what_pg_does(system: System, autojump_clock: MockClock) -> None:
    recorded, here, other = Transcript(RECORDED, "here: ", HERE), Groups("here"), Groups("other")
    await system.start_child(GroupsSpec("here", here))

    async def actor() -> Ref:
        return await system.start(Recorder)

    def say(what: str, outcome: Any) -> None:
        recorded.say(what, outcome)

    everything = Told(await actor())
    watch, there = here.monitor(everything.ref)
    say("monitor_scope where nobody is", Raw("%{}" if there == {} else there))
    p = await actor()
    here.join("a", p)
    say("join of one, and what is told", ("ok", await everything.new()))
    q, r = await actor(), await actor()
    here.join("a", [q, r, q])
    say("join of several in one call, one of them twice, and what is told", ("ok", await everything.new()))
    here.join("none", [])
    say("join of none, and what is told", ("ok", await everything.new()))
    say("groups after that", here.groups())
    dead = await actor()
    dead.kill()
    with pytest.raises(NoProc):
        here.join("dead", dead)
    say("join of one that has ended, and who is there in the end", ("noproc", here.members("dead")))
    say("members of a group that is not there", here.members("nobody"))
    left = here.leave("nobody", p)
    answer = "ok" if left else "not_joined"
    say("leave of a group that is not there, and what is told", (answer, await everything.new()))
    one = Told(await actor())
    _, there = here.monitor(one.ref, "a")
    say("monitor of one group: how many are there", len(there["a"]))
    here.join("b", p)
    say("monitor of one group: what is told of another", await one.new())
    here.leave("a", p)
    say("monitor of one group: what is told of it", await one.new())
    say("monitor of a group that is not there", here.monitor(await actor(), "later")[1]["later"])
    await everything.new()
    here.join("b", await actor())
    was = "ok" if here.demonitor(watch) else "false"
    say("demonitor, when something is told already, and what is left", (was, await everything.new()))
    say("demonitor of what is demonitored", here.demonitor(watch))
    here.join("b", await actor())
    say("what is told after demonitor", await everything.new())
    await system.start_child(GroupsSpec("other", other))
    say("members of a group of the same name in another scope", other.members("a"))
    with pytest.raises(Exception, match=r"taken|registered|already"):
        await system.start_child(GroupsSpec("again", Groups("other")))
    say("a scope of a name that is there already", "error")
    for group in (1, 1.0, True):
        other.join(group, p)
    say("groups that 1, 1.0 and true are", len(other.groups()))
    twice = await actor()
    here.join("x", [twice, twice])
    here.join("y", twice)
    here.monitor(everything.ref)
    twice.kill()
    say("what is told of the end of one that is in two groups, in one of them twice", sorted(await everything.new()))
    assert recorded.all_said()


async def test_groups_of_three_nodes_do_what_pg_does(autojump_clock: MockClock) -> None:
    recorded = Transcript(RECORDED, "nodes: ", NODES)
    async with three() as (network, nodes), AsyncExitStack() as stack:
        short = {"alpha": "a", "beta": "b", "gamma": "c", "delta": "d"}
        (_, a), (_, b), (_, c) = nodes.values()
        watchers = {name: Told(await system.start(Recorder)) for name, (system, _) in nodes.items()}
        for name, (_, groups) in nodes.items():
            groups.monitor(watchers[name].ref)

        def members(groups: Groups, group: str = "room") -> list[str]:
            return sorted(short[ref.node] for ref in groups.members(group))

        async def new(name: str) -> list[Any]:
            return await watchers[name].new()

        async def settle(seconds: float = 3.0) -> None:
            await trio.sleep(seconds)

        async def all_new() -> list[Any]:
            return [await new(name) for name in watchers]

        async def actor(name: str) -> Ref:
            return await nodes[name][0].start(Recorder)

        def say(what: str, outcome: Any) -> None:
            recorded.say(what, outcome)

        await settle()
        a1, a2, b1, c1 = [await actor(name) for name in ("alpha", "alpha", "beta", "gamma")]
        a.join("room", [a1, a2])
        say("join there: answer", "ok")
        await settle()
        say("join there: members seen here", members(b))
        say("join there: what is told here", await new("beta"))
        say("join there: local members here", len(b.local_members("room")))
        say("groups, and local groups, of who has no member", (b.groups(), b.local_groups()))
        b.join("room", [b1, b1])
        c.join("hall", c1)
        await settle()
        say("members on every node", [members(groups) for groups in (a, b, c)])
        await all_new()
        [far, _] = [ref for ref in a.members("room") if ref.node == "beta"]
        with pytest.raises(ValueError, match="runs on 'beta'"):
            a.join("room", far)
        say("join of a process of another node", "error")
        answer = b.leave("room", b1)
        say("leave there, once, of one that joined twice: answer", "ok" if answer else "not_joined")
        await settle()
        say("leave there: what is told here, and members", (await new("alpha"), members(a)))
        a2.kill()
        await settle()
        say("a member there ends: what is told here, and members", (await new("gamma"), members(c)))
        await all_new()
        network.cut.add(frozenset(("alpha", "beta")))
        await settle(40.0)
        say("a and b do not hear each other: members on every node", [members(groups) for groups in (a, b, c)])
        say("a and b do not hear each other: what is told on a and b and c", await all_new())
        a3, a4 = await actor("alpha"), await actor("alpha")
        a.join("room", a3)
        a.leave("room", a1)
        a.join("late", a4)
        await settle()
        say("what a did meanwhile: members on b, and on c", [members(b), members(c)])
        await all_new()
        network.cut.clear()
        network.changed()
        await settle(40.0)
        say("a and b hear each other again: members on every node", [members(groups) for groups in (a, b, c)])
        on_b, on_c = sorted(await new("beta")), await new("gamma")
        say("a and b hear each other again: what is told on b, and on c", (on_b, on_c))
        seen = a.local_members("room")
        await Supervisor.terminate_child(nodes["alpha"][0].root, "groups")
        await settle()
        say("the scope of a ends: what is told on b", sorted(await new("beta")))
        say("the scope of a ends: members on b, and on a", (members(b), members(a)))
        await Supervisor.restart_child(nodes["alpha"][0].root, "groups")
        await settle(20.0)
        say("the scope of a runs again: members of b on a", [name for name in members(a) if name == "b"])
        say("the scope of a runs again: members of a on b", [name for name in members(b) if name == "a"])
        assert a.local_members("room") == seen
        await all_new()
        network.kill("gamma")
        await settle(40.0)
        say("node c ends: what is told on b", await new("beta"))
        network.cut.add(frozenset(("alpha", "delta")))
        nodes["delta"] = await stack.enter_async_context(member(network, "delta"))
        await settle(20.0)
        d = nodes["delta"][1]
        say("a node that knows b alone: members there", members(d))
        d.join("room", await actor("delta"))
        await settle(20.0)
        say("a node that knows b alone: its member on a, and on b", ["d" in members(groups) for groups in (a, b)])
        assert recorded.all_said()
