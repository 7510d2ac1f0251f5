"""The exit statuses of `baton`; `baton --help` says what they mean. Of homeservers: `homeserver.server.exit_status`."""

from typing import Final

__all__ = ["BAD_RESULT", "BAD_USAGE", "CLUSTER_FAILED", "INTERRUPTED", "OK", "TERMINATED"]

OK: Final = 0
BAD_RESULT: Final = 1
BAD_USAGE: Final = 2
CLUSTER_FAILED: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143
