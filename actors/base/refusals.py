"""What a door says to a client that may not have what it asks for."""

from typing import Final

__all__ = ["DoorRefused"]


class DoorRefused(Exception):
    """A client may not have what it asks for, or not be here; `code` is stable (docs/reference/players-door.md)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code: Final = code
