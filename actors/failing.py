"""What counts as a failure of code that users supply: all that it raises, but to be told that the program has to stop.

Code in Rust that panics raises what is no `Exception` (pyo3's `PanicException`), and so does `sys.exit`. Either would
end a server, and the next one that runs the same code on the same data, without a trace of why: nobody has died in the
middle of a step.
"""

from typing import Final

import trio

__all__ = ["is_stopping", "said"]

_STOPPING: Final = (KeyboardInterrupt, trio.Cancelled, GeneratorExit)


def is_stopping(error: BaseException) -> bool:
    """Whether this says that the program, or the task, has to end; it must be raised on then."""
    if isinstance(error, Exception):
        return False
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(_STOPPING) is not None
    return isinstance(error, _STOPPING)


def said(error: BaseException) -> str:
    """Its type and what it says, if it can: its `__str__` is of whoever has raised it, too, and may raise."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except BaseException as failure:
        if is_stopping(failure):
            raise
        return f"{name}, which cannot say more"
