"""What counts as a failure of a world: all that its code raises, unless it is told there that this program has to stop.

Code in Rust that panics raises what is no `Exception` (pyo3's `PanicException`), and so does `sys.exit`. Either would
end the server, and the next that goes on with the entity, without a trace in the black box: nobody has died in the
middle of a step.
"""

from typing import Final

import trio

__all__ = ["is_stopping"]

_STOPPING: Final = (KeyboardInterrupt, trio.Cancelled, GeneratorExit)


def is_stopping(error: BaseException) -> bool:
    """Whether this says that the program, or the task, has to end; it must be raised on then."""
    if isinstance(error, Exception):
        return False
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(_STOPPING) is not None
    return isinstance(error, _STOPPING)
