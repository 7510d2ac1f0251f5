"""Where the entities of a server leave word for what carries their messages, and what is done with a life's messages.

The functions here are of a `Life`, which has its mail as `mail`; None if it never sent or was sent anything.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from batonpass.authority.fence import Fence
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.mail.items import MailBudget, MailItem, MailStamp, PairReply
from batonpass.simserver.world.messages import MessageRefusal, StepMail

__all__ = [
    "MailDesk",
    "commit_mail",
    "end_mail",
    "has_news",
    "mail_for_step",
    "send",
    "stamp_of",
    "take_items",
    "take_refusal",
    "take_reply",
]


class MailDesk:
    """Of one server; `listen` has to be called by what carries messages, or they stay where they are."""

    def __init__(self) -> None:
        self.budget: Final = MailBudget()
        self.news: Final[dict[str, None]] = {}
        """The entities for whose next step something waits, by name."""
        self._changed: Callable[[str], None] | None = None
        self._durable: Callable[[str, Sequence[str]], None] | None = None
        self._keeps_copies: Callable[[], bool] | None = None

    def listen(
        self,
        changed: Callable[[str], None],
        durable: Callable[[str, Sequence[str]], None],
        keeps_copies: Callable[[], bool],
    ) -> None:
        """Have these told of every entity that has sent something, and of which senders' messages are durable."""
        self._changed, self._durable, self._keeps_copies = changed, durable, keeps_copies

    @property
    def keeps_copies(self) -> bool:
        """Whether copies are kept elsewhere, so that only what is in one is durable."""
        return self._keeps_copies is None or self._keeps_copies()

    def changed(self, entity: str) -> None:
        """An entity has something in its outbox that it had not."""
        if self._changed is not None:
            self._changed(entity)

    def durable(self, entity: str, senders: Sequence[str]) -> None:
        """A later tick of an entity is durable; for these senders that is news."""
        if self._durable is not None:
            self._durable(entity, senders)


class _Correspondent(Protocol):
    """What of an entity its messages have to do with."""

    id: str
    fence: Fence
    frozen: bool
    over: bool
    mail: EntityMail | None

    @property
    def tick(self) -> int:
        """How many ticks it has had."""

    @property
    def is_stopped(self) -> bool:
        """Whether it has no ticks for now."""

    def wake(self) -> None:
        """It takes part in the next round."""

    def has(self, change: EntityChange) -> None:
        """Something but a tick has changed it."""


def stamp_of(entity: _Correspondent) -> MailStamp:
    """Of an entity, now."""
    return entity.fence.epoch, entity.fence.sub, entity.tick


def mail_for_step(entity: _Correspondent) -> StepMail:
    """What the next step is given of messages."""
    epoch = entity.fence.epoch
    return StepMail(epoch=epoch) if entity.mail is None else entity.mail.for_step(epoch)


def has_news(entity: _Correspondent) -> bool:
    """Whether messages or refusals wait for its next step."""
    return entity.mail is not None and entity.mail.has_news


def commit_mail(entity: _Correspondent, desk: MailDesk) -> None:
    """A tick is committed, in which its world was shown all that waited."""
    if entity.mail is not None:
        entity.mail.commit(stamp_of(entity))
        desk.news.pop(entity.id, None)
        if not desk.keeps_copies:
            desk.durable(entity.id, entity.mail.made_durable(entity.tick))


def end_mail(entity: _Correspondent, desk: MailDesk) -> None:
    """It has left this server, with all that waits."""
    if entity.mail is not None:
        entity.mail.ended()
        desk.news.pop(entity.id, None)


def send(
    entity: _Correspondent, messages: Sequence[tuple[str, bytes]], desk: MailDesk, count: Callable[[str], None]
) -> None:
    """What a step has sent is in the outbox, now that the tick is committed."""
    if entity.mail is None:
        entity.mail = EntityMail(desk.budget)
    refusals = entity.mail.send(entity.fence.epoch, entity.tick, messages)
    if not desk.keeps_copies:
        entity.mail.made_durable(entity.tick)
    for refusal in refusals:
        count(f"message_refused_{refusal}")
    if refusals:
        desk.news[entity.id] = None
    if len(refusals) < len(messages):
        desk.changed(entity.id)


def take_items(
    entity: _Correspondent, sender: str, items: Sequence[MailItem], echo: MailStamp, peer: str, desk: MailDesk
) -> PairReply | None:
    """Messages have come: they wait for the next tick. What their sender is to be told; None for nothing now.

    A frozen entity takes none, because its snapshot has been taken.
    """
    if entity.frozen or entity.over:
        return None
    mail = entity.mail or EntityMail(desk.budget)
    reply, new = mail.received.offer(sender, items, echo, stamp_of(entity), peer)
    if new:
        entity.wake()
        entity.mail = mail
        desk.news[entity.id] = None
        if entity.is_stopped:
            # Else a tick is to come, which says so.
            entity.has(EntityChange.ALTERED)
    return reply


def take_reply(entity: _Correspondent, to: str, server: str, reply: PairReply, now_ns: int) -> None:
    """A server says how far it has the messages to a receiver: what is durable there leaves with the next tick."""
    if entity.frozen or entity.over or entity.mail is None:
        return
    if entity.mail.outbox.answered(to, server, reply, now_ns):
        entity.wake()


def take_refusal(entity: _Correspondent, to: str, reason: MessageRefusal, desk: MailDesk) -> int:
    """Have the next step told that there is no receiver for what was sent; how many messages that is."""
    if entity.frozen or entity.over or entity.mail is None:
        return 0
    refused = entity.mail.outbox.no_receiver(to, reason)
    if refused:
        desk.news[entity.id] = None
        entity.wake()
    return refused
