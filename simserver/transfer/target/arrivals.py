"""The new authority at work: verifies what is offered and performs what each entity's `Incoming` machine decides.

Only verifying waits, for keys. From the machine's decision to the new life there is one step that does not. No task
that is ended on the way can leave an entity without simulation that the log has given to this server.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.machines import target as machine
from batonpass.authority.machines.capacity import StagingQuota
from batonpass.authority.machines.precopy import ChunkTable, parse_recipe_untrusted, split_untrusted
from batonpass.authority.machines.source import Case, Mode
from batonpass.authority.machines.target import Incoming, Offer, Permission
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.records import Role
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import Breakpoint
from batonpass.authority.trust.certificate_reader import Chain
from batonpass.authority.trust.certificates import CommitCertificate, Renewals
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.authority.wire.base import made
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    Activate,
    Activated,
    Delegation,
    DirectHandoff,
    ForwardInputs,
    Grant,
    InputItem,
    OwnerWord,
    Precopied,
    Precopy,
    Staged,
    StageWord,
    StateTransfer,
)
from batonpass.authority.wire.transfer import StageState as StageMessage
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.entity.actor import NewInput
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.owners.lookup import OwnerHints
from batonpass.simserver.transfer.source.admission import Reception
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.early_inputs import EXPECTED_NS, EarlyInputs
from batonpass.simserver.transfer.target.offers import MAX_CONTEXTS, Context, OfferedStates, remember
from batonpass.simserver.transfer.target.spans import ArrivalSpans
from batonpass.simserver.transfer.target.staged_states import StagedState, Stages, StagesFull
from batonpass.simserver.transfer.target.unresolved import Unsettled

__all__ = ["Arrivals"]

_log = logging.getLogger("batonpass.simserver.transfer.target.arrivals")

# Machines of entities that have been offered to this server; the longest untouched is forgotten first. What is lost
# with it is only the memory of old fences, for which the certificate's own epoch and the log stand in.
MAX_MACHINES: Final = 16_384
MAX_FORWARDS: Final = 4

AnyState = TypeVar("AnyState", StateTransfer, StageMessage, DirectHandoff)


class Arrivals:
    """Every entity that comes, or may come, to this server."""

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        departures: Departures,
        reception: Reception,
        stages: Stages,
    ) -> None:
        outbox, clock, counts = ports.outbox, ports.clock, ports.counts
        self._lease: Final = lease
        self._reached = ports.reached
        self._spans: Final = ArrivalSpans(ports.spans, ports.name, clock, holdings)
        self._name: Final = ports.name
        self._outbox = outbox
        self._holdings = holdings
        self._departures = departures
        self._reception = reception
        self._stages = stages
        self._clock = clock
        self._counts = counts
        self._machines: LruTable[str, Incoming] = LruTable(MAX_MACHINES, self._forgotten)
        # By the very permission: a transfer may bring an entity here twice, under different fences and in other ways.
        self._contexts: LruTable[Permission, Context] = LruTable(MAX_CONTEXTS)
        self._staging = StagingQuota()
        self.unsettled: Final = Unsettled(clock)
        self._renewals = Renewals()
        self.certificates: Final = ports.certificates
        self._chunks = ChunkTable()
        self._early = EarlyInputs()
        self._states = OfferedStates()
        self.hints: Final = OwnerHints(holdings, outbox, clock, counts)

    # --- messages --------------------------------------------------------------------------------------------------

    def owned(self, message: OwnerWord) -> None:
        """The log gave an entity to another owner; one that is not here (any more) is told of elsewhere."""
        holding = self._holdings.get(message.entity)
        if holding is None:
            self.hints.missed(message.entity, message.owner_rev)
        else:
            holding.life.owned(message.ownership)

    async def delegation(self, message: Delegation, opened: OpenedMessage) -> None:
        """The home instance lets this server pass an entity on directly, within a group."""
        grant = await self.certificates.grant_untrusted(message.grant, message.entity)
        holding = self._holdings.get(message.entity)
        if holding is None or grant.holder != self._name or grant.fence != holding.fence:
            # The entity was passed on meanwhile; its next authority gets a grant of its own.
            self._counts["stale_grant"] += 1
            self._renewals.keep(message.entity, message.grant, grant)
            if holding is not None:
                holding.chain = self._renewals.applied(holding.id, holding.chain, holding.group)
            return
        holding.delegated((message.grant,), grant.group, grant.fence)
        holding.life.owned(grant.ownership)

    def precopy(self, message: Precopy, opened: OpenedMessage) -> None:
        """Chunks of a state whose entity is still simulated elsewhere."""
        self._chunks.keep(message.transfer_id, opened.sender, split_untrusted(message.state, message.lengths))
        answer = Precopied(transfer_id=message.transfer_id, entity=message.entity, round=message.round)
        self._outbox.send(answer, Trace(message.transfer_id), opened.sender, on_path=False)

    def _whole(self, message: AnyState, opened: OpenedMessage) -> AnyState:
        """A message with all of its state, parts of which may have come before. Raises `MessageError`."""
        if not message.recipe:
            return message
        pieces = parse_recipe_untrusted(message.recipe)
        state = self._chunks.whole(message.transfer_id, opened.sender, pieces, message.state)
        if state is None:
            self._counts["precopy_lost"] += 1
            raise MessageError(f"parts of the state of {message.entity} that were sent ahead are not here (any more)")
        self._counts["precopied"] += 1
        return message.model_copy(update={"state": state, "recipe": b""})

    async def state(self, message: StateTransfer, opened: OpenedMessage) -> None:
        """A frozen state, ahead of the permission to simulate it."""
        message = self._whole(message, opened)
        self._offer(message, message.fence, opened)

    async def stage(self, message: StageMessage, opened: OpenedMessage) -> None:
        """Staged mode: a frozen state that is to be on disk before the source asks for the commit."""
        message = self._whole(message, opened)
        snapshot = self._checked(message, opened)
        if not self._has_lease():
            return
        reason = self._reception.why_not(snapshot.kind, snapshot.schema, len(message.state) - snapshot.parts_bytes)
        if not reason:
            effect = self._machine(message.entity).offered(self._offer_of(message, message.fence, opened.sender))
            self._perform(message.entity, effect)
            if isinstance(effect, machine.Drop):
                # Of an attempt that is over (FAILURES row 16): its sender knows better by now.
                return
            self._reached(Breakpoint.STAGING, message.transfer_id)
            reason = await self._keep(message, opened.sender)
            self._reached(Breakpoint.KEPT, message.transfer_id)
        answer = Staged(
            transfer_id=message.transfer_id,
            entity=message.entity,
            epoch=message.epoch,
            sub=message.sub,
            state_hash=message.state_hash,
            reason=reason,
        )
        self._outbox.send(answer, opened.trace, opened.sender, on_path=True)

    async def _keep(self, message: StageMessage, source: str) -> str:
        """Have the state on disk; why it cannot be, or nothing."""
        stage = StagedState(
            transfer_id=message.transfer_id,
            entity=message.entity,
            source=source,
            epoch=message.epoch,
            sub=message.sub,
            kind=message.kind,
            tick=message.tick,
            state_hash=message.state_hash,
            state=message.state,
        )
        try:
            await self._stages.put(stage)
        except StagesFull as error:
            return error.reason.value
        return ""

    def stage_void(self, transfer_id: str, sender: str) -> None:
        """Nothing comes of a state that was staged: its source says so, or the log."""
        stage = self._stages.get(transfer_id)
        if stage is not None and stage.source == sender:
            self._stages.drop(transfer_id)

    def restage(self, stage: StagedState) -> None:
        """A state was on disk when this server started: it may be the one to begin with."""
        effect = self._machine(stage.entity).offered(self._offer_of(stage, stage.fence, stage.source))
        self._perform(stage.entity, effect)

    async def stage_word(self, stage: StagedState, word: StageWord) -> None:
        """The log's word of what became of a staged state."""
        if word.word == "void":
            self._stages.drop(stage.transfer_id)
        elif word.word == "committed":
            certificate = await self._commit_certificate(word.certificate)
            trace = Trace(certificate.transfer_id)
            self._permit(certificate, Context(trace, False, [], ownership=certificate.ownership))

    # `grant` and `direct` each have a twin that waits for nothing. With keys at hand it costs 3 µs beside what follows.
    # A task of its own costs 300 µs, and begins two turns of the scheduler later. What follows from the keys is written
    # once.

    async def grant(self, message: Grant, opened: OpenedMessage) -> None:
        """Case 2, hop 2: the home instance says that the log gave the entity to this server."""
        self._granted(await self._commit_certificate(message.certificate), opened)

    def grant_at_hand(self, message: Grant, opened: OpenedMessage) -> bool:
        """As `grant`, if no key has to be asked for; whether it was."""
        read = self.certificates.at_hand_untrusted(message.certificate, CommitCertificate, Role.HOMESERVER)
        if read is not None:
            self._granted(self._checked_commit(message.certificate, *read), opened)
        return read is not None

    def _granted(self, certificate: CommitCertificate, opened: OpenedMessage) -> None:
        context = Context(
            opened.trace,
            True,
            [],
            ownership=certificate.ownership,
            in_batch=opened.in_batch,
            case=Case.SAME_HOME,
        )
        self._permit(certificate, context)

    async def activate(self, message: Activate, opened: OpenedMessage) -> None:
        """Case 1, last hop: the old authority brings the log's certificate, and inputs that came meanwhile."""
        certificate = await self._commit_certificate(message.certificate)
        if certificate.source != opened.sender:
            raise MessageError(f"{opened.sender} activates what {certificate.source} handed over")
        case = Case.DIFFERENT_HOMES
        context = Context(opened.trace, False, list(message.inputs), ownership=certificate.ownership, case=case)
        self._permit(certificate, context)

    async def direct(self, message: DirectHandoff, opened: OpenedMessage) -> None:
        """Case 3, hop 1: state and chain in one message."""
        chain = await self.certificates.chain_untrusted(message.chain, message.entity)
        self._passed(self._whole(message, opened), opened, chain)

    def direct_at_hand(self, message: DirectHandoff, opened: OpenedMessage) -> bool:
        """As `direct`, if no key has to be asked for; whether it was."""
        chain = self.certificates.chain_at_hand_untrusted(message.chain, message.entity)
        if chain is not None:
            self._passed(self._whole(message, opened), opened, chain)
        return chain is not None

    def _passed(self, message: DirectHandoff, opened: OpenedMessage, verified: Chain) -> None:
        grant, passes = verified
        last = passes[-1]
        wanted = (self._name, opened.sender, message.transfer_id, message.fence, message.state_hash)
        if (last.target, last.source, last.transfer_id, last.fence, last.state_hash) != wanted:
            raise MessageError(f"the last pass of {message.entity}'s chain is not this hand-over")
        if not (self._is_for_this_life(last.incarnation) and self._has_lease()):
            return
        chain = tuple(message.chain)
        context = Context(
            opened.trace,
            True,
            [],
            chain,
            grant.group,
            last.fence,
            grant.ownership,
            opened.in_batch,
            Case.DIRECT,
        )
        known = self._machine(message.entity)
        permission = Permission(last.transfer_id, last.fence, last.state_hash, last.source)
        remember(self._contexts, permission, context)
        if message.state:
            self._checked(message, opened)
            effect = known.offered(self._offer_of(message, Fence(last.epoch, last.sub - 1), opened.sender))
            self._reached(Breakpoint.OFFERED, message.transfer_id)
            # A state that waits for permission has it with the next line.
            if not isinstance(effect, machine.AwaitOtherHalf):
                self._perform(message.entity, effect)
        self._perform(message.entity, known.permitted(permission))

    async def forwarded(self, message: ForwardInputs, opened: OpenedMessage) -> None:
        """Inputs that still came to a former authority."""
        holding = self._holdings.get(message.entity)
        if holding is not None:
            self._apply(holding, message.inputs)
            return
        gone = self._holdings.gone(message.entity)
        if gone is None or gone.fence <= message.fence or message.forwards >= MAX_FORWARDS:
            # Only towards a higher fence, and not for ever; their sources repeat them.
            self._counts["forward_dropped"] += 1
            return
        onward = message.model_copy(
            update={"epoch": gone.fence.epoch, "sub": gone.fence.sub, "forwards": message.forwards + 1}
        )
        self._outbox.send(onward, Trace(message.transfer_id), gone.moved_to, on_path=False)

    # --- the two halves --------------------------------------------------------------------------------------------

    def _offer(self, message: StateTransfer | DirectHandoff, fence: Fence, opened: OpenedMessage) -> None:
        self._checked(message, opened)
        if not self._has_lease():
            return
        effect = self._machine(message.entity).offered(self._offer_of(message, fence, opened.sender))
        self._reached(Breakpoint.OFFERED, message.transfer_id)
        self._perform(message.entity, effect)

    def _checked(self, message: StateTransfer | StageMessage | DirectHandoff, opened: OpenedMessage) -> EntitySnapshot:
        """The state of a message, read before a machine sees it. Raises `MessageError`.

        A machine answers for what it acted on, so nothing may fail for the state's sake later.
        """
        # A state that travelled beside its message has been hashed; one put together from parts has not.
        hashed = opened.state_hash if message is opened.message else ""
        if hashed != message.state_hash and hashlib.sha256(message.state).hexdigest() != message.state_hash:
            raise MessageError(f"{opened.sender} sent a state of {message.entity} that does not fit its hash")
        return self._states.read_untrusted(message.state, message.state_hash, message.entity)

    def _offer_of(
        self, message: StateTransfer | StageMessage | DirectHandoff | StagedState, fence: Fence, source: str
    ) -> Offer:
        return Offer(
            message.transfer_id,
            fence,
            message.state_hash,
            message.kind,
            message.tick,
            message.state,
            self._clock.monotonic_ns(),
            source,
        )

    def _forgotten(self, entity: str, _: Incoming) -> None:
        self._settle(entity)

    def _settle(self, entity: str) -> None:
        """The offers held of an entity may be others than before: those for which there is no room are let go."""
        known = self._machines.get(entity)
        for other, transfer_id in self._staging.settle(entity, () if known is None else known.offers):
            self._counts["staged_state_dropped"] += 1
            self._machines[other].forget_offer(transfer_id)
            if other != entity:
                self._spans.looked(other, self._machines[other])
        if known is None:
            self._spans.looked(entity, None)

    def _has_lease(self) -> bool:
        """Whether anything may begin here now; if not, the source repeats its offer.

        A source that hears that an entity has begun here drops its own state. Without a lease it may be another
        server's at any moment, and this server is not asked for it then.
        """
        has_lease = self._lease.may_act(self._clock.monotonic_ns())
        self._counts["arrival_without_lease"] += not has_lease
        return has_lease

    def _is_for_this_life(self, incarnation: int) -> bool:
        """Whether permission given to this incarnation holds: that of an earlier one may have been taken back."""
        if incarnation and incarnation != self._lease.incarnation:
            self._counts["leave_of_another_life"] += 1
            return False
        return True

    def fence_raised(self, entity: str, fence: Fence) -> None:
        """The log has raised the fence of an entity: nothing begins here under a lower one."""
        known = self._machine(entity)
        known.fence_raised(fence)
        self._spans.looked(entity, known)

    def step_down(self) -> None:
        """This server's lease is over: what may still come for this life begins no other."""
        for known in self._machines.values():
            known.step_down()
        self._spans.all_looked(self._machines)

    def give_up(self, is_ours: Callable[[str], bool]) -> None:
        """Know nothing of what these entities were given under, nor wait for any: it was by another log."""
        for entity in [one for one in self._machines if is_ours(one)]:
            del self._machines[entity]
            self._settle(entity)

    def still_wants(self, entity: str, permission: Permission) -> bool:
        """Whether there is permission to begin with an entity, and its state is waited for."""
        known = self._machines.get(entity)
        return known is not None and known.waits_with == permission

    def adopt(self, entity: str, fence: Fence, snapshot: EntitySnapshot, ownership: Ownership) -> None:
        """Take over an entity whose authority is dead: the log has given it to this server."""
        self.fence_raised(entity, fence)
        self._clear_the_way(entity, fence)
        self._holdings.start(entity, fence, snapshot, ownership=ownership)

    def _permit(self, certificate: CommitCertificate, context: Context) -> None:
        if not (self._is_for_this_life(certificate.incarnation) and self._has_lease()):
            return
        permission = Permission(certificate.transfer_id, certificate.fence, certificate.state_hash, certificate.source)
        remember(self._contexts, permission, context)
        self._reached(Breakpoint.PERMITTED, certificate.transfer_id)
        known, stage = self._machine(certificate.entity), self._stages.get(certificate.transfer_id)
        effect = known.permitted(permission)
        if isinstance(effect, machine.AwaitOtherHalf) and stage is not None:
            # It is on disk, and the machine keeps a few only.
            effect = known.offered(self._offer_of(stage, stage.fence, stage.source))
        self._perform(certificate.entity, effect)

    def _perform(self, entity: str, effect: machine.Effect) -> None:
        self._settle(entity)
        try:
            self._perform_one(entity, effect)
        finally:
            self._spans.looked(entity, self._machines.get(entity))

    def _perform_one(self, entity: str, effect: machine.Effect) -> None:
        match effect:
            case machine.ActivateOffer(offer, permission) if (context := self._contexts.get(permission)) is not None:
                self._begin(entity, offer, permission, context)
            case machine.AnswerAgain(permission) if (context := self._contexts.get(permission)) is not None:
                self._answer_again(entity, permission, context)
            case machine.Drop(reason):
                self._counts[reason] += 1
            case machine.AwaitOtherHalf() if (waits_with := self._machines[entity].waits_with) is not None:
                self.unsettled.wants(entity, waits_with)
            case _:
                pass

    def _begin(self, entity: str, offer: Offer, permission: Permission, context: Context) -> None:
        """Simulate: the log (or the chain) says so, and the state is the one that it names."""
        snapshot = self._states.take(offer.state, offer.state_hash, entity)
        self._clear_the_way(entity, permission.fence)
        holding = self._holdings.begin(entity, permission.fence, snapshot)
        try:
            now_ns = self._clock.monotonic_ns()
            self._reached(Breakpoint.ACTIVATED, permission.transfer_id)
            context.trace = context.trace.mark(self._name, "staged", offer.staged_ns)
            context.trace = context.trace.mark(self._name, "activated", now_ns)
            # The other effects need not be waited for.
            self._answer(entity, permission, context)
        finally:
            self._see_to(holding, offer, permission, context)

    def _see_to(self, holding: Holding, offer: Offer, permission: Permission, context: Context) -> None:
        entity = holding.id
        try:
            inputs = [*context.inputs, *self._early.take(entity, self._clock.monotonic_ns())]
            self._holdings.see_to(holding, inputs, context.ownership)
        finally:
            # By which it may leave again.
            chain = self._renewals.applied(entity, context.chain, context.group)
            holding.delegated(chain, context.group, context.leads_to)
            context.used()
        is_staged = self._stages.get(permission.transfer_id) is not None
        self._spans.activated(entity, offer, permission, context, Mode.STAGED if is_staged else Mode.EAGER)
        self._reception.arrived(permission.source)
        self._stages.used(permission.transfer_id)
        self._chunks.drop(permission.transfer_id)
        self.unsettled.begun(entity, by_chain=len(holding.chain) > 1)

    def keep_early(self, entity: str, item: InputItem) -> bool:
        """An input came for an entity that is not here; whether it is kept, because the entity is about to come."""
        now_ns, known = self._clock.monotonic_ns(), self._machines.get(entity)
        latest_ns = max((offer.staged_ns for offer in known.offers), default=None) if known is not None else None
        if latest_ns is None or now_ns - latest_ns > EXPECTED_NS or not self._early.keep(entity, item, now_ns):
            return False
        self._counts["input_early"] += 1
        return True

    def _clear_the_way(self, entity: str, fence: Fence) -> None:
        """An old copy of our own may still stand here, frozen, when an entity comes back faster than it was retired."""
        self._departures.superseded(entity, fence)
        holding = self._holdings.get(entity)
        if holding is not None:
            self._counts["superseded"] += 1
            _log.error("%s was still here under %s when it arrived under %s", entity, holding.fence, fence)
            self._holdings.drop(entity)

    def _answer_again(self, entity: str, permission: Permission, context: Context) -> None:
        """Answer a repetition, if what it asks about has really happened here; a moment too early, it is repeated."""
        holding, gone = self._holdings.get(entity), self._holdings.gone(entity)
        here = holding is not None and holding.fence >= permission.fence
        if here or (gone is not None and gone.fence >= permission.fence):
            self._counts["answered_again"] += 1
            self._answer(entity, permission, context)
        elif permission.fence < self._machine(entity).seen:
            # It came after word of a higher fence, so this is not the server that will resume it.
            self._counts["never_active"] += 1
            self.unsettled.wants(entity, permission, never=True)
        else:
            self._counts["not_active_yet"] += 1

    def _answer(self, entity: str, permission: Permission, context: Context) -> None:
        """Say that it has begun here, unless this server's lease ran out meanwhile: it is asked again then."""
        if not self._has_lease():
            return
        answer = made(
            Activated,
            type="activated",
            transfer_id=permission.transfer_id,
            entity=entity,
            epoch=permission.fence.epoch,
            sub=permission.fence.sub,
            trace=None if context.numbered_answer else context.trace,
        )
        trace = context.trace if context.numbered_answer else Trace(permission.transfer_id)
        on_path, hurry = context.numbered_answer, not context.in_batch
        self._outbox.send(answer, trace, permission.source, on_path=on_path, hurry=hurry)
        self._reached(Breakpoint.ANSWERED, permission.transfer_id)

    def _apply(self, holding: Holding, inputs: list[InputItem]) -> None:
        for item in inputs:
            holding.cast(NewInput(item.source, item.owner_rev, item.seq, item.data, item.base, item.floor))

    # --- certificates ----------------------------------------------------------------------------------------------

    async def _commit_certificate(self, token: str) -> CommitCertificate:
        read = await self.certificates.read_untrusted(token, CommitCertificate, Role.HOMESERVER)
        return self._checked_commit(token, *read)

    def _checked_commit(self, token: str, signer: str, certificate: CommitCertificate) -> CommitCertificate:
        if instance_of(signer) != instance_of(certificate.entity):
            raise MessageError(f"the certificate of {certificate.entity} is not from its home instance")
        if certificate.target != self._name:
            raise MessageError(f"the certificate of {certificate.entity} names {certificate.target}")
        if certificate.log:
            self._lease.heard_log(signer, certificate.log)
            if LogPlace.read(certificate.log) is not None:
                self._lease.shown_abroad(signer, token)
        return certificate

    # --- tables ----------------------------------------------------------------------------------------------------

    def _machine(self, entity: str) -> Incoming:
        known = self._machines.get(entity)
        if known is None:
            known = Incoming()
        self._machines[entity] = known
        holding, gone = self._holdings.get(entity), self._holdings.gone(entity)
        # Acts of this server itself also raise the fence below which nothing is listened to.
        if holding is not None:
            known.fence_raised(holding.fence)
        elif gone is not None:
            known.fence_raised(gone.fence)
        if (lived := self._holdings.lived(entity)) is not None:
            known.fence_raised(lived)
        return known
