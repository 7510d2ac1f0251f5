"""A server as one supervision tree: what ends it, with which last word."""

import logging
from collections.abc import Callable

import pytest
import trio
import trio.testing

from batonpass.actors import ChildSpec, ChildStartFailed, Exit, RestartLimitReached, ServiceSpec, SupervisorSpec, System
from batonpass.actors.supervision.application import LastWord, RootEnded, run_application

Status = trio.TaskStatus[None]


class DiskLost(Exception):
    pass


class Service:
    """Starts, and fails when it is told to; counts its lives."""

    def __init__(self, at_start: Exception | None = None) -> None:
        self.at_start = at_start
        self.failure: Exception | None = None
        self.fails = trio.Event()
        self.lives = 0

    def fail(self, error: Exception) -> None:
        self.failure = error
        self.fails.set()

    async def serve(self, *, task_status: Status) -> None:
        self.lives += 1
        if self.at_start is not None:
            raise self.at_start
        task_status.started()
        await self.fails.wait()
        assert self.failure is not None
        raise self.failure


def tree(*children: ChildSpec, max_restarts: int = 3) -> SupervisorSpec:
    return SupervisorSpec("server", children, max_restarts=max_restarts, name="server")


async def run(
    spec: ChildSpec, last_word: LastWord | None = None, started: Callable[[System], object] = lambda _system: None
) -> None:
    await run_application("test", spec, last_word or LastWord(), started)


async def test_it_starts_with_everything_and_ends_when_it_is_cancelled(nursery: trio.Nursery) -> None:
    service, systems = Service(), []
    with trio.CancelScope() as scope:

        def started(system: System) -> None:
            systems.append((service.lives, system.whereis("server")))
            scope.cancel()

        await run(tree(ServiceSpec("service", service.serve)), started=started)
    ((lives, ref),) = systems
    assert lives == 1
    assert ref is not None
    assert not ref.alive


async def test_what_fails_by_accident_is_started_again(autojump_clock: trio.testing.MockClock) -> None:
    service = Service()
    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, tree(ServiceSpec("service", service.serve), max_restarts=1))
            await trio.sleep(1)
            failing, service.fails = service.fails, trio.Event()
            service.failure = OSError("by accident")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(logging.getLogger("batonpass.actors"), "disabled", True)
                failing.set()
                await trio.sleep(1)
    assert service.lives == 2


async def test_a_last_word_ends_the_server_and_nobody_starts_it_again(autojump_clock: trio.testing.MockClock) -> None:
    service, last_word = Service(), LastWord()
    spec = tree(ServiceSpec("disk", last_word.of(service.serve)))
    with pytest.raises(DiskLost):
        await run(spec, last_word, lambda _system: service.fail(DiskLost("fsync failed")))
    assert service.lives == 1
    assert isinstance(last_word.error, DiskLost)


async def test_only_the_first_last_word_counts() -> None:
    last_word = LastWord()

    def both(_system: System) -> None:
        last_word.say(DiskLost("first"))
        last_word.say(KeyError("second"))

    with pytest.raises(DiskLost, match="first"):
        await run(tree(), last_word, both)


async def test_ended_from_outside_such_a_service_is_restarted_as_any_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    service, last_word = Service(), LastWord()
    spec = tree(ServiceSpec("disk", last_word.of(service.serve), name="disk"))

    def kill(system: System) -> None:
        ref = system.whereis("disk")
        assert ref is not None
        ref.kill()

    with trio.move_on_after(5):
        await run(spec, last_word, kill)
    assert (service.lives, last_word.error) == (2, None)


async def test_what_could_not_start_is_told_as_it_failed() -> None:
    service = Service(at_start=OSError("the address is in use"))
    with pytest.raises(OSError, match="in use"):
        await run(tree(SupervisorSpec("below", (ServiceSpec("socket", service.serve),))))


async def test_who_does_not_start_for_no_error_is_told_by_its_name() -> None:
    async def returns(*, task_status: Status) -> None:
        pass

    with pytest.raises(ChildStartFailed, match="the child 'quiet' did not start: 'returned without"):
        await run(tree(ServiceSpec("quiet", returns)))


async def test_a_last_word_at_the_start_is_the_error(autojump_clock: trio.testing.MockClock) -> None:
    last_word = LastWord()
    service = Service(at_start=DiskLost("the journal is damaged"))
    with pytest.raises(DiskLost):
        await run(tree(ServiceSpec("disk", last_word.of(service.serve))), last_word)


async def test_a_failure_that_comes_again_and_again_ends_it_and_names_who_gave_up_first(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*, task_status: Status) -> None:
        task_status.started()
        raise RuntimeError("again")

    with caplog.at_level(logging.CRITICAL), pytest.raises(RestartLimitReached) as caught:
        await run(tree(ServiceSpec("flaky", fails), max_restarts=1))
    assert caught.value.child_id == "flaky"
    assert "'server'" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_a_root_that_is_ended_in_order_from_outside_is_a_failure_of_the_server() -> None:
    with pytest.raises(RootEnded, match=r"'root' #1> was ended from outside \('shutdown'\), and the server ends"):
        await run(tree(), started=lambda system: system.root.process.request_stop("shutdown"))


async def test_without_its_root_it_ends() -> None:
    with pytest.raises(Exit, match="killed"):
        await run(tree(), started=lambda system: system.root.kill())
