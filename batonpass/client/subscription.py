"""What a program asks to watch, as a door understands it; what is wrong is said by the name of the argument. No I/O."""

from collections.abc import Sequence
from math import isfinite
from typing import Final

from pydantic import ValidationError

from batonpass.authority.names import check_name
from batonpass.authority.wire.door import DoorSubscribe, WatchedArea

__all__ = ["subscription"]

MAX_RATE_HZ: Final = 1000.0
MAX_RADIUS: Final = 1e9


def subscription(
    entity: str,
    owner: str,
    pattern: str,
    centre: Sequence[float] | None,
    around: str,
    radius: float | None,
    rate_hz: float,
) -> DoorSubscribe:
    """The subscription of `PlayerClient.watch`. Raises ValueError."""
    has_area = centre is not None or bool(around) or radius is not None
    if sum(map(bool, (entity, owner, pattern, has_area))) != 1:
        raise ValueError("watch one of: entity, owner, pattern, an area (centre or around, and radius)")
    if centre is not None and around:
        raise ValueError("an area has a centre, or an entity around which it is: not both")
    if has_area and centre is None and not around:
        raise ValueError("a radius is that of an area, which has a centre, or an entity around which it is")
    if has_area and radius is None:
        raise ValueError("an area has a radius: how far it reaches from its middle, in each direction")
    radius = 0.0 if radius is None else radius
    for name, value in (("entity", entity), ("owner", owner), ("around", around)):
        _check(name, value)
    if not 0 < rate_hz <= MAX_RATE_HZ:
        raise ValueError(f"rate_hz is above 0 and at most {MAX_RATE_HZ:g}, not {rate_hz!r}")
    if not 0 <= radius <= MAX_RADIUS:
        raise ValueError(f"radius is from 0 to {MAX_RADIUS:g}, not {radius!r}")
    if centre is not None and not (1 <= len(centre) <= 3 and all(map(isfinite, centre))):
        raise ValueError(f"centre is one to three finite numbers, as the world's positions are, not {centre!r:.60}")
    try:
        area = WatchedArea(centre=None if centre is None else list(map(float, centre)), around=around, radius=radius)
        return DoorSubscribe(
            id=1, entity=entity, owner=owner, pattern=pattern, area=area if has_area else None, rate_hz=rate_hz
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _check(argument: str, value: str) -> None:
    try:
        if value:
            check_name(value)
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from error
