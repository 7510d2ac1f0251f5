"""Conditions: what must hold of a node for an operation on it to go ahead.

A condition is evaluated on the node at the operation's path, or on None when there is no such node. Of a missing node
only its absence is known, so everything said about its contents is false. Names are Khepri's.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from tree.data import encode
from tree.errors import BadData

__all__ = [
    "AllOf",
    "AnyOf",
    "Condition",
    "IfDataMatches",
    "IfNodeExists",
    "IfPayloadVersion",
    "Judged",
    "NotOf",
    "condition_from_data_untrusted",
]

MAX_NESTING: Final = 16
MAX_PARTS: Final = 256


class Judged(Protocol):
    """What a condition may look at."""

    @property
    def encoded(self) -> bytes | None:
        """The payload's canonical bytes, or None if the node has no payload."""

    @property
    def payload_version(self) -> int:
        """How often the payload changed, counting from 1."""


class Condition:
    """Base of all conditions; the cases below are the whole set."""

    def holds(self, node: Judged | None) -> bool:
        """Whether the condition holds of this node (None: there is no node)."""
        raise NotImplementedError

    def to_data(self) -> list[Any]:
        """As plain data, the inverse of `condition_from_data_untrusted`."""
        raise NotImplementedError


@dataclass(frozen=True)
class IfNodeExists(Condition):
    """The node exists, or (`exists=False`) does not."""

    exists: bool = True

    def holds(self, node: Judged | None) -> bool:
        """True if the node's existence is as wanted."""
        return (node is not None) is self.exists

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["if_node_exists", self.exists]


@dataclass(frozen=True)
class IfPayloadVersion(Condition):
    """The payload's version is exactly this one: nobody changed it since it was read."""

    version: int

    def holds(self, node: Judged | None) -> bool:
        """True if the node exists with this payload version."""
        return node is not None and node.payload_version == self.version

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["if_payload_version", self.version]


@dataclass(frozen=True)
class IfDataMatches(Condition):
    """The node has a payload equal to this value. 1, 1.0 and true are three different values."""

    value: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encoded", encode(self.value))

    def holds(self, node: Judged | None) -> bool:
        """True if the node exists with an equal payload."""
        expected: bytes = self.__dict__["_encoded"]
        return node is not None and node.encoded == expected

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["if_data_matches", self.value]


@dataclass(frozen=True)
class AllOf(Condition):
    """Every part holds; with no parts, always."""

    parts: tuple[Condition, ...]

    def holds(self, node: Judged | None) -> bool:
        """True if every part holds."""
        return all(part.holds(node) for part in self.parts)

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["all_of", [part.to_data() for part in self.parts]]


@dataclass(frozen=True)
class AnyOf(Condition):
    """At least one part holds; with no parts, never."""

    parts: tuple[Condition, ...]

    def holds(self, node: Judged | None) -> bool:
        """True if some part holds."""
        return any(part.holds(node) for part in self.parts)

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["any_of", [part.to_data() for part in self.parts]]


@dataclass(frozen=True)
class NotOf(Condition):
    """The part does not hold."""

    part: Condition

    def holds(self, node: Judged | None) -> bool:
        """True if the part is false."""
        return not self.part.holds(node)

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["not_of", self.part.to_data()]


def condition_from_data_untrusted(data: Any) -> Condition:
    """Read a condition from plain data; raises `BadData` when it is malformed, nested too deep or too large."""
    return _Reader().read(data, nesting=0)


class _Reader:
    """Counts the parts read so far, so that a small message cannot become endless work."""

    def __init__(self) -> None:
        self.parts_read = 0

    def read(self, data: Any, nesting: int) -> Condition:
        self.parts_read += 1
        if nesting > MAX_NESTING or self.parts_read > MAX_PARTS:
            raise BadData(f"a condition has at most {MAX_PARTS} parts, nested at most {MAX_NESTING} deep")
        match data:
            case ["if_node_exists", bool(exists)]:
                return IfNodeExists(exists)
            case ["if_payload_version", int(version)] if not isinstance(version, bool):
                return IfPayloadVersion(version)
            case ["if_data_matches", value]:
                return IfDataMatches(value)
            case ["all_of", list(parts)]:
                return AllOf(tuple(self.read(part, nesting + 1) for part in parts))
            case ["any_of", list(parts)]:
                return AnyOf(tuple(self.read(part, nesting + 1) for part in parts))
            case ["not_of", part]:
                return NotOf(self.read(part, nesting + 1))
            case _:
                raise BadData(f"not a condition: {data!r:.100}")
