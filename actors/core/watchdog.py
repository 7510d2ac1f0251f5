"""The watchdog: reports a callback that blocks the node while it blocks it, with its name and where it is.

trio runs on one thread, and so does this: there is no thread to watch from. The kernel's interval timer runs even when
Python code does not give way. Its signal (`SIGALRM`) makes the interpreter run a handler between two bytecodes of
whatever runs, or when a system call is interrupted. Every `period_s` the handler asks trio's loop to show that it is
alive, with the one function that may be called from a signal handler. If the loop has not answered by the next time, a
quarter of a period is added, so that a process which merely did not get the processor has the chance to answer. If it
has not then either, the node is blocked, and the stack that the handler was called on is the culprit's.

So nothing is armed or checked per message, per turn or per slice. It costs one signal and one pass through trio's loop
per period, measured as 0.1 to 0.2 ms of processor time on an idle node: with four of them per second, the default, less
than a thousandth of a core.

What it cannot do: C code that neither returns nor makes system calls (a huge `json.loads`) holds the handler up too; it
is reported when it is over, by the slow-callback report. Only one program can have `SIGALRM`: the watchdog stays off
outside of the main thread, and where another has a handler for that signal or a real-time interval timer, such as
pytest-timeout. The first system of a process has the watchdog; it watches trio's loop, and so all systems on it.

The log is written while the node is blocked. Telemetry (`NODE_BLOCKED`) is told when it is free again, with the whole
duration: its handlers may send messages, and a signal handler runs in the middle of anything.
"""

from __future__ import annotations

import logging
import signal
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from batonpass.actors.core.ref import current_process
from batonpass.actors.core.server import Server
from batonpass.actors.core.telemetry import NODE_BLOCKED

if TYPE_CHECKING:
    from types import FrameType

    from batonpass.actors.core.telemetry import Telemetry

logger = logging.getLogger("batonpass.actors")

MIN_PERIOD_S: Final = 0.01
"""A shorter period would cost more than a hundredth of the node."""
MAX_PERIOD_S: Final = 60.0

OUTER_FRAMES: Final = 8
INNER_FRAMES: Final = 16
"""Of the culprit's stack are reported: whose work it is, and what it is doing."""

CALLBACKS: Final = frozenset(
    {"init", "handle_call", "handle_cast", "handle_info", "handle_continue", "terminate", "format_status"}
)


@final
@dataclass(frozen=True, slots=True)
class Culprit:
    """Who blocks the node: `name` is that of an actor or of a trio task, `callback` that of the function, if known."""

    name: str
    callback: str
    stack: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.callback}" if self.callback else self.name


@final
class Watchdog:
    """Watches the loop that it is started in; see the head of the module.

    Raises `ValueError` unless `period_s` is from 0.01 to 60 seconds.
    """

    def __init__(self, period_s: float) -> None:
        self.blocked = 0
        """How many times the node was blocked so far."""
        if not MIN_PERIOD_S <= period_s <= MAX_PERIOD_S:
            raise ValueError(f"watchdog_s must be {MIN_PERIOD_S} to {MAX_PERIOD_S} seconds, or None, not {period_s}")
        self._period_s = period_s
        self._telemetry: Telemetry | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._asked_s = 0.0
        self._answered = True
        self._missed = 0
        self._report_after_s = 0.0
        self._culprit: Culprit | None = None

    def start(self, telemetry: Telemetry) -> bool:
        """Watch the loop that this is called in, from now on. False, and nothing done, where there is no signal."""
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
            logger.debug("no watchdog: somebody else uses SIGALRM")
            return False
        try:
            signal.signal(signal.SIGALRM, self._on_alarm)
        except ValueError:
            logger.debug("no watchdog: this is not the main thread")
            return False
        self._telemetry = telemetry
        self._token = trio.lowlevel.current_trio_token()
        signal.setitimer(signal.ITIMER_REAL, self._period_s, self._period_s)
        return True

    def stop(self) -> None:
        """Watch no more. Harmless if it was never started."""
        if self._token is not None:
            self._token = None
            # Code that has taken the signal from us meanwhile shall keep it, and its timer.
            if signal.getsignal(signal.SIGALRM) == self._on_alarm:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)

    # In the signal handler: in the middle of anything

    def _on_alarm(self, _number: int, frame: FrameType | None) -> None:
        try:
            now_s = time.monotonic()
            if self._answered:
                self._ask(now_s)
            else:
                self._miss(now_s - self._asked_s, frame)
        except Exception:
            # What is raised here would be raised in whatever was interrupted.
            logger.exception("the watchdog failed")

    def _ask(self, now_s: float) -> None:
        if self._token is not None:
            self._asked_s = now_s
            self._answered = False
            self._missed = 0
            self._token.run_sync_soon(self._answer, idempotent=True)

    def _miss(self, blocked_s: float, frame: FrameType | None) -> None:
        self._missed += 1
        if self._missed == 1:
            signal.setitimer(signal.ITIMER_REAL, self._period_s / 4, self._period_s)
        elif self._culprit is None:
            self.blocked += 1
            self._report(blocked_s, frame)
        elif blocked_s >= self._report_after_s:
            self._report(blocked_s, frame)

    def _report(self, blocked_s: float, frame: FrameType | None) -> None:
        # The one that began it: one blockage has one culprit, even if its stack is another each time.
        here = find_culprit(frame)
        self._culprit = self._culprit or here
        self._report_after_s = 2 * blocked_s
        logger.error(
            "%s has been holding up the whole node for %.0f ms, and is here now:\n%s",
            here,
            blocked_s * 1000,
            "".join(here.stack),
        )

    # In trio's loop

    def _answer(self) -> None:
        culprit, self._culprit = self._culprit, None
        self._answered = True
        if culprit is not None and self._telemetry is not None:
            blocked_s = time.monotonic() - self._asked_s
            logger.error("%s held up the whole node for %.0f ms", culprit, blocked_s * 1000)
            self._telemetry.execute(
                NODE_BLOCKED, {"duration_s": blocked_s}, {"culprit": str(culprit), "stack": culprit.stack}
            )


def find_culprit(frame: FrameType | None) -> Culprit:
    """Who runs on this stack: the innermost callback of an actor, else the actor or trio task it belongs to."""
    actor = callback = ""
    frames: list[FrameType] = []
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("trio._core._run"):
        frames.append(frame)
        code = frame.f_code
        if not actor and code.co_name in CALLBACKS:
            server = frame.f_locals.get("self")
            if isinstance(server, Server):
                actor, callback = server.ref.process.label, code.co_qualname
        frame = frame.f_back
    if not actor:
        process = current_process.get()
        actor = process.label if process is not None else _task_name()
    return Culprit(actor, callback, tuple(_stack_lines(frames[::-1])))


def _stack_lines(frames: list[FrameType]) -> list[str]:
    """The frames as Python prints them, outermost first, without the middle of a deep stack."""
    left_out = len(frames) - OUTER_FRAMES - INNER_FRAMES
    if left_out <= 0:
        return _lines_of(frames)
    middle = f"  ... {left_out} more frames ...\n"
    return [*_lines_of(frames[:OUTER_FRAMES]), middle, *_lines_of(frames[-INNER_FRAMES:])]


def _lines_of(frames: list[FrameType]) -> list[str]:
    return traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames).format()


def _task_name() -> str:
    try:
        return f"the task {trio.lowlevel.current_task().name}"
    except RuntimeError:
        return "trio itself"
