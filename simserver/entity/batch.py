"""The entities of a batch world: they tick together, in one call of the world, and the tick is committed as one.

What a tick costs follows from what has happened in it. Entities with inputs, timers, wishes or a `Step` of their own
are gone through one by one. All others have had their tick when the count of the batch is raised. Their states are
asked of the world when they are needed (`simserver.entity.batch_life`).

The order of a tick: who sleeps until this round is woken; who waits enters the world. The world steps all of them;
then, if the server still has its lease, the tick is committed and told. A tick that ends without the lease is taken
back by a world that can (`undo`), and has not happened. For any other world it counts, since the world has changed. Its
inputs are not applied again, and no source is told, so sources give theirs again and are answered when there is a
lease.

A world that raises has failed on an entity: `simserver.entity.bisection` finds out on which. These are quarantined, and
the others have their tick.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, cast

from batonpass.actors.base.errors import is_stopping, said
from batonpass.simserver.entity.actor import require_sendable, step_of
from batonpass.simserver.entity.batch_life import BatchLife
from batonpass.simserver.entity.bisection import culprits
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import Committed
from batonpass.simserver.entity.mail_desk import commit_mail, has_news, send
from batonpass.simserver.entity.regions import follows_regions
from batonpass.simserver.entity.sleep import NEVER
from batonpass.simserver.world.batch import BatchStep, BatchWorld
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = ["EntityBatch"]

_log = logging.getLogger("batonpass.simserver.entity.batch")

LOOK_EVERY: Final = 20
"""After this number of ticks each entity was looked at: does it belong to another server by the table of regions?"""


class EntityBatch:
    """The batch of one server. `ticks` is how many it has had; see the head of the module.

    `last_tick_ns` is when the last one began, `share_ns` what one entity has of the time that they take, lately.
    """

    def __init__(self, environment: EntityEnvironment) -> None:
        self._env: Final = environment
        self._world: Final = cast(BatchWorld, environment.world)
        self.ticks = self.last_tick_ns = self.share_ns = 0
        self._in_world: Final[dict[str, BatchLife]] = {}
        self._asleep: Final[dict[str, BatchLife]] = {}
        self._leaving: Final[dict[str, BatchLife]] = {}
        self._wishing: set[str] = set()
        # What the next tick has to look at.
        self._waiting: dict[str, BatchLife] = {}
        self._stirred: dict[str, BatchLife] = {}
        self._woken: dict[str, BatchLife] = {}
        # Those that have entered the world, and have had no tick there yet.
        self._fresh: dict[str, BatchLife] = {}
        # When the first timer of each ends, by ticks of the batch for those that are awake, by rounds for sleepers.
        # Ends that are not true any more are passed over.
        self._timers: Final[list[tuple[int, str]]] = []
        self._alarms: Final[list[tuple[int, str]]] = []
        self._lives: Final[dict[str, BatchLife]] = {}
        self._changed_at: Final[dict[str, int]] = {}
        self._all_changed_at = 0
        # Those for whom messages wait, of the tick that is under way.
        self._addressed: list[str] = []
        # Nothing is said to them, but messages of theirs have arrived, and leave their outboxes with the tick.
        self._answered: list[BatchLife] = []
        # Where those belong, by the table of regions, that do not belong here; and who is still to be looked at.
        self._follows_regions: Final = follows_regions(environment.world)
        self._belongs: Final[dict[str, str]] = {}
        self._looks_at: list[str] = []

    def __len__(self) -> int:
        return len(self._in_world)

    # --- what lives tell -------------------------------------------------------------------------------------------

    def awaits(self, life: BatchLife) -> None:
        """It is to enter the world with the next tick."""
        self._waiting[life.id] = life

    def stirred(self, life: BatchLife) -> None:
        """Something may wait for its next tick."""
        self._stirred[life.id] = life

    def slept(self, life: BatchLife) -> None:
        """It sleeps from now on."""
        if life.is_in_world:
            self._asleep[life.id] = life
        if life.sleep is not None and life.sleep.until != NEVER:
            self._lives[life.id] = life
            heappush(self._alarms, (life.sleep.until, life.id))

    def woke(self, life: BatchLife) -> None:
        """It sleeps no more."""
        self._asleep.pop(life.id, None)
        self._lives.pop(life.id, None)
        if life.is_in_world:
            self._woken[life.id] = life
            self._set_timer(life)
        elif life.may_step:
            self.awaits(life)

    def left(self, life: BatchLife) -> None:
        """It is out of the world."""
        for those in (self._in_world, self._asleep, self._woken, self._fresh):
            those.pop(life.id, None)
        self._changed_at.pop(life.id, None)
        self._belongs.pop(life.id, None)
        self._wishing.discard(life.id)

    def leaves(self, life: BatchLife) -> None:
        """It is known when it leaves this server, or it does not leave after all."""
        if life.leaves_at_ns:
            self._leaving[life.id] = life
        else:
            self._leaving.pop(life.id, None)

    def changed_at(self, entity: str) -> int:
        """The last tick of the batch that may have changed an entity that is in the world."""
        return max(self._changed_at.get(entity, 0), self._all_changed_at)

    def settle(self) -> None:
        """Have every entity count its ticks, for those that look at its stint."""
        for life in self._in_world.values():
            life.settle()

    def look_at_all(self, entities: Iterable[str]) -> None:
        """Have the world give the states of those that have changed, in one call, if it can (`encode_all`).

        It spares its callers to ask for one state after the other, and changes nothing of what they get. Where it fails
        they are asked for one by one, which finds the entity that it fails on.
        """
        encode_all = getattr(self._world, "encode_all", None)
        lives = [life for entity in entities if (life := self._in_world.get(entity)) is not None and life.is_behind]
        if encode_all is None or not lives:
            return
        self._env.crash_guard.enter_together((life.id, life.fence.epoch) for life in lives)
        began_ns = self._env.monotonic_ns()
        try:
            states: Iterable[Any] = encode_all([life.id for life in lives])
            for life, state in zip(lives, states, strict=True):
                life.seen_as(state)
        except BaseException as error:
            if is_stopping(error):
                raise
            self._env.count("world_failed")
            self._env.faults.failed(f"encode_all: {len(lives)} entities", error, self._env.monotonic_ns())
        finally:
            self._env.crash_guard.leave_together()
        done_ns = self._env.monotonic_ns()
        if self._env.is_lost_by(began_ns, done_ns):
            self._cost_the_lease({life.id: life for life in lives}, done_ns - began_ns)

    # --- a tick ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One tick of all."""
        self._wake_those_due()
        self._enter_those_that_wait()
        if not self._in_world:
            self._stirred = {}
            return
        inputs, due = self._inputs(), self._due()
        # On whom something is new, who may be whom the world fails on.
        suspects = self._fresh | {entity: self._in_world[entity] for entity in (*inputs, *due, *self._addressed)}
        self._env.crash_guard.enter_together((entity, life.fence.epoch) for entity, life in suspects.items())
        now_ns = done_ns = self._env.monotonic_ns()
        try:
            done = self._step_all(inputs, due, suspects)
        finally:
            self._env.crash_guard.leave_together()
            done_ns = self._env.monotonic_ns()
        is_told = self._env.may_act(done_ns)
        if done is not None and not is_told:
            self._env.count("ticks_without_lease")
            if self._took_back():
                self._comes_again(inputs, due)
                done = None
        if done is not None:
            self._commit(*done, now_ns, done_ns, is_told=is_told)
        if self._env.is_lost_by(now_ns, done_ns):
            self._cost_the_lease(suspects, done_ns - now_ns)

    def _comes_again(self, inputs: Iterable[str], due: Iterable[str]) -> None:
        """A tick was taken back: what it was about is what the next one is about."""
        for entity in (*inputs, *self._addressed, *(life.id for life in self._answered)):
            if (life := self._in_world.get(entity)) is not None:
                self.stirred(life)
        for entity in due:
            if (life := self._in_world.get(entity)) is not None:
                self._set_timer(life)

    def _wake_those_due(self) -> None:
        count = self._env.rounds.count
        while self._alarms and self._alarms[0][0] <= count:
            _, entity = heappop(self._alarms)
            life = self._lives.get(entity)
            if life is not None and life.sleep is not None and not life.over and not life.sleep.is_over(count):
                # That was the end of an earlier sleep of it, and the one of this is still to come.
                continue
            self._lives.pop(entity, None)
            if life is not None and not life.over:
                life.wakes_now()

    def _enter_those_that_wait(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for life in waiting.values():
            # One that sleeps is as if it ticked, without the world, which has it when it is woken.
            if life.may_step and life.sleep is None and not life.is_in_world:
                self._enter(life)

    def _enter(self, life: BatchLife) -> None:
        try:
            life.enter_world()
        except BaseException as error:
            if is_stopping(error):
                raise
            life.failed(error)
            return
        self._in_world[life.id] = self._fresh[life.id] = life
        if life.leaves_at_ns:
            self._leaving[life.id] = life
        self._stirred[life.id] = life
        self._set_timer(life)

    def _set_timer(self, life: BatchLife) -> None:
        if timers := life.carried.timers:
            heappush(self._timers, (self.ticks + max(1, min(timers.values()) - life.tick), life.id))

    def _due(self) -> list[str]:
        """Those with a timer that ends with the next tick."""
        due: dict[str, None] = {}
        while self._timers and self._timers[0][0] <= self.ticks + 1:
            _, entity = heappop(self._timers)
            life = self._in_world.get(entity)
            if life is None or life.sleep is not None or not life.carried.timers:
                continue
            if min(life.carried.timers.values()) <= life.tick + 1:
                due[entity] = None
            else:
                self._set_timer(life)
        return list(due)

    def _inputs(self) -> dict[str, tuple[PendingInput, ...]]:
        stirred, self._stirred = self._stirred, {}
        self._addressed = [entity for entity, life in stirred.items() if life.is_in_world and has_news(life)]
        self._answered = [life for life in stirred.values() if life.mail is not None and not has_news(life)]
        return {
            entity: tuple(life.inbox.pending)
            for entity, life in stirred.items()
            if life.is_in_world and life.inbox.pending
        }

    # --- the world at work -----------------------------------------------------------------------------------------

    def _step_all(
        self, inputs: dict[str, tuple[PendingInput, ...]], due: list[str], suspects: Iterable[str]
    ) -> tuple[BatchStep, Collection[str] | None] | None:
        """The step, and what it has changed; without those on whom the world fails. None if there is no step."""
        try:
            return self._stepped(self._batch(self._in_world, inputs, due))
        except BaseException as error:
            if is_stopping(error):
                raise
            self._took_back()
            self._env.count("batch_failed")
            _log.warning("the world failed on one of %d entities: %s", len(self._in_world), said(error))
            self._quarantine_culprits(error, inputs, due, suspects)
        if not self._in_world:
            return None
        try:
            left = [entity for entity in due if entity in self._in_world]
            return self._stepped(self._batch(self._in_world, inputs, left))
        except BaseException as error:
            if is_stopping(error):
                raise
            self._took_back()
            self._stop(list(self._in_world.values()), error)
            return None

    def _batch(
        self, entities: Collection[str], inputs: dict[str, tuple[PendingInput, ...]], due: Collection[str]
    ) -> BatchStep:
        names = self._in_world if len(entities) == len(self._in_world) else frozenset(entities)
        return BatchStep(
            self._env.server,
            self.ticks + 1,
            names,
            {entity: some for entity, some in inputs.items() if entity in names},
            self._opened,
            self._ticks_here,
            due=due,
            asleep=self._asleep.keys(),
            woken=tuple(self._woken),
            leaving=tuple(entity for entity in self._leaving if entity in names),
            addressed=[entity for entity in self._addressed if entity in names],
        )

    def _opened(self, entity: str) -> Step:
        return step_of(self._env, self._in_world[entity])

    def _ticks_here(self, entity: str) -> int:
        return self._in_world[entity].ticks_here

    def _stepped(self, batch: BatchStep) -> tuple[BatchStep, Collection[str] | None]:
        changed = self._world.step_all(batch, self._env.period_s)
        for step in batch.steps.values():
            require_sendable(self._env, step)
        if changed is None:
            return batch, None
        if isinstance(changed, str) or not isinstance(changed, Iterable):
            raise TypeError(f"step_all has to give the names of those that it changed, or None, not {changed!r:.40}")
        return batch, self._in_world.keys() & changed

    def _took_back(self) -> bool:
        """Whether the world has taken back its last step; if it fails to, it is unknown what it has of its entities."""
        undo = getattr(self._world, "undo", None)
        if undo is None:
            return False
        try:
            undo()
        except BaseException as error:
            if is_stopping(error):
                raise
            for life in list(self._in_world.values()):
                self.left(life)
                life.lose(error)
        return True

    def _quarantine_culprits(
        self, error: BaseException, inputs: dict[str, tuple[PendingInput, ...]], due: list[str], first: Iterable[str]
    ) -> None:
        """Find on whom the world fails, and stop them; all others are in the world as they were."""

        def fails(entities: Sequence[str]) -> BaseException | None:
            names = frozenset(entities)
            try:
                self._stepped(self._batch(entities, inputs, [entity for entity in due if entity in names]))
            except BaseException as raised:
                if is_stopping(raised):
                    raise
                return raised
            return None

        lives = dict(self._in_world)
        found = culprits(self._world, list(lives), first, error, fails, self._env.monotonic_ns)
        for entity, lost in found.lost.items():
            self.left(lives[entity])
            lives[entity].lose(lost)
        for entities, why in found.culprits:
            for entity in entities:
                # It is out of the world already, with the state that it had.
                self.left(lives[entity])
                lives[entity].is_out(found.states[entity])
            self._stop([lives[entity] for entity in entities], why)

    def _stop(self, lives: Sequence[BatchLife], error: BaseException) -> None:
        """The world has failed on these: on one of them, or it cannot be told on which."""
        if len(lives) == 1:
            lives[0].failed(error)
            return
        self._env.count("batch_region_quarantined")
        region = RegionFailed(f"the world fails on {len(lives)} entities together: {said(error)}")
        region.__cause__ = error
        for life in lives:
            life.failed(region)

    def _cost_the_lease(self, suspects: dict[str, BatchLife], took_ns: int) -> None:
        """It took so long that the lease is lost: that counts as a death of those for whom there was something new."""
        if not suspects:
            self._env.count("lease_lost_at_work")
            _log.error("a tick of %d entities took %.1f s, and cost the lease", len(self._in_world), took_ns / 1e9)
        for life in suspects.values():
            if not life.over:
                life.cost_the_lease(took_ns)

    # --- commit ----------------------------------------------------------------------------------------------------

    def _commit(
        self,
        batch: BatchStep,
        changed: Collection[str] | None,
        now_ns: int,
        done_ns: int,
        *,
        is_told: bool,
    ) -> None:
        """The tick is done; but for those on whom the world has failed, which are as they were before it."""
        for entity, error in batch.failed.items():
            if (life := self._in_world.get(entity)) is not None:
                life.failed(error)
        self.ticks += 1
        self.last_tick_ns, self._woken = now_ns, {}
        entered, self._fresh = self._fresh, {}
        # An average over some eight ticks.
        self.share_ns += ((done_ns - now_ns) // max(1, len(self._in_world)) - self.share_ns) // 8
        for life in entered.values():
            life.ticked_first(now_ns)
        self._mark(batch, changed, entered)
        applied = self._applied(batch)
        self._carry(batch)
        if is_told:
            self._tell(batch, changed, entered, applied)

    def _mark(self, batch: BatchStep, changed: Collection[str] | None, entered: Iterable[str]) -> None:
        if changed is None:
            self._all_changed_at = self.ticks
            self._changed_at.clear()
            return
        for names in (changed, batch.inputs, batch.steps, entered):
            self._changed_at.update(dict.fromkeys(names, self.ticks))
        for entity in batch.failed:
            self._changed_at.pop(entity, None)

    def _applied(self, batch: BatchStep) -> dict[str, list[PendingInput]]:
        """The inputs that went into the tick, which count as applied from now on."""
        return {
            entity: life.inbox.take() for entity in batch.inputs if (life := self._in_world.get(entity)) is not None
        }

    def _carry(self, batch: BatchStep) -> None:
        for acked in self._answered if self._env.takes_messages else ():
            if acked.is_in_world and acked.id not in batch.steps:
                commit_mail(acked, self._env.mail)
        for entity, step in batch.steps.items():
            life = self._in_world.get(entity)
            if life is None:
                continue
            carried = step.carried()
            if carried != life.carried:
                life.carried = carried
            self._set_timer(life)
            if self._env.takes_messages:
                commit_mail(life, self._env.mail)
            if step.sent is not None:
                send(life, step.sent, self._env.mail, self._env.count)

    def _tell(
        self,
        batch: BatchStep,
        changed: Collection[str] | None,
        entered: Iterable[str],
        applied: dict[str, list[PendingInput]],
    ) -> None:
        if self._env.feed.is_followed:
            self._tell_followers(batch, changed, entered, applied)
        for entity, some in applied.items():
            self._guarded(entity, partial(self._acknowledge, some))
        for entity, step in batch.steps.items():
            if step.is_ready:
                self._guarded(entity, self._ready)
            if step.touched:
                self._guarded(entity, partial(self._touched, step.touched))
        sleepers = [entity for entity in batch.sleepers if entity in self._in_world]
        if self._follows_regions:
            self._follow_regions()
            # Asleep they would have no tick that asks where they belong, and stay.
            sleepers = self._looked_at(sleepers)
        wishes = self._belongs | batch.wishes
        wished = self._wishing - wishes.keys()
        self._wishing = {entity for entity in wishes if entity in self._in_world}
        for entity in (*wished, *self._wishing):
            self._guarded(entity, partial(self._wish, wishes.get(entity, "")))
        for entity in sleepers:
            if entity not in wishes and (life := self._in_world.get(entity)) is not None:
                life.fall_asleep()

    def _follow_regions(self) -> None:
        """Look where some of them belong, of all within `LOOK_EVERY` ticks; without a table all stay."""
        if self._env.regions.table is None:
            self._belongs.clear()
            return
        part = self.ticks % LOOK_EVERY
        if part == 0 or not self._looks_at:
            self._looks_at = list(self._in_world)
        self._look_at_each([entity for entity in self._looks_at[part::LOOK_EVERY] if entity in self._in_world])

    def _looked_at(self, sleepers: list[str]) -> list[str]:
        """Of these, those that may fall asleep: they were asked where they belong, and are not held here for now."""
        regions, period_s = self._env.regions, self._env.period_s
        free = [one for one in sleepers if not regions.is_held(self._in_world[one].ticks_here, period_s)]
        return free if regions.table is None or self._look_at_each(free) else []

    def _look_at_each(self, names: list[str]) -> bool:
        """Look where these belong; whether the world could say where they are."""
        try:
            positions = list(self._positions(names)) if names else []
        except BaseException as error:
            if is_stopping(error):
                raise
            # They stay for now: that is no reason to stop them.
            self._env.count("world_failed")
            self._env.faults.failed(f"positions: {len(names)} entities", error, self._env.monotonic_ns())
            return False
        for entity, position in zip(names, positions, strict=False):
            self._guarded(entity, partial(self._look_at, position))
        return True

    def _positions(self, names: list[str]) -> Iterable[Any]:
        """Where they are, asked together if the world can say so."""
        together = getattr(self._world, "positions", None)
        if together is not None:
            given: Iterable[Any] = together(names)
            return given
        position: Callable[[Any], Any] = self._env.world.position  # type: ignore[attr-defined]
        return [position(self._in_world[entity].world) for entity in names]

    def _look_at(self, position: Any, life: BatchLife) -> None:
        wanted = self._env.regions.wanted(position, self._env.server, life.ticks_here, self._env.period_s)
        if wanted is None:
            self._belongs.pop(life.id, None)
        else:
            self._belongs[life.id] = wanted

    def _guarded(self, entity: str, tell: Callable[[BatchLife], None]) -> None:
        """Tell something of one of them; the tick is done, and the others are told, whatever becomes of that."""
        if (life := self._in_world.get(entity)) is None:
            return
        try:
            tell(life)
        except BaseException as error:
            if is_stopping(error):
                raise
            self._env.count("internal_error")
            _log.exception("%s has had its tick, and something went wrong with telling", entity)

    def _tell_followers(
        self,
        batch: BatchStep,
        changed: Collection[str] | None,
        entered: Iterable[str],
        applied: dict[str, list[PendingInput]],
    ) -> None:
        names = self._in_world if changed is None else (*changed, *batch.inputs, *batch.steps, *entered)
        told = list(dict.fromkeys(names))
        self.look_at_all(told)
        for entity in told:
            if (life := self._in_world.get(entity)) is not None:
                event = Committed(entity, life.fence, life.tick, None, life.world, applied.get(entity, ()))
                self._env.feed.told(event)

    def _acknowledge(self, applied: list[PendingInput], life: BatchLife) -> None:
        for source, upto in life.inbox.sources_of(applied).items():
            life.acceptance.acknowledge(life, source, upto)

    def _ready(self, life: BatchLife) -> None:
        if life.leaves_at_ns:
            self._env.ready_to_leave(life.id)

    def _touched(self, ghosts: Sequence[str], life: BatchLife) -> None:
        self._env.touched(life.id, ghosts)

    def _wish(self, server: str, life: BatchLife) -> None:
        """Where the world wants it; or nowhere else any more, if it said so before."""
        life.wants = server
        if server:
            self._env.wants_to_go(life.id, server)


class RegionFailed(Exception):
    """The world fails on several entities together, and on none of them alone, or there was no time to find out."""
