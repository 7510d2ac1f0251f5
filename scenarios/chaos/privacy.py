"""A private corner of the kernel for a run: mounts, links and namespaces that vanish with its processes.

The process that calls `enter_private_namespaces` gets a mount namespace and a network namespace of its own, and so do
all children that it starts afterwards. Whatever they mount or plug together there is invisible outside, and the kernel
takes it down when the last of them is gone. That holds also after SIGKILL, when no process is left that could clean up.
(`ip netns`, by contrast, keeps what it makes until it is deleted.)

The superuser enters them directly. Any other needs a user namespace first, where the kernel permits them. In one,
networks can be made but block devices cannot be mounted, which only a real superuser may.
"""

import ctypes
import errno
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Permissions", "detach_mounts_below", "enter_private_namespaces"]

# <linux/sched.h>, <linux/mount.h>
_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWUSER: Final = 0x1000_0000
_CLONE_NEWNET: Final = 0x4000_0000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 1 << 18
_MNT_DETACH: Final = 2


@dataclass(frozen=True)
class Permissions:
    """What the kernel permits to this process now: None, or the reason why it does not."""

    no_network: str | None = None
    no_images: str | None = None


def enter_private_namespaces(*, network: bool, images: bool) -> Permissions:
    """Move this process, which must have one thread, into namespaces of its own, if either is wanted; never raises.

    Call it before anything else starts: what was opened earlier stays where it was. The new network namespace is
    empty; even its loopback device is down. Where it is not permitted, this process stays as it was.
    """
    if not network and not images:
        return Permissions()
    superuser = os.geteuid() == 0
    reason = _why_not(network=network, superuser=superuser)
    if reason is not None:
        return Permissions(reason, reason)
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    wanted = _CLONE_NEWNS | (_CLONE_NEWNET if network else 0) | (0 if superuser else _CLONE_NEWUSER)
    if libc.unshare(wanted) != 0:
        reason = f"namespaces are not permitted here ({_last_error()})"
        return Permissions(reason, reason)
    if not superuser:
        _become_root_inside(user, group)
    # Otherwise what is mounted here would be mounted for all.
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        reason = f"mounts cannot be made private here ({_last_error()})"
        return Permissions(reason, reason)
    return Permissions(None, None if superuser else "only the superuser can mount the image of a disk")


def _why_not(*, network: bool, superuser: bool) -> str | None:
    """Let another process try the same first: half of it done would be worse for this one than nothing."""
    flags = ["--mount", *(["--net"] if network else []), *([] if superuser else ["--user", "--map-root-user"])]
    try:
        tried = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"unshare (util-linux) cannot be run: {error.strerror}"
    return None if tried.returncode == 0 else f"namespaces are not permitted here ({tried.stderr.strip()})"


def detach_mounts_below(directory: Path) -> None:
    """Let go of everything that this process's namespace has mounted below a directory; what is in use goes later."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        # Blanks and the like are written as octal escapes; see proc_mounts in getmntent(3).
        place = line.split(" ")[1].encode(errors="surrogateescape").decode("unicode_escape").encode("latin-1")
        if place.startswith(bytes(directory) + b"/"):
            libc.umount2(place, _MNT_DETACH)


def _become_root_inside(user: int, group: int) -> None:
    """Map this user to the superuser of the new user namespace; see user_namespaces(7)."""
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="utf-8")


def _last_error() -> str:
    code = ctypes.get_errno()
    return f"{errno.errorcode.get(code, code)}: {os.strerror(code)}"
