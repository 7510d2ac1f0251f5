"""No server outlives the command that started it, however that command ends.

A parent that is killed with SIGKILL cannot clean up, so its children must notice by themselves. Two mechanisms of the
kernel do the noticing, because neither covers everything alone:

- The parent-death signal, prctl(2) `PR_SET_PDEATHSIG`, is SIGKILL. So it also ends a child that is stopped (SIGSTOP) or
  stuck in a loop, at the moment the parent is gone.
- The parent's end of our stdin pipe closes when the parent is gone *or lets go of it*. The kernel then turns that
  end-of-file into a SIGTERM (fcntl(2) `O_ASYNC` with `F_SETSIG`). This closes the race of a parent that died before the
  first mechanism was armed. It gives a child whose parent merely hung up an orderly end.

The pipe is watched by the kernel and not by a task in the child. It works from the first line of the program, before
any event loop exists, and whatever that loop is busy with.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import stat

from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["OrphanError", "die_with_parent", "kill_me_when_parent_thread_ends"]

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


class OrphanError(EnvironmentFailed):
    """The tie to the parent process cannot be made; the sentence says what is missing."""


def die_with_parent(pipe_fd: int = 0) -> None:
    """Tie the life of this process to its parent's. Call it first thing, in the main thread.

    From here on, this process gets SIGKILL when the parent thread that started it ends. It gets SIGTERM when the write
    end of the pipe `pipe_fd` (default: stdin) is held no more. A parent must therefore start children from a thread
    that lives as long as it does, and must write nothing into the pipe.

    Raises:
        OrphanError: `pipe_fd` is not a pipe, or the system is not Linux.
    """
    kill_me_when_parent_thread_ends()
    _terminate_me_at_end_of(pipe_fd)


def kill_me_when_parent_thread_ends() -> None:
    """Ask for SIGKILL to this process when the parent thread that started it ends.

    Raises:
        OrphanError: the system is not Linux.
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except AttributeError:
        raise OrphanError("--parent-pipe needs Linux (prctl is missing); start this server without it") from None
    # Unsigned long, because varargs of another width are undefined on some ABIs.
    if prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)) != 0:
        code = ctypes.get_errno()
        raise OrphanError(f"cannot ask for a parent-death signal: {errno.errorcode.get(code, code)}")


def _terminate_me_at_end_of(pipe_fd: int) -> None:
    if not stat.S_ISFIFO(os.fstat(pipe_fd).st_mode):
        raise OrphanError(
            "--parent-pipe needs stdin to be a pipe held open by the parent; it is for servers started by "
            "`baton up` and `baton run`, leave it away when you start one by hand"
        )
    fcntl.fcntl(pipe_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe_fd, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(pipe_fd, fcntl.F_SETFL, fcntl.fcntl(pipe_fd, fcntl.F_GETFL) | os.O_ASYNC)
    # The kernel signals only what happens after arming, so look once for what happened before.
    poll = select.poll()
    poll.register(pipe_fd, 0)
    if poll.poll(0):
        os.kill(os.getpid(), signal.SIGTERM)
