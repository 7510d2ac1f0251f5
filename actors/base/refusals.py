"""What a door says to a client that may not have what it asks for."""

__all__ = ["DoorRefused"]


class DoorRefused(Exception):
    """A client may not have what it asks for, or not be here; `code` is stable (docs/reference/codes.md)."""

    code: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
