"""Sealing for, and sending to, other servers and players over the link, with keys and addresses looked up on the way.

Nothing here waits for an answer, and nothing fails. What could not be sent is counted, and the machines that asked for
it ask again when their timers run out. So an outbox that is restarted has nothing to recover: what it was about to send
is lost as if on the way.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.link import LARGE_MESSAGE_BYTES
from batonpass.actors.net.endpoint import LinkDown, LinkFull
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.limits import INLINE_STATE_BYTES
from batonpass.authority.wire.batch import BatchQueue, Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import KeyAhead, LinkMessage, Message, encode_link
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.keys import PublicIdentity
from batonpass.simserver.net.door_players import DoorPlayers
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.in_flight import InFlightStates
from batonpass.simserver.net.peer_addresses import MAX_KNOWN_ADDRESSES, PeerAddresses

__all__ = ["Outbox"]

_Destination = tuple[str, tuple[str, int] | None, int]
"""The receiver, its address if that is known better than from the directory, and the channel."""

_log = logging.getLogger("batonpass.simserver.net.outbox")
# States have channels of their own: they do not stand in the way of short messages, nor large states in that of small
# ones. Those that travel beside their message are taken as they arrive, whatever is missing before them.
STATE_CHANNEL = 1
MEDIUM_STATE_CHANNEL = 16
LARGE_STATE_CHANNEL = 17
# After a pause of this length a message to a server leaves at once. What follows waits for the end of the turn. So of
# many that leave together, only the first pays for a seal of its own.
_QUIET_NS = 2_000_000
# The time after a message until the key of the next one is made. Not at once: its receiver may be at work on this core.
_READY_AFTER_S = 0.01


@dataclass(frozen=True, slots=True)
class _Letter(Letter):
    """With the caller to tell when it has left."""

    sent: Callable[[int], None] | None = None


class Outbox:
    """Sends messages in this server's name, while it is served."""

    def __init__(
        self,
        sealer: Sealer,
        home: HomeClient,
        link: LinkService,
        clock: Clock,
        counts: Counter[str],
        peer_addresses: PeerAddresses,
    ) -> None:
        self._sealer = sealer
        self._home = home
        self._link = link
        self._clock = clock
        self._nursery: trio.Nursery | None = None
        self._counts = counts
        self._peer_addresses = peer_addresses
        self.door_players = DoorPlayers()
        """Players that are told by another way than the link."""
        self._outbox = BatchQueue()
        self._sent_ns: LruTable[_Destination, int] = LruTable(MAX_KNOWN_ADDRESSES)
        # Bounded by how many something can be sent to in `_READY_AFTER_S`.
        self._wants_key: set[str] = set()
        self._large = InFlightStates(lambda peer: link.backlog(peer).bytes)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send what there is to send, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            # Messages that an earlier life of this left behind are lost, as if on the way.
            self._outbox = BatchQueue()
            self._wants_key.clear()
            self._large.forget()
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def heard_from(self, peer: str, address: tuple[str, int]) -> None:
        """Remember where an authenticated peer sends from."""
        self._peer_addresses.heard_from(peer, address)

    def doubt(self, peer: str) -> None:
        """It does not answer what it was sent: what comes next goes to where its home has it by now."""
        self._peer_addresses.doubt(peer)

    def send(
        self,
        message: Message,
        trace: Trace,
        to: str,
        *,
        on_path: bool,
        address: tuple[str, int] | None = None,
        sent: Callable[[int], None] | None = None,
        hurry: bool = True,
    ) -> bool:
        """Seal a message and send it, now or after looking up its receiver.

        Messages to one receiver of the same moment leave as one parcel. Without `hurry`, when it is known that more
        comes at this moment, so does the first of them. `sent` is told about how many bytes of it are this message.
        False when it is not sent: it is not served, too much waits, or it is large and on its way.
        """
        if self._nursery is None:
            self._counts["unsent_no_courier"] += 1
            return False
        if len(vars(message).get("state", b"")) > INLINE_STATE_BYTES:
            if self.is_under_way(trace.transfer_id, to):
                # A repetition of tens of megabytes on top of themselves would only make them later.
                self._counts["state_under_way"] += 1
                return False
            self._large.begin(trace.transfer_id, to, len(vars(message).get("state", b"")))
            large = _Letter(message, trace, on_path, sent)
            self._nursery.start_soon(self._carry_large, large, to, address)
            return True
        channel = STATE_CHANNEL if message.type == "state" else 0
        destination, letter = (to, address, channel), _Letter(message, trace, on_path, sent)
        at_once = hurry and self._leaves_at_once(destination, letter)
        if not at_once and self._outbox.is_full(destination):
            self._counts["unsent_too_many"] += 1
            return False
        if not at_once and self._outbox.put(destination, letter):
            self._nursery.start_soon(self._carry, *destination)
        return True

    def _is_quiet(self, destination: _Destination) -> bool:
        """Whether nothing was sent there lately, nor waits."""
        quiet_ns = self._clock.monotonic_ns() - self._sent_ns.get(destination, -_QUIET_NS)
        return quiet_ns >= _QUIET_NS and not self._outbox.holds(destination)

    def _note_sent(self, destination: _Destination, now_ns: int) -> None:
        self._sent_ns[destination] = now_ns

    def _leaves_at_once(self, destination: _Destination, letter: _Letter) -> bool:
        """Send a letter here and now if nothing was sent there lately and nothing has to be looked up."""
        to, address, channel = destination
        if not self._is_quiet(destination):
            return False
        keys, where = self._home.keys_at_hand(to), address or self._peer_addresses.of_server(to)
        if keys is None or where is None:
            return False
        self._note_sent(destination, self._clock.monotonic_ns())
        try:
            self._seal_and_post([letter], to, keys, where, channel)
        except Exception:
            self._went_wrong([letter], to)
        return True

    def is_under_way(self, transfer_id: str, to: str) -> bool:
        """Whether a large state of this transfer has not had its time to arrive there and be read."""
        return self._large.is_under_way(transfer_id, to, self._clock.monotonic_ns())

    def posted_bytes(self, to: str) -> int:
        """What was sent to another server so far."""
        return self._large.posted_bytes(to)

    async def _carry_large(self, letter: _Letter, to: str, address: tuple[str, int] | None) -> None:
        before = self._large.posted_bytes(to)
        is_large = len(letter.message.state) > LARGE_MESSAGE_BYTES // 2
        await self._guarded([letter], to, address, LARGE_STATE_CHANNEL if is_large else MEDIUM_STATE_CHANNEL)
        # Other messages may have been posted beside it, but not so large ones.
        is_lost = self._large.posted_bytes(to) - before < len(letter.message.state)
        self._large.posted(letter.trace.transfer_id, to, is_lost=is_lost)

    async def _carry(self, to: str, address: tuple[str, int] | None, channel: int) -> None:
        """Take what waits for one receiver, parcel by parcel, until nothing is left."""
        destination = (to, address, channel)
        while letters := self._outbox.take(destination):
            await self._guarded(letters, to, address, channel)
            # A parcel is a millisecond of work or more; what is opened meanwhile answers, and joins the next.
            await trio.lowlevel.checkpoint()

    async def _guarded(self, letters: Sequence[Letter], to: str, address: tuple[str, int] | None, channel: int) -> None:
        try:
            await self._look_up_and_post(letters, to, address, channel)
        except Exception:
            self._went_wrong(letters, to)

    def _went_wrong(self, letters: Sequence[Letter], to: str) -> None:
        """As if it had been lost on the way; people find it in the log and the counter."""
        self._counts["internal_error"] += 1
        _log.exception("sending %s to %s ran into an error of ours", letters[0].message.type, to)

    async def _look_up_and_post(
        self, letters: Sequence[Letter], to: str, address: tuple[str, int] | None, channel: int
    ) -> None:
        try:
            keys = await self._home.keys_of(to)
            where = address or self._peer_addresses.of_server(to) or await self._address(to)
        except (HomeUnreachable, HomeRefused) as error:
            self._counts["unsent_no_address"] += len(letters)
            _log.info("cannot send %s to %s now: %s", letters[0].message.type, to, error)
            return
        if keys is None or where is None:
            self._counts["unsent_unknown_peer"] += len(letters)
            _log.info("cannot send %s to %s: its keys or address are not known", letters[0].message.type, to)
            return
        self._sent_ns[to, address, channel] = self._clock.monotonic_ns()
        self._seal_and_post(letters, to, keys, where, channel)

    def _seal_and_post(
        self, letters: Sequence[Letter], to: str, keys: PublicIdentity, where: tuple[str, int], channel: int
    ) -> None:
        parcel = self._sealer.seal_all(
            letters, to=to, keys=keys, now_ns=self._clock.monotonic_ns(), now_s=self._clock.unix_s(), over_link=True
        )
        self._post(to, where, encode_link(parcel), channel)
        self._get_ready_for(to)
        for letter in letters:
            if isinstance(letter, _Letter) and letter.sent is not None:
                letter.sent(parcel.size_bytes // len(letters))

    def _get_ready_for(self, to: str) -> None:
        """See to it that there is a key for the next message to this receiver, if that does not come at once."""
        if not self._wants_key and self._nursery is not None:
            self._nursery.start_soon(self._get_ready_later)
        self._wants_key.add(to)

    async def _get_ready_later(self) -> None:
        await self._clock.sleep_s(_READY_AFTER_S)
        while self._wants_key:
            name = self._wants_key.pop()
            keys = self._home.keys_at_hand(name)
            if keys is not None:
                self._tell_ahead(name, self._sealer.get_ready(keys))
            # A tenth of a millisecond each: what arrives meanwhile has its turn.
            await trio.lowlevel.checkpoint()

    def _tell_ahead(self, name: str, header: bytes) -> None:
        """Have a receiver agree on the key of the next message, too, unless messages to it are many."""
        where = self._peer_addresses.of_server(name)
        if header and where is not None and self._sealer.agrees_ahead(name) and self._is_quiet((name, None, 0)):
            self._post(name, where, encode_link(KeyAhead(header=header)), 0)

    async def _address(self, name: str) -> tuple[str, int] | None:
        try:
            row = await self._home.row(name)
        except (HomeUnreachable, HomeRefused):
            # It is not known that a silent server is elsewhere now; it may be back where it was.
            if (last := self._peer_addresses.last_of(name)) is None:
                raise
            return last
        return (row.link_host, row.link_port) if row is not None and row.link_port else None

    def tell_player(self, player: str, message: LinkMessage) -> None:
        """Send a bare player message by the door, or to where the player last sent from; unknown players miss it."""
        if self.door_players.tell(player, message):
            return
        where = self._peer_addresses.last_of(player)
        if where is None:
            self._counts["unsent_unknown_player"] += 1
            return
        self._post(player, where, encode_link(message), 0)

    def _post(self, to: str, where: tuple[str, int], data: bytes, channel: int) -> None:
        try:
            self._link.post(to, where, data, channel=channel)
            self._large.count(to, len(data))
        except (LinkDown, LinkFull) as error:
            self._counts["unsent_link"] += 1
            # It may have moved: look its address up again next time.
            self._peer_addresses.forget(to)
            _log.info("cannot send to %s over the link: %s", to, error)
