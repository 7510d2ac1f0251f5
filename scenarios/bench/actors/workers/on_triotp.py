"""triotp: gen_servers on trio."""

import sys
from typing import Any

import trio
from triotp import gen_server, mailbox

from batonpass.scenarios.bench.loops import CHUNK, FLOOD, arguments, async_rate, expect, tell


async def init(arg: Any) -> int:
    """Begin at 0."""
    return 0


async def handle_call(message: Any, caller: Any, state: int) -> tuple[Any, int]:
    """The count."""
    return gen_server.Reply(state), state


async def handle_cast(message: int, state: int) -> tuple[Any, int]:
    """One more."""
    return gen_server.NoReply(), state + message


async def measure(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    mailbox._init()
    name = "counting"
    sent = 0

    async def calls() -> int:
        for _ in range(CHUNK):
            await gen_server.call(name, 0)
        return CHUNK

    async def casts() -> int:
        nonlocal sent
        for _ in range(FLOOD):
            await gen_server.cast(name, 1)
        sent += FLOOD
        expect(await gen_server.call(name, 0), sent)
        return FLOOD

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gen_server.start, sys.modules[__name__], None, name)
        await trio.sleep(0.05)  # it has no way to say that it has started
        found = await async_rate(calls if work == "call" else casts, seconds)
        nursery.cancel_scope.cancel()
    return found


if __name__ == "__main__":
    tell(trio.run(measure, *arguments("triotp")))
