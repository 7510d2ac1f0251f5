"""The same flock as entities of a server; and entities that are stepped alone."""

import gc
import os
from collections.abc import Awaitable, Callable
from statistics import median
from time import process_time
from tracemalloc import get_traced_memory, start, stop

import trio

from batonpass.actors.base.gc import collect_seldom
from batonpass.scenarios.bench.loops import arguments, expect, tell, tell_all
from batonpass.scenarios.bench.worlds.amounts import AGENTS
from batonpass.scenarios.bench.worlds.border import crossing
from batonpass.scenarios.bench.worlds.in_a_row import ServersInARow
from batonpass.scenarios.bench.worlds.server import PERIOD_S, PLAYER, BenchServer, CoreClock
from batonpass.scenarios.boids.flock import scattered, size_for
from batonpass.scenarios.boids.world import PUSH, Boids
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.pushing.run import boxes_spec, run_boxes
from batonpass.scenarios.report.statistics import percentile
from batonpass.simserver.entity.actor import Entity
from batonpass.simserver.world.demo_balls import Balls

_STATE_BYTES = 300
_AROUND_BYTES = 152
"""What of a state is not ballast, with what stands beside it."""
_WARM_UP = 3
_WITH_INPUT = 100


def flock(count: int, ballast: int = 0) -> BenchServer:
    """A server with `count` boids, all of which have had a tick."""
    server = BenchServer(Boids(count, ballast))
    places, velocities = scattered(count, size_for(count))
    for number, (place, velocity) in enumerate(zip(places.tolist(), velocities.tolist(), strict=True)):
        server.spawn(f"alpha.b{number}", "boid", {"place": place, "velocity": velocity})
    for _ in range(_WARM_UP):
        server.tick()
    return server


async def ticks_ms(server: BenchServer, seconds: float, before: Callable[[int], None] = lambda _: None) -> float:
    """Processor time of a tick, in milliseconds."""
    batch = server.holdings.batch
    ticks = 0 if batch is None else batch.ticks
    done, began_s = 0, process_time()
    while (took_s := process_time() - began_s) < seconds:
        before(done)
        server.tick()
        done += 1
    if batch is not None:
        expect(batch.ticks - ticks, done)
    return took_s / done * 1e3


async def tick(count: int, seconds: float) -> float:
    """Of a flock to which nothing happens."""
    return await ticks_ms(flock(count), seconds)


async def inputs(seconds: float) -> float:
    """Of a flock of which some have an input with every tick."""
    server = flock(10_000)
    some = [holding.life for holding in server.holdings][:_WITH_INPUT]
    push, given = PUSH.pack(10, -10), 0

    def give(number: int) -> None:
        nonlocal given
        for life in some:
            life.take_input(PLAYER, 1, number + 1, push)
        given += len(some)

    took_ms = await ticks_ms(server, seconds, give)
    expect(server.acknowledged, given)
    return took_ms


async def agents(seconds: float) -> float:
    """Steps of a boid in a second of processor time."""
    return AGENTS / (await tick(AGENTS, seconds)) * 1e3


async def alone(seconds: float) -> float:
    """Processor time of one tick of a ball that is stepped alone, in microseconds: what its actor does, and no more."""
    server = BenchServer(Balls())
    lives = [server.spawn(f"alpha.b{number}", "ball", {}).life for number in range(1000)]
    actor = object.__new__(Entity)
    actor._env = server.environment
    done, began_s = 0, process_time()
    while (took_s := process_time() - began_s) < seconds:
        for life in lives:
            actor._tick(life)
        done += len(lives)
    expect(lives[0].tick * len(lives), done)
    return took_s / done * 1e6


async def copies(count: int, seconds: float) -> dict[str, float]:
    """A server that ticks at 20 Hz and sends copies, for so long by its own time."""
    collect_seldom()
    server = flock(count, _STATE_BYTES - _AROUND_BYTES)
    # Each has been copied once: what is measured is how a server goes on, not how it begins.
    await server.replication.copy_now(list(server.holdings))
    server.replicas_answer()
    gc.collect()
    gc.freeze()
    late_ms: list[float] = []
    sent_before, skipped = server.counts["copies_sent"], 0
    async with trio.open_nursery() as nursery:
        await nursery.start(server.replication.serve)
        began_s = due_s = trio.current_time()
        while trio.current_time() - began_s < seconds:
            now_s = trio.current_time()
            skipped += max(0, int((now_s - due_s) / PERIOD_S))
            due_s += PERIOD_S * max(1, int((now_s - due_s) / PERIOD_S) + 1)
            await trio.sleep_until(due_s)
            server.tick()
            late_ms.append((trio.current_time() - due_s) * 1e3)
        took_s = trio.current_time() - began_s
        nursery.cancel_scope.cancel()
    sent = server.counts["copies_sent"] - sent_before
    life = next(iter(server.holdings)).life
    return {
        "kept": len(late_ms) / (len(late_ms) + skipped),
        "late": percentile(late_ms, 99),
        "copied": sent / took_s,
        "again": count / (sent / took_s),
        "size": float(len(life.encoded_state())),
    }


async def in_a_row(servers: int, entities: int, percent: int, seconds: float) -> dict[str, float]:
    """Servers in a row that show each other what is near their borders."""
    row = ServersInARow(servers, entities, percent / 100)
    collect_seldom()
    gc.collect()
    gc.freeze()
    return await row.measured(seconds)


async def contacts() -> dict[str, float]:
    """What two servers of real processes say of contacts and ghosts, while robots push boxes over their border."""
    async with LocalCluster.start(boxes_spec()) as cluster:
        report = await run_boxes(cluster, lanes=3, rounds=2)
    expect(report.problems(), [])
    return {
        "wait": median(report.waits_ticks),
        "age": percentile([float(age) for age in report.ages_ticks], 99),
        "bytes": report.counts["ghost_bytes_sent"] / report.ghost_seconds,
    }


async def memory() -> float:
    """Bytes of one entity, of very many."""
    start()
    server = flock(10_000, _STATE_BYTES - _AROUND_BYTES)
    used, _ = get_traced_memory()
    stop()
    return used / len(server.holdings)


async def main(work: str, seconds: float) -> None:
    """Do the work, and print its figures."""
    kinds: dict[str, Callable[[float], Awaitable[float]]] = {"inputs": inputs, "agents": agents, "alone": alone}
    if work.startswith("tick-"):
        tell(await tick(int(work.removeprefix("tick-")), seconds))
    elif work.startswith("copies-"):
        tell_all(await copies(int(work.removeprefix("copies-")), max(seconds, 10.0)))
    elif work.startswith("border-"):
        tell_all(await crossing(int(work.removeprefix("border-"))))
    elif work.startswith("row-"):
        servers, entities, percent = map(int, work.split("-")[1:])
        tell_all(await in_a_row(servers, entities, percent, seconds))
    elif work == "contacts":
        tell_all(await contacts())
    elif work == "memory":
        tell(await memory())
    else:
        tell(await kinds[work](seconds))


if __name__ == "__main__":
    _work, _seconds = arguments("batonpass")
    # A cluster is other processes, with cores and clocks of their own.
    _of_processes = _work.startswith(("border-", "contacts"))
    if _of_processes:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    trio.run(main, _work, _seconds, clock=None if _of_processes else CoreClock())
