"""The messages that one entity has sent, and may have to send again; `simserver.mail.entity_mail` has the rules."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.authority.names import BadName, check_name
from batonpass.simserver.mail.items import (
    NO_NUMBER,
    NO_STAMP,
    MailBudget,
    MailItem,
    MailStamp,
    MailVerdict,
    PairReply,
)
from batonpass.simserver.world.messages import (
    MAX_MESSAGE_BYTES,
    MAX_OUTBOX,
    MAX_OUTBOX_BYTES,
    MAX_PAIR,
    MAX_PAIR_BYTES,
    MAX_REFUSALS,
    MessageNumber,
    MessageRefusal,
    RefusedMessage,
)

__all__ = ["FIRST_WAIT_NS", "LATER_NS", "MAX_WAIT_NS", "NEVER", "EntityOutbox"]

FIRST_WAIT_NS: Final = 250_000_000
"""After so long without an answer the messages of a pair are sent again; then twice as long, up to `MAX_WAIT_NS`."""
MAX_WAIT_NS: Final = 4_000_000_000
LATER_NS: Final = 2_000_000_000
"""After so long it is asked what became of messages that were accepted: an answer may have been lost."""
NEVER: Final = 2**63


@dataclass(slots=True)
class _SentMessage:
    number: MessageNumber
    data: bytes
    tick: int


@dataclass(slots=True)
class _PairProgress:
    """What is known of one receiver, beside the state: it is asked again where this is lost."""

    server: str = ""
    """Which server was sent something last: only its answers count."""
    at: MailStamp = NO_STAMP
    accepted: MessageNumber = NO_NUMBER
    acked: MessageNumber = NO_NUMBER
    """Up to here all is durable at the receiver: it leaves the outbox with the next tick."""
    sent: MessageNumber = NO_NUMBER
    due_ns: int = 0
    wait_ns: int = 0
    is_held: bool = False
    refused_upto: MessageNumber = NO_NUMBER
    refusal: MessageRefusal | None = None
    closed_upto: MessageNumber = NO_NUMBER
    """All up to here has left the outbox, with the tick `closed_at`; nothing waits for this receiver."""
    closed_at: int = -1


@dataclass(slots=True)
class _PairOutbox:
    """The messages to one receiver, in order."""

    items: deque[_SentMessage] = field(default_factory=deque)
    size_bytes: int = 0


class EntityOutbox:
    """Of one entity.

    Args:
        budget: of the server on which it is.
    """

    __slots__ = ("_budget", "_count", "_lanes", "changes", "durable_tick", "last", "out", "refused", "size_bytes")

    def __init__(self, budget: MailBudget) -> None:
        self._budget: Final = budget
        self.last = 0
        """How many it has sent."""
        self.out: Final[dict[str, _PairOutbox]] = {}
        self.refused: list[RefusedMessage] = []
        """Of what was not put into it: the world is told with the next step."""
        self.changes = 0
        """Another number after whatever changes the state."""
        self.durable_tick = -1
        """All that the entity was at this tick is in a copy that is kept."""
        self.size_bytes = self._count = 0
        self._lanes: Final[dict[str, _PairProgress]] = {}

    def __len__(self) -> int:
        return self._count

    # --- the state -------------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """As plain data that moves with the entity's state."""
        data: dict[str, Any] = {"last": self.last} if self.last else {}
        if self.out:
            data["out"] = {
                to: [[*item.number, item.data] for item in sent.items] for to, sent in sorted(self.out.items())
            }
        if self.refused:
            data["refused"] = [[one.to, *one.number, one.reason.value] for one in self.refused]
        return data

    def read(self, data: dict[str, Any], tick: int) -> None:
        """Have what `to_data` wrote, of a state of this tick."""
        self.last = data.get("last", 0)
        for to, items in data.get("out", {}).items():
            for epoch, count, sent in items:
                self._put_out(to, (epoch, count), sent, tick)
        self.refused = [
            RefusedMessage(to, (epoch, count), MessageRefusal(reason))
            for to, epoch, count, reason in data.get("refused", ())
        ]

    def _put_out(self, to: str, number: MessageNumber, data: bytes, tick: int) -> None:
        sent = self.out.get(to)
        if sent is None:
            sent = self.out[to] = _PairOutbox()
        sent.items.append(_SentMessage(number, data, tick))
        sent.size_bytes += len(data)
        self._count += 1
        self.size_bytes += len(data)
        self._budget.used_bytes += len(data)

    # --- a tick ----------------------------------------------------------------------------------------------------

    @property
    def has_refusals(self) -> bool:
        """Whether the world's next step is to be told of some."""
        return bool(self.refused) or any(lane.refusal for lane in self._lanes.values())

    def refusals(self) -> tuple[RefusedMessage, ...]:
        """What the next step is told of; `commit` counts it as told."""
        return (*self.refused, *self._refused_on_the_way()) if self.refused or self._lanes else ()

    def _refused_on_the_way(self) -> Iterator[RefusedMessage]:
        for to, lane in self._lanes.items():
            if lane.refusal is not None and to in self.out:
                for item in self.out[to].items:
                    if lane.acked < item.number <= lane.refused_upto:
                        yield RefusedMessage(to, item.number, lane.refusal)

    def commit(self, tick: int) -> None:
        """A tick is done, in which the world was told of all refusals."""
        if self.refused:
            self.changes += 1
            self.refused = []
        if self._lanes:
            self._leave_outbox(tick)

    def _leave_outbox(self, tick: int) -> None:
        for to, lane in self._lanes.items():
            sent = self.out.get(to)
            upto = lane.acked
            if lane.refusal is not None:
                upto, lane.refusal = max(upto, lane.refused_upto), None
                lane.due_ns = lane.wait_ns = 0
            if sent is None or not sent.items or sent.items[0].number > upto:
                continue
            self.changes += 1
            while sent.items and sent.items[0].number <= upto:
                size_bytes = len(sent.items.popleft().data)
                sent.size_bytes -= size_bytes
                self._count -= 1
                self.size_bytes -= size_bytes
                self._budget.used_bytes -= size_bytes
            if not sent.items:
                del self.out[to]
                lane.closed_upto, lane.closed_at = upto, tick
                lane.due_ns = lane.wait_ns = 0

    def send(self, epoch: int, tick: int, messages: Iterable[tuple[str, bytes]]) -> list[MessageRefusal]:
        """Put what a step has sent into the outbox; what is refused at once is told with the next step.

        They have the numbers from `last` + 1 on, as `Step.send` has said.
        """
        refusals: list[MessageRefusal] = []
        for to, data in messages:
            self.changes += 1
            self.last += 1
            number = (epoch, self.last)
            refusal = self._why_not(to, len(data))
            if refusal is None:
                self._put_out(to, number, data, tick)
                if (lane := self._lanes.get(to)) is not None:
                    lane.closed_at = -1
                continue
            refusals.append(refusal)
            if len(self.refused) < MAX_REFUSALS:
                self.refused.append(RefusedMessage(to, number, refusal))
        return refusals

    def _why_not(self, to: str, size_bytes: int) -> MessageRefusal | None:
        if size_bytes > MAX_MESSAGE_BYTES:
            return MessageRefusal.TOO_LARGE
        sent = self.out.get(to)
        if sent is None:
            try:
                check_name(to)
            except BadName:
                return MessageRefusal.NO_SUCH_ENTITY
        elif len(sent.items) >= MAX_PAIR or sent.size_bytes + size_bytes > MAX_PAIR_BYTES:
            return MessageRefusal.FULL
        is_full = self._count >= MAX_OUTBOX or self.size_bytes + size_bytes > MAX_OUTBOX_BYTES
        return MessageRefusal.FULL if is_full or not self._budget.has_room(size_bytes) else None

    # --- what is due -------------------------------------------------------------------------------------------------

    @property
    def is_unsent(self) -> bool:
        """Whether a message waits for a copy before it may leave."""
        return any(sent.items[-1].tick > self.durable_tick for sent in self.out.values())

    def due_at_ns(self) -> int:
        """When something is to be sent (again); `NEVER` if nothing is released."""
        due_ns = NEVER
        for to, sent in self.out.items():
            lane = self._lanes.get(to)
            if sent.items[0].tick > self.durable_tick or (lane is not None and lane.refusal is not None):
                continue
            due_ns = min(due_ns, 0 if lane is None else lane.due_ns)
        return due_ns

    def receivers(self) -> list[str]:
        """To whom something may have to be said: it is in the outbox, or has just left that."""
        return [*self.out, *(to for to, lane in self._lanes.items() if to not in self.out and lane.closed_at >= 0)]

    def echo(self, to: str) -> MailStamp:
        """The last stamp that was heard of a receiver."""
        lane = self._lanes.get(to)
        return NO_STAMP if lane is None else lane.at

    def closing(self, to: str) -> tuple[str, MessageNumber] | None:
        """Which server is to be told up to which number all has left the outbox for good, if that is all; said once."""
        lane = self._lanes.get(to)
        if lane is None or to in self.out or not 0 <= lane.closed_at <= self.durable_tick:
            return None
        del self._lanes[to]
        return lane.server, lane.closed_upto

    def has_closed(self, to: str) -> bool:
        """Whether nothing is in the outbox for a receiver that asks, and that is durable."""
        return to not in self.out and to not in self._lanes and self.durable_tick >= 0

    def next_items(self, to: str, server: str, now_ns: int) -> list[MailItem] | None:
        """What is to be sent to a receiver on this server now; None for nothing, empty to ask how far it is."""
        sent = self.out.get(to)
        if sent is None or sent.items[0].tick > self.durable_tick:
            return None
        lane = self._lanes.get(to)
        if lane is None:
            lane = self._lanes[to] = _PairProgress()
        if lane.refusal is not None:
            return None
        is_new = server != lane.server
        is_due = is_new or now_ns >= lane.due_ns
        if lane.is_held and not is_due:
            return None
        had = NO_NUMBER if is_new else lane.accepted if is_due else lane.sent
        items = list(self._released(sent.items, max(lane.acked, had)))
        if is_due:
            if not items and self._all_acked(sent.items, lane.acked):
                # It leaves the outbox with the next tick.
                lane.due_ns = now_ns + LATER_NS
                return None
            lane.wait_ns = min(2 * lane.wait_ns or FIRST_WAIT_NS, MAX_WAIT_NS)
            lane.due_ns = now_ns + lane.wait_ns
            lane.server, lane.is_held = server, False
        elif not items:
            return None
        if items:
            lane.sent = items[-1].number
        return items

    def _all_acked(self, items: deque[_SentMessage], acked: MessageNumber) -> bool:
        return all(item.number <= acked for item in items if item.tick <= self.durable_tick)

    def _released(self, items: deque[_SentMessage], after: MessageNumber) -> Iterator[MailItem]:
        before = NO_NUMBER
        for item in items:
            if item.tick > self.durable_tick:
                return
            if item.number > after:
                yield MailItem(item.number, before, item.data)
            before = item.number

    def put_off(self, to: str, until_ns: int) -> None:
        """It is not known where a receiver is, or there is no way: try again then; `hurry` if that is known earlier."""
        lane = self._lanes.get(to)
        if lane is None:
            lane = self._lanes[to] = _PairProgress()
        lane.due_ns = until_ns

    def hurry(self, to: str) -> None:
        """A receiver may be reached now."""
        lane = self._lanes.get(to)
        if lane is not None:
            lane.due_ns = 0

    def is_unanswered(self, to: str) -> bool:
        """Whether a receiver has been asked more than once without an answer."""
        lane = self._lanes.get(to)
        return lane is not None and lane.wait_ns > FIRST_WAIT_NS

    def is_due(self, to: str, now_ns: int) -> bool:
        """Whether it is time to reach a receiver (again)."""
        lane = self._lanes.get(to)
        return lane is None or now_ns >= lane.due_ns

    def answered(self, to: str, server: str, reply: PairReply, now_ns: int) -> bool:
        """A server says how far it has the messages to a receiver; whether a tick is wanted for that.

        An answer counts if that server was asked.
        """
        lane = self._lanes.get(to)
        if lane is None or lane.server != server or to not in self.out:
            return False
        upto = self.out[to].items[-1].number
        had = lane.acked
        lane.acked = max(had, min(reply.durable, upto))
        if reply.at < lane.at:
            return lane.acked > had
        has_heard, lane.at = reply.at > lane.at, reply.at
        had_accepted, lane.accepted = lane.accepted, min(reply.accepted, upto)
        if reply.verdict is MailVerdict.ASKED:
            if has_heard:
                lane.due_ns = now_ns
        elif reply.verdict is MailVerdict.FULL:
            lane.is_held = True
        elif max(lane.accepted, lane.acked) >= lane.sent:
            lane.wait_ns, lane.due_ns = 0, now_ns + LATER_NS
        elif lane.accepted < had_accepted:
            # It was resumed from an earlier tick.
            lane.due_ns = now_ns
        elif lane.accepted > had_accepted or lane.acked > had:
            lane.wait_ns, lane.due_ns = 0, now_ns + FIRST_WAIT_NS
        return lane.acked > had

    def was_asked(self, to: str, server: str) -> bool:
        """Whether it was this server that was sent something last for a receiver, so that its word counts."""
        lane = self._lanes.get(to)
        return lane is not None and lane.server == server and to in self.out

    def no_receiver(self, to: str, reason: MessageRefusal) -> int:
        """There is no entity to take what was released to this receiver; how many messages that is, if it is news."""
        sent = self.out.get(to)
        released = [item.number for item in sent.items if item.tick <= self.durable_tick] if sent is not None else []
        lane = self._lanes.get(to)
        if not released or (lane is not None and lane.refusal is not None):
            return 0
        if lane is None:
            lane = self._lanes[to] = _PairProgress()
        lane.refused_upto, lane.refusal = released[-1], reason
        return sum(number > lane.acked for number in released)
