"""Balls in the form of one release, and of the next: servers of the first one do not take what the second one has."""

from typing import Any

from batonpass.simserver.world.demo_balls import Balls


class FormerBalls(Balls):
    """As `Balls`."""

    kinds = ("ball",)


class LatterBalls(Balls):
    """The same in a later form, into which it brings those of before."""

    schema_version = 2

    def migrate(self, kind: str, state: Any, from_version: int) -> Any:
        """Nothing has changed but the number."""
        return state
