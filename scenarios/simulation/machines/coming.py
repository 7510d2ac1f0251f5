"""The new authority's shell: puts states and certificates to the `Incoming` machine of each entity, and obeys it.

As `simserver.transfer.target.arrivals` does it, without what is about room, large states and unknown keys.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines import target as machine
from batonpass.authority.machines.target import Incoming, Offer, Permission
from batonpass.authority.trust.certificates import CommitCertificate, DelegationGrant, Renewals
from batonpass.authority.wire.transfer import (
    Activate,
    Activated,
    Delegation,
    DirectHandoff,
    ForwardInputs,
    Grant,
    InputItem,
    Staged,
    StageDiscard,
    StageState,
    StateTransfer,
)
from batonpass.scenarios.simulation.machines.lives import MachineState, MachineStay

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.server import MachineServer

__all__ = ["Coming", "MachineStaging"]

MAX_FORWARDS: Final = 4
_NOWHERE: Final = Fence(0, 0)


@dataclass(frozen=True, slots=True)
class MachineStaging:
    """A state on a disk, and the server that sent it."""

    message: StageState
    source: str


@dataclass(slots=True)
class _Context:
    """How a permission came: what goes with it."""

    inputs: list[InputItem] = field(default_factory=list)
    chain: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    leads_to: Fence = _NOWHERE


class Coming:
    """Every entity that comes, or may come, to one server."""

    def __init__(self, server: "MachineServer") -> None:
        self._server: Final = server
        self._tokens: Final = server.world.tokens
        self._machines: Final[dict[str, Incoming]] = {}
        self._contexts: Final[dict[Permission, _Context]] = {}
        self._renewals: Final = Renewals()

    # --- messages --------------------------------------------------------------------------------------------------

    def delegation(self, message: Delegation, _sender: str) -> None:
        """The home instance lets this server pass an entity on directly, within a group."""
        grant = self._tokens.read(message.grant, DelegationGrant)
        stay = self._server.stays.get(message.entity)
        if stay is None or grant.holder != self._server.name or grant.fence != stay.fence:
            self._renewals.keep(message.entity, message.grant, grant)
            if stay is not None:
                holding = stay.holding
                holding.chain = self._renewals.applied(message.entity, holding.chain, holding.group)
            return
        stay.holding.delegated((message.grant,), grant.group, grant.fence)

    def state(self, message: StateTransfer, sender: str) -> None:
        """A frozen state, ahead of the permission to simulate it."""
        if self._server.may_act():
            self._offer(message, message.fence, sender)

    def stage(self, message: StageState, sender: str) -> None:
        """Staged mode: a frozen state that is to be on disk before the commit is asked for."""
        if not self._server.may_act():
            return
        if not isinstance(self._offer(message, message.fence, sender), machine.Drop):
            self._server.keep_stage(MachineStaging(message, sender), lambda: self._staged(message, sender))

    def _staged(self, message: StageState, sender: str) -> None:
        answer = Staged(
            transfer_id=message.transfer_id,
            entity=message.entity,
            epoch=message.epoch,
            sub=message.sub,
            state_hash=message.state_hash,
        )
        self._server.send(sender, answer)

    def discarded(self, message: StageDiscard, sender: str) -> None:
        """Nothing comes of a state that was staged."""
        staged = self._server.disk.stages.get(message.transfer_id)
        if staged is not None and staged.source == sender:
            del self._server.disk.stages[message.transfer_id]

    def granted(self, message: Grant, _sender: str) -> None:
        """Case 2: the home instance says that the log gave the entity to this server."""
        self.permit(self._tokens.read(message.certificate, CommitCertificate), [])

    def activate(self, message: Activate, _sender: str) -> None:
        """Case 1: the old authority brings the log's certificate, and inputs that came meanwhile."""
        self.permit(self._tokens.read(message.certificate, CommitCertificate), message.inputs)

    def direct(self, message: DirectHandoff, sender: str) -> None:
        """Case 3: state and chain in one message."""
        grant, passes = self._tokens.chain(message.chain)
        last, server = passes[-1], self._server
        if (last.target, last.source, last.fence) != (server.name, sender, message.fence):
            raise ValueError(f"the last pass of {message.entity}'s chain is not this hand-over")
        if not (server.is_for_this_life(last.incarnation) and server.may_act()):
            return
        permission = Permission(last.transfer_id, last.fence, last.state_hash, last.source)
        self._remember(permission, _Context([], tuple(message.chain), grant.group, last.fence))
        self._offer(message, Fence(last.epoch, last.sub - 1), sender)
        self._perform(message.entity, self.machine(message.entity).permitted(permission))

    def forwarded(self, message: ForwardInputs, _sender: str) -> None:
        """Inputs that still came to a former authority."""
        stay, gone = self._server.stays.get(message.entity), self._server.gone.get(message.entity)
        if stay is not None:
            self._server.given(stay, message.inputs)
        elif gone is not None and gone[1] > message.fence and message.forwards < MAX_FORWARDS:
            moved_to, fence = gone
            changes = {"epoch": fence.epoch, "sub": fence.sub, "forwards": message.forwards + 1}
            self._server.send(moved_to, message.model_copy(update=changes))

    # --- the two halves --------------------------------------------------------------------------------------------

    def _offer(self, message: StateTransfer | StageState | DirectHandoff, fence: Fence, source: str) -> machine.Effect:
        offer = Offer(
            message.transfer_id, fence, message.state_hash, message.kind, message.tick, message.state, 0, source
        )
        effect = self.machine(message.entity).offered(offer)
        self._perform(message.entity, effect)
        return effect

    def restage(self, staging: MachineStaging) -> None:
        """A state was on disk when this server started: it may be the one to begin with."""
        self._offer(staging.message, staging.message.fence, staging.source)

    def permit(self, certificate: CommitCertificate, inputs: list[InputItem]) -> None:
        """The log's leave to begin."""
        server = self._server
        if not (server.is_for_this_life(certificate.incarnation) and server.may_act()):
            return
        permission = Permission(certificate.transfer_id, certificate.fence, certificate.state_hash, certificate.source)
        self._remember(permission, _Context(inputs))
        effect = self.machine(certificate.entity).permitted(permission)
        staging = server.disk.stages.get(certificate.transfer_id)
        if isinstance(effect, machine.AwaitOtherHalf) and staging is not None:
            self.restage(staging)
        else:
            self._perform(certificate.entity, effect)

    def _perform(self, entity: str, effect: machine.Effect) -> None:
        match effect:
            case machine.ActivateOffer(offer, permission) if (context := self._contexts.get(permission)) is not None:
                self._begin(entity, offer, permission, context)
            case machine.AnswerAgain(permission) if permission in self._contexts:
                self._answer_again(entity, permission)
            case machine.AwaitOtherHalf() if self._server.keeping is not None:
                if (leave := self._machines[entity].waits_with) is not None:
                    self._server.keeping.unsettled.wants(entity, leave)
            case _:
                pass

    def _begin(self, entity: str, offer: Offer, permission: Permission, context: _Context) -> None:
        """Simulate: the log (or the chain) says so, and the state is the one that it names."""
        server = self._server
        self.clear_the_way(entity, permission.fence)
        stay = MachineStay(entity, permission.fence, MachineState.decode(offer.state), source=permission.source)
        server.begin(stay)
        server.world.moved(entity, permission.source, server.name, by_chain=bool(context.chain))
        server.disk.stages.pop(permission.transfer_id, None)
        chain = self._renewals.applied(entity, context.chain, context.group)
        stay.holding.delegated(chain, context.group, context.leads_to)
        self._answer(entity, permission)
        if server.keeping is not None:
            server.keeping.unsettled.begun(entity, by_chain=len(stay.holding.chain) > 1)
        server.given(stay, context.inputs)

    def clear_the_way(self, entity: str, fence: Fence) -> None:
        """An old copy of our own may still stand here, frozen, when an entity comes back faster than it was retired."""
        self._server.leaving.superseded(entity, fence)
        self._server.drop(entity)

    def _answer_again(self, entity: str, permission: Permission) -> None:
        """Answer a repetition, if what it asks about has really happened here."""
        stay, gone = self._server.stays.get(entity), self._server.gone.get(entity)
        here = stay is not None and stay.fence >= permission.fence
        if here or (gone is not None and gone[1] >= permission.fence):
            self._answer(entity, permission)
        elif self._server.keeping is not None and permission.fence < self.machine(entity).seen:
            self._server.keeping.unsettled.wants(entity, permission, never=True)

    def _answer(self, entity: str, permission: Permission) -> None:
        if self._server.may_act():
            fence = permission.fence
            answer = Activated(transfer_id=permission.transfer_id, entity=entity, epoch=fence.epoch, sub=fence.sub)
            self._server.send(permission.source, answer)

    # --- tables ----------------------------------------------------------------------------------------------------

    def machine(self, entity: str) -> Incoming:
        """The machine of an entity, which has heard of whatever this server did itself."""
        known = self._machines.get(entity)
        if known is None:
            known = self._machines[entity] = self._server.world.parts.incoming()
        stay, gone = self._server.stays.get(entity), self._server.gone.get(entity)
        if stay is not None:
            known.fence_raised(stay.fence)
        elif gone is not None:
            known.fence_raised(gone[1])
        if (lived := self._server.lived.get(entity)) is not None:
            known.fence_raised(lived)
        return known

    def step_down(self) -> None:
        """The lease is over: what may still come for this life begins no other."""
        for known in self._machines.values():
            known.step_down()

    def _remember(self, permission: Permission, context: _Context) -> None:
        self._contexts.setdefault(permission, context)
