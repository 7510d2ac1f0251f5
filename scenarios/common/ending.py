"""SIGTERM ends a command as Ctrl-C does: with everything removed and ended that the command has made and started.

By itself SIGTERM kills a process at once, with its files and its child processes left behind. Python makes an exception
of SIGINT only, and trio delivers that one where nothing is left half made. So SIGTERM takes the way of SIGINT.
"""

import signal
from types import FrameType

from batonpass.scenarios.common.status import INTERRUPTED, TERMINATED

__all__ = ["end_as_ctrl_c_does", "leave_sigterm_alone", "status_of_the_end"]

_sigterm_came = False


def end_as_ctrl_c_does() -> None:
    """From here on SIGTERM is a `KeyboardInterrupt`, unless what started this process has it ignored.

    A shell without job control, as in a script, has SIGINT ignored by what it runs in the background. trio then
    delivers no interrupt at all. Blocked, which child processes inherit too, SIGINT still does nothing.
    """
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def leave_sigterm_alone() -> None:
    """Undo it for a server, which takes SIGTERM as a message as soon as it serves, and has nothing to lose before."""
    if signal.getsignal(signal.SIGTERM) == _interrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def status_of_the_end() -> int:
    """The exit status of a command that a `KeyboardInterrupt` has ended: it says which signal that was."""
    return TERMINATED if _sigterm_came else INTERRUPTED


def _interrupt(_number: int, frame: FrameType | None) -> None:
    global _sigterm_came  # noqa: PLW0603 — of the process, as its signal handlers are
    _sigterm_came = True
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    # Inside of `trio.run` it is trio's, which looks at the frame: there the interrupt may have to wait.
    handler(signal.SIGINT, frame)
