"""Refs and names have the same verbs; both are themselves wherever they are copied; and 1, 1.0 and True are three."""

import copy
import dataclasses
from collections.abc import Hashable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors import (
    ActorSpec,
    AlreadyRegistered,
    Down,
    ExitSignal,
    Keys,
    Named,
    NoProc,
    PartitionSupervisor,
    PartitionSupervisorSpec,
    Ref,
    Registry,
    RegistrySpec,
    Supervisor,
    SupervisorError,
    System,
    Telemetry,
    Tick,
    open_tasks,
    via,
)
from batonpass.actors.base.exact_keys import exact, plain
from batonpass.actors.observe import sys
from batonpass.actors.tasks.task import Task
from tests.actors.remote.keeper import Keeper, Mortal
from tests.actors.remote.nodes import show, two_nodes
from tests.actors.servers import Counter, Recorder
from tests.budget import examples

Address = Ref | Named


async def heard(ref: Ref) -> list[Any]:
    """What a recorder has been told."""
    await wait_all_tasks_blocked()
    told: list[Any] = await ref.call("all")
    return told


def alive(address: Address) -> bool:
    """Whether it is, now; which another line may have changed."""
    return address.alive


async def watcher(system: System, address: Address) -> Any:
    """An actor that monitors it, and the monitor."""

    class Watching(Keeper):
        def init(self, arg: Any) -> list[Any]:
            self.watch = self.monitor(arg)
            return []

    ref = await system.start(Watching, address)
    return ref, ref.process.server.watch  # type: ignore[attr-defined]  # it is one of ours


registry = Registry("names")


@pytest.mark.parametrize("kind", ["ref", "named", "via", "partition"])
async def test_an_address_has_the_verbs_of_a_ref(kind: str, autojump_clock: MockClock) -> None:
    children = [
        RegistrySpec("names", registry),
        ActorSpec("a", Mortal, [], name="a", restart="temporary"),  # type: ignore[call-overload]  # by its value
        ActorSpec("v", Mortal, [], name=via(registry, "v"), restart="temporary"),  # type: ignore[call-overload]
        PartitionSupervisorSpec("p", ActorSpec("p", Mortal, []), partitions=1, name="p"),
    ]
    async with System.open("node", children) as system:
        ref = system.whereis("a")
        assert ref is not None
        addresses: dict[str, Address] = {
            "ref": ref,
            "named": system.named("a"),
            "via": via(registry, "v"),
            "partition": PartitionSupervisor.via(system.named("p"), 0),
        }
        address = addresses[kind]
        it = address.ref
        assert it is not None
        assert address.alive
        watching, monitor = await watcher(system, address)
        trapping, mortal = await system.start(Keeper, []), await system.start(Mortal, [])
        for linked in (trapping, mortal):
            await linked.call(("link", address))
            assert await linked.call(("links",)) == [it]
        await mortal.call(("unlink", address))
        assert await mortal.call(("links",)) == []
        address.link(mortal)
        assert it in await mortal.call(("links",))
        address.unlink(mortal)
        system.timers.send_after(1.0, address, "later")
        ticks = system.timers.send_interval(2.0, address, "beat")
        await trio.sleep(2.5)
        told = await address.call("all")
        assert told[0] == "later"
        assert isinstance(told[1], Tick)
        ticks.cancel()
        ended: list[object] = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                ended.append(await address.exited())

            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            await trapping.call(("exit", address, "boom"))
        assert ended == ["boom"]
        assert await heard(watching) == [Down(monitor, address, "boom")]
        assert await heard(trapping) == [ExitSignal("boom", it)]
        assert mortal.alive


async def test_a_name_that_nobody_has(system: System, autojump_clock: MockClock) -> None:
    nobody = system.named("nobody")
    assert (nobody.ref, nobody.alive, await nobody.exited()) == (None, False, "noproc")
    watching, monitor = await watcher(system, nobody)
    assert await heard(watching) == [Down(monitor, nobody, "noproc")]
    trapping, mortal = await system.start(Keeper, []), await system.start(Mortal, [])
    await trapping.call(("link", nobody))
    assert await heard(trapping) == [ExitSignal("noproc", None)]
    await mortal.call(("unlink", nobody))
    nobody.exit("boom")
    nobody.kill()
    nobody.unlink(mortal)
    with pytest.raises(NoProc):
        nobody.link(mortal)
    system.timers.send_after(1.0, nobody, "lost")
    await trio.sleep(2.0)
    assert mortal.alive


