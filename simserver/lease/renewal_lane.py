"""The way of renewals: over the sealed link, on a channel that nothing else uses.

A lease is all that a server may act by. So nothing that strangers can fill stands on its way. There is no REST port, no
line of other requests, and no question for keys while those that are known will do. Members are asked one after the
other, and the next one as soon as one is late. A member that is dead says nothing over UDP.
"""

import logging
from collections.abc import Sequence
from typing import Final

import trio

from batonpass.actors.base.clock import Bell, Clock
from batonpass.actors.net.endpoint import LinkDown, LinkFull, Received
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import RENEWAL_CHANNEL, Renew, RenewReply
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import NoAnswer, Parcel, decode_link_untrusted, encode_link
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient

__all__ = ["ASK_NEXT_NS", "PATIENCE_NS", "RenewalLane", "RenewalQuestion"]

_log = logging.getLogger("batonpass.simserver.lease.renewal_lane")

# A member that has not answered by then is not waited for alone. It takes milliseconds.
ASK_NEXT_NS: Final = 500_000_000
PATIENCE_NS: Final = 2_000_000_000


class RenewalQuestion:
    """One renewal, and what the members that were asked have said to it. No input or output.

    A member that does not grant leases says which one does (`elsewhere`). That is no answer as long as the one that it
    names was asked too and may still answer.
    """

    def __init__(self, trace_id: str) -> None:
        self._trace_id = trace_id
        self._waited_for: set[str] = set()
        self._elsewhere: OpenedMessage | None = None
        self.why = "no homeserver is known"
        """Why there is no answer, as far as a homeserver said."""

    @property
    def is_open(self) -> bool:
        """Whether a member that was asked has said nothing yet."""
        return bool(self._waited_for)

    def asked(self, member: str) -> None:
        """The question is on its way to this member."""
        self._waited_for.add(member)
        self.why = f"{member} does not answer"

    def not_asked(self, why: str) -> None:
        """A member cannot be asked."""
        self.why = why

    def heard(self, opened: OpenedMessage) -> OpenedMessage | None:
        """A member says something; the answer to be returned, if that is one."""
        if opened.trace.transfer_id != self._trace_id or opened.sender not in self._waited_for:
            return None
        self._waited_for.discard(opened.sender)
        message = opened.message
        if isinstance(message, NoAnswer):
            self.why = f"{opened.sender}: {message.reason or message.why}"
        if not isinstance(message, RenewReply):
            return None
        if message.verdict != "elsewhere":
            return opened
        if self._elsewhere is None or message.officer:
            self._elsewhere = opened
        return None

    @property
    def pointer(self) -> OpenedMessage | None:
        """The answer that another member grants leases, once that one cannot be expected to answer any more."""
        said = self._elsewhere
        if said is None or not isinstance(said.message, RenewReply) or said.message.officer in self._waited_for:
            return None
        return said


