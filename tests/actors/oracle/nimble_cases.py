"""The recorded lines about NimblePool, whose contract `Pool` has.

A resource here is a number, another one each time that one is opened. All are opened when they are needed, as those of
a pool that is `lazy` there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from batonpass.actors import Pool, PoolSettings, Ref, System
from batonpass.actors.core.exits import SHUTDOWN
from tests.actors.oracle.lines import Raw, called, oracle, otherwise
from tests.actors.oracle.pool_cases import fail, once
from tests.actors.oracle.subjects import settled


@dataclass(eq=False)
class Numbers:
    """What is opened, and closed; the first `fails` are not opened."""

    fails: int = 0
    opened: int = 0
    closed: list[int] = field(default_factory=list)

    def open(self) -> int:
        self.opened += 1
        if self.opened <= self.fails:
            raise RuntimeError("no resource")
        return self.opened

    async def pool(self, system: System, size: int) -> Ref:
        return await system.start(Pool, PoolSettings(self.open, self.closed.append, size=size))


class Holders:
    """Tasks that have resources, until they are told to go or are cancelled; `got` is who has which."""

    def __init__(self, nursery: trio.Nursery, ref: Ref) -> None:
        self.got: dict[int, int] = {}
        self._nursery = nursery
        self._ref = ref
        self._ends: dict[int, tuple[trio.Event, trio.CancelScope]] = {}

    async def begin(self, number: int, *, fails: bool = False) -> None:
        """One more has a resource, or waits for one."""
        self._ends[number] = trio.Event(), trio.CancelScope()
        self._nursery.start_soon(self._hold, number, fails)
        await settled()

    async def _hold(self, number: int, fails: bool) -> None:
        done, scope = self._ends[number]
        try:
            with scope:
                async with Pool.checkout(self._ref, None) as resource:
                    self.got[number] = resource
                    await done.wait()
                    if fails:
                        raise RuntimeError("boom")
        except RuntimeError:
            return

    async def back(self, number: int) -> None:
        self._ends[number][0].set()
        await settled()

    async def kill(self, number: int) -> None:
        self._ends[number][1].cancel()
        await settled()


async def with_holders(system: System, size: int, play: Callable[[Holders, Ref, Numbers], Any]) -> Any:
    """What a play answers that has a pool and tasks which use it."""
    numbers = Numbers()
    ref = await numbers.pool(system, size)
    async with trio.open_nursery() as nursery:
        answer = await play(Holders(nursery, ref), ref, numbers)
        nursery.cancel_scope.cancel()
    return answer


@oracle("nimble: two of two are two", "true")
async def two(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        for number in (1, 2):
            await holders.begin(number)
        return holders.got[1] != holders.got[2]

    return await with_holders(system, 2, play)


@oracle("nimble: a third that waits for a moment", "{:exit, :timeout}")
async def timed_out(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        for number in (1, 2):
            await holders.begin(number)
        how, (why, _) = await called(once(ref, 0.03))
        return how, why

    return await with_holders(system, 2, play)


@oracle("nimble: the next has the one that was given back", "true")
async def the_same(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        for number in (1, 2):
            await holders.begin(number)
        await holders.back(1)
        return await once(ref) == holders.got[1]

    return await with_holders(system, 2, play)


@otherwise("nimble: of several idle ones the next is the one that was used last", "false", here="true")
async def last_used(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        for number in (1, 2):
            await holders.begin(number)
        for number in (1, 2):
            await holders.back(number)
        return await once(ref) == holders.got[2]

    return await with_holders(system, 2, play)


@oracle("nimble: who waits is served in order", "[1, 2, 3]")
async def in_order(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        for number in range(4):
            await holders.begin(number)
        for number in range(3):
            await holders.back(number)
        return list(holders.got)[1:]

    return await with_holders(system, 1, play)


@oracle("nimble: one that waits is killed: who is served", "2")
async def gone_served(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        for number in range(3):
            await holders.begin(number)
        await holders.kill(1)
        await holders.back(0)
        return next(number for number in holders.got if number)

    return await with_holders(system, 1, play)


@oracle("nimble: one that waits gives up: the next is served", "true")
async def gave_up(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        await holders.begin(0)
        await called(once(ref, 0.01))
        await holders.back(0)
        return await once(ref) == holders.got[0]

    return await with_holders(system, 1, play)


@oracle("nimble: a block answers what its function does", "42")
async def answers(system: System) -> Any:
    async with Pool.checkout(await Numbers().pool(system, 1)):
        return 42


@oracle("nimble: a block that takes longer than its timeout is not cut", "true")
async def not_cut(system: System) -> Any:
    async with Pool.checkout(await Numbers().pool(system, 1), 0.01):
        await trio.sleep(0.03)
        return True


@oracle("nimble: a block that raises: what its caller gets", '"boom"')
async def raises(system: System) -> Any:
    try:
        async with Pool.checkout(await Numbers().pool(system, 1)):
            raise RuntimeError("boom")
    except RuntimeError as error:
        return Raw(f'"{error}"')


@oracle("nimble: a block that raises: the resource is closed", "true")
async def raised_closed(system: System) -> Any:
    numbers = Numbers()
    return [await fail(await numbers.pool(system, 1))] == numbers.closed


@oracle("nimble: a block that raises: the next has the same", "false")
async def raised_next(system: System) -> Any:
    ref = await Numbers().pool(system, 1)
    used = await fail(ref)
    return await once(ref) == used


@oracle("nimble: the one that has it is killed: the resource is closed", "true")
async def killed_closed(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        await holders.begin(0)
        await holders.kill(0)
        return numbers.closed == [holders.got[0]]

    return await with_holders(system, 1, play)


@oracle("nimble: the one that has it is killed: the next has the same", "false")
async def killed_next(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        await holders.begin(0)
        await holders.kill(0)
        return await once(ref) == holders.got[0]

    return await with_holders(system, 1, play)


@oracle("nimble: the one that has it fails while another waits: that one is served", "true")
async def failed_served(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        await holders.begin(0, fails=True)
        await holders.begin(1)
        await holders.back(0)
        return 1 in holders.got

    return await with_holders(system, 1, play)


@oracle("nimble: the pool ends while one of two is lent: only the other is closed by it", "{true, :none}")
async def ends(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        await holders.begin(0)
        other = await once(ref)
        await ref.stop()
        return numbers.closed[0] == other, "none" if len(numbers.closed) == 1 else numbers.closed[1:]

    return await with_holders(system, 2, play)


@oracle("nimble: a pool that has ended", "{:exit, :noproc}")
async def ended(system: System) -> Any:
    ref = await Numbers().pool(system, 1)
    await ref.stop()
    how, (why, _) = await called(once(ref))
    return how, why


@oracle("nimble: the pool ends while another waits: what that one gets", "{:exit, :shutdown}")
async def ends_for_who_waits(system: System) -> Any:
    outcome: list[Any] = []

    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        async def wait() -> None:
            how, (why, _) = await called(once(ref, None))
            outcome.append((how, why))

        async with trio.open_nursery() as waiting:
            await holders.begin(0)
            waiting.start_soon(wait)
            await settled()
            await ref.stop(SHUTDOWN)
        return outcome[0]

    return await with_holders(system, 1, play)


@otherwise("nimble: how many of three are made when it starts", "3", here="0")
async def made(system: System) -> Any:
    numbers = Numbers()
    await numbers.pool(system, 3)
    await settled()
    return numbers.opened


@oracle("nimble: lazy: how many of three are made for the first", "1")
async def lazy_first(system: System) -> Any:
    numbers = Numbers()
    await once(await numbers.pool(system, 3))
    return numbers.opened


@oracle("nimble: lazy: how many of three are made for one after the other", "1")
async def lazy_in_turns(system: System) -> Any:
    numbers = Numbers()
    ref = await numbers.pool(system, 3)
    for _ in range(5):
        await once(ref)
    return numbers.opened


@oracle("nimble: lazy: how many of three are made for two at once", "2")
async def lazy_at_once(system: System) -> Any:
    async def play(holders: Holders, ref: Ref, numbers: Numbers) -> Any:
        await holders.begin(0)
        await once(ref)
        return numbers.opened

    return await with_holders(system, 3, play)


@otherwise("nimble: lazy: a resource that cannot be made at first: what the caller gets", "2", here='"no resource"')
async def not_made(system: System) -> Any:
    ref = await Numbers(fails=1).pool(system, 1)
    try:
        return await once(ref)
    except RuntimeError as error:
        return Raw(f'"{error}"')
