"""What a simulation is to a simulation server: a few pure functions over plain data.

Write a class with these methods, name it in the configuration (`world = "package.module:ClassName"`), and its entities
can be handed from server to server. State is plain CBOR data (numbers, texts, bytes, lists, maps), so that it travels,
hashes and compares without ceremony; the same state and inputs must give the same next state on every machine.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from authority.settings import ConfigError
from simserver.inputs import PendingInput

__all__ = ["World", "load_world"]


class World(Protocol):
    """The rules of one simulated world."""

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """The state of a new entity.

        Raises:
            ValueError: this kind is unknown, or the parameters make no sense; the text says why.
        """

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """The state one tick later, after applying `inputs` in order."""

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """The server that should simulate this entity from now on, or None to stay (placement by position, say).

        `here` is the server that asks, `ticks_here` how long it has simulated this entity without a break.
        """


def load_world(spec: str, options: dict[str, Any]) -> World:
    """Import `package.module:ClassName` and construct it with `options`.

    Raises:
        ConfigError: there is no such class, or it rejects the options.
    """
    module_name, _, class_name = spec.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"world {spec!r} cannot be loaded: {error}; expected 'package.module:ClassName'") from error
    try:
        world: World = factory(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"world {spec!r} rejects its options: {error}") from error
    return world
