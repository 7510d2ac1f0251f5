"""The life of an entity of a batch world: between two ticks its state is in the world's own arrays.

It is a `Life` in all but this. It has no actor, and its ticks are those of the batch (`simserver.entity.batch`). Its
state is asked of the world when a part of the server needs it, once for each time that it has changed. While it is
frozen, quarantined, suspended or passivated it is out of the world, and its state is here, as that of any other.
"""

from typing import Any, Protocol

from batonpass.actors.base.errors import is_stopping, said
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.passivated import PassivatedState
from batonpass.simserver.entity.snapshot import EntitySnapshot, Frozen
from batonpass.simserver.entity.state import Life
from batonpass.simserver.world.api import schema_version
from batonpass.simserver.world.migration import UP_TO_DATE
from batonpass.simserver.world.portability import NotPortable, a_state

__all__ = ["BatchLife", "Crowd"]


class Crowd(Protocol):
    """What a life has to do with the batch that it is in."""

    ticks: int
    last_tick_ns: int
    share_ns: int

    def awaits(self, life: "BatchLife") -> None:
        """It is to enter the world with the next tick."""

    def stirred(self, life: "BatchLife") -> None:
        """Something may wait for its next tick."""

    def slept(self, life: "BatchLife") -> None:
        """It sleeps from now on."""

    def woke(self, life: "BatchLife") -> None:
        """It sleeps no more."""

    def left(self, life: "BatchLife") -> None:
        """It is out of the world."""

    def leaves(self, life: "BatchLife") -> None:
        """It is known when it leaves this server, or it does not leave after all."""

    def changed_at(self, entity: str) -> int:
        """The last tick of the batch that may have changed it."""


