"""An input as a world sees it."""

from dataclasses import dataclass

__all__ = ["PendingInput"]


@dataclass(frozen=True, slots=True)
class PendingInput:
    """An accepted input that the next tick will apply."""

    source: str
    seq: int
    data: bytes
