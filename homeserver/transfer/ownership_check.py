"""What the log says of the authorities of entities, to servers with reason to ask (`procedures.ownership_check`)."""

from collections.abc import Awaitable, Callable
from typing import Final

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import EPOCHS_OF_A_HISTORY
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.log_rollback import is_given, is_staged, lowest_epoch
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.authority.wire.queries import HeldInquiry, HeldItem, HeldWord
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Message
from batonpass.homeserver.log.log_positions import LogPositions, new_mark
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import Federation
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["OwnershipCheck"]


class OwnershipCheck:
    """One member's answers. Any may be asked, and again; of entities of another instance that one is asked.

    Args:
        went_back: told of an instance whose servers prove that this log was at a place where it has never been.
    """

    def __init__(
        self,
        store: InstanceStore,
        federation: Federation,
        positions: LogPositions,
        instance: str,
        went_back: Callable[[str, LogPlace], Awaitable[None]],
    ) -> None:
        self._store: Final = store
        self._federation: Final = federation
        self._positions: Final = positions
        self._instance: Final = instance
        self._went_back: Final = went_back

    async def answer(self, opened: OpenedMessage) -> Message:
        """A server asks what of all that it has is its own.

        Raises:
            MessageError: it asks about entities of several instances.
            NoQuorum: what the log says is not known, or this log is not the one of which the server has heard.
            OutcomeUnknown: whether the log has taken note of that another one was followed is not known.
            PeerUnreachable: the entities' home does not answer.
        """
        message = opened.message
        if not isinstance(message, HeldInquiry):
            raise MessageError(f"{message.type} is no question about what a server has")
        homes = {instance_of(item.entity) for item in message.items} or {self._instance}
        if len(homes) > 1:
            raise MessageError(f"{message.server} asks about entities of {', '.join(sorted(homes))} at once")
        (home,) = homes
        if home != self._instance:
            reply, _ = await self._federation.exchange(home, message, opened.trace, on_path=False)
            return reply
        return await self._word(message)

    async def _word(self, message: HeldInquiry) -> HeldWord:
        missing = await self._positions.missing_of(message.words)
        if missing is not None:
            await self._went_back(message.server, missing)
            raise NoQuorum(f"{message.server} has heard of another log than this one")
        await self._store.confirmed()
        server, is_astray = message.server, bool(message.position)
        kept = [item for item in message.items if self._is_kept(item, server, is_astray=is_astray)]
        been = is_astray and self._positions.has_been_at_untrusted(message.position)
        if is_astray and not been:
            await self._part_from(message.position)
        return HeldWord(number=message.number, has_been_there=been, kept=kept)

    async def _part_from(self, position: str) -> None:
        """The server has followed another history: what this log gives from now on has fences of its own."""
        try:
            office = self._positions.read_untrusted(position).office
        except MessageError:
            # It proves nothing.
            return
        if lowest_epoch(self._store.tree) <= office * EPOCHS_OF_A_HISTORY:
            await self._store.submit("log.parted", office=office, mark=new_mark())

    def _is_kept(self, item: HeldItem, server: str, *, is_astray: bool) -> bool:
        record, recovery = self._store.entity(item.entity), self._store.recovery(item.entity)
        if item.by:
            return is_staged(server, item.by, item.fence, record, recovery)
        return is_given(
            server, item.fence, record, recovery, is_astray=is_astray, went_on=item.went_on, since=item.since
        )
