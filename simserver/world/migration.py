"""Bringing a state that comes in an earlier form into the world's present one."""

from typing import Any, Final

from batonpass.simserver.world.api import migrated, schema_version, takes
from batonpass.simserver.world.portability import a_state, copied, portable

__all__ = ["UP_TO_DATE", "brought_up_to_date", "is_up_to_date"]

UP_TO_DATE: Final = object()
"""In place of a state in the present form, if it came in that form."""


def is_up_to_date(world: Any, kind: str, schema: int) -> bool:
    """Whether the world takes a state of this kind and form as it is."""
    return takes(world, kind, schema) and schema == schema_version(world)


def brought_up_to_date(world: Any, kind: str, schema: int, state: Any) -> Any:
    """The state in the present form.

    Raises:
        NotPortable: what the world gave could not leave again.
        BaseException: whatever the world's own code raises.
    """
    # A copy of its own: it may write into that, and fail after it.
    given = a_state("migrate", migrated(world, kind, copied(state), schema))
    portable(given)
    return given
