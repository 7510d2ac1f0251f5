"""What is fuzzed: a function, how to call it with bytes, where to begin, and what it may raise."""

import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from tests.fuzz.plain import NotPlain

MAX_INPUT_BYTES = 65_536
"""Larger inputs are more of the same; the bounds of sizes have tests of their own."""

MAX_CPU_S = 5.0
"""Of one input, which takes microseconds: so much is a hang, whatever the machine."""

MAX_MEMORY_BYTES = 48 * 1024 * 1024
"""Allocated at most at one moment for one input of at most 64 KiB: a message of 4 MiB, said to be so in a few bytes and
copied a few times, is within it; a table of what an attacker counts is not."""


class Failed(Exception):
    """A target did what it must not."""


@dataclass(frozen=True)
class Target:
    """`call` gives bytes to the functions that it `covers` (`module:qualified name`).

    It may raise `allowed` and nothing else. `plain` says that the bytes are CBOR or JSON, so that mutations can keep
    their shape. `seeds` are good inputs; running them must enter every function covered.
    """

    name: str
    call: Callable[[bytes], object]
    covers: Sequence[str]
    seeds: Callable[[], list[bytes]]
    allowed: tuple[type[Exception], ...] = ()
    plain: str = ""
    slow: bool = False
    """One input costs milliseconds: hypothesis gets fewer of them."""


def run(target: Target, data: bytes) -> None:
    """Call the target; raises Failed, with what it must not have raised as the cause."""
    try:
        target.call(data)
    except (TimeoutError, NotPlain) as error:
        if isinstance(error, TimeoutError):
            raise
    except Exception as error:
        if isinstance(error, target.allowed):
            return
        raise Failed(
            f"{target.name} let {type(error).__qualname__} escape: {error!s:.200}\n"
            f"reproduce: python -m tests.fuzz.run --replay {target.name!r} {data[:2000].hex()}"
        ) from error


def run_bounded(target: Target, data: bytes) -> None:
    """As `run`, within MAX_CPU_S and MAX_MEMORY_BYTES."""
    tracemalloc.start()
    try:
        with _cpu_limit(target, data):
            run(target, data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if peak_bytes > MAX_MEMORY_BYTES:
        raise Failed(f"{target.name} allocated {peak_bytes} bytes for an input of {len(data)}: {data[:2000].hex()}")


@contextmanager
def _cpu_limit(target: Target, data: bytes) -> Iterator[None]:
    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"{target.name} took more than {MAX_CPU_S} s for: {data[:2000].hex()}")

    before = signal.signal(signal.SIGVTALRM, on_alarm)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
