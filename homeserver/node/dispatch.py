"""One homeserver's parts, wired by `homeserver.server.main`, and the link's inbox."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final, TypeVar

import trio

from batonpass.actors.base.clock import InstanceClock
from batonpass.actors.core.system import System
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.net.endpoint import Received
from batonpass.actors.net.key_service import KeyService
from batonpass.actors.net.link_service import LinkService
from batonpass.actors.net.taking import take_each
from batonpass.actors.supervision.application import LastWord
from batonpass.authority.errors import MessageError, Refused, UnknownSender
from batonpass.authority.model.records import Role
from batonpass.authority.node.rejected_peers import Audit
from batonpass.authority.node.spans import Spans
from batonpass.authority.wire.sealing import Opened, Sealer
from batonpass.authority.wire.transfer import (
    Adopted,
    Census,
    Collected,
    Despawned,
    HandoffAbort,
    HandoffRequest,
    LoadReport,
    NoAnswer,
    Parcel,
    Spawned,
    StandingWord,
    decode_link_untrusted,
)
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.errors import CryptoError
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.failover.clocks import Clocks
from batonpass.homeserver.failover.foreign_custody import Abroad
from batonpass.homeserver.failover.leases import Leases
from batonpass.homeserver.failover.log_witness import LogInquiries
from batonpass.homeserver.failover.renewal_lane import RenewalLane
from batonpass.homeserver.failover.takeover import Recoveries
from batonpass.homeserver.log.backend import BackendService
from batonpass.homeserver.log.log_identity import LogKinship
from batonpass.homeserver.log.store import Store
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation, PeerUnreachable
from batonpass.homeserver.names.key_reset import Vouching
from batonpass.homeserver.node.standings import Standings
from batonpass.homeserver.placement.balancer import Balancer
from batonpass.homeserver.transfer.creation import Births
from batonpass.homeserver.transfer.deletion_notices import Farewells
from batonpass.homeserver.transfer.grant_retry import Reminders
from batonpass.homeserver.transfer.group_result import GroupNews
from batonpass.homeserver.transfer.hierarchies import Hierarchies
from batonpass.homeserver.transfer.master_questions import Questions
from batonpass.homeserver.transfer.order_retry import Orders
from batonpass.homeserver.transfer.owners import Owners
from batonpass.homeserver.transfer.rate_limit import RequestGate
from batonpass.homeserver.transfer.service import Transfers
from batonpass.tree.member.backend import Backend
from batonpass.tree.net.roster import WRONG_MACHINE
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["BeingAnswered", "Node", "Secrets"]

T = TypeVar("T")

_log = logging.getLogger("batonpass.homeserver")

# Requests over the link that are being decided at one time; more wait in the link's inbox, whose credit then stops.
MAX_CONCURRENT_REQUESTS: Final = 256
# Peers that are not registered, and of which the log has spoken.
MAX_STRANGERS: Final = 1024


@dataclass(frozen=True)
class Secrets:
    """The shared secrets that a homeserver holds; never printed."""

    join_token: bytes = field(repr=False)
    client_token: bytes = field(repr=False)
    federation: bytes = field(repr=False)
    operator_token: bytes | None = field(repr=False, default=None)


class BeingAnswered:
    """The requests about hand-overs that came over the link and are being answered: repetitions need no answer.

    A server that asks over the link repeats what is not answered in time, while it may be worked on, or have to wait.
    """

    def __init__(self) -> None:
        self._keys: Final[set[tuple[str, str, str]]] = set()

    @contextmanager
    def those_of(self, opened: Sequence[Opened]) -> Iterator[list[Opened]]:
        """Around the answering of a parcel: those of it that are not being answered yet."""
        new: list[Opened] = []
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


@dataclass
class Node:
    """Everything that the REST routes and the link's inbox need."""

    config: HomeserverConfig
    secrets: Secrets
    clock: InstanceClock
    sealer: Sealer
    backend: BackendService
    store: Store
    federation: Federation
    directory: Directory
    transfers: Transfers
    link: LinkService
    keys: KeyService
    leases: Leases
    last_word: LastWord = field(default_factory=LastWord)
    system: System = field(init=False, repr=False)
    vouching: Vouching = field(init=False, repr=False)
    renewals: RenewalLane = field(init=False, repr=False)
    registered: bool = False
    dropped: dict[str, int] = field(default_factory=dict)
    balancer: Balancer = field(init=False, repr=False)
    standings: Standings = field(init=False, repr=False)
    hierarchies: Hierarchies = field(init=False, repr=False)
    owners: Owners = field(init=False, repr=False)
    recoveries: Recoveries = field(init=False, repr=False)
    reminders: Reminders = field(init=False, repr=False)
    births: Births = field(init=False, repr=False)
    request_gate: RequestGate = field(init=False, repr=False)
    questions: Questions = field(init=False, repr=False)
    farewells: Farewells = field(init=False, repr=False)
    orders: Orders = field(init=False, repr=False)
    group_news: GroupNews = field(init=False, repr=False)
    abroad: Abroad = field(init=False, repr=False)
    log_inquiries: LogInquiries = field(init=False, repr=False)
    kinship: LogKinship = field(init=False, repr=False)
    clocks: Clocks = field(init=False, repr=False)
    audit: Audit = field(default_factory=Audit)
    telemetry: Telemetry = field(init=False, repr=False)
    spans: Spans = field(init=False, repr=False)
    _strangers: FifoTable[str, None] = field(default_factory=lambda: FifoTable(MAX_STRANGERS))
    _answering: BeingAnswered = field(default_factory=BeingAnswered)

    def __post_init__(self) -> None:
        self.renewals = RenewalLane(self.link, self.store, self.transfers, self.leases, self._renewal_dropped)
        self.request_gate = RequestGate(self.store, self.clock)
        self.questions = Questions(self.store, lambda: self.replica, self.clock)
        self.births = Births(self.store, self.transfers.post, self.clock)
        self.vouching = Vouching(self.sealer, self.store)
        # The balancer is wired later.
        self.standings = Standings(
            self.store,
            self.transfers.post,
            lambda server: self.balancer.report(server),  # noqa: PLW0108
            self.config.instance,
        )

    @property
    def replica(self) -> Backend:
        """The backend of this moment; see `BackendService`."""
        return self.backend.current

    async def in_turn(self, work: Callable[[], T]) -> T:
        """What this long work gives, while nobody else does any; see `Backend.long_work`."""
        async with self.replica.long_work:
            return work()

    @property
    def leads(self) -> bool:
        """Whether this member leads its instance, as far as it knows."""
        return self.replica.status.leader == self.config.name

    def drop(self, reason: str) -> None:
        """Count a message that was dropped; there is no answer over the link."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

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
            self._failed,
            at_most=MAX_CONCURRENT_REQUESTS,
        )
        # The link has ended: what restarts it, restarts this.
        await trio.sleep_forever()

    async def _take(self, received: Received) -> None:
        await self._take_untrusted(received)
        self._strangers.pop(received.peer, None)

    def _failed(self, received: Received, error: Exception) -> None:
        """What taking a message has raised: it is a bad one, cannot be decided now, or ran into an error of ours."""
        if isinstance(error, UnknownSender):
            self._stranger(received.peer, error)
        elif isinstance(error, MessageError | CryptoError):
            self.drop("bad_message")
            self.audit.dropped(received.peer, error, self.clock.monotonic_ns())
        elif isinstance(error, Refused | PeerUnreachable | NoQuorum | OutcomeUnknown):
            # The sender repeats its request; over the link, silence is the answer to what could not be decided.
            self.drop("undecided")
            _log.info("could not decide a message of %s: %s", received.peer, error)
        else:
            # One message of one peer must not take the server down with it; people find it in the log and the counter.
            self.drop("internal_error")
            # It may come again at once: with the traceback one in a minute of each peer is told of.
            if self.audit.dropped(received.peer, error, self.clock.monotonic_ns()):
                _log.error("a message of %s ran into an error of ours", received.peer, exc_info=error)

    def _renewal_dropped(self, peer: str, error: Exception) -> None:
        if isinstance(error, UnknownSender):
            self._stranger(peer, error)
        elif isinstance(error, MessageError):
            self.drop("bad_message")
            self.audit.dropped(peer, error, self.clock.monotonic_ns())
        else:
            self.drop("undecided")

    def _stranger(self, peer: str, error: UnknownSender) -> None:
        """People are told once of a server that was removed and runs on: it sends something every second."""
        self.drop("unknown_sender")
        if peer in self._strangers:
            return
        self._strangers[peer] = None
        _log.warning("what %s sends is dropped from now on: %s; stop it if it was removed", peer, error)

    async def _take_untrusted(self, received: Received) -> None:
        parcel = decode_link_untrusted(received.message)
        if not isinstance(parcel, Parcel):
            raise MessageError(f"a homeserver takes no {parcel.type} over the link")
        # Before anybody is asked for keys: a peer can name whom it likes.
        _check_peer(jose.peek_sender_untrusted(parcel.sealed), received)
        opened = await self.transfers.open_untrusted(parcel)
        sender = opened[0].sender
        _check_peer(sender, received)
        asked = [one for one in opened if not self._noted(one)]
        with self._answering.those_of(asked) as new:
            for _ in range(len(asked) - len(new)):
                # Over the link the answer to the first one answers all.
                self.drop("being_answered")
            if len(new) > 1:
                # Over the link, silence is the answer to what has none.
                replies = [one for one in await self.transfers.replies(new) if not isinstance(one.message, NoAnswer)]
                await self.transfers.post_all(sender, replies)
            elif new and (answer := await self.transfers.answer(new)) is not None:
                await self.transfers.post_parcel(answer, sender)

    def _noted(self, opened: Opened) -> bool:
        """Take what wants no answer; whether it was that."""
        match opened.message:
            case Spawned() as message:
                if not self.births.spawned(message, opened.sender):
                    self.drop("unexpected_spawned")
            case Despawned() as message:
                self.farewells.heard(message, opened.sender)
            case Collected() as message:
                # Of whichever instance: it must be one that was asked.
                self.recoveries.collected(message, opened.sender)
            case Adopted() as message:
                self.recoveries.adopted(message, opened.sender)
            case LoadReport() as message if self._is_ours(opened.sender):
                self.balancer.reported(opened.sender, message.load, message.still)
            case StandingWord() as message:
                # Of whichever instance: it must be one that was asked.
                if not self.standings.heard(message, opened.sender):
                    self.drop("unexpected_standing")
            case Census() as message if self._is_ours(opened.sender):
                self.balancer.took_census(opened.sender, message)
            case _:
                return False
        return True

    def _is_ours(self, sender: str) -> bool:
        """Whether the sender is a simulation server of this instance, as far as this member knows."""
        row = self.store.row(sender)
        return row is not None and row.role is Role.SIMSERVER


def _check_peer(sender: str, received: Received) -> None:
    if sender != received.peer:
        raise MessageError(f"sealed by {sender}, not by the peer that sent it")
