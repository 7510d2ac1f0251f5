"""Running the system's own tools (ip, mount, cp), with an error that a user can act on."""

import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

import trio

from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["ToolFailed", "missing_tools", "run_tool"]

# In which package a tool is, on Debian and its relatives.
_PACKAGES: Final = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "umount": "mount",
    "mkfs.ext4": "e2fsprogs",
    "cp": "coreutils",
    "truncate": "coreutils",
}


class ToolFailed(EnvironmentFailed):
    """A tool of the system refused; the sentence has its command line and what it said."""


async def run_tool(*argv: str) -> None:
    """Run a tool to its end.

    Raises:
        ToolFailed: it cannot be started, or ended with an error.
    """
    try:
        done = await trio.run_process(argv, stdout=subprocess.DEVNULL, capture_stderr=True, check=False)
    except OSError as error:
        raise ToolFailed(f"cannot run {argv[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
        raise ToolFailed(f"`{' '.join(argv)}` ended with status {done.returncode}: {said}")


def missing_tools(tools: Sequence[str]) -> str | None:
    """A sentence that says which of these tools are missing and in which packages they are; None if none is."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing:
        return None
    packages = sorted({_PACKAGES.get(tool, tool) for tool in missing})
    return f"{', '.join(missing)} not found; install {', '.join(packages)}"
