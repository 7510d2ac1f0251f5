"""Three simulation servers, one log and a network that does what it likes, around the real machines and procedures.

Real: `Outgoing`, `Incoming`, the procedures, the messages, the certificates and the rules of chains. Modelled: the log
(a dictionary), the network (a list from which anything may be taken in any order, twice or never), the clock (a
number), signatures (a certificate's token is its JSON), and, as thinly as they are, the shells `simserver.departures`,
`simserver.arrivals` and `homeserver.transfers`.

`HandoverWorld` raises `Broken` the moment one of the safety sentences of the architecture stops being true.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from unittest import mock

from authority import incoming, outgoing, procedures, transfer_rows
from authority.certificates import MAX_CHAIN, CommitCertificate, DelegationGrant, PassCertificate, check_chain
from authority.certificates import token_hash as hash_of_token
from authority.epoch import Fence
from authority.errors import Reason, Refused
from authority.incoming import Incoming, Offer, Permission
from authority.messages import (
    Activate,
    Activated,
    Delegation,
    DirectHandoff,
    Grant,
    HandoffReply,
    HandoffRequest,
    Message,
    Order,
    Report,
    ReportReply,
    StateTransfer,
)
from authority.names import instance_of
from authority.outgoing import Case, Outgoing
from authority.records import EntityRecord, Outcome, Phase, Role, TransferRecord
from authority.rules import Rule
from tests.authority.rows import DictRows, directory_row

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
    """`simserver.holdings.Holding` and the entity's actor in one."""

    fence: Fence
    life: Life
    frozen: bool = False
    chain: tuple[str, ...] = ()
    group: tuple[str, ...] = ()


