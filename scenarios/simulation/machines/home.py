"""One home instance: its rows, the procedures of the log, and as much of a homeserver as hand-overs need.

Real: every procedure, which is run as the log does, entirely or not at all, and what requests and answers are made of.
Modelled: the log, which is these rows and decides at once. It sometimes does so without an answer, or not at all. A
homeserver's part (`homeserver.transfer.service`) is modelled without waiting.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.machines.lease import Granter, LeaseTerms
from batonpass.authority.model.records import DirectoryRow, EntityRecord, Outcome, Phase, Role, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.lease import may_be_given
from batonpass.authority.procedures.transfer_table import DECIDED
from batonpass.authority.trust.certificates import token_hash
from batonpass.authority.wire.transfer import (
    AdmitReply,
    AdmitRequest,
    Adopted,
    Collected,
    Decline,
    Delegation,
    Grant,
    HandoffAbort,
    HandoffReply,
    HandoffRequest,
    LeaseInquiry,
    LeaseWord,
    Passed,
    Renew,
    Report,
    ReportReply,
    Stranded,
)
from batonpass.homeserver.names.admission import UnansweredQuestions
from batonpass.homeserver.transfer.asked import args_of_report, not_learned
from batonpass.homeserver.transfer.certificates import delegation_grant
from batonpass.homeserver.transfer.decided import reply_of
from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.machines.granting import Granting
from batonpass.scenarios.simulation.machines.judge import MachineJudge
from batonpass.scenarios.simulation.machines.mixes import MachineFaultMix
from batonpass.scenarios.simulation.machines.network import MachineNetwork
from batonpass.scenarios.simulation.machines.orders import MachineOrders
from batonpass.scenarios.simulation.machines.rows import MachineRows
from batonpass.scenarios.simulation.machines.tokens import Tokens
from batonpass.scenarios.simulation.machines.words import Asked, RelayedAnswer, Untold

_EPOCH: Final[int] = EntityRecord.model_fields["epoch"].default

__all__ = ["ADMISSION_PATIENCE_NS", "RENEW_AFTER", "MachineHome", "home_of"]

RENEW_AFTER: Final = 4
"""Passes after which a chain is replaced by a new grant, as `homeserver.transfer.service` does it."""
ADMISSION_PATIENCE_NS: Final = 1_000_000_000
"""How long another home may say nothing about a target: as long as a lease lasts here."""


def home_of(instance: str) -> str:
    """The one homeserver that stands for an instance."""
    return f"{instance}.h1"


class MachineHome:
    """A home instance, as a node of the network."""

    def __init__(
        self,
        instance: str,
        schedule: Schedule,
        network: MachineNetwork,
        judge: MachineJudge,
        tokens: Tokens,
        dice: Random,
        mix: MachineFaultMix,
        procedures: Mapping[str, Callable[..., Any]],
        rows: MachineRows,
        granter: type[Granter],
    ) -> None:
        self.instance: Final = instance
        self.name: Final = home_of(instance)
        self.rows: Final = rows
        self.is_away = False
        self.is_healed = False
        self.committed: Callable[[TransferRecord], None] = lambda transfer: None
        """Told of each transfer that the log has committed."""
        self.refused = 0
        self.schedule: Final = schedule
        self._network: Final = network
        self._judge: Final = judge
        self._tokens: Final = tokens
        self._dice: Final = dice
        self._mix: Final = mix
        self._procedures: Final = procedures
        self._is_mute = False
        self._local_admission: dict[str, tuple[HandoffRequest, str, str]] = {}
        self._unanswered: Final = UnansweredQuestions()
        self.orders: Final = MachineOrders(self, schedule)
        self.others: Final[dict[str, str]] = {}
        self.unreported: Final[dict[str, TransferRecord]] = {}
        """Transfers that were committed, and of whose end no server has told."""
        self._committed_s: Final[dict[str, float]] = {}
        self.expired: Callable[[str], None] = lambda server: None
        """Told of each lease that is over."""
        self.lost: Callable[[str], None] = lambda entity: None
        """Told of each entity of which no server that is alive has a copy."""
        self.claimed: Callable[[str], None] = lambda server: None
        """Told of each incarnation that begins."""
        self.granting: Final = Granting(self, granter(LeaseTerms(round(mix.term_s * 1e9)))) if mix.leases else None
        self._handlers: Final[Mapping[type[Any], Callable[[Any, str, str], None]]] = {
            HandoffRequest: self._handoff,
            HandoffAbort: self._abort,
            Report: self._report,
            Decline: self._decline,
            Passed: self._passed,
            Stranded: self._stranded,
        }

    # --- the log ---------------------------------------------------------------------------------------------------

    def run(self, procedure: str, **args: Any) -> Any:
        """Run a procedure as the log does: entirely, or not at all. Raises `Refused`."""
        rows = self.rows
        try:
            answer = self._procedures[procedure](rows, args)
        except Refused:
            rows.take_back()
            raise
        rows.keep()
        if "entity" in args:
            self._watch(args["entity"])
        for item in args.get("entities", ()):
            self._watch(item[0])
        for item in args.get("items", ()):
            self._watch(item["entity"])
        return answer

    def _watch(self, entity: str) -> None:
        """Whatever the log has done about an entity: which server has authority now?"""
        if entity in self._judge.threads and ("entities", entity) in self.rows.data:
            self._judge.given(entity, *self.named(entity))

    def register(self, name: str, role: Role = Role.SIMSERVER) -> None:
        """A server belongs to this instance; its keys are not looked at."""
        row = DirectoryRow.from_data({"name": name, "role": role, "keys": {"keys": [name]}})
        self.run("directory.register", row=row.to_data())

    def named(self, entity: str) -> tuple[str, Fence]:
        """The authority over an entity by the log, and its fence."""
        row = self.rows.data["entities", entity]
        # What is at its default is left out of a row.
        return row.get("authority", ""), Fence(row.get("epoch", _EPOCH), row.get("sub", 0))

    def record(self, entity: str) -> EntityRecord:
        """What the log says of an entity."""
        return EntityRecord.from_data(self.rows.data["entities", entity])

    def transfer(self, transfer_id: str) -> TransferRecord | None:
        """What the log says of a transfer."""
        row = self.rows.data.get(("transfers", transfer_id))
        return None if row is None else TransferRecord.from_data(row)

    def waited_for(self) -> Iterator[str]:
        """The entities about which something is to be done yet."""
        if self.granting is not None:
            yield from (row.entity for row in self.granting.recovering.rows())
        for name in self.orders.waiting:
            yield self.rows.data["transfers", name]["entity"]

    # --- the network -----------------------------------------------------------------------------------------------

    def take(self, message: Any, sender: str) -> None:
        """A message arrives; while the log has no leader nothing comes of it."""
        if self.is_away:
            return
        if self._mix.unknown_share and not self.is_healed and self._dice.random() < self._mix.unknown_share:
            # Decided, and the member that was to answer is gone.
            self._is_mute = True
        try:
            self._taken(message, sender)
        finally:
            self._is_mute = False

    def _taken(self, message: Any, sender: str) -> None:
        match message:
            case Asked(by, asked):
                self._dispatch(asked, by, sender)
            case RelayedAnswer(to, answer):
                self.send(to, answer)
            case AdmitRequest() as request:
                self._admit(request, sender)
            case AdmitReply() as reply:
                self._admitted(reply)
            case Renew() | Collected() | Adopted() | LeaseInquiry() | LeaseWord() if self.granting is not None:
                self._about_death(self.granting, message, sender)
            case _:
                self._dispatch(message, sender, "")

    def _about_death(self, granting: Granting, message: Any, sender: str) -> None:
        match message:
            case Renew() as renew:
                granting.renew(renew, sender)
            case Collected() as collected:
                granting.recovering.collected(collected, sender)
            case Adopted() as adopted:
                granting.recovering.adopted(adopted, sender)
            case LeaseInquiry() as inquiry:
                granting.inquired(inquiry, sender)
            case _:
                granting.told(message)

    def _dispatch(self, message: Any, by: str, via: str) -> None:
        """Deal with what a server asks, or have the entity's home do it. What is refused is not answered."""
        home = instance_of(message.entity)
        if home != self.instance:
            self.send(home_of(home), Asked(by, message))
            return
        try:
            self._handlers[type(message)](message, by, via)
        except Refused:
            self.refused += 1

    def send(self, to: str, message: Any) -> None:
        """Say something, unless no member is there to say it."""
        if not self._is_mute:
            self._network.send(self.name, to, message)

    def _answer(self, message: Any, to: str, via: str) -> None:
        self.send(via or to, RelayedAnswer(to, message) if via else message)

    # --- hand-overs ------------------------------------------------------------------------------------------------

    def _handoff(self, request: HandoffRequest, by: str, via: str) -> None:
        known = self.rows.data.get(("transfers", request.transfer_id))
        repeated = known is not None and known["phase"] in DECIDED
        if not repeated and instance_of(request.target) != self.instance:
            self._ask_target_home(request, by, via)
            return
        self._decide(request, by, via, AdmitReply(transfer_id=request.transfer_id, accepted=True), repeated=repeated)

    def _ask_target_home(self, request: HandoffRequest, by: str, via: str) -> None:
        """As `homeserver.names.admission` does."""
        now_ns = round(self.schedule.now_s * 1e9)
        self._local_admission[request.transfer_id] = (request, by, via)
        if now_ns - self._unanswered.since_ns(request.transfer_id, now_ns) >= ADMISSION_PATIENCE_NS:
            reason = Reason.HOME_UNREACHABLE.value
            self._admitted(AdmitReply(transfer_id=request.transfer_id, accepted=False, reason=reason))
            return
        asked = AdmitRequest(transfer_id=request.transfer_id, entity=request.entity, target=request.target)
        self.send(home_of(instance_of(request.target)), asked)

    def _admit(self, request: AdmitRequest, sender: str) -> None:
        """The home of an entity asks whether a server of this instance would take it."""
        row = self.rows.data.get(("servers", request.target))
        reason = "" if row is not None else Reason.UNKNOWN_TARGET.value
        if self.granting is not None and row is not None and not may_be_given(self.rows, request.target):
            reason = Reason.TARGET_DOWN.value
        if not self.is_healed and self._mix.refused_share and self._dice.random() < self._mix.refused_share:
            reason = Reason.DRAINING.value
        lease = self.rows.data.get(("leases", request.target))
        self.send(
            sender,
            AdmitReply(
                transfer_id=request.transfer_id,
                accepted=not reason,
                reason=reason,
                incarnation=0 if lease is None else lease["incarnation"],
            ),
        )

    def _admitted(self, reply: AdmitReply) -> None:
        waiting = self._local_admission.pop(reply.transfer_id, None)
        self._unanswered.over(reply.transfer_id)
        if waiting is not None:
            try:
                self._decide(*waiting, reply)
            except Refused:
                self.refused += 1

    def _decide(
        self, request: HandoffRequest, by: str, via: str, admitted: AdmitReply, *, repeated: bool = False
    ) -> None:
        """Put it to the log, and tell the servers concerned: as `homeserver.transfer.service` does."""
        args = {
            "transfer_id": request.transfer_id,
            "entity": request.entity,
            "source": request.source,
            "target": request.target,
            "epoch": request.epoch,
            "sub": request.sub,
            "tick": request.tick,
            "state_hash": request.state_hash,
            "passes": self._tokens.passes(request.chain),
            "check_target": instance_of(request.target) == self.instance,
        }
        if admitted.accepted:
            decided = self.run("transfer.commit", **args, incarnation=admitted.incarnation)
        else:
            decided = self.run("transfer.refuse", **args, reason=admitted.reason)
        transfer = TransferRecord.from_data(decided["transfer"])
        if not repeated and decided["outcome"] == Outcome.COMMITTED:
            self.committed(transfer)
            if self.granting is not None:
                self.unreported[transfer.id] = transfer
                self._committed_s[transfer.id] = self.schedule.now_s
        self.schedule.note(f"{self.name} {decided['outcome']} {transfer.id} {transfer.reason}")
        reply = self._reply(decided, transfer)
        is_case_2 = instance_of(request.source) == instance_of(request.target) == self.instance
        if reply.outcome == "committed" and is_case_2 and not transfer.sub:
            self.send(request.target, Grant(certificate=reply.certificate))
            if not repeated:
                return
        self._answer(reply, by, via)

    def _reply(self, decided: Any, transfer: TransferRecord) -> HandoffReply:
        is_committed = decided["outcome"] == Outcome.COMMITTED
        return reply_of(decided, transfer, self._tokens.commit(transfer) if is_committed else "")

    def _abort(self, request: HandoffAbort, by: str, via: str) -> None:
        args = request.model_dump(include={"transfer_id", "entity", "source", "target", "epoch", "sub", "reason"})
        decided = self.run("transfer.refuse", **args, passes=self._tokens.passes(request.chain))
        transfer = TransferRecord.from_data(decided["transfer"])
        self.schedule.note(f"{self.name} gives up {transfer.id}: {decided['outcome']} {transfer.reason}")
        self._answer(self._reply(decided, transfer), by, via)

    # --- behind ----------------------------------------------------------------------------------------------------

    def _report(self, report: Report, by: str, via: str) -> None:
        passes = self._tokens.passes(report.chain)
        new = not_learned(self.record(report.entity), passes) if passes else passes
        try:
            self.run("transfer.report", **args_of_report(report, new))
            self.unreported.pop(report.transfer_id, None)
        except Refused:
            if new:
                self.run("transfer.passed", entity=report.entity, passes=new)
            self._answer(Untold(report.transfer_id), by, via)
            raise
        if len(passes) >= RENEW_AFTER:
            self._renew_grant(report.entity, report.chain[-1], Fence(passes[-1]["epoch"], passes[-1]["sub"]))
        self._answer(ReportReply(transfer_id=report.transfer_id), by, via)

    def _renew_grant(self, entity: str, last: str, fence: Fence) -> None:
        record = self.record(entity)
        if record.delegation and record.fence == fence:
            self.deliver_delegation(record, token_hash(last))

    def _passed(self, message: Passed, by: str, via: str) -> None:
        """A server simulates an entity that was passed to it."""
        passes = self._tokens.passes(message.chain)
        if passes:
            self.run("transfer.passed", entity=message.entity, passes=passes)
            self._renew_grant(message.entity, message.chain[-1], Fence(passes[-1]["epoch"], passes[-1]["sub"]))

    def _stranded(self, message: Stranded, by: str, via: str) -> None:
        """A server was given an entity and has no state to begin with."""
        transfer, over = self.transfer(message.transfer_id), False
        # One that was proposed while no server had the entity has no source.
        if self.granting is not None and transfer is not None and transfer.source and not message.never:
            over = self.granting.is_over(transfer.source, transfer.source_incarnation)
        self.run("recovery.strand", **message.model_dump(exclude={"type"}), source_over=over)

    def remind(self) -> None:
        """Tell targets again what the log gave to them, when the source that should have done so is dead."""
        self.schedule.after(1.0, self.remind)
        granting = self.granting
        if self.is_away or granting is None:
            return
        for name, transfer in list(self.unreported.items()):
            if self.named(transfer.entity) != (transfer.target, transfer.fence):
                del self.unreported[name]
            elif self.schedule.now_s - self._committed_s[name] > 2.0 and granting.is_over(
                transfer.source, transfer.source_incarnation
            ):
                self.send(transfer.target, Grant(certificate=self._tokens.commit(transfer)))

    def _decline(self, message: Decline, by: str, via: str) -> None:
        args = message.model_dump(include={"transfer_id", "entity", "source", "target", "reason"})
        self.run("transfer.decline", **args)
        self._answer(ReportReply(transfer_id=message.transfer_id), by, via)

    # --- beginning -------------------------------------------------------------------------------------------------

    def delegate(self, entity: str, group: tuple[str, ...]) -> None:
        """Let servers of this instance pass an entity among themselves, if that can be."""
        if self.is_away:
            return
        try:
            self.run("entity.delegate", entity=entity, group=group)
        except Refused:
            return
        self.deliver_delegation(self.record(entity))

    def deliver_delegation(self, record: EntityRecord, replaces: str = "") -> None:
        """Give the grant of a delegated entity to its holder."""
        if record.authority:
            token = self._tokens.sign(delegation_grant(record, replaces))
            self.send(record.authority, Delegation(entity=record.id, grant=token))

    def propose(self, **args: Any) -> None:
        """A player or operator has an entity moved."""
        if self.is_away:
            return
        try:
            data = self.run("transfer.propose", **args)
        except Refused:
            self.refused += 1
            return
        if data["phase"] == Phase.PERMITTED:
            self.orders.add(data["id"])
