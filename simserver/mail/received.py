"""What others have sent one entity, and how far each of them has come; `simserver.mail.entity_mail` has the rules."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from batonpass.authority.names import instance_of
from batonpass.simserver.mail.items import NO_NUMBER, MailBudget, MailItem, MailStamp, MailVerdict, PairReply
from batonpass.simserver.world.messages import MAX_PAIR, MAX_PAIR_BYTES, EntityMessage, MessageNumber

__all__ = ["KEPT_SENDERS", "MAX_SENDERS", "MAX_WAITING", "MAX_WAITING_BYTES", "ReceivedMessages"]

MAX_WAITING: Final = 2048
"""Messages that wait for a tick of one entity, from all senders."""
MAX_WAITING_BYTES: Final = 256 * 1024
MAX_SENDERS: Final = 1024
"""Senders of which an entity keeps how far they have come; a quarter of them of any one instance."""
KEPT_SENDERS: Final = 64
"""Of more than these, those that have closed are forgotten."""
# For which ticks acknowledgements wait; of more the two oldest become one, of the later tick.
_MAX_MARKS: Final = 64


@dataclass(slots=True)
class _MessageCursor:
    """How far one sender has come; and beside the state, what is durable of that, and what it has closed."""

    accepted: MessageNumber = NO_NUMBER
    applied: MessageNumber = NO_NUMBER
    durable: MessageNumber = NO_NUMBER
    closed: MessageNumber = NO_NUMBER
    peer: str = ""
    waiting: int = 0
    waiting_bytes: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether nothing that it has had can come again."""
        return self.applied == self.accepted <= self.closed


