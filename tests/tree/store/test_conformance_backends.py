"""One suite for all backends: the pure machine, a Raft of three members, and processes on a real etcd.

Khepri's cases run on each, every command through another process than the one before. Further cases are about what
only several processes have. Last, random commands: all backends give the same answers and the same tree.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from batonpass.tree import Aborted, BadData, Compacted
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path as TreePath
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.member.backend import Backend
from batonpass.tree.store.conditions import IfChildListLength, IfNodeExists
from batonpass.tree.store.keep_while import keep_while_to_data
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, pattern_to_data
from tests.tree import khepri_cases
from tests.tree.etcd_process import EtcdCluster, started_etcd
from tests.tree.instances import PROCEDURES, running_instance
from tests.tree.khepri_cases import CASES, Refused
from tests.tree.patient import PatientEtcdReplica

Started = Callable[[], AbstractAsyncContextManager[Sequence[Backend]]]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with started_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=["raft", "etcd"])
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Started:
    """How to start a few processes of an instance whose tree is empty."""
    if request.param == "raft":
        return lambda: _raft(tmp_path)
    etcd: EtcdCluster = request.getfixturevalue("etcd")
    return lambda: _on_etcd(etcd, request.node.name)


@asynccontextmanager
async def _raft(directory: Path) -> AsyncIterator[Sequence[Backend]]:
    async with running_instance(directory, 3) as instance:
        await instance.leader()
        yield instance.replicas()


@asynccontextmanager
async def _on_etcd(etcd: EtcdCluster, instance: str) -> AsyncIterator[Sequence[Backend]]:
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            replicas = [PatientEtcdReplica(etcd.config(name, instance=instance), PROCEDURES) for name in "abc"]
            for replica in replicas:
                await nursery.start(replica.serve)
            yield replicas
            nursery.cancel_scope.cancel()


# --- Khepri's cases -----------------------------------------------------------------------------------------------


class FromThread:
    """A backend as the cases want it: without waiting, each command through the next process."""

    def __init__(self, processes: Sequence[Backend]) -> None:
        self._next = cycle(processes)

    def run(self, procedure: str, args: Any) -> Any:
        return trio.from_thread.run(self._submit, procedure, args)

    async def _submit(self, procedure: str, args: Any) -> Any:
        try:
            return await next(self._next).submit(procedure, args)
        except Aborted as aborted:
            raise Refused(aborted.code, aborted.details) from aborted

    def view(self, path: TreePath) -> NodeView | None:
        process = next(self._next)
        trio.from_thread.run(process.read_barrier)
        return process.store.view(path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_khepri(case: Callable[[khepri_cases.Backend], None], started: Started) -> None:
    async with started() as processes:
        await trio.to_thread.run_sync(case, FromThread(processes))


# --- what several processes have ----------------------------------------------------------------------------------


async def put(process: Backend, *path: str, data: Any = 1, **more: Any) -> Any:
    return await process.submit("tree.put", {"path": list(path), "data": data, **more})


async def test_a_command_is_applied_once_however_often_and_wherever_it_is_submitted(started: Started) -> None:
    async with started() as processes:
        for process in (*processes, *processes):
            assert await process.submit("count_once", "x", command_id=("browser", 1)) == 1
        assert await processes[1].submit("count_once", "x", command_id=("browser", 2)) == 2
        with pytest.raises(Aborted) as first:
            await processes[0].submit("tree.update", {"path": ["late"], "data": 1}, command_id=("browser", 3))
        await put(processes[0], "late")
        with pytest.raises(Aborted) as again:
            await processes[1].submit("tree.update", {"path": ["late"], "data": 2}, command_id=("browser", 3))
        assert (again.value.code, again.value.details) == (first.value.code, first.value.details)


async def test_what_only_reads_is_read_without_being_carried_out_anywhere_else(started: Started) -> None:
    exists = [[["a"], ["if_data_matches", 1]]]
    reading = {"if": exists, "then": [{"op": "get", "path": ["a"]}], "else": [{"op": "count", "path": ["a"]}]}
    async with started() as processes:
        await put(processes[0], "a")
        before = [process.applied_index for process in processes]
        for process in processes:
            assert await process.read("tree.query", reading) == {"succeeded": True, "results": [1]}
            assert await process.read("tree.get", {"path": ["a"]}) == 1
        assert [process.applied_index for process in processes] == [max(before)] * len(processes)
        with pytest.raises(Aborted) as refused:
            await processes[0].read("tree.get", {"path": ["missing"]})
        assert refused.value.code == "node_not_found"
        writing = {"then": [{"op": "put", "path": ["a"], "data": 2}]}
        for procedure, code in (("tree.query", "read_only_transaction"), ("tree.transaction", "not_read_only")):
            with pytest.raises(Aborted) as refused:
                await processes[-1].read(procedure, writing)
            assert refused.value.code == code
        with pytest.raises(BadData):
            await processes[0].read("tree.get", object())
        assert await processes[-1].read("tree.get", {"path": ["a"]}) == 1


async def test_all_processes_have_the_same_tree(started: Started) -> None:
    async with started() as processes:
        async with trio.open_nursery() as nursery:
            for number in range(60):
                process = processes[number % len(processes)]
                nursery.start_soon(process.submit, "count_once", str(number % 7))
        for process in processes:
            await process.read_barrier()
        assert len({process.store.digest() for process in processes}) == 1
        assert len({process.store.revision for process in processes}) == 1
        assert sum(processes[0].store.get(("counted", str(number))) for number in range(7)) == 60


async def test_a_transaction_that_is_refused_leaves_nothing_anywhere(started: Started) -> None:
    operations = [{"op": "put", "path": ["a"], "data": 1}, {"op": "update", "path": ["missing"], "data": 1}]
    async with started() as processes:
        with pytest.raises(Aborted):
            await processes[0].submit("tree.transaction", {"then": operations})
        for process in processes:
            await process.read_barrier()
            assert process.store.children(()) == ()
            assert process.store.revision == 0


async def test_what_cannot_be_kept_is_refused_before_it_is_submitted(started: Started) -> None:
    async with started() as processes:
        with pytest.raises(BadData):
            await put(processes[0], "x", data={1, 2})
        with pytest.raises(Aborted) as refused:
            await processes[0].submit("no such procedure")
        assert refused.value.code == "unknown_procedure"


async def test_watchers_on_all_processes_are_told_the_same_and_can_resume_anywhere(started: Started) -> None:
    async with started() as processes:
        await put(processes[0], "x", "a", data=0)
        for process in processes:
            await process.read_barrier()
        watches = [process.watch(("x", ANY_NAME), 1) for process in processes]
        for number in range(1, 4):
            await put(processes[number % len(processes)], "x", "a", data=number)
        await put(processes[0], "elsewhere")
        await processes[1].submit("tree.delete", {"path": ["x"]})
        told = []
        for process, watch in zip(processes, watches, strict=True):
            await process.read_barrier()
            told.append(await watch.take())
        kinds = [(str(event.kind), event.revision, event.data) for event in told[0]]
        assert kinds == [("updated", 2, 1), ("updated", 3, 2), ("updated", 4, 3), ("deleted", 6, None)]
        assert all(events == told[0] for events in told)
        for process in processes:
            assert await process.watch(("x", ANY_NAME), 3).take() == told[0][2:]
            with pytest.raises(Compacted):
                process.watch((), -1)


async def test_a_watcher_on_another_process_sees_what_keep_while_takes_away(started: Started) -> None:
    async with started() as processes:
        kept = keep_while_to_data([(("session",), IfNodeExists(True))])
        await put(processes[0], "session")
        await put(processes[1], "lock", data="mine", keep_while=kept)
        await processes[-1].read_barrier()
        watch = processes[-1].watch(("lock",))
        await processes[0].submit("tree.delete", {"path": ["session"]})
        (event,) = await watch.take()
        assert (str(event.kind), event.previous) == ("deleted", "mine")


async def test_what_a_trigger_fires_is_queued_for_all_until_it_is_done(started: Started) -> None:
    async with started() as processes:
        await processes[0].submit("tree.put", {"path": ["procedure"], "procedure": "notify"})
        trigger = {"id": "t", "pattern": pattern_to_data(("x", ANY_NAME)), "procedure_path": ["procedure"]}
        await processes[1].submit("tree.register_trigger", trigger)
        assert [row["id"] for row in await processes[-1].submit("tree.triggers")] == ["t"]
        await put(processes[0], "x", "a")
        await put(processes[0], "elsewhere")
        assert await processes[-1].submit("tree.trigger_done", {"numbers": [1, 2]}) == 1
        assert await processes[0].submit("tree.trigger_done", {"numbers": [1, 2]}) == 0
        assert await processes[0].submit("tree.unregister_trigger", {"id": "t"})
        await put(processes[1], "x", "a", data=2)
        assert await processes[0].submit("tree.trigger_done", {"numbers": [1, 2]}) == 0


async def test_a_procedure_may_be_stored_and_run(started: Started) -> None:
    async with started() as processes:
        await processes[0].submit("tree.put", {"path": ["count"], "procedure": "count_once"})
        assert await processes[1].submit("tree.run", {"path": ["count"], "args": "x"}) == 1
        assert await processes[-1].submit("tree.run", {"path": ["count"], "args": "x"}) == 2


async def test_what_is_waited_for_is_there(started: Started) -> None:
    async with started() as processes:
        await put(processes[0], "x")
        for process in processes:
            await process.wait_applied(processes[0].applied_index)
            assert process.store.exists(("x",))


# --- all backends alike -------------------------------------------------------------------------------------------


def random_commands(dice: Random, count: int) -> list[tuple[str, Any]]:
    """Commands on few nodes, so that they meet."""

    def path() -> list[str]:
        return [dice.choice("abc") for _ in range(dice.randint(1, 3))]

    def keep_while() -> list[Any]:
        condition = dice.choice([IfNodeExists(True), IfNodeExists(False), IfChildListLength(0)])
        return keep_while_to_data([(tuple(path()), condition)])

    def value() -> Any:
        return dice.choice([None, 0, 1, "x", [1], {"k": b"1"}])

    patterns = [pattern_to_data(pattern) for pattern in ((ANY_NAME,), (ANY_DEPTH,), ("a", ANY_NAME))]
    makers: list[Callable[[], tuple[str, Any]]] = [
        lambda: ("tree.put", {"path": path(), "data": value(), "full": True}),
        lambda: ("tree.put", {"path": path(), "data": value(), "keep_while": keep_while()}),
        lambda: ("tree.create", {"path": path(), "data": value()}),
        lambda: ("tree.compare_and_swap", {"path": path(), "expected": value(), "data": value()}),
        lambda: ("tree.clear_payload", {"path": path(), "full": True}),
        lambda: ("tree.delete", {"path": path(), "full": True}),
        lambda: ("tree.put_many", {"path": dice.choice(patterns), "data": value()}),
        lambda: ("tree.delete_many", {"path": dice.choice(patterns)}),
        lambda: ("tree.get_many", {"path": dice.choice(patterns)}),
        lambda: ("count_once", dice.choice("abc")),
    ]
    return [dice.choice(makers)() for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
async def test_random_commands_come_to_the_same(seed: int, started: Started) -> None:
    commands = random_commands(Random(seed), 120)
    machine = Machine(PROCEDURES)
    async with started() as processes:
        for number, (procedure, args) in enumerate(commands):
            _, encoded = machine.apply(encode_command(Command(procedure, args, "twin", number)))
            expected = CommandAnswer.from_encoded(encoded)
            try:
                answer = CommandAnswer(await processes[number % len(processes)].submit(procedure, args))
            except Aborted as aborted:
                answer = CommandAnswer(None, aborted.code, aborted.message, aborted.details)
            assert answer == expected, (seed, number, procedure, args)
        for process in processes:
            await process.read_barrier()
            assert process.store.to_data() == machine.store.to_data()
            assert process.store.revision == machine.store.revision
