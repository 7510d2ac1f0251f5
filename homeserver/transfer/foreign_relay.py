"""Passing on what is about entities of other instances: their homes answer, and the answers go back.

The old authority of a foreign entity says everything to its own home, which knows the way. What it says in one parcel
continues in one, for as long as it waits. A home that is silent keeps nothing waiting for longer than its sender waits.
"""

from collections.abc import Sequence
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError
from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Decline, HandoffAbort, HandoffReply, HandoffRequest, Message, Report
from batonpass.homeserver.names.federation import Federation, InstanceUnreachable

__all__ = ["PATIENCE_S", "ForeignRelay", "home_elsewhere"]

PATIENCE_S: Final = 3.0
"""How long an answer is waited for at most, also for servers that do not say for how long they wait."""


def home_elsewhere(message: Message, instance: str) -> str:
    """The home that is to answer a message of an old authority, if that is not this `instance`; else nothing."""
    if not isinstance(message, HandoffRequest | HandoffAbort | Report | Decline):
        return ""
    home = instance_of(message.entity)
    return "" if home == instance else home


class ForeignRelay:
    """One member's part."""

    def __init__(self, federation: Federation, clock: Clock) -> None:
        self._federation: Final = federation
        self._clock: Final = clock

    async def each(
        self, home: str, opened: Sequence[OpenedMessage]
    ) -> list[Letter | InstanceUnreachable | MessageError]:
        """The answers to messages, which came together, from the home that they are for.

        Or for each `InstanceUnreachable`: no member there answers in time; `MessageError`: what is answered is no
        answer.
        """
        letters = [Letter(one.message, one.trace, isinstance(one.message, HandoffRequest)) for one in opened]
        within_s = min(PATIENCE_S, opened[0].left_s(self._clock.monotonic_ns()))
        answers = await self._federation.exchange_all(home, letters, within_s=within_s)
        return [
            answer if isinstance(answer, InstanceUnreachable) else _read(home, one, Letter(*answer))
            for one, answer in zip(opened, answers, strict=True)
        ]


def _read(home: str, asked: OpenedMessage, answer: Letter) -> Letter | MessageError:
    if not isinstance(asked.message, HandoffRequest):
        return Letter(answer.message, asked.trace)
    if not isinstance(answer.message, HandoffReply):
        return MessageError(f"{home} answered a hand-off with {answer.message.type}")
    return Letter(answer.message, answer.trace, on_path=True)
