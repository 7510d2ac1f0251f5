"""Running what triggers fired: on the leader, in order, at least once (the waiting half of `tree.triggers`).

What fired stands in the replicated state until it is acknowledged through the log. The leader runs it and then
acknowledges it; if it stops in between, the next leader runs it again. So procedures must be able to run twice. One
that is not declared in this program is passed over, one that fails or takes too long is logged. Neither is tried again,
because it would stand in the way of all that come after it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import trio

from batonpass.tree.member.status import ReplicaStatus
from batonpass.tree.raft.submissions import Aborted, NoQuorum, OutcomeUnknown
from batonpass.tree.store.triggers import Fired

__all__ = ["MAX_RUN_S", "TriggerProcedure", "run_triggers"]

log = logging.getLogger("batonpass.tree.member.triggering")

TriggerProcedure = Callable[[Fired], Awaitable[None]]
"""What a program declares under a name that nodes can store: called, and waited for, with what fired."""

# How long one procedure may take, because the others wait for it.
MAX_RUN_S: Final = 30.0
# How many are run before they are acknowledged: as many may be run again after a crash.
_ACKNOWLEDGED_TOGETHER: Final = 16
_AGAIN_S: Final = 0.5


class _Keeper(Protocol):
    """What this needs of a replica."""

    @property
    def status(self) -> ReplicaStatus:
        """Whether it leads, and has caught up."""
        ...

    @property
    def applied_index(self) -> int:
        """See `tree.member.replica.Replica`."""
        ...

    async def changed(self, since: int | None = None) -> int:
        """See `tree.member.replica.Replica`."""
        ...

    def pending_triggers(self) -> tuple[Fired, ...]:
        """See `tree.member.replica.Replica`."""
        ...

    async def submit(self, procedure: str, args: Any = None) -> Any:
        """See `tree.member.replica.Replica`."""
        ...


async def run_triggers(keeper: _Keeper, procedures: Mapping[str, TriggerProcedure]) -> None:
    """Run what fires whenever this member leads, until cancelled."""
    run: set[int] = set()  # by this member, and not known to be acknowledged
    while True:
        index = keeper.applied_index
        status = keeper.status
        pending = keeper.pending_triggers() if status.is_leader and status.ready else ()
        if not pending:
            run.clear()
            await keeper.changed(index)
            continue
        run &= {fired.number for fired in pending}
        together = pending[:_ACKNOWLEDGED_TOGETHER]
        for fired in together:
            if fired.number not in run:
                await _run_one(fired, procedures)
                run.add(fired.number)
        try:
            await keeper.submit("tree.trigger_done", {"numbers": [fired.number for fired in together]})
        except (NoQuorum, OutcomeUnknown, Aborted) as error:
            log.warning("what was run could not be acknowledged yet: %s", error)
            await trio.sleep(_AGAIN_S)


async def _run_one(fired: Fired, procedures: Mapping[str, TriggerProcedure]) -> None:
    procedure = procedures.get(fired.procedure)
    if procedure is None:
        log.info("trigger %s stores the procedure %r, which is not declared here", fired.trigger, fired.procedure)
        return
    try:
        with trio.fail_after(MAX_RUN_S):
            await procedure(fired)
    except Exception:
        log.exception("the procedure %r failed for trigger %s", fired.procedure, fired.trigger)