class ReceivedMessages:
    """Of one entity.

    Args:
        budget: of the server on which it is.
    """

    __slots__ = ("_budget", "_marks", "changes", "cursors", "forgot", "pending", "size_bytes")

    def __init__(self, budget: MailBudget) -> None:
        self._budget: Final = budget
        self.cursors: Final[dict[str, _MessageCursor]] = {}
        """Those of which nothing has come for the longest time stand in front."""
        self.pending: list[EntityMessage] = []
        self.forgot: MailStamp | None = None
        self.changes = 0
        """Another number after whatever changes the state."""
        self.size_bytes = 0
        self._marks: Final[deque[tuple[int, dict[str, MessageNumber]]]] = deque()

    # --- the state -------------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """As plain data that moves with the entity's state."""
        data: dict[str, Any] = {}
        if self.cursors:
            data["cursors"] = {name: [*one.accepted, *one.applied] for name, one in sorted(self.cursors.items())}
        if self.pending:
            data["pending"] = [[one.sender, *one.number, one.data] for one in self.pending]
        return data | ({"forgot": list(self.forgot)} if self.forgot else {})

    def read(self, data: dict[str, Any], tick: int) -> None:
        """Have what `to_data` wrote, of a state of this tick."""
        for name, (accepted, accepted_count, applied, applied_count) in data.get("cursors", {}).items():
            self.cursors[name] = _MessageCursor((accepted, accepted_count), (applied, applied_count))
        for sender, epoch, count, waiting in data.get("pending", ()):
            self._put_in(EntityMessage(sender, (epoch, count), waiting))
        epoch, sub, at_tick = data.get("forgot", (0, 0, 0))
        self.forgot = (epoch, sub, at_tick) if "forgot" in data else None
        self._mark(tick, {name: one.applied for name, one in self.cursors.items() if one.applied > NO_NUMBER})

    def _put_in(self, message: EntityMessage) -> None:
        cursor, size_bytes = self.cursors[message.sender], len(message.data)
        self.pending.append(message)
        cursor.waiting += 1
        cursor.waiting_bytes += size_bytes
        self.size_bytes += size_bytes
        self._budget.used_bytes += size_bytes

    # --- a tick ----------------------------------------------------------------------------------------------------

    def commit(self, stamp: MailStamp) -> None:
        """A tick is done, in which the world was shown all that waited; it led to `stamp`."""
        if self.pending:
            self._apply(stamp[2])
        if len(self.cursors) > KEPT_SENDERS:
            self._forget_closed(stamp)

    def _apply(self, tick: int) -> None:
        self.changes += 1
        applied: dict[str, MessageNumber] = {}
        for message in self.pending:
            applied[message.sender] = message.number
            self._budget.used_bytes -= len(message.data)
        self.pending, self.size_bytes = [], 0
        for sender, number in applied.items():
            # Those that are idle come to stand in front.
            cursor = self.cursors[sender] = self.cursors.pop(sender)
            cursor.applied, cursor.waiting, cursor.waiting_bytes = number, 0, 0
        self._mark(tick, applied)

    def _mark(self, tick: int, applied: dict[str, MessageNumber]) -> None:
        """What is applied by this tick is durable once that is."""
        if applied:
            self._marks.append((tick, applied))
        if len(self._marks) > _MAX_MARKS:
            (_, first), (later, second) = self._marks.popleft(), self._marks.popleft()
            self._marks.appendleft((later, first | second))

    def made_durable(self, tick: int) -> list[str]:
        """A copy of this tick is kept; the senders for which that is news."""
        told: dict[str, None] = {}
        while self._marks and self._marks[0][0] <= tick:
            for sender, number in self._marks.popleft()[1].items():
                cursor = self.cursors.get(sender)
                if cursor is not None and number > cursor.durable:
                    cursor.durable = number
                    told[sender] = None
        return list(told)

    # --- what comes ------------------------------------------------------------------------------------------------

    def offer(
        self, sender: str, items: Sequence[MailItem], echo: MailStamp, stamp: MailStamp, peer: str
    ) -> tuple[PairReply, int]:
        """Messages have come from a sender on the server `peer`: what it is to be told, and how many are new.

        `stamp` is this entity's own, now.
        """
        cursor, verdict, new = self.cursors.get(sender), MailVerdict.TAKEN, 0
        if cursor is None:
            if self.forgot is not None and echo < self.forgot:
                return PairReply(MailVerdict.ASKED, NO_NUMBER, NO_NUMBER, stamp), 0
            if not self._has_room_for(sender):
                return PairReply(MailVerdict.FULL, NO_NUMBER, NO_NUMBER, stamp), 0
            cursor = _MessageCursor()
        for item in items:
            if item.number <= cursor.accepted:
                continue
            if item.after > cursor.accepted:
                break
            if not self._has_room(cursor, len(item.data)):
                verdict = MailVerdict.FULL
                break
            self.cursors.setdefault(sender, cursor)
            cursor.accepted = item.number
            self._put_in(EntityMessage(sender, item.number, item.data))
            new += 1
        self.changes += bool(new)
        cursor.peer = peer
        return PairReply(verdict, cursor.accepted, cursor.durable, stamp), new

    def _has_room(self, cursor: _MessageCursor, size_bytes: int) -> bool:
        """Whether one more message of a sender may wait: of all room, a sender has at most as much as is left then."""
        free = MAX_WAITING_BYTES - self.size_bytes - size_bytes
        return (
            cursor.waiting < MAX_PAIR
            and len(self.pending) + cursor.waiting < MAX_WAITING
            and cursor.waiting_bytes + size_bytes <= min(MAX_PAIR_BYTES, free)
            and self._budget.has_room(size_bytes)
        )

    def _has_room_for(self, sender: str) -> bool:
        """Whether there is a cursor for one more sender: those of one other instance have a quarter of them at most."""
        if len(self.cursors) < MAX_SENDERS // 4:
            return True
        instance = instance_of(sender)
        of_instance = sum(instance_of(name) == instance for name in self.cursors)
        return len(self.cursors) < MAX_SENDERS and of_instance < MAX_SENDERS // 4

    def reply_to(self, sender: str, stamp: MailStamp) -> tuple[str, PairReply] | None:
        """How far a sender has come, and the server from which that was heard last; None if it is not known."""
        cursor = self.cursors.get(sender)
        if cursor is None:
            return None
        return cursor.peer, PairReply(MailVerdict.TAKEN, cursor.accepted, cursor.durable, stamp)

    def closed(self, sender: str, upto: MessageNumber) -> None:
        """A sender says that nothing up to this number can come again."""
        cursor = self.cursors.get(sender)
        if cursor is not None:
            cursor.closed = max(cursor.closed, upto)

    def unclosed(self, most: int) -> list[str]:
        """Senders to be asked whether they have closed, because room for cursors is short; the idle ones first."""
        if len(self.cursors) <= MAX_SENDERS // 2:
            return []
        idle = (name for name, one in self.cursors.items() if one.applied == one.accepted and not one.is_closed)
        return [name for name, _ in zip(idle, range(most), strict=False)]

    def _forget_closed(self, stamp: MailStamp) -> None:
        spare = len(self.cursors) - KEPT_SENDERS
        closed = [name for name, cursor in self.cursors.items() if cursor.is_closed][:spare]
        for name in closed:
            del self.cursors[name]
        if closed:
            self.changes += 1
            self.forgot = stamp
