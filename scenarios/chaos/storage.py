"""Where members keep their files: plain directories, or each on an ext4 file system of its own in an image.

The image makes a power cut possible. A stopped member's image is copied while nothing changes it. The copy holds what
had reached the device, and not what the kernel still kept in memory. When it takes the image's place later, the member
finds its disk as a cut of the power at that instant would have left it. That includes ext4's own journal.

The model is a little kinder than the worst disk: what was handed to the device but not yet flushed by it is kept.
Dropping that too, and tearing it, is what `tearing` does on the level of the files.
"""

import errno
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import trio

from batonpass.scenarios.chaos.tools import ToolFailed, missing_tools, run_tool

__all__ = ["ImageDisks", "PlainDisks", "Storage"]

_TOOLS: Final = ("mount", "umount", "mkfs.ext4", "cp", "truncate")
_IMAGE_BYTES: Final = 192 * 1024 * 1024
_BLOCK_BYTES: Final = 4096
_UNMOUNT_TRIES: Final = 40
_UNMOUNT_RETRY_S: Final = 0.05


class Storage(ABC):
    """The disks of members."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    @abstractmethod
    async def add(self, name: str) -> None:
        """Give a member an empty disk. Once for each, before it is started."""

    @abstractmethod
    async def remove(self, name: str) -> None:
        """Take a member's disk away with everything on it. It must be gone."""

    def directory(self, name: str) -> Path:
        """Where the member keeps its files; made by the member itself."""
        return self.disk(name) / "state"

    def disk(self, name: str) -> Path:
        """The disk as a whole."""
        return self._directory / name

    def set_aside(self, name: str, number: int) -> Path:
        """Move the files of a member that does not run out of its way, as an operator is told to; where they are."""
        aside = self.disk(name) / f"damaged.{number}"
        self.directory(name).rename(aside)
        return aside

    def forget(self, aside: Path) -> None:
        """Remove files that were set aside."""
        shutil.rmtree(aside)


class PlainDisks(Storage):
    """A directory per member."""

    async def add(self, name: str) -> None:
        """Make the directory."""
        await run_tool("mkdir", str(self.disk(name)))

    async def remove(self, name: str) -> None:
        """Remove the directory."""
        await run_tool("rm", "-r", str(self.disk(name)))


class ImageDisks(Storage):
    """An ext4 image per member, mounted through a loop device in the private mount namespace of the run."""

    @staticmethod
    def missing_tools() -> str | None:
        """Which tools it would need and cannot find; None if it has them all."""
        return missing_tools(_TOOLS)

    async def add(self, name: str) -> None:
        """Make the image and mount it."""
        await run_tool("mkdir", str(self.disk(name)))
        image = str(self._image(name))
        await run_tool("truncate", f"--size={_IMAGE_BYTES}", image)
        await run_tool("mkfs.ext4", "-q", "-F", "-m", "0", image)
        await self._mount(name)

    async def photograph(self, name: str) -> None:
        """Copy the image as it is now. The member must be paused (SIGSTOP)."""
        await self._copy(self._image(name), self._photograph(name))

    async def restore(self, name: str) -> None:
        """Make the disk what it was when it was photographed. The member must be gone."""
        await self._unmount(name)
        await self._copy(self._photograph(name), self._image(name))
        self._photograph(name).unlink()
        await self._mount(name)

    def fill(self, name: str) -> None:
        """Leave no room on the member's disk."""
        file = os.open(self._filler(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end, step = 0, _IMAGE_BYTES
            while step >= _BLOCK_BYTES:
                try:
                    os.posix_fallocate(file, end, step)
                    end += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(file)

    def make_room(self, name: str) -> None:
        """Undo `fill`."""
        self._filler(name).unlink()

    async def remove(self, name: str) -> None:
        """Unmount and remove the image."""
        await self._unmount(name)
        await run_tool("rm", "-r", str(self._image(name)), str(self.disk(name)))

    def _filler(self, name: str) -> Path:
        return self.disk(name) / "filler"

    def _image(self, name: str) -> Path:
        return self._directory / f"{name}.ext4"

    def _photograph(self, name: str) -> Path:
        return self._directory / f"{name}.photograph"

    @staticmethod
    async def _copy(source: Path, target: Path) -> None:
        await run_tool("cp", "--sparse=always", "--reflink=auto", str(source), str(target))

    async def _mount(self, name: str) -> None:
        # commit=600: nothing reaches the device on its own while the image is copied, only what is synced.
        await run_tool("mount", "-o", "loop,noatime,commit=600", str(self._image(name)), str(self.disk(name)))

    async def _unmount(self, name: str) -> None:
        # A process that was just reaped may hold its files for a moment yet.
        for last in (False,) * _UNMOUNT_TRIES + (True,):
            try:
                await run_tool("umount", str(self.disk(name)))
            except ToolFailed:
                if last:
                    raise
                await trio.sleep(_UNMOUNT_RETRY_S)
            else:
                return
