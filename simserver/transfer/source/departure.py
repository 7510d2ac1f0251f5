"""One entity on its way out: what is planned, what is known of it so far, and the messages that are made from that."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines.precopy import CopyAhead
from batonpass.authority.machines.source import Mode, Outgoing
from batonpass.authority.trust.certificates import PassCertificate, token_hash
from batonpass.authority.wire.base import made
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import (
    Activate,
    ContactHandoff,
    Decline,
    DirectHandoff,
    ForwardInputs,
    HandoffAbort,
    HandoffRequest,
    InputItem,
    OwnerHint,
    Report,
    StageDiscard,
    StageState,
    StateTransfer,
)
from batonpass.simserver.entity.snapshot import Frozen
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.transfer.source.concurrency import AT_ONCE

__all__ = ["Departure", "DeparturePlan"]

_UNSAID: Final = Fence(0)
# How long a state takes from the end of its encoding until it is simulated at the target. Measured for 1 MiB and more:
# 5 to 30 ns for each byte where servers have little else to do, and 55 to 110 ns on a busy machine.
BUDGET_NS_PER_BYTE: Final = 100


@dataclass(frozen=True, slots=True)
class DeparturePlan:
    """What is to be done: which entity goes where, by which path and transport, and what the commit waits for.

    `ordered` if the log knows of it, and `undecided_at` the fence at which it had no result of it (0: not known).
    `grouped` if it moves together with others, so that it must not wait for them. World and owner have `notice_ms`
    before it is frozen. Then it may take `freeze_budget_ms` until the commit (0: as long as it needs), of which
    `spent_ns` are used up or promised. `ahead` is what the target has of its state already, if that is large. `contact`
    is the entity of the target that the entity has met, if it is to go for that. `in_company` if others are about to
    leave for the same target, so that its messages may wait for theirs.
    """

    transfer_id: str
    entity: str
    target: str
    direct: bool = False
    transport: str = "rest"
    ordered: bool = False
    mode: Mode = Mode.EAGER
    grouped: bool = False
    notice_ms: int = 0
    freeze_budget_ms: int = 0
    ahead: CopyAhead | None = field(default=None, compare=False, repr=False)
    in_company: bool = False
    undecided_at: Fence = _UNSAID
    spent_ns: int = field(default=0, compare=False)
    contact: str = ""

    @property
    def is_wish(self) -> bool:
        """Whether it is the wish of the entity's own world: neither the log nor drain and balance know of it."""
        return not (self.ordered or self.in_company)

    @property
    def budget_ns(self) -> int:
        """How long after it is encoded it may be frozen until the commit; 0: as long as it needs."""
        return self.freeze_budget_ms and self.freeze_budget_ms * 1_000_000 - self.spent_ns

    def within_budget(self, state_bytes: int, encoding_ns: int) -> "DeparturePlan | None":
        """The plan within its freeze budget when `state_bytes` took `encoding_ns` to encode; None if there is none.

        A commit cannot be taken back, and without its state it gives the entity to a target that cannot begin. So a
        state that may not be there in time has to be there first: the plan is a staged one then. The target encodes it
        once more, after the commit, and is promised the time for that. A small state that took that long was held up by
        something else: the machine gives it up before it asks for anything.
        """
        budget_ns = self.freeze_budget_ms * 1_000_000
        if state_bytes * BUDGET_NS_PER_BYTE <= budget_ns:
            return replace(self, spent_ns=min(encoding_ns, budget_ns - 1))
        if encoding_ns * 2 >= budget_ns:
            return None
        return replace(self, mode=Mode.STAGED, spent_ns=encoding_ns * 2)

    def others(self, leaving: int) -> int:
        """With how many others it has to share the servers' time, if `leaving` are leaving already.

        In a batch as many as may be: what one of them is answered comes with what all are. Those of a group are not
        answered before all of them are frozen, and each has to wait for those before it.
        """
        return max(leaving, AT_ONCE) if self.in_company else leaving

    def declined(self, source: str, reason: str) -> Decline:
        """That it will not be begun."""
        return Decline(
            transfer_id=self.transfer_id, entity=self.entity, source=source, target=self.target, reason=reason
        )


