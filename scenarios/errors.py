"""The error that all scenarios share."""

__all__ = ["EnvironmentFailed"]


class EnvironmentFailed(Exception):
    """The machine, a directory or a process does not let a scenario happen; the text is one line for the user.

    It is never about the result of a scenario. `baton` prints it and exits with status 3.
    """
