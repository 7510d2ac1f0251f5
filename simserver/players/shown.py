"""Entities as a topic told them last, and what has changed since it told them earlier. No I/O."""

from collections.abc import Mapping
from typing import Any, Final

import cbor2

from batonpass.authority.fence import Fence
from batonpass.authority.wire.patches import change_of
from batonpass.simserver.players.bases import BaseRow
from batonpass.simserver.players.sights import Sight

__all__ = ["ToldEntity", "changed_since", "full_row"]


class ToldEntity:
    """An entity as the topic told it last, with the frame `frame`."""

    __slots__ = ("fence", "frame", "owner", "sight", "size_bytes", "state", "tick", "version")

    def __init__(self, sight: Sight, state: Any, frame: int, size_bytes: int) -> None:
        self.sight: Final = sight
        self.size_bytes: Final = size_bytes
        """Of its row, when it was told in full for the first time."""
        self.becomes(state, frame)

    def becomes(self, state: Any, frame: int) -> None:
        """It is told as it is now, of which there is this to see."""
        sight = self.sight
        self.version, self.tick, self.fence, self.owner = sight.version, sight.tick, sight.fence, sight.owner
        self.state, self.frame = state, frame

    def row(self) -> list[Any]:
        """It as a member of `fulls`."""
        return full_row(self.sight, self.tick, self.fence, self.owner, self.state)


def full_row(sight: Sight, tick: int, fence: Fence, owner: str, state: Any) -> list[Any]:
    """A member of `fulls`."""
    return [sight.number, sight.name, sight.kind, fence.epoch, fence.sub, tick, owner, state]


_NOT_SHOWN: Final[BaseRow] = 0, Fence(-1, 0), "", None


def changed_since(known: int, base: Mapping[int, BaseRow], shown: Mapping[int, ToldEntity]) -> bytes:
    """The last three members of a frame for those that have what was shown with the frame `known`, which is `base`."""
    deltas: dict[tuple[int, bytes], tuple[Any, list[Any]]] = {}
    fulls: list[Any] = []
    for number, one in shown.items():
        if one.frame <= known:
            continue
        tick, fence, owner, state = base.get(number, _NOT_SHOWN)
        values: list[Any] = [number]
        shape = change_of(state, one.state, values) if (fence, owner) == (one.fence, one.owner) else None
        if shape is None:
            # What is again as it was has had ticks, which no delta without a change would say.
            fulls.append(one.row())
        else:
            alike = deltas.setdefault((one.tick - tick, cbor2.dumps(shape)), (shape, []))
            alike[1].extend(values)
    rows = [member for (ticks, _), (shape, row) in deltas.items() for member in (ticks, shape, row)]
    gone = sorted(number for number in base if number not in shown)
    return b"".join(map(cbor2.dumps, (rows, fulls, gone)))
