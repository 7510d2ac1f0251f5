"""What a homeserver does with the messages of transfers: check the sender, put it to the log, tell those concerned.

Everything here may be repeated: a request whose answer was lost comes again, perhaps to another member, and gets the
same answer from the log. What old authorities ask is answered by `homeserver.transfer.batch`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from batonpass.actors.core.log_metadata import log_metadata_of
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.queries import LogInquiry
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.senders import HOMESERVER_SENDERS
from batonpass.authority.wire.transfer import AdmitRequest, Message, NoAnswer
from batonpass.homeserver.names.admission import LocalAdmission
from batonpass.homeserver.transfer.asked import ABOUT_TRANSFERS, letter_of
from batonpass.homeserver.transfer.batch import Batches
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["Answer", "Transfers", "in_nursery"]

Answer = Callable[[OpenedMessage], Awaitable[Message]]
"""Answers one kind of message; raises as `Transfers.reply`."""


async def in_nursery(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """As `BesideEachOther`, by trio."""
    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(job)


class Transfers:
    """One member's answers to what is asked about its instance's entities, and about those that pass through.

    Args:
        answers: what answers the kinds of messages that are none about transfers.
        why_undecided: why this member decides nothing: its log went back; empty if it does.
    """

    def __init__(
        self,
        ports: HomeserverPorts,
        batches: Batches,
        answers: Mapping[type[Any], Answer],
        why_undecided: Callable[[], str],
    ) -> None:
        self._batches: Final = batches
        self._local_admission: Final = LocalAdmission(ports.name, ports.store, ports.clock)
        self._answers: Final = answers
        self._instance: Final = ports.instance
        self._directory: Final = ports.directory
        self._clock: Final = ports.clock
        self._why_undecided: Final = why_undecided
        self._beside_each_other: Final = ports.beside_each_other

    async def replies(self, opened: Sequence[OpenedMessage]) -> list[Letter]:
        """What is to be answered to each message of a batch, in their order; see `homeserver.transfer.batch`."""
        undecided = Letter(NoAnswer(why="undecided"), Trace("batch"))
        letters = dict.fromkeys(range(len(opened)), undecided)
        if self._why_undecided():
            return list(letters.values())
        places = {id(one): place for place, one in enumerate(opened)}

        def answered(one: OpenedMessage, answer: Letter | Exception | None) -> None:
            letters[places[id(one)]] = letter_of(one, answer)

        async def answer_one(one: OpenedMessage) -> None:
            answered(one, await self._reply_or_why_not(one))

        together, rest, wrong = await self._batches.pick(
            [one for one in opened if isinstance(one.message, ABOUT_TRANSFERS)]
        )
        for one, error in wrong:
            answered(one, error)
        rest += [one for one in opened if not isinstance(one.message, ABOUT_TRANSFERS)]
        jobs = [partial(answer_one, one) for one in rest]
        await self._beside_each_other([*(partial(self._batches.answer, some) for some in together), *jobs])
        for some in together:
            for item in some.items:
                answered(item.opened, item.answer)
        return list(letters.values())

    async def _reply_or_why_not(self, one: OpenedMessage) -> Letter | Exception | None:
        try:
            if not one.left_s(self._clock.monotonic_ns()):
                raise NoQuorum("the server that asked does not wait any more")
            return await self.reply(one)
        except Exception as error:
            return error

    async def reply(self, opened: OpenedMessage) -> Letter | None:
        """Deal with one opened message; what to answer its sender, or None if the answer takes another way.

        Raises:
            MessageError: this server does not take such a message from such a sender.
            Refused, PeerUnreachable, NoQuorum, OutcomeUnknown: nothing was decided; the sender may repeat.
        """
        with log_metadata_of(transfer=opened.trace.transfer_id):
            return await self._reply(opened)

    async def _reply(self, opened: OpenedMessage) -> Letter | None:
        message = opened.message
        if (why := self._why_undecided()) and not isinstance(message, LogInquiry):
            raise NoQuorum(why)
        if isinstance(message, ABOUT_TRANSFERS):
            return await self._batches.one(opened)
        await HOMESERVER_SENDERS.check(message, opened.sender, self._instance, self._directory)
        if isinstance(message, AdmitRequest):
            # The record's home asks whether a server of this instance would take an entity.
            return await self._local_admission.answer(message, opened.trace)
        answer = self._answers.get(type(message))
        if answer is None:
            raise MessageError(f"a homeserver takes no {message.type}")
        return Letter(await answer(opened), opened.trace)
