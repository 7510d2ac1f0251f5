"""Errors that are no mistake in batonpass: the sentence and the exit status with which `baton` ends for each.

It knows the errors of every package, so the command imports it only when something went wrong.
"""

import errno
import socket
from pathlib import Path
from typing import Final

from batonpass.actors import Exit, RestartLimitReached
from batonpass.authority.node.config import ConfigError
from batonpass.crypto.errors import KeyFileError
from batonpass.scenarios.cluster.topology import BadSpec
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.common.status import BAD_RESULT, BAD_USAGE, CLUSTER_FAILED
from batonpass.tree.disk.disk import DiskFailed, disk_failed
from batonpass.tree.disk.journal import JournalConflict, JournalDamaged, JournalForeign
from batonpass.tree.disk.snapshot import SnapshotDamaged
from batonpass.tree.member.replica import DirectoryInUse
from batonpass.tree.net.certificates import InstanceSecretTooShort, KeyFileExposed

__all__ = ["foreseeable"]

_OF_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})
_OF_DISKS: Final = _OF_WRITING | {
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ESTALE,
}


def foreseeable(error: Exception) -> tuple[str, int] | None:
    """The sentence and exit status of an error that is not our own fault; None if it is."""
    match error:
        case RemoteRefused():
            return str(error), BAD_RESULT
        case BadSpec() | ConfigError():
            return str(error), BAD_USAGE
        case (EnvironmentFailed() | KeyFileError() | KeyFileExposed() | InstanceSecretTooShort() | DirectoryInUse()) | (
            DiskFailed() | JournalConflict() | JournalDamaged() | JournalForeign() | SnapshotDamaged()
        ):
            return str(error), CLUSTER_FAILED
        case OSError() if why := _cannot_listen(error) or _disk_refuses(error):
            return why, CLUSTER_FAILED
        case RestartLimitReached() | Exit():
            # It was worth restarting, but that did not help; the log has what went before.
            known = foreseeable(error.__cause__) if isinstance(error.__cause__, Exception) else None
            return known or (f"this server cannot go on: {error}", CLUSTER_FAILED)
        case ExceptionGroup():
            # A server is a tree of tasks, so what ends it arrives in groups.
            problems = [foreseeable(inner) for inner in error.exceptions]
            return None if None in problems else problems[0]
        case _:
            return None


def _disk_refuses(error: OSError) -> str:
    """What the disk refuses and what to do about it; empty if it is not the disk."""
    if isinstance(error.filename, str) and error.errno in _OF_DISKS:
        return str(disk_failed(error, Path(error.filename), "using"))
    # What is written through an open file has lost its name.
    is_written = error.filename is None and error.errno in _OF_WRITING
    return f"a file of this server cannot be written ({error.strerror}): see to its disk" if is_written else ""


def _cannot_listen(error: OSError) -> str:
    """Why a server cannot listen where its configuration says; empty if that is not what is wrong."""
    if error.errno == errno.EADDRINUSE:
        return "an address that this server should listen on is in use; is it running already?"
    is_strange = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or isinstance(error, socket.gaierror)
    if not is_strange and (error.errno != errno.EACCES or error.filename is not None):
        return ""
    return f"this server cannot listen at an address of its configuration ({error.strerror}): give one of this machine"
