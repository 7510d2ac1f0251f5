"""Finding out who owns an entity, when a player claims an ownership that this server has not heard of.

The home instance tells every change of owner by itself. That word may be lost with a homeserver, or reach a server that
has just handed the entity on. So an input under a later revision than the known one makes this server ask its home. It
does so at most once a second for each entity, and for `MAX_ASKED` at a time, because any player may claim anything.

Word of another owner that comes to a former authority: a hint goes after the entity.

Home tells the authority that the log names. After a direct pass that is the former one, until the pass was reported. It
cannot prove to the next one what home has said. A server that was believed without proof could lock all owners out with
a revision that the log never reaches. So the hint only makes the present authority ask home: as a player does that
claims an ownership of which nothing was heard, and as seldom (`simserver.owners.lookup`).
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import OwnerHint, OwnerRequest, OwnerWord
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.outbox import Outbox

__all__ = ["AGAIN_NS", "ASK_AGAIN_NS", "MAX_HINTS", "MAX_SENT_ON", "MAX_WAITING", "OwnerHints", "OwnerLookup"]

_log = logging.getLogger("batonpass.simserver.owners.lookup")

ASK_AGAIN_NS: Final = 1_000_000_000
MAX_WAITING: Final = 1024
_MAX_REMEMBERED: Final = 10_000
_AT_ONCE: Final = 4


class OwnerLookup:
    """Asks the home instance who owns entities, while it is served.

    Args:
        told: what is done with an answer.
    """

    def __init__(self, home: HomeClient, clock: Clock, counts: Counter[str], told: Callable[[OwnerWord], None]) -> None:
        self._home = home
        self._clock = clock
        self._counts = counts
        self._told = told
        self._asked_ns: LruTable[str, int] = LruTable(_MAX_REMEMBERED)
        self._waiting: deque[str] = deque()
        self._wanted = clock.bell()
        self._asking = 0

    def want(self, entity: str) -> None:
        """Find out who owns `entity`, unless that was asked a moment ago; never waits."""
        now_ns = self._clock.monotonic_ns()
        asked_ns = self._asked_ns.get(entity)
        if asked_ns is not None and now_ns - asked_ns < ASK_AGAIN_NS:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._counts["owner_not_asked"] += 1
            return
        self._waiting.append(entity)
        self._wanted.ring()
        self._asked_ns[entity] = now_ns

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask what there is to ask, a few at a time, until cancelled."""
        async with self._clock.tasks() as tasks:
            self._asking = 0
            task_status.started()
            while True:
                while self._waiting and self._asking < _AT_ONCE:
                    self._asking += 1
                    tasks.start_soon(self._ask, self._waiting.popleft())
                await self._wanted.wait()

    async def _ask(self, entity: str) -> None:
        try:
            answer = await self._home.ask(OwnerRequest(entity=entity), Trace("owner-request"), on_path=False)
        except (HomeUnreachable, HomeRefused) as error:
            self._counts["owner_not_asked"] += 1
            _log.info("who owns %s cannot be found out now: %s", entity, error)
        else:
            if answer is not None and isinstance(answer.message, OwnerWord) and answer.message.entity == entity:
                self._counts["owner_asked"] += 1
                self._told(answer.message)
        self._asking -= 1
        self._wanted.ring()


MAX_HINTS: Final = 4
"""Servers that one hint may come to, each under a higher fence than the one before."""
AGAIN_NS: Final = 1_000_000_000
"""The shortest time between two forwards of the same hint."""
MAX_SENT_ON: Final = 10_000
"""The hints remembered as sent on; the oldest are forgotten first."""


class OwnerHints:
    """Sends hints from one server, and takes those that come."""

    def __init__(self, holdings: Holdings, outbox: Outbox, clock: Clock, counts: Counter[str]) -> None:
        self._holdings: Final = holdings
        self._outbox: Final = outbox
        self._clock: Final = clock
        self._counts: Final = counts
        self._sent_on_ns: Final[LruTable[tuple[str, int], int]] = LruTable(MAX_SENT_ON)

    def missed(self, entity: str, owner_rev: int) -> None:
        """Home says that the owner has changed, and the entity is not here (any more)."""
        self._send_after(entity, owner_rev, forwards=1)

    def came(self, hint: OwnerHint) -> None:
        """A former authority has heard that the entity's owner has changed."""
        holding = self._holdings.get(hint.entity)
        if holding is not None:
            holding.life.acceptance.hinted(holding.life, hint.owner_rev)
        elif self._was_just_sent_on(hint):
            self._counts["owner_hint_again"] += 1
        elif self._send_after(hint.entity, hint.owner_rev, hint.forwards + 1, above=hint.fence):
            self._note_sent_on(hint)

    def _was_just_sent_on(self, hint: OwnerHint) -> bool:
        sent_ns = self._sent_on_ns.get((hint.entity, hint.owner_rev))
        return sent_ns is not None and self._clock.monotonic_ns() - sent_ns < AGAIN_NS

    def _note_sent_on(self, hint: OwnerHint) -> None:
        self._sent_on_ns[hint.entity, hint.owner_rev] = self._clock.monotonic_ns()

    def _send_after(self, entity: str, owner_rev: int, forwards: int, above: Fence | None = None) -> bool:
        """Only towards a higher fence, and not for ever; home says it again with the report of the pass.

        Returns whether it was sent.
        """
        gone = self._holdings.gone(entity)
        if gone is None or not gone.moved_to or forwards > MAX_HINTS or (above is not None and gone.fence <= above):
            self._counts["owner_not_here"] += 1
            return False
        self._counts["owner_sent_after"] += 1
        epoch, sub = gone.fence.epoch, gone.fence.sub
        hint = OwnerHint(entity=entity, owner_rev=owner_rev, epoch=epoch, sub=sub, forwards=forwards)
        self._outbox.send(hint, Trace("owner-hint"), gone.moved_to, on_path=False)
        return True
