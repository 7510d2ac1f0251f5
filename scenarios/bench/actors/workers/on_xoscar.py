"""xoscar, both ends in one pool: a call awaits the method itself, with no mailbox in between."""

import asyncio

import xoscar

from batonpass.scenarios.bench.loops import CHUNK, FLOOD, arguments, async_rate, expect, tell


class Counting(xoscar.Actor):
    """Counts."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, number: int) -> int:
        """The new count."""
        self.count += number
        return self.count


class Caller(xoscar.Actor):
    """Calls from within the pool, where a reference is a local one."""

    async def measure(self, address: str, work: str, seconds: float) -> float:
        """Calls or casts per second."""
        created = await xoscar.create_actor(Counting, address=address)
        # Looked up from within the pool it is a local reference, which is xoscar's fast path.
        ref = await xoscar.actor_ref(address=address, uid=created.uid)
        sent = 0

        async def calls() -> int:
            for _ in range(CHUNK):
                await ref.add(0)
            return CHUNK

        async def casts() -> int:
            nonlocal sent
            for _ in range(FLOOD):
                await ref.add.tell(1)
            sent += FLOOD
            expect(await ref.add(0), sent)
            return FLOOD

        return await async_rate(calls if work == "call" else casts, seconds)


async def measure(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    pool = await xoscar.create_actor_pool("127.0.0.1:0", n_process=0)
    async with pool:
        caller = await xoscar.create_actor(Caller, address=pool.external_address)
        figure: float = await caller.measure(pool.external_address, work, seconds)
        return figure


if __name__ == "__main__":
    tell(asyncio.run(measure(*arguments("xoscar"))))
