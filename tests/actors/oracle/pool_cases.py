"""The recorded lines about pools.

They were recorded from poolboy. It differs from NimblePool, whose contract `Pool` has (`nimble_cases`), in what becomes
of a resource whose user fails: `Pool` closes it, as NimblePool does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio

from batonpass.actors import Pool, PoolFull, PoolSettings, Ref, System
from tests.actors.oracle.lines import Raw, called, oracle, otherwise
from tests.actors.oracle.subjects import settled


async def pool(system: System, size: int, max_waiting: int = 1_000) -> Ref:
    """A pool of numbers: each resource is another one."""
    made = count()
    return await system.start(Pool, PoolSettings(lambda: next(made), size=size, max_waiting=max_waiting))


async def counts(ref: Ref) -> tuple[int, int]:
    await settled()
    stats = await Pool.stats(ref)
    return stats.lent, stats.idle


async def hold(ref: Ref, got: list[int], done: trio.Event) -> None:
    async with Pool.checkout(ref, None) as resource:
        got.append(resource)
        await done.wait()


@asynccontextmanager
async def all_lent(system: System, size: int, max_waiting: int = 1_000) -> AsyncIterator[tuple[Ref, list[int]]]:
    """A pool of which every resource is lent to a task, and which they are."""
    ref = await pool(system, size, max_waiting)
    got: list[int] = []
    async with trio.open_nursery() as nursery:
        done = trio.Event()
        for _ in range(size):
            nursery.start_soon(hold, ref, got, done)
        await settled()
        yield ref, got
        done.set()


async def once(ref: Ref, timeout_s: float | None = 5.0) -> int:
    async with Pool.checkout(ref, timeout_s) as resource:
        number: int = resource
        return number


async def fail(ref: Ref) -> int:
    """Use a resource, and fail; which it was."""
    used = -1
    try:
        async with Pool.checkout(ref) as resource:
            used = resource
            raise RuntimeError("boom")
    except RuntimeError:
        return used


@oracle("pool: two of two are two", "true")
async def two(system: System) -> Any:
    async with all_lent(system, 2) as (_, got):
        return len(set(got)) == 2


@oracle("pool: lent and idle then", "{2, 0}")
async def lent(system: System) -> Any:
    async with all_lent(system, 2) as (ref, _):
        return await counts(ref)


@oracle("pool: a third that does not wait", ":full")
async def full(system: System) -> Any:
    async with all_lent(system, 2, max_waiting=0) as (ref, _):
        try:
            return await once(ref)
        except PoolFull:
            return "full"


@oracle("pool: a third that waits for a moment", "{:exit, :timeout}")
async def timed_out(system: System) -> Any:
    async with all_lent(system, 2) as (ref, _):
        how, (why, _) = await called(once(ref, 0.03))
        return how, why


@oracle("pool: given back, lent and idle", "{1, 1}")
async def given_back(system: System) -> Any:
    ref = await pool(system, 2)
    async with Pool.checkout(ref), trio.open_nursery() as nursery:
        nursery.start_soon(once, ref)
        await settled()
        return await counts(ref)


@oracle("pool: the next has the one that was given back", "true")
async def the_same(system: System) -> Any:
    ref = await pool(system, 2)
    async with Pool.checkout(ref):
        return await once(ref) == await once(ref)


@oracle("pool: of several idle ones the next is the one that was used last", "true")
async def last_used(system: System) -> Any:
    ref = await pool(system, 2)
    async with Pool.checkout(ref) as last:
        await once(ref)
    return await once(ref) == last


@oracle("pool: who waits is served in order", "[1, 2, 3]")
async def in_order(system: System) -> Any:
    served: list[int] = []
    async with trio.open_nursery() as nursery, all_lent(system, 1) as (ref, _):
        for number in (1, 2, 3):
            nursery.start_soon(_serve, ref, number, served)
            await settled()
    return served


async def _serve(ref: Ref, number: int, served: list[int]) -> None:
    async with Pool.checkout(ref, None):
        served.append(number)
        await trio.sleep(0.01)


async def one_gone(system: System) -> tuple[list[int], Ref]:
    """One that waits is cancelled, and another waits behind it."""
    served: list[int] = []
    async with trio.open_nursery() as nursery, all_lent(system, 1) as (ref, _):
        gone = trio.CancelScope()

        async def go() -> None:
            with gone:
                await _serve(ref, 1, served)

        nursery.start_soon(go)
        await settled()
        nursery.start_soon(_serve, ref, 2, served)
        await settled()
        gone.cancel()
        await settled()
    return served, ref


@oracle("pool: one that waits is killed: who is served", "2")
async def gone_served(system: System) -> Any:
    [served], _ = await one_gone(system)
    return served


@oracle("pool: one that waits is killed: lent and idle in the end", "{0, 1}")
async def gone_counts(system: System) -> Any:
    _, ref = await one_gone(system)
    return await counts(ref)


@otherwise("pool: the one that has it crashes: lent and idle", "{0, 1}", here="{0, 0}")
async def crashed_counts(system: System) -> Any:
    ref = await pool(system, 1)
    await fail(ref)
    return await counts(ref)


@otherwise("pool: the one that has it crashes: the next has the same", "true", here="false")
async def crashed_next(system: System) -> Any:
    ref = await pool(system, 1)
    used = await fail(ref)
    return await once(ref) == used


@oracle("pool: a transaction answers what its function does", "42")
async def answers(system: System) -> Any:
    async with Pool.checkout(await pool(system, 1)):
        return 42


@oracle("pool: a transaction that raises: what its caller gets", '"boom"')
async def raises(system: System) -> Any:
    try:
        async with Pool.checkout(await pool(system, 1)):
            raise RuntimeError("boom")
    except RuntimeError as error:
        return Raw(f'"{error}"')


@otherwise("pool: a transaction that raises: the next has the same", "true", here="false")
async def raised_next(system: System) -> Any:
    ref = await pool(system, 1)
    used = await fail(ref)
    return await once(ref) == used


@oracle("pool: a resource that ends is made anew", "true")
async def anew(system: System) -> Any:
    ref = await pool(system, 1)
    used = await fail(ref)  # who uses a resource that is broken finds out
    return await once(ref, 0.5) != used


@oracle("pool: a pool that has ended", "{:exit, :noproc}")
async def ended(system: System) -> Any:
    ref = await pool(system, 1)
    await ref.stop()
    how, (why, _) = await called(once(ref))
    return how, why


@otherwise("pool: how many of three are made when it starts", "3", here="0")
async def made(system: System) -> Any:
    numbers = count()
    await system.start(Pool, PoolSettings(lambda: next(numbers), size=3))
    await settled()
    return next(numbers)
