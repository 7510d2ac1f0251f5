"""The life of an entity on this server: everything that its actor must not take with it when it ends.

An actor runs the world's code, and may crash or be killed at any time. What it has achieved is committed here after
every tick, by reference and in one step that cannot fail half-way. So the next actor of the entity continues after the
last tick that was seen, with the same state, inputs, cursors and fence, frozen or not. Freezing, resuming and retiring
are decided by the hand-over machinery, and change the life at once, whether or not it has an actor at that moment.

Everything here is synchronous: a task that is ended by another one is ended before or after one of these steps.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from batonpass.actors.base.errors import is_stopping, said
from batonpass.actors.core.exits import SHUTDOWN, cause_of
from batonpass.actors.core.ref import Ref
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import InputItem
from batonpass.simserver.entity.acceptance import InputAcceptance
from batonpass.simserver.entity.custody_log import Stint
from batonpass.simserver.entity.description import described, shown
from batonpass.simserver.entity.encoder import LifeEncoder
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.mail_desk import commit_mail, end_mail, has_news
from batonpass.simserver.entity.parts_at_rest import PartsAtRest
from batonpass.simserver.entity.passivated import PassivatedState
from batonpass.simserver.entity.quarantine import Quarantine
from batonpass.simserver.entity.sleep import Sleep, may_sleep
from batonpass.simserver.entity.snapshot import EntitySnapshot, Frozen, state_hash
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.world.api import schema_version, takes
from batonpass.simserver.world.migration import UP_TO_DATE, brought_up_to_date, is_up_to_date
from batonpass.simserver.world.participants import release, with_parts
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Carried

__all__ = ["Life"]

_log = logging.getLogger("batonpass.simserver.entity.state")

# The fields that an entity lacks while it is passivated.
_BODY: Final = frozenset(("_encoder", "carried", "inbox", "world"))


class Life:
    """One entity, from its arrival on this server until it leaves; see the head of the module.

    `ref` is its present actor, or its last one while it has none. `over` means that it has left: nothing changes any
    more, and no actor is to be started for it. `quarantine_reason` says why it is quarantined; it moves along.
    `step_ns` is how long the world takes for a tick, lately, and `state_bytes` the length of its last snapshot.
    `leaves_at_ns` is when it leaves at the latest, if that is known. `sleep` is there while it sleeps; see
    `simserver.entity.sleep`. `passive` is there while it is passivated, and has no actor. Then state, inbox and what is
    carried are in there, and are brought back, with an actor, by the first access to one of them. `owes_tick` says that
    its first actor since has to begin with a tick. `wants` names the server on which its world wants it, if that is
    another one.
    """

    __slots__ = (
        "_begun_ns",
        "_encoder",
        "_env",
        "_migrated",
        "_parts",
        "_tick",
        "_ticks_here",
        "acceptance",
        "carried",
        "fence",
        "frozen",
        "id",
        "inbox",
        "kind",
        "leaves_at_ns",
        "mail",
        "over",
        "owes_tick",
        "passive",
        "quarantine",
        "ref",
        "schema",
        "sleep",
        "state_bytes",
        "step_ns",
        "stint",
        "wants",
        "world",
    )

    is_batched = False
    """Whether it ticks with others in one call of the world, and has no actor; see `simserver.entity.batch_life`."""

    def __init__(
        self,
        environment: EntityEnvironment,
        entity: str,
        fence: Fence,
        snapshot: EntitySnapshot,
        *,
        begins: bool = True,
    ) -> None:
        """Begins from the snapshot: from here on this server is in custody.

        Unless it `begins` at once, its maker calls `begin` within the same step, and it is not looked at before that.
        """
        self._env = environment
        self.id = entity
        self.passive: PassivatedState | None = None
        self.owes_tick, self.fence, self.kind = False, fence, snapshot.kind
        self._tick = snapshot.tick
        self._ticks_here = 0
        self.sleep: Sleep | None = None
        self.world = snapshot.world
        self.schema = snapshot.schema
        self._migrated: Any = UP_TO_DATE
        self.carried = snapshot.carried
        self.inbox = EntityInbox.from_data(snapshot.inbox)
        self.mail = EntityMail.of(snapshot.messages, environment.mail.budget, snapshot.tick)
        self.acceptance = InputAcceptance(environment, snapshot.ownership)
        self.step_ns, self.frozen, self.over = 0, False, False
        self.quarantine = Quarantine(environment, entity, snapshot)
        self.ref: Ref | None = None
        self.wants = ""
        self.state_bytes = self.leaves_at_ns = 0
        self._parts = PartsAtRest(environment, snapshot)
        self._begun_ns = environment.monotonic_ns()
        if begins:
            self.begin()

    def begin(self) -> None:
        """It is written down that it has begun here when it was made, and with what; then the world may look at it."""
        self._begin_stint(self._begun_ns)
        self._bring_up_to_date()
        self._sleep_if_it_may()
        if self.ownership.is_half_told:
            self._env.wants_word_of_owner(self.id)

    def _bring_up_to_date(self) -> None:
        """A state in an earlier form is brought into the present one, after it was seen that it came as it left.

        What `migrate` gave is not its state until a tick with it has succeeded. Until then copies, checkpoints and
        hand-overs have the former one, in its form. If it cannot be brought there it is not simulated here, and another
        server may be able to.
        """
        self._migrated = UP_TO_DATE
        if is_up_to_date(self._env.world, self.kind, self.schema):
            return
        try:
            with self.at_work():
                self._migrated = brought_up_to_date(self._env.world, self.kind, self.schema, self.world)
        except BaseException as error:
            if is_stopping(error):
                raise
            if not self.quarantine_reason:
                self._quarantine_for(said(error), is_unread=True)
                if not self.is_untaken:
                    self._failed_at("migrate", error)

    @property
    def changed_at(self) -> int:
        """Of one that is batched, the last tick of the batch that may have changed it; 0 of any other."""
        return 0

    @property
    def seen(self) -> Any:
        """The state as its world is shown it: in the world's present form. Passivated, it stays so."""
        return self.look() if self._migrated is UP_TO_DATE else self._migrated

    def rehydrate(self) -> None:
        """Its world takes up the parts that came with it, before the first tick; see `simserver.world.participants`."""
        if not self.quarantine_reason:
            self._parts.rehydrate(self)

    # --- at work ---------------------------------------------------------------------------------------------------

    def enter(self) -> int:
        """Its world begins to work on it, whatever it is asked: the time. `leave` has to follow."""
        self._env.crash_guard.enter(self.id, self.fence.epoch)
        return self._env.monotonic_ns()

    def leave(self, began_ns: int) -> int:
        """Its world has come back: the time. If it took so long that the lease is lost, that counts as a death."""
        self._env.crash_guard.leave()
        done_ns = self._env.monotonic_ns()
        if self._env.is_lost_by(began_ns, done_ns):
            self.cost_the_lease(done_ns - began_ns)
        return done_ns

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """As `enter` and `leave` around this; also while the world is at work on it anyway."""
        with self._env.crash_guard.simulating(self.id, self.fence.epoch):
            began_ns = self._env.monotonic_ns()
            try:
                yield
            finally:
                done_ns = self._env.monotonic_ns()
                if self._env.is_lost_by(began_ns, done_ns):
                    self.cost_the_lease(done_ns - began_ns)

    def cost_the_lease(self, took_ns: int) -> None:
        """Its world took so long for it that the lease of the server was lost by that, which counts as a death."""
        why = self.quarantine.lease_lost(took_ns / 1e9, self.fence.epoch)
        if why and not (self.quarantine_reason or self.over):
            self.enter_quarantine(why)

    # --- with an actor ---------------------------------------------------------------------------------------------

    @property
    def has_actor(self) -> bool:
        """Whether an actor is alive that simulates it."""
        return self.ref is not None and self.ref.alive

    def taken_up_by(self, ref: Ref) -> None:
        """An actor begins to simulate it, the first one or one in place of another that ended.

        If actors crash on it again and again it is quarantined from here on. It is kept, can be looked at and handed
        over, and does no more harm. An actor that was ended from outside is nothing to hold against it.
        """
        before, self.ref = self.ref, ref
        if before is None or before.alive or cause_of(before.process.reason) is None:
            return
        if (why := self.quarantine.crashed(before.process.reason)) and not self.quarantine_reason:
            self.enter_quarantine(why)

    def failed(self, error: BaseException) -> None:
        """Its world failed on it: it is stopped with its last good state.

        That is so wherever it goes, but if its state was only now brought into another form. What failed is not its
        state, and a server whose world takes the former one may simulate that.
        """
        self.enter_quarantine(said(error))
        self.quarantine.is_unread = self._migrated is not UP_TO_DATE
        self._failed_at("tick", error)

    def _failed_at(self, doing: str, error: BaseException) -> None:
        self.quarantine.world_failed(self._ticks_here * self._env.period_s)
        self.fault(doing, error)

    def fault(self, doing: str, error: BaseException) -> None:
        """Its world failed in `doing` something with it: that is counted, and said in the log."""
        self.quarantine.fault(doing, error, self._tick)

    def _quarantine_for(self, why: str, *, is_unread: bool) -> None:
        self.quarantine.begin(why, is_unread=is_unread)
        self.has(EntityChange.QUARANTINED)

    def enter_quarantine(self, why: str) -> None:
        """Do not simulate it any more, until people have looked at it: the next try would fail like this one.

        That is so wherever it goes. It takes a tick of its own, since copies are named by fence and tick: the one of
        before is not to be continued. A frozen one is named already.
        """
        self.wake()
        self._tick += not self.frozen
        self._quarantine_for(why, is_unread=False)

    @property
    def quarantine_reason(self) -> str:
        """Why it is not simulated here; empty if it is."""
        return self.quarantine.why

    @property
    def is_untaken(self) -> bool:
        """Whether it is quarantined because the world here takes no such kind or form, which another's may.

        Not if the world takes them and fails on this very state: that would be so elsewhere.
        """
        return self.quarantine.is_unread and not takes(self._env.world, self.kind, self.schema)

    def release(self, *, discard_inputs: bool = False) -> bool:
        """Simulate it again, once people have looked at it; whether it was quarantined. It is again if that fails.

        One that sleeps is woken, so that its world looks at it for a tick: true as well.

        With `discard_inputs` what waits for the next tick counts as applied, and is not: it may be what the world
        fails on.
        """
        if self.frozen or self.over or not (self.quarantine_reason or self.sleep):
            return False
        if self.sleep is not None:
            self.wake()
            return True
        self.quarantine.end(self.fence.epoch)
        if discard_inputs and (self.inbox.pending or has_news(self)):
            # Nothing that is acknowledged may change without a tick. Copies are named by fence and tick: an
            # acknowledgement of the copy before would be taken for one of this copy.
            self._tick += 1
            self.acceptance.passed_over(self, self.inbox.take())
            commit_mail(self, self._env.mail)
        self.has(EntityChange.RELEASED)
        self._bring_up_to_date()
        return True

    def require_portable(self, world: Any) -> None:
        """See that a state may be committed; as `LifeEncoder.require_portable`, which says what it raises."""
        # The same object as before is what it was, or was changed where it stands, and there is none of before.
        if world is not self.world:
            self._encoder.require_portable(world)

    def commit(
        self, world: Any, now_ns: int, carried: Carried | None = None, done_ns: int | None = None
    ) -> list[PendingInput]:
        """One tick is done, and everything that waited went into it: the inputs that were applied.

        It was begun at `now_ns` and took the world until `done_ns`, or until now.
        Called by the actor when the world's code is through; nothing in here can fail.
        """
        applied, feed = self.inbox.take(), self._env.feed
        before, self.world = self.world, world
        if self._migrated is not UP_TO_DATE:
            self._migrated, self.schema = UP_TO_DATE, schema_version(self._env.world)
        self._parts.kept = None
        if carried is not None:
            self.carried = carried
        self._tick += 1
        self._ticks_here += 1
        self.stint.last_tick_ns = now_ns
        self.stint.first_tick_ns = self.stint.first_tick_ns or now_ns
        # An average over some eight ticks.
        took_ns = (self._env.monotonic_ns() if done_ns is None else done_ns) - now_ns
        self.step_ns += (took_ns - self.step_ns) // 8
        if self.mail is not None and self._env.takes_messages:
            commit_mail(self, self._env.mail)
        if feed.hears_commits:
            feed.committed(self.id, self.fence, self._tick, before, world, applied)
        return applied

    def has(self, change: EntityChange) -> None:
        """Something but a tick has changed it: the subscribers to that are told."""
        self._env.feed.changed(self.id, self.fence, self.tick, change)

    @property
    def is_stopped(self) -> bool:
        """Whether it has no ticks for now, though it is not asleep."""
        return bool(self.frozen or self.quarantine_reason or self.ownership.suspended)

    @property
    def can_be_told(self) -> bool:
        """Whether its world hears of what is to come, and can say that it is ready."""
        return hasattr(self._env.world, "advance") and not (self.quarantine_reason or self.ownership.suspended)

    # --- ticks and sleep -------------------------------------------------------------------------------------------

    @property
    def tick(self) -> int:
        """How many ticks it has had since it was spawned, wherever that was; those that it slept through count."""
        return self._tick if self.sleep is None else self._tick + self.sleep.slept(self._env.rounds.count)

    @property
    def ticks_here(self) -> int:
        """How many of them on this server, under the present fence or one to which it was passed on here."""
        return self._ticks_here if self.sleep is None else self._ticks_here + self.sleep.slept(self._env.rounds.count)

    def wakes_now(self) -> bool:
        """Wake it if one of its timers ends in the present round; whether it is awake now."""
        if self.sleep is not None and self.sleep.is_over(self._env.rounds.count):
            self.wake()
        return self.sleep is None

    def fall_asleep(self) -> None:
        """Its world says that nothing will change: no ticks from here on, until it wakes."""
        if not (self.is_stopped or self.over or self.leaves_at_ns or self.inbox.pending or has_news(self)):
            self.sleep = Sleep.begun(self._env.rounds.count, self.tick, self.carried.timers)

    def wake(self) -> None:
        """It takes part in the next round, if it does not already; what it slept through is counted."""
        if self.sleep is not None:
            self._count_sleep()
            if self.passive is not None:
                self._bring_back(self.passive)

    def _count_sleep(self) -> None:
        self._tick, self._ticks_here, self.sleep = self.tick, self.ticks_here, None

    def _sleep_if_it_may(self) -> None:
        """It begins here, or is resumed: without a tick, if its world has nothing to do in it.

        A state in another form than it came in needs one, to become its state.
        """
        if self.quarantine_reason or self._migrated is not UP_TO_DATE:
            return
        try:
            with self.at_work():
                sleeps = may_sleep(self._env.world, self.world)
            if sleeps:
                self.fall_asleep()
        except BaseException as error:
            if is_stopping(error):
                raise
            # The next tick runs into the same, and says what.
            self.wake()

    # --- passivated ------------------------------------------------------------------------------------------------

    def passivate(self) -> bool:
        """Give back the memory of one that sleeps: its actor ends, and its bytes are kept; whether it was done.

        The caller sees to it that nothing waits for the actor. Raises whatever encoding or reading raises, of what is
        no CBOR data; it stays as it is then.
        """
        if self.sleep is None or self.passive is not None or self.frozen or self.over or self.leaves_at_ns:
            return False
        if self._parts.present(self.tick) is not None:
            return False
        passive = PassivatedState.of(self._encoder.around_tick(self), self.inbox)
        # What can be encoded need not be readable: a reader takes fewer levels. It could not be brought back.
        EntitySnapshot.decode(passive.encoded(self.tick))
        self.passive = passive
        del self._encoder, self.carried, self.inbox, self.world
        ref, self.ref = self.ref, None
        if ref is not None:
            # Orderly, so that its supervisor does not start another one.
            ref.exit(SHUTDOWN)
        return True

    def _bring_back(self, passive: PassivatedState) -> None:
        """It is as it was before, but for the actor, which is there a moment later."""
        snapshot = EntitySnapshot.decode(passive.encoded(self.tick))
        self.world, self.carried, self.inbox = snapshot.world, snapshot.carried, passive.inbox(snapshot)
        self._encoder = LifeEncoder()
        self.passive = None
        self._env.count("brought_back")
        self._env.wants_actor(self.id)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Python asks this for missing fields only: other entities pay nothing, and no caller forgets to look.
            if name in _BODY and self.passive is not None:
                self._bring_back(self.passive)
                return getattr(self, name)
            raise AttributeError(f"a life has no {name}")

    def look(self) -> Any:
        """The world's state, for the moment: one that is passivated stays so."""
        return self.world if self.passive is None else self.snapshot().world

    @property
    def heard(self) -> tuple[tuple[str, int, int], ...]:
        """As `EntityInbox.heard`."""
        return self.inbox.heard() if self.passive is None else self.passive.heard

    def applied(self, source: str) -> int | None:
        """How many inputs of a source were applied; None if it is not known. Passivated, it stays so."""
        if self.passive is not None:
            return self.passive.applied(source)
        cursor = self.inbox.cursors.get(source)
        return None if cursor is None else cursor.applied

    # --- inputs ----------------------------------------------------------------------------------------------------

    @property
    def ownership(self) -> Ownership:
        """Who owns it, as far as that counts here yet."""
        return self.acceptance.ownership

    def take_input(self, source: str, owner_rev: int, seq: int, data: bytes, base: int = 0, floor: int = 0) -> None:
        """An input arrived; as `InputAcceptance.take`."""
        self.acceptance.take(self, source, owner_rev, seq, data, base, floor)

    def take_own_input(self, data: bytes) -> int:
        """As `InputAcceptance.take_own`."""
        return self.acceptance.take_own(self, data)

    def take_inputs(self, items: Iterable[InputItem]) -> None:
        """Several inputs arrived, in this order."""
        self.acceptance.take_all(self, items)

    def take_journal(self) -> list[InputItem]:
        """As `InputAcceptance.take_journal`."""
        return self.acceptance.take_journal()

    def owned(self, ownership: Ownership) -> None:
        """As `InputAcceptance.owned`."""
        self.acceptance.owned(self, ownership)

    # --- custody ---------------------------------------------------------------------------------------------------

    def freeze(self) -> Frozen | None:
        """No tick from here on: the entity at rest. None if it is frozen already, or has left.

        Raises:
            NotPortable: it cannot be written. It is as it was.
        """
        if self.frozen or self.over:
            return None
        frozen = self.at_rest()
        self._parts.frozen(self.tick)
        if self.sleep is not None:
            # One that is passivated can be handed over as it is.
            self._count_sleep()
        self.frozen = True
        self._env.custody.changed(self.stint.ended(self.tick, frozen.state_hash, frozen.frozen_ns))
        return frozen

    def at_rest(self) -> Frozen:
        """What a freeze at this moment would give; nothing is changed by it."""
        state = self.encoded_state()
        self.state_bytes = len(state)
        is_readable = not self.quarantine_reason and self._migrated is UP_TO_DATE
        encoded = with_parts(state, self._parts.ready(self, is_readable=is_readable))
        digest, now_ns = state_hash(encoded), self._env.monotonic_ns()
        return Frozen(self.fence, self.kind, self.tick, encoded, digest, now_ns, self.schema)

    def thaw(self) -> None:
        """Take back a freeze of which no other server has heard."""
        if self.frozen:
            self._env.custody.changed(self.stint.ended(0, "", 0))
            self._go_on()

    def resume(self, fence: Fence) -> None:
        """Tick again under `fence`, from the frozen state and the journal; does nothing unless frozen under less."""
        if self.over or not self.frozen or fence <= self.fence:
            return
        self.fence, self._ticks_here = fence, 0
        self._env.custody.over(self.stint)
        self._begin_stint(self._env.monotonic_ns())
        self._go_on()

    def _go_on(self) -> None:
        self.frozen = False
        self._sleep_if_it_may()
        self.acceptance.resumed(self)

    def end(self) -> list[str]:
        """It has left; its actor ends. Who should be told: its sources, and its owner, who may have given nothing."""
        if not self.over:
            self.over = True
            end_mail(self, self._env.mail)
            with self.at_work():
                release(self._env.world, self.id, self._env.count)
            self.has(EntityChange.ENDED)
            self._env.custody.over(getattr(self, "stint", None))
        if self.ref is not None:
            # Orderly, so that its supervisor does not start another one.
            self.ref.exit(SHUTDOWN)
        return sorted({*(name for name, *_ in self.heard), self.ownership.owner} - {""})

    def _begin_stint(self, now_ns: int) -> None:
        self.has(EntityChange.BEGUN)
        # By what is in memory now, and not by what came: the custody log vouches for that.
        if self.passive is None:
            self._encoder = LifeEncoder()
        tick, digest = self.tick, ""
        try:
            state = self.encoded_state()
            self.state_bytes = len(state)
            digest = state_hash(self._parts.around(state, self.tick))
        except Exception as error:
            # The server that had it may have heard that it is here.
            self.cannot_be_encoded(error)
        self.stint = Stint(self.id, self._env.server, self.fence.epoch, self.fence.sub, tick, digest, now_ns)
        self._env.custody.start(self.stint)

    def snapshot(self) -> EntitySnapshot:
        """As it stands between two ticks."""
        if self.passive is not None:
            return EntitySnapshot.decode(self.encoded())
        of_world = (self.kind, self.tick, self.world, self.inbox.to_data(), self.ownership, self.schema, self.carried)
        beside = (self.quarantine.wherever, self._parts.shown(self.tick), self.quarantine.released_epoch)
        return EntitySnapshot(*of_world, *beside, None if self.mail is None else self.mail.to_data())

    def encoded(self) -> bytes:
        """As it stands between two ticks, encoded."""
        return self._parts.around(self.encoded_state(), self.tick)

    def encoded_state(self) -> bytes:
        """The same without parts: what copies and checkpoints have."""
        return self._encoder.encode(self) if self.passive is None else self.passive.encoded(self.tick)

    def encoded_if_portable(self, *, whole: bool = False) -> bytes | None:
        """The same (with parts if it is the `whole`) for a caller that goes through many; None if it cannot be had.

        It is quarantined then, since nothing of what it does would outlive this server, and counts as
        `state_not_portable`.
        """
        try:
            return self.encoded() if whole else self.encoded_state()
        except Exception as error:
            self.cannot_be_encoded(error)
            return None

    def cannot_be_encoded(self, error: Exception) -> None:
        """It was found that it cannot leave: it is quarantined here, unless it is already."""
        self._env.count("state_not_portable")
        if not self.quarantine_reason:
            _log.error("%s cannot be written, and is quarantined here: %s", self.id, said(error))
            self.enter_quarantine(f"its state cannot travel: {said(error)}")

    # --- looking ---------------------------------------------------------------------------------------------------

    def inspected(self, *, with_state: bool) -> dict[str, Any]:
        """How it is, as plain data, with the state as CBOR in hex if that is wanted. Passivated, it stays so."""
        data = described(self, self.inbox if self.passive is None else self.passive.inbox(self.snapshot()))
        return data | ({"state": shown(self.look())} if with_state else {})
