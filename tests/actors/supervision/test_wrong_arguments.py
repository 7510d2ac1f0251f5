"""What is wrong is refused where it is written, by a sentence that names it; and never costs anybody else a life."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import trio

from batonpass import actors
from batonpass.actors import (
    AutoShutdown,
    ChildSpec,
    Restart,
    Server,
    StartError,
    Strategy,
    SupervisorError,
    System,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from batonpass.actors import Ref

wrong: Any = actors
"""What is written below is what a type checker would refuse."""

OK: Any = wrong.ActorSpec("a", Server)

WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: wrong.ActorSpec([1], Server), TypeError, r"id of a child must be hashable.*not \[1\]"),
    (lambda: wrong.ActorSpec("a", Server, name=[1]), TypeError, r"name of the child 'a' must be hashable"),
    (
        lambda: wrong.ActorSpec("a", Server, restart="always"),
        ValueError,
        r"restart .* 'a' .*Restart.PERM.*'always'",
    ),
    (lambda: wrong.ActorSpec("a", Server, restart=True), TypeError, r"Restart.PERMANENT"),
    (lambda: wrong.ActorSpec("a", Server, shutdown_s="5"), TypeError, r"shutdown_s of the child 'a' .*seconds.* '5'"),
    (lambda: wrong.ActorSpec("a", Server, shutdown_s=-1), ValueError, r"0 or more, not -1"),
    (lambda: wrong.ActorSpec("a", Server, shutdown_s=math.nan), ValueError, r"not nan"),
    (lambda: wrong.ActorSpec("a", Server, start_timeout_s="x"), TypeError, r"start_timeout_s of the child 'a'"),
    (lambda: wrong.ActorSpec("a", Server, significant="no"), TypeError, r"significant .*True or False"),
    (lambda: wrong.ActorSpec("a", dict), TypeError, r"'a' must be a Server class, not <class 'dict'>"),
    (lambda: wrong.ActorSpec("a", Server()), TypeError, r"'a' must be what makes a Server.*write Server, the class"),
    (lambda: wrong.ServiceSpec("s", 5), TypeError, r"serve of the child 's'"),
    (lambda: wrong.TaskSpec("t", 5), TypeError, r"function of the child 't'"),
    (
        lambda: wrong.SupervisorSpec("s", (Server,)),
        TypeError,
        r"children of the supervisor 's': number 0 .* 'batonpass\.actors",
    ),
    (lambda: wrong.SupervisorSpec("s", wrong.ActorSpec("a", Server)), TypeError, r"write \[ActorSpec\(\.\.\.\)\]"),
    (lambda: wrong.SupervisorSpec("s", strategy="some"), ValueError, r"strategy of .* 's' .*Strategy.ONE_FOR_ONE"),
    (lambda: wrong.SupervisorSpec("s", max_restarts="3"), TypeError, r"max_restarts of .* 's' .*whole number.* '3'"),
    (lambda: wrong.SupervisorSpec("s", max_restarts=-1), ValueError, r"0 or more, not -1"),
    (lambda: wrong.SupervisorSpec("s", window_s=0), ValueError, r"more than 0, not 0"),
    (lambda: wrong.SupervisorSpec("s", window_s=math.nan), ValueError, r"not nan"),
    (lambda: wrong.SupervisorSpec("s", auto_shutdown=1), TypeError, r"AutoShutdown.NEVER"),
    (
        lambda: wrong.core.supervisor.SupervisorFlags(5),
        TypeError,
        r"children of a supervisor must be a sequence.* not 5",
    ),
    (lambda: wrong.DynamicSupervisorSpec("d", max_children="3"), TypeError, r"max_children of .* 'd' .* or None"),
    (
        lambda: wrong.DynamicSupervisorSpec("d", extra_arguments=[1]),
        TypeError,
        r"extra_arguments of .* must be a tuple",
    ),
    (lambda: wrong.TaskSupervisorSpec("t", max_restarts=1.5), TypeError, r"max_restarts of .* 't'"),
    (
        lambda: wrong.PartitionSupervisorSpec("p", wrong.ActorSpec("a", Server), partitions="2"),
        TypeError,
        r"partitions of 'p'",
    ),
    (
        lambda: wrong.PartitionSupervisorSpec("p", Server, partitions=2),
        TypeError,
        r"'p': child must be one ChildSpec",
    ),
]


@pytest.mark.parametrize(("make", "problem", "sentence"), WRONG)
def test_a_specification_that_cannot_work_is_refused_when_it_is_made(
    make: Callable[[], object], problem: type[Exception], sentence: str
) -> None:
    with pytest.raises(problem, match=sentence):
        make()


def test_settings_may_be_given_by_their_values() -> None:
    child: Any = wrong.ActorSpec("a", Server, restart="temporary")
    parent: Any = wrong.SupervisorSpec("s", [child], strategy="rest_for_one", auto_shutdown="any_significant")
    assert child.restart is Restart.TEMPORARY
    assert (parent.children, parent.strategy) == ((child,), Strategy.REST_FOR_ONE)
    assert parent.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT


async def test_a_system_says_what_is_wrong_with_its_children() -> None:
    with pytest.raises(TypeError, match=r"write \[ActorSpec\(\.\.\.\)\]"):
        async with wrong.System.open("node", wrong.ActorSpec("a", Server)):
            pass


class Broken(ChildSpec):
    """A kind of child of somebody's own, with a fault in it."""

    def start_nowait(self, system: System, parent: object) -> Any:
        raise ZeroDivisionError("a fault")


