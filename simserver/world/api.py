"""What a simulation is to a simulation server: a few pure functions over plain data.

Write a class with these methods, name it in the configuration (`world = "package.module:ClassName"`), and its entities
can be handed from server to server. State is plain CBOR data (numbers, texts, bytes, lists, maps), so that it travels,
hashes and compares without ceremony. What could not travel is not committed, and its entity is quarantined
(`simserver.world.portability`). The same state and inputs must give the same next state on every machine.

What a world may have beside `World`'s methods:

`schema_version: int`
    The version of the form of its states, 1 if absent. It travels with every state. A server whose world has a later
    one than a state calls `migrate`. A state of a later version than the world's is not taken (`incompatible`).
`migrate(kind, state, from_version) -> state`
    The same state in the present form. Raises `ValueError` if there is none.
`kinds: Collection[str]`
    The kinds of entities that it knows; others are neither spawned nor taken. Any, if absent.
`advance(state, inputs, dt_s, step) -> state`
    Is called in place of `step`, with a `simserver.world.step.Step`: the tick, chance and timers of the entity.
`may_sleep(state) -> bool`
    Whether steps without inputs would leave this state, its timers and chance as they are, and `destination` too. Then
    there are none, until an input comes or a timer ends; see `simserver.entity.sleep`. Every tick is wanted, if absent.
`affinity(state) -> str`
    The affinity group of an entity in this state, at most 64 characters: drain and balance keep it together. In none,
    if it is empty or absent; see `simserver.server.load_report`.
`immovable(state) -> bool`
    Whether balance has to leave an entity in this state where it is, and with it those of its affinity group there.
    Drained servers give it up all the same, and it goes where it is asked for, by `destination` say. No entity is, if
    absent; see `simserver.server.load_report`.
`position(state) -> Sequence[float] | None`
    Where an entity in this state is, of one to three numbers. Clients that watch an area need it
    (`simserver.players.cells`). So does the table of regions, in a world without `destination`
    (`simserver.entity.regions`). It is nowhere, if it is None; nothing has an area, if absent.
`destination(state, here, ticks_here) -> str | None`
    The server that should simulate an entity from now on, or None to stay. `here` is the server that asks, `ticks_here`
    how long it has simulated this entity without a break. A text that is no name like `alpha.s1` is a fault of the
    world, and the tick has failed. A name that is refused, as one of no simulation server is, is tried again ever more
    seldom. If absent, `position` is needed, and the entity goes where the table of regions says, if there is one.
`takers_changed(servers)`
    Is told which servers of the instance take entities: those that are alive and not drained, this one among them, by
    name. Before the first tick perhaps nothing is known yet. For `destination` to choose among: never is the result of
    a step to depend on it.
`reach: float`
    How far the world looks around an entity, above 0. With it and `position`, `advance` has `step.near` and
    `step.ghosts`, and servers send each other ghosts of what is within that distance of their entities; see
    `simserver.neighbours`. It looks at no other entity, if absent.
`ghost_hz: float`
    How often in a second ghosts are sent, at most as often as entities tick. With every tick, if absent.
`contact_priority(state) -> int`
    Which of two entities that meet, and that no player drives, has the other one come to its server: that of the higher
    priority. All have 0, if absent.
`contact_policy(mine, theirs) -> Verdict`
    Decides in place of `simserver.neighbours.contact_policy.default_policy` what becomes of two that meet.
`cell_size: float`
    The size of a cell of the grid by which areas are watched.
`takes_messages: bool`
    True if its entities send each other messages. `step.send(entity, data)` of `advance` sends one, `step.messages` are
    those that have come, `step.refused` what was refused of its own; see `simserver.mail.entity_mail`. If it is absent
    messages to its entities are refused (`not_taken`), and a step that sends one has failed.
`view(state, player) -> Any`
    What a player sees of an entity, or all others (`player` is empty); None hides it. It must not change the state.
    All see the state, if absent.
`lease_term_s: float`
    After how long of silence a server with this world should be replaced, at least 0.5. What `baton up` gives to
    homeservers, unless it is told another term; in other clusters their configuration says it (`lease_term_s`).
`participants: Mapping[str, Participant]`
    What it keeps of an entity in this process, outside of its state, moves along with a hand-over, part by part.
    `dehydrate(entity, state)` gives it at the freeze, as CBOR data. `rehydrate(entity, state, data)` takes it up where
    the entity is activated. `release(entity)` frees it once the entity has left or ended. Never is the right result of
    a step to depend on it. Copies and checkpoints do not have it, and a part that fails or is too large is left behind.
    See `simserver.world.participants`. Nothing but the state moves, if absent.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from batonpass.actors.base.errors import is_stopping
from batonpass.authority.names import BadName, check_name
from batonpass.authority.node.config import ConfigError
from batonpass.authority.node.plugins import import_named, or_config_error
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.validation import flaw

__all__ = [
    "World",
    "a_destination",
    "lease_term_s",
    "load_world",
    "migrated",
    "require_kind",
    "schema_version",
    "takes",
    "yes_or_no",
]


class World(Protocol):
    """The rules of one simulated world."""

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """The state of a new entity.

        Raises:
            ValueError: this kind is unknown, or the parameters make no sense; the text says why.

        Whatever else it raises, and a state that could not travel, refuses the entity too. Nothing stays behind,
        `spawn_failed` counts it, and the log of the server has the traceback.
        """

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """The state one tick later, after applying `inputs` in order."""


def lease_term_s(world: World) -> float | None:
    """After how long of silence a server with this world should be replaced; None if it does not say."""
    wanted = getattr(world, "lease_term_s", None)
    return None if wanted is None else float(wanted)


def schema_version(world: World) -> int:
    """The version of the form of this world's states."""
    return int(getattr(world, "schema_version", 1))


