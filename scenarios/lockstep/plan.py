"""Who joins when and posts what in a run of `baton run lockstep`, all from one seed. Pure."""

import random
from dataclasses import dataclass
from typing import Final

__all__ = ["LockstepPlan", "PlannedClient", "PlannedEvent", "make_lockstep_plan"]

LATE_SHARE: Final = 0.2
"""Of the clients; they join in the middle half of the run."""
EVENT_EVERY_S: Final = 2.0
"""On average, from each client."""
LAST_EVENT: Final = 0.95
"""After this share of the run no client posts any more."""


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """An event that a client posts, `at_s` after the run has begun."""

    at_s: float
    body: str


@dataclass(frozen=True, slots=True)
class PlannedClient:
    """One client; `signs` says whether it offers snapshots."""

    name: str
    joins_s: float
    events: tuple[PlannedEvent, ...]
    signs: bool

    @property
    def is_late(self) -> bool:
        """Whether the stream has run for a while when it joins."""
        return self.joins_s > 0


@dataclass(frozen=True)
class LockstepPlan:
    """A run.

    Attributes:
        seconds: for which clients play.
        loss: the share of requests that are lost, or whose answers are.
        jitter_ms: by which a request, and its answer, are late at most.
        handover_at_s: when the stream is handed to another server; None: never.
        kill_at_s: when the server that has the stream is killed; None: never.
    """

    clients: tuple[PlannedClient, ...]
    seconds: float
    loss: float
    jitter_ms: float
    seed: int
    handover_at_s: float | None
    kill_at_s: float | None


def make_lockstep_plan(
    clients: int,
    seconds: float,
    seed: int,
    *,
    loss: float = 0.05,
    jitter_ms: float = 40.0,
    handover_at_s: float | None = None,
    kill_at_s: float | None = None,
) -> LockstepPlan:
    """Plan a run. Equal arguments give equal plans."""
    late = round(clients * LATE_SHARE)
    planned = (_client(number, seconds, seed, is_late=number >= clients - late) for number in range(clients))
    return LockstepPlan(tuple(planned), seconds, loss, jitter_ms, seed, handover_at_s, kill_at_s)


def _client(number: int, seconds: float, seed: int, *, is_late: bool) -> PlannedClient:
    name = f"client-{number + 1}"
    dice = random.Random(f"{seed} {name}")
    joins_s = dice.uniform(0.25, 0.75) * seconds if is_late else 0.0
    events: list[PlannedEvent] = []
    at_s = joins_s
    while (at_s := at_s + dice.expovariate(1.0 / EVENT_EVERY_S)) < LAST_EVENT * seconds:
        events.append(PlannedEvent(at_s, f"{name} {len(events) + 1} {dice.getrandbits(32):08x}"))
    return PlannedClient(name, joins_s, tuple(events), signs=number < 3)
