"""Supervisors: who is restarted when, in which order, and when it is hopeless."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    ActorSpec,
    AutoShutdown,
    ChildSpec,
    ChildStartFailed,
    Exit,
    Ref,
    Restart,
    RestartLimitReached,
    Server,
    StartError,
    Stop,
    Strategy,
    Supervisor,
    SupervisorError,
    SupervisorSpec,
    System,
)
from tests.actors.servers import Counter, Last, Scripted, ignore

Journal = list[str]


class Child(Server[tuple[str, Journal]]):
    """Writes its starts and orderly ends into a journal; ends for the reason it is cast."""

    trap_exit = True

    def init(self, arg: tuple[str, Journal]) -> tuple[str, Journal]:
        arg[1].append(f"+{arg[0]}")
        return arg

    def handle_cast(self, message: Any, state: tuple[str, Journal]) -> Stop[tuple[str, Journal]]:
        return Stop(message)

    def terminate(self, reason: object, state: tuple[str, Journal]) -> None:
        if reason == "shutdown":
            state[1].append(f"-{state[0]}")


def family(journal: Journal, **restarts: Restart) -> tuple[ChildSpec, ...]:
    return tuple(
        ActorSpec(name, Child, (name, journal), restart=restart, name=name) for name, restart in restarts.items()
    )


def abc(journal: Journal, b: Restart = Restart.PERMANENT) -> tuple[ChildSpec, ...]:
    return family(journal, a=Restart.PERMANENT, b=b, c=Restart.PERMANENT)


async def crash(system: System, name: str, reason: object = "boom") -> None:
    system.named(name).cast(reason)
    await trio.testing.wait_all_tasks_blocked()


async def start(system: System, children: tuple[ChildSpec, ...], **flags: Any) -> Ref:
    ref = await system.start_child(SupervisorSpec("sup", children, restart=Restart.TEMPORARY, name="sup", **flags))
    assert ref is not None
    return ref


# order


async def test_children_start_in_order_and_stop_in_reverse(system: System) -> None:
    journal: Journal = []
    sup = await start(system, abc(journal))
    await sup.stop("shutdown")
    assert journal == ["+a", "+b", "+c", "-c", "-b", "-a"]


async def test_a_child_that_does_not_start_takes_the_started_ones_down_again(system: System) -> None:
    journal: Journal = []

    class Failing(Server[None]):
        def init(self, arg: None) -> None:
            raise OSError("address in use")

    with pytest.raises(StartError) as caught:
        await start(system, (*abc(journal), ActorSpec("d", Failing)))
    assert journal == ["+a", "+b", "+c", "-c", "-b", "-a"]
    failed = caught.value.__cause__
    assert isinstance(failed, ChildStartFailed)
    assert failed.child_id == "d"
    assert isinstance(failed.reason, OSError)
    assert system.whereis("sup") is None


async def test_a_child_that_ignores_its_start_is_kept_but_does_not_run(system: System) -> None:
    sup = await start(system, (ActorSpec("shy", Scripted, ignore), ActorSpec("b", Counter, 0)))
    shy, b = await Supervisor.which_children(sup)
    assert (shy.ref, shy.status) == (None, "stopped")
    assert b.status == "running"


async def test_two_children_cannot_have_the_same_id(system: System) -> None:
    with pytest.raises(StartError, match="unique"):
        await start(system, (ActorSpec("a", Counter, 0), ActorSpec("a", Counter, 0)))


# strategies


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Strategy.ONE_FOR_ONE, ["+b"]),
        (Strategy.ONE_FOR_ALL, ["-c", "-a", "+a", "+b", "+c"]),
        (Strategy.REST_FOR_ONE, ["-c", "+b", "+c"]),
    ],
)
async def test_b_of_a_b_c_crashes(system: System, strategy: Strategy, expected: Journal) -> None:
    journal: Journal = []
    await start(system, abc(journal), strategy=strategy)
    journal.clear()
    await crash(system, "b")
    assert journal == expected
    assert all(system.named(name).alive for name in "abc")


@pytest.mark.parametrize("strategy", Strategy)
async def test_temporary_victim_is_not_restarted_and_others_are_untouched(system: System, strategy: Strategy) -> None:
    journal: Journal = []
    sup = await start(system, abc(journal, b=Restart.TEMPORARY), strategy=strategy)
    journal.clear()
    await crash(system, "b")
    assert journal == []
    assert [child.id for child in await Supervisor.which_children(sup)] == ["a", "c"]


async def test_one_for_all_temporary_sibling_is_terminated_and_not_restarted(system: System) -> None:
    journal: Journal = []
    children = family(journal, a=Restart.TEMPORARY, b=Restart.PERMANENT, c=Restart.PERMANENT)
    sup = await start(system, children, strategy=Strategy.ONE_FOR_ALL)
    journal.clear()
    await crash(system, "b")
    assert journal == ["-c", "-a", "+b", "+c"]
    assert [child.id for child in await Supervisor.which_children(sup)] == ["b", "c"]


@pytest.mark.parametrize("restart", Restart)
@pytest.mark.parametrize("reason", ["normal", "shutdown", ("shutdown", "x"), "boom"])
async def test_restart_by_setting_and_exit_reason(system: System, restart: Restart, reason: object) -> None:
    journal: Journal = []
    await start(system, family(journal, b=restart))
    await crash(system, "b", reason)
    restarted = restart is Restart.PERMANENT or (restart is Restart.TRANSIENT and reason == "boom")
    assert journal.count("+b") == 1 + restarted


async def test_two_crashes_at_once_under_one_for_all_are_one_restart(system: System) -> None:
    journal: Journal = []
    await start(system, abc(journal), strategy=Strategy.ONE_FOR_ALL, max_restarts=1)
    journal.clear()
    system.named("a").cast("boom")
    system.named("b").cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert journal == ["-c", "+a", "+b", "+c"]
    assert system.named("sup").alive


async def test_a_crash_right_after_the_start_counts_with_its_own_reason(system: System) -> None:
    class Short(Counter):
        def init(self, arg: int) -> int:
            self.ref.cast("normal")
            return arg

    sup = await start(system, (ActorSpec("short", Short, 0, restart=Restart.TRANSIENT),))
    await trio.testing.wait_all_tasks_blocked()
    (short,) = await Supervisor.which_children(sup)
    assert short.status == "stopped", "it finished: nothing to restart"


# intensity


async def test_one_child_always_crashing_max_restarts_3_is_started_4_times(system: System) -> None:
    assert await _starts_until_it_gives_up(system, children=1, max_restarts=3) == 4


async def test_max_restarts_0_is_one_start(system: System) -> None:
    assert await _starts_until_it_gives_up(system, children=1, max_restarts=0) == 1


async def test_3_crashing_children_max_restarts_3_are_6_starts_counted_per_supervisor(system: System) -> None:
    assert await _starts_until_it_gives_up(system, children=3, max_restarts=3) == 6


async def _starts_until_it_gives_up(system: System, children: int, max_restarts: int) -> int:
    journal: Journal = []

    class Crashing(Child):
        def init(self, arg: tuple[str, Journal]) -> tuple[str, Journal]:
            self.ref.cast("boom")
            return super().init(arg)

    specs = tuple(ActorSpec(number, Crashing, (str(number), journal)) for number in range(children))
    sup = await start(system, specs, max_restarts=max_restarts)
    reason = await sup.exited()
    match reason:
        case ("shutdown", RestartLimitReached()):
            return sum(entry.startswith("+") for entry in journal)
        case _:
            raise AssertionError(f"a supervisor that gives up shuts down, not {reason!r}")


async def test_a_supervisor_that_gives_up_ends_its_other_children_first(system: System) -> None:
    journal: Journal = []
    sup = await start(system, abc(journal), max_restarts=0)
    journal.clear()
    await crash(system, "b")
    assert journal == ["-c", "-a"]
    assert not sup.alive


async def test_restarts_are_forgotten_after_the_window(system: System, autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    sup = await start(system, family(journal, a=Restart.PERMANENT), max_restarts=1, window_s=5.0)
    for _ in range(10):
        await trio.sleep(5.1)
        await crash(system, "a")
    assert sup.alive
    await crash(system, "a")
    assert not sup.alive


async def test_giving_up_names_the_child_and_its_exception(system: System) -> None:
    sup = await start(system, (ActorSpec("counter", Counter, 0, name="counter"),), max_restarts=0)
    with pytest.raises(Exit):
        await system.named("counter").call("raise")
    match await sup.exited():
        case ("shutdown", RestartLimitReached() as gave_up):
            assert gave_up.child_id == "counter"
            assert isinstance(gave_up.__cause__, ValueError)
            assert "counter" in str(gave_up)
        case reason:
            raise AssertionError(reason)


async def test_a_restart_that_fails_is_tried_again_and_counted(system: System) -> None:
    attempts: list[bool] = []

    class Shaky(Counter):
        def init(self, arg: Callable[[int], bool]) -> int:
            attempts.append(arg(len(attempts)))
            if not attempts[-1]:
                raise OSError("not yet")
            return 0

    def third_time_lucky(attempt: int) -> bool:
        return attempt in (0, 3)

    sup = await start(system, (ActorSpec("shaky", Shaky, third_time_lucky, name="shaky"),), max_restarts=3)
    await crash(system, "shaky")
    assert attempts == [True, False, False, True]
    assert sup.alive

    await crash(system, "shaky")
    assert not sup.alive, "three restarts were used up"


async def test_a_failed_restart_under_one_for_all_begins_again_with_everybody(system: System) -> None:
    journal: Journal = []
    failures = [False, True, False]

    class Shaky(Child):
        def init(self, arg: tuple[str, Journal]) -> tuple[str, Journal]:
            if failures.pop(0):
                journal.append("!b")
                raise OSError("not yet")
            return super().init(arg)

    a, _, c = abc(journal)
    b = ActorSpec("b", Shaky, ("b", journal), name="b")
    await start(system, (a, b, c), strategy=Strategy.ONE_FOR_ALL)
    journal.clear()
    await crash(system, "c")
    assert journal == ["-b", "-a", "+a", "!b", "-a", "+a", "+b", "+c"]


# shutdown


async def test_a_child_that_takes_too_long_to_end_is_killed(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Endless(Counter):
        trap_exit = True

        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep_forever()

    sup = await start(system, (ActorSpec("endless", Endless, 0, shutdown_s=2.0, name="endless"),))
    endless = system.whereis("endless")
    assert endless is not None
    began_s = trio.current_time()
    await sup.stop()
    assert trio.current_time() == began_s + 2.0
    assert await endless.exited() == "killed"


async def test_shutdown_0_kills_at_once(system: System) -> None:
    journal: Journal = []
    spec = ActorSpec("a", Child, ("a", journal), shutdown_s=0, name="a")
    sup = await start(system, (spec,))
    a = system.whereis("a")
    assert a is not None
    await sup.stop()
    assert await a.exited() == "killed"
    assert journal == ["+a"]


async def test_a_child_that_does_not_trap_exits_ends_without_terminate(system: System) -> None:
    journal: Journal = []

    class Plain(Child):
        trap_exit = False

    sup = await start(system, (ActorSpec("a", Plain, ("a", journal)),))
    await sup.stop()
    assert journal == ["+a"]


async def test_the_children_of_a_killed_supervisor_do_not_outlive_it(system: System) -> None:
    journal: Journal = []
    sup = await start(system, (*abc(journal), SupervisorSpec("inner", family(journal, d=Restart.PERMANENT))))
    sup.kill()
    await trio.testing.wait_all_tasks_blocked()
    assert system.registry.names() == ["root"]


async def test_a_supervisor_restarts_a_supervisor_with_all_its_children(system: System) -> None:
    journal: Journal = []
    inner = SupervisorSpec("inner", abc(journal), max_restarts=0)
    await start(system, (inner,))
    journal.clear()
    await crash(system, "b")
    assert journal == ["-c", "-a", "+a", "+b", "+c"]


async def test_an_error_sentence_does_not_name_a_thousand_children(system: System) -> None:
    sup = await start(system, tuple(ActorSpec(number, Counter, 0) for number in range(1000)))
    with pytest.raises(SupervisorError, match=r"and 990 more$"):
        await Supervisor.terminate_child(sup, "z")


# significant children


@pytest.mark.parametrize(
    ("auto_shutdown", "restart", "complaint"),
    [
        (AutoShutdown.NEVER, Restart.TRANSIENT, "NEVER"),
        (AutoShutdown.ANY_SIGNIFICANT, Restart.PERMANENT, "permanent"),
    ],
)
async def test_significant_has_to_make_sense(
    system: System, auto_shutdown: AutoShutdown, restart: Restart, complaint: str
) -> None:
    spec = ActorSpec("a", Counter, 0, restart=restart, significant=True)
    with pytest.raises(StartError, match=complaint):
        await start(system, (spec,), auto_shutdown=auto_shutdown)
    sup = await start(system, (), auto_shutdown=auto_shutdown)
    with pytest.raises(SupervisorError, match=complaint):
        await Supervisor.start_child(sup, spec)
    assert await Supervisor.which_children(sup) == []


async def test_the_end_of_a_significant_child_ends_the_system_in_order() -> None:
    """What a program is for may be a child like any other: when it is done, everything ends."""
    journal: Journal = []
    children = (
        *abc(journal),
        ActorSpec("main", Child, ("main", journal), restart=Restart.TRANSIENT, significant=True, name="main"),
    )
    async with System.open("node", children, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT) as system:
        system.named("main").cast("normal")
        await trio.sleep(60)
    assert journal == ["+a", "+b", "+c", "+main", "-c", "-b", "-a"]


# the time to end


class Tardy(Server[None]):
    """Takes `arg` seconds to clean up."""

    trap_exit = True

    def init(self, arg: float) -> None:
        self.takes_s = arg

    async def terminate(self, reason: object, state: None) -> None:
        await trio.sleep(self.takes_s)


@pytest.mark.parametrize(
    ("takes_s", "shutdown_s", "ended_after_s", "reason"),
    [
        (3.0, 5.0, 3.0, "shutdown"),
        (8.0, 5.0, 5.0, "killed"),
        (8.0, 0, 0.0, "killed"),
        (1000.0, None, 1000.0, "shutdown"),
    ],
)
async def test_a_child_is_given_its_time_and_no_more(
    system: System,
    autojump_clock: trio.testing.MockClock,
    takes_s: float,
    shutdown_s: float | None,
    ended_after_s: float,
    reason: str,
) -> None:
    sup = await start(system, (ActorSpec("tardy", Tardy, takes_s, shutdown_s=shutdown_s),))
    (tardy,) = await Supervisor.which_children(sup)
    assert tardy.ref is not None
    began_s = trio.current_time()
    await Supervisor.terminate_child(sup, "tardy")
    assert trio.current_time() - began_s == ended_after_s
    assert await tardy.ref.exited() == reason


# starts that wait


class Slow(Counter):
    async def init(self, arg: float) -> int:
        await trio.sleep(arg)
        return 0


async def test_a_start_that_takes_too_long_fails(system: System, autojump_clock: trio.testing.MockClock) -> None:
    sup = await start(system, ())
    with pytest.raises(StartError, match="timeout"):
        await Supervisor.start_child(sup, ActorSpec("slow", Slow, 9.0, start_timeout_s=2.0))
    assert await Supervisor.which_children(sup) == []
    assert await Supervisor.start_child(sup, ActorSpec("slow", Slow, 1.0, start_timeout_s=2.0)) is not None


async def test_a_supervisor_that_is_killed_while_a_child_starts_takes_it_along(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    sup = await start(system, ())
    refused: list[object] = []

    async def ask() -> None:
        try:
            await Supervisor.start_child(sup, ActorSpec("slow", Slow, 1000.0, name="slow"))
        except Exit as error:
            refused.append(error.reason)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert system.whereis("slow") is not None
        sup.kill()
        await sup.exited()
    assert refused == ["killed"]
    assert system.whereis("slow") is None
    assert len(system.actors()) == 1


async def test_trees_whose_actors_need_not_wait_take_no_tasks(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = ActorSpec("leaf", Counter, 0)
    tree = SupervisorSpec("top", (SupervisorSpec("mid", (SupervisorSpec("low", (leaf,)),)),))
    spawned: list[Any] = []
    spawn = system.spawn

    def spy(process: Any, *rest: Any) -> None:
        spawned.append(process)
        spawn(process, *rest)

    monkeypatch.setattr(system, "spawn", spy)
    assert await system.start_child(tree) is not None
    assert spawned == [], "nobody had to wait for a start"
    await Supervisor.terminate_child(system.root, "top")
    assert [process.ref for process in spawned].count(system.root) == 1
    assert len(spawned) == 3, "each supervisor but the lowest waits for the one below it to end"


# the end of the system


@pytest.mark.parametrize("strategy", Strategy)
async def test_who_ends_while_the_system_comes_to_its_end_is_not_started_again_and_nobody_is_alarmed(
    strategy: Strategy, caplog: pytest.LogCaptureFixture
) -> None:
    journal: Journal = []
    async with System.open("inner") as system:
        await start(system, abc(journal), strategy=strategy)
        await system.start_child(ActorSpec("last", Last, lambda: system.named("b").cast("normal")))
    assert journal == ["+a", "+b", "+c", "-c", "-a"]
    assert caplog.text == ""


async def test_a_restart_that_the_end_of_the_system_overtakes_is_no_error(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """The plan starts two: the first takes so long that it is given up, and the other is not started any more."""
    begun = trio.Event()

    class Slow(Child):
        lives = 0

        async def init(self, arg: tuple[str, Journal]) -> tuple[str, Journal]:  # type: ignore[override]  # it waits
            Slow.lives += 1
            if Slow.lives > 1:
                begun.set()
                await trio.sleep(1.0)
            arg[1].append(f"+{arg[0]}")
            return arg

    journal: Journal = []
    family_of_two = (ActorSpec("a", Slow, ("a", journal), name="a"), *family(journal, b=Restart.PERMANENT))
    async with System.open("inner") as system:
        await start(system, family_of_two, strategy=Strategy.ONE_FOR_ALL)
        system.named("b").cast("boom")
        await begun.wait()
        caplog.clear()
    assert journal == ["+a", "+b", "-a"]
    assert caplog.text == ""
