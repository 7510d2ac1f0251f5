"""Each actor has a context of its own (`contextvars`): what a callback sets is seen by this actor alone, and later."""

from contextvars import ContextVar
from typing import Any

import pytest
import trio

from batonpass.actors import (
    ActorSpec,
    Continue,
    From,
    NoReply,
    Ok,
    Reply,
    Server,
    ServiceSpec,
    System,
    Task,
    TaskResult,
    open_tasks,
)
from batonpass.actors.core.supervisor import Supervisor
from batonpass.actors.observe import sys

where: ContextVar[str] = ContextVar("where", default="nowhere")


class Rememberer(Server[None]):
    """Answers what it finds in its context, and puts there what it is told."""

    def __init__(self) -> None:
        where.set("made")

    def init(self, arg: Any) -> Ok[None]:
        assert where.get() == "made"
        where.set("init")
        return Ok(None, then=Continue("go"))

    def handle_continue(self, value: Any, state: None) -> None:
        assert where.get() == "init"

    def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:
        found = where.get()
        where.set(request)
        return Reply(found)

    def handle_cast(self, message: str, state: None) -> None:
        where.set(message)


class WaitingRememberer(Rememberer):
    """The same with `async def`."""

    async def init(self, arg: Any) -> Ok[None]:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return super().init(arg)

    async def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return super().handle_call(request, from_, state)

    async def handle_cast(self, message: str, state: None) -> None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        super().handle_cast(message, state)


@pytest.mark.parametrize("kind", [Rememberer, WaitingRememberer])
async def test_what_callbacks_set_stays_with_their_actor(system: System, kind: type[Rememberer]) -> None:
    where.set("here")
    first, second = await system.start(kind), await system.start(kind)
    assert where.get() == "here"
    assert [await first.call(word) for word in ("a", "b", "c")] == ["init", "a", "b"]
    assert await second.call("x") == "init"
    first.cast("d")
    await system.round_over()
    assert [await first.call("e"), await second.call("y"), where.get()] == ["d", "x", "here"]


@pytest.mark.parametrize("kind", [Rememberer, WaitingRememberer])
async def test_a_busy_actor_has_the_context_of_an_idle_one(system: System, kind: type[Rememberer]) -> None:
    ref = await system.start(kind)
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        for word in ("a", "b", "c"):
            ref.cast(word)

            async def ask(word: str = word) -> None:
                answers.append(await ref.call(word.upper()))

            nursery.start_soon(ask)
    assert len(answers) == 3
    assert set(answers) <= {"a", "b", "c", "A", "B", "C"}
    assert await ref.call("end") in {"A", "B", "C"}


class Looker(Server[None]):
    """Answers what it finds, and starts with what its starter had."""

    def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        return Reply(where.get())


async def test_an_actor_begins_with_a_copy_of_its_starters(system: System) -> None:
    where.set("the starter's")
    ref = await system.start(Looker)
    where.set("something else")
    assert await ref.call("?") == "the starter's"

    class Starter(Server[None]):
        def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
            where.set("the parent's")
            return Reply(self.start_link_nowait(Looker))

    child = await (await system.start(Starter)).call("start")
    assert await child.call("?") == "the parent's"


async def test_each_life_of_a_supervised_actor_begins_with_its_supervisors() -> None:
    where.set("the opener's")
    async with System.open(
        "node", [ActorSpec("it", Rememberer, name="it"), ActorSpec("l", Looker, name="l")]
    ) as system:
        where.set("changed")
        assert await system.named("l").call("?") == "the opener's"
        assert await system.named("it").call("mine") == "init"
        await system.named("it").stop("boom")
        await trio.testing.wait_all_tasks_blocked()
        assert await system.named("it").call("again") == "init", "a new life has nothing of the one before"
        started = await Supervisor.start_child(system.root, ActorSpec("late", Looker))
        assert started is not None
        assert await started.call("?") == "the opener's"


async def test_services_and_tasks_have_copies(system: System) -> None:
    where.set("the starter's")
    seen: list[str] = []

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        seen.append(where.get())
        where.set("the service's")
        task_status.started()
        await trio.sleep_forever()

    async def look() -> str:
        found = where.get()
        where.set("the task's")
        return found

    await system.start_child(ServiceSpec("s", serve))
    assert seen == ["nowhere"], "the root supervisor was started by the task that opened the system"
    async with open_tasks(system) as tasks:
        assert await Task.async_(tasks, look).await_() == "the starter's"
    assert where.get() == "the starter's"

    class Owner(Server[list[Any]]):
        def init(self, arg: None) -> list[Any]:
            where.set("the owner's")
            Task.async_(self, look)
            return []

        def handle_info(self, message: Any, state: list[Any]) -> None:
            assert isinstance(message, TaskResult)
            state += [message.value, where.get()]

    owner = await system.start(Owner)
    await trio.testing.wait_all_tasks_blocked()
    assert await sys.get_state(owner) == ["the owner's", "the owner's"]


async def test_what_ends_a_suspended_actor_finds_its_context(system: System) -> None:
    seen: list[str] = []

    class Leaver(Rememberer):
        trap_exit = True

        def terminate(self, reason: object, state: None) -> None:
            seen.append(where.get())
            where.set("after the end")

    for kind in (Leaver, type("Waiting", (Leaver, WaitingRememberer), {})):
        ref = await system.start(kind)
        assert await ref.call("mine") == "init"
        await sys.suspend(ref)
        where.set("the stopper's")
        await ref.stop()
        assert where.get() == "the stopper's"
    assert seen == ["mine", "mine"]


async def test_a_token_of_one_plain_callback_is_good_in_the_next(system: System) -> None:
    class Resetter(Server[Any]):
        def handle_call(self, request: str, from_: From, state: Any) -> Reply[Any] | NoReply[Any]:
            if request == "set":
                return Reply(None, where.set("set"))
            where.reset(state)
            return Reply(where.get())

    where.set("before")
    ref = await system.start(Resetter)
    await ref.call("set")
    assert await ref.call("reset") == "before"
