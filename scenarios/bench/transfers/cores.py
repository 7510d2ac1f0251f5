"""How both ends of a hand-over run: each on a core of its own, and before all others there, as if each had a machine.

The kernel likes to wake a receiver on the core of its sender, while another core is idle. There it waits until the
sender has done what else it has to do. That cost ours a tenth of a hand-over, and the floor nothing.

And two cores carry four processes more, which would have machines of their own: three homeservers, and the client. They
are still at work on what was asked for while it is done, the log's followers too where the leader was asked. So an end
waits for its core: 0.45 ms of 2.7 to 1.5 of 3.8, in the mean. No other is on the floor's cores. Where the kernel
permits it (CAP_SYS_NICE), both ends have real-time priority for as long as one hand-over follows on the other. The
floor's have it too. Homeservers and the client run where and when they can.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["ahead_of_others", "can_go_ahead", "run_apart"]

_AHEAD: Final = 1
"""The lowest real-time priority: before all that have none."""


def run_apart(pid: int, end: int) -> None:
    """Have a process (0: this one) run on the core of this end (0, 1, ...), of those that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {cores[end % len(cores)]})


def can_go_ahead() -> bool:
    """Whether this process may have others, and itself, go before all others."""
    try:
        with ahead_of_others([0]):
            return os.sched_getscheduler(0) == os.SCHED_FIFO
    except PermissionError:
        return False


@contextmanager
def ahead_of_others(pids: Sequence[int]) -> Iterator[None]:
    """Have the main threads of these processes (0: this one) run before all others on their cores meanwhile.

    Raises:
        PermissionError: this process may not do that; nothing is changed.
    """
    before = [(pid, os.sched_getscheduler(pid), os.sched_getparam(pid)) for pid in pids]
    changed = 0
    try:
        for pid in pids:
            os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(_AHEAD))
            changed += 1
        yield
    finally:
        for pid, policy, parameters in before[:changed]:
            # One that has died has no priority either.
            with suppress(ProcessLookupError):
                os.sched_setscheduler(pid, policy, parameters)
