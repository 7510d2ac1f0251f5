"""The world of shows: an entity of kind `show` is a show, and the server that has authority over it is its controller.

Frames are no ticks of the entity: they are many and large, and travel in datagrams. The state holds what must outlive a
controller: the limit below which frames may have been sent (`frame_limit`). A hand-over brings the next frame along and
continues with it. A failover resumes the show from a copy, and passes over the numbers up to the limit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any, Final

from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.sync.followers.settings import ShowSettings
from batonpass.simserver.sync.shows.server_streams import read_streams
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = [
    "KIND",
    "MAX_FRAME",
    "MAX_HELD",
    "MAX_RATE",
    "SHOWS",
    "Shows",
    "held_input",
    "held_nodes",
    "limit_input",
    "shows_of",
]

SHOWS: Final = "batonpass.simserver.sync.shows.world:Shows"
"""How a configuration names this world."""

KIND: Final = "show"
MAX_FRAME: Final = 2**62
MAX_LEAD_S: Final = 60.0
MAX_RATE: Final = 1_000
MAX_HELD: Final = 512
"""Nodes that operators hold, of one show."""
MAX_SHOWS_FROM_THE_START: Final = 16
LEASE_TERM_S: Final = 0.75
"""After so long a silent server of a show is replaced. The takeover comes after it, and a controller that is gone is
replaced within a second."""
MODES: Final = ("state", "delta", "inputs")
FENCES: Final = ("none", "soft", "external")

_LIMIT_BYTES: Final = 8
_RATE: Final = re.compile(r"([1-9]\d{0,6})(?:/([1-9]\d{0,6}))?")
_ENGINE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_SHOW: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,58}")
_HOLD: Final = b"hold "
_RELEASE: Final = b"release "
_OF_THE_STATE: Final = ("rate", "mode", "fence", "held")
"""Fields of `ShowSettings` that the state of a show has, and not the options of a server."""


def limit_input(limit: int) -> bytes:
    """The input that raises the limit of a show."""
    return limit.to_bytes(_LIMIT_BYTES, "big")


def held_input(node: str, *, is_held: bool) -> bytes:
    """The input by which a node is held, or released."""
    return (_HOLD if is_held else _RELEASE) + node.encode()


def held_nodes(state: Mapping[str, Any]) -> frozenset[str]:
    """The nodes of a show in this state that an operator holds: the controller ignores them."""
    return frozenset(state.get("held", ()))


class _ShowMoves:
    """The participant that tells a hand-over from a failover: only the former brings parts along."""

    def __init__(self, shows: "Shows") -> None:
        self._shows: Final = shows

    def dehydrate(self, entity: str, state: Any) -> Any:
        """Which frame is the next. None is sent any more, until a tick has shown that the show stays."""
        pause = self._shows.pause
        return None if pause is None else pause(entity)

    def rehydrate(self, entity: str, state: Any, data: Any) -> None:
        """It continues with that frame, if that fits the state."""
        if type(data) is not int or not 0 <= data <= state["limit"]:
            raise ValueError(f"no show whose limit is {state['limit']} continues with frame {data!r}")
        self._shows.continuations[entity] = data

    def release(self, entity: str) -> None:
        """It is not simulated here any more."""
        self._shows.continuations.pop(entity, None)


class Shows:
    """A world whose entities are shows.

    Args:
        engine: the program that simulates and renders, as `package.module:function`; it is called with the node's
            `EngineNode` in a thread of its own. A server without an engine is no node: no show can be given to it.
        engine_options: keyword arguments for it.
        streams: what the engines render, as tables with `server`, `name`, `width` and `height`, and if wanted
            `clipping`, `channel` and `camera`; those of all servers.
        shows: the shows in which this server takes part from the start, as `wall` for the entity `alpha.show-wall`.
        rate: frames per second of new shows, as `60` or `60000/1001`.
        mode: how new shows send a frame: `state`, `delta` or `inputs`.
        fence: how the nodes of new shows wait for each other: `none`, `soft` or `external`.
        lead_s: for how long frames may be sent beyond what copies are known to have, and so how much a failover may
            pass over. The limit is raised twice in that time.
        settings: further fields of `ShowSettings`, by their names.

    Raises:
        TypeError, ValueError: one of them makes no sense.
    """

    lease_term_s = LEASE_TERM_S

    def __init__(
        self,
        engine: str = "",
        engine_options: Mapping[str, Any] | None = None,
        shows: Sequence[str] = (),
        rate: str = "60",
        mode: str = "state",
        fence: str = "none",
        lead_s: float = 1.0,
        settings: Mapping[str, Any] | None = None,
        streams: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if engine and not _ENGINE.fullmatch(engine):
            raise ValueError(f"engine is {engine!r:.80}: give it as package.module:function")
        if not 0 < lead_s <= MAX_LEAD_S:
            raise ValueError(f"lead_s is {lead_s!r}: give seconds, at most {MAX_LEAD_S:g}")
        if isinstance(shows, str) or not all(type(show) is str and _SHOW.fullmatch(show) for show in shows):
            raise ValueError(
                f'shows is {shows!r:.80}: give a list of names, as ["wall"] for the entity alpha.show-wall'
            )
        if len(shows) > MAX_SHOWS_FROM_THE_START:
            raise ValueError(f"shows has {len(shows)} names: give at most {MAX_SHOWS_FROM_THE_START}")
        self.kinds: Final = (KIND,) if engine else ()
        self.engine: Final = engine
        self.engine_options: Final = dict(engine_options or {})
        self.streams: Final = read_streams(streams)
        self.shows: Final = tuple(shows)
        self.settings: Final = _checked({} if settings is None else settings)
        self._default: Final = _read({"rate": rate, "mode": mode, "fence": fence})
        self._lead_s: Final = lead_s
        self.pause: Callable[[str], int | None] | None = None
        """Ends the sending of frames of an entity, and returns the next one; None if nothing was begun. The host sets
        it."""
        self.port: Callable[..., Any] | None = None
        """Makes the socket of a node, as `DatagramPort`, which None is for; a world for tests may lose datagrams."""
        self.continuations: Final[dict[str, int]] = {}
        """The next frames of the entities that a hand-over has brought here; the host takes them out."""
        self.participants: Final = {"show": _ShowMoves(self)}

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A new show; `params` may have `rate`, `mode` and `fence` of its own, as texts."""
        if kind != KIND:
            raise ValueError(f"this world has shows, no {kind!r:.40}")
        if unknown := sorted(params.keys() - {"rate", "mode", "fence"}):
            raise ValueError(f"a show has no {unknown[0]!r:.40}: there are rate, mode and fence")
        return {"limit": 0, **self._default, **_read(params)}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """A show has no place of its own: operators and balance move it."""
        return None

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        """One tick: the limit is raised by what the controller has asked for, and never falls; nodes are held."""
        asked = [int.from_bytes(item.data, "big") for item in inputs if _raises_limit(item)]
        limit = max(asked, default=0)
        if limit > state["limit"]:
            state = state | {"limit": limit}
        before = held = held_nodes(state)
        for item in inputs:
            if item.source == OWN_SOURCE:
                held = _held_after(held, item.data)
        return state if held == before else state | {"held": sorted(held)}

    def lead(self, state: Any) -> int:
        """How many frames of this show `lead_s` are, at least 2."""
        numerator, denominator = state["rate"]
        frames: float = self._lead_s * numerator / denominator
        return max(2, round(frames))


