"""What the old authority tells its home instance until it has been heard: how hand-overs went, and which it declined.

Nothing waits for it: safety does not need reports, people do. So what cannot be told now is told later, and given up
when that takes too long. And where many leave, what is told in a while is told together. There is a lane for each home
instance: one that does not answer keeps only its own waiting.

The report of a direct pass is not given up. Until the log has heard of the pass, it takes the entity to be here, and
this server, which is alive, does not simulate it. If the target dies before it has told of its chain, no other server
knows of the pass. The entity would be on no server for good.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Decline, Report, ReportReply
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.net.home_answers import HomeRefused
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.timer import SpawnTask

__all__ = ["MAX_PASSES", "TRIES", "Reports"]

_log = logging.getLogger("batonpass.simserver.transfer.source.reports")

TRIES: Final = 7
"""How often each is offered to the home instance, in about a minute: again after `_AGAIN_S`, then after twice that.

That of a direct pass is offered every `_SELDOM_S` after that.
"""
MAX_PASSES: Final = 16_384
"""The entities whose last direct pass is told until the log has heard of it; of more, the oldest is given up as others.

A server without a lease passes nothing, so these are what a home grants leases for, and does not hear of.
"""
_AGAIN_S: Final = 2.0
_SELDOM_S: Final = 16.0
# A report that comes alone is told at once, later ones together with all that come until then. A request costs the home
# instance as much as a hundred reports in it.
_PACE_NS: Final = 50_000_000


@dataclass(slots=True)
class _Lane:
    """What is to be told to one home instance, whether a task does, and when next at the earliest."""

    waiting: list[Report | Decline] = field(default_factory=list)
    is_served: bool = False
    not_before_ns: int = 0


class Reports:
    """The reports and refusals of one server that its home instance has not heard yet, by transfer id.

    `decided` is told of every transfer of which home has taken a report: the log has its result. `untold_still` is told
    again and again of each entity of whose direct pass the log may not know. What is kept of it here may be needed yet.
    """

    def __init__(
        self,
        home: HomeClient,
        clock: Clock,
        counts: Counter[str],
        spawn: SpawnTask,
        decided: Callable[[str], None],
        untold_still: Callable[[str], None],
    ) -> None:
        self._decided: Final = decided
        self._untold_still: Final = untold_still
        self._home: Final = home
        self._clock: Final = clock
        self._counts: Final = counts
        self._spawn: Final = spawn
        # At most one of each hand-over that was begun within the minute after which it is given up, and of each of the
        # `_passes`.
        self.untold: dict[str, Report | Decline] = {}
        # The last direct pass of each entity of which the log may not know. Its chain has all those before it.
        self._passes: Final[LruTable[str, str]] = LruTable(MAX_PASSES)
        self._tries: Counter[str] = Counter()
        # One for each instance whose entities have left from here.
        self._lanes: dict[str, _Lane] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.untold)

    def tell(self, message: Report | Decline) -> None:
        """Tell home, until it has heard."""
        self.untold[message.transfer_id] = message
        if isinstance(message, Report) and message.chain:
            self._passes[message.entity] = message.transfer_id
        self._queue(message)

    def resume(self) -> None:
        """The task that told home before is gone: tell what is left."""
        self._lanes.clear()
        for message in list(self.untold.values()):
            self._queue(message)

    def _queue(self, message: Report | Decline) -> None:
        lane = self._lanes.setdefault(instance_of(message.entity), _Lane())
        lane.waiting.append(message)
        if not lane.is_served:
            lane.is_served = self._spawn(self._serve, lane)

    async def _serve(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                wait_ns = lane.not_before_ns - self._clock.monotonic_ns()
                if wait_ns > 0:
                    await self._clock.sleep_s(wait_ns / 1e9)
                lane.not_before_ns = self._clock.monotonic_ns() + _PACE_NS
                messages, lane.waiting = lane.waiting, []
                letters = [Letter(message, Trace(message.transfer_id)) for message in messages]
                for message, outcome in zip(messages, await self._asked(letters), strict=True):
                    self._told(message, outcome)
        finally:
            lane.is_served = False

    async def _asked(self, letters: Sequence[Letter]) -> Sequence[OpenedMessage | Exception | None]:
        try:
            return await self._home.ask_each(letters)
        except Exception as error:
            # An error of ours: they are told again, as when no answer comes.
            self._counts["internal_error"] += 1
            _log.exception("telling home of %d hand-overs ran into an error of ours", len(letters))
            return [error] * len(letters)

    def _told(self, message: Report | Decline, outcome: OpenedMessage | Exception | None) -> None:
        """What came of it."""
        if isinstance(outcome, HomeRefused):
            self._counts[f"{message.type}_refused"] += 1
            _log.warning("the %s of %s was refused: %s", message.type, message.transfer_id, outcome)
        elif not (isinstance(outcome, OpenedMessage) and isinstance(outcome.message, ReportReply)):
            self._tries[message.transfer_id] += 1
            if self._owes_pass(message) or self._tries[message.transfer_id] < TRIES:
                self._spawn(self._tell_again, message)
                return
            self._counts[f"{message.type}_given_up"] += 1
        elif isinstance(message, Report):
            self._decided(message.transfer_id)
        self.untold.pop(message.transfer_id, None)
        self._tries.pop(message.transfer_id, None)
        if self._passes.get(message.entity) == message.transfer_id:
            del self._passes[message.entity]

    def _owes_pass(self, message: Report | Decline) -> bool:
        """Whether the log may not know of this pass; what is kept of its entity here is kept for longer then."""
        is_untold = self._passes.get(message.entity) == message.transfer_id
        if is_untold:
            self._untold_still(message.entity)
        return is_untold

    async def _tell_again(self, message: Report | Decline) -> None:
        # The exponent is bounded, because the number of tries is not.
        doubled = min(self._tries[message.transfer_id], TRIES) - 1
        await self._clock.sleep_s(min(_AGAIN_S * 2**doubled, _SELDOM_S))
        # Now, too: home may take its time to say nothing.
        self._owes_pass(message)
        self._queue(message)