NOT_FOR_A_SUPERVISOR: list[tuple[Callable[[Ref], Awaitable[object]], type[Exception], str]] = [
    (
        lambda it: wrong.Supervisor.start_child(it, Server),
        SupervisorError,
        "no child specification: give",
    ),
    (lambda it: wrong.Supervisor.terminate_child(it, [1]), SupervisorError, r"\[1\] is no id of a child"),
    (lambda it: wrong.Supervisor.terminate_child(it, {}), SupervisorError, "is no id of a child"),
    (lambda it: wrong.Supervisor.restart_child(it, [1]), SupervisorError, "is no id of a child"),
    (lambda it: wrong.Supervisor.delete_child(it, [1]), SupervisorError, "is no id of a child"),
    (lambda it: wrong.Supervisor.get_childspec(it, [1]), SupervisorError, "is no id of a child"),
    (lambda it: wrong.Supervisor.start_child(it, Broken("b")), StartError, "ZeroDivisionError"),
]
NOT_FOR_A_DYNAMIC_ONE: list[tuple[Callable[[Ref], Awaitable[object]], type[Exception], str]] = [
    (lambda it: wrong.DynamicSupervisor.start_child(it, Server), SupervisorError, "no child specification"),
    (lambda it: wrong.DynamicSupervisor.start_child(it, Broken("b")), StartError, "ZeroDivisionError"),
    (lambda it: wrong.DynamicSupervisor.terminate_child(it, "x"), SupervisorError, "'x' is no ref"),
]


@pytest.mark.parametrize(("ask", "problem", "sentence"), NOT_FOR_A_SUPERVISOR)
async def test_a_supervisor_answers_what_is_invalid_and_lives_on(
    ask: Callable[[Ref], Awaitable[object]], problem: type[Exception], sentence: str
) -> None:
    async with System.open("node", [wrong.ActorSpec("good", Server, name="good")]) as system:
        good = system.named("good").ref
        with pytest.raises(problem, match=sentence):
            await ask(system.root)
        await trio.testing.wait_all_tasks_blocked()
        assert good is not None
        assert good.alive
        assert len(await wrong.Supervisor.which_children(system.root)) == 1


@pytest.mark.parametrize(("ask", "problem", "sentence"), NOT_FOR_A_DYNAMIC_ONE)
async def test_a_dynamic_supervisor_answers_what_is_invalid_and_lives_on(
    ask: Callable[[Ref], Awaitable[object]], problem: type[Exception], sentence: str
) -> None:
    async with System.open("node", [wrong.DynamicSupervisorSpec("many", name="many")]) as system:
        many = system.whereis("many")
        assert many is not None
        good = await wrong.DynamicSupervisor.start_child(many, wrong.ActorSpec("good", Server))
        with pytest.raises(problem, match=sentence):
            await ask(many)
        assert good is not None
        assert good.alive
        assert (await wrong.DynamicSupervisor.count_children(many)).specs == 1


async def test_a_task_supervisor_answers_what_is_invalid_and_lives_on() -> None:
    async with System.open("node", [wrong.TaskSupervisorSpec("tasks", name="tasks")]) as system:
        with pytest.raises(SupervisorError, match=r"\[1\] is no ref"):
            await wrong.TaskSupervisor.terminate_child(system.named("tasks"), [1])
        assert system.named("tasks").alive
