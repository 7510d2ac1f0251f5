"""The messages of one entity: what it has sent and may have to be sent again, and what has come and waits for a tick.

A message is delivered exactly once, wherever either entity goes and whichever servers die. Messages from one entity to
another come in the order in which they were sent. It works as inputs do, with the sending entity as the source:

- What is sent is put into the *outbox* with the commit of the tick that sent it. The outbox is part of the state: it is
  copied, handed over and taken over with it. So a sender that falls back to an earlier tick has sent what it had sent
  by then, and what it sent later was never released.
- A message is *released* once a copy of that tick is kept. Until then it leaves for no other entity, also not on the
  same server: an entity may fall back without the other.
- Each message has a number above all that its sender ever gave, of which none is given twice (`MessageNumber`). The
  receiver has a *cursor* for each sender: the last number accepted and the last applied. What is not above the first
  has come before. A message names the one before it that is still in the outbox. If that was not accepted, this one is
  not either, and both come again.
- The receiver tells the sender what is applied in a copy that is kept. Only that leaves the outbox, with the sender's
  next tick. Everything that a copy has changes with a tick, because copies are named by fence and tick.
- Where there is no room at the receiver nothing is accepted, and the message waits in the outbox. If that is full the
  sender hears so with its next tick. So no message is refused that was on its way, unless its receiver is none.

Cursors are forgotten, or they would be as many as entities ever met. A sender says when all of its messages have left
its outbox for good, in a copy that is kept (*closed*). Then the cursor may go, and when the last one went is part of
the state (`forgot`). From then on an unknown sender is believed only if it has heard from this receiver since. What was
on its way before, and was applied and forgotten, comes from a server that has not. The sender is asked again, with the
receiver's present stamp (fence and tick), which it returns.

Everything here is synchronous and without a clock; `simserver.post` carries what this decides.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, Self

from batonpass.authority.names import BadName, check_name
from batonpass.simserver.mail.items import MailBudget, MailStamp
from batonpass.simserver.mail.outbox import EntityOutbox
from batonpass.simserver.mail.received import MAX_SENDERS, MAX_WAITING, MAX_WAITING_BYTES, ReceivedMessages
from batonpass.simserver.world.messages import (
    MAX_MESSAGE_BYTES,
    MAX_OUTBOX,
    MAX_OUTBOX_BYTES,
    MAX_PAIR,
    MAX_REFUSALS,
    MessageRefusal,
    StepMail,
)

__all__ = ["EntityMail", "check_mail"]

_LIMIT: Final = 2**63


class EntityMail:
    """Of one entity; see the head of the module.

    Args:
        budget: of the server on which it is.
    """

    __slots__ = ("_budget", "outbox", "received")

    def __init__(self, budget: MailBudget) -> None:
        self._budget: Final = budget
        self.outbox: Final = EntityOutbox(budget)
        self.received: Final = ReceivedMessages(budget)

    @property
    def changes(self) -> int:
        """Another number, above 0, after whatever changes the state."""
        return 1 + self.outbox.changes + self.received.changes

    def to_data(self) -> dict[str, Any]:
        """As plain data that moves with the entity's state."""
        return self.outbox.to_data() | self.received.to_data()

    @classmethod
    def from_data(cls, data: dict[str, Any], budget: MailBudget, tick: int) -> Self:
        """Read what `to_data` wrote, of a state of this tick; it was checked by `check_mail`."""
        mail = cls(budget)
        mail.outbox.read(data, tick)
        mail.received.read(data, tick)
        return mail

    @classmethod
    def of(cls, data: dict[str, Any] | None, budget: MailBudget, tick: int) -> Self | None:
        """As `from_data`; None if there never was any."""
        return None if data is None else cls.from_data(data, budget, tick)

    @property
    def has_news(self) -> bool:
        """Whether something waits for the world's next step."""
        return bool(self.received.pending) or self.outbox.has_refusals

    def for_step(self, epoch: int) -> StepMail:
        """What the next step is given, under this epoch; `commit` counts it as seen."""
        return StepMail(tuple(self.received.pending), self.outbox.refusals(), epoch, self.outbox.last)

    def commit(self, stamp: MailStamp) -> None:
        """A tick is done, in which the world was shown all that waited; it led to `stamp`."""
        self.outbox.commit(stamp[2])
        self.received.commit(stamp)

    def send(self, epoch: int, tick: int, messages: Iterable[tuple[str, bytes]]) -> list[MessageRefusal]:
        """As `EntityOutbox.send`."""
        return self.outbox.send(epoch, tick, messages)

    def made_durable(self, tick: int) -> list[str]:
        """A copy of this tick is kept: what was sent by then may leave. The senders for which that is news."""
        self.outbox.durable_tick = max(self.outbox.durable_tick, tick)
        return self.received.made_durable(tick)

    def ended(self) -> None:
        """The entity is not on this server any more: nothing of it waits here."""
        self._budget.used_bytes -= self.outbox.size_bytes + self.received.size_bytes

    def described(self) -> dict[str, int]:
        """How much there is of everything, for people who look."""
        return {
            "outbox": len(self.outbox),
            "outbox_bytes": self.outbox.size_bytes,
            "receivers": len(self.outbox.out),
            "waiting": len(self.received.pending),
            "waiting_bytes": self.received.size_bytes,
            "senders": len(self.received.cursors),
            "sent": self.outbox.last,
        }


