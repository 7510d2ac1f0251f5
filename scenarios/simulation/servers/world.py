"""The world of simulated clusters: what it simulates is how far every source of inputs has come."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from batonpass.simserver.sync.hosting.world import KIND as STREAM
from batonpass.simserver.sync.hosting.world import EventStreams
from batonpass.simserver.sync.scenes.world import KIND as SCENE
from batonpass.simserver.sync.scenes.world import SceneEntities, is_scene
from batonpass.simserver.sync.shows.world import KIND as SHOW
from batonpass.simserver.sync.shows.world import Shows
from batonpass.simserver.world.participants import Participant
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = [
    "LARGE",
    "MAIL",
    "MOODY",
    "PLACE",
    "SQUARE",
    "Carrying",
    "Correspondents",
    "Corresponding",
    "Counting",
    "CountingParticipant",
    "Finishing",
    "Meeting",
    "Roaming",
    "SceneKeeping",
    "Showing",
    "Streaming",
]

MOODY: Final = "moody"
"""The kind of entities that worlds begin or not, as it pleases them."""

LARGE: Final = "large"
"""The kind of entities whose states are so large that they go ahead in pieces; each tick changes a byte somewhere."""

MAIL: Final = "@mail"
"""What of a state is about messages."""

_TALKS_SHARE: Final = 0.2
_ANSWERS_SHARE: Final = 0.4
PLACE: Final = "@"
"""The part of a state that says where its entity is."""

SQUARE: Final = 100
"""The side of the square in which entities roam."""

_FINISHES_SHARE: Final = 0.3
_LARGE_BYTES: Final = 300_000
_FAILS_EVERY: Final = 7
_STRIDE: Final = 104_729
_BYTES: Final = tuple(bytes((number,)) for number in range(256))


class Counting:
    """A world whose state is how far each source has come; it notices an input that is missing or comes again.

    It says nothing of where an entity should be.
    """

    def __init__(
        self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None], *, sleeps: bool = False
    ) -> None:
        self._complain: Final = complain
        self._wanders: Final = wanders
        self._sleeps: Final = sleeps

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """Not moved yet; some worlds would rather not."""
        if kind == MOODY and self._wanders("", 0) is not None:
            raise ValueError("not today")
        return {"": [0, bytes(_LARGE_BYTES)]} if kind == LARGE else {}

    def step(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float) -> dict[str, Any]:
        """Each input is its source's next one, or its first since it owns the entity again, or something is wrong."""
        if "" in state:
            state = {**state, "": self._worn(*state[""])}
        if not inputs:
            return state
        state = dict(state)
        for item in inputs:
            floor = int(item.data.split()[-1])
            if item.seq != max(state.get(item.source, 0), floor) + 1:
                self._complain(f"input {item.seq} of {item.source} was applied after {state.get(item.source, 0)}")
            state[item.source] = item.seq
        return state

    def _worn(self, ticks: int, memory: bytes) -> list[Any]:
        """Another byte changed, if the last one that was is there."""
        if ticks and memory[ticks * _STRIDE % len(memory)] != ticks % 256:
            self._complain(f"state after {ticks} ticks lacks what the last of them did")
        place = (ticks + 1) * _STRIDE % len(memory)
        return [ticks + 1, b"".join((memory[:place], _BYTES[(ticks + 1) % 256], memory[place + 1 :]))]

    def may_sleep(self, state: dict[str, Any]) -> bool:
        """Only an input changes it, unless it is large."""
        return self._sleeps and "" not in state


class CountingParticipant(Counting):
    """The same, which wants an entity elsewhere now and then."""

    def destination(self, state: dict[str, Any], here: str, ticks_here: int) -> str | None:
        """Where the dice send it, if anywhere."""
        return self._wanders(here, ticks_here)


