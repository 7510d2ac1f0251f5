"""What cannot be watched is refused at once, by the name of the argument, and in words of ours."""

import math
from typing import Any

import pytest

from batonpass.client.subscription import subscription

NOTHING: dict[str, Any] = {
    "entity": "",
    "owner": "",
    "pattern": "",
    "centre": None,
    "around": "",
    "radius": None,
    "rate_hz": 20.0,
}


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ({}, "watch one of"),
        ({"entity": "alpha.a", "owner": "alpha.b"}, "watch one of"),
        ({"entity": "x"}, "entity"),
        ({"owner": "no name"}, "owner"),
        ({"around": "x", "radius": 1.0}, "around"),
        ({"around": "alpha.a", "centre": (0, 0)}, "not both"),
        ({"pattern": "*", "rate_hz": 0}, "rate_hz"),
        ({"pattern": "*", "rate_hz": math.nan}, "rate_hz"),
        ({"pattern": "*" * 129}, "pattern"),
        ({"centre": (), "radius": 1.0}, "centre"),
        ({"centre": (0, 0, 0, 0), "radius": 1.0}, "centre"),
        ({"centre": (0, math.nan), "radius": 1.0}, "centre"),
        ({"centre": (0, 0), "radius": -1.0}, "radius"),
        ({"centre": (0, 0), "radius": math.inf}, "radius"),
        ({"centre": (0, 0)}, "an area has a radius"),
        ({"around": "alpha.a"}, "an area has a radius"),
        ({"radius": 0.0}, "a radius is that of an area"),
        ({"pattern": "*", "radius": 1.0}, "watch one of"),
    ],
)
def test_what_is_wrong_is_named(asked: dict[str, Any], argument: str) -> None:
    with pytest.raises(ValueError, match=argument) as wrong:
        subscription(**NOTHING | asked)
    assert type(wrong.value) is ValueError
    assert "pydantic" not in str(wrong.value)


def test_what_is_right_is_asked_as_it_is() -> None:
    asked = subscription(**NOTHING | {"centre": (1, 2.5), "radius": 3.0})
    assert asked.area is not None
    assert (asked.area.centre, asked.area.radius, asked.rate_hz) == ([1.0, 2.5], 3.0, 20.0)
    assert subscription(**NOTHING | {"pattern": "alpha.*"}).area is None
