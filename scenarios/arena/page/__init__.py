"""The page of the arena, which homeservers hand out beside the client for browsers."""

from pathlib import Path
from typing import Final

__all__ = ["ARENA_PAGES"]

ARENA_PAGES: Final = Path(__file__).parent
"""The folder of its files."""
