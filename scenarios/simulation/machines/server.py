"""One simulation server: a node that has entities, leaving and coming, and what of it survives a crash."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines.lease import LeaseTerms
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.model.standing import CopySource
from batonpass.authority.names import instance_of
from batonpass.authority.wire.transfer import (
    Activate,
    Activated,
    Delegation,
    DirectHandoff,
    ForwardInputs,
    Grant,
    HandoffReply,
    InputItem,
    Order,
    ReportReply,
    Staged,
    StageDiscard,
    StageState,
    StateTransfer,
)
from batonpass.scenarios.simulation.machines.coming import Coming, MachineStaging
from batonpass.scenarios.simulation.machines.home import home_of
from batonpass.scenarios.simulation.machines.keeping import Keeping, copy_of
from batonpass.scenarios.simulation.machines.leaving import Leaving
from batonpass.scenarios.simulation.machines.lives import MachineState, MachineStay
from batonpass.scenarios.simulation.machines.words import Elsewhere, Given, InputsHeard, Untold

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.machines.cluster import MachineCluster

__all__ = ["MachineDisk", "MachineServer"]

LOOK_S: Final = 0.5
"""How often a server says again what was not answered."""
_DISK_S: Final = 0.002
_LEDGER_S: Final = 0.05
"""How far behind the ledger is."""


@dataclass(slots=True)
class MachineDisk:
    """What a server has written down."""

    stages: dict[str, MachineStaging] = field(default_factory=dict)
    rows: dict[str, tuple[str, Fence]] = field(default_factory=dict)
    """Of each entity, where it went and under which fence; to nowhere if it lives here."""
    checkpoints: dict[str, Copy] = field(default_factory=dict)
    nonces: dict[int, str] = field(default_factory=dict)


class MachineServer:
    """A simulation server, as a node of the network."""

    def __init__(self, world: "MachineCluster", name: str) -> None:
        self.world: Final = world
        self.name: Final = name
        self.home: Final = home_of(instance_of(name))
        self.judge: Final = world.judge
        self.disk: Final = MachineDisk()
        self.is_paused = False
        self.is_up = False
        self.lives = 0
        self._unwritten: dict[str, tuple[str, Fence]] = {}
        self._backlog: list[Callable[[], None]] = []
        self._handlers: Mapping[type[Any], Callable[[Any, str], None]]
        self.start()

    def start(self) -> None:
        """Begin a life, with what is on the disk."""
        self.lives += 1
        self.is_up = True
        self._unwritten = {}
        self.stays: dict[str, MachineStay] = {}
        self.gone: dict[str, tuple[str, Fence]] = {}
        self.lived: dict[str, Fence] = {}
        self.leaving = Leaving(self)
        self.coming = Coming(self)
        coming, leaving = self.coming, self.leaving
        self._handlers = {
            Order: lambda message, _sender: leaving.ordered(message),
            HandoffReply: lambda message, _sender: leaving.replied(message),
            ReportReply: lambda message, _sender: leaving.reported(message.transfer_id),
            Untold: lambda message, _sender: leaving.untold(message.transfer_id),
            Activated: leaving.activated,
            Staged: leaving.staged,
            StateTransfer: coming.state,
            StageState: coming.stage,
            StageDiscard: coming.discarded,
            Grant: coming.granted,
            Activate: coming.activate,
            DirectHandoff: coming.direct,
            Delegation: coming.delegation,
            ForwardInputs: coming.forwarded,
            Given: self._given_by,
        }
        self.keeping: Keeping | None = self.world.parts.keeping(self) if self.world.mix.leases else None
        if self.keeping is not None:
            self._handlers = {**self._handlers, **self.keeping.handlers()}
            self._remember()
        self.later(LOOK_S * self.world.dice.random(), self._look)

    def _remember(self) -> None:
        """What is on the disk of an earlier life."""
        for entity, (moved_to, fence) in self.disk.rows.items():
            if moved_to:
                self.gone[entity] = (moved_to, fence)
            else:
                self.lived[entity] = fence
        if self.keeping is not None and self.lives > 1:
            self.keeping.remember()
            for staging in list(self.disk.stages.values()):
                self.coming.restage(staging)
            self.keeping.begin()

    def hold_lease(self, terms: LeaseTerms, peers: tuple[str, ...]) -> None:
        """The first lease of all is held when a run begins."""
        if self.keeping is not None:
            self.keeping.begin(terms, peers)

    def crash(self) -> None:
        """The process is gone, with everything that is not on the disk."""
        self.note(f"{self.name} is killed")
        for entity in self.stays:
            self.judge.crashed(entity, self.name)
        self.judge.killed(self.name)
        self.judge.died(self.name)
        self.lives += 1
        self.is_up = self.is_paused = False
        self._backlog.clear()
        self.stays = {}

    # --- time and messages -----------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """By this server's clock."""
        return round(self.world.schedule.now_s * 1e9)

    def at(self, due_ns: int, action: Callable[[], None]) -> None:
        """Do it at this time by this server's clock, or when it continues after that; never in another life."""
        self.later(due_ns / 1e9 - self.world.schedule.now_s, action)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do it after a while, as `at`."""
        self.world.schedule.after(max(delay_s, 0.0), partial(self._due, self.lives, action))

    def _due(self, life: int, action: Callable[[], None]) -> None:
        if life != self.lives:
            return
        if self.is_paused:
            self._backlog.append(partial(self._due, life, action))
        else:
            action()

    def take(self, message: Any, sender: str) -> None:
        """A message arrives."""
        if not self.is_up:
            return
        if self.is_paused:
            self._backlog.append(partial(self.take, message, sender))
        else:
            self._handlers[type(message)](message, sender)

    def go_on(self) -> None:
        """It was paused; what waits is done now, as if nothing had happened."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for one in backlog:
            one()

    def send(self, to: str, message: Any) -> None:
        """Send something."""
        self.world.network.send(self.name, to, message)

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.world.schedule.note(line)

    def busy_with(self) -> str:
        """What it has not come to an end with; empty if there is nothing."""
        if not self.is_up:
            return f"{self.name} is down"
        if self.leaving.by_entity:
            return f"{self.name} still hands over {next(iter(self.leaving.by_entity))}"
        return f"{self.name} has not told of {next(iter(self.leaving.reports))}" if self.leaving.reports else ""

    def _look(self) -> None:
        """Say again what was not answered."""
        for report in self.leaving.reports.values():
            self.send(self.home, report)
        if self.keeping is not None:
            self.keeping.ask()
        self.later(LOOK_S, self._look)

    # --- leases ----------------------------------------------------------------------------------------------------

    def may_act(self) -> bool:
        """Whether anything may begin or continue here now."""
        return self.is_up and (self.keeping is None or self.keeping.may_act())

    def is_for_this_life(self, incarnation: int) -> bool:
        """Whether leave that was given to this incarnation holds."""
        return self.keeping is None or self.keeping.is_for_this_life(incarnation)

    def incarnation_of(self, server: str) -> int:
        """Which incarnation another server is now: what that one has told before a freeze."""
        other = self.world.servers.get(server)
        return 0 if other is None or other.keeping is None else other.keeping.incarnation

    # --- entities --------------------------------------------------------------------------------------------------

    def spawn(self, entity: str, fence: Fence) -> None:
        """A new entity begins here."""
        self.stays[entity] = MachineStay(entity, fence, MachineState())
        self.disk.rows[entity] = ("", fence)
        self.disk.checkpoints[entity] = copy_of(fence, MachineState(), CopySource.CHECKPOINT)
        self.judge.created(entity, self.name, fence)
        self.judge.begins(entity, self.name, fence, MachineState())

    def begin(self, stay: MachineStay) -> None:
        """An entity lives here from now on, and goes its first tick."""
        self.stays[stay.entity] = stay
        self.gone.pop(stay.entity, None)
        self.lived.pop(stay.entity, None)
        if not self.world.parts.keeps_cursors:
            stay.state = stay.state._replace(applied=0)
        self.judge.begins(stay.entity, self.name, stay.fence, stay.state)
        self._go_on(stay)

    def take_over(self, stay: MachineStay) -> None:
        """Resume from a copy: the log has given the entity to this server."""
        self.stays[stay.entity] = stay
        self.gone.pop(stay.entity, None)
        self.lived.pop(stay.entity, None)
        self.judge.takes_over(stay.entity, self.name, stay.fence, stay.state)
        self._go_on(stay)

    def _go_on(self, stay: MachineStay) -> None:
        self._write(stay.entity, "", stay.fence)
        if self.may_act():
            stay.state = stay.state.taken_up(self.name)
            self.judge.changes(stay.entity, self.name, stay.fence, stay.state)

    def _write(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Have it in the ledger before long."""
        if self.keeping is None:
            return
        if not self._unwritten:
            self.later(_LEDGER_S, self._written)
        self._unwritten[entity] = (moved_to, fence)

    def _written(self) -> None:
        self.disk.rows.update(self._unwritten)
        for entity, (moved_to, _) in self._unwritten.items():
            if moved_to:
                self.disk.checkpoints.pop(entity, None)
        self._unwritten = {}

    def checkpoint(self, entity: str, copy: Copy) -> None:
        """Have the state of an entity that lives here on the disk."""
        kept = Copy(copy.fence, copy.tick, copy.state, copy.state_hash, CopySource.CHECKPOINT)

        def write() -> None:
            if entity in self.stays:
                self.disk.checkpoints[entity] = kept

        self.later(_DISK_S, write)

    def leave(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Another server has authority now, unless the entity has come back already, or left again."""
        stay, gone = self.stays.get(entity), self.gone.get(entity)
        if (stay is not None and stay.fence > fence) or (gone is not None and gone[1] > fence):
            return
        if self.keeping is not None and stay is not None:
            self.keeping.keep_handed_over(entity, copy_of(stay.fence, stay.state, CopySource.CHECKPOINT))
        self.drop(entity)
        self.gone[entity] = (moved_to, fence)
        self._write(entity, moved_to, fence)

    def drop(self, entity: str) -> None:
        """End a life without a word about where the entity is, if it lives here."""
        if self.stays.pop(entity, None) is not None:
            self.judge.leaves(entity, self.name)

    def forget(self, entity: str) -> None:
        """End a life of which a copy is kept here."""
        self.stays.pop(entity, None)
        self.judge.sets_aside(entity, self.name)

    def resume(self, entity: str, fence: Fence) -> None:
        """It was not handed over after all."""
        stay = self.stays.get(entity)
        if stay is None:
            return
        stay.holding.resume(fence)
        if not stay.frozen:
            self.judge.resumes(entity, self.name, stay.fence, stay.state)
            self.given(stay, stay.take_journal())

    def keep_stage(self, staging: MachineStaging, kept: Callable[[], None]) -> None:
        """Have a state on the disk, and say so when it is there."""

        def write() -> None:
            self.disk.stages[staging.message.transfer_id] = staging
            kept()

        self.later(_DISK_S, write)

    # --- inputs ----------------------------------------------------------------------------------------------------

    def given(self, stay: MachineStay, items: Iterable[InputItem]) -> None:
        """Inputs for an entity that lives here: each is applied once, in order."""
        if stay.frozen:
            stay.keep(items)
            return
        if not self.may_act():
            return
        for item in items:
            if item.seq == stay.state.applied + 1:
                stay.state = stay.state.given(item.seq, item.data)
                self.judge.changes(stay.entity, self.name, stay.fence, stay.state)

    def _given_by(self, message: Given, player: str) -> None:
        stay = self.stays.get(message.entity)
        if stay is None:
            moved_to, fence = self.gone.get(message.entity, ("", Fence(0)))
            self.send(player, Elsewhere(moved_to, fence))
            return
        self.given(stay, message.items)
        if not stay.frozen and self.may_act():
            durable = stay.state.applied if self.keeping is None else stay.durable
            self.send(player, InputsHeard(stay.state.applied, durable, stay.fence))
