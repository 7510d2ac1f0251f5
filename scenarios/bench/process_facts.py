"""Processor time and memory of other processes, from proc(5)."""

import os
from pathlib import Path
from typing import Final

__all__ = ["processor_seconds", "resident_bytes"]

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
# Fields 14 and 15 of /proc/PID/stat, counted after the name, which is in parentheses and may contain anything.
_USER, _SYSTEM = 11, 12


def processor_seconds(pid: int) -> float:
    """What the process has used so far, all threads together, in user mode and in the kernel; 10 ms steps.

    Raises:
        FileNotFoundError: there is no such process.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """How much memory the process has at the moment, shared libraries included.

    Raises:
        FileNotFoundError: there is no such process.
    """
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
