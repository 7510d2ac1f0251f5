"""trio alone, as the limit: two tasks, and the least that passes a message between them.

`deque-...` is a deque and a task that is rescheduled by hand, which is the least there can be; `channel-...` is trio's
own memory channel. There are no names and no timeouts, and neither end is told when the other dies.
"""

from collections import deque
from typing import Any

import trio

from batonpass.scenarios.bench.loops import CHUNK, FLOOD, arguments, async_rate, expect, tell


class Mailbox:
    """A deque, and the task that waits for it."""

    def __init__(self) -> None:
        self.entries: deque[tuple[int, trio.lowlevel.Task | None]] = deque()
        self.waiting: trio.lowlevel.Task | None = None
        self.answer = 0

    def put(self, message: int, caller: trio.lowlevel.Task | None) -> None:
        """Queue a message."""
        self.entries.append((message, caller))
        if self.waiting is not None:
            task, self.waiting = self.waiting, None
            trio.lowlevel.reschedule(task)

    async def serve(self) -> None:
        """Count the messages without a caller, answer the others with the count."""
        count = 0
        while True:
            while self.entries:
                message, caller = self.entries.popleft()
                if caller is None:
                    count += message
                else:
                    self.answer = count
                    trio.lowlevel.reschedule(caller)
            self.waiting = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)

    async def call(self) -> int:
        """The count."""
        self.put(0, trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
        return self.answer


async def measure_deque(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    mailbox = Mailbox()
    sent = 0

    async def calls() -> int:
        for _ in range(CHUNK):
            await mailbox.call()
        return CHUNK

    async def casts() -> int:
        nonlocal sent
        for _ in range(FLOOD):
            mailbox.put(1, None)
        sent += FLOOD
        expect(await mailbox.call(), sent)
        return FLOOD

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.serve)
        found = await async_rate(calls if work == "call" else casts, seconds)
        nursery.cancel_scope.cancel()
    return found


async def serve_channel(requests: Any, answers: Any) -> None:
    """Count the ones, answer the zeros with the count."""
    count = 0
    async for message in requests:
        if message:
            count += 1
        else:
            await answers.send(count)


async def measure_channel(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    to_server, requests = trio.open_memory_channel[int](65_536)
    answers, from_server = trio.open_memory_channel[int](1)
    sent = 0

    async def call() -> int:
        await to_server.send(0)
        return await from_server.receive()

    async def calls() -> int:
        for _ in range(CHUNK):
            await call()
        return CHUNK

    async def casts() -> int:
        nonlocal sent
        for _ in range(FLOOD):
            await to_server.send(1)
        sent += FLOOD
        expect(await call(), sent)
        return FLOOD

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_channel, requests, answers)
        found = await async_rate(calls if work == "call" else casts, seconds)
        nursery.cancel_scope.cancel()
    return found


if __name__ == "__main__":
    todo, duration_s = arguments("trio")
    kind, _, what = todo.partition("-")
    tell(trio.run(measure_deque if kind == "deque" else measure_channel, what, duration_s))
