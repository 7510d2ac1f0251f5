"""Telemetry: handlers are told at once and in order, and cannot hurt whoever tells them."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from batonpass.actors import (
    ActorSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    MailboxFull,
    Reply,
    Restart,
    Server,
    ServiceSpec,
    SupervisorSpec,
    System,
)
from batonpass.actors.core.telemetry import (
    ACTOR_CRASH,
    ACTOR_EXIT,
    ACTOR_START,
    CALLBACK_SLOW,
    HANDLER_FAILED,
    MAILBOX_OVERFLOW,
    MESSAGE_HANDLED,
    SUPERVISOR_GAVE_UP,
    SUPERVISOR_RESTART,
    AlreadyAttached,
    Event,
    Telemetry,
)
from tests.actors.servers import Counter, Scripted, Slow

PAID = ("shop", "order", "paid")
SENT = ("shop", "order", "sent")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def telemetry(clock: Clock) -> Telemetry:
    return Telemetry(clock)


Told = list[tuple[Event, Mapping[str, float], Mapping[str, Any], Any]]


def keep(event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], config: Told) -> None:
    config.append((event, measurements, metadata, "config"))


def fail(event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], config: Any) -> None:
    raise ValueError("boom")


def test_a_handler_is_told_what_happened_before_execute_returns(telemetry: Telemetry) -> None:
    told: Told = []
    telemetry.attach("audit", PAID, keep, told)
    telemetry.execute(PAID, {"euros": 3}, {"order": 7})
    telemetry.execute(SENT, {}, {})
    assert told == [(PAID, {"euros": 3}, {"order": 7}, "config")]


def test_handlers_are_told_in_the_order_in_which_they_were_attached(telemetry: Telemetry) -> None:
    order: list[str] = []
    for name in ("b", "a", "c"):
        telemetry.attach(name, PAID, lambda *args: order.append(args[3]), name)
    telemetry.execute(PAID, {}, {})
    assert order == ["b", "a", "c"]


def test_an_id_is_unique_and_free_again_after_detaching(telemetry: Telemetry) -> None:
    told: Told = []
    telemetry.attach("audit", [PAID, SENT], keep, told)
    with pytest.raises(AlreadyAttached, match="'audit' is attached already"):
        telemetry.attach("audit", ("other",), keep, told)
    assert telemetry.detach("audit")
    assert not telemetry.detach("audit")
    telemetry.execute(PAID, {}, {})
    telemetry.execute(SENT, {}, {})
    assert told == []
    telemetry.attach("audit", PAID, keep, told)


def test_handlers_are_listed_by_prefix(telemetry: Telemetry) -> None:
    telemetry.attach("both", [PAID, SENT], keep, 1)
    telemetry.attach("other", ("other",), fail, 2)
    assert [(row.id, row.event, row.config) for row in telemetry.list_handlers(("shop",))] == [
        ("both", PAID, 1),
        ("both", SENT, 1),
    ]
    assert [row.id for row in telemetry.list_handlers(PAID)] == ["both"]
    assert len(telemetry.list_handlers()) == 3
    assert telemetry.list_handlers(("shop", "order", "paid", "twice")) == []


def test_a_handler_that_raises_is_detached_and_reported_and_the_others_are_told(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    told: Told = []
    telemetry.attach("bad", [PAID, SENT], fail, "its config")
    telemetry.attach("good", PAID, keep, told)
    telemetry.attach("reporter", HANDLER_FAILED, keep, told)
    with caplog.at_level(logging.ERROR, "actors"):
        telemetry.execute(PAID, {}, {})
    failure, paid = told
    assert paid[0] == PAID
    assert failure[1] == {"monotonic_time_s": clock.now_s}
    error = failure[2]["error"]
    assert isinstance(error, ValueError)
    assert failure[2] == {"event": PAID, "handler_id": "bad", "config": "its config", "error": error}
    assert [row.id for row in telemetry.list_handlers(("shop",))] == ["good"]
    assert "'bad' failed on shop.order.paid and was detached" in caplog.text


def test_a_handler_that_panics_is_detached_like_any_other(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    class Panic(BaseException):
        """As code in Rust raises."""

    def panics(*_: Any) -> None:
        raise Panic

    telemetry.attach("panics", PAID, panics)
    with caplog.at_level(logging.ERROR, "actors"):
        telemetry.execute(PAID, {}, {})
    assert telemetry.list_handlers() == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_end_of_the_program_that_is_asked_for_in_a_handler_goes_on_its_way(
    telemetry: Telemetry, end: type[BaseException]
) -> None:
    def asks(*_: Any) -> None:
        raise end

    telemetry.attach("asks", PAID, asks)
    with pytest.raises(end):
        telemetry.execute(PAID, {}, {})
    assert [row.id for row in telemetry.list_handlers()] == ["asks"]


def test_a_reporter_that_raises_is_detached_too(telemetry: Telemetry) -> None:
    telemetry.attach("bad", PAID, fail)
    telemetry.attach("bad reporter", HANDLER_FAILED, fail)
    telemetry.execute(PAID, {}, {})
    assert telemetry.list_handlers() == []


def test_a_handler_may_detach_and_attach_while_it_is_told(telemetry: Telemetry) -> None:
    told: Told = []

    def once(event: Event, measurements: Mapping[str, float], metadata: Mapping[str, Any], config: Any) -> None:
        telemetry.detach("once")
        telemetry.attach("next", PAID, keep, told)

    telemetry.attach("once", PAID, once)
    telemetry.attach("last", PAID, keep, told)
    telemetry.execute(PAID, {"n": 1}, {})
    assert [row[1]["n"] for row in told] == [1], "who is told was settled when the event happened"
    telemetry.execute(PAID, {"n": 2}, {})
    assert [row[1]["n"] for row in told] == [1, 2, 2]


async def test_an_async_handler_is_refused_and_one_in_disguise_is_detached(telemetry: Telemetry) -> None:
    async def handler(*_: Any) -> None:
        raise AssertionError("nobody awaits it")

    with pytest.raises(TypeError, match="which would not be awaited"):
        telemetry.attach("async", PAID, handler)
    telemetry.attach("disguised", PAID, lambda *args: handler(*args))  # noqa: PLW0108 - hides what it is
    telemetry.execute(PAID, {}, {})
    assert telemetry.list_handlers() == []


@pytest.mark.parametrize("event", [[], (), "shop", ["shop"], [()], [("shop", 1)], (("shop",), "order"), 7, None])
def test_what_is_no_event_name_is_refused_and_nothing_is_attached(telemetry: Telemetry, event: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="no event"):
        telemetry.attach("audit", event, keep)
    assert telemetry.list_handlers() == []


def test_a_span_tells_start_and_stop_with_its_duration(telemetry: Telemetry, clock: Clock) -> None:
    told: Told = []
    telemetry.attach("spans", [("work", "start"), ("work", "stop"), ("work", "exception")], keep, told)
    with telemetry.span(("work",), {"id": 7}) as span:
        clock.now_s += 2.5
        span.measurements["rows"] = 3
        span.metadata["found"] = True
    assert [row[:3] for row in told] == [
        (("work", "start"), {"monotonic_time_s": 100.0}, {"id": 7}),
        (
            ("work", "stop"),
            {"monotonic_time_s": 102.5, "duration_s": 2.5, "rows": 3},
            {"id": 7, "found": True},
        ),
    ]


def test_a_span_tells_of_an_error_and_lets_it_pass(telemetry: Telemetry, clock: Clock) -> None:
    told: Told = []
    telemetry.attach("spans", [("work", "stop"), ("work", "exception")], keep, told)
    error = ValueError("boom")

    def work() -> None:
        with telemetry.span(("work",)):
            clock.now_s += 1.0
            raise error

    with pytest.raises(ValueError, match="boom"):
        work()
    ((event, measurements, metadata, _),) = told
    assert (event, measurements["duration_s"], metadata) == (("work", "exception"), 1.0, {"error": error})


def test_a_source_is_switched_on_by_the_first_handler_and_off_by_the_last(telemetry: Telemetry) -> None:
    switched: list[bool] = []
    telemetry.on_demand(PAID, switched.append)
    telemetry.attach("first", [SENT, PAID], keep, [])
    telemetry.attach("second", PAID, fail)
    assert switched == [True]
    telemetry.detach("first")
    assert switched == [True]
    telemetry.execute(PAID, {}, {})
    assert switched == [True, False]


def test_nobody_listening_costs_hardly_anything_to_find_out(telemetry: Telemetry) -> None:
    probe: Callable[[], bool] = lambda: telemetry.has_handlers(PAID)  # noqa: E731
    assert not probe()
    telemetry.attach("audit", PAID, keep, [])
    assert probe()


# What the runtime tells


class Narrow(Slow):
    mailbox_limit = 2


def listen(system: System, *events: Event) -> Told:
    told: Told = []
    system.telemetry.attach("test", events, keep, told)
    return told


async def test_starts_and_ends_are_told_with_how_many_actors_there_are(system: System) -> None:
    told = listen(system, ACTOR_START, ACTOR_EXIT)
    counter = await system.start(Counter, 0)
    await counter.stop()
    assert [row[:3] for row in told] == [
        (ACTOR_START, {"actors": 2}, {"ref": counter, "parent": None}),
        (ACTOR_EXIT, {"actors": 1}, {"ref": counter, "reason": "normal"}),
    ]


async def test_crashes_are_told_and_other_ends_are_none(system: System) -> None:
    told = listen(system, ACTOR_CRASH)
    counters = [await system.start(Counter, 0) for _ in range(3)]
    for counter, message in zip(counters, ("normal", "shutdown", "boom"), strict=True):
        counter.cast(message)
        await counter.exited()
    whose = {"ref": counters[2], "ancestors": (), "callers": ()}
    assert [row[:3] for row in told] == [(ACTOR_CRASH, {"crashes": 1}, {**whose, "reason": "boom"})]


async def test_a_mailbox_that_overflows_is_told_for_each_message(system: System, autojump_clock: MockClock) -> None:
    told = listen(system, MAILBOX_OVERFLOW)
    busy = await system.start(Narrow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy.call, 1.0)
        await trio.testing.wait_all_tasks_blocked()
        for message in range(3):
            busy.cast(message)
        with pytest.raises(MailboxFull):
            await busy.call(0.0)
    assert [row[1:3] for row in told] == [
        ({"waiting": 2}, {"ref": busy, "kind": "message"}),
        ({"waiting": 2}, {"ref": busy, "kind": "call"}),
    ]


async def test_a_slow_callback_is_told_when_it_is_over(clock: Clock) -> None:
    async with System.open("slow", clock_s=clock) as system:
        told = listen(system, CALLBACK_SLOW)
        scripted = await system.start(Scripted, lambda _server: None)

        def dawdle(_server: Server[Any]) -> None:
            clock.now_s += 0.5

        scripted.cast(dawdle)
        await scripted.call(lambda *_: Reply(None))
        assert [row[1:3] for row in told] == [
            ({"duration_s": 0.5, "collecting_s": 0}, {"actor": scripted.process.label, "callback": "handle_cast"})
        ]


async def test_restarts_are_told_and_that_a_supervisor_gave_up(autojump_clock: MockClock) -> None:
    async with System.open("resilient") as system:
        told = listen(system, SUPERVISOR_RESTART, SUPERVISOR_GAVE_UP)
        await system.start_child(
            SupervisorSpec(
                "hopeless", (ActorSpec("counter", Counter, 0, name="counter"),), max_restarts=1, name="hopeless",
                restart=Restart.TEMPORARY,
            )
        )  # fmt: skip
        hopeless = system.whereis("hopeless")
        for _ in range(2):
            system.named("counter").cast("boom")
            await trio.testing.wait_all_tasks_blocked()
        metadata = {"supervisor": hopeless, "child_id": "counter", "reason": "boom"}
        assert [row[:3] for row in told] == [
            (SUPERVISOR_RESTART, {"restarts": 1}, metadata),
            (SUPERVISOR_GAVE_UP, {"restarts": 2}, metadata),
        ]


async def test_the_restarts_of_dynamic_supervisors_are_told_too(system: System) -> None:
    told = listen(system, SUPERVISOR_RESTART, SUPERVISOR_GAVE_UP)
    supervisor = await system.start_child(DynamicSupervisorSpec("dynamic", max_restarts=1, restart=Restart.TEMPORARY))
    assert supervisor is not None
    await DynamicSupervisor.start_child(supervisor, ActorSpec("counter", Counter, 0, name="counter"))
    for _ in range(2):
        system.named("counter").cast("boom")
        await trio.testing.wait_all_tasks_blocked()
    assert [(row[0], row[2]["supervisor"]) for row in told] == [
        (SUPERVISOR_RESTART, supervisor),
        (SUPERVISOR_GAVE_UP, supervisor),
    ]


async def test_services_are_told_of_too(system: System) -> None:
    told = listen(system, ACTOR_START, ACTOR_EXIT)

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()

    service = await system.start_child(ServiceSpec("brief", serve, restart=Restart.TEMPORARY))
    assert service is not None
    await service.exited()
    assert [(row[0], row[2]["ref"]) for row in told] == [(ACTOR_START, service), (ACTOR_EXIT, service)]
    assert told[0][2]["parent"] is system.root


async def test_who_was_attached_before_the_system_had_begun_hears_all_of_it() -> None:
    hub, heard = Telemetry(lambda: 0.0), list[Event]()
    hub.attach("early", [ACTOR_START, MESSAGE_HANDLED], lambda event, *_: heard.append(event))
    async with System.open("early", telemetry=hub) as system:
        assert system.telemetry is hub
        assert heard == [ACTOR_START], "the root supervisor"
        assert await (await system.start(Counter, 1)).call("get") is not None
    assert MESSAGE_HANDLED in heard
