"""One simulation server: a node that has entities, leaving and coming, and what of it survives a crash."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from authority.epoch import Fence
from authority.messages import (
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
    Stage,
    Staged,
    StageDiscard,
    StateTransfer,
)
from authority.names import instance_of
from scenarios.simulation.machines.coming import Coming, Staging
from scenarios.simulation.machines.home import home_of
from scenarios.simulation.machines.leaving import Leaving
from scenarios.simulation.machines.lives import State, Stay
from scenarios.simulation.machines.words import Elsewhere, Given, Heard

if TYPE_CHECKING:
    from scenarios.simulation.machines.cluster import Cluster

__all__ = ["Disk", "Server"]

LOOK_S: Final = 0.5
"""How often a server says again what nobody has heard."""
_DISK_S: Final = 0.002


@dataclass(slots=True)
class Disk:
    """What a server has written down."""

    stages: dict[str, Staging] = field(default_factory=dict)


class Server:
    """A simulation server, as a node of the network."""

    def __init__(self, world: "Cluster", name: str) -> None:
        self.world: Final = world
        self.name: Final = name
        self.home: Final = home_of(instance_of(name))
        self.judge: Final = world.judge
        self.disk: Final = Disk()
        self.is_paused = False
        self.lives = 0
        self._backlog: list[Callable[[], None]] = []
        self._handlers: Mapping[type[Any], Callable[[Any, str], None]]
        self.start()

    def start(self) -> None:
        """Begin a life, with what is on the disk."""
        self.lives += 1
        self.stays: dict[str, Stay] = {}
        self.gone: dict[str, tuple[str, Fence]] = {}
        self.lived: dict[str, Fence] = {}
        self.leaving = Leaving(self)
        self.coming = Coming(self)
        coming, leaving = self.coming, self.leaving
        self._handlers = {
            Order: lambda message, _sender: leaving.ordered(message),
            HandoffReply: lambda message, _sender: leaving.replied(message),
            ReportReply: lambda message, _sender: leaving.reported(message.transfer_id),
            Activated: leaving.activated,
            Staged: leaving.staged,
            StateTransfer: coming.state,
            Stage: coming.stage,
            StageDiscard: coming.discarded,
            Grant: coming.granted,
            Activate: coming.activate,
            DirectHandoff: coming.direct,
            Delegation: coming.delegation,
            ForwardInputs: coming.forwarded,
            Given: self._given_by,
        }
        self.later(LOOK_S * self.world.dice.random(), self._look)

    # --- time and messages -----------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """By this server's clock."""
        return round(self.world.schedule.now_s * 1e9)

    def at(self, due_ns: int, action: Callable[[], None]) -> None:
        """Do it at this time by this server's clock, or when it goes on after that; never in another life."""
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
        if self.is_paused:
            self._backlog.append(partial(self.take, message, sender))
        else:
            self._handlers[type(message)](message, sender)

    def go_on(self) -> None:
        """It stood still; what waits is done now, as if nothing had happened."""
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

    def _look(self) -> None:
        """Say again what nobody has heard."""
        for report in self.leaving.reports.values():
            self.send(self.home, report)
        self.later(LOOK_S, self._look)

    # --- leases ----------------------------------------------------------------------------------------------------

    def may_act(self) -> bool:
        """Whether anything may begin or go on here now."""
        return True

    def is_for_this_life(self, incarnation: int) -> bool:
        """Whether leave that was given to this incarnation holds."""
        return True

    def incarnation_of(self, server: str) -> int:
        """Which incarnation another server is now, as far as this one knows."""
        return 0

    # --- entities --------------------------------------------------------------------------------------------------

    def spawn(self, entity: str, fence: Fence) -> None:
        """A new entity begins here."""
        self.stays[entity] = Stay(entity, fence, State())
        self.judge.created(entity, self.name, fence)
        self.judge.begins(entity, self.name, fence, State())

    def begin(self, stay: Stay) -> None:
        """An entity lives here from now on, and goes its first tick."""
        self.stays[stay.entity] = stay
        self.gone.pop(stay.entity, None)
        self.lived.pop(stay.entity, None)
        if not self.world.parts.keeps_cursors:
            stay.state = stay.state._replace(applied=0)
        self.judge.begins(stay.entity, self.name, stay.fence, stay.state)
        stay.state = stay.state.taken_up(self.name)
        self.judge.changes(stay.entity, self.name, stay.fence, stay.state)

    def leave(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Somebody else has authority now, unless the entity has come back already, or left again."""
        stay, gone = self.stays.get(entity), self.gone.get(entity)
        if (stay is not None and stay.fence > fence) or (gone is not None and gone[1] > fence):
            return
        self.drop(entity)
        self.gone[entity] = (moved_to, fence)

    def drop(self, entity: str) -> None:
        """End a life without a word about where the entity is, if it lives here."""
        if self.stays.pop(entity, None) is not None:
            self.judge.leaves(entity, self.name)

    def resume(self, entity: str, fence: Fence) -> None:
        """It was not handed over after all."""
        stay = self.stays[entity]
        stay.holding.stays(fence)
        if not stay.frozen:
            self.judge.resumes(entity, self.name, stay.fence, stay.state)
            self.given(stay, stay.take_journal())

    def keep_stage(self, staging: Staging, kept: Callable[[], None]) -> None:
        """Have a state on the disk, and say so when it is there."""

        def write() -> None:
            self.disk.stages[staging.message.transfer_id] = staging
            kept()

        self.later(_DISK_S, write)

    # --- inputs ----------------------------------------------------------------------------------------------------

    def given(self, stay: Stay, items: Iterable[InputItem]) -> None:
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
            self.send(player, Heard(stay.state.applied, stay.fence))
