"""The one place where a server reads the time; everything else is handed a clock, or `now`."""

import time

import trio

__all__ = ["Clock"]


class Clock:
    """The host's clocks. Tests and simulations hand in a subclass that they move themselves."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never jump; comparable between the processes of one machine."""
        return time.monotonic_ns()

    def unix_s(self) -> float:
        """Seconds since 1970, for expiry times that another machine checks."""
        return time.time()  # noqa: TID251 — expiry of sealed messages is in Unix time; everything else is monotonic

    async def sleep_s(self, seconds: float) -> None:
        """Wait for so long by the monotonic clock; a checkpoint."""
        await trio.sleep(seconds)
