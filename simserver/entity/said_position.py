"""Where an entity is, by the word of its world (`position`)."""

from typing import Any

from batonpass.actors.base.errors import is_stopping
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.world.api import World

__all__ = ["said_position"]


def said_position(world: World, holding: Holding) -> tuple[float, ...] | None:
    """What the world says of where an entity is; None if it has no answer, or none that makes sense."""
    passive = holding.life.passive
    if passive is not None and passive.position is not None:
        return passive.position or None
    began_ns = holding.life.enter()
    try:
        said: Any = getattr(world, "position")(holding.life.seen)  # noqa: B009 — optional
        position = None if said is None else tuple(map(float, said))
    except BaseException as error:
        if is_stopping(error):
            raise
        holding.life.fault("position", error)
        position = None
    finally:
        holding.life.leave(began_ns)
    if passive is not None:
        # Its state is the same until it is brought back.
        passive.position = position or ()
    return position