class BatchLife(Life):
    """One entity of a batch world; see the head of the module. `crowd` is the batch.

    `is_in_world` says whether the world has it.
    """

    __slots__ = ("_crowd", "_held", "_leaves_at_ns", "_lost", "_seen_at", "_since")

    is_batched = True

    def __init__(
        self,
        crowd: Crowd,
        environment: EntityEnvironment,
        entity: str,
        fence: Fence,
        snapshot: EntitySnapshot,
        *,
        begins: bool = True,
    ) -> None:
        """As `Life`."""
        self._crowd = crowd
        # The tick of the batch up to which those of the entity are counted; None while it is out of the world.
        self._since: int | None = None
        self._seen_at = 0
        self._lost = ""
        self._leaves_at_ns = 0
        super().__init__(environment, entity, fence, snapshot, begins=begins)

    # --- its state -------------------------------------------------------------------------------------------------

    @property
    def is_in_world(self) -> bool:
        """Whether the world has it."""
        return self._since is not None

    @property
    def changed_at(self) -> int:
        """The last tick of the batch that may have changed it while it was in the world."""
        return self._seen_at if self._since is None else self._crowd.changed_at(self.id)

    # Of an entity without a batch it is a field, which Python finds sooner.
    @property
    def world(self) -> Any:
        """The state, asked of the world if that may have changed it since.

        If it cannot be had, the entity is quarantined, and this is the last that could; `encoded_state` raises then.
        """
        if self._since is not None and self._seen_at < (now := self._crowd.changed_at(self.id)):
            try:
                with self.at_work():
                    self._held = a_state("encode", self._env.world.encode(self.id))  # type: ignore[attr-defined]
                self._seen_at = now
            except BaseException as error:
                if is_stopping(error):
                    raise
                self.fault("encode", error)
                self.cannot_be_encoded(NotPortable(said(error)))
        return self._held

    @world.setter
    def world(self, state: Any) -> None:
        self._held = state
        self._seen_at = self._crowd.ticks

    @world.deleter
    def world(self) -> None:
        self._take_out()
        del self._held

    @property
    def is_behind(self) -> bool:
        """Whether the state that is here is one of before its last change in the world."""
        return self._since is not None and self._seen_at < self._crowd.changed_at(self.id)

    def seen_as(self, state: Any) -> None:
        """This is its state in the world, which was asked for those of several. Raises `NotPortable`: it is none."""
        self._held = a_state("encode_all", state)
        self._seen_at = self._crowd.changed_at(self.id)

    def encoded_state(self) -> bytes:
        """As of any other.

        Raises:
            NotPortable: also if the world could not give it when it was asked.
        """
        if self.passive is None:
            _ = self.world
            if self._lost:
                raise NotPortable(self._lost)
        return super().encoded_state()

    # --- in the world and out of it --------------------------------------------------------------------------------

    @property
    def may_step(self) -> bool:
        """Whether it belongs into the world now, asleep or not."""
        stopped = self.frozen or self.over or self.quarantine.why or self.acceptance.ownership.suspended
        return not stopped and self.passive is None

    def has(self, change: EntityChange) -> None:
        """As of any other; and it is in the world, or out of it, as the change wants it."""
        super().has(change)
        self._go_where_it_belongs()

    def _go_where_it_belongs(self) -> None:
        if not self.may_step:
            self._take_out()
        elif self._since is None:
            self._crowd.awaits(self)

    def enter_world(self) -> None:
        """The world has it from now on; raises whatever that raises, and it has not entered then."""
        with self.at_work():
            self._env.world.enter(self.id, self.seen)  # type: ignore[attr-defined]
        self._since = self._seen_at = self._crowd.ticks

    def _take_out(self) -> None:
        """Out of the world, with its state as that gives it."""
        if self._since is None:
            return
        self.settle()
        self._since = None
        self._crowd.left(self)
        try:
            with self.at_work():
                state = a_state("leave", self._env.world.leave(self.id))  # type: ignore[attr-defined]
            # What `migrate` gave is not its state before a tick with it is done.
            if self._migrated is UP_TO_DATE:
                self._held, self._seen_at = state, self._crowd.ticks
        except BaseException as error:
            if is_stopping(error):
                raise
            self.lose(error)

    def lose(self, error: BaseException) -> None:
        """The world could not give its state: what is here is of before its last ticks, and it must not go on so."""
        self.settle()
        self._since = None
        self._lost = f"the world could not give it: {said(error)}"
        self.fault("leave", error)
        self.cannot_be_encoded(NotPortable(self._lost))

    def is_out(self, state: Any) -> None:
        """The world has forgotten it, and this was its state after its last tick."""
        self.settle()
        self._since = None
        if self._migrated is UP_TO_DATE:
            self._held, self._seen_at = state, self._crowd.ticks

    def release(self, *, discard_inputs: bool = False) -> bool:
        """As of any other; not if its state was lost: the one that is here is of before its last ticks."""
        return not self._lost and super().release(discard_inputs=discard_inputs)

    # --- ticks and sleep -------------------------------------------------------------------------------------------

    @property
    def _unsettled(self) -> int:
        """The ticks of the batch that are its own and not counted yet; it has none while it sleeps."""
        return 0 if self._since is None or self.sleep is not None else self._crowd.ticks - self._since

    @property
    def tick(self) -> int:
        """As of any other."""
        return super().tick + self._unsettled

    @property
    def ticks_here(self) -> int:
        """As of any other."""
        return super().ticks_here + self._unsettled

    def settle(self) -> None:
        """Count what ticks of the batch were its own; nothing of it is seen."""
        ticks = self._unsettled
        if ticks:
            self._tick += ticks
            self._ticks_here += ticks
            self.stint.last_tick_ns = self._crowd.last_tick_ns
            self._since = self._crowd.ticks

    def ticked_first(self, now_ns: int) -> None:
        """The first tick since it entered the world is done: what was migrated is its state now."""
        self.stint.first_tick_ns = self.stint.first_tick_ns or now_ns
        if self._migrated is not UP_TO_DATE:
            self._migrated, self.schema = UP_TO_DATE, schema_version(self._env.world)

    def fall_asleep(self) -> None:
        """As of any other."""
        self.settle()
        super().fall_asleep()
        if self.sleep is not None:
            self._crowd.slept(self)

    def wake(self) -> None:
        """As of any other; what may have woken it waits for the next tick."""
        super().wake()
        self._crowd.stirred(self)

    def _count_sleep(self) -> None:
        super()._count_sleep()
        if self._since is not None:
            self._since = self._crowd.ticks
        self._crowd.woke(self)

    def _bring_back(self, passive: PassivatedState) -> None:
        super()._bring_back(passive)
        self._go_where_it_belongs()

    # --- custody ---------------------------------------------------------------------------------------------------

    def freeze(self) -> Frozen | None:
        """As of any other; it is out of the world from then on."""
        if self.frozen or self.over:
            return None
        self._take_out()
        try:
            return super().freeze()
        finally:
            self._go_where_it_belongs()

    def _go_on(self) -> None:
        super()._go_on()
        self._go_where_it_belongs()

    # --- what stands in the place of fields ------------------------------------------------------------------------

    @property
    def can_be_told(self) -> bool:
        """As of any other: its world hears of what is to come by `Batch.leaving`."""
        return not (self.quarantine_reason or self.ownership.suspended)

    @property
    def leaves_at_ns(self) -> int:
        """As of any other."""
        return self._leaves_at_ns

    @leaves_at_ns.setter
    def leaves_at_ns(self, at_ns: int) -> None:
        self._leaves_at_ns = at_ns
        self._crowd.leaves(self)

    @property
    def step_ns(self) -> int:
        """Its share of what the world takes for a tick, lately."""
        return 0 if self._since is None or self.sleep is not None else self._crowd.share_ns

    @step_ns.setter
    def step_ns(self, took_ns: int) -> None:
        """Nothing: it is the batch that is measured."""
