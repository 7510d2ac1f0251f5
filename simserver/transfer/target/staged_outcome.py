"""Asking what became of states that were staged here and of which nothing was heard since.

Usually the certificate comes a moment after the state, or word that nothing comes of it. Either may be lost, with a
message or with the server that would have repeated it; and whoever starts again with staged states on its disk has
heard nothing yet. The log knows: the state is this server's to begin with, or to be thrown away, or nobody has decided.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import StageInquiry, StageWord
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.home_client import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.target.staged_states import StagedState, Stages

__all__ = ["AFTER_NS", "StagedOutcomeQueries"]

_log = logging.getLogger("batonpass.simserver.transfer.target.staged_outcome")

# Longer than any healthy hand-over takes, so that nobody asks in good times.
AFTER_NS: Final = 5_000_000_000
_LOOK_S: Final = 1.0


class StagedOutcomeQueries:
    """Asks the home instance about staged states, one after the other, while it is served.

    Args:
        lease: without one, home is not asked.
        told: what is done with an answer.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        stages: Stages,
        told: Callable[[StagedState, StageWord], Awaitable[None]],
    ) -> None:
        self._server = ports.name
        self._home = ports.home
        self._stages = stages
        self._holdings = holdings
        self._clock = ports.clock
        self._counts = ports.counts
        self._told = told
        self._lease: Final = lease
        # What was on disk at the start is asked about at once. Bounded like the stages.
        self._ask_at_ns = dict.fromkeys((stage.transfer_id for stage in stages.waiting()), 0)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask what there is to ask, until cancelled."""
        task_status.started()
        while True:
            for stage in () if self._lease.why_not_asked() else self.due():
                await self._ask(stage)
            await self._clock.sleep_s(_LOOK_S)

    def due(self) -> list[StagedState]:
        """The staged states that it is time to ask about; those that live here already are used up."""
        now_ns, ask_at_ns, due = self._clock.monotonic_ns(), self._ask_at_ns, []
        self._ask_at_ns = {}
        for stage in self._stages.waiting():
            if self._has_begun(stage):
                self._stages.used(stage.transfer_id)
                continue
            self._ask_at_ns[stage.transfer_id] = at_ns = ask_at_ns.get(stage.transfer_id, now_ns + AFTER_NS)
            if at_ns <= now_ns:
                self._ask_at_ns[stage.transfer_id] = now_ns + AFTER_NS
                due.append(stage)
        return due

    def _has_begun(self, stage: StagedState) -> bool:
        """Whether this server has simulated the entity after this state, now or before it stopped."""
        holding, lived = self._holdings.get(stage.entity), self._holdings.lived(stage.entity)
        return (holding is not None and holding.fence > stage.fence) or (lived is not None and lived > stage.fence)

    def inquiry(self, stage: StagedState) -> StageInquiry:
        """The question."""
        return StageInquiry(
            transfer_id=stage.transfer_id,
            entity=stage.entity,
            epoch=stage.epoch,
            sub=stage.sub,
            target=self._server,
        )

    async def _ask(self, stage: StagedState) -> None:
        self._counts["stage_inquiries"] += 1
        try:
            answer = await self._home.ask(self.inquiry(stage), Trace(stage.transfer_id), on_path=False)
            if answer is not None and isinstance(answer.message, StageWord):
                await self._told(stage, answer.message)
        except (HomeUnreachable, HomeRefused) as error:
            _log.info("what became of %s cannot be found out now: %s", stage.transfer_id, error)
        except Exception:
            # One state must not keep the others from being asked about.
            self._counts["internal_error"] += 1
            _log.exception("asking about %s ran into an error of ours", stage.transfer_id)
