"""What a replica is told of its peers and components, and what it tells of what it received."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from batonpass.simserver.sync.scene.codec import SceneRun

__all__ = ["Applied", "PeerKind", "SceneRefusal", "SetComponent"]


class PeerKind(Enum):
    """How a peer names entities, and how much it is sent at once."""

    RENDERER = auto()
    """By the ids here; of a scene's replica, what shows it."""
    SCENE = auto()
    """By the ids here; of a renderer's replica, the scene. It cannot remove what the renderer streams."""
    NETWORK = auto()
    """By names that all peers of a room know, in chunks of 12 KiB."""
    PLAIN = auto()
    """As the messages are: nothing is translated."""


class SceneRefusal(Exception):
    """What a peer sent is refused, from the message on that the text tells of. What came before it is taken."""


class SetComponent(NamedTuple):
    """A component whose values are a grow-only set: its number, its room, and the order of its values."""

    number: int
    max_values: int | None = None
    order: Callable[[bytes], Any] | None = None


@dataclass(slots=True)
class Applied:
    """What became of the messages that were received.

    Attributes:
        changes: those that were taken, under the ids here and in their order, deletions of entities last. The kinds are
            those without a network id. A message that says what is there already is among them.
        outdated: how many lost against what is there.
        ignored: how many are about entities that are no more.
        refused: how many are not taken at all: their timestamps leave none above them, or nothing more has room.
    """

    changes: list[SceneRun] = field(default_factory=list)
    outdated: int = 0
    ignored: int = 0
    refused: int = 0
