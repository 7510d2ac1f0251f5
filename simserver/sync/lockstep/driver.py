"""`SimDriver`: what a game is a class of. It computes the states of a stream's ticks, equal on every client.

The state at tick n holds every event of the stream up to and at n. A step from n - 1 to n, in this order (seed 004, and
its descendant SimClient, which applies the events of n one tick later):

1. The generator is drawn once.
2. `on_tick`, then `sim_tick` of every entity in the order of spawning.
3. The events of tick n in the order of the log: `on_reset`, `on_connect`, `on_disconnect`, `on_client_event`.
4. `tick` becomes n.
5. What was spawned enters, then what was removed leaves; what these ask for waits for the next step.
6. The hash of the state is taken.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from batonpass.simserver.sync.lockstep.acts import Act, OutsideOfTick, StepGuard
from batonpass.simserver.sync.lockstep.canonical import state_hash
from batonpass.simserver.sync.lockstep.entity import SimEntity
from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.lockstep.scene import Scene

__all__ = [
    "KEPT_TICKS",
    "MAX_EVENT_BYTES",
    "MAX_SENT",
    "SimDriver",
    "SimEvent",
    "SimFailed",
    "TickRecord",
    "event_bytes",
]

KEPT_TICKS: Final = 200
"""Ticks of which records are kept, for desync reports: ten seconds."""
KEPT_BYTES: Final = 16 * 1024 * 1024
MAX_SENT: Final = 1000
MAX_EVENT_BYTES: Final = 12 * 1024
"""Of an event as JSON; a server takes 16 KiB in a request, which has hashes, too."""
SERVER: Final = "_"
"""The origin of the server's own events."""

_E = TypeVar("_E", bound=SimEntity)


class SimEvent(NamedTuple):
    """An event of a stream."""

    tick: int
    type: str
    origin: str
    body: str


class TickRecord(NamedTuple):
    """What is kept of a tick that was computed."""

    tick: int
    """How many ticks had been computed with it."""
    hash: str
    state: bytes
    """The snapshot after it."""
    events: tuple[SimEvent, ...]
    acts: tuple[Act, ...] | None
    """Its draws and writes, in trace mode."""


class SimFailed(RuntimeError):
    """A tick raised an error, so the state is half of it: restore a snapshot, or start over."""


def event_bytes(type: str, body: str) -> int:
    """Return the length of an event as JSON, in bytes. Raises `ValueError` if it has half of a surrogate pair."""
    return len(json.dumps([type, body], ensure_ascii=False).encode())