class RenewalLane:
    """Asks the home instance to renew the lease, and takes its answers."""

    def __init__(self, home: HomeClient, sealer: Sealer, link: LinkService, clock: Clock) -> None:
        self._home = home
        self._sealer = sealer
        self._link = link
        self._clock = clock
        self._question: RenewalQuestion | None = None
        self._answer: OpenedMessage | None = None
        self._heard: Bell = clock.bell()
        # Members of which something is being opened that needs keys which are not at hand.
        self._opening: set[str] = set()

    async def ask(self, message: Renew, trace: Trace) -> OpenedMessage:
        """Ask for a renewal, of each member in turn; the answer. One question at a time.

        Raises:
            HomeUnreachable: it is not decided.
        """
        question = self._question = RenewalQuestion(trace.transfer_id)
        self._answer = None
        try:
            answer = await self._asked_of_each(question, list(self._home.members()), message, trace)
        finally:
            self._question = None
        if answer is None:
            why = (
                question.why
                if self._home.is_registered
                else f"{self._sealer.name} is not registered with its home instance any more"
            )
            # They may be others, or elsewhere, by now; or this server was removed, to which none of them says anything.
            self._home.members_changed()
            raise HomeUnreachable(f"the lease is not renewed: {why}")
        self._home.is_registered = True
        return answer

    async def _asked_of_each(
        self, question: RenewalQuestion, members: Sequence[DirectoryRow], message: Renew, trace: Trace
    ) -> OpenedMessage | None:
        end_ns = self._clock.monotonic_ns() + PATIENCE_NS
        for number, member in enumerate(members, 1):
            if not self._sent_to(member, question, message, trace):
                continue
            is_last = number == len(members)
            now_ns = self._clock.monotonic_ns()
            answer = await self._answered(question, end_ns if is_last else min(now_ns + ASK_NEXT_NS, end_ns))
            if answer is not None:
                if number > 1 and isinstance(answer.message, RenewReply) and answer.message.verdict != "elsewhere":
                    await self._home.prefer(answer.sender, to="")
                return answer
        return await self._answered(question, end_ns)

    async def _answered(self, question: RenewalQuestion, until_ns: int) -> OpenedMessage | None:
        """Wait for an answer until `until_ns`, or until all that were asked have said something that is none."""
        while self._answer is None and question.is_open and question.pointer is None:
            left_ns = until_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                return None
            await self._heard.wait(left_ns / 1e9)
        return self._answer or question.pointer

    def _sent_to(self, member: DirectoryRow, question: RenewalQuestion, message: Renew, trace: Trace) -> bool:
        keys = self._home.keys_known(member.name)
        if keys is None or not member.link_port:
            question.not_asked(f"there are no usable keys of {member.name}, or no address of its link")
            return False
        parcel = self._sealer.seal(
            message,
            trace,
            to=member.name,
            keys=keys,
            now_ns=self._clock.monotonic_ns(),
            now_s=self._clock.unix_s(),
            on_path=False,
        )
        try:
            where = (member.link_host, member.link_port)
            self._link.post(member.name, where, encode_link(parcel), channel=RENEWAL_CHANNEL)
        except (LinkDown, LinkFull, ValueError) as error:
            question.not_asked(f"{member.name} cannot be reached over the link: {error}")
            return False
        question.asked(member.name)
        return True

    # --- answers -----------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take answers from the link until cancelled."""
        inbox = self._link.claim(RENEWAL_CHANNEL)
        self._opening.clear()
        task_status.started()
        async with trio.open_nursery() as nursery:
            async for received in inbox:
                if self._home.is_member(received.peer) and received.peer not in self._opening:
                    self._opening.add(received.peer)
                    nursery.start_soon(self._take, received)
            # The link has ended: what restarts it, restarts this.
            await trio.sleep_forever()

    async def _take(self, received: Received) -> None:
        try:
            self._hear(await self._opened_untrusted(received))
        except (MessageError, CryptoError, HomeUnreachable, HomeRefused) as error:
            _log.info("an answer of %s to a renewal cannot be opened: %s", received.peer, error)
        except Exception:
            _log.exception("an answer of %s to a renewal ran into an error of ours", received.peer)
        finally:
            self._opening.discard(received.peer)

    async def _opened_untrusted(self, received: Received) -> OpenedMessage:
        parcel = decode_link_untrusted(received.message)
        if not isinstance(parcel, Parcel):
            raise MessageError(f"a {parcel.type} renews nothing")
        sender, kid = jose.peek_untrusted(parcel.sealed)
        if sender != received.peer:
            raise MessageError(f"sealed by {sender}, not by the peer that sent it")
        keys = self._home.keys_known(sender)
        if keys is None or not keys.knows(kid):
            keys = await self._home.keys_of(sender, kid)
        if keys is None:
            raise MessageError(f"no keys are known for the sender {sender}")
        return self._sealer.open_untrusted(
            parcel, sender=keys, now_ns=self._clock.monotonic_ns(), now_s=self._clock.unix_s()
        )

    def _hear(self, opened: OpenedMessage) -> None:
        if self._question is not None:
            self._answer = self._answer or self._question.heard(opened)
            self._heard.ring()
