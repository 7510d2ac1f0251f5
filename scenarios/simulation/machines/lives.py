"""What is simulated: an entity that counts its inputs, and knows by which servers it ever was.

Nothing ticks by itself. An entity goes one tick on with each input, and with each server that takes it up. So no two
stays of it are alike, and what is lost, repeated or from somewhere else is seen in the next state.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from zlib import crc32

from batonpass.authority.fence import Fence
from batonpass.authority.model.input_fold import fold
from batonpass.authority.wire.transfer import InputItem
from batonpass.simserver.entity.snapshot import Frozen
from batonpass.simserver.entity.table import Holding

if TYPE_CHECKING:
    from batonpass.simserver.entity.state import Life as ServerLife

__all__ = ["KIND", "MAX_JOURNAL", "MachineState", "MachineStay"]

KIND: Final = "counter"
MAX_JOURNAL: Final = 64
"""Inputs that are kept of a frozen entity; others come again."""


class MachineState(NamedTuple):
    """How far an entity is: its tick, its owner's inputs up to a number and the fold over them, and its history."""

    tick: int = 0
    applied: int = 0
    digest: bytes = b"\0" * 16
    history: int = 0

    def taken_up(self, server: str) -> "MachineState":
        """One tick on, by the server that takes it up."""
        history = crc32(b"%d %s" % (self.tick, server.encode()), self.history)
        return MachineState(self.tick + 1, self.applied, self.digest, history)

    def given(self, seq: int, data: bytes) -> "MachineState":
        """One tick on, with the next input."""
        return MachineState(self.tick + 1, seq, fold(self.digest, seq, data), self.history)

    def encode(self) -> bytes:
        """As bytes that move."""
        return b"%d:%d:%d:%s" % (self.tick, self.applied, self.history, self.digest.hex().encode())

    @classmethod
    def decode(cls, data: bytes) -> "MachineState":
        """Read what `encode` wrote."""
        tick, applied, history, digest = data.split(b":")
        return cls(int(tick), int(applied), bytes.fromhex(digest.decode()), int(history))


@dataclass(slots=True)
class MachineStay:
    """An entity that is on a server, running or frozen: what `simserver.entity.state.Life` is to hand-overs.

    `holding` is the real one, with the chain by which it may be passed on.
    """

    entity: str
    fence: Fence
    state: MachineState
    frozen: bool = False
    journal: list[InputItem] = field(default_factory=list)
    unsaid_owner_rev: int = 0
    holding: Holding = field(init=False, repr=False)
    source: str = ""
    copied: tuple[Fence, MachineState, tuple[str, ...]] | None = None
    intervals: int = 0
    """Since it was copied last."""
    durable: int = 0
    durable_tick: int = 0

    def __post_init__(self) -> None:
        # As much of a life as a departure and a holding make use of.
        self.holding = Holding(self.entity, cast("ServerLife", self))

    @property
    def acceptance(self) -> "MachineStay":
        """What it knows of its inputs, which is nothing apart."""
        return self

    def freeze(self, now_ns: int) -> Frozen:
        """It is frozen from now on."""
        self.frozen = True
        state = self.state.encode()
        return Frozen(self.fence, KIND, self.state.tick, state, hashlib.sha256(state).hexdigest(), now_ns)

    def resume(self, fence: Fence) -> None:
        """It continues under a fence of the log's; one that is not higher is of the past."""
        if fence > self.fence:
            self.fence, self.frozen = fence, False

    def keep(self, items: Iterable[InputItem]) -> None:
        """Inputs came while it is frozen."""
        for item in items:
            last = self.journal[-1].seq if self.journal else self.state.applied
            if item.seq > last and len(self.journal) < MAX_JOURNAL:
                self.journal.append(item)

    def take_journal(self) -> list[InputItem]:
        """What came, once."""
        taken, self.journal = self.journal, []
        return taken