async def test_timers_to_a_name_go_to_the_actor_that_has_it_then(system: System, autojump_clock: MockClock) -> None:
    name = system.named("n")
    system.timers.send_after(1.5, name, "later")
    ticks = system.timers.send_interval(1.0, name)
    first = await system.start(Recorder, [], name="n")
    await trio.sleep(1.2)
    assert [tick.number for tick in await first.call("all")] == [0]
    first.kill()
    second = await system.start(Recorder, [], name="n")
    await trio.sleep(2.0)
    later, *others = await second.call("all")
    assert later == "later"
    assert [tick.number for tick in others] == [1, 2], "the end of the first took no tick with it"
    second.kill()
    await trio.sleep(3.0)
    third = await system.start(Recorder, [], name="n")
    await trio.sleep(1.0)
    [tick] = await third.call("all")
    assert tick.number == 6
    assert ticks.cancel()


async def test_a_published_name_of_another_node_has_the_verbs_too(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        there = await show(beta, Keeper, [])
        name = alpha.remote("beta").named("it")
        watching, monitor = await watcher(alpha, name)
        here = await alpha.start(Keeper, [])
        await here.call(("link", name))
        alpha.timers.send_after(1.0, name, "later")
        ticks = alpha.timers.send_interval(1.5, name, "beat")
        await trio.sleep(2.0)
        assert [type(told) for told in await there.call("all")] == [str, Tick]
        ticks.cancel()
        name.exit("please")
        await trio.sleep(0.1)
        assert (await there.call("all"))[-1] == ExitSignal("please", None)
        ended: list[object] = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                ended.append(await name.exited())

            nursery.start_soon(wait)
            await trio.sleep(0.1)
            name.kill()
        assert ended == ["killed"]
        await trio.sleep(0.1)
        assert await watching.call("all") == [Down(monitor, name, "killed")]
        assert [(type(told), told.reason) for told in await here.call("all")] == [(ExitSignal, "killed")]


async def test_a_linked_actor_of_another_node_is_known_to_have_ended(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        there = await show(beta, Keeper, [])
        here = await alpha.start(Keeper, [])
        far = await alpha.remote("beta").whereis("it")
        assert far is not None
        await here.call(("link", far))
        await trio.sleep(0.1)
        assert alive(far)
        there.kill()
        await trio.sleep(0.1)
        assert await here.call("all") == [ExitSignal("killed", far)]
        assert not alive(far)
        assert await far.exited() == "killed"


async def test_who_may_not_be_linked_to_is_not_taken_for_dead(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Mortal, [])
        here = await alpha.start(Keeper, [])
        far = await alpha.remote("beta").whereis("it")
        assert far is not None
        await here.call(("link", far))
        await trio.sleep(0.1)
        assert await here.call("all") == [ExitSignal("noproc", far)]
        assert far.alive
        assert await far.call("all") == []


# Handles


@dataclasses.dataclass(frozen=True)
class Holding:
    """A message that has a handle in it."""

    handle: Any
    others: tuple[Any, ...] = ()


async def test_handles_are_themselves_in_every_copy(system: System) -> None:
    ref = await system.start(Counter, 0, name="c")
    reg = Registry("r")
    timer = system.timers.send_after(60.0, ref, "x")
    interval = system.timers.send_interval(60.0, ref)
    _, monitor = await watcher(system, ref)
    async with open_tasks(system) as tasks:
        task = Task.completed(tasks, 1)
        await task.await_()
    for handle in (ref, system.named("c"), via(reg, "c"), timer, interval, monitor, task, system, reg):
        message = Holding(handle, (handle,))
        assert copy.copy(handle) is handle
        assert copy.deepcopy([handle])[0] is handle
        assert dataclasses.asdict(message)["handle"] is handle
        assert copy.deepcopy(message).others[0] is handle
        assert dataclasses.replace(message, others=()).handle is handle
        with pytest.raises(TypeError, match="cannot be pickled"):
            handle.__reduce_ex__(2)


async def test_names_are_equal_when_they_mean_the_same(system: System) -> None:
    assert system.named("a") == system.named("a") != system.named("b")
    assert len({system.named("a"), system.named("a"), system.named(1), system.named(True)}) == 3
    other = Registry("other")
    assert via(registry, "a") == via(registry, "a", 5) != via(other, "a")
    assert system.named("a") != via(registry, "a")
    assert PartitionSupervisor.via(system.named("p"), 7) == PartitionSupervisor.via(system.named("p"), 7)


# Keys that Python takes for one

THREE: list[Hashable] = [1, 1.0, True]


async def test_one_of_three_kinds_is_three_names(system: System) -> None:
    refs = [await system.start(Counter, 0, name=name) for name in (*THREE, *[("a", key) for key in THREE])]
    assert [system.whereis(name) for name in (*THREE, *[("a", key) for key in THREE])] == refs
    assert list(map(repr, system.registry.names())) == [
        "'root'",
        "1",
        "1.0",
        "True",
        "('a', 1)",
        "('a', 1.0)",
        "('a', True)",
    ]
    refs[0].kill()
    assert [system.whereis(name) for name in THREE] == [None, *refs[1:3]]
    system.registry.unregister(True)
    assert [name in system.registry for name in THREE] == [False, True, False]
    assert repr(sys.get_status(refs[1]).names) == "(1.0,)"
    assert sys.get_status(refs[2]).names == ()


@pytest.mark.parametrize("kind", Keys)
async def test_one_of_three_kinds_is_three_keys_of_a_registry(system: System, kind: Keys) -> None:
    reg = Registry("keys", kind, meta={1: "int"})
    await system.start_child(RegistrySpec("keys", reg))
    ref = await system.start(Counter, 0)
    for key in THREE:
        reg.register(key, ref, repr(key))
    assert [[entry.value for entry in reg.lookup(key)] for key in THREE] == [["1"], ["1.0"], ["True"]]
    assert list(map(repr, reg.keys(ref))) == ["1", "1.0", "True"]
    assert [repr(row.key) for row in reg.select()] == ["1", "1.0", "True"]
    reg.unregister(1.0, ref)
    assert [key in reg for key in THREE] == [True, False, True]
    reg.put_meta(1.0, "float")
    assert reg.meta(1.0) == "float"
    assert reg.meta(1) == "int"
    ref.kill()
    assert reg.count() == 0


async def test_one_of_three_kinds_is_three_children(system: System) -> None:
    for key in THREE:
        await system.start_child(ActorSpec(key, Counter, 0))
    children = await Supervisor.which_children(system.root)
    assert [repr(child.id) for child in children] == ["1", "1.0", "True"]
    await Supervisor.terminate_child(system.root, 1.0)
    await Supervisor.delete_child(system.root, 1.0)
    with pytest.raises(SupervisorError, match=r"has no child 1\.0; it has 1, True"):
        await Supervisor.get_childspec(system.root, 1.0)
    assert (await Supervisor.get_childspec(system.root, True)).id is True


def test_one_of_three_kinds_is_three_handlers() -> None:
    telemetry = Telemetry(lambda: 0.0)
    for key in THREE:
        telemetry.attach(key, ("a",), print)
    assert telemetry.detach(1.0)
    assert not telemetry.detach(1.0)
    assert [repr(handler.id) for handler in telemetry.list_handlers()] == ["1", "True"]


async def test_a_name_that_is_taken_is_said_as_it_was_given(system: System) -> None:
    ref = await system.start(Counter, 0, name=("a", True))
    with pytest.raises(AlreadyRegistered, match=r"the name \('a', True\) belongs"):
        system.registry.register(("a", True), await system.start(Counter, 0))
    assert system.whereis(("a", 1)) is None
    assert ref.alive


ATOMS = st.one_of(
    st.integers(-2, 2), st.booleans(), st.sampled_from([0.0, 1.0, 2.0, 1j]), st.sampled_from("ab"), st.none()
)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)


def kinds(key: Any) -> Any:
    """A key together with all its types, which says when two are one."""
    return (type(key), tuple(map(kinds, key)) if isinstance(key, tuple) else key)


@given(KEYS, KEYS)
@settings(max_examples=examples(300))
def test_keys_are_equal_when_they_and_their_kinds_are(key: Any, other: Any) -> None:
    assert (exact(key) == exact(other)) == (kinds(key) == kinds(other))
    assert exact(key) != exact(other) or hash(exact(key)) == hash(exact(other))
    assert kinds(plain(exact(key))) == kinds(key)
