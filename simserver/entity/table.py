"""What a simulation server holds: the entities that live here, and where those that left have gone.

It outlives every actor of the server: an actor that is restarted finds here the state to resume.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView
from dataclasses import dataclass
from functools import partial
from sys import intern
from typing import Any, Final, Protocol

import trio

from batonpass.actors.base.errors import is_stopping, said
from batonpass.actors.core.exits import CallTimeout, Exit, NoProc
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, Ref
from batonpass.authority.fence import Fence
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.model.ownership import UNTOLD, Ownership
from batonpass.authority.wire.transfer import InputItem
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.entity.actor import Inspect, NewInput, TickNow
from batonpass.simserver.entity.batch import EntityBatch
from batonpass.simserver.entity.batch_life import BatchLife
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import CommitFeed
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.world.api import require_kind, schema_version
from batonpass.simserver.world.batch import is_batch_world
from batonpass.simserver.world.portability import a_state, portable
from batonpass.simserver.world.step import Carried

__all__ = ["AlreadyHeld", "Holding", "Holdings", "Notes", "StateTooLarge", "Tombstone", "WorldFailed"]

_log = logging.getLogger("batonpass.simserver.entity.table")

# One row per entity that ever left; a source that comes after this number of departures asks home.
MAX_TOMBSTONES: Final = 16_384
# Restarting an actor takes less than a millisecond.
_LOOK_AGAIN_S: Final = 0.005


class AlreadyHeld(Exception):
    """The entity lives here; it cannot begin a second time."""

    def __init__(self, entity: str, fence: Fence) -> None:
        super().__init__(f"{entity} lives here already, under {fence}: it has to leave before it can come")


class StateTooLarge(Exception):
    """A state above `MAX_STATE_BYTES`: its entity could not be handed over, nor its server drained."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"its state has {size_bytes} bytes, and a transfer carries {MAX_STATE_BYTES}: make it smaller")


