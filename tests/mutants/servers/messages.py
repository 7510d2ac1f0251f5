"""Servers whose messages between entities lack a guard."""

from collections.abc import Sequence
from dataclasses import replace

from batonpass.simserver.mail.items import MailItem, MailStamp, PairReply
from batonpass.simserver.post.post_office import PostOffice

__all__ = ["AnswersWhatIsNotKept", "SendsWhatIsNotKept"]


class SendsWhatIsNotKept(PostOffice):
    """It takes every tick in which an entity sends something for durable."""

    def _changed(self, entity: str) -> None:
        found = self._mail_of(entity)
        if found is not None:
            self._said_durable(entity, found[1].made_durable(found[0].tick))


class AnswersWhatIsNotKept(PostOffice):
    """It says of messages that they are durable as soon as they have come."""

    def _offered(self, sender: str, to: str, items: Sequence[MailItem], echo: MailStamp, peer: str) -> PairReply | None:
        reply = super()._offered(sender, to, items, echo, peer)
        return None if reply is None else replace(reply, durable=reply.accepted)
