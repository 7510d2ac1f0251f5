"""What is said beside the messages of hand-overs: between players and servers, and what homes carry for each other."""

from typing import Any, NamedTuple

from authority.epoch import Fence
from authority.messages import InputItem

__all__ = ["Answered", "Asked", "Elsewhere", "Given", "Heard"]


class Asked(NamedTuple):
    """Home → home: a server of mine asks this."""

    by: str
    message: Any


class Answered(NamedTuple):
    """Home → home: say this to a server of yours."""

    to: str
    message: Any


class Given(NamedTuple):
    """Player → server: the next inputs of an entity."""

    entity: str
    items: tuple[InputItem, ...]


class Heard(NamedTuple):
    """Server → player: so many inputs are applied, under this fence."""

    applied: int
    fence: Fence


class Elsewhere(NamedTuple):
    """Server → player: the entity is not here; who had it last, if that is known."""

    moved_to: str
    fence: Fence
