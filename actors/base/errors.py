"""What counts as a failure of code that users supply: all that it raises, but Ctrl-C where Python raises that.

Such code is called and does not wait. So nothing that it raises was meant for the task that called it: trio cancels a
task where that waits, and a coroutine is closed there. A `GeneratorExit` or `trio.Cancelled` out of it is of its own
making, as `sys.exit` is, and what code in Rust raises when it panics (pyo3's `PanicException`), which is no `Exception`
either. Each of them would end a server, and the next one that runs the same code on the same data, without a trace of
why: no actor has died in the middle of a step.
"""

import traceback
from typing import Final

from batonpass.actors.base.interrupts import are_received

__all__ = ["is_stopping", "said", "traceback_of"]

# As they are, whatever a class says that was made of one.
_members: Final = BaseExceptionGroup.exceptions.__get__


def is_stopping(error: BaseException) -> bool:
    """Whether what such code raised is Ctrl-C, or a group with it: then it has to be raised on.

    A server takes Ctrl-C as a message (`actors.supervision.signals`), so there no `KeyboardInterrupt` is one.
    """
    return not are_received() and _is_interrupt(error)


def _is_interrupt(error: BaseException) -> bool:
    kind = type(error)
    if issubclass(kind, BaseExceptionGroup):
        return any(map(_is_interrupt, _members(error)))
    return issubclass(kind, KeyboardInterrupt)


def said(error: BaseException) -> str:
    """Its type and what it says, if it can: its `__str__` is code of users, too, and may raise."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except BaseException as failure:
        if is_stopping(failure):
            raise
        return f"{name}, which cannot say more"


def traceback_of(error: BaseException) -> str:
    """Its traceback for the log, if there can be one: what it is made of may fail as well."""
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException as failure:
        if is_stopping(failure):
            raise
        return said(error)
