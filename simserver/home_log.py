"""The last position of its home instance's log that this server was told of, kept over restarts.

It is a signed word (`authority.log_positions`) that is shown again with every renewal of the lease: a home whose log
was restored from an older copy is found out by it. The file is written beside everything else, a moment after the
word has come: a renewal must not wait for a disk. Without the file, this server follows whatever log its home
instance has: an operator who wants that removes it.
"""

import logging
from pathlib import Path
from typing import Final

import trio

from authority.lease_messages import MAX_POSITION_CHARS
from tree.disk import DiskFailed, replace_file

__all__ = ["HomeLog"]

_log = logging.getLogger("simserver.home_log")

WRITE_EVERY_S: Final = 0.5


class HomeLog:
    """What is known of the home instance's log; without a `file`, as long as the process lives."""

    def __init__(self, file: Path | None = None) -> None:
        self._file: Final = file
        self.position: str = "" if file is None else _read(file)
        """As it was signed; empty if there is none."""
        self._written = self.position

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the file up to date, until cancelled, and then once more."""
        task_status.started()
        try:
            while True:
                await trio.sleep(WRITE_EVERY_S)
                if self._written != (position := self.position):
                    await trio.to_thread.run_sync(self._write, position)
        finally:
            self._write(self.position)

    def _write(self, position: str) -> None:
        if self._file is None or position == self._written:
            return
        try:
            replace_file(self._file, position.encode())
        except (OSError, DiskFailed) as error:
            _log.warning("%s is not written: %s", self._file, error)
        else:
            self._written = position


def _read(file: Path) -> str:
    try:
        position = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        _log.warning("%s cannot be read, so a log that went back is not noticed by it: %s", file, error)
        return ""
    return position if len(position) <= MAX_POSITION_CHARS else ""