def check_mail(data: Any) -> None:
    """See that this is what `EntityMail.to_data` writes; raises `ValueError`, `TypeError` or `KeyError` if not.

    Its integrity is checked with the state's hash, but its author may be a server of another instance.
    """
    if type(data) is not dict or not data.keys() <= _FIELDS:
        raise ValueError(f"the messages of an entity have the fields {', '.join(sorted(_FIELDS))}")
    if not _is_whole(data.get("last", 0)):
        raise ValueError("how many it has sent is a whole number")
    _check_outbox(data.get("out", {}), data.get("last", 0))
    cursors, pending, refused = data.get("cursors", {}), data.get("pending", []), data.get("refused", [])
    if type(cursors) is not dict or len(cursors) > MAX_SENDERS or not all(map(_is_cursor, cursors.items())):
        raise ValueError(f"cursors are those of at most {MAX_SENDERS} senders")
    if type(pending) is not list or len(pending) > MAX_WAITING or not all(_waits(one, cursors) for one in pending):
        raise ValueError(f"at most {MAX_WAITING} messages wait, of senders that have cursors")
    if sum(len(one[3]) for one in pending) > MAX_WAITING_BYTES:
        raise ValueError(f"at most {MAX_WAITING_BYTES} bytes of messages wait")
    if type(refused) is not list or len(refused) > MAX_REFUSALS or not all(map(_is_refused, refused)):
        raise ValueError(f"at most {MAX_REFUSALS} refusals wait to be told")
    forgot = data.get("forgot", [0, 0, 0])
    if type(forgot) is not list or len(forgot) != 3 or not all(map(_is_whole, forgot)):
        raise ValueError("when a cursor was forgotten is an epoch, a sub-epoch and a tick")


_FIELDS: Final = frozenset(("last", "out", "refused", "cursors", "pending", "forgot"))


def _check_outbox(out: Any, last: int) -> None:
    if type(out) is not dict or not all(map(_are_sent, out.items())):
        raise ValueError("an outbox has messages by receiver, with rising numbers")
    # Else the next message would have a number that one has already.
    if any(item[1] > last for items in out.values() for item in items):
        raise ValueError("no message in an outbox has a number above that of the last one")
    if sum(map(len, out.values())) > MAX_OUTBOX:
        raise ValueError(f"at most {MAX_OUTBOX} messages are in an outbox")
    if sum(len(item[2]) for items in out.values() for item in items) > MAX_OUTBOX_BYTES:
        raise ValueError(f"at most {MAX_OUTBOX_BYTES} bytes of messages are in an outbox")


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < _LIMIT


def _is_named(name: object) -> bool:
    if type(name) is not str:
        return False
    try:
        check_name(name)
    except BadName:
        return False
    return True


def _is_message(item: object) -> bool:
    """Whether this is a number and data."""
    if type(item) is not list or len(item) != 3:
        return False
    epoch, count, data = item
    return _is_whole(epoch) and _is_whole(count) and type(data) is bytes and len(data) <= MAX_MESSAGE_BYTES


def _are_sent(named: tuple[object, object]) -> bool:
    to, items = named
    if (
        not _is_named(to)
        or type(items) is not list
        or not 1 <= len(items) <= MAX_PAIR
        or not all(map(_is_message, items))
    ):
        return False
    numbers = [tuple(item[:2]) for item in items]
    return all(one < other for one, other in pairwise(numbers))


def _is_cursor(named: tuple[object, object]) -> bool:
    sender, cursor = named
    if not _is_named(sender) or type(cursor) is not list or len(cursor) != 4 or not all(map(_is_whole, cursor)):
        return False
    return cursor[2:] <= cursor[:2]


def _waits(item: object, cursors: dict[str, list[int]]) -> bool:
    if type(item) is not list or len(item) != 4 or not _is_message(item[1:]):
        return False
    cursor = cursors.get(item[0])
    return cursor is not None and cursor[2:] < item[1:3] <= cursor[:2]


def _is_refused(item: object) -> bool:
    if type(item) is not list or len(item) != 4:
        return False
    to, epoch, count, reason = item
    # An id that is none may have been written to.
    return type(to) is str and _is_whole(epoch) and _is_whole(count) and reason in _REASONS


_REASONS: Final = frozenset(reason.value for reason in MessageRefusal)
