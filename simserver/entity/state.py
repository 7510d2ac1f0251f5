"""The life of an entity on this server: everything that its actor must not take with it when it ends.

An actor runs the world's code, and may crash or be killed at any time. What it has achieved is committed here after
every tick, by reference and in one step that cannot fail half-way, so that the next actor of the same entity goes on
after the last tick that anybody has seen: with the same state, inputs, cursors and fence, frozen or not. Freezing,
resuming and retiring are decided by the hand-over machinery and change the life itself, at once and whether or not it
has an actor at that moment; there is no message about them that could be lost.

Everything here is synchronous: whoever is ended by somebody else is ended before or after one of these steps.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from batonpass.actors.base.errors import is_stopping, said
from batonpass.actors.core.exits import SHUTDOWN, Reason, cause_of
from batonpass.actors.core.restart import RestartWindow
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import UNTOLD, InputVerdict, Ownership, judge_input
from batonpass.authority.wire.transfer import InputAck, InputItem, NotOwner
from batonpass.simserver.entity.custody_log import Stint
from batonpass.simserver.entity.description import described
from batonpass.simserver.entity.encoder import LifeEncoder
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.inputs import Admission, Inbox
from batonpass.simserver.entity.journal import Journal
from batonpass.simserver.entity.passivated import Passive
from batonpass.simserver.entity.sleep import Sleep, may_sleep
from batonpass.simserver.entity.snapshot import Frozen, Snapshot, shortened, state_hash
from batonpass.simserver.world.api import migrated, schema_version, takes
from batonpass.simserver.world.participants import NO_PARTS, Parts, dehydrated, rehydrate, release, with_parts
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.portability import Glance, NotPortable, a_state, copied, glance, portable
from batonpass.simserver.world.step import Carried

if TYPE_CHECKING:
    from batonpass.actors.core.ref import Ref

__all__ = ["EntityEnvironment", "Frozen", "Life", "Snapshot", "state_hash"]

_log = logging.getLogger("batonpass.simserver.entity.state")

# An actor that crashes more often than this, on one entity, would go on doing so: the entity stands still instead. It
# is not its supervisor's limit, because one entity must not end the others.
MAX_CRASHES: Final = 3
CRASH_WINDOW_S: Final = 5.0
# What is stopped so soon, by its ticks, has not run here.
FIRST_MOMENTS_S: Final = 5.0
# With every tick so many members of a state are looked at, which takes some 400 us at most: what has more is looked at
# when it is encoded. Nor is what has to be encoded for that encoded with every tick if it is longer.
MAX_GLANCED: Final = 4096
MAX_TRIED_BYTES: Final = 4096
# What there is of a state in the present form of the world, if it came in that form.
_NOTHING: Final = object()
# What is not there while an entity is put away.
_BODY: Final = frozenset(("_encoder", "carried", "inbox", "world"))


class Life:
    """One entity, from its arrival on this server until it leaves; see the head of the module.

    `ref` is its present actor, or its last one while it has none. `over` means that it has left: nothing changes any
    more, and no actor is to be started for it. `broken` says why it stands still, if it does, and moves with
    it. `step_ns` is how long the world takes for a tick, lately, `state_bytes` the length of its last snapshot,
    `leaves_at_ns` when it leaves at the latest, if that is known. `sleep` is there while it sleeps; see
    `simserver.entity.sleep`. `passive` is there while it is put away, and has no actor: then state, inbox and what is
    carried are in there, and are brought back, with an actor, by whoever wants one of them. `owes_tick` says that its
    first actor since has to begin with a tick. `wants` names the server on which its world wants it, if that is another
    one.
    """

    __slots__ = (
        "_begun_ns",
        "_broken_ns",
        "_crashes",
        "_encoder",
        "_env",
        "_is_unread",
        "_journal",
        "_migrated",
        "_next_ownership",
        "_parts",
        "_ran_before",
        "_tick",
        "_ticks_here",
        "broken",
        "carried",
        "durable",
        "failed_here",
        "fence",
        "frozen",
        "id",
        "inbox",
        "kind",
        "leaves_at_ns",
        "over",
        "owes_tick",
        "ownership",
        "passive",
        "ref",
        "released_epoch",
        "schema",
        "sleep",
        "state_bytes",
        "step_ns",
        "stint",
        "wants",
        "world",
    )

    def __init__(
        self, environment: EntityEnvironment, entity: str, fence: Fence, snapshot: Snapshot, *, begins: bool = True
    ) -> None:
        """Begins from the snapshot: from here on this server is in custody.

        Unless it `begins` at once, whoever makes it has it `begin` within the same step, and nobody looks before that.
        """
        self._env = environment
        self.id = entity
        self.passive: Passive | None = None
        self.owes_tick = False
        self.fence = fence
        self.kind = snapshot.kind
        self._tick = snapshot.tick
        self._ticks_here = 0
        self.sleep: Sleep | None = None
        self.world = snapshot.world
        self.schema = snapshot.schema
        self._migrated: Any = _NOTHING
        self.carried = snapshot.carried
        self.inbox = Inbox.from_data(snapshot.inbox)
        self.ownership = snapshot.ownership
        self.durable: dict[str, int] = {}
        self._next_ownership = UNTOLD
        self.step_ns = 0
        self.frozen = self.over = self._is_unread = False
        self.broken = snapshot.broken
        self._ran_before = snapshot.tick > 0 and not snapshot.broken
        self._broken_ns = environment.monotonic_ns()
        self.failed_here = False
        self.released_epoch = snapshot.released_epoch
        self.ref: Ref | None = None
        self.wants = ""
        self._crashes: RestartWindow | None = None
        self.state_bytes = 0
        self.leaves_at_ns = 0
        self._parts = Parts(snapshot.tick, snapshot.parts) if snapshot.parts else None
        self._journal: Journal | None = None
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

        What `migrate` gave is not its state until a tick with it has succeeded: until then copies, checkpoints and
        hand-overs have the former one, in its form. If it cannot be brought there it is not simulated here, and another
        server may be able to.
        """
        world, self._migrated = self._env.world, _NOTHING
        if takes(world, self.kind, self.schema) and self.schema == schema_version(world):
            return
        try:
            with self.at_work():
                # A copy of its own: it may write into that, and fail after it.
                state = a_state("migrate", migrated(world, self.kind, copied(self.world), self.schema))
            portable(state)
            self._migrated = state
        except BaseException as error:
            if is_stopping(error):
                raise
            if not self.broken:
                self._breaks(said(error), is_unread=True)
                if not self.is_untaken:
                    self._failed_at("migrate", error)

    @property
    def seen(self) -> Any:
        """The state as its world is shown it: in the world's present form. One that is put away stays so."""
        return self.look() if self._migrated is _NOTHING else self._migrated

    def rehydrate(self) -> None:
        """Its world takes up the parts that came with it, before the first tick; see `simserver.world.participants`."""
        if self._parts is not None and not self.broken:
            with self.at_work():
                rehydrate(self._env.world, self.id, self.seen, self._parts.shown, self._env.count)

    # --- at work ---------------------------------------------------------------------------------------------------

    def enter(self) -> int:
        """Its world begins to work on it, whatever it is asked: the time. `leave` has to follow."""
        self._env.black_box.enter(self.id, self.fence.epoch)
        return self._env.monotonic_ns()

    def leave(self, began_ns: int) -> int:
        """Its world has come back: the time. If it took so long that the lease is lost, that counts as a death."""
        self._env.black_box.leave()
        done_ns = self._env.monotonic_ns()
        if self._env.is_lost_by(began_ns, done_ns):
            self._cost_the_lease((done_ns - began_ns) / 1e9)
        return done_ns

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """As `enter` and `leave` around this; also while the world is at work on it anyway."""
        with self._env.black_box.simulating(self.id, self.fence.epoch):
            began_ns = self._env.monotonic_ns()
            try:
                yield
            finally:
                done_ns = self._env.monotonic_ns()
                if self._env.is_lost_by(began_ns, done_ns):
                    self._cost_the_lease((done_ns - began_ns) / 1e9)

    def _cost_the_lease(self, took_s: float) -> None:
        times = self._env.black_box.died(self.id, self.fence.epoch)
        self._env.count("lease_lost_at_work")
        text = "the world took %.1f s for %s, and %s lost its lease by that, %d times in an hour"
        _log.error(text, took_s, self.id, self._env.server, times)
        why = self._env.black_box.verdict(self.id, self.released_epoch)
        if why and not (self.broken or self.over):
            self.stand_still(f"{why}: {took_s:.1f} s the last time")

    # --- with an actor ---------------------------------------------------------------------------------------------

    @property
    def has_actor(self) -> bool:
        """Whether an actor is alive that simulates it."""
        return self.ref is not None and self.ref.alive

    def taken_up_by(self, ref: "Ref") -> None:
        """An actor begins to simulate it, the first one or one in place of another that ended.

        If actors crash on it again and again it stands still from here on: it is kept, can be looked at and handed
        over, and does no more harm. An actor that somebody ended is nothing to hold against it.
        """
        before, self.ref = self.ref, ref
        if before is None or before.alive or cause_of(before.process.reason) is None:
            return
        self._env.count("entity_crashed")
        if self._crashes is None:
            self._crashes = RestartWindow(MAX_CRASHES, CRASH_WINDOW_S)
        if not self._crashes.allows_restart(self._env.monotonic_ns() / 1e9) and not self.broken:
            self.stand_still(f"its actor crashed {MAX_CRASHES + 1} times in a row: {_told(before.process.reason)}")

    def failed(self, error: BaseException) -> None:
        """Its world failed on it: it is stopped with its last good state.

        That is so wherever it goes, but if its state was only now brought into another form: what failed is not its
        state, and a server whose world takes the former one may simulate that.
        """
        self.stand_still(said(error))
        self._is_unread = self._migrated is not _NOTHING
        self._failed_at("tick", error)

    def _failed_at(self, doing: str, error: BaseException) -> None:
        is_soon = self._ticks_here * self._env.period_s < FIRST_MOMENTS_S
        self.failed_here = self._ran_before and is_soon
        self.fault(doing, error)

    def fault(self, doing: str, error: BaseException) -> None:
        """Its world failed in `doing` something with it: that is counted, and said in the log."""
        self._env.count("world_failed")
        what = f"{doing}: {self.id}, a {self.kind}, at tick {self._tick}"
        if self.broken:
            what += f"; it is stopped {'wherever it goes' if self.quarantine else 'here'}"
        self._env.faults.failed(what, error, self._env.monotonic_ns())

    def _breaks(self, why: str, *, is_unread: bool) -> None:
        self.broken, self._is_unread = shortened(why), is_unread
        self._broken_ns, self.failed_here = self._env.monotonic_ns(), False
        self._env.count("entity_broken")
        self._env.stands_still(self.id)

    def stand_still(self, why: str) -> None:
        """Do not simulate it any more, until people have looked at it: the next try would fail like this one.

        That is so wherever it goes. It takes a tick of its own, since copies are named by fence and tick: the one of
        before is not to be gone on with. A frozen one is named already.
        """
        self.wake()
        self._breaks(why, is_unread=False)
        self._tick += not self.frozen

    @property
    def quarantine(self) -> str:
        """Why it stands still wherever it goes; empty if it does not, or only because this server cannot read it."""
        return "" if self._is_unread else self.broken

    @property
    def still_ns(self) -> int:
        """For how long it has stood still because it is broken."""
        return self._env.monotonic_ns() - self._broken_ns

    @property
    def is_untaken(self) -> bool:
        """Whether it stands still because the world here takes no such kind or form, which another's may.

        Not if the world takes them and fails on this very state: that would be so elsewhere.
        """
        return self._is_unread and not takes(self._env.world, self.kind, self.schema)

    def release(self, *, discard_inputs: bool = False) -> bool:
        """Simulate it again, once people have looked at it; whether it stood still. It does so again if that fails.

        One that sleeps is woken, so that its world looks at it for a tick: true as well.

        With `discard_inputs` what waits for the next tick counts as applied, and is not: it may be what the world
        fails on.
        """
        if self.frozen or self.over or not (self.broken or self.sleep):
            return False
        if self.sleep is not None:
            self.wake()
            return True
        self.broken, self._is_unread, self._crashes = "", False, None
        self.released_epoch = self.fence.epoch
        self._env.count("entity_released")
        self._env.black_box.forget(self.id)
        if discard_inputs:
            self._pass_over(self.inbox.take())
        self._bring_up_to_date()
        return True

    def _pass_over(self, discarded: list[PendingInput]) -> None:
        """These count as applied, in a tick of their own, in which the world did nothing.

        Nothing that is acknowledged may change without one: copies are named by fence and tick, and the word that one
        of before is kept would be taken for the word that this one is.
        """
        if discarded:
            self._tick += 1
            for source, applied in self.inbox.sources_of(discarded).items():
                self._env.count("input_discarded")
                self.acknowledge(source, applied)

    def require_portable(self, world: Any) -> None:
        """See that a state may be committed: it can leave with its entity, unless it is too large to look at it all.

        A tick takes longer by it: by 1.7 us with a ball, by 6 us with 240 bytes of small maps, by 2 us with 1 MiB that
        is large. The same object as before is what it was, or was changed where it stands, and there is none of before.

        Raises:
            NotPortable: it is no state, or the entity could not be copied, handed over, or taken over after a failure.
        """
        if world is self.world:
            return
        a_state("the step", world)
        try:
            if glance(world, MAX_GLANCED) is Glance.OTHER and self._encoder.world_bytes <= MAX_TRIED_BYTES:
                self._encoder.of_world(world)
        except NotPortable as error:
            raise NotPortable(f"the world gave a state that cannot travel: {error}") from error

    def commit(
        self, world: Any, now_ns: int, carried: Carried | None = None, done_ns: int | None = None
    ) -> list[PendingInput]:
        """One tick is done, and everything that waited went into it: the inputs that were applied.

        It was begun at `now_ns` and took the world until `done_ns`, or until now.
        Called by the actor when the world's code is through; nothing in here can fail.
        """
        applied = self.inbox.take()
        self.world = world
        if self._migrated is not _NOTHING:
            self._migrated, self.schema = _NOTHING, schema_version(self._env.world)
        self._parts = None
        if carried is not None:
            self.carried = carried
        self._tick += 1
        self._ticks_here += 1
        self.stint.last_tick_ns = now_ns
        self.stint.first_tick_ns = self.stint.first_tick_ns or now_ns
        # An average over some eight ticks.
        took_ns = (self._env.monotonic_ns() if done_ns is None else done_ns) - now_ns
        self.step_ns += (took_ns - self.step_ns) // 8
        return applied

    @property
    def can_be_told(self) -> bool:
        """Whether its world hears of what is to come, and can say that it is ready."""
        return hasattr(self._env.world, "advance") and not (self.broken or self.ownership.suspended)

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
        stands_still = self.frozen or self.broken or self.ownership.suspended
        if not (stands_still or self.over or self.leaves_at_ns or self.inbox.pending):
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
        """It begins here, or goes on: without a tick, if its world has nothing to do in it.

        A state in another form than it came in needs one, to become its state.
        """
        if self.broken or self._migrated is not _NOTHING:
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

    # --- put away --------------------------------------------------------------------------------------------------

    def put_away(self) -> bool:
        """Give back the memory of one that sleeps: its actor ends, and its bytes are kept; whether it was done.

        Whoever calls this sees to it that nothing waits for the actor. Raises whatever encoding or reading raises, of
        what is no CBOR data; it stays as it is then.
        """
        if self.sleep is None or self.passive is not None or self.frozen or self.over or self.leaves_at_ns:
            return False
        if self._present_parts() is not None:
            return False
        passive = Passive.of(self._encoder.around_tick(self), self.inbox)
        # What can be encoded need not be readable: a reader takes fewer levels. Nobody could bring it back.
        Snapshot.decode(passive.encoded(self.tick))
        self.passive = passive
        del self._encoder, self.carried, self.inbox, self.world
        ref, self.ref = self.ref, None
        if ref is not None:
            # Orderly, so that its supervisor does not start another one.
            ref.exit(SHUTDOWN)
        return True

    def _bring_back(self, passive: Passive) -> None:
        """It is as it was before, but for the actor, which is there a moment later."""
        snapshot = Snapshot.decode(passive.encoded(self.tick))
        self.world, self.carried, self.inbox = snapshot.world, snapshot.carried, passive.inbox(snapshot)
        self._encoder = LifeEncoder()
        self.passive = None
        self._env.count("brought_back")
        self._env.wants_actor(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Asked only for what is not there: who is not put away pays nothing, and nobody can forget to look.
            if name in _BODY and self.passive is not None:
                self._bring_back(self.passive)
                return getattr(self, name)
            raise AttributeError(f"a life has no {name}")

    def look(self) -> Any:
        """The world's state, for the moment: one that is put away stays so."""
        return self.world if self.passive is None else self.snapshot().world

    @property
    def heard(self) -> tuple[tuple[str, int, int], ...]:
        """As `Inbox.heard`."""
        return self.inbox.heard() if self.passive is None else self.passive.heard

    def _applied(self, source: str) -> int | None:
        if self.passive is not None:
            return self.passive.applied(source)
        cursor = self.inbox.cursors.get(source)
        return None if cursor is None else cursor.applied

    # --- inputs ----------------------------------------------------------------------------------------------------

    def take_input(self, source: str, owner_rev: int, seq: int, data: bytes, base: int = 0, floor: int = 0) -> None:
        """An input arrived: it waits for the next tick, or in the journal; or it is counted and forgotten.

        Whether its source owns the entity is decided when it leaves the journal: the owner may change until then.
        """
        if self.frozen:
            item = InputItem(source=source, owner_rev=owner_rev, seq=seq, data=data, base=base, floor=floor)
            self._journal = self._journal or Journal()
            if not self._journal.keep(item):
                self._env.count("input_journal_full")
            return
        verdict = judge_input(self.ownership, source, owner_rev)
        if verdict is not InputVerdict.ADMITTED:
            self._env.count(f"input_{verdict}")
            applied = self._applied(source)
            if applied is not None and seq <= applied:
                # A former owner asks whether what it gave will stay so.
                self.acknowledge(source, applied)
            self._correct(source, verdict)
            if verdict is InputVerdict.UNHEARD_OWNERSHIP:
                self._env.wants_word_of_owner(self.id)
            return
        admission = self.inbox.offer(source, seq, data, base, floor)
        if admission is Admission.ACCEPTED:
            self.wake()
            return
        self._env.count(f"input_{admission}")
        if admission in (Admission.DUPLICATE, Admission.GAP):
            # Its acknowledgement may have been lost with the session of a server that is gone, or with an actor; or
            # what it gave before was lost with the last authority, and this says from where on to give it again.
            self.acknowledge(source, self._applied(source) or 0)

    def acknowledge(self, source: str, applied: int) -> None:
        """Tell a source how far it has been applied, and how much of that is durable."""
        durable = min(self.durable.get(source, 0), applied) if self._env.keeps_copies() else applied
        ack = InputAck(
            entity=self.id,
            applied=applied,
            durable=durable,
            tick=self.tick,
            epoch=self.fence.epoch,
            sub=self.fence.sub,
        )
        self._env.acknowledge(source, ack)

    def made_durable(self, applied: dict[str, int]) -> None:
        """A copy is kept of a state to which so much was applied, by source; those for whom that is news are told."""
        for source, upto in applied.items():
            done = self._applied(source)
            if done is None:
                self.durable.pop(source, None)
            elif upto > self.durable.get(source, 0):
                self.durable[source] = upto
                self.acknowledge(source, done)

    def _correct(self, source: str, verdict: InputVerdict) -> None:
        """Tell a source that its inputs are refused, who owns the entity, and how far its own were applied."""
        correction = NotOwner(
            entity=self.id,
            reason=verdict.value,
            owner=self.ownership.owner,
            owner_rev=self.ownership.rev,
            applied=self._applied(source) or 0,
            epoch=self.fence.epoch,
            sub=self.fence.sub,
        )
        self._env.correct(source, correction)

    def owned(self, ownership: Ownership) -> None:
        """The log's word of who owns it; what it says of an earlier revision than the known one is of the past.

        Inputs given under an earlier revision that no tick has applied are refused, so that none is applied after this;
        those of a frozen life once it goes on, because its snapshot has been taken. Also those of who owned it before
        and owns it again: perhaps they were refused in between by an authority that has died since, and these numbers
        mean other inputs by now.
        """
        if self.over or not (ownership.succeeds(self.ownership) and ownership.succeeds(self._next_ownership)):
            return
        if ownership.is_half_told:
            # So do certificates and grants.
            self._env.wants_word_of_owner(self.id)
        if self.frozen:
            # Its snapshot has been taken, and is what it ends with here.
            self._next_ownership = ownership
        else:
            self._change_hands(ownership)

    def hinted(self, owner_rev: int) -> None:
        """Somebody says that the log has another owner by this revision: home is asked, if that is news."""
        known = self._next_ownership if self._next_ownership.succeeds(self.ownership) else self.ownership
        if not self.over and (owner_rev > known.rev or (owner_rev == known.rev and known.is_half_told)):
            self._env.wants_word_of_owner(self.id)

    @property
    def unsaid_owner_rev(self) -> int:
        """By which revision its owner has changed since the freeze, so that its snapshot does not say it; or 0."""
        return self._next_ownership.rev if self._next_ownership.succeeds(self.ownership) else 0

    def _change_hands(self, ownership: Ownership) -> None:
        self.ownership = ownership
        self.wake()
        for source in self.inbox.withdraw():
            is_owner = source == ownership.owner
            verdict = InputVerdict.STALE_OWNERSHIP if is_owner else InputVerdict.NOT_OWNER
            self._env.count(f"input_{verdict}")
            self._correct(source, verdict)

    # --- custody ---------------------------------------------------------------------------------------------------

    def freeze(self) -> Frozen | None:
        """No tick from here on: the entity at rest. None if it is frozen already, or has left.

        Raises:
            NotPortable: it cannot be written. It is as it was.
        """
        if self.frozen or self.over:
            return None
        frozen = self.at_rest()
        if self._parts is not None:
            self._parts = Parts(self.tick, self._parts.ready or NO_PARTS, self._parts.ready)
        if self.sleep is not None:
            # One that is put away can be handed over as it is.
            self._count_sleep()
        self.frozen = True
        self.stint.ended_tick, self.stint.ended_hash = self.tick, frozen.state_hash
        self.stint.ended_ns = frozen.frozen_ns
        self._env.custody.changed(self.stint)
        return frozen

    def at_rest(self) -> Frozen:
        """What a freeze at this moment would give; nothing is changed by it."""
        state = self.encoded_state()
        self.state_bytes = len(state)
        encoded = with_parts(state, self._dehydrated(len(state)))
        digest, now_ns = state_hash(encoded), self._env.monotonic_ns()
        return Frozen(self.fence, self.kind, self.tick, encoded, digest, now_ns, self.schema)

    def _dehydrated(self, state_bytes: int) -> Mapping[str, bytes]:
        """The parts with which it is frozen, if it is before its next tick: asked for once, however often it is tried.

        What nobody here could read goes on as it came. What a world that failed has made of its parts, nobody knows.
        """
        parts = self._present_parts()
        shown, ready = (NO_PARTS, None) if parts is None else (parts.shown, parts.ready)
        if self.broken or self._migrated is not _NOTHING:
            ready = NO_PARTS if self.quarantine else shown
        elif ready is None:
            with self.at_work():
                ready = dehydrated(self._env.world, self.id, self.look, state_bytes, self._env.count)
        self._parts = Parts(self.tick, shown, ready) if shown or ready else None
        return ready

    def _with_present_parts(self, state: bytes) -> bytes:
        return state if (parts := self._present_parts()) is None else with_parts(state, parts.shown)

    def _present_parts(self) -> Parts | None:
        """Those of this very tick: as they came, or as they were when it was frozen. They are part of what it is."""
        if self._parts is not None and self._parts.tick != self.tick:
            self._parts = None
        return self._parts

    def thaw(self) -> None:
        """Take back a freeze of which nobody else has heard."""
        if self.frozen:
            self.stint.ended_tick, self.stint.ended_hash, self.stint.ended_ns = 0, "", 0
            self._env.custody.changed(self.stint)
            self._go_on()

    def resume(self, fence: Fence) -> None:
        """Tick again under `fence`, from the frozen state and the journal; does nothing unless frozen under less."""
        if self.over or not self.frozen or fence <= self.fence:
            return
        self.fence, self._ticks_here = fence, 0
        self._begin_stint(self._env.monotonic_ns())
        self._go_on()

    def _go_on(self) -> None:
        self.frozen = False
        self._sleep_if_it_may()
        if self._next_ownership.succeeds(self.ownership):
            self._change_hands(self._next_ownership)
        journal, self._journal = self.take_journal(), None
        self.take_inputs(journal)

    def take_inputs(self, items: Iterable[InputItem]) -> None:
        """Several inputs arrived, in this order."""
        for item in items:
            self.take_input(item.source, item.owner_rev, item.seq, item.data, item.base, item.floor)

    def take_journal(self) -> list[InputItem]:
        """The inputs that arrived since the freeze (or since the last `take_journal`)."""
        return [] if self._journal is None else self._journal.take()

    def end(self) -> list[str]:
        """It has left; its actor ends. Who should be told: its sources, and its owner, who may have given nothing."""
        if not self.over:
            self.over = True
            with self.at_work():
                release(self._env.world, self.id, self._env.count)
        if self.ref is not None:
            # Orderly, so that its supervisor does not start another one.
            self.ref.exit(SHUTDOWN)
        owner = self.ownership.owner
        return sorted({*(name for name, *_ in self.heard), *([owner] if owner else [])})

    def _begin_stint(self, now_ns: int) -> None:
        # By what is in memory now, and not by what came: the custody log vouches for that.
        if self.passive is None:
            self._encoder = LifeEncoder()
        tick, digest = self.tick, ""
        try:
            state = self.encoded_state()
            self.state_bytes = len(state)
            digest = state_hash(self._with_present_parts(state))
        except Exception as error:
            # Whoever had it may have heard that it is here.
            self.cannot_be_encoded(error)
        self.stint = Stint(
            entity=self.id,
            server=self._env.server,
            epoch=self.fence.epoch,
            sub=self.fence.sub,
            started_tick=tick,
            started_hash=digest,
            started_ns=now_ns,
        )
        self._env.begun(self.id)
        self._env.custody.start(self.stint)

    def snapshot(self) -> Snapshot:
        """As it stands between two ticks."""
        if self.passive is not None:
            return Snapshot.decode(self.encoded())
        parts, inbox = self._present_parts(), self.inbox.to_data()
        return Snapshot(
            self.kind,
            self.tick,
            self.world,
            inbox,
            self.ownership,
            self.schema,
            self.carried,
            self.quarantine,
            NO_PARTS if parts is None else parts.shown,
            self.released_epoch,
        )

    def encoded(self) -> bytes:
        """As it stands between two ticks, encoded."""
        return self._with_present_parts(self.encoded_state())

    def encoded_state(self) -> bytes:
        """The same without parts: what copies and checkpoints have."""
        return self._encoder.encode(self) if self.passive is None else self.passive.encoded(self.tick)

    def encoded_if_portable(self, *, whole: bool = False) -> bytes | None:
        """The same (with parts if it is the `whole`) for whoever goes through many; None if that cannot be had.

        It stands still then, since nothing of what it does would outlive this server, and counts as
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
        if not self.broken:
            _log.error("%s cannot be written, and is quarantined here: %s", self.id, said(error))
            self.stand_still(f"its state cannot travel: {said(error)}")

    # --- looking ---------------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """How it is, as plain data, without the world's state. One that is put away stays so."""
        return described(self, self.inbox if self.passive is None else self.passive.inbox(self.snapshot()))

    def inspected(self, *, with_state: bool) -> dict[str, Any]:
        """The same, with the state as CBOR in hex if that is wanted."""
        return self.to_data() | ({"state": self._shown()} if with_state else {})

    def _shown(self) -> str | None:
        try:
            return portable(self.look()).hex()
        except NotPortable:
            return None


def _told(reason: Reason) -> str:
    return said(reason) if isinstance(reason, BaseException) else repr(reason)