class Roaming(Counting):
    """The same, whose entities are somewhere: as far as their inputs have brought them, along two axes."""

    @staticmethod
    def position(state: dict[str, Any]) -> tuple[float, float]:
        """Somewhere in a square of 100 by 100; the same place for the same inputs."""
        come = sum(far for source, far in state.items() if source)
        return float(come * 7 % SQUARE), float(come // 5 * 31 % SQUARE)


class Finishing(CountingParticipant):
    """The same, which hears that an entity leaves, and has finished with it by a tick or another before.

    `finished` is told of those.
    """

    def __init__(
        self,
        complain: Callable[[str], None],
        wanders: Callable[[str, int], str | None],
        finished: Callable[[str], None],
        *,
        sleeps: bool = False,
    ) -> None:
        super().__init__(complain, wanders, sleeps=sleeps)
        self._finished: Final = finished

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        if step.leaves_in_ms is not None and step.random.uniform() < _FINISHES_SHARE:
            self._finished(step.entity)
            step.ready()
        return self.step(state, inputs, dt_s)


class Correspondents(Protocol):
    """What entities send to each other, as it is watched."""

    def others(self) -> list[str]:
        """To whom entities may send something now."""

    def has_had(self, sender: str, to: str, number: int, last: int) -> None:
        """An entity is given a message of another, after the last one."""


class Corresponding(CountingParticipant):
    """The same, whose entities send to each other: which one of all that they sent is in each message.

    An entity notices a message that is missing, comes again or comes out of order. Its state has what it counts of its
    sources. Beside that it has how many it has sent to each other and how many it has had of each, and what was
    refused.
    """

    takes_messages = True

    def __init__(
        self,
        complain: Callable[[str], None],
        wanders: Callable[[str, int], str | None],
        correspondence: Correspondents,
        *,
        sleeps: bool = False,
    ) -> None:
        super().__init__(complain, wanders, sleeps=sleeps)
        self._correspondence: Final = correspondence

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """As of others."""
        return super().spawn(kind, params) | {MAIL: [{}, {}, {}]}

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        sent, had, refused = ({**each} for each in state[MAIL])
        counted = {name: far for name, far in state.items() if name != MAIL}
        for message in step.messages:
            number = int(message.data)
            self._correspondence.has_had(message.sender, step.entity, number, had.get(message.sender, 0))
            had[message.sender] = number
        for one in step.refused:
            refused[one.to] = refused.get(one.to, 0) + 1
        to = self._whom(inputs, step)
        if to:
            sent[to] = sent.get(to, 0) + 1
            step.send(to, b"%d" % sent[to])
        after: dict[str, Any] = self.step(counted, inputs, dt_s) | {MAIL: [sent, had, refused]}
        return after

    def _whom(self, inputs: Sequence[PendingInput], step: Step) -> str:
        """Of those that there are, one: for each input, and now and then; and what comes is answered now and then."""
        share = _ANSWERS_SHARE if step.messages else 1.0 if inputs else 0.0 if self._sleeps else _TALKS_SHARE
        others = self._correspondence.others() if step.random.uniform() < share else ()
        return others[step.random.below(len(others))] if others else ""


class Carrying(CountingParticipant):
    """The same, which has something of each entity beside its state: in how many steps on end it was remembered."""

    def __init__(
        self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None], *, sleeps: bool = False
    ) -> None:
        super().__init__(complain, wanders, sleeps=sleeps)
        self.participants: Final[dict[str, Participant]] = {}
        self.forget()

    def forget(self) -> None:
        """The server is dead, with what it had in memory."""
        self._memory = MemoryParticipant(self._complain)
        self.participants.update(memory=self._memory, moody=Moody())

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        self._memory.steps[step.entity] = self._memory.steps.get(step.entity, 0) + 1
        return self.step(state, inputs, dt_s)


class Meeting(CountingParticipant):
    """The same, whose entities walk about in a square, and look around with every step."""

    reach: Final = 5.0
    _square: Final = 8.0
    _touches: Final = 1.5
    _stride: Final = 0.2

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        state = dict(self.step(state, inputs, dt_s))
        place = state.get(PLACE)
        state[PLACE] = [self._walked(at, step) for at in place] if place else [self._anywhere(step) for _ in range(2)]
        self._look_around(state[PLACE], step)
        return state

    def _anywhere(self, step: Step) -> float:
        return step.random.uniform() * self._square

    def _walked(self, at: float, step: Step) -> float:
        return min(max(at + (step.random.uniform() - 0.5) * self._stride, 0.0), self._square)

    def _look_around(self, place: list[float], step: Step) -> None:
        for ghost in step.ghosts(place, self._touches):
            step.touch(ghost.entity)
        near = [one.entity for one in step.near(place, self.reach)]
        ghosts = [one.entity for one in step.ghosts(place, self.reach)]
        if step.entity in near or step.entity in ghosts or set(near) & set(ghosts):
            self._complain(f"neighbours of {step.entity} are {near}, and ghosts {ghosts}")

    def position(self, state: dict[str, Any]) -> list[float] | None:
        """Where it is; nowhere until its first step."""
        place: list[float] | None = state.get(PLACE)
        return place


