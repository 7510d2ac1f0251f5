"""One simulation server of `handover_model`: the real machines, and a shell around them as thin as can be."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines import source as outgoing
from batonpass.authority.machines import target as incoming
from batonpass.authority.machines.source import Case, Mode, Outgoing
from batonpass.authority.machines.target import Incoming, Offer, Permission
from batonpass.authority.names import instance_of
from batonpass.authority.procedures import table as procedures
from batonpass.authority.trust.certificates import (
    MAX_CHAIN,
    CommitCertificate,
    DelegationGrant,
    PassCertificate,
    check_chain,
)
from batonpass.authority.trust.certificates import token_hash as hash_of_token
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import (
    Activate,
    Activated,
    Delegation,
    DirectHandoff,
    Grant,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    Message,
    Order,
    Report,
    ReportReply,
    Staged,
    StageDiscard,
    StageState,
    StateTransfer,
)

if TYPE_CHECKING:
    from tests.authority.handover_model import HandoverWorld

ENTITY: Final = "alpha.ball"
HOME: Final = "alpha.h1"
SERVERS: Final = ("alpha.s1", "alpha.s2", "beta.s1")
GROUP: Final = ("alpha.s1", "alpha.s2")
NOBODY: Final = "alpha.s9"
TARGETS: Final = (*SERVERS, NOBODY, HOME)
MASTER: Final = "alpha.ada"
STRANGER: Final = "alpha.bob"
NOISE: Final = "alpha.noise"


class Broken(AssertionError):
    """One of the safety sentences does not hold."""


@dataclass(frozen=True)
class Variant:
    """The parts that a mutation may break."""

    outgoing: type[Outgoing] = Outgoing
    incoming: type[Incoming] = Incoming
    procedures: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: procedures.PROCEDURES)
    given: Callable[[HandoffReply, Fence], Fence] = HandoffReply.given


@dataclass(frozen=True)
class Life:
    """The state of the entity: its tick, and a hash over every tick that was ever simulated, by whom."""

    tick: int = 0
    history: str = ""

    def next(self, server: str) -> "Life":
        return Life(self.tick + 1, hashlib.sha256(f"{self.history}{server}{self.tick}".encode()).hexdigest())

    def encode(self) -> bytes:
        return f"{self.tick}:{self.history}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "Life":
        tick, _, history = data.decode().partition(":")
        return cls(int(tick), history)


@dataclass(frozen=True)
class Envelope:
    """A message under way."""

    sender: str
    to: str
    message: Message


@dataclass
class Holding:
    """`simserver.entity.table.Holding` and the entity's actor in one."""

    fence: Fence
    life: Life
    frozen: bool = False
    chain: tuple[str, ...] = ()
    group: tuple[str, ...] = ()


@dataclass
class Departure:
    """`simserver.transfer.source.departure.Departure`."""

    order: Order
    holding: Holding
    machine: Outgoing
    fence: Fence
    chain: tuple[str, ...] = ()


def _hash(state: bytes) -> str:
    return hashlib.sha256(state).hexdigest()


