"""Whom and what a crash is about: label, ancestors, callers, and the metadata of log lines."""

import logging
from typing import Any

import pytest
import trio

from batonpass.actors import (
    ActorSpec,
    Exit,
    From,
    LogMetadata,
    Reply,
    Restart,
    Server,
    ServiceSpec,
    SupervisorSpec,
    System,
    Task,
    open_tasks,
    set_log_metadata,
)
from batonpass.actors.core.status_report import NEAREST, origin_report
from batonpass.actors.observe import sys


class Order(Server[None]):
    """Works on what it is told to."""

    def handle_cast(self, message: str, state: None) -> None:
        self.set_label(message)
        set_log_metadata(order=message)

    def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        raise ValueError("boom")


class WaitingOrder(Order):
    async def handle_cast(self, message: str, state: None) -> None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        super().handle_cast(message, state)

    async def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return super().handle_call(request, from_, state)


def the_crash(caplog: pytest.LogCaptureFixture) -> Any:
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    return record


@pytest.mark.parametrize("kind", [Order, WaitingOrder])
async def test_the_log_of_a_crash_says_whom_and_what_it_is_about(
    system: System, caplog: pytest.LogCaptureFixture, kind: type[Order]
) -> None:
    await system.start_child(SupervisorSpec("shop", [ActorSpec("order", kind, name="first")], name="shop"))
    order = system.registry.whereis("first")
    assert order is not None
    order.cast("A 7")
    with pytest.raises(Exception, match="boom"):
        await order.call("crash")
    record = the_crash(caplog)
    assert f"{kind.__name__} 'first' (A 7) #" in record.getMessage()
    assert "; its ancestors: <Supervisor 'shop' #" in record.getMessage()
    assert record.getMessage().endswith("; {'order': 'A 7'}")
    assert record.actor is order
    assert record.metadata == {"order": "A 7"}
    assert LogMetadata().filter(record)
    assert record.metadata == {"order": "A 7"}, "not that of the task that writes the line"


async def test_a_label_is_shown_to_who_looks_and_may_be_taken_away(system: System) -> None:
    order = await system.start(Order)
    order.cast("A 7")
    await system.round_over()
    assert "Order (A 7) #" in str(order)
    order.cast("")
    await system.round_over()
    assert sys.get_status(order).ref is order
    assert str(order) == f"<Order #{order.process.pid}>"


async def test_a_service_and_a_task_have_metadata_too(system: System, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        set_log_metadata(order="B 1")
        raise ValueError("boom")

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await work()

    with pytest.raises(Exit, match="boom"):
        async with open_tasks(system) as tasks:
            await Task.async_(tasks, work).await_()
    assert the_crash(caplog).metadata == {"order": "B 1"}
    caplog.clear()
    await system.start_child(ServiceSpec("service", serve, restart=Restart.TEMPORARY))
    await system.round_over()
    await trio.testing.wait_all_tasks_blocked()
    assert the_crash(caplog).metadata == {"order": "B 1"}


async def test_an_actor_begins_with_the_metadata_of_its_starter(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    set_log_metadata(request=1)
    order = await system.start(Order)
    set_log_metadata(request=2)
    with pytest.raises(Exception, match="boom"):
        await order.call("crash")
    assert the_crash(caplog).metadata == {"request": 1}


async def test_a_line_names_the_nearest_of_many(system: System) -> None:
    many = [system.root] * (NEAREST + 3)
    assert origin_report(many, (), {}).endswith(f"{system.root} and 3 more")
    assert origin_report((), (), {}) == ""
