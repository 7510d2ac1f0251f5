"""What is said beside the messages of hand-overs: between players and servers, and what homes carry for each other."""

from typing import Any, NamedTuple

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.wire.transfer import InputItem

__all__ = ["Asked", "CopiesOf", "Elsewhere", "Given", "InputsHeard", "KeptCopies", "RelayedAnswer", "Untold"]


class Asked(NamedTuple):
    """Home → home: a server of mine asks this."""

    by: str
    message: Any


class RelayedAnswer(NamedTuple):
    """Home → home: say this to a server of yours."""

    to: str
    message: Any


class Given(NamedTuple):
    """Player → server: the next inputs of an entity."""

    entity: str
    items: tuple[InputItem, ...]


class InputsHeard(NamedTuple):
    """Server → player: how many inputs are applied under this fence, and how many stay so if the server dies."""

    applied: int
    durable: int
    fence: Fence


class Elsewhere(NamedTuple):
    """Server → player: the entity is not here; the server that had it last, if that is known."""

    moved_to: str
    fence: Fence


class Untold(NamedTuple):
    """Home → server: your report of this transfer was refused, and need not come again."""

    transfer_id: str


class CopiesOf(NamedTuple):
    """Authority → backup replica: keep these."""

    items: tuple[tuple[str, Copy], ...]


class KeptCopies(NamedTuple):
    """Backup replica → authority: these are kept; said after this number of deaths."""

    items: tuple[tuple[str, Fence, int], ...]
    deaths: int