class ModelServer:
    """One simulation server: what `Departures` and `Arrivals` do, without waiting."""

    def __init__(self, world: "HandoverWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.holding: Holding | None = None
        self.gone: tuple[str, Fence] | None = None
        self.departure: Departure | None = None
        self.incoming = world.variant.incoming()
        self.reports: dict[str, Report] = {}
        self.staged: set[str] = set()

    def take(self, envelope: Envelope) -> None:  # noqa: C901, PLR0912 — one line for each kind of message
        """A message arrives."""
        match envelope.message:
            case Order() as order:
                self.begin(order)
            case HandoffReply() as reply:
                self._replied(reply)
            case Activated() as message:
                departure = self._departure(message.transfer_id)
                if departure is not None and envelope.sender == departure.order.target:
                    self._event(departure, outgoing.PeerActive(message.fence))
            case StateTransfer() as message:
                self._offer(message, message.fence)
            case StageState() as message:
                self._stage(message, envelope.sender)
            case Staged() as message:
                departure = self._departure(message.transfer_id)
                if departure is not None and envelope.sender == departure.order.target:
                    self._event(departure, outgoing.StateStaged())
            case StageDiscard():
                pass
            case Grant(certificate=token) | Activate(certificate=token):
                self._permit(CommitCertificate.from_claims_untrusted(json.loads(token)))
            case DirectHandoff() as message:
                self._direct(message, envelope.sender)
            case Delegation() as message:
                grant = DelegationGrant.from_claims_untrusted(json.loads(message.grant))
                if self.holding is not None and grant.holder == self.name and grant.fence == self.holding.fence:
                    self.holding.chain, self.holding.group = (message.grant,), grant.group
            case ReportReply() as message:
                self.reports.pop(message.transfer_id, None)
            case other:
                raise AssertionError(f"nobody sends {other.type} to a simulation server")

    # --- departures ------------------------------------------------------------------------------------------------

    def begin(self, order: Order) -> None:
        """`Departures.begin`."""
        holding = self.holding
        if holding is None or order.target == self.name or self.departure is not None:
            return
        holding.frozen = True
        direct = order.direct and order.target in holding.group and len(holding.chain) <= MAX_CHAIN
        same = instance_of(self.name) == instance_of(order.entity) == instance_of(order.target)
        case = Case.DIRECT if direct else Case.SAME_HOME if same else Case.DIFFERENT_HOMES
        now_ns = self.world.now_ns
        machine = self.world.variant.outgoing(case, holding.fence, now_ns, mode=Mode(order.mode))
        departure = Departure(order, holding, machine, holding.fence)
        if direct and order.mode == "eager":
            departure.chain = (*holding.chain, self._sign_pass(departure))
        self.departure = departure
        self._perform(departure, departure.machine.start(now_ns))

    def _sign_pass(self, departure: Departure) -> str:
        fence = departure.fence.passed()
        self.world.authority_given(fence, departure.order.target, after=departure.fence)
        certificate = PassCertificate(
            entity=ENTITY,
            epoch=fence.epoch,
            sub=fence.sub,
            transfer_id=departure.order.transfer_id,
            source=self.name,
            target=departure.order.target,
            tick=departure.holding.life.tick,
            state_hash=_hash(departure.holding.life.encode()),
            parent=hash_of_token(departure.holding.chain[-1]),
        )
        return json.dumps(certificate.to_claims())

    def _departure(self, transfer_id: str) -> Departure | None:
        departure = self.departure
        return departure if departure is not None and departure.order.transfer_id == transfer_id else None

    def _replied(self, reply: HandoffReply) -> None:
        departure = self._departure(reply.transfer_id)
        if departure is None:
            return
        event: outgoing.Event
        if reply.outcome == "committed":
            given = self.world.variant.given(reply, departure.machine.leads_to)
            if reply.fence > reply.given(departure.machine.leads_to):
                event = outgoing.PeerActive(given)
            else:
                event = outgoing.TransferCommitted(reply.fence, reply.certificate)
        elif reply.authority != self.name:
            event = outgoing.Lost(reply.authority, reply.fence)
        else:
            event = outgoing.TransferRefused(reply.reason, reply.fence)
        self._event(departure, event)

    def time_passed(self) -> None:
        """The timers of the departure under way, and the repetition of reports."""
        if self.departure is not None:
            self._event(self.departure, outgoing.TimePassed())
        for report in self.reports.values():
            self.world.send(self.name, HOME, report)

    def _event(self, departure: Departure, event: outgoing.Event) -> None:
        self._perform(departure, departure.machine.handle(event, self.world.now_ns))

    def _perform(self, departure: Departure, effects: list[outgoing.Effect]) -> None:  # noqa: C901 — one for each
        target = departure.order.target
        for effect in effects:
            match effect:
                case outgoing.SendStage() | outgoing.AskAbort() | outgoing.SendDiscard():
                    self._perform_staging(departure, effect)
                case outgoing.AskHome():
                    self.world.send(self.name, HOME, self._request(departure))
                case outgoing.SendState():
                    self.world.send(self.name, target, self._state(departure, StateTransfer))
                case outgoing.SendDirect():
                    if not departure.chain:
                        departure.chain = (*departure.holding.chain, self._sign_pass(departure))
                    self.world.send(self.name, target, self._direct_handoff(departure))
                case outgoing.SendActivate(certificate):
                    message = Activate(transfer_id=departure.order.transfer_id, certificate=certificate)
                    self.world.send(self.name, target, message)
                case outgoing.ForwardJournal():
                    pass
                case outgoing.Retire(fence):
                    self._retire(target, fence)
                case outgoing.StepDown(authority, fence):
                    self._retire(authority, fence)
                case outgoing.Resume(fence):
                    self._resume(departure, fence)
                case outgoing.ReportTransfer():
                    self._report(departure)

    def _perform_staging(self, departure: Departure, effect: outgoing.Effect) -> None:
        match effect:
            case outgoing.SendStage():
                self.world.send(self.name, departure.order.target, self._state(departure, StageState))
            case outgoing.AskAbort(reason):
                self.world.send(self.name, HOME, self._abort(departure, reason))
            case _:
                fence, transfer_id = departure.fence, departure.order.transfer_id
                discard = StageDiscard(transfer_id=transfer_id, entity=ENTITY, epoch=fence.epoch, sub=fence.sub)
                self.world.send(self.name, departure.order.target, discard)

    def _request(self, departure: Departure) -> HandoffRequest:
        # With the pass that was signed, if it was: the log must not refuse what cannot be taken back.
        chain = departure.chain or departure.holding.chain
        return HandoffRequest(
            transfer_id=departure.order.transfer_id,
            entity=ENTITY,
            epoch=departure.fence.epoch,
            sub=departure.fence.sub,
            source=self.name,
            target=departure.order.target,
            tick=departure.holding.life.tick,
            state_hash=_hash(departure.holding.life.encode()),
            chain=list(chain) if len(chain) > 1 else [],
        )

    def _abort(self, departure: Departure, reason: str) -> HandoffAbort:
        chain = departure.holding.chain
        return HandoffAbort(
            transfer_id=departure.order.transfer_id,
            entity=ENTITY,
            epoch=departure.fence.epoch,
            sub=departure.fence.sub,
            source=self.name,
            target=departure.order.target,
            reason=reason,
            chain=list(chain) if len(chain) > 1 else [],
        )

    def _state(self, departure: Departure, kind: type[StageState] | type[StateTransfer]) -> StageState | StateTransfer:
        state = departure.holding.life.encode()
        return kind(
            transfer_id=departure.order.transfer_id,
            entity=ENTITY,
            epoch=departure.fence.epoch,
            sub=departure.fence.sub,
            kind="ball",
            tick=departure.holding.life.tick,
            state=state,
            state_hash=_hash(state),
        )

    def _direct_handoff(self, departure: Departure) -> DirectHandoff:
        state, fence = departure.holding.life.encode(), departure.fence.passed()
        return DirectHandoff(
            transfer_id=departure.order.transfer_id,
            entity=ENTITY,
            epoch=fence.epoch,
            sub=fence.sub,
            kind="ball",
            tick=departure.holding.life.tick,
            state=state,
            state_hash=_hash(state),
            chain=list(departure.chain),
        )

    def _retire(self, moved_to: str, fence: Fence) -> None:
        self.holding, self.departure, self.gone = None, None, (moved_to, fence)

    def _resume(self, departure: Departure, fence: Fence) -> None:
        holding = departure.holding
        holding.chain, holding.group = (), ()
        if fence > holding.fence:  # the entity itself takes no other (`Entity._resume`)
            self.world.check(self.world.given.get(fence) == self.name, f"{self.name} resumed under {fence} by itself")
            holding.fence, holding.frozen = fence, False
            self.world.continues_from(self.name, holding)
        self.departure = None

    def _report(self, departure: Departure) -> None:
        transfer_id = departure.order.transfer_id
        report = Report(
            transfer_id=transfer_id,
            entity=ENTITY,
            source=self.name,
            trace=Trace(transfer_id),
            off_path={},
            counters={},
            chain=list(departure.chain),
        )
        self.reports[transfer_id] = report
        self.world.send(self.name, HOME, report)

    # --- arrivals --------------------------------------------------------------------------------------------------

    def _known(self) -> Incoming:
        if self.holding is not None:
            self.incoming.fence_raised(self.holding.fence)
        elif self.gone is not None:
            self.incoming.fence_raised(self.gone[1])
        return self.incoming

    def _stage(self, message: StageState, sender: str) -> None:
        self._offer(message, message.fence)
        self.staged.add(message.state_hash)
        answer = Staged(
            transfer_id=message.transfer_id,
            entity=ENTITY,
            epoch=message.epoch,
            sub=message.sub,
            state_hash=message.state_hash,
        )
        self.world.send(self.name, sender, answer)

    def _offer(self, message: StateTransfer | StageState | DirectHandoff, fence: Fence) -> None:
        offer = Offer(message.transfer_id, fence, message.state_hash, message.kind, message.tick, message.state, 0)
        self._act(self._known().offered(offer))

    def _permit(self, certificate: CommitCertificate) -> None:
        permission = Permission(certificate.transfer_id, certificate.fence, certificate.state_hash, certificate.source)
        self._act(self._known().permitted(permission))

    def _direct(self, message: DirectHandoff, sender: str) -> None:
        grant = DelegationGrant.from_claims_untrusted(json.loads(message.chain[0]))
        passes = [(token, PassCertificate.from_claims_untrusted(json.loads(token))) for token in message.chain[1:]]
        check_chain(grant, message.chain[0], passes)
        last = passes[-1][1]
        self.world.check((last.target, last.source, last.fence) == (self.name, sender, message.fence), "a strange pass")
        self._offer(message, Fence(last.epoch, last.sub - 1))
        effect = self._known().permitted(Permission(last.transfer_id, last.fence, last.state_hash, last.source))
        self._act(effect, tuple(message.chain), grant.group)

    def _act(self, effect: incoming.Effect, chain: tuple[str, ...] = (), group: tuple[str, ...] = ()) -> None:
        match effect:
            case incoming.ActivateOffer(offer, permission):
                self.world.check(_hash(offer.state) == permission.state_hash, "activated from another state")
                is_mine = self.world.given.get(permission.fence) == self.name
                self.world.check(is_mine, f"{self.name} began under {permission.fence}, which nobody gave to it")
                if self.departure is not None:  # `Arrivals._clear_the_way`
                    self._event(self.departure, outgoing.Superseded(permission.fence))
                self.world.check(self.holding is None, "an entity arrived where it still was")
                self.holding, self.gone = Holding(permission.fence, Life.decode(offer.state), False, chain, group), None
                self.world.continues_from(self.name, self.holding)
                self._answer(permission)
            case incoming.AnswerAgain(permission):
                self._answer(permission)
            case incoming.AwaitOtherHalf() | incoming.Drop():
                pass

    def _answer(self, permission: Permission) -> None:
        fence = permission.fence
        answer = Activated(transfer_id=permission.transfer_id, entity=ENTITY, epoch=fence.epoch, sub=fence.sub)
        self.world.send(self.name, permission.source, answer)
