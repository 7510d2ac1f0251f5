"""One homeserver's parts, wired by `homeserver.app`, and the link's inbox."""

import logging
from dataclasses import asdict, dataclass, field
from typing import Final

import trio

from actors.application import LastWord
from actors.clock import Clock
from actors.key_service import KeyService
from actors.link_service import LinkService
from actors.system import System
from actors.telemetry import Telemetry
from actors.udp import Received
from authority.audit import Audit
from authority.errors import MessageError, Refused, UnknownSender
from authority.lease_messages import Renew
from authority.messages import (
    Adopted,
    Census,
    Collected,
    Despawned,
    LoadReport,
    NoAnswer,
    Parcel,
    Spawned,
    StandingWord,
    decode_link_untrusted,
)
from authority.records import Role
from authority.sealing import Opened, Sealer
from authority.spans import Spans
from homeserver.abroad import Abroad
from homeserver.backend import BackendService
from homeserver.balancer import Balancer
from homeserver.births import Births
from homeserver.config import HomeserverConfig
from homeserver.directory import Directory
from homeserver.farewells import Farewells
from homeserver.federation import Federation, PeerUnreachable
from homeserver.group_news import GroupNews
from homeserver.hierarchies import Hierarchies
from homeserver.leases import Leases
from homeserver.log_inquiries import LogInquiries
from homeserver.log_kinship import LogKinship
from homeserver.orders import Orders
from homeserver.owners import Owners
from homeserver.questions import Questions
from homeserver.recovery import Recoveries
from homeserver.reminders import Reminders
from homeserver.request_gate import RequestGate
from homeserver.standings import Standings
from homeserver.store import Store
from homeserver.transfers import Transfers
from homeserver.vouching import Vouching
from tree.backend import Backend
from tree.roster import WRONG_MACHINE
from tree.submissions import NoQuorum, OutcomeUnknown

__all__ = ["Node", "Secrets"]

_log = logging.getLogger("homeserver")

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


@dataclass
class Node:
    """Everything that the REST routes and the link's inbox need."""

    config: HomeserverConfig
    secrets: Secrets
    clock: Clock
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
    audit: Audit = field(default_factory=Audit)
    telemetry: Telemetry = field(init=False, repr=False)
    spans: Spans = field(init=False, repr=False)
    _strangers: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.transfers.answer_by(Renew, self.leases.renewed)
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

    @property
    def leads(self) -> bool:
        """Whether this member leads its instance, as far as it knows."""
        return self.replica.status.leader == self.config.name

    def drop(self, reason: str) -> None:
        """Count a message that was dropped; there is no answer over the link."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def why_no_leader(self) -> str:
        """A sentence for people: there is none yet, or there may be one that this member cannot follow."""
        sentence = f"instance {self.config.instance} has no leader yet"
        others = [refusal.sentence for refusal in self.replica.refusals if refusal.code == WRONG_MACHINE]
        return f"{sentence} that this member could follow: {others[-1]}" if others else sentence

    def refusals(self) -> list[dict[str, object]]:
        """Would-be members of the instance's Raft that were refused lately, newest last."""
        return [asdict(refusal) for refusal in self.replica.refusals]

    async def serve_link(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take messages from the link until cancelled; each is decided beside the others."""
        limit = trio.CapacityLimiter(MAX_CONCURRENT_REQUESTS)
        task_status.started()
        async with trio.open_nursery() as nursery:
            async for received in self.link.inbox:
                await limit.acquire_on_behalf_of(received)
                nursery.start_soon(self._take, received, limit)
            # The link has ended: whoever restarts it, restarts this.
            await trio.sleep_forever()

    async def _take(self, received: Received, limit: trio.CapacityLimiter) -> None:
        try:
            await self._take_untrusted(received)
            self._strangers.discard(received.peer)
        except UnknownSender as error:
            self._stranger(received.peer, error)
        except MessageError as error:
            self.drop("bad_message")
            self.audit.dropped(received.peer, error, self.clock.monotonic_ns())
        except (Refused, PeerUnreachable, NoQuorum, OutcomeUnknown) as error:
            # The sender repeats its request; over the link, silence is the answer to what could not be decided.
            self.drop("undecided")
            _log.info("could not decide a message of %s: %s", received.peer, error)
        except Exception:
            # One message of one peer must not take the server down with it; people find it in the log and the counter.
            self.drop("internal_error")
            _log.exception("a message of %s ran into an error of ours", received.peer)
        finally:
            limit.release_on_behalf_of(received)

    def _stranger(self, peer: str, error: UnknownSender) -> None:
        """People are told once of a server that was removed and runs on: it sends something every second."""
        self.drop("unknown_sender")
        if peer in self._strangers:
            return
        if len(self._strangers) >= MAX_STRANGERS:
            self._strangers.clear()
        self._strangers.add(peer)
        _log.warning("what %s sends is dropped from now on: %s; stop it if it was removed", peer, error)

    async def _take_untrusted(self, received: Received) -> None:
        parcel = decode_link_untrusted(received.message)
        if not isinstance(parcel, Parcel):
            raise MessageError(f"a homeserver takes no {parcel.type} over the link")
        opened = await self.transfers.open_untrusted(parcel)
        sender = opened[0].sender
        if sender != received.peer:
            raise MessageError(f"sealed by {sender}, not by the peer that sent it")
        asked = [one for one in opened if not self._noted(one)]
        if len(asked) > 1:
            # Over the link, silence is the answer to what has none.
            replies = [one for one in await self.transfers.replies(asked) if not isinstance(one.message, NoAnswer)]
            await self.transfers.post_all(sender, replies)
        elif asked and (answer := await self.transfers.answer(asked)) is not None:
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
                self.balancer.reported(opened.sender, message.load)
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
