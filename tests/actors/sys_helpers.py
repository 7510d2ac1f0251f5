"""What tests that look into actors share."""

import contextlib
from typing import Any

import trio.testing

from batonpass.actors import Exit

__all__ = ["cast_when_idle", "ignore_exit"]


async def ignore_exit(call: Any) -> None:
    """Wait for a call, and let the end of whom it asks be no error."""
    with contextlib.suppress(Exit):
        await call


async def cast_when_idle(ref: Any, message: Any) -> None:
    """Cast once nothing else can run."""
    await trio.testing.wait_all_tasks_blocked()
    ref.cast(message)
