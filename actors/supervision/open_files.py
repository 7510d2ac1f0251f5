"""How many files and connections this process may have open: as many as its hard limit says.

Many systems begin with 1,024, so that programs of 1983 which use `select` keep working. A server whose clients have
taken them all could not open its journal any more.
"""

import logging
import resource
from typing import Final

__all__ = ["FEW", "allow_open_files"]

_log = logging.getLogger("batonpass.actors.supervision.open_files")

FEW: Final = 4096
"""Fewer than a server may need whose places are all taken."""


def allow_open_files() -> int:
    """Raise the soft limit of open files to the hard one; how many they are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (ValueError, OSError) as error:
        _log.info("the limit of open files stays at %d: %s", soft, error)
    if soft < FEW and soft != resource.RLIM_INFINITY:
        _log.warning("this process may have %d files open only: raise its hard limit (ulimit -Hn) to %d", soft, FEW)
    return soft
