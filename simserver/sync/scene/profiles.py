"""What the programs that speak this format do differently, as named tables. Peers of one scene need one profile.

Each was read from the sources, or measured, as of the date in its name; docs/reference/scene.md tells of what.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from batonpass.simserver.sync.scene.entity_ids import RESERVED_NUMBERS

__all__ = [
    "AUTH_SERVER_COMMS",
    "HAMMURABI",
    "PROFILES",
    "SDK_7_28",
    "UNITY_EXPLORER_2026_08",
    "CommsNumbers",
    "InteropProfile",
    "SetOverflow",
    "TieBreak",
]


class TieBreak(StrEnum):
    """Which of two values wins if their timestamps are equal. No value at all loses against any."""

    LONGEST = "longest"
    """The longer one; if they are equally long, the one that is greater as unsigned bytes."""
    LEXICOGRAPHIC = "lexicographic"
    """The one that is greater as unsigned bytes: "b" beats "aa"."""

    def wins(self, one: bytes | None, other: bytes | None) -> bool:
        """Whether `one` beats `other`. Equal values do not."""
        if one is None or other is None:
            return one is not None and other is None
        if self is TieBreak.LONGEST and len(one) != len(other):
            return len(one) > len(other)
        return one > other


class SetOverflow(StrEnum):
    """What becomes of a set to which a value more is appended than it may have."""

    DROP_OLDEST = "drop oldest"
    EMPTY = "empty"
    """All of them go, and the new one is the only one."""


class CommsNumbers(NamedTuple):
    """The first byte of what peers of a room send each other."""

    crdt: int = 1
    request_state: int = 2
    state: int = 3


_COMMS: Final = CommsNumbers()
AUTH_SERVER_COMMS: Final = CommsNumbers(7, 8, 9)
"""Of the SDK's branch `auth-server`: its peers cannot share a room with those of the SDK."""


@dataclass(frozen=True, slots=True)
class InteropProfile:
    """What peers of one scene have to agree on.

    Attributes:
        name: of the profile.
        tie_break: which value wins at equal timestamps.
        max_values: how many values a set has, unless its component says otherwise.
        overflow: what becomes of a set that has more.
        drops_equal_values: whether a value that is in the set is not appended again.
        first_timestamp: of a component that is written for the first time.
        reserved: how many entity numbers are the renderer's.
        suppresses_equal: whether a change that ends in the bytes that were last sent or received is not sent.
        knows_authoritative_put: whether message kind 8 is understood.
        comms: the numbers of what the peers of a room send each other.
    """

    name: str
    tie_break: TieBreak
    max_values: int
    overflow: SetOverflow = SetOverflow.DROP_OLDEST
    drops_equal_values: bool = False
    first_timestamp: int = 1
    reserved: int = RESERVED_NUMBERS
    suppresses_equal: bool = True
    knows_authoritative_put: bool = False
    comms: CommsNumbers = _COMMS


SDK_7_28: Final = InteropProfile("sdk-7.28", TieBreak.LONGEST, 100)
"""`@dcl/ecs` 7.28.0."""

UNITY_EXPLORER_2026_08: Final = InteropProfile(
    "unity-explorer-2026-08",
    TieBreak.LEXICOGRAPHIC,
    100,
    overflow=SetOverflow.EMPTY,
    drops_equal_values=True,
    first_timestamp=0,
    suppresses_equal=False,
    knows_authoritative_put=True,
)
"""The renderer that Decentraland ships, as of August 2026."""

HAMMURABI: Final = InteropProfile("hammurabi", TieBreak.LEXICOGRAPHIC, 10, suppresses_equal=False)
"""The reference renderer by the author of ADR-148, whose last change is of May 2023."""

PROFILES: Final[Mapping[str, InteropProfile]] = MappingProxyType(
    {profile.name: profile for profile in (SDK_7_28, UNITY_EXPLORER_2026_08, HAMMURABI)}
)
"""The profiles by name."""