@dataclass
class Departure:
    """`simserver.departures._Departure`."""

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

    def take(self, envelope: Envelope) -> None:
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
        departure = Departure(order, holding, self.world.variant.outgoing(case, holding.fence, now_ns), holding.fence)
        if direct:
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
            if reply.fence > departure.fence.raised():
                event = outgoing.PeerActive(reply.fence)
            else:
                event = outgoing.Committed(reply.fence, reply.certificate)
        elif reply.authority != self.name:
            event = outgoing.Lost(reply.authority, reply.fence)
        else:
            event = outgoing.Refusal(reply.reason, reply.fence)
        self._event(departure, event)

    def time_passed(self) -> None:
        """The timers of the departure under way, and the repetition of reports."""
        if self.departure is not None:
            self._event(self.departure, outgoing.Tick())
        for report in self.reports.values():
            self.world.send(self.name, HOME, report)

    def _event(self, departure: Departure, event: outgoing.Event) -> None:
        self._perform(departure, departure.machine.handle(event, self.world.now_ns))

    def _perform(self, departure: Departure, effects: list[outgoing.Effect]) -> None:
        target = departure.order.target
        for effect in effects:
            match effect:
                case outgoing.AskHome():
                    self.world.send(self.name, HOME, self._request(departure))
                case outgoing.SendState():
                    self.world.send(self.name, target, self._state(departure))
                case outgoing.SendDirect():
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
                case outgoing.Report():
                    self._report(departure)

    def _request(self, departure: Departure) -> HandoffRequest:
        chain = departure.holding.chain
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

    def _state(self, departure: Departure) -> StateTransfer:
        state = departure.holding.life.encode()
        return StateTransfer(
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
            holding.fence, holding.frozen = fence, False
            self.world.continues_from(self.name, holding)
        self.departure = None

    def _report(self, departure: Departure) -> None:
        transfer_id = departure.order.transfer_id
        report = Report(
            transfer_id=transfer_id,
            entity=ENTITY,
            source=self.name,
            trace={"transfer_id": transfer_id, "hops": [], "marks": []},
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

    def _offer(self, message: StateTransfer | DirectHandoff, fence: Fence) -> None:
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
            case incoming.Activate(offer, permission):
                self.world.check(_hash(offer.state) == permission.state_hash, "activated from another state")
                if self.departure is not None:  # `Arrivals._clear_the_way`
                    self._event(self.departure, outgoing.PeerActive(permission.fence))
                self.world.check(self.holding is None, "an entity arrived where it still was")
                self.holding, self.gone = Holding(permission.fence, Life.decode(offer.state), False, chain, group), None
                self.world.continues_from(self.name, self.holding)
                self._answer(permission)
            case incoming.AnswerAgain(permission):
                self._answer(permission)
            case incoming.Wait() | incoming.Drop():
                pass

    def _answer(self, permission: Permission) -> None:
        fence = permission.fence
        answer = Activated(transfer_id=permission.transfer_id, entity=ENTITY, epoch=fence.epoch, sub=fence.sub)
        self.world.send(self.name, permission.source, answer)


class HandoverWorld:
    """Everything together. Its public methods are the steps that a test may take; each ends with the invariants."""

    def __init__(self, variant: Variant | None = None, *, max_transfers: int = 4) -> None:
        self.variant = variant or Variant()
        self.now_ns = 0
        self.network: list[Envelope] = []
        self.rows = DictRows()
        self.admitting = True
        self.given: dict[Fence, str] = {}
        self.latest = Life()
        self._ids = 0
        # A small table, so that what is forgotten is met soon.
        self._patches = ExitStack()
        self._patches.enter_context(mock.patch.object(transfer_rows, "MAX_TRANSFERS", max_transfers))
        for name in GROUP:
            self.run("directory.register", row=directory_row(name).to_data())
        self.run("directory.register", row=directory_row(HOME, Role.HOMESERVER).to_data())
        self.run("entity.create", entity=ENTITY, kind="ball", spawner=MASTER, server=SERVERS[0], rule="allow")
        self.run("entity.create", entity=NOISE, kind="ball", spawner=MASTER, server=GROUP[0])
        self.servers = {name: ModelServer(self, name) for name in SERVERS}
        self.servers[SERVERS[0]].holding = Holding(Fence(1), Life())

    def close(self) -> None:
        """Give the tables their sizes back."""
        self._patches.close()

    # --- the log ---------------------------------------------------------------------------------------------------

    def run(self, procedure: str, **args: Any) -> Any:
        """Run a procedure as the log does: entirely, or not at all."""
        before = dict(self.rows.data)
        try:
            answer = self.variant.procedures[procedure](self.rows, args)
        except BaseException:
            self.rows.data = before
            raise
        if ("entities", ENTITY) in self.rows.data:
            record = self.record
            self.authority_given(record.fence, record.authority, after=None)
        return answer

    @property
    def record(self) -> EntityRecord:
        """What the log says of the entity."""
        return self.rows.entity(ENTITY)

    def authority_given(self, fence: Fence, server: str, *, after: Fence | None) -> None:
        """The log or a pass gives authority: one server per fence, and only from the highest fence on."""
        known = self.given.get(fence)
        if known is None:
            highest = max(self.given, default=Fence(0))
            self.check(fence > highest, f"{fence} was given after {highest}")
            self.check(after in (None, highest), f"{server} passed from {after}, not from {highest}")
            self.given[fence] = server
        else:
            self.check(known == server, f"{fence} was given to {known} and to {server}")

    # --- the home instance -----------------------------------------------------------------------------------------

    def _home(self, envelope: Envelope) -> None:
        match envelope.message:
            case HandoffRequest() as request:
                self._handoff(request)
            case Report() as report:
                if report.chain:
                    self._learn_passes(report.chain)
                body = {"trace": report.trace, "off_path": report.off_path, "counters": report.counters}
                try:
                    self.run("transfer.report", transfer_id=report.transfer_id, source=report.source, report=body)
                finally:  # refused or not: the old authority does not ask again
                    self.send(HOME, report.source, ReportReply(transfer_id=report.transfer_id))
            case StateTransfer():
                pass  # the old authority was told to move the entity to a homeserver; the log will not have it
            case other:
                raise AssertionError(f"nobody sends {other.type} to a homeserver")

    def _passes(self, chain: list[str]) -> list[dict[str, Any]]:
        if not chain:
            return []
        grant = DelegationGrant.from_claims_untrusted(json.loads(chain[0]))
        steps = [(token, PassCertificate.from_claims_untrusted(json.loads(token))) for token in chain[1:]]
        check_chain(grant, chain[0], steps)
        return [step.model_dump(mode="json") for _, step in steps]

    def _learn_passes(self, chain: list[str]) -> None:
        record = EntityRecord.from_data(self.run("transfer.passed", entity=ENTITY, passes=self._passes(chain)))
        if record.delegation:
            self._deliver_delegation(record)

    def _deliver_delegation(self, record: EntityRecord) -> None:
        grant = DelegationGrant(
            entity=ENTITY, epoch=record.epoch, sub=record.sub, holder=record.authority, group=record.delegation
        )
        message = Delegation(entity=ENTITY, grant=json.dumps(grant.to_claims()))
        self.send(HOME, record.authority, message)

    def _handoff(self, request: HandoffRequest) -> None:
        known = self.rows.transfer(request.transfer_id)
        repeated = known is not None and known.phase in (Phase.COMMITTED, Phase.REFUSED, Phase.DONE)
        at_home = instance_of(request.target) == "alpha"
        args = request.model_dump(exclude={"type", "chain"}) | {
            "passes": self._passes(request.chain),
            "check_target": at_home,
        }
        if repeated or at_home or self.admitting:
            decided = self.run("transfer.commit", **args)
        else:
            decided = self.run("transfer.refuse", **args, reason=Reason.UNKNOWN_TARGET.value)
        transfer = TransferRecord.from_data(decided["transfer"])
        committed = decided["outcome"] == Outcome.COMMITTED
        certificate = _certificate(transfer) if committed else ""
        reply = HandoffReply(
            transfer_id=request.transfer_id,
            outcome="committed" if committed else "refused",
            reason=transfer.reason,
            authority=decided["authority"],
            epoch=decided["epoch"],
            sub=decided["sub"],
            certificate=certificate,
        )
        if committed and at_home and instance_of(request.source) == "alpha":
            self.send(HOME, request.target, Grant(certificate=certificate))
            if not repeated:
                return
        self.send(HOME, request.source, reply)

    # --- the network -----------------------------------------------------------------------------------------------

    def send(self, sender: str, to: str, message: Message) -> None:
        """Put a message under way; what is sent to servers that do not exist is lost."""
        if to == HOME or to in self.servers:
            self.network.append(Envelope(sender, to, message))

    def _arrive(self, envelope: Envelope) -> None:
        if envelope.to == HOME:
            with suppress(Refused):  # REST answers with the reason; the machines ask again, or not
                self._home(envelope)
        else:
            self.servers[envelope.to].take(envelope)
        self.check_all()

    # --- steps -----------------------------------------------------------------------------------------------------

    def deliver(self, place: int) -> None:
        """Any message under way arrives."""
        if self.network:
            self._arrive(self.network.pop(place % len(self.network)))

    def repeat(self, place: int) -> None:
        """Any message under way arrives, and stays under way."""
        if self.network:
            self._arrive(self.network[place % len(self.network)])

    def drop(self, place: int) -> None:
        """Any message under way is lost."""
        if self.network:
            self.network.pop(place % len(self.network))

    def tick(self) -> None:
        """Every server simulates what it thinks it may."""
        for server in self.servers.values():
            if server.holding is not None and not server.holding.frozen:
                self.check(server.holding.life == self.latest, f"{server.name} simulates an old state")
                server.holding.life = self.latest = self.latest.next(server.name)
        self.check_all()

    def time_passes(self, seconds: float = 1.0) -> None:
        """Timers fire."""
        self.now_ns += round(seconds * 1e9)
        for server in self.servers.values():
            server.time_passed()
        self.check_all()

    def order(self, target: str, *, direct: bool = False, requester: str = "") -> None:
        """Somebody has the home instance move the entity."""
        self._propose(self.new_id(), target, direct, requester)

    def order_again(self, place: int) -> None:
        """A client repeats its request for a transfer that the log remembers."""
        known = self.rows.transfers()
        transfer = self.rows.transfer(known[place % len(known)]) if known else None
        if transfer is not None and transfer.entity == ENTITY:
            self._propose(transfer.id, transfer.target, transfer.direct, transfer.requester)

    def _propose(self, transfer_id: str, target: str, direct: bool, requester: str) -> None:
        args = {"transfer_id": transfer_id, "target": target, "direct": direct, "requester": requester}
        try:
            data = self.run("transfer.propose", entity=ENTITY, **args)
        except Refused:
            return
        if TransferRecord.from_data(data).phase is Phase.PERMITTED:
            order = Order(transfer_id=transfer_id, entity=ENTITY, target=target, direct=direct)
            self.send(HOME, self.record.authority, order)

    def wander(self, source: str, target: str, *, direct: bool) -> None:
        """The world of a server wants the entity elsewhere; nobody was asked."""
        order = Order(transfer_id=self.new_id(), entity=ENTITY, target=target, direct=direct)
        self.servers[source].begin(order)
        self.check_all()

    def change_rule(self, rule: Rule) -> None:
        """The master changes the rule."""
        self.run("entity.change_rights", entity=ENTITY, by=self.record.master, rule=rule.value)

    def delegate(self) -> None:
        """The two servers at home may pass the entity directly."""
        try:
            self.run("entity.delegate", entity=ENTITY, group=GROUP)
        except Refused:
            return
        self._deliver_delegation(self.record)

    def others_move(self, times: int) -> None:
        """Other entities are handed over meanwhile: the log forgets old transfers."""
        for _ in range(times):
            record = self.rows.entity(NOISE)
            transfer = {
                "transfer_id": self.new_id(),
                "entity": NOISE,
                "source": record.authority,
                "target": GROUP[1 - GROUP.index(record.authority)],
                "epoch": record.epoch,
                "sub": record.sub,
                "tick": 0,
                "state_hash": "0" * 64,
            }
            self.run("transfer.commit", **transfer)
            self.run(
                "transfer.report", transfer_id=transfer["transfer_id"], source=record.authority, report={"trace": {}}
            )

    def new_id(self) -> str:
        """A transfer id that nobody had."""
        self._ids += 1
        return f"transfer-{self._ids:04d}"

    # --- invariants ------------------------------------------------------------------------------------------------

    def check(self, holds: bool, sentence: str) -> None:
        """Raise `Broken` unless it holds."""
        if not holds:
            raise Broken(sentence)

    def running(self) -> list[ModelServer]:
        """The servers that simulate the entity now."""
        return [s for s in self.servers.values() if s.holding is not None and not s.holding.frozen]

    def continues_from(self, name: str, holding: Holding) -> None:
        """A server begins to simulate: it must be from where the last one ended."""
        self.check(holding.life == self.latest, f"{name} goes on at {holding.life.tick}, not at {self.latest.tick}")

    def check_all(self) -> None:
        """The safety sentences."""
        running = self.running()
        self.check(len(running) <= 1, f"two authorities: {[s.name for s in running]}")
        for server in running:
            fence = server.holding.fence if server.holding is not None else Fence(0)
            self.check(self.given.get(fence) == server.name, f"{server.name} simulates under {fence}, not its own")
        copies = [s.holding.life for s in self.servers.values() if s.holding is not None]
        self.check(self.latest in copies, "the entity is lost: nobody has its last state")

    def _deliver_all(self) -> None:
        for _ in range(2000):
            if self.network:
                self.deliver(0)
        self.check(not self.network, "messages cause messages without end")

    def _waiting(self) -> list[str]:
        return [s.name for s in self.servers.values() if s.departure is not None or s.reports]

    def settle(self) -> None:
        """From here on the network is reliable: every transfer must end, and one server run the entity."""
        self._deliver_all()
        for _ in range(60):
            if not self._waiting():
                break
            self.time_passes()
            self.tick()
            self._deliver_all()
        self.check(not self._waiting(), f"a minute of perfect network later {self._waiting()} still wait")
        running = self.running()
        self.check(len(running) == 1, "nobody simulates the entity, and nobody is about to")
        record, holding = self.record, running[0].holding
        claim = (running[0].name, holding.fence) if holding is not None else None
        self.check((record.authority, record.fence) == claim, f"the log says {record}, but {claim} simulates")
        before = self.latest
        self.tick()
        self.check(self.latest.tick == before.tick + 1, "the entity stands still")


def _certificate(transfer: TransferRecord) -> str:
    fields = transfer.model_dump(include={"entity", "epoch", "sub", "source", "target", "tick", "state_hash"})
    return json.dumps(CommitCertificate(transfer_id=transfer.id, **fields).to_claims())


# --- random walks -----------------------------------------------------------------------------------------------------


def random_walk(seed: int, variant: Variant | None = None, steps: int = 120) -> None:
    """A run that follows from `seed` alone: `steps` steps of disorder, then order.

    Raises:
        Broken: a safety sentence does not hold.
    """
    dice = Random(seed)
    world = HandoverWorld(variant)
    # How bad this run's network is.
    weights = {
        "deliver": 30,
        "repeat": dice.choice((0, 3, 12)),
        "drop": dice.choice((0, 2, 8)),
        "tick": 6,
        "time": dice.choice((2, 8)),
        "order": 4,
        "again": 2,
        "wander": 2,
        "rule": 1,
        "delegate": 2,
        "admission": 1,
        "others": dice.choice((0, 2)),
    }
    names, chances = list(weights), list(weights.values())
    try:
        for _ in range(steps):
            take_step(world, dice.choices(names, chances)[0], dice)
        world.admitting = True
        world.settle()
    finally:
        world.close()


def take_step(world: HandoverWorld, name: str, dice: Random) -> None:
    """One named step with diced details."""
    place = dice.randrange(1000)
    steps: dict[str, Callable[[], None]] = {
        "deliver": lambda: world.deliver(place),
        "repeat": lambda: world.repeat(place),
        "drop": lambda: world.drop(place),
        "tick": world.tick,
        "time": lambda: world.time_passes(dice.choice((0.1, 0.3, 1.0))),
        "order": lambda: world.order(
            dice.choices(TARGETS, (5, 5, 5, 1, 1))[0],
            direct=dice.random() < 0.5,
            requester=dice.choice(("", MASTER, STRANGER)),
        ),
        "again": lambda: world.order_again(place),
        "wander": lambda: world.wander(dice.choice(SERVERS), dice.choice(SERVERS), direct=dice.random() < 0.5),
        "rule": lambda: world.change_rule(dice.choice(list(Rule))),
        "delegate": world.delegate,
        "admission": lambda: setattr(world, "admitting", not world.admitting),
        "others": lambda: world.others_move(dice.randrange(1, 4)),
    }
    steps[name]()