class Streaming(CountingParticipant):
    """The same, of which some entities are event streams."""

    def __init__(
        self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None], *, sleeps: bool = False
    ) -> None:
        super().__init__(complain, wanders, sleeps=sleeps)
        self.participants: Final[dict[str, Participant]] = {}
        self.forget()

    def forget(self) -> None:
        """The server is dead, with what it had in memory."""
        self.streams = EventStreams()
        self.participants.update(self.streams.participants)

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A stream, or as of others."""
        if kind != STREAM:
            return super().spawn(kind, params)
        stream: dict[str, Any] = self.streams.spawn(kind, params)
        return stream

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        if "incarnation" not in state:
            return self.step(state, inputs, dt_s)
        after: dict[str, Any] = self.streams.advance(state, inputs, dt_s, step)
        return after

    def may_sleep(self, state: dict[str, Any]) -> bool:
        """As of what it is."""
        return self.streams.may_sleep(state) if "incarnation" in state else super().may_sleep(state)


class SceneKeeping(CountingParticipant):
    """The same, of which some entities are scenes."""

    def __init__(
        self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None], *, sleeps: bool = False
    ) -> None:
        super().__init__(complain, wanders, sleeps=sleeps)
        self.scenes: Final = SceneEntities()

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A scene, or as of others."""
        if kind != SCENE:
            return super().spawn(kind, params)
        scene: dict[str, Any] = self.scenes.spawn(kind, params)
        return scene

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        if not is_scene(state):
            return self.step(state, inputs, dt_s)
        after: dict[str, Any] = self.scenes.advance(state, inputs, dt_s, step)
        return after

    def may_sleep(self, state: dict[str, Any]) -> bool:
        """As of what it is."""
        return self.scenes.may_sleep(state) if is_scene(state) else super().may_sleep(state)


class Showing(CountingParticipant):
    """The same, of which some entities are shows."""

    def __init__(
        self, complain: Callable[[str], None], wanders: Callable[[str, int], str | None], shows: Callable[[], Shows]
    ) -> None:
        super().__init__(complain, wanders)
        self._new_shows: Final = shows
        self.participants: Final[dict[str, Participant]] = {}
        self.forget()

    def forget(self) -> None:
        """The server is dead, with what it had in memory."""
        self.shows_world = self._new_shows()
        self.participants.update(self.shows_world.participants)

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A show, or as of others."""
        if kind != SHOW:
            return super().spawn(kind, params)
        show: dict[str, Any] = self.shows_world.spawn(kind, params)
        return show

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """As `World.advance`."""
        if "limit" not in state:
            return self.step(state, inputs, dt_s)
        after: dict[str, Any] = self.shows_world.advance(state, inputs, dt_s, step)
        return after


class MemoryParticipant:
    """A participant that notices what does not belong to the state that it comes with, and what was not released."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain: Final = complain
        self.steps: Final[dict[str, int]] = {}

    def dehydrate(self, entity: str, state: dict[str, Any]) -> Any:
        """As `Participant.dehydrate`."""
        return [self.steps.get(entity, 0), _outline(state)]

    def rehydrate(self, entity: str, state: dict[str, Any], data: Any) -> None:
        """As `Participant.rehydrate`."""
        steps, outline = data
        if outline != _outline(state):
            self._complain(f"state of {entity} has come with what belongs to another: {outline}")
        if entity in self.steps:
            self._complain(f"state of {entity} has come, and what was kept of it was not released")
        self.steps[entity] = steps

    def release(self, entity: str) -> None:
        """As `Participant.release`."""
        self.steps.pop(entity, None)


class Moody:
    """A participant that fails now and then, whatever it is asked."""

    def __init__(self) -> None:
        self._asked = 0

    def dehydrate(self, entity: str, state: Any) -> Any:
        """As `Participant.dehydrate`."""
        self._fail_now_and_then()
        return [entity]

    def rehydrate(self, entity: str, state: Any, data: Any) -> None:
        """As `Participant.rehydrate`."""
        self._fail_now_and_then()

    def release(self, entity: str) -> None:
        """As `Participant.release`."""
        self._fail_now_and_then()

    def _fail_now_and_then(self) -> None:
        self._asked += 1
        if self._asked % _FAILS_EVERY == 0:
            raise OSError("not now")


def _outline(state: dict[str, Any]) -> list[list[Any]]:
    return sorted([name, far if name else far[0]] for name, far in state.items())