@dataclass
class Departure:
    """One entity on its way out. `base` is the trace that the request extends."""

    plan: DeparturePlan
    source: str
    holding: Holding
    frozen: Frozen
    machine: Outgoing
    trace: Trace
    base: Trace
    chain: tuple[str, ...] = ()
    # The one that promised a place; 0 if there are no leases.
    target_incarnation: int = 0
    # What the home instance is being asked over REST at the moment, by the type of the message.
    asking: set[str] = field(default_factory=set)
    # The lease under which it began is over, or the log has taken it away: whatever is decided, it is not resumed here.
    stays_nowhere: bool = False
    # Its home instance has said that it could not decide, or was not there to be asked.
    undecided: bool = False
    # What was said last of why it is not decided, for people.
    last_word: str = ""
    state_sent_ns: int = 0
    # Whether the next message with the state makes use of what has gone ahead; repetitions bring all of it.
    uses_ahead: bool = True
    journal: list[InputItem] = field(default_factory=list)
    off_path: Counter[str] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)

    def _recipe_and_state(self) -> tuple[bytes, bytes]:
        """What is to be sent of the state: the recipe of the whole and the rest, once; then all of it."""
        if self.plan.ahead is None or not self.uses_ahead:
            return b"", self.frozen.state
        self.uses_ahead = False
        return self.plan.ahead.recipe(self.frozen.state)

    @property
    def passes(self) -> list[str]:
        """The chain by which the entity came, if the log may not know of it yet."""
        return list(self.holding.chain) if len(self.holding.chain) > 1 else []

    def pass_certificate(self) -> PassCertificate:
        """What gives the entity to the target, once it is signed. That cannot be taken back.

        No other incarnation of the target will act on it than the one that promised a place.
        """
        fence = self.frozen.fence.passed()
        return made(
            PassCertificate,
            kind="pass",
            entity=self.plan.entity,
            epoch=fence.epoch,
            sub=fence.sub,
            transfer_id=self.plan.transfer_id,
            source=self.source,
            target=self.plan.target,
            tick=self.frozen.tick,
            state_hash=self.frozen.state_hash,
            incarnation=self.target_incarnation,
            parent=token_hash(self.holding.chain[-1]),
        )

    def passed_by(self, token: str) -> None:
        """Make the chain one longer, by the signed certificate."""
        self.chain = (*self.holding.chain, token)

    # --- messages --------------------------------------------------------------------------------------------------

    def request(self) -> HandoffRequest:
        """To home: commit it; of what was passed directly, to a target that is silent: what became of it?"""
        asked = HandoffRequest(
            transfer_id=self.plan.transfer_id,
            entity=self.plan.entity,
            epoch=self.frozen.fence.epoch,
            sub=self.frozen.fence.sub,
            source=self.source,
            target=self.plan.target,
            tick=self.frozen.tick,
            state_hash=self.frozen.state_hash,
            transport="link" if self.plan.transport == "link" else "rest",
            chain=list(self.chain) or self.passes,
        )
        if not self.plan.contact or self.chain:
            return asked
        return ContactHandoff(**(vars(asked) | {"type": "contact_handoff", "contact": self.plan.contact}))

    def abort(self, reason: str) -> HandoffAbort:
        """To home: give it up."""
        return HandoffAbort(
            transfer_id=self.plan.transfer_id,
            entity=self.plan.entity,
            epoch=self.frozen.fence.epoch,
            sub=self.frozen.fence.sub,
            source=self.source,
            target=self.plan.target,
            reason=reason,
            chain=self.passes,
        )

    def state(self, kind: type[StageState] | type[StateTransfer]) -> StageState | StateTransfer:
        """To the target: the frozen state, under the old fence."""
        recipe, state = self._recipe_and_state()
        return kind(
            transfer_id=self.plan.transfer_id,
            entity=self.plan.entity,
            epoch=self.frozen.fence.epoch,
            sub=self.frozen.fence.sub,
            kind=self.frozen.kind,
            tick=self.frozen.tick,
            state=state,
            state_hash=self.frozen.state_hash,
            recipe=recipe,
        )

    def discard(self) -> StageDiscard:
        """To the target: nothing comes of it."""
        fence = self.frozen.fence
        return StageDiscard(
            transfer_id=self.plan.transfer_id, entity=self.plan.entity, epoch=fence.epoch, sub=fence.sub
        )

    def direct(self, *, with_state: bool) -> DirectHandoff:
        """To the target: it is yours."""
        recipe, state = self._recipe_and_state() if with_state else (b"", b"")
        fence = self.frozen.fence.passed()
        return made(
            DirectHandoff,
            type="direct",
            transfer_id=self.plan.transfer_id,
            entity=self.plan.entity,
            epoch=fence.epoch,
            sub=fence.sub,
            kind=self.frozen.kind,
            tick=self.frozen.tick,
            state=state,
            state_hash=self.frozen.state_hash,
            manifest=None,
            recipe=recipe,
            chain=list(self.chain),
        )

    def activate(self, certificate: str) -> Activate:
        """To the target: the log's certificate, and every input since the freeze."""
        self.journal += self.holding.life.take_journal()
        return Activate(transfer_id=self.plan.transfer_id, certificate=certificate, inputs=list(self.journal))

    def forward(self, items: list[InputItem], fence: Fence) -> ForwardInputs:
        """To the target: inputs that still came here."""
        self.off_path["forward"] += 1
        self.counters["forwarded_inputs"] += len(items)
        return ForwardInputs(
            transfer_id=self.plan.transfer_id,
            entity=self.plan.entity,
            epoch=fence.epoch,
            sub=fence.sub,
            inputs=items,
        )

    def since_freeze(self, fence: Fence) -> list[ForwardInputs | OwnerHint]:
        """To the target, which is active: what came here since the freeze, and is not in the state."""
        acceptance = self.holding.life.acceptance
        items, owner_rev = acceptance.take_journal(), acceptance.unsaid_owner_rev
        messages: list[ForwardInputs | OwnerHint] = [self.forward(items, fence)] if items else []
        if owner_rev:
            entity, epoch, sub = self.plan.entity, fence.epoch, fence.sub
            messages.insert(0, OwnerHint(entity=entity, owner_rev=owner_rev, epoch=epoch, sub=sub))
        return messages

    def report(self) -> Report:
        """To home: how it went."""
        return Report(
            transfer_id=self.plan.transfer_id,
            entity=self.plan.entity,
            source=self.source,
            trace=self.trace,
            off_path=dict(self.off_path),
            counters=dict(self.counters),
            chain=list(self.chain),
        )
