"""Worlds, policies and telemetry handlers that a configuration names are modules of its author.

`python -m` looks for modules where it was started, and so do the servers of `baton up`; the installed command looks
only beside itself. By hand a server finds what it found under `baton up`.
"""

import sys

__all__ = ["look_here_first"]


def look_here_first() -> None:
    """From now on modules are looked for in the current directory before anywhere else."""
    sys.path.insert(0, "")
