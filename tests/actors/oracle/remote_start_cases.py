"""The recorded lines about actors and tasks that are started on another node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from batonpass.actors import (
    ActorHost,
    ActorSpec,
    Agent,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Exit,
    HostSettings,
    Server,
    System,
    open_tasks,
)
from batonpass.actors.remote import Distribution, RemoteError
from tests.actors.oracle.lines import oracle
from tests.actors.remote.nodes import two_nodes


class Boom(Exception):
    pass


async def double(number: int) -> int:
    return 2 * number


async def fails() -> None:
    raise Boom


def agent(_node: str) -> ActorSpec:
    return ActorSpec("agent", Agent, lambda: "there")


@asynccontextmanager
async def there(**tasks: Any) -> AsyncIterator[tuple[System, System, Any]]:
    """This node, another, and its host."""
    async with two_nodes() as (_, here, other):
        await other.start_child(DynamicSupervisorSpec("children", name="children"))
        may = {"double": double, "fails": fails, **tasks}
        settings = HostSettings([here.name], {"agent": agent}, other.named("children"), may)
        await other.start_child(ActorSpec("host", ActorHost, settings, name="host"))
        assert isinstance(other.distribution, Distribution)
        other.distribution.publish("host")
        yield here, other, here.remote(other.name).named("host")


@oracle("remote: await of a task on another node", "42")
async def awaited(_system: System) -> Any:
    async with there() as (here, _, host), open_tasks(here) as tasks:
        return await ActorHost.async_(tasks, host, "double", 21).await_()


@oracle("remote: yield of a task that fails there, and is not linked", "{:exit, :boom}")
async def failed(_system: System) -> Any:
    async with there() as (here, _, host):
        try:
            async with open_tasks(here) as tasks:
                await ActorHost.async_(tasks, host, "fails").await_()
        except Exit as error:
            # The task here is linked, and its reason is what the call over there raised.
            reason = error.reason.reason if isinstance(error.reason, Exit) else error.reason
            assert isinstance(reason, RemoteError)
            return "exit", reason.type_name.lower()


@oracle("remote: a task there when its owner here is killed", ":killed")
async def owner_killed(_system: System) -> Any:
    runs, ended = trio.Event(), list[Any]()
    over = trio.Event()

    async def waits() -> None:
        runs.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            ended.append("killed")
            raise
        finally:
            over.set()

    class Owner(Server[None]):
        def init(self, arg: Any) -> None:
            ActorHost.async_(self, arg, "waits")

    async with there(waits=waits) as (here, _, host):
        owner = await here.start(Owner, host)
        await runs.wait()
        owner.kill()
        await over.wait()
    return ended[0]


@oracle("remote: the state of an agent that was started there is its node", "true")
async def started(_system: System) -> Any:
    async with there() as (_, other, host):
        ref = await ActorHost.start_child(host, "agent", "there")
        assert ref is not None
        (child,) = await DynamicSupervisor.which_children(other.named("children"))
        return child.ref is not None and ref.node == other.name == child.ref.node


@oracle("remote: terminate_child there, and how the child ends", "{:ok, :shutdown}")
async def terminated(_system: System) -> Any:
    async with there() as (_, other, host):
        ref = await ActorHost.start_child(host, "agent", "there")
        (child,) = await DynamicSupervisor.which_children(other.named("children"))
        assert ref is not None
        assert child.ref is not None
        await ActorHost.terminate_child(host, ref)
        return "ok", await child.ref.exited()


@oracle("remote: terminate_child there of one that is no child", "{:error, :not_found}")
async def no_child(_system: System) -> Any:
    async with there() as (here, _, host):
        stranger = await here.start(Server, None)
        with pytest.raises(Exit) as caught:
            await ActorHost.terminate_child(host, stranger)
        assert isinstance(caught.value.reason, RemoteError)
        assert caught.value.reason.type_name == "SupervisorError"
        return "error", "not_found"