class SimDriver:
    """A game: say in `kinds` which entities it has, and override the callbacks that you need.

    All that is to be equal on every client is in entities. The class's own attributes (a screen, a socket) can be
    written outside of ticks only, and callbacks must not read what is not in entities.

    Args:
        trace: whether draws and writes are kept with their call sites, at three times the cost of a tick.
        kept_ticks: how many ticks are kept for desync reports, the last one at least.

    Raises:
        ValueError: no tick is to be kept.
    """

    kinds: ClassVar[tuple[type[SimEntity], ...]] = ()

    def __init__(self, *, trace: bool = False, kept_ticks: int = KEPT_TICKS) -> None:
        if kept_ticks < 1:
            raise ValueError(f"kept_ticks is {kept_ticks}: the last tick is kept at least, so give 1 or more")
        self._guard: Final = StepGuard(traced=trace)
        self._scene: Final = Scene(self, self._guard, self.kinds)
        self._records: Final[deque[TickRecord]] = deque(maxlen=kept_ticks)
        self._sent: Final[deque[tuple[str, str]]] = deque()
        self._failed_tick: int | None = None
        self._keep((), self._scene.encoded())

    # What a game overrides.

    def on_reset(self, seed: str) -> None:
        """Build the scene: everything was cleared, and the generator is that of `seed`."""

    def on_connect(self, public_id: str) -> None:
        """Take note of a client that has come."""

    def on_disconnect(self, public_id: str) -> None:
        """Take note of a client that has gone."""

    def on_client_event(self, type: str, origin: str, body: str) -> None:
        """Act on an event of the client with the public id `origin`. Any client may have written type and body."""

    def on_tick(self, tick: int) -> None:
        """Called in each step, before entities; `tick` is how many ticks had been computed before."""

    # What a game calls.

    @property
    def tick(self) -> int:
        """How many ticks have been computed."""
        return self._scene.tick

    def get_random(self) -> Xoshiro128:
        """Return the one generator. Raises `OutsideOfTick`."""
        self._guard.require_open("the generator is used")
        return self._scene.generator

    def spawn(self, kind: type[SimEntity], **fields: Any) -> int:
        """Ask for an entity, which is there at the end of the tick, and return its id.

        Raises:
            OutsideOfTick: no tick or event is under way.
            FieldRefused, NotCanonical: a field does not take its value.
        """
        self._guard.require_open(f"{kind.__name__} is spawned")
        return self._scene.spawn(kind, fields)

    def remove(self, entity: SimEntity | int) -> None:
        """Ask for an entity, or the one with this id, to leave at the end of the tick.

        Raises:
            OutsideOfTick: no tick or event is under way.
            KeyError: there is none.
        """
        id = entity.id if isinstance(entity, SimEntity) else entity
        self._guard.require_open(f"entity {id} is removed")
        self._scene.remove(id)

    def entity(self, id: int) -> SimEntity | None:
        """Return the entity with this id, or None."""
        return self._scene.entities.get(id)

    def entities(self, kind: type[_E]) -> list[_E]:
        """Return the entities of a class in the order of spawning; `SimEntity` gives all of them."""
        return [entity for entity in self._scene.entities.values() if isinstance(entity, kind)]

    def send_event(self, type: str, body: str = "") -> None:
        """Post an event. It has no effect until it comes back in `on_client_event`, on all clients in the same tick.

        Raises:
            TypeError: type or body is no text.
            ValueError: the type is the server's, the event is too long or no Unicode, or 1000 wait already.
        """
        texts: tuple[object, ...] = (type, body)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{type!r} with the body {body!r}: both are texts; encode what is none, say as JSON")
        if not type or type[0] in "_$":
            raise ValueError(f"{type!r}: a type is a text that does not begin with _ or $, which are the server's")
        if (size := event_bytes(type, body)) > MAX_EVENT_BYTES:
            raise ValueError(f"the event {type!r} has {size} bytes: an event has at most {MAX_EVENT_BYTES}")
        if len(self._sent) >= MAX_SENT:
            raise ValueError(f"{MAX_SENT} events wait to be sent: send fewer, or run a follower that takes them")
        self._sent.append((type, body))

    # What followers, replays and tools call.

    def step(self, events: Iterable[SimEvent]) -> str:
        """Compute one tick with its events, in their order, and return the hash of the state after it.

        Raises:
            SimFailed: an earlier tick failed. What the game's code raises is let through, and this tick failed.
        """
        scene, guard, happened = self._scene, self._guard, tuple(events)
        self._require_between_ticks()
        self._require_whole()
        guard.acts = []
        self._failed_tick = scene.tick
        guard.open = True
        try:
            Xoshiro128.next(scene.generator)
            self.on_tick(scene.tick)
            for entity in scene.entities.values():
                entity.sim_tick()
            for event in happened:
                self._dispatch(event)
            scene.tick += 1
            scene.flush()
            state = scene.encoded()
        finally:
            guard.open = False
        self._failed_tick = None
        return self._keep(happened, state)

    def snapshot(self) -> bytes:
        """Return the canonical bytes of the state."""
        return self._records[-1].state

    def restore(self, snapshot: bytes) -> None:
        """Become the state of a snapshot, which may come from any client. Raises `SnapshotRefused`."""
        self._require_between_ticks()
        self._scene.restore(snapshot)
        self._failed_tick = None
        self._records.clear()
        self._keep((), snapshot)

    def start_over(self) -> None:
        """Become the state before the first tick, for a stream that begins anew."""
        self._require_between_ticks()
        self._scene.tick = 0
        self._scene.clear("")
        self._failed_tick = None
        self._records.clear()
        self._keep((), self._scene.encoded())

    def state_hash(self) -> str:
        """Return the hash of the state, as taken after the last tick."""
        return self._records[-1].hash

    def record(self, tick: int) -> TickRecord | None:
        """Return what is kept of a tick, or None if it is too old, or not computed here."""
        return next((kept for kept in reversed(self._records) if kept.tick == tick), None)

    def records(self) -> Iterator[TickRecord]:
        """Give what is kept, in order."""
        yield from self._records

    def take_sent(self, most: int = MAX_SENT) -> list[tuple[str, str]]:
        """Return types and bodies of the events that were posted since the last call, at most `most`."""
        return [self._sent.popleft() for _ in range(min(most, len(self._sent)))]

    def __setattr__(self, name: str, value: Any) -> None:
        guard: StepGuard | None = self.__dict__.get("_guard")
        if guard is not None and guard.open:
            raise OutsideOfTick(
                f"{type(self).__name__}.{name} is written within a tick: snapshots would not have it; "
                "keep it in a field of an entity"
            )
        super().__setattr__(name, value)

    def _dispatch(self, event: SimEvent) -> None:
        match event.type if event.origin == SERVER else "":
            case "_a":
                self._scene.clear(event.body)
                self.on_reset(event.body)
            case "_c":
                self.on_connect(event.body)
            case "_d":
                self.on_disconnect(event.body)
            case _:
                self.on_client_event(event.type, event.origin, event.body)

    def _keep(self, events: tuple[SimEvent, ...], state: bytes) -> str:
        acts = tuple(self._guard.acts) if self._guard.traced else None
        hashed = state_hash(state)
        self._drawn = self._scene.generator.state
        self._records.append(TickRecord(self._scene.tick, hashed, state, events, acts))
        while len(self._records) > 1 and len(self._records) * len(state) > KEPT_BYTES:
            self._records.popleft()
        return hashed

    def _require_between_ticks(self) -> None:
        if self._guard.open:
            raise RuntimeError("step, restore or start_over was called within a tick: call it after the tick")

    def _require_whole(self) -> None:
        if self._failed_tick is not None:
            raise SimFailed(f"tick {self._failed_tick} failed half-way: restore a snapshot, or start over")
        # By a reference to the generator that was kept from a tick.
        if self._scene.generator.state != self._drawn:
            raise OutsideOfTick("the generator was drawn between two ticks: other clients would not do it")
        if self._guard.traced and self._scene.encoded() != self._records[-1].state:
            raise OutsideOfTick(
                "a field was changed between two ticks, around the driver: other clients would not do it"
            )
