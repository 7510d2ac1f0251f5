"""Inputs of a history: at which times and under which identities there may be any."""

from typing import Final

from batonpass.simserver.sync.timeline.ids import MAX_ID, fiat_id
from batonpass.simserver.sync.timeline.times import MAX_BASE, MAX_PRIORITY, ExtendedTime, ValidSince, extended

__all__ = ["InvalidInput", "InvalidTime", "check_base", "fiat_time"]

_SHOWN: Final = 60


class InvalidTime(ValueError):
    """An input, or a question, is for a time that is frozen or forgotten, or for what is no time."""


class InvalidInput(ValueError):
    """A fiat event is there already, or is not there to be removed; or its identity is none."""


def check_base(base: int) -> None:
    """Raises InvalidTime if it is no time: those are whole numbers from -2^62 to 2^62."""
    if type(base) is not int or not -MAX_BASE <= base <= MAX_BASE:
        raise InvalidTime(f"{base!r:.{_SHOWN}} is no time: give a whole number from -2^62 to 2^62")


def fiat_time(base: int, id: int, priority: int, valid_since: ValidSince) -> ExtendedTime:
    """The place of an input in a history that takes some since then.

    Raises:
        InvalidTime: it takes none there.
        InvalidInput: the identity or the priority is none.
    """
    check_base(base)
    if not valid_since.allows(base):
        raise InvalidTime(f"no input is taken at {base}: the history is frozen before {valid_since.base}")
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidInput(f"{priority} is no priority: give one from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    if type(id) is not int or not 0 <= id <= MAX_ID:
        raise InvalidInput(f"{id!r:.{_SHOWN}} is no id: give a number of 128 bits (`DeterministicRandomId`)")
    return extended(base, 0, priority, fiat_id(id))