class WorldFailed(Exception):
    """The world's own code raised what it should not, or its state cannot be encoded; the cause is what was raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the world failed: {said(error)}")


@dataclass(slots=True)
class Holding:
    """An entity that lives here (running or frozen): its life, and whether it may be passed on.

    If it is delegated, `chain` is the verified chain of certificates (a grant, then passes) by which it came. `group`
    are the servers to which it may be passed on directly, and `leads_to` is the fence at which the chain ends. Since
    the epoch `since` it has been with this server, and only here has its fence been raised.
    """

    id: str
    life: Life
    chain: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    leads_to: Fence | None = None
    since: int = 0

    @property
    def fence(self) -> Fence:
        """Under which it is simulated here."""
        return self.life.fence

    def cast(self, message: Any) -> None:
        """Tell its actor. While that is being restarted, the message is lost: ticks go by, and players repeat.

        Of one that is passivated, or has just begun or been brought back, the life is told instead.
        """
        ref = self.life.ref
        if ref is not None:
            ref.cast(message)
        else:
            self._without_actor(message)

    def _without_actor(self, message: Any) -> None:
        life = self.life
        if isinstance(message, NewInput):
            given = message
            life.take_input(given.source, given.owner_rev, given.seq, given.data, given.base, given.floor)
        elif isinstance(message, TickNow) and life.wakes_now():
            if life.ref is not None:
                life.ref.cast(message)
            else:
                # A timer may end in this round, and an input waits for one round and not for two.
                life.owes_tick = True

    async def call(self, request: Any, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        """Ask its actor, the next one if that is being restarted.

        Raises `NoProc` when the entity has left, `CallTimeout`.
        """
        with trio.move_on_after(timeout_s):
            while not self.life.over:
                try:
                    return await self._actor().call(request, None)
                except Exit:
                    await trio.sleep(_LOOK_AGAIN_S)
            raise NoProc(f"entity {self.id}")
        raise CallTimeout(f"entity {self.id}", timeout_s)

    async def inspect(self, *, with_state: bool) -> dict[str, Any]:
        """How it is, as its actor says. The life of one without an actor says so, and it stays so. Raises as `call`."""
        if self.life.passive is not None or self.life.is_batched:
            return self.life.inspected(with_state=with_state)
        inspected: dict[str, Any] = await self.call(Inspect(with_state=with_state))
        return inspected

    def _actor(self) -> Ref:
        if self.life.ref is None:
            raise NoProc(f"entity {self.id}")
        return self.life.ref

    def delegated(self, chain: tuple[str, ...], group: tuple[str, ...], leads_to: Fence) -> None:
        """From now on it may be passed on directly within `group`, by a chain that was verified to lead to a fence.

        A chain to another fence than the present one is of another custody term here, and changes nothing.
        """
        if leads_to == self.fence:
            self.chain, self.group, self.leads_to = chain, group, leads_to

    def may_pass_to(self, server: str) -> bool:
        """Whether it may be passed directly to a server: only under the very fence to which the chain leads."""
        return server in self.group and self.leads_to == self.fence

    def resume(self, fence: Fence) -> None:
        """It was not handed over after all: it is resumed under a fence of the log's, which ends every delegation."""
        self.life.resume(fence)
        self.chain, self.group, self.leads_to = (), (), None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An entity that lived here: which server had it next, and under which fence."""

    moved_to: str
    fence: Fence


class Notes(Protocol):
    """Where it is written down what lives here; see `simserver.durability.ledger`."""

    def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None:
        """It is simulated here from now on; as what has been here since that epoch, if that is not the fence's."""

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Another server has authority now."""

    def forget(self, entity: str) -> None:
        """Forget that it left: that is too long ago to be asked for."""


class Holdings:
    """The entities of one simulation server. `actor_keeper` is told of every new one; see `actor_keeper`."""

    def __init__(self, environment: EntityEnvironment, notes: Notes) -> None:
        self._environment = environment
        self._notes = notes
        self._living: dict[str, Holding] = {}
        self._gone: LruTable[str, Tombstone] = LruTable(MAX_TOMBSTONES, self._forgotten)
        # Bounded by what has lived here and was neither handed over nor taken up again.
        self._lived: dict[str, Fence] = {}
        self._lived_since: dict[str, int] = {}
        self.actor_keeper: Ref | None = None
        self.batch: Final = EntityBatch(environment) if is_batch_world(environment.world) else None
        """Where they tick together, if the world is of that kind."""
        if self.batch is not None:
            environment.custody.before_reading = self.batch.settle

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._living.values()))

    def __len__(self) -> int:
        return len(self._living)

    @property
    def period_ns(self) -> int:
        """How long a tick takes."""
        return round(self._environment.period_s * 1e9)

    @property
    def feed(self) -> CommitFeed:
        """Where it is told what changes them."""
        return self._environment.feed

    @property
    def crash_guard(self) -> CrashGuard:
        """Of which entities this server has died."""
        return self._environment.crash_guard

    @property
    def untaken(self) -> int:
        """How many of them are untaken: the world here does not take them, another server's may."""
        return sum(holding.life.is_untaken for holding in self._living.values())

    @property
    def quarantined(self) -> int:
        """How many others are stopped, because the world or this server failed on them."""
        return sum(bool((life := one.life).quarantine_reason) and not life.is_untaken for one in self._living.values())

    @property
    def asleep(self) -> int:
        """How many of them sleep."""
        if not hasattr(self._environment.world, "may_sleep"):
            return 0
        return sum(holding.life.sleep is not None for holding in self._living.values())

    @property
    def passive(self) -> int:
        """How many of them are passivated: of those that sleep."""
        if not hasattr(self._environment.world, "may_sleep"):
            return 0
        return sum(holding.life.passive is not None for holding in self._living.values())

    def ids(self) -> KeysView[str]:
        """Of the entities that live here, as they are at any time."""
        return self._living.keys()

    def get(self, entity: str) -> Holding | None:
        """The entity, if it lives here."""
        return self._living.get(entity)

    def gone(self, entity: str) -> Tombstone | None:
        """Where the entity went, if it lived here."""
        return self._gone.get(entity)

    def lived(self, entity: str) -> Fence | None:
        """The fence under which the entity was simulated when this server stopped without handing it over."""
        return self._lived.get(entity)

    def since(self, entity: str) -> int:
        """Since which epoch this server has had what it has of an entity, or had when it stopped; 0 if it has nothing.

        A server that had it at that time, by any history of the log, had what came to be this
        (`authority.procedures.log_rollback`).
        """
        living = self._living.get(entity)
        return self._lived_since.get(entity, 0) if living is None else living.since

    def goes_on(self, entity: str, since: int) -> None:
        """What lives here has come of what this server has had since an earlier epoch."""
        holding = self._living[entity]
        holding.since = since
        # As in `_hold`: what is adopted is said to be, whatever the disk says.
        self._guarded(holding, partial(self._notes.lives, entity, holding.life.kind, holding.fence, since))

    def remember_lived(self, entity: str, fence: Fence, since: int = 0) -> None:
        """Know that an earlier life of this server simulated an entity under `fence`, and that this one does not.

        The leave that it had for that has been used. Simulating under the same fence again, from the state that came
        with it, would take back what players have seen since. A later one is not forgotten for an earlier one: the
        ledger says what lived here when the process began each time it is served.
        """
        if self._lived.get(entity, fence) > fence:
            return
        self._lived[entity] = fence
        self._lived_since[entity] = since or fence.epoch

    def all_lived(self) -> Iterator[tuple[str, Fence]]:
        """All that `lived` knows."""
        return iter(list(self._lived.items()))

    def give_up(self, entity: str, kept: Collection[Fence]) -> None:
        """Know nothing any more of where an entity went or lived but under these fences, nor have it under others."""
        holding = self._living.get(entity)
        if holding is not None and holding.fence not in kept:
            self.drop(entity)
        self._gone.pop(entity, None)
        if self._lived.get(entity) not in kept:
            self._forget_lived(entity)

    def _forget_lived(self, entity: str) -> None:
        self._lived.pop(entity, None)
        self._lived_since.pop(entity, None)

    def is_past(self, entity: str, fence: Fence) -> bool:
        """Whether what an authority says under `fence` comes too late: this server has the entity, or had it later."""
        living = self._living.get(entity)
        if living is not None:
            return living.fence >= fence
        gone, lived = self._gone.get(entity), self._lived.get(entity)
        return (gone is not None and gone.fence > fence) or (lived is not None and lived > fence)

    def spawn(
        self, entity: str, kind: str, params: dict[str, Any], fence: Fence, ownership: Ownership = UNTOLD
    ) -> Holding:
        """Begin a new entity.

        Raises:
            ValueError: the world would not have it; the text says why.
            StateTooLarge: it could never be handed over.
            WorldFailed: the world raised anything else, or its state is no data that could travel.
        """
        try:
            require_kind(self._environment.world, kind)
            state = self._spawned(entity, kind, params, fence)
        except ValueError:
            raise
        except BaseException as error:
            if is_stopping(error):
                raise
            raise WorldFailed(error) from error
        try:
            schema = schema_version(self._environment.world)
            snapshot = EntitySnapshot(
                kind, 0, state, EntityInbox().to_data(), ownership, schema, Carried.of_new(entity)
            )
            portable(a_state("spawn", state))
            size_bytes = len(snapshot.encode())
        except BaseException as error:
            if is_stopping(error):
                raise
            raise WorldFailed(error) from error
        if size_bytes > MAX_STATE_BYTES:
            raise StateTooLarge(size_bytes)
        return self.start(entity, fence, snapshot)

    def _spawned(self, entity: str, kind: str, params: dict[str, Any], fence: Fence) -> Any:
        """What the world gives as the first state of an entity; nothing begins with one that cost the lease."""
        environment = self._environment
        with environment.crash_guard.simulating(entity, fence.epoch):
            began_ns = environment.monotonic_ns()
            state = environment.world.spawn(kind, params)
            done_ns = environment.monotonic_ns()
        if environment.is_lost_by(began_ns, done_ns):
            environment.count("lease_lost_at_work")
            raise TimeoutError(f"it took {(done_ns - began_ns) / 1e9:.1f} s, and its server lost its lease by that")
        return state

    def start(
        self,
        entity: str,
        fence: Fence,
        snapshot: EntitySnapshot,
        inputs: Iterable[InputItem] = (),
        ownership: Ownership = UNTOLD,
    ) -> Holding:
        """An entity lives here from now on, and `inputs` are the first that came for it.

        `ownership` is what the log says, which counts if it is later than what the snapshot says. It has an actor a
        moment later. Raises `AlreadyHeld`.
        """
        holding = self.begin(entity, fence, snapshot)
        self._take_up(holding)
        holding.life.owned(ownership)
        holding.life.take_inputs(inputs)
        self._hold(holding)
        return holding

    def begin(self, entity: str, fence: Fence, snapshot: EntitySnapshot) -> Holding:
        """As `start`; a caller with urgent work does that first, and then has it seen to (`see_to`).

        That is one step: no other task may look in between, when the entity is not found here yet.
        """
        if entity in self._living:
            raise AlreadyHeld(entity, self._living[entity].fence)
        return Holding(entity, self._life(entity, fence, snapshot), since=fence.epoch)

    def _life(self, entity: str, fence: Fence, snapshot: EntitySnapshot) -> Life:
        if self.batch is None:
            return Life(self._environment, entity, fence, snapshot, begins=False)
        return BatchLife(self.batch, self._environment, entity, fence, snapshot, begins=False)

    def see_to(self, holding: Holding, inputs: Iterable[InputItem] = (), ownership: Ownership = UNTOLD) -> None:
        """What is left of `start`. The source may have heard that the entity is here.

        So it is, whatever goes wrong: it is quarantined then, can be looked at and handed over, and no other is asked.
        """
        life = holding.life
        steps = (partial(self._take_up, holding), partial(life.owned, ownership), partial(life.take_inputs, inputs))
        try:
            for step in steps:
                self._guarded(holding, step)
        finally:
            self._hold(holding)

    def _guarded(self, holding: Holding, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            if is_stopping(error):
                raise
            self._environment.count("internal_error")
            _log.exception("%s has begun here, and something went wrong with it", holding.id)
            holding.life.enter_quarantine(f"{type(error).__name__} when it began here")

    def _take_up(self, holding: Holding) -> None:
        life, crash_guard = holding.life, self._environment.crash_guard
        with crash_guard.simulating(holding.id, life.fence.epoch):
            life.begin()
        if not life.quarantine_reason and (why := crash_guard.verdict(holding.id, life.quarantine.released_epoch)):
            _log.error("%s is quarantined: %s", holding.id, why)
            life.enter_quarantine(why)

    def _hold(self, holding: Holding) -> None:
        """It is found here; have that written down, its parts taken up, and an actor given to it."""
        life = holding.life
        self._living[holding.id] = holding
        self._gone.pop(holding.id, None)
        self._forget_lived(holding.id)
        try:
            self._guarded(holding, partial(self._notes.lives, holding.id, life.kind, life.fence))
            self._guarded(holding, life.rehydrate)
        finally:
            self.attend(life)

    def wants_actor(self, entity: str) -> None:
        """A passivated entity needs an actor again."""
        if (holding := self._living.get(entity)) is not None:
            self.attend(holding.life)

    def attend(self, life: Life) -> None:
        """Have an actor given to a life that has none."""
        if self.actor_keeper is not None:
            self.actor_keeper.cast(life)

    def _forgotten(self, entity: str, _: Tombstone) -> None:
        self._notes.forget(entity)

    def leave(self, entity: str, moved_to: str, fence: Fence) -> list[str]:
        """Another server has authority now, under `fence`: the entity ends here. The players that should be told.

        Does nothing when the entity has come back already, under a higher fence: the way back may be shorter. Nor when
        it has left again since.
        """
        living, gone = self._living.get(entity), self._gone.get(entity)
        if (living is not None and living.fence > fence) or (gone is not None and gone.fence > fence):
            return []
        sources = self.drop(entity)
        lived = self._lived.get(entity)
        if lived is not None and lived <= fence:
            # It was noted while it was leaving, as its lease was over or the log had raised its fence.
            self._forget_lived(entity)
        self._notes.left(entity, moved_to, fence)
        self.remember(entity, Tombstone(moved_to, fence))
        return sources

    def drop(self, entity: str) -> list[str]:
        """End a life without a word about where the entity is, if it lives here. The players that should be told."""
        living = self._living.pop(entity, None)
        return [] if living is None else living.life.end()

    def remember(self, entity: str, tombstone: Tombstone) -> None:
        """Know where an entity went that left now or in an earlier life of this server; the oldest are forgotten."""
        # One text for the name of each server, however many entities went there.
        self._gone[entity] = Tombstone(intern(tombstone.moved_to), tombstone.fence)
