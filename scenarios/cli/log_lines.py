"""Lines of a server's log: sentences for people, or one JSON object each for programs."""

import json
import logging
from typing import Any, Final

from batonpass.actors.core.log_metadata import LogMetadata
from batonpass.authority.node.spans import trace_id

__all__ = ["JsonLogLines", "log_handler"]

_DATE: Final = "%Y-%m-%dT%H:%M:%S"


class JsonLogLines(logging.Formatter):
    """One JSON object a line.

    `time` (UTC, RFC 3339), `level`, `logger`, `message`; `server`; `error` with the traceback, if there is
    one. What the actor works on (`actors.set_log_metadata`) follows as strings; a `transfer` has its `trace_id` too.
    """

    def __init__(self, server: str) -> None:
        super().__init__(datefmt=_DATE)
        self._server: Final = server

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {str(key): str(value) for key, value in getattr(record, "metadata", {}).items()}
        if "transfer" in line:
            line["trace_id"] = f"{trace_id(line['transfer']):032x}"
        # What everybody relies on is never replaced by what an actor has set.
        line |= {
            "time": f"{self.formatTime(record, self.datefmt)}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "logger": record.name,
            "server": self._server,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_handler(log_format: str, server: str) -> logging.Handler:
    """Writes to stderr, as `text` or `json`; times are UTC once `logging.Formatter.converter` is `time.gmtime`."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLogLines(server))
        handler.addFilter(LogMetadata())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", _DATE))
    return handler