def takes(world: World, kind: str, version: int) -> bool:
    """Whether the world can simulate a state of this kind, in the form of this version; not if it fails to say."""
    try:
        return _takes(world, kind, version)
    except BaseException as error:
        if is_stopping(error):
            raise
        return False


def _takes(world: World, kind: str, version: int) -> bool:
    kinds = getattr(world, "kinds", None)
    if kinds is not None and kind not in kinds:
        return False
    present = schema_version(world)
    return version == present or (version < present and hasattr(world, "migrate"))


def require_kind(world: World, kind: str) -> None:
    """See that the world knows entities of this kind.

    Raises:
        ValueError: it does not, so no server of its kind would take one either; the text names the kinds there are.
    """
    kinds = getattr(world, "kinds", None)
    if kinds is not None and kind not in kinds:
        raise ValueError(f"the world here knows no {kind!r}; its kinds are {', '.join(sorted(kinds)) or 'none'}")


def migrated(world: World, kind: str, state: Any, version: int) -> Any:
    """A state of this version in the present form.

    Raises:
        ValueError: the world does not take it, or cannot bring it into the present form.
        Exception: whatever else the world's own code raises.
    """
    require_kind(world, kind)
    if not takes(world, kind, version):
        raise ValueError(
            f"the world here takes no {kind} of schema version {version}; its own is {schema_version(world)}"
        )
    present = schema_version(world)
    return state if version == present else getattr(world, "migrate")(kind, state, version)  # noqa: B009 — optional


def yes_or_no(method: str, said: Any) -> bool:
    """What a method of a world said that has to say yes or no.

    Raises:
        TypeError: it said anything else; a text such as "no" would be taken for a yes.
    """
    # numpy calls its own `bool`, and did call it `bool_`.
    if said is not True and said is not False and type(said).__name__ not in {"bool", "bool_"}:
        raise TypeError(f"{method} has to say True or False, not {said!r:.40}")
    return bool(said)


def a_destination(said: Any) -> str | None:
    """Where a world wants an entity, as it said.

    Raises:
        TypeError: it said what is no text.
        ValueError: it said what is not the name of any server.
    """
    if said is None:
        return None
    if not isinstance(said, str):
        raise TypeError(f"destination has to name a server or be None, not {said!r:.40}")
    try:
        # The text alone, whatever kind of text it is.
        return check_name(str.__str__(said))
    except BadName as error:
        raise ValueError(f"destination has to name a server or be None: {error}") from error


def load_world(spec: str, options: dict[str, Any]) -> World:
    """Import `package.module:ClassName`, construct it with `options`, and see that it can be used.

    Raises:
        ConfigError: there is no such class, it rejects the options, or lacks what a world needs. The sentence is one
            line, and names the world and what is wrong.
    """
    factory = import_named(f"world {spec!r}", spec, "ClassName")

    def made() -> tuple[World, str]:
        world: World = factory(**options)
        return world, flaw(world)

    world, wrong = or_config_error(made, f"world {spec!r} rejects its options, or fails")
    if wrong:
        raise ConfigError(f"world {spec!r} cannot be used: {wrong}")
    return world
