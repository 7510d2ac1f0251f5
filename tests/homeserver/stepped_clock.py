"""A clock for loops that sleep: time passes only while they do, and ends."""

from collections.abc import Callable
from typing import Any

from batonpass.actors.base.clock import Clock


class Enough(BaseException):
    """The time that the test wanted is over."""


class Stepped(Clock):
    """Time that passes only while somebody sleeps, and ends at `end_s`; it begins at `now_s`."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = self.end_s = now_s
        self.in_between: Callable[[], None] = lambda: None
        self.monotonic_ns: Any = lambda: round(self.now_s * 1e9)

    async def sleep_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.in_between()
        if self.now_s > self.end_s:
            raise Enough
