"""The parts of a homeserver, and how they are wired: once, for servers that run and for those that are simulated.

What a homeserver stands on (`HomeserverPorts`) is given: its log, its way to servers and to other instances, time.
Everything that decides is made here. `homeserver.server.main` has the ports of a server that runs, which are sockets,
files and clocks; the simulation of the servers has others.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from batonpass.authority.machines.lease import Granter, LeaseTerms
from batonpass.authority.node.spans import Spans
from batonpass.authority.placement.policy import Balance, Policy
from batonpass.authority.wire.queries import HeldInquiry, LogInquiry
from batonpass.authority.wire.regions import RegionReport
from batonpass.authority.wire.sealing import OpenedMessage, unheard
from batonpass.authority.wire.senders import HOMESERVER_SENDERS
from batonpass.authority.wire.transfer import (
    Adopted,
    AuthorityRequest,
    Census,
    Collected,
    Despawned,
    LoadReport,
    OwnerRequest,
    Spawned,
    StandingWord,
)
from batonpass.homeserver.failover.foreign_custody import ForeignCustody
from batonpass.homeserver.failover.leases import Leases, Starter
from batonpass.homeserver.failover.log_witness import LogWitnesses, Witnesses
from batonpass.homeserver.failover.outcome_queries import OutcomeQueries
from batonpass.homeserver.failover.takeover import Takeovers
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.admission import PATIENCE_S
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.node.standings import StandingQuestions
from batonpass.homeserver.placement.balancer import Balancer
from batonpass.homeserver.placement.region_balance import RegionBalance
from batonpass.homeserver.placement.regions import RegionNews
from batonpass.homeserver.transfer.batch import Batches
from batonpass.homeserver.transfer.certificates import CertificateChains, Certification
from batonpass.homeserver.transfer.creation import EntityCreation
from batonpass.homeserver.transfer.decided import Listeners
from batonpass.homeserver.transfer.deletion_notices import DeletionNotices
from batonpass.homeserver.transfer.grant_retry import GrantRetry
from batonpass.homeserver.transfer.group_result import GroupAnswers, GroupResults
from batonpass.homeserver.transfer.hierarchies import Hierarchies
from batonpass.homeserver.transfer.move_queue import MoveQueues
from batonpass.homeserver.transfer.notices import TransferNotices
from batonpass.homeserver.transfer.order import Ordering
from batonpass.homeserver.transfer.order_retry import OrderRetry
from batonpass.homeserver.transfer.owners import OwnerAnswers
from batonpass.homeserver.transfer.ownership_check import OwnershipCheck
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.homeserver.transfer.service import Transfers
from batonpass.homeserver.transfer.spans import DecisionSpans
from batonpass.homeserver.transfer.waiting_group import WaitingRequests
from batonpass.homeserver.transfer.whereabouts import AuthorityAnswers

__all__ = ["RENEW_AFTER", "DecisionSettings", "Kinds", "Loop", "Parts", "build"]

RENEW_AFTER: Final = 4
"""A chain of this number of direct passes is replaced by a new grant."""

Loop = Callable[[Starter], Coroutine[Any, Any, None]]
"""What a part does until it is cancelled; what takes time it starts beside that."""


@dataclass(frozen=True)
class DecisionSettings:
    """What operators decide, and how patient a homeserver is.

    Args:
        balancing: whether entities are moved away from busy servers.
        new_id: names transfers that the balancer wants.
        renew_after: see `Batches`.
        patience_s: how long another instance may be silent about one of its servers before a transfer is refused.
    """

    lease_term_s: float
    balance: Balance
    policy: Policy
    balancing: bool
    new_id: Callable[[], str]
    renew_after: int = RENEW_AFTER
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class Kinds:
    """Of what classes a homeserver is made; those that lack a guard show what a test of that guard finds."""

    certification: type[Certification] = Certification
    granter: type[Granter] = Granter
    takeovers: type[Takeovers] = Takeovers
    deletion_notices: type[DeletionNotices] = DeletionNotices


@dataclass(kw_only=True)
class Parts:
    """A homeserver, whatever it stands on."""

    instance: str
    store: InstanceStore
    federation: Federation
    directory: Directory
    spans: Spans
    certificates: Certification
    transfers: Transfers
    notices: TransferNotices
    orders: OrderRetry
    moves: MoveQueues
    waiting: WaitingRequests
    leases: Leases
    takeovers: Takeovers
    abroad: ForeignCustody
    log_witnesses: LogWitnesses
    grant_retry: GrantRetry
    deletion_notices: DeletionNotices
    group_results: GroupResults
    births: EntityCreation
    owners: OwnerAnswers
    balancer: Balancer
    regions: RegionNews
    region_balance: RegionBalance
    hierarchies: Hierarchies
    standings: StandingQuestions

    def loops(self) -> Mapping[str, tuple[Loop, ...]]:
        """What has to run for as long as the server does, by what is restarted together."""
        return {
            "leases": (self.leases.look_around,),
            # What others left behind: entities, what was handed over, ordered, waits for a group, or has ended.
            "recoveries": (
                _alone(self.takeovers),
                _alone(self.grant_retry),
                _alone(self.orders),
                _alone(self.moves),
                _alone(self.group_results),
                _alone(self.deletion_notices),
            ),
            # What other instances have of this one, and where they are.
            "abroad": (self.abroad.look_around, self.log_witnesses.look_around),
            # What moves entities for the system's own reasons, and keeps hierarchies together at that.
            "balancer": (
                _alone(self.hierarchies),
                _alone(self.balancer),
                _alone(self.regions),
                _alone(self.region_balance),
            ),
        }

    def took(self, opened: OpenedMessage, drop: Callable[[str], None]) -> bool:
        """Take a message that wants no answer; whether it was one. `drop` counts those that no task waits for.

        Raises:
            MessageError: its sender may not say that.
        """
        sender = opened.sender
        if isinstance(opened.message, LoadReport | Census | RegionReport):
            row = self.store.row(sender)
            HOMESERVER_SENDERS.check_role(opened.message, sender, self.instance, None if row is None else row.role)
        match opened.message:
            case Spawned() as message:
                if not self.births.spawned(message, sender):
                    drop("unexpected_spawned")
            case Despawned() as message:
                self.deletion_notices.heard(message, sender)
            case Collected() as message:
                # Of whichever instance: it must be one that was asked.
                self.takeovers.collected(message, sender)
            case Adopted() as message:
                self.takeovers.adopted(message, sender)
            case LoadReport() as message:
                self.balancer.reported(sender, message.load, message.still)
            case RegionReport() as message:
                self.regions.reported(sender, message)
            case StandingWord() as message:
                # Of whichever instance: it must be one that was asked.
                if not self.standings.heard(message, sender):
                    drop("unexpected_standing")
            case Census() as message:
                self.balancer.took_census(sender, message)
            case _:
                return False
        return True


class _Served(Protocol):
    async def serve(self) -> None:
        """Until it is cancelled."""


def _alone(part: _Served) -> Loop:
    """What a part does by itself, beside which it starts nothing."""

    async def loop(_: Starter) -> None:
        await part.serve()

    return loop


def build(ports: HomeserverPorts, settings: DecisionSettings, kinds: Kinds = Kinds()) -> Parts:  # it is frozen
    """Wire the parts of one homeserver; nothing runs yet. Each is made of those before it."""
    store, directory, federation, clock = ports.store, ports.directory, ports.federation, ports.clock
    post, spans, positions, instance = ports.post, ports.spans, ports.positions, ports.instance
    ports.sealer.bind(log_for=positions.place_for, heard_log=unheard)
    granter = kinds.granter(LeaseTerms(round(settings.lease_term_s * 1e9)))

    def in_office() -> bool:
        return granter.office > 0

    takeovers = kinds.takeovers(store, post.post, clock, in_office, spans)
    witnesses = Witnesses(lambda other: federation.hops_to(other) is not None)
    leases = Leases(
        ports.name,
        store,
        clock,
        granter,
        ports.leads_log,
        takeovers.sweep,
        positions,
        witnesses.told,
        ports.is_better_elsewhere,
    )
    certificates = kinds.certification(ports.sealer, directory, clock)
    chains = CertificateChains(certificates, store, lambda entity: takeovers.begun([entity]))
    notices = TransferNotices(store, post, certificates, chains)
    orders = OrderRetry(store, Ordering(store, post, clock), clock, in_office)
    news = RegionNews(store, post.post, clock, ports.leads)
    balancer = Balancer(
        store,
        post.post,
        clock,
        leads=ports.leads,
        balance=settings.balance,
        policy=settings.policy,
        balancing=settings.balancing,
        new_id=settings.new_id,
        is_silent=federation.is_silent,
        is_handed_back=takeovers.hands_back,
        follows_regions=news.follows,
    )
    hierarchies = Hierarchies(instance, store, federation, orders.order_each, clock, balancer.is_passed_on)
    listeners = Listeners(balancer.moved, hierarchies.refused)
    abroad = ForeignCustody(instance, store, federation, post, certificates, takeovers, clock, in_office)
    log_witnesses = LogWitnesses(
        store,
        directory,
        federation,
        positions,
        witnesses,
        lambda: None if in_office() else store.lease_office().holder,
        leases.prove_went_back,
        clock,
    )
    held = OwnershipCheck(store, federation, positions, instance, leases.prove_went_back)
    owners = OwnerAnswers(instance, store, directory, federation, notices)
    inquiries = OutcomeQueries(store, directory, federation, abroad, certificates, notices, takeovers.begun, instance)
    waiting, decisions = WaitingRequests(clock.bell()), DecisionSpans(spans)
    groups = GroupAnswers(ports, waiting, certificates, decisions, listeners)
    batches = Batches(
        ports, certificates, chains, notices, groups, decisions, settings.renew_after, settings.patience_s
    )
    transfers = Transfers(
        ports,
        batches,
        answers={
            **inquiries.answers,
            AuthorityRequest: AuthorityAnswers(instance, store, federation).answer,
            OwnerRequest: owners.answer,
            LogInquiry: log_witnesses.answer,
            HeldInquiry: held.answer,
        },
        why_undecided=lambda: leases.went_back,
    )
    return Parts(
        instance=instance,
        store=store,
        federation=federation,
        directory=directory,
        spans=spans,
        certificates=certificates,
        transfers=transfers,
        notices=notices,
        orders=orders,
        moves=MoveQueues(store.transfer, orders, clock),
        waiting=waiting,
        leases=leases,
        takeovers=takeovers,
        abroad=abroad,
        log_witnesses=log_witnesses,
        grant_retry=GrantRetry(instance, store, post.post, certificates.commit, clock, in_office),
        deletion_notices=kinds.deletion_notices(store, post.post, clock, in_office),
        group_results=GroupResults(store, waiting, groups.tell, clock),
        births=EntityCreation(store, post.post, clock, ports.gather),
        owners=owners,
        balancer=balancer,
        regions=news,
        region_balance=RegionBalance(store, balancer, news, clock, ports.leads, settings.balance),
        hierarchies=hierarchies,
        standings=StandingQuestions(store, post.post, balancer.report, instance),
    )
