"""Reading the states that are offered, and keeping the last ones as they were read until there is permission to begin.

To read a state takes a while in which its entity is frozen. Those of a batch come together, and so do the permissions
for them, a moment later.

Permission to begin with an entity, as it was given: what is needed to answer it, and what goes with it.
"""

from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.errors import is_stopping, said
from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Case
from batonpass.authority.machines.target import Permission
from batonpass.authority.model.ownership import UNTOLD, Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import InputItem
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.world.portability import Glance, glance, portable

__all__ = ["MAX_CONTEXTS", "Context", "OfferedStates", "remember"]

# Of two batches. A larger state is kept alone.
MAX_READ: Final = 256
MAX_READ_BYTES: Final = 4096


class OfferedStates:
    """States by their hashes, which the caller that offers one has checked."""

    def __init__(self) -> None:
        self._read: FifoTable[str, EntitySnapshot] = FifoTable(MAX_READ)

    def read_untrusted(self, state: bytes, state_hash: str, entity: str) -> EntitySnapshot:
        """An offered state. Raises `MessageError` when it cannot be read."""
        snapshot = _decoded_untrusted(state, entity)
        self.keep(state_hash, snapshot, len(state))
        return snapshot

    def keep(self, state_hash: str, snapshot: EntitySnapshot, size_bytes: int) -> None:
        """Remember what was read."""
        if size_bytes > MAX_READ_BYTES:
            self._read.clear()
        self._read[state_hash] = snapshot

    def take(self, state: bytes, state_hash: str, entity: str) -> EntitySnapshot:
        """The state to begin with, given out once; read again if it is not known any more."""
        return self._read.pop(state_hash, None) or _decoded_untrusted(state, entity)


def _decoded_untrusted(state: bytes, entity: str) -> EntitySnapshot:
    """An offered state; raises MessageError when it cannot be read.

    Nothing could be begun with what cannot be read, nor passed on. No server of this release sends such a state, since
    its authority keeps it (`simserver.world.portability`). One that comes all the same is a bad message, and counted
    as such. So is one that cannot be written again: to begin with it needs that, after the answer.
    """
    try:
        snapshot = EntitySnapshot.decode(state)
        if glance(snapshot.world, len(state)) is not Glance.PLAIN:
            portable(snapshot.world)
    except BaseException as error:
        if is_stopping(error):
            raise
        raise MessageError(f"the state of {entity} cannot be read: {said(error)}") from error
    return snapshot


MAX_CONTEXTS: Final = 4096
# Nothing is simulated under this fence: where no chain leads.
_NOWHERE: Final = Fence(0, 0)


@dataclass(slots=True)
class Context:
    """How a permission came: what is needed to answer it, and what goes with it."""

    trace: Trace
    numbered_answer: bool
    inputs: list[InputItem]
    chain: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    leads_to: Fence = _NOWHERE
    ownership: Ownership = UNTOLD
    # Others came with it, and will be answered with it.
    in_batch: bool = False
    # By which of the three it came; for people, if that is known.
    case: Case | None = None

    def used(self) -> None:
        """Keep only what a repetition is answered with: inputs may be many, and a chain 64 passes long."""
        self.inputs, self.chain, self.group, self.ownership = [], (), (), UNTOLD


def remember(contexts: LruTable[Permission, Context], permission: Permission, context: Context) -> None:
    """Keep how a permission came; a repetition of one that was acted on is answered with what happened then."""
    known = contexts.get(permission)
    if known is not None and known.trace.at("activated") is not None:
        return
    contexts[permission] = context
