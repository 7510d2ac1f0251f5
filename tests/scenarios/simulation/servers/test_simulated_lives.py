"""What a server keeps of the dead does not grow with their number: all tables that it can reach are counted.

`python -m tests.scenarios.simulation.servers.test_simulated_lives 20000 2000` says after each 2,000 of 20,000 lives how
much memory what each server can reach takes, with the real bounds. Disk, custody log and link are simulated.
"""

import gc
import random
import sys
from collections import Counter, deque
from collections.abc import Iterator
from itertools import count
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import pytest

from batonpass.authority.model.records import EntityRecord
from batonpass.authority.trust import certificate_reader
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mix import ServerMix
from batonpass.scenarios.simulation.servers.simserver import SimulationServer
from batonpass.scenarios.simulation.servers.tasks import ProcessClock
from batonpass.simserver.durability.stale_copies import WALK_NS
from batonpass.simserver.entity import table
from batonpass.simserver.transfer.source import order_history
from batonpass.simserver.transfer.target import arrivals, offers

MIX: Final = ServerMix(
    name="lives",
    purpose="entities are created, moved and deleted",
    servers=("alpha.s1", "alpha.s2"),
    players=("alpha.ada",),
    entities=0,
    create=1.0,
    inputs_per_s=1e-9,
)
# Their numbers, which are thousands, would take minutes to come to.
BOUND: Final = 8
BOUNDED: Final = (
    (table, "MAX_TOMBSTONES"),
    (arrivals, "MAX_MACHINES"),
    (arrivals, "MAX_CONTEXTS"),
    (order_history, "MAX_BEGUN"),
    (order_history, "MAX_REMEMBERED"),
    (offers, "MAX_READ"),
    (certificate_reader, "MAX_KNOWN"),
)
LIVES: Final = 12
AT_ONCE: Final = 40
# Of very many some are answered late: who asks asks again, and has one moved again that was refused.
ASK_AGAIN_S: Final = 0.1
ASKED_FOR_ONE: Final = 100
AT_REST_S: Final = 1.0
# What is not the server's: what simulates its surroundings, and code.
OTHERS: Final = ("batonpass.scenarios.", "tests.", "random")
CODE: Final = (ModuleType, type, FunctionType, BuiltinFunctionType, CodeType, FrameType)
PLAIN: Final = (str, bytes, int, float, bool, type(None))


def parts_of(one: Any) -> Iterator[tuple[str, Any]]:
    """What an object is made of, by names that are the same for each of its kind."""
    if isinstance(one, dict):
        for key, value in list(one.items()):
            yield "{}", key
            yield f".{key}" if isinstance(key, str) and key.isidentifier() else "[]", value
    elif isinstance(one, list | tuple | set | frozenset | deque):
        yield from (("[]", value) for value in list(one))
    elif isinstance(one, MethodType):
        yield "()", one.__self__
    elif isinstance(one, CellType):
        yield "", one.cell_contents
    else:
        slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in (*slots, *getattr(one, "__dict__", ())):
            if hasattr(one, name):
                yield f".{name}", getattr(one, name)


def reached_from(server: SimulationServer) -> Iterator[tuple[str, Any]]:
    """All that a server is made of and has, each once, with the way to it from its composition."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("node", server.node)])
    while waiting:
        path, one = waiting.popleft()
        if id(one) in seen or isinstance(one, CODE) or type(one).__module__.startswith(OTHERS):
            continue
        seen.add(id(one))
        yield path, one
        if not isinstance(one, PLAIN):
            waiting.extend((path + name, part) for name, part in parts_of(one))


def sizes_of(server: SimulationServer) -> Counter[str]:
    """How many entries all tables have, by the way to them."""
    sizes: Counter[str] = Counter()
    for path, one in reached_from(server):
        if isinstance(one, dict | list | set | deque):
            sizes[path] += len(one)
    return sizes


def megabytes_of(server: SimulationServer) -> float:
    gc.collect()
    return sum(sys.getsizeof(one) for _, one in reached_from(server)) / 1e6


class Lives:
    """A cluster of two servers, through which entities go."""

    def __init__(self) -> None:
        self.cluster = ServersCluster(MIX, random.Random("lives"))
        self._home = next(iter(self.cluster.homes.values()))
        self._clock = ProcessClock(self._home.clock, self._home.process)
        self._begun = self._ended = 0

    def pass_by(self, lives: int) -> None:
        """So many begin at one server, go to the other and are deleted; until nothing of them is under way."""
        end, schedule = self._begun + lives, self.cluster.schedule
        while self._ended < end:
            for _ in range(min(AT_ONCE, end - self._begun)):
                self._home.process.start_soon(self._live, self._begun)
                self._begun += 1
            assert schedule.run_until(schedule.now_s + 60.0, lambda: self._ended == self._begun)
        node = self.cluster.servers["alpha.s1"].node
        stale_s = node.replication.table.fresh_ns / 2e9 + WALK_NS / 1e9
        schedule.run_until(schedule.now_s + stale_s + AT_REST_S)
        assert self.cluster.judge.violations == []

    async def _live(self, number: int) -> None:
        entity, home = f"alpha.n{number}", self._home
        args = {"entity": entity, "kind": "counter", "spawner": "alpha.ada", "server": "alpha.s1", "rule": "allow"}
        while not isinstance(await home.create(args), EntityRecord):
            await self._clock.sleep_s(ASK_AGAIN_S)
        how = {"direct": False, "transport": "link", "mode": "eager", "requester": "alpha.ada"}
        for attempt in count():
            if self._record(entity).authority == "alpha.s2":
                break
            if attempt % ASKED_FOR_ONE == 0:
                await home.move(f"transfer-{number:06d}-{attempt:04d}", entity, "alpha.s2", how)
            await self._clock.sleep_s(ASK_AGAIN_S)
        record = self._record(entity)
        while not await home.delete(entity, record.master, record.master_rev):
            await self._clock.sleep_s(ASK_AGAIN_S)
        self._ended += 1

    def _record(self, entity: str) -> EntityRecord:
        record = self.cluster.record(entity)
        assert record is not None
        return record


def test_a_server_keeps_no_more_after_many_lives_than_after_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in BOUNDED:
        monkeypatch.setattr(module, name, BOUND)
    lives = Lives()
    lives.pass_by(LIVES)
    servers = lives.cluster.servers
    before = {name: sizes_of(server) for name, server in servers.items()}
    lives.pass_by(LIVES)
    grown = {
        f"{name}: {path}": (before[name][path], size)
        for name, server in servers.items()
        for path, size in sizes_of(server).items()
        if size >= before[name][path] + LIVES // 2
    }
    assert grown == {}
    assert before["alpha.s1"]["node.holdings._gone"] == BOUND
    assert servers["alpha.s1"].counts["copies_of_deleted"] > 0


def main(lives: int, every: int) -> None:
    """Print how much each server has, before and after each so many lives."""
    passing = Lives()
    for number in range(0, lives + 1, every):
        if number:
            passing.pass_by(every)
        servers = passing.cluster.servers.items()
        sizes = (f"{name} {megabytes_of(server):.2f} MB" for name, server in servers)
        sys.stdout.write(f"{number} lives: {', '.join(sizes)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
