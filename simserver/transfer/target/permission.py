"""Leave to begin with an entity, as it was given: what is needed to answer it, and what goes with it."""

from dataclasses import dataclass
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Case
from batonpass.authority.machines.target import Permission
from batonpass.authority.model.ownership import UNTOLD, Ownership
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import InputItem
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_CONTEXTS", "Context", "remember"]

MAX_CONTEXTS: Final = 4096
# Nothing is simulated under this fence: where no chain leads.
_NOWHERE: Final = Fence(0, 0)


@dataclass
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


def remember(contexts: LruTable[Permission, Context], permission: Permission, context: Context) -> None:
    """Keep how a permission came; a repetition of one that was acted on is answered with what happened then."""
    known = contexts.get(permission)
    if known is not None and known.trace.at("activated") is not None:
        return
    contexts[permission] = context
