"""What all workers share: how long to continue, and what to print. Standard library only; runs in any environment."""

import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

from batonpass.scenarios.common.ending import end_as_ctrl_c_does

FLOOD = 10_000
"""Casts in a row before one call makes sure that they have arrived."""
CHUNK = 500
"""Calls between two looks at the clock."""
_WARM_UP = 0.15
"""Of the time, before it counts."""


def arguments(library: str) -> tuple[str, float]:
    """What to do, and for how many seconds; answers `version` itself.

    From here on SIGTERM, by which `side_by_side` ends a worker too soon, also ends what the worker has started.
    """
    end_as_ctrl_c_does()
    work, seconds = sys.argv[1], float(sys.argv[2])
    if work == "version":
        print(json.dumps({"version": version(library)}))  # noqa: T201
        sys.exit(0)
    return work, seconds


def tell(figure: float) -> None:
    """Print the result."""
    print(json.dumps({"figure": figure}))  # noqa: T201


def tell_all(figures: Mapping[str, float]) -> None:
    """Print the figures of one sample, for several rows."""
    print(json.dumps({"figures": figures}))  # noqa: T201


def rate(chunk: Callable[[], int], seconds: float) -> float:
    """How many things a second `chunk` does, which says how many it did."""
    done, took_s = 0, 0.0
    for part in (seconds * _WARM_UP, seconds):
        done, began_s = 0, time.perf_counter()
        while (took_s := time.perf_counter() - began_s) < part:
            done += chunk()
    return done / took_s


async def async_rate(chunk: Callable[[], Awaitable[int]], seconds: float) -> float:
    """`rate`, for what has to be awaited."""
    done, took_s = 0, 0.0
    for part in (seconds * _WARM_UP, seconds):
        done, began_s = 0, time.perf_counter()
        while (took_s := time.perf_counter() - began_s) < part:
            done += await chunk()
    return done / took_s


def expect(found: Any, wanted: Any) -> None:
    """A figure of something that did not happen would be worth nothing."""
    if found != wanted:
        sys.exit(f"counted {found!r} where {wanted!r} had been sent")
