"""Why each entity that is to leave this server has not left yet: the last thing that kept it, for people who ask."""

from dataclasses import dataclass
from typing import Final

from batonpass.authority.wire.standing import MAX_WHY_CHARS
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_WAITS", "WaitReason", "Waits"]

MAX_WAITS: Final = 4096
"""The entities of which it is known; the ones that were noted longest ago are forgotten."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """What an entity waits for, with which transfer, and since when (monotonic nanoseconds)."""

    transfer_id: str
    why: str
    since_ns: int


class Waits:
    """The last word of each entity's transfer, from the order until it has a result."""

    def __init__(self) -> None:
        self._waits: Final[LruTable[str, WaitReason]] = LruTable(MAX_WAITS)

    def __len__(self) -> int:
        return len(self._waits)

    def note(self, entity: str, transfer_id: str, why: str, now_ns: int) -> None:
        """This keeps it now; since when it waits is when something did for the first time."""
        known = self._waits.get(entity)
        since_ns = known.since_ns if known is not None and known.transfer_id == transfer_id else now_ns
        self._waits[entity] = WaitReason(transfer_id, why[:MAX_WHY_CHARS], since_ns)

    def over(self, entity: str, transfer_id: str) -> None:
        """The transfer has its result; what another one waits for stays."""
        if (known := self._waits.get(entity)) is not None and known.transfer_id == transfer_id:
            del self._waits[entity]

    def of(self, entity: str) -> WaitReason | None:
        """What it waits for, if it does."""
        return self._waits.get(entity)
