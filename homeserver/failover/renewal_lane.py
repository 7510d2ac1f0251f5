"""Where simulation servers of this instance renew their leases: a channel of the sealed link that nothing else uses.

Strangers have no place in it, and other requests do not wait in it. Each server has one renewal under way and the
newest one waiting: whatever it sends, it delays itself alone. What cannot be decided is answered, too
(`no_answer`): the server then asks another member at once, and knows why.
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from batonpass.actors.net.endpoint import LinkDown, LinkFull, Received
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.errors import MessageError, Refused, UnregisteredSender
from batonpass.authority.model.records import Role
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.lease import RENEWAL_CHANNEL
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import NoAnswer, Parcel, decode_link_untrusted, encode_link
from batonpass.homeserver.failover.leases import Leases
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer.parcels import NOT_TOLD, Parcels
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["RenewalResponder"]

_log = logging.getLogger("batonpass.homeserver.failover.renewal_lane")


class RenewalResponder:
    """Takes renewals, and answers them.

    Args:
        dropped: told of the sender of what is dropped, and why.
    """

    def __init__(
        self,
        link: LinkService,
        store: InstanceStore,
        parcels: Parcels,
        leases: Leases,
        dropped: Callable[[str, Exception], None],
    ) -> None:
        self._link: Final = link
        self._store: Final = store
        self._parcels: Final = parcels
        self._leases: Final = leases
        self._dropped: Final = dropped
        # By server of this instance, one of which is being answered: what came last meanwhile.
        self._under_way: dict[str, Received | None] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take renewals until cancelled; those of one server one after the other."""
        inbox = self._link.claim(RENEWAL_CHANNEL)
        self._under_way.clear()
        task_status.started()
        async with trio.open_nursery() as nursery:
            async for received in inbox:
                peer = received.peer
                if not self._is_ours(peer):
                    self._dropped(peer, UnregisteredSender(f"{peer} is not registered as a server of this instance"))
                elif peer in self._under_way:
                    self._under_way[peer] = received
                else:
                    self._under_way[peer] = None
                    nursery.start_soon(self._take_each, received)
            # The link has ended: what restarts it, restarts this.
            await trio.sleep_forever()

    def _is_ours(self, sender: str) -> bool:
        row = self._store.row(sender)
        return row is not None and row.role is Role.SIMSERVER

    async def _take_each(self, received: Received) -> None:
        peer = received.peer
        try:
            await self._take(received)
            while (following := self._under_way[peer]) is not None:
                self._under_way[peer] = None
                await self._take(following)
        finally:
            self._under_way.pop(peer, None)

    async def _take(self, received: Received) -> None:
        try:
            opened = await self._opened_untrusted(received)
            letter = await self._answered(opened)
            parcel = await self._parcels.seal(letter.message, letter.trace, opened.sender, on_path=False)
            # To where it came from: what the directory says may be the address of a clone that is gone.
            self._link.post(received.peer, received.address, encode_link(parcel), channel=RENEWAL_CHANNEL)
        except (MessageError, LinkDown, LinkFull, *NOT_TOLD, OutcomeUnknown) as error:
            self._dropped(received.peer, error)
        except Exception:
            _log.exception("a renewal of %s ran into an error of ours", received.peer)

    async def _opened_untrusted(self, received: Received) -> OpenedMessage:
        parcel = decode_link_untrusted(received.message)
        if not isinstance(parcel, Parcel):
            raise MessageError(f"a {parcel.type} renews nothing")
        (opened, *others) = await self._parcels.open_untrusted(parcel)
        if opened.sender != received.peer:
            raise MessageError(f"sealed by {opened.sender}, not by the peer that sent it")
        if others:
            raise MessageError("a renewal travels alone")
        return opened

    async def _answered(self, opened: OpenedMessage) -> Letter:
        try:
            return Letter(await self._leases.renewed(opened), opened.trace)
        except (NoQuorum, OutcomeUnknown, InstanceUnreachable, Refused) as error:
            _log.info("a renewal of %s is not decided: %s", opened.sender, error)
            return Letter(NoAnswer(why="undecided", reason=str(error)[:200]), opened.trace)
