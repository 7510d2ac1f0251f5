"""The errors that commands share."""

from typing import Final

__all__ = ["EnvironmentFailed", "RemoteRefused"]


class EnvironmentFailed(Exception):
    """The machine, a directory or a process does not let a scenario happen; the text is one line for the user.

    It is never about the result of a scenario. `baton` prints it and exits with status 3.
    """


class RemoteRefused(Exception):
    """A server refused what was asked of it; `code` is its stable code. `baton` prints it and exits with status 1."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code: Final = code
