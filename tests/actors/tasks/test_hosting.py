"""What other nodes may have run here: who may, what, and what becomes of it when one side goes away."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import (
    ActorHost,
    ActorSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Exit,
    HostSettings,
    Named,
    NoProc,
    Ref,
    Server,
    System,
    Task,
    open_tasks,
)
from batonpass.actors.remote import Distribution, NodeDown, RemoteError
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import held, two_nodes
from tests.actors.servers import Counter


def make_counter(start: int) -> ActorSpec:
    if start < 0:
        raise ValueError(f"{start} is no start of a counter")
    return ActorSpec("counter", Counter, start)


async def double(number: int) -> int:
    return 2 * number


class Works:
    """A task that says that it runs, and ends when it is told to."""

    def __init__(self) -> None:
        self.runs, self.ends = trio.Event(), trio.Event()
        self.killed = False

    async def work(self) -> None:
        self.runs.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.killed = True
            raise
        finally:
            self.ends.set()


@asynccontextmanager
async def hosted(
    *nodes: str, works: Works | None = None, **options: Any
) -> AsyncIterator[tuple[MemoryNetwork, System, System, Any]]:
    """A host at `beta` for these nodes, as `alpha` sees it."""
    async with two_nodes() as (network, alpha, beta):
        await beta.start_child(DynamicSupervisorSpec("children", name="children"))
        tasks: dict[str, Callable[..., Awaitable[Any]]] = {"double": double, "work": (works or Works()).work}
        settings = HostSettings(nodes, {"counter": make_counter}, beta.named("children"), tasks, **options)
        await beta.start_child(ActorSpec("host", ActorHost, settings, name="host"))
        assert isinstance(beta.distribution, Distribution)
        beta.distribution.publish("host")
        yield network, alpha, beta, alpha.remote("beta").named("host")


async def test_a_child_that_is_started_over_there_is_a_ref_like_any_other() -> None:
    async with hosted("alpha") as (_, alpha, beta, host):
        counter = await ActorHost.start_child(host, "counter", 5)
        assert counter is not None
        assert (counter.node, await counter.call("get")) == ("beta", 5)
        (child,) = await DynamicSupervisor.which_children(beta.named("children"))
        assert child.id == "counter"
        async with trio.open_nursery() as nursery:
            ended = list[Any]()

            async def watch() -> None:
                ended.append(await counter.exited())

            nursery.start_soon(watch)
            await counter.call("get")  # which comes after the monitor
            await ActorHost.terminate_child(host, counter)
        assert ended == ["shutdown"]
        assert await DynamicSupervisor.which_children(beta.named("children")) == []
        with pytest.raises(Exit, match="not"):
            await ActorHost.terminate_child(host, await alpha.start(Counter, 0))


async def test_a_task_over_there_is_a_task_like_any_other() -> None:
    async with hosted("alpha") as (_, alpha, beta, host):
        async with open_tasks(alpha) as tasks:
            assert await ActorHost.async_(tasks, host, "double", 21).await_() == 42
        assert held(alpha) == held(beta) == dict.fromkeys(held(alpha), 0)


async def refused(host: Named, *what: Any) -> Any:
    with pytest.raises(Exit) as caught:
        await host.call(what, 5.0)
    return caught.value if isinstance(caught.value, NoProc) else caught.value.reason


async def test_a_node_that_may_not_finds_nobody_there() -> None:
    async with hosted("gamma") as (_, _, beta, host):
        assert isinstance(await refused(host, "start", "counter", (5,)), NoProc)
        assert await DynamicSupervisor.which_children(beta.named("children")) == []
        here = await ActorHost.start_child(beta.named("host"), "counter", 5)
        assert here is not None, "its own node may always"


@pytest.mark.parametrize(
    "what",
    [("start", "nothing", ()), ("start", "counter", [1]), ("run", "double", (1,), "me"), ("run",), ("end", "it"), 7],
)
async def test_what_a_host_does_not_know_is_refused_and_it_goes_on(what: Any) -> None:
    async with hosted("alpha") as (_, _, _, host):
        with pytest.raises(Exit) as caught:
            await host.call(what)
        reason = caught.value.reason
        assert isinstance(reason, RemoteError)
        assert reason.type_name == "HostRefusal"
        assert await ActorHost.start_child(host, "counter", 1) is not None


async def test_a_start_that_fails_says_why_and_the_host_goes_on() -> None:
    async with hosted("alpha") as (_, _, _, host):
        for args, sentence in (((-1,), "-1 is no start"), ((), "missing 1 required positional argument")):
            with pytest.raises(Exit, match=sentence):
                await ActorHost.start_child(host, "counter", *args)
        assert await ActorHost.start_child(host, "counter", 1) is not None


async def test_a_task_is_killed_when_its_owner_here_ends() -> None:
    works = Works()
    async with hosted("alpha", works=works) as (_, alpha, _, host):
        owner = await alpha.start(Owner, host)
        await works.runs.wait()
        owner.kill()
        await works.ends.wait()
        assert works.killed


async def test_a_task_is_killed_when_the_node_of_its_owner_is_lost_and_its_owner_told(
    autojump_clock: MockClock,
) -> None:
    works, crashed = Works(), list[Any]()
    async with hosted("alpha", works=works) as (network, alpha, _, host):

        async def own() -> None:
            async with open_tasks(alpha) as tasks:
                try:
                    await ActorHost.async_(tasks, host, "work").await_(None)
                except Exit as error:
                    crashed.append(error.reason)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(own)
            await works.runs.wait()
            network.cut.add(frozenset(("alpha", "beta")))
            await works.ends.wait()
    assert works.killed
    assert type(crashed[0]) is NodeDown, crashed


async def test_a_host_runs_no_more_than_it_may() -> None:
    works = Works()
    async with hosted("alpha", works=works, max_running=1) as (_, alpha, _, host):
        owner = await alpha.start(Owner, host)
        await works.runs.wait()
        with pytest.raises(Exit, match="1 are at work already"):
            await ActorHost.start_child(host, "counter", 1)
        owner.kill()
        await works.ends.wait()


class Owner(Server[None]):
    """Has a task run over there."""

    def init(self, arg: Ref | Named) -> None:
        self.task: Task[Any] = ActorHost.async_(self, arg, "work")


@pytest.mark.parametrize(
    "make",
    [
        lambda: HostSettings("alpha"),
        lambda: HostSettings(["alpha"], {"counter": make_counter}),
        lambda: HostSettings(["alpha"], max_running=0),
    ],
)
def test_a_host_that_could_start_nothing_is_refused(make: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="a host"):
        make()
