"""What a world may use in a step beside state and inputs: the tick, chance and timers. It moves with the entity.

A world that has a method `advance` is given a `Step` with every tick (see `simserver.world.api`). What it draws and
sets there belongs to the entity. It is in the snapshot, so after a hand-over or a restart the same numbers come and the
same timers end, at the same tick. A step that fails has drawn and set nothing.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from batonpass.simserver.world.messages import NO_MAIL, EntityMessage, MessageNumber, RefusedMessage, StepMail
from batonpass.simserver.world.neighbourhood import MAX_TOUCHED, NOBODY_NEAR, Neighbour, NeighbourLookup
from batonpass.simserver.world.portability import is_text

__all__ = ["MAX_TIMERS", "NOTHING_CARRIED", "Carried", "EntityRandom", "Step", "Timers"]

# Timers move with the entity, and their names are the world's.
MAX_TIMERS: Final = 256
MAX_TIMER_NAME: Final = 64
_MAX_SEED: Final = 32
_WHOLE: Final = 2**63


@dataclass(frozen=True, slots=True)
class Carried:
    """What an entity carries beside its world's state: when its timers end, and where its chance stands."""

    timers: Mapping[str, int] = field(default_factory=dict)
    """For each name the tick at which it ends."""
    seed: bytes = b""
    drawn: int = 0

    @classmethod
    def of_new(cls, entity: str) -> Self:
        """Of a new entity: its chance follows from its id alone."""
        return cls(seed=hashlib.blake2b(entity.encode(), digest_size=16).digest())

    def to_data(self) -> dict[str, Any]:
        """As plain data; nothing for what is as it is without it."""
        data: dict[str, Any] = {"timers": dict(self.timers)} if self.timers else {}
        return data | ({"random": [self.seed, self.drawn]} if self.seed or self.drawn else {})

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` wrote; raises `ValueError` when it is anything else, `TypeError` sometimes."""
        timers, (seed, drawn) = data.get("timers", {}), data.get("random", (b"", 0))
        if (
            type(timers) is not dict
            or len(timers) > MAX_TIMERS
            or not all(_is_timer(name, due) for name, due in timers.items())
        ):
            raise ValueError(f"at most {MAX_TIMERS} timers, with names of at most {MAX_TIMER_NAME} characters")
        if not isinstance(seed, bytes) or len(seed) > _MAX_SEED or not _is_whole(drawn):
            raise ValueError(f"chance is a seed of at most {_MAX_SEED} bytes and how often was drawn")
        return cls(dict(timers), seed, drawn)


NOTHING_CARRIED: Final = Carried()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _WHOLE


def _is_timer(name: object, due: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= MAX_TIMER_NAME and is_text(name) and _is_whole(due)


class EntityRandom:
    """The chance of one entity: numbers that follow from its seed and from how many were drawn, on every machine.

    BLAKE2b of seed and count, 64 bits a time: there is no state but the count, so it travels in a few bytes.
    """

    def __init__(self, seed: bytes, drawn: int) -> None:
        self._seed: Final = seed
        self.drawn = drawn

    def bits(self) -> int:
        """64 random bits."""
        self.drawn += 1
        digest = hashlib.blake2b(self.drawn.to_bytes(8, "big"), key=self._seed, digest_size=8).digest()
        return int.from_bytes(digest, "big")

    def below(self, bound: int) -> int:
        """A whole number from 0 up to, not including, `bound`, each as likely; `bound` is 1 to 2^64."""
        if not 1 <= bound <= 1 << 64:
            raise ValueError(f"a bound is 1 to 2^64, not {bound}")
        # A number that would make small ones likelier is drawn again.
        limit = (1 << 64) - (1 << 64) % bound
        while (drawn := self.bits()) >= limit:
            pass
        return drawn % bound

    def uniform(self) -> float:
        """A number from 0 up to, not including, 1."""
        return (self.bits() >> 11) * 2.0**-53


def _require_sendable(to: object, data: object) -> None:
    if not isinstance(to, str) or type(data) is not bytes:
        raise TypeError(f"a message is bytes for an entity named by a text, not {data!r:.40} for {to!r:.40}")


class Timers:
    """The timers of one entity; they end at a tick, and the world finds them in `Step.due` then."""

    def __init__(self, timers: Mapping[str, int], tick: int) -> None:
        self._timers: Final = dict(timers)
        self._tick: Final = tick

    def __iter__(self) -> Any:
        return iter(sorted(self._timers))

    def set(self, name: str, in_ticks: int) -> None:
        """`name` ends in `in_ticks` ticks (1 is the next), and not when it would have ended before.

        Raises:
            ValueError: the name or the number makes no sense, or there would be more than `MAX_TIMERS`.
        """
        if in_ticks < 1 or not _is_timer(name, self._tick + in_ticks):
            raise ValueError(f"no timer {name!r} can end in {in_ticks} ticks")
        if name not in self._timers and len(self._timers) >= MAX_TIMERS:
            raise ValueError(f"an entity has at most {MAX_TIMERS} timers")
        self._timers[name] = self._tick + in_ticks

    def cancel(self, name: str) -> bool:
        """`name` does not end any more; whether it was set."""
        return self._timers.pop(name, None) is not None

    def left(self, name: str) -> int | None:
        """In how many ticks `name` ends; None if it is not set."""
        due = self._timers.get(name)
        return None if due is None else due - self._tick

    def take_due(self) -> tuple[str, ...]:
        """Those that end with this tick, in the order of their ends and names; they are not set any more."""
        due = sorted((end, name) for name, end in self._timers.items() if end <= self._tick)
        for _, name in due:
            del self._timers[name]
        return tuple(name for _, name in due)

    def to_data(self) -> Mapping[str, int]:
        """The tick at which each ends."""
        return self._timers


class Step:
    """One step of one entity, as `advance` is given it.

    `entity` is its id, by which a world finds what it keeps of it beside the state (see
    `simserver.world.participants`). `tick` is the number of the tick that the step leads to, `due` the timers that end
    with it. `leaves_in_ms` is None, or in how long at most the entity leaves this server; `ready()` lets it go at once.
    `messages` are those of other entities that have come since the last step, `refused` what of its own was refused.
    """

    def __init__(
        self,
        carried: Carried,
        tick: int,
        leaves_in_ms: int | None = None,
        entity: str = "",
        neighbourhood: NeighbourLookup = NOBODY_NEAR,
        mail: StepMail = NO_MAIL,
    ) -> None:
        self.entity: Final = entity
        self._neighbourhood: Final = neighbourhood
        self._touched: dict[str, None] = {}
        self.leaves_in_ms: Final = leaves_in_ms
        self.is_ready = False
        self.tick: Final = tick
        self.random: Final = EntityRandom(carried.seed, carried.drawn)
        self.timers: Final = Timers(carried.timers, tick)
        self.due: Final = self.timers.take_due()
        self._seed: Final = carried.seed
        self.messages: Final[tuple[EntityMessage, ...]] = mail.messages
        self.refused: Final[tuple[RefusedMessage, ...]] = mail.refused
        self.sent: list[tuple[str, bytes]] | None = None
        """What was sent in it, in order; None for nothing."""
        self._mail: Final = mail

    def send(self, to: str, data: bytes) -> MessageNumber:
        """Send another entity a message, once this step is durable; by its number a refusal names it (`refused`).

        It is delivered once, after all that this entity sent there before, wherever both go. What cannot be sent, as it
        is too large or too much waits, is refused with the next step.

        Raises:
            TypeError: the receiver is no text, or the data are no bytes.
        """
        _require_sendable(to, data)
        if self.sent is None:
            self.sent = []
        self.sent.append((to, data))
        return self._mail.epoch, self._mail.last + len(self.sent)

    def ready(self) -> None:
        """Whatever was to be done before the entity leaves is done with this step."""
        self.is_ready = True

    # --- its surroundings ------------------------------------------------------------------------------------------

    def near(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        """The other entities of this server within a radius of a place, nearest first, then by id.

        They are as they were when the last round of ticks was over, so it does not matter which of them ticks first.

        Raises:
            ValueError: the world has no `position` or no `reach`, or place or radius make no sense.
        """
        return self._neighbourhood.near(position, radius, self.entity)

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        """As `near`: the ghosts of other servers' entities, as far as they are known here."""
        return self._neighbourhood.ghosts(position, radius)

    def touch(self, ghost: str) -> None:
        """The entity meets a ghost, by its id: which of the two servers has both from now on is to be decided.

        It counts once the step is committed. What is no ghost is passed over, and what is beyond `MAX_TOUCHED`.
        """
        if len(self._touched) < MAX_TOUCHED:
            self._touched[ghost] = None

    @property
    def touched(self) -> tuple[str, ...]:
        """The ghosts that the entity meets, in the order in which that was said."""
        return tuple(self._touched)

    def carried(self) -> Carried:
        """What the entity carries after the step."""
        return Carried(self.timers.to_data(), self._seed, self.random.drawn)
