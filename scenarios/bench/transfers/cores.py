"""Which core the two ends of a hand-over run on: each on its own, as if each had a machine.

The kernel likes to wake a receiver on the core of its sender, where it waits until the sender has done what else it has
to do, while another core is idle. That cost ours a tenth of a hand-over, and the floor nothing. Homeservers and whoever
asks run where they like.
"""

import os

__all__ = ["run_apart"]


def run_apart(pid: int, end: int) -> None:
    """Have a process (0: this one) run on the core of this end (0, 1, ...), of those that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {cores[end % len(cores)]})
