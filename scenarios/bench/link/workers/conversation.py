"""What all workers say, and how it is counted. Standard library only; runs in any environment."""

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median

SMALL = bytes(range(100))
"""A small message."""
BULK = os.urandom(1024 * 1024)
"""A large one; random, so that nothing is gained by compressing it."""
ANSWER = b"ok"
"""To a large message, and to `WINDOW` counted ones. Another small one comes back as it is."""
COUNTED = bytes([255]) + SMALL[1:]
"""A small message that is not answered but counted."""
WINDOW = 256
"""Small messages on their way; of counted ones, each batch of this number is answered together."""
COUNTED_WINDOWS = 4
"""Of counted ones, this number of windows is on its way: 1024, what an inbox of the link holds."""
BULK_WINDOW = 4
STOP = b"stop"
"""Asks the other end to go."""
LOSS = 0.01
"""Share of the datagrams that either end loses on the way out, where it loses any."""

_WARM_UP_RTTS = 200


_counted = itertools.count(1)
_dice = random.Random(1)


def answer_to(message: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview | None:
    """What the server says; None: nothing."""
    if len(message) > len(SMALL):
        return ANSWER
    if message[0] == COUNTED[0]:
        return None if next(_counted) % WINDOW else ANSWER
    return message


def is_lost() -> bool:
    """Whether the next datagram is lost, drawn from a fixed seed."""
    return _dice.random() < LOSS


async def share_left(measure: Callable[[str, float], Awaitable[float]], work: str, seconds: float) -> float:
    """What losses leave of the goodput of `work`: with them by without, medians of three turns each."""
    lossless, lossy = [], []
    for _ in range(3):
        lossless.append(await measure(work, seconds / 3))
        lossy.append(await measure(f"{work}-loss", seconds / 3))
    return median(lossy) / median(lossless)


@contextmanager
def other_end(module: str, *arguments: str) -> Iterator[list[str]]:
    """Start `module` as the server, on this core; what it printed as its first line, in words."""
    argv = [sys.executable, "-m", module, "serve", "0", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None  # noqa: S101 - for the type checker: it was asked for
            yield server.stdout.readline().split()
        finally:
            server.terminate()


def ready(*words: object) -> None:
    """The server is listening."""
    print(*words, flush=True)  # noqa: T201


class Rtt:
    """The median of single round trips, in microseconds."""

    def __init__(self, seconds: float) -> None:
        self._until_s = time.perf_counter() + seconds
        self._times_ns: list[int] = []

    def more(self) -> bool:
        """Whether the time is not over."""
        return len(self._times_ns) < _WARM_UP_RTTS + 10 or time.perf_counter() < self._until_s

    def note(self, began_ns: int) -> None:
        """A round trip that began then has ended."""
        self._times_ns.append(time.perf_counter_ns() - began_ns)

    @property
    def figure(self) -> float:
        """The median, the first ones left out."""
        return median(self._times_ns[_WARM_UP_RTTS:]) / 1000


async def async_rtt(there_and_back: Callable[[], Awaitable[object]], seconds: float) -> float:
    """`Rtt` of something to await."""
    rtt = Rtt(seconds)
    while rtt.more():
        began_ns = time.perf_counter_ns()
        await there_and_back()
        rtt.note(began_ns)
    return rtt.figure


def rtt(there_and_back: Callable[[], object], seconds: float) -> float:
    """`Rtt` of something that blocks."""
    measured = Rtt(seconds)
    while measured.more():
        began_ns = time.perf_counter_ns()
        there_and_back()
        measured.note(began_ns)
    return measured.figure


class Stopwatch:
    """What came back within the time, after a warm-up."""

    def __init__(self, seconds: float) -> None:
        self._begins_s = time.perf_counter() + 0.2 * seconds
        self._ends_s = self._begins_s + seconds
        self._began_s = 0.0
        self._now_s = 0.0
        self._count = 0

    def count(self, number: int) -> bool:
        """`number` more came back; False when the time is over."""
        self._now_s = time.perf_counter()
        if not self._began_s:
            if self._now_s >= self._begins_s:
                self._began_s = self._now_s
            return True
        self._count += number
        return self._now_s < self._ends_s

    @property
    def per_second(self) -> float:
        """How many in a second."""
        return self._count / (self._now_s - self._began_s)