def shows_of(world: object) -> Shows | None:
    """The shows of a server's world: the world itself, or its `shows_world`, if some of its entities are shows."""
    found = world if isinstance(world, Shows) else getattr(world, "shows_world", None)
    return found if isinstance(found, Shows) else None


def _held_after(held: frozenset[str], data: bytes) -> frozenset[str]:
    """Who is held after this input; another one changes nothing."""
    if data.startswith(_HOLD) and len(held) < MAX_HELD:
        return held | {data[len(_HOLD) :].decode(errors="replace")}
    if data.startswith(_RELEASE):
        return held - {data[len(_RELEASE) :].decode(errors="replace")}
    return held


def _raises_limit(item: PendingInput) -> bool:
    """Whether the controller has given this; one of another release may be longer."""
    is_own = item.source == OWN_SOURCE and len(item.data) == _LIMIT_BYTES
    return is_own and int.from_bytes(item.data, "big") <= MAX_FRAME


def _checked(settings: Any) -> dict[str, Any]:
    """The settings, if they make sense. Raises TypeError or ValueError."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings is {settings!r:.40}: give fields of ShowSettings by their names")
    default = ShowSettings()
    known = [each.name for each in fields(ShowSettings) if each.name not in _OF_THE_STATE]
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"settings has no {name!r:.40}: there are {', '.join(known)}")
        kinds = (int, float) if isinstance(getattr(default, name), float) else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"{name} is {value!r:.40}: give a {'number' if float in kinds else 'whole number'}")
    ShowSettings(**settings)
    return dict(settings)


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state from their texts. Raises ValueError."""
    state: dict[str, Any] = {}
    if (rate := given.get("rate")) is not None:
        matched = _RATE.fullmatch(rate) if isinstance(rate, str) else None
        if matched is None:
            raise ValueError(f"rate is {rate!r:.40}: give frames per second, as '60' or '60000/1001'")
        exact = Fraction(int(matched[1]), int(matched[2] or 1))
        if exact > MAX_RATE:
            raise ValueError(f"rate is {rate!r:.40}: give at most {MAX_RATE:,} frames per second")
        state["rate"] = [exact.numerator, exact.denominator]
    for name, known in (("mode", MODES), ("fence", FENCES)):
        if (text := given.get(name)) is not None:
            if text not in known:
                raise ValueError(f"{name} is {text!r:.40}: give one of {', '.join(known)}")
            state[name] = text
    return state
