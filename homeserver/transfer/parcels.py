"""What a homeserver seals for simulation servers and sends them, and what it opens of theirs.

`Post` is what the other modules need of it: the simulation of the servers has another one, with messages that travel
bare.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from batonpass.actors.base.batcher import Batcher
from batonpass.actors.base.clock import Clock
from batonpass.actors.net.endpoint import LinkDown, LinkFull
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.errors import MessageError, Reason, Refused, UnregisteredSender
from batonpass.authority.wire.batch import MAX_BATCH, Letter, take_batch
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.queries import LogShown
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import Message, Parcel, encode_link
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["NOT_TOLD", "NobodyWaits", "Parcels", "Post"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")
# Why a server could not be told something; what had been decided before stays decided.
NOT_TOLD: Final = (Refused, InstanceUnreachable, NoQuorum)
# Receivers with a queue of their own; it holds nothing unless a message is posted at this moment.
MAX_POSTING: Final = 10_000


class NobodyWaits(Exception):
    """The time is over for which the sender of a message waits for its answer, and nothing has been done about it."""


class Post(Protocol):
    """The way to simulation servers. All of it raises `NOT_TOLD`: the receiver cannot be told now."""

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Send one message, without waiting for an answer."""

    async def post_all(self, to: str, letters: Sequence[Letter]) -> list[None]:
        """Send several messages to one server."""

    async def show_log(self, to: str) -> None:
        """Show a server of another instance, to which a decision was told, where the log stands behind that.

        Raises nothing: the decision was told in any case.
        """


class Parcels:
    """One member's sealed parcels.

    Args:
        log_shown_to: where the log stands, signed, for servers of other instances; empty for others.
    """

    def __init__(
        self,
        sealer: Sealer,
        directory: Directory,
        link: LinkService,
        clock: Clock,
        log_shown_to: Callable[[str], str],
    ) -> None:
        self._sealer: Final = sealer
        self._directory: Final = directory
        self._link: Final = link
        self._clock: Final = clock
        self._log_shown_to: Final = log_shown_to
        self._posting: FifoTable[str, Batcher[Letter, None]] = FifoTable(MAX_POSTING)
        # What was shown last to servers of other instances.
        self._shown: LruTable[str, str] = LruTable(MAX_POSTING)

    async def open_untrusted(self, parcel: Parcel, until_ns: int | None = None) -> list[OpenedMessage]:
        """Check and open a parcel for this server; what is in it: one message, or those of a batch.

        `until_ns` is until when its sender waits for an answer (monotonic), if that is known.

        Raises:
            NobodyWaits: that time is over.
            UnknownSender: it is not registered with its home instance, or not any more.
            MessageError: anything about the parcel is wrong.
            NoQuorum, PeerUnreachable: the sender cannot be looked up now; it may repeat.
        """
        try:
            sender, kid = jose.peek_untrusted(parcel.sealed)
        except CryptoError as error:
            raise MessageError(str(error)) from error
        keys = await self._directory.keys_of(sender, kid)
        if keys is None:
            raise UnregisteredSender(f"{sender} is not registered: no keys are known for it")
        now_ns = self._clock.monotonic_ns()
        if until_ns is not None and now_ns >= until_ns:
            raise NobodyWaits(f"{sender} does not wait any more")
        return self._sealer.open_all_untrusted(
            parcel, sender=keys, now_ns=now_ns, now_s=self._clock.unix_s(), until_ns=until_ns
        )

    async def seal(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> Parcel:
        """Seal a message to a server of any instance.

        Raises:
            Refused: it has no keys.
            NoQuorum, PeerUnreachable: its keys cannot be looked up now.
        """
        return self._sealer.seal(
            message,
            trace,
            to=to,
            keys=await self._keys_of(to),
            now_ns=self._clock.monotonic_ns(),
            now_s=self._clock.unix_s(),
            on_path=on_path,
        )

    async def seal_all(self, letters: Sequence[Letter], to: str, *, relayed: bool) -> Parcel:
        """Seal several messages to one server as one parcel, which may go through relays. Raises as `seal`."""
        return self._seal_all(letters, to, await self._keys_of(to), relayed=relayed)

    async def _keys_of(self, to: str) -> PublicIdentity:
        """With which to seal for a server of any instance. Raises as `seal`."""
        keys = await self._directory.keys_of(to)
        if keys is None:
            raise Refused(Reason.NOT_FOUND, f"no keys are known for {to}", name=to)
        return keys

    def _seal_all(self, letters: Sequence[Letter], to: str, keys: PublicIdentity, **how: bool) -> Parcel:
        """Seal several messages to one server as one parcel; `how` as of `Sealer.seal_all`."""
        now_ns, now_s = self._clock.monotonic_ns(), self._clock.unix_s()
        return self._sealer.seal_all(letters, to=to, keys=keys, now_ns=now_ns, now_s=now_s, **how)

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Seal a message to a simulation server and send it over the link, without waiting for an answer.

        What is posted to one server at the same moment travels as one parcel.

        Raises:
            NOT_TOLD: it has no keys or no address, these cannot be looked up now, or it cannot be reached.
        """
        batcher = self._posting.get(to)
        if batcher is None:
            batcher = self._posting[to] = Batcher(partial(self.post_all, to), most=MAX_BATCH)
        await batcher.do(Letter(message, trace, on_path))

    async def post_all(self, to: str, letters: Sequence[Letter]) -> list[None]:
        """Post several messages to one server in as few parcels as they fit. Raises as `post`."""
        waiting, keys = deque(letters), await self._keys_of(to)
        while together := take_batch(waiting):
            await self.post_parcel(self._seal_all(together, to, keys, over_link=True), to)
            self._sealer.get_ready(keys)
            if waiting:
                # A parcel is some milliseconds of work: what has come meanwhile has its turn.
                await trio.lowlevel.checkpoint()
        await self._show_log(to, keys)
        return [None] * len(letters)

    async def show_log(self, to: str) -> None:
        """As `Post.show_log`.

        In a parcel of its own: an earlier release would refuse the others with it.
        """
        await self._show_log(to, None)

    async def _show_log(self, to: str, keys: PublicIdentity | None) -> None:
        position = self._log_shown_to(to)
        if not position or self._shown.get(to) == position:
            return
        letter = Letter(LogShown(position=position), Trace("log-shown"))
        try:
            await self.post_parcel(self._seal_all([letter], to, keys or await self._keys_of(to), over_link=True), to)
        except NOT_TOLD as error:
            _log.info("%s was not shown where the log stands: %s", to, error)
            return
        self._shown[to] = position

    async def post_parcel(self, parcel: Parcel, to: str) -> None:
        """Send a sealed parcel to a simulation server over the link.

        Raises:
            NOT_TOLD: it has no address, this cannot be looked up now, or it cannot be reached.
        """
        row = await self._directory.row(to)
        if row is None or not row.link_port:
            raise Refused(Reason.NOT_FOUND, f"no link address is known for {to}", name=to)
        try:
            self._link.post(to, (row.link_host, row.link_port), encode_link(parcel))
        except (LinkDown, LinkFull) as error:
            raise InstanceUnreachable(f"{to} cannot be reached over the link: {error}") from error
