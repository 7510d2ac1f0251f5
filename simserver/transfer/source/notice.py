"""Entities that are about to leave: they leave when all that were told of it are ready, or in time.

A world, or the owner, may want to finish something before an entity is frozen and changes servers: an animation, a
trade, a burst of inputs. The request for the transfer gives them `notice_ms`; the entity is simulated meanwhile. It
cannot be held back for longer. Pure.

Giving notice: world and owner of an entity that is about to leave hear of it, and say when they have finished.

`simserver.transfer.source.notice` decides when it leaves; this tells those that it concerns, and keeps the time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.wire.transfer import ImminentLoss
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.net.outbox import Outbox
from batonpass.simserver.transfer.source.departure import DeparturePlan

__all__ = ["GROUP", "OWNER", "WORLD", "DrainNotices", "NoticeTimer"]

WORLD: Final = "world"
OWNER: Final = "owner"
# Never ready before its time: the members of a group are frozen together, when the time of all is over.
GROUP: Final = "group"


@dataclass
class _Notice:
    until_ns: int
    waits_for: set[str]
    leave: Callable[[], None] = field(repr=False)


class DrainNotices:
    """The notices of one server, one for each entity at most."""

    def __init__(self) -> None:
        self._notices: dict[str, _Notice] = {}

    def __contains__(self, entity: str) -> bool:
        return entity in self._notices

    def give(self, entity: str, told: set[str], until_ns: int, leave: Callable[[], None]) -> None:
        """`told` know that it leaves; it does when they are ready, or at `until_ns`. At once if none was told."""
        if told:
            self._notices[entity] = _Notice(until_ns, set(told), leave)
        else:
            leave()

    def ready(self, entity: str, who: str) -> None:
        """`who` has finished; with the last of those that were told it leaves."""
        notice = self._notices.get(entity)
        if notice is None:
            return
        notice.waits_for.discard(who)
        if not notice.waits_for:
            del self._notices[entity]
            notice.leave()

    def waiting(self) -> dict[str, int]:
        """When each of those that wait leaves at the latest, in monotonic nanoseconds."""
        return {entity: notice.until_ns for entity, notice in self._notices.items()}

    def over(self, entity: str, now_ns: int) -> None:
        """Time has passed: it leaves if it is time."""
        notice = self._notices.get(entity)
        if notice is not None and now_ns >= notice.until_ns:
            del self._notices[entity]
            notice.leave()


class NoticeTimer:
    """The notices that one server has given. `spawn` runs what waits beside everything else, if it is served."""

    def __init__(
        self, holdings: Holdings, outbox: Outbox, clock: Clock, spawn: Callable[[Callable[..., Any], str], bool]
    ) -> None:
        self._holdings = holdings
        self._outbox = outbox
        self._clock = clock
        self._spawn = spawn
        self._notices = DrainNotices()

    def __contains__(self, entity: str) -> bool:
        return entity in self._notices

    def begin(self, plan: DeparturePlan, leave: Callable[[], None]) -> None:
        """Tell world and owner that the entity leaves, and let it when they have finished, or their time is over."""
        holding = self._holdings.get(plan.entity)
        if not plan.notice_ms or holding is None:
            leave()
            return
        until_ns = self._clock.monotonic_ns() + plan.notice_ms * 1_000_000
        holding.life.leaves_at_ns = until_ns
        holding.life.wake()
        told = {WORLD} if holding.life.can_be_told else set()
        if plan.grouped:
            told.add(GROUP)
        if owner := holding.life.ownership.owner:
            told.add(OWNER)
            fence = holding.fence
            self._outbox.tell_player(
                owner,
                ImminentLoss(
                    entity=plan.entity, target=plan.target, within_ms=plan.notice_ms, epoch=fence.epoch, sub=fence.sub
                ),
            )

        def leave_now() -> None:
            if (left := self._holdings.get(plan.entity)) is not None:
                left.life.leaves_at_ns = 0
            leave()

        self._notices.give(plan.entity, told, until_ns, leave_now)
        self._spawn(self._keep_time, plan.entity)

    def go_on(self) -> None:
        """It is served again: keep the time of what is under way."""
        for entity in self._notices.waiting():
            self._spawn(self._keep_time, entity)

    async def _keep_time(self, entity: str) -> None:
        while (until_ns := self._notices.waiting().get(entity)) is not None:
            now_ns = self._clock.monotonic_ns()
            self._notices.over(entity, now_ns)
            await self._clock.sleep_s(max(0, until_ns - now_ns) / 1e9)

    def ready(self, entity: str) -> None:
        """The world has finished what it wanted to do before this entity leaves."""
        self._notices.ready(entity, WORLD)

    def let_go(self, entity: str, player: str) -> None:
        """A player has finished; it counts if it owns the entity."""
        holding = self._holdings.get(entity)
        if holding is not None and holding.life.ownership.owner == player:
            self._notices.ready(entity, OWNER)
