"""Running what fired: by whoever leads, in order, once as a rule and at least once always."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.tree import ANY_NAME, Fired, Replica
from batonpass.tree.member.status import Latency, ReplicaStatus
from batonpass.tree.member.triggering import MAX_RUN_S, run_triggers
from batonpass.tree.raft.submissions import NoQuorum
from batonpass.tree.store.changes import Kind
from batonpass.tree.store.pattern import pattern_to_data
from tests.tree.instances import configs, until

STATUS = ReplicaStatus("h0", "h0", 1, (), 1, 1, True, True, 0, Latency.of(0, ()))


class Keeper:
    """A replica of which only this part is there: what is pending, whether it leads, what was acknowledged."""

    def __init__(self, *numbers: int, procedure: str = "notify") -> None:
        self.status = STATUS
        self.applied_index = 0
        self.pending = {n: Fired(n, "t", procedure, n, Kind.CREATED, ("jobs", str(n)), 1) for n in numbers}
        self.refusals = 0
        self._news = trio.Event()

    async def changed(self, since: int | None = None) -> int:
        await self._news.wait()
        return self.applied_index

    def tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def pending_triggers(self) -> tuple[Fired, ...]:
        return tuple(self.pending.values())

    async def submit(self, procedure: str, args: Any = None) -> Any:
        assert procedure == "tree.trigger_done"
        await trio.lowlevel.checkpoint()
        if self.refusals:
            self.refusals -= 1
            raise NoQuorum("nobody there")
        for number in args["numbers"]:
            del self.pending[number]


async def test_what_fired_is_run_in_order_and_acknowledged(nursery: trio.Nursery) -> None:
    keeper, ran = Keeper(*range(40)), []

    async def notify(fired: Fired) -> None:
        ran.append(fired.number)

    nursery.start_soon(run_triggers, keeper, {"notify": notify})
    await wait_all_tasks_blocked()
    assert ran == list(range(40))
    assert not keeper.pending


async def test_only_a_leader_that_has_caught_up_runs_anything(nursery: trio.Nursery) -> None:
    keeper, ran = Keeper(1), []

    async def notify(fired: Fired) -> None:
        ran.append(fired.number)

    keeper.status = replace(STATUS, is_leader=False)
    nursery.start_soon(run_triggers, keeper, {"notify": notify})
    await wait_all_tasks_blocked()
    keeper.status = replace(STATUS, ready=False)
    keeper.tell()
    await wait_all_tasks_blocked()
    assert ran == []
    keeper.status = STATUS
    keeper.tell()
    await wait_all_tasks_blocked()
    assert ran == [1]


async def test_what_could_not_be_acknowledged_is_not_run_again_here(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    keeper, ran = Keeper(1, 2), []
    keeper.refusals = 3

    async def notify(fired: Fired) -> None:
        ran.append(fired.number)

    nursery.start_soon(run_triggers, keeper, {"notify": notify})
    await trio.sleep(10)
    assert (ran, keeper.pending) == ([1, 2], {})


async def test_a_procedure_that_fails_hangs_or_is_missing_stands_in_nobodys_way(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, ran = Keeper(1, 2, 3), []

    async def notify(fired: Fired) -> None:
        ran.append(fired.number)
        if fired.number == 1:
            raise ZeroDivisionError
        if fired.number == 2:
            await trio.sleep_forever()

    caplog.set_level(logging.INFO)
    nursery.start_soon(run_triggers, keeper, {"notify": notify})
    await trio.sleep(MAX_RUN_S + 1)
    assert (ran, keeper.pending) == ([1, 2, 3], {})
    assert caplog.text.count("the procedure 'notify' failed") == 2
    nursery.start_soon(run_triggers, missing := Keeper(1, procedure="gone"), {"notify": notify})
    await trio.sleep(1)
    assert missing.pending == {}
    assert "'gone', which is not declared here" in caplog.text


async def test_when_the_leader_goes_the_next_one_runs_what_is_left(tmp_path: Path, nursery: trio.Nursery) -> None:
    ran: list[tuple[str, str]] = []
    blocked = trio.Event()
    scopes: dict[str, trio.CancelScope] = {}
    replicas: dict[str, Replica] = {}

    async def start(config: Any) -> None:
        async def notify(fired: Fired) -> None:
            ran.append((config.name, fired.path[-1]))
            if fired.path[-1] == "hang" and len([path for _, path in ran if path == "hang"]) == 1:
                blocked.set()
                await trio.sleep_forever()

        replicas[config.name] = Replica(config, {}, triggers={"notify": notify})

        async def serve() -> None:
            with trio.CancelScope() as scopes[config.name]:
                await replicas[config.name].serve()

        nursery.start_soon(serve)

    for config in configs(tmp_path, 3):
        await start(config)
    with trio.fail_after(90):
        await until(lambda: any(replica.status.ready for replica in replicas.values()))
        first = next(iter(replicas.values()))
        await first.submit("tree.put", {"path": ["procedures", "p"], "procedure": "notify"}, timeout_s=60)
        trigger = {"id": "t", "pattern": pattern_to_data(("jobs", ANY_NAME)), "procedure_path": ["procedures", "p"]}
        await first.submit("tree.register_trigger", trigger, timeout_s=60)
        await first.submit("tree.put", {"path": ["jobs", "1"], "data": 1}, timeout_s=60)
        await until(lambda: len(ran) == 1)
        await first.submit("tree.put", {"path": ["jobs", "hang"], "data": 1}, timeout_s=60)
        await blocked.wait()
        leader = ran[-1][0]
        scopes[leader].cancel()
        await until(lambda: len([path for _, path in ran if path == "hang"]) == 2)
        assert ran[-1][0] != leader
        assert ran[0] == (leader, "1")
        others = [replica for name, replica in replicas.items() if name != leader]
        await until(lambda: all(not replica.pending_triggers() for replica in others))
    nursery.cancel_scope.cancel()
