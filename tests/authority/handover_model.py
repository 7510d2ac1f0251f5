"""Three simulation servers, one log and a network that does what it likes, around the real machines and procedures.

Real: `Outgoing`, `Incoming`, the procedures, the messages, the certificates and the rules of chains. Modelled: the log
(a dictionary), the network (a list from which anything may be taken in any order, twice or never), the clock (a
number), signatures (a certificate's token is its JSON), and, as thinly as they are, the shells
`simserver.transfer.source.departures`, `simserver.transfer.target.arrivals` and `homeserver.transfer.service`.

`model_server` has one such server, and `handover_walks` walks through the world at random.

`HandoverWorld` raises `Broken` the moment one of the safety sentences of the architecture stops being true.
"""

import json
from contextlib import ExitStack, suppress
from typing import Any
from unittest import mock

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, Fence
from batonpass.authority.machines.source import Mode
from batonpass.authority.model.records import EntityRecord, Outcome, Phase, Role, Rule, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.procedures import transfer_table as transfer_rows
from batonpass.authority.procedures.log_rollback import lowest_epoch
from batonpass.authority.trust.certificates import DelegationGrant, PassCertificate, check_chain
from batonpass.authority.wire.transfer import (
    Activated,
    Delegation,
    Grant,
    HandoffAbort,
    HandoffRequest,
    Message,
    Order,
    Report,
    ReportReply,
    StageDiscard,
    StageState,
    StateTransfer,
)
from batonpass.homeserver.transfer.certificates import args_of_pass, commit_certificate, delegation_grant
from batonpass.homeserver.transfer.decided import reply_of
from tests.authority.model_server import (
    ENTITY,
    GROUP,
    HOME,
    MASTER,
    NOISE,
    SERVERS,
    Broken,
    Envelope,
    Holding,
    Life,
    ModelServer,
    Variant,
)
from tests.authority.rows import DictRows, directory_row


class HandoverWorld:
    """Everything together. Its public methods are the steps that a test may take; each ends with the invariants."""

    def __init__(self, variant: Variant | None = None, *, max_transfers: int = 4) -> None:
        self.variant = variant or Variant()
        self.now_ns = 0
        self.network: list[Envelope] = []
        self.rows = DictRows()
        self.local_admission = True
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

    def part_from_another_history(self) -> None:
        """The log hears that there was another one beside it, and gives no fence that this may have given."""
        self.run("log.parted", office=lowest_epoch(self.rows) // EPOCHS_OF_A_HISTORY)

    # --- the home instance -----------------------------------------------------------------------------------------

    def _home(self, envelope: Envelope) -> None:
        match envelope.message:
            case HandoffRequest() as request:
                self._handoff(request)
            case HandoffAbort() as abort:
                args = abort.model_dump(exclude={"type", "chain"}) | {"passes": self._passes(abort.chain)}
                self._reply(self.run("transfer.refuse", **args), abort.source)
            case Report() as report:
                try:
                    self._note_report(report)
                finally:  # refused or not: the old authority does not ask again
                    self.send(HOME, report.source, ReportReply(transfer_id=report.transfer_id))
            case StateTransfer() | StageState() | StageDiscard() | Activated():
                pass  # the old authority was told to move the entity to a homeserver; the log will not have it
            case other:
                raise AssertionError(f"nobody sends {other.type} to a homeserver")

    def _passes(self, chain: list[str]) -> list[dict[str, Any]]:
        if not chain:
            return []
        grant = DelegationGrant.from_claims_untrusted(json.loads(chain[0]))
        steps = [(token, PassCertificate.from_claims_untrusted(json.loads(token))) for token in chain[1:]]
        check_chain(grant, chain[0], steps)
        return [args_of_pass(step) for _, step in steps]

    def _note_report(self, report: Report) -> None:
        passes = self._passes(report.chain)
        body = {"trace": report.trace.to_data(), "off_path": report.off_path, "counters": report.counters}
        about = {"transfer_id": report.transfer_id, "source": report.source, "entity": ENTITY, "passes": passes}
        try:
            self.run("transfer.report", **about, report=body)
        except Refused:
            if passes:
                self.run("transfer.passed", entity=ENTITY, passes=passes)
            raise
        finally:
            if passes and self.record.delegation:
                self._deliver_delegation(self.record)

    def _deliver_delegation(self, record: EntityRecord) -> None:
        message = Delegation(entity=ENTITY, grant=json.dumps(delegation_grant(record, "").to_claims()))
        self.send(HOME, record.authority, message)

    def _handoff(self, request: HandoffRequest) -> None:
        known = self.rows.transfer(request.transfer_id)
        repeated = known is not None and known.phase in (Phase.COMMITTED, Phase.REFUSED, Phase.DONE)
        at_home = instance_of(request.target) == "alpha"
        args = request.model_dump(exclude={"type", "chain"}) | {
            "passes": self._passes(request.chain),
            "check_target": at_home,
        }
        if repeated or at_home or self.local_admission:
            decided = self.run("transfer.commit", **args)
        else:
            decided = self.run("transfer.refuse", **args, reason=Reason.UNKNOWN_TARGET.value)
        if decided["outcome"] == Outcome.COMMITTED:
            self._check_staged(TransferRecord.from_data(decided["transfer"]))
            certificate = _certificate(TransferRecord.from_data(decided["transfer"]))
            if decided["transfer"].get("sub"):
                # It was passed directly: the target knows, and the old authority repeats it.
                self._reply(decided, request.source)
                return
            if at_home and instance_of(request.source) == "alpha":
                self.send(HOME, request.target, Grant(certificate=certificate))
                if not repeated:
                    return
        self._reply(decided, request.source)

    def _check_staged(self, transfer: TransferRecord) -> None:
        if transfer.mode == Mode.STAGED and transfer.target in self.servers:
            is_staged = transfer.state_hash in self.servers[transfer.target].staged
            self.check(is_staged, f"{transfer.id} was committed, and {transfer.target} has not the state on its disk")

    def _reply(self, decided: Any, to: str) -> None:
        transfer = TransferRecord.from_data(decided["transfer"])
        committed = decided["outcome"] == Outcome.COMMITTED
        self.send(HOME, to, reply_of(decided, transfer, _certificate(transfer) if committed else ""))

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

    def order(self, target: str, *, direct: bool = False, requester: str = "", staged: bool = False) -> None:
        """Somebody has the home instance move the entity."""
        self._propose(self.new_id(), target, direct, requester, staged=staged)

    def order_again(self, place: int) -> None:
        """A client repeats its request for a transfer that the log remembers."""
        known = self.rows.transfers()
        transfer = self.rows.transfer(known[place % len(known)]) if known else None
        if transfer is not None and transfer.entity == ENTITY:
            self._propose(transfer.id, transfer.target, transfer.direct, transfer.requester, staged=False)

    def _propose(self, transfer_id: str, target: str, direct: bool, requester: str, *, staged: bool) -> None:
        args = {"transfer_id": transfer_id, "target": target, "direct": direct, "requester": requester}
        args |= {"mode": "staged"} if staged else {}
        try:
            data = self.run("transfer.propose", entity=ENTITY, **args)
        except Refused:
            return
        transfer = TransferRecord.from_data(data)
        if transfer.phase is Phase.PERMITTED:
            mode: Any = transfer.mode
            order = Order(transfer_id=transfer_id, entity=ENTITY, target=target, direct=direct, mode=mode)
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
    return json.dumps(commit_certificate(transfer).to_claims())
