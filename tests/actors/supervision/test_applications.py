"""Applications: in which order they start and end, with which configuration, and what the end of one means."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors import ActorSpec, ChildSpec, RestartLimitReached, Server, ServiceSpec, StartError, SupervisorSpec
from batonpass.actors.supervision.applications import ApplicationError, Applications, ApplicationSpec
from tests.budget import examples

Log = list[tuple[str, Any]]


def tree(name: str, log: Log, config: Mapping[str, Any]) -> ChildSpec:
    """Writes down when it starts, and when all else of it has ended."""

    async def around(*, task_status: trio.TaskStatus[None]) -> None:
        if config.get("fails"):
            raise OSError("no disk")
        log.append((name, dict(config)))
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            log.append((name, "ended"))

    return SupervisorSpec(name, [ServiceSpec("around", around), ActorSpec("work", Server, None)], name=name)


def spec(name: str, log: Log, *depends_on: str, **options: Any) -> ApplicationSpec:
    return ApplicationSpec(name, partial(tree, name, log), depends_on, **options)


def shop(log: Log, **options: Any) -> list[ApplicationSpec]:
    db = spec("db", log, config={"size": 1})
    return [spec("shop", log, "web", "db"), spec("web", log, "db", config={"size": 2}, **options), db]


async def test_each_has_its_configuration_and_a_clean_end() -> None:
    log: Log = []
    applications = Applications(shop(log), {"web": {"size": 20}})
    async with applications.open("node", "shop") as system:
        assert log == [("db", {"size": 1}), ("web", {"size": 20}), ("shop", {})]
        assert await applications.running(system) == ["db", "web", "shop"]
        log.clear()
    assert log == [("shop", "ended"), ("web", "ended"), ("db", "ended")]


async def test_one_that_is_stopped_takes_what_depends_on_it_along_and_may_start_again() -> None:
    log: Log = []
    applications = Applications(shop(log))
    async with applications.open("node", "shop") as system:
        assert await applications.stop(system, "web") == ["shop", "web"]
        assert await applications.stop(system, "web") == []
        assert await applications.running(system) == ["db"]
        assert await applications.ensure_all_started(system, "shop") == ["web", "shop"]
        assert await applications.running(system) == ["db", "web", "shop"]


async def test_a_permanent_one_may_be_stopped_too() -> None:
    applications = Applications(shop([], permanent=True))
    async with applications.open("node", "web") as system:
        await applications.stop(system, "web")
        assert await applications.running(system) == ["db"]
        assert await applications.ensure_all_started(system, "web") == ["web"]


async def test_the_end_of_a_permanent_one_is_that_of_the_system() -> None:
    log: Log = []

    async def run() -> None:
        async with Applications(shop(log, permanent=True)).open("node", "shop") as system:
            await system.named("web").stop("normal")
            await trio.sleep_forever()

    with trio.fail_after(5), pytest.raises(RestartLimitReached, match="web"):
        await run()
    assert sorted(name for name, what in log if what == "ended") == ["db", "shop", "web"]


@pytest.mark.parametrize("how", ["normal", "killed"])
async def test_the_end_of_another_is_its_own(how: str) -> None:
    applications = Applications(shop([]))
    async with applications.open("node", "shop") as system:
        if how == "killed":
            system.named("web").kill()
        else:
            await system.named("web").stop(how)
        assert await applications.running(system) == ["db", "shop"]
        assert await applications.ensure_all_started(system, "web") == ["web"]


async def test_what_was_started_for_one_that_does_not_start_is_ended_again() -> None:
    log: Log = []
    applications = Applications([*shop(log), spec("bad", log, "shop", config={"fails": True})])
    async with applications.open("node", "db") as system:
        with pytest.raises(StartError):
            await applications.ensure_all_started(system, "bad")
        assert await applications.running(system) == ["db"]


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Applications([spec("a", []), spec("a", [])]), "two applications have one name"),
    (lambda: Applications([spec("a", [], "b")]), "'a' depends on 'b', and there is no such application"),
    (lambda: Applications([spec("a", [], "b"), spec("b", [], "a")]), "in a circle: a > b > a|in a circle: b > a > b"),
    (lambda: Applications([spec("a", [])], {"b": {}}), "configuration for 'b', and there is no such application"),
    (lambda: Applications([spec("a", [])], {"a": {"sise": 1}}), "'a' has no setting 'sise'"),
]


@pytest.mark.parametrize(("make", "sentence"), WRONG)
def test_what_makes_no_sense_is_refused_before_anything_starts(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ApplicationError, match=sentence):
        make()


async def test_what_is_not_known_is_neither_started_nor_stopped() -> None:
    applications = Applications([spec("a", [])])
    async with applications.open("node") as system:
        for do in (applications.ensure_all_started, applications.stop):
            with pytest.raises(ApplicationError, match="'b', and there is no such application"):
                await do(system, "b")


NAMES = "abcdef"


@settings(max_examples=examples(40))
@given(st.data())
def test_what_is_depended_on_starts_first_and_ends_last(data: st.DataObject) -> None:
    trio.run(starts_first_and_ends_last, data)


async def starts_first_and_ends_last(data: st.DataObject) -> None:
    log: Log = []
    order = data.draw(st.permutations(NAMES))
    below = {
        name: data.draw(st.sets(st.sampled_from(order[:place]))) if place else set() for place, name in enumerate(order)
    }
    applications = Applications([spec(name, log, *below[name]) for name in NAMES])
    async with applications.open("node", *data.draw(st.sets(st.sampled_from(NAMES)))) as system:
        running = await applications.running(system)
        for name in running:
            assert below[name] <= set(running[: running.index(name)])
        stopped = data.draw(st.sampled_from(NAMES))
        ended = await applications.stop(system, stopped)
        left = await applications.running(system)
        assert stopped not in left
        assert all(below[name] <= set(left) for name in left)
        assert [name for name, what in log if what == "ended"] == ended
