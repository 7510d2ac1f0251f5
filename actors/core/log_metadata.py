"""Metadata of log lines: what an actor works on, said once, and then on each of its lines (`Logger.metadata`).

    set_log_metadata(request="7f3a")  # in a callback, a task or a service: it holds there, and for what it starts
    handler.addFilter(LogMetadata())  # each record then has a dict `metadata`: "%(metadata)s" in a format shows it

It is kept in the context of the actor (`contextvars`), so no other actor sees what its callbacks set. One that is
started begins with a copy of its starter's. This module is pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Final, final

__all__ = ["LogMetadata", "log_metadata", "log_metadata_of", "set_log_metadata"]

_NONE: Final[Mapping[str, Any]] = {}
_metadata: ContextVar[Mapping[str, Any]] = ContextVar("actors.log_metadata", default=_NONE)


def set_log_metadata(**values: Any) -> None:
    """Have these on each line from now on, beside what was set before; None takes one away."""
    _metadata.set({key: value for key, value in {**_metadata.get(), **values}.items() if value is not None})


@contextmanager
def log_metadata_of(**values: Any) -> Iterator[None]:
    """Have these on each line within the block, and on those of what is started in it; then all is as it was."""
    before = _metadata.get()
    set_log_metadata(**values)
    try:
        yield
    finally:
        _metadata.set(before)


def log_metadata(context: Context | None = None) -> Mapping[str, Any]:
    """What was set here, or in another context."""
    return _metadata.get() if context is None else context.get(_metadata, _NONE)


@final
class LogMetadata(logging.Filter):
    """Gives each record its `metadata`, unless it has some: that of a crash is the metadata of who crashed."""

    def filter(self, record: logging.LogRecord) -> bool:
        """All pass."""
        if not hasattr(record, "metadata"):
            record.metadata = log_metadata()
        return True
