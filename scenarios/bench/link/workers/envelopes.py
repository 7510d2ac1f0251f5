"""How long it takes to seal and open; for all workers that do. Standard library only; runs in any environment."""

import os
import time
from collections.abc import Callable

SIZES = {"envelope": 100, "envelope-1M": 1024 * 1024}


def processor_time(both: Callable[[bytes], bytes], work: str, seconds: float) -> float:
    """Processor time of sealing and opening once: microseconds, or milliseconds for a megabyte."""
    payload = os.urandom(SIZES[work])
    if both(payload) != payload:
        raise ValueError("what was opened is not what was sealed")
    done, ends_s, began_s = 0, time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < ends_s or done < 3:
        both(payload)
        done += 1
    taken_s = (time.process_time() - began_s) / done
    return taken_s * (1e6 if work == "envelope" else 1e3)
