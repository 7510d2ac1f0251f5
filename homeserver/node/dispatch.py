"""One homeserver's parts, wired by `homeserver.server.main`, and the link's inbox."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final, TypeVar

import trio

from batonpass.actors.base.clock import InstanceClock
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.http.door_urls import DoorUrls
from batonpass.actors.http.tokens import TokenGate
from batonpass.actors.net.endpoint import Received
from batonpass.actors.net.key_service import KeyService
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.net.taking import take_each
from batonpass.actors.observe.metrics import TelemetryMetric
from batonpass.actors.supervision.application import LastWord
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    HandoffAbort,
    HandoffRequest,
    NoAnswer,
    Parcel,
    decode_link_untrusted,
)
from batonpass.crypto import jose
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.failover.clocks import Clocks
from batonpass.homeserver.failover.renewal_lane import RenewalResponder
from batonpass.homeserver.log.backend import BackendService
from batonpass.homeserver.log.log_identity import LogIdentity
from batonpass.homeserver.names.key_reset import KeyReset
from batonpass.homeserver.node.asked_servers import AskedServers
from batonpass.homeserver.node.composition import Parts
from batonpass.homeserver.node.drops import Drops
from batonpass.homeserver.transfer.master_questions import Questions
from batonpass.homeserver.transfer.parcels import Parcels
from batonpass.homeserver.transfer.rate_limit import RequestRateLimit
from batonpass.tree.member.backend import Backend
from batonpass.tree.net.roster import WRONG_MACHINE

__all__ = ["BeingAnswered", "HomeserverNode", "Secrets"]

T = TypeVar("T")

# Requests over the link that are being decided at one time; more wait in the link's inbox, whose credit then stops.
MAX_CONCURRENT_REQUESTS: Final = 256


@dataclass(frozen=True)
class Secrets:
    """The shared secrets that a homeserver holds; never printed."""

    join_token: bytes = field(repr=False)
    federation: bytes = field(repr=False)


class BeingAnswered:
    """The requests about hand-overs that came over the link and are being answered: repetitions need no answer.

    A server that asks over the link repeats what is not answered in time, while it may be worked on, or have to wait.
    """

    def __init__(self) -> None:
        self._keys: Final[set[tuple[str, str, str]]] = set()

    @contextmanager
    def those_of(self, opened: Sequence[OpenedMessage]) -> Iterator[list[OpenedMessage]]:
        """Around the answering of a parcel: those of it that are not being answered yet."""
        new: list[OpenedMessage] = []
        keys: list[tuple[str, str, str]] = []
        for one in opened:
            if isinstance(one.message, HandoffRequest | HandoffAbort):
                key = (one.sender, one.message.type, one.message.transfer_id)
                if key in self._keys:
                    continue
                self._keys.add(key)
                keys.append(key)
            new.append(one)
        try:
            yield new
        finally:
            self._keys.difference_update(keys)


@dataclass(kw_only=True)
class HomeserverNode(Parts):
    """A homeserver that runs: its parts, and what the REST routes and the link's inbox need beside them."""

    config: HomeserverConfig
    secrets: Secrets
    tokens: TokenGate
    clock: InstanceClock
    sealer: Sealer
    backend: BackendService
    parcels: Parcels
    link: LinkService
    keys: KeyService
    last_word: LastWord
    telemetry: Telemetry
    metrics: Sequence[TelemetryMetric]
    """What handlers that the configuration names want counted."""
    drops: Drops
    renewals: RenewalResponder
    request_gate: RequestRateLimit
    questions: Questions
    key_reset: KeyReset
    log_identity: LogIdentity
    clocks: Clocks
    doors: DoorUrls
    asked: AskedServers
    """What servers say of themselves, for pages."""
    door_traffic: Callable[[], DoorTraffic] | None = None
    """Of its door for players, once it has one."""
    system: System | None = None
    """Its actors, once all of them have started."""
    registered: bool = False
    _answering: BeingAnswered = field(default_factory=BeingAnswered)

    @property
    def replica(self) -> Backend:
        """The backend of this moment; see `BackendService`."""
        return self.backend.current

    async def in_turn(self, work: Callable[[], T]) -> T:
        """What this long work gives, while no other does any; see `Backend.long_work`."""
        async with self.replica.long_work:
            return work()

    @property
    def leads(self) -> bool:
        """Whether this member leads its instance, as far as it knows."""
        return self.replica.status.leader == self.config.name

    def why_no_leader(self) -> str:
        """A sentence for people: there is none yet, or it is silent, or this member cannot follow it."""
        sentence = f"instance {self.config.instance} has no leader yet"
        if why := self.replica.status.why_no_leader:
            sentence = f"instance {self.config.instance} has no leader that {self.config.name} hears: {why}"
        others = [refusal.sentence for refusal in self.replica.refusals if refusal.code == WRONG_MACHINE]
        return f"{sentence} that this member could follow: {others[-1]}" if others else sentence

    def refusals(self) -> list[dict[str, object]]:
        """Would-be members of the instance's Raft that were refused lately, newest last."""
        return [asdict(refusal) for refusal in self.replica.refusals]

    async def serve_link(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take messages from the link until cancelled; each is decided beside the others."""
        task_status.started()
        await take_each(
            self.link.inbox,
            lambda received: partial(self._take, received),
            self.drops.failed,
            at_most=MAX_CONCURRENT_REQUESTS,
        )
        # The link has ended: what restarts it, restarts this.
        await trio.sleep_forever()

    async def _take(self, received: Received) -> None:
        await self._take_untrusted(received)
        self.drops.known(received.peer)

    async def _take_untrusted(self, received: Received) -> None:
        parcel = decode_link_untrusted(received.message)
        if not isinstance(parcel, Parcel):
            raise MessageError(f"a homeserver takes no {parcel.type} over the link")
        # Before a server is asked for keys: a peer can name whom it likes.
        _check_peer(jose.peek_sender_untrusted(parcel.sealed), received)
        opened = await self.parcels.open_untrusted(parcel)
        sender = opened[0].sender
        _check_peer(sender, received)
        asked = [one for one in opened if not self.took(one, self.drops.drop)]
        with self._answering.those_of(asked) as new:
            for _ in range(len(asked) - len(new)):
                # Over the link the answer to the first one answers all.
                self.drops.drop("being_answered")
            if len(new) > 1:
                # Over the link, silence is the answer to what has none.
                replies = [one for one in await self.transfers.replies(new) if not isinstance(one.message, NoAnswer)]
                await self.parcels.post_all(sender, replies)
            elif new and (answer := await self.answer(new)) is not None:
                await self.parcels.post_parcel(answer, sender)

    async def answer(self, opened: Sequence[OpenedMessage], *, relayed: bool = False) -> Parcel | None:
        """Deal with what was in one parcel; the parcel is the answer to its sender, or None when there is none to give.

        The messages of a batch are dealt with beside each other, and each is answered in its place. The answer may go
        back through relays, if it is `relayed`.

        Raises:
            MessageError: this server does not take such a message from such a sender; never for a batch.
            Refused, PeerUnreachable, NoQuorum, OutcomeUnknown: nothing was decided; the sender may repeat. As above.
        """
        sender = opened[0].sender
        if len(opened) > 1:
            return await self.parcels.seal_all(await self.transfers.replies(opened), sender, relayed=relayed)
        letter = await self.transfers.reply(opened[0])
        if letter is None:
            return None
        return await self.parcels.seal(letter.message, letter.trace, sender, on_path=letter.on_path)


def _check_peer(sender: str, received: Received) -> None:
    if sender != received.peer:
        raise MessageError(f"sealed by {sender}, not by the peer that sent it")
