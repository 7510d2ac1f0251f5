"""What a state has to be so that it can leave: it can be written, and the next server can read it again.

Not all that a world may return is so. A text with half a surrogate pair, an object of the world's own, a structure that
contains itself cannot be written. What is nested too deep can be written and not be read. Some of that comes with the
inputs that players give. Such a state could neither be copied nor handed over, and the servers that take over its
entity would find that out one after the other. So states are looked at before they count.

To encode a state with every tick would take as long as the tick. A `glance` at plain data says the same of it sooner.
Measured, best of many, on two busy cores: 1.4 us of 3.8 for 53 bytes, 5 of 19 for 240 bytes of small maps. For 4 kB of
these it is 104 of 260. 66 kB of these took 1.0 ms of 3.9, 1 MiB 34 of 76, and 1 MiB of numbers in a list 1.8 of 3.4.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import Enum
from typing import Any, Final

import cbor2

from batonpass.actors.base.errors import is_stopping, said
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.wire.cbor import loads_state_untrusted

__all__ = ["MAX_LEVELS", "Glance", "NotPortable", "a_state", "copied", "glance", "is_text", "portable"]

READER_LEVELS: Final = 400
"""The maps, lists and tags that `cbor2.loads` takes within each other. `cbor2.dumps` writes more, until the stack
overflows, which ends the process: so levels are counted before anything is encoded."""
MAX_LEVELS: Final = READER_LEVELS - 1
"""Of a state: it stands in the map of a snapshot. Whatever that goes into (parcels, stages, rows) has it as bytes."""
_LOWEST: Final = -(2**64)
_HIGHEST: Final = 2**64 - 1
# Each level of sets doubles the time of writing them in canonical order.
_MAX_SET_LEVELS: Final = 8

_SIMPLE: Final = frozenset((int, float, bool, type(None), bytes))
_NESTED: Final = frozenset((dict, list, tuple))
# The members whose types are compared at once.
_MANY: Final = 16
# Of a value with more members it is seen first how many there would be to go through.
_FEW: Final = 2**20
_ATOMS: Final = _SIMPLE | {str}
# Of a text that is not ASCII every letter is looked at. This many of them count as one member.
_LETTERS: Final = 16


class NotPortable(ValueError):
    """A value that cannot be written, or could not be read again, or is no state; the text says why."""


class Glance(Enum):
    """What was seen of a value: nothing but plain data, which is portable; something else; or that it is large."""

    PLAIN = "plain"
    OTHER = "other"
    LARGE = "large"


def glance(value: Any, most: float = float("inf")) -> Glance:
    """Look at a value, level by level, through at most `most` members of maps and lists.

    Raises:
        NotPortable: it is nested too deep, or contains itself.
    """
    if most >= MAX_LEVELS and _is_plain_and_small((value,)):
        return Glance.PLAIN
    containers: list[Any] = [(value,)]
    seen, set_levels = Glance.PLAIN, 0
    for level in range(MAX_LEVELS + 1):
        below: list[Any] = []
        others: list[Any] = []
        most = _look_into(containers, most, below, others)
        if most < 0:
            return Glance.LARGE
        if others:
            seen = Glance.OTHER
            below += [members for other in others for members in _within(other) if members]
            set_levels += any(isinstance(other, Set) for other in others)
        if not below:
            if level == MAX_LEVELS and any(map(_has_beyond_64_bits, containers)):
                break
            return seen
        if set_levels > _MAX_SET_LEVELS:
            raise NotPortable(f"it has sets on more than {_MAX_SET_LEVELS} levels")
        containers = below
    raise NotPortable(f"it is nested more than {MAX_LEVELS} levels deep, or contains itself")


def _is_plain_and_small(value: tuple[Any]) -> bool:
    """Most states are: plain, and of so few members that no more than `MAX_LEVELS` can be within each other."""
    simple, nested = _SIMPLE, _NESTED
    containers: list[Any] = [value]
    left = MAX_LEVELS
    for container in containers:
        left -= len(container)
        if left < 0:
            return False
        members = container
        if type(container) is dict:
            if not _has_ascii_keys(container):
                return False
            members = container.values()
        for member in members:
            kind = type(member)
            if kind in simple:
                continue
            if kind is str:
                if not member.isascii():
                    return False
            elif kind in nested:
                containers.append(member)
            else:
                return False
    return True


def _has_ascii_keys(data: dict[Any, Any]) -> bool:
    try:
        return "".join(data).isascii()
    except TypeError:
        return False


def _look_into(containers: list[Any], most: float, below: list[Any], others: list[Any]) -> float:  # noqa: C901, PLR0912 — a call for each would take longer than all of it
    """Sort what is in maps and lists: containers, and what is no plain data; how much may be looked at after that."""
    simple, nested = _SIMPLE, _NESTED
    for container in containers:
        most -= len(container)
        if most < 0:
            return most
        members = container
        if type(container) is dict:
            members = container.values()
            if not _has_ascii_keys(container):
                others += [key for key in container if not _is_plain_key(key)]
        if len(container) >= _MANY and _SIMPLE.issuperset(map(type, members)):
            continue
        for member in members:
            kind = type(member)
            if kind in simple:
                continue
            if kind is str:
                if not member.isascii():
                    most -= len(member) // _LETTERS
                    if not is_text(member):
                        others.append(member)
            elif kind in nested:
                # A reader does not count empty ones.
                if member:
                    below.append(member)
            else:
                others.append(member)
    return most


def _has_beyond_64_bits(container: Any) -> bool:
    """Whether there is a whole number in it that has a tag, which a reader counts as one more level."""
    members = [*container, *container.values()] if type(container) is dict else container
    return any(type(member) is int and not _LOWEST <= member <= _HIGHEST for member in members)


def _is_plain_key(key: Any) -> bool:
    kind = type(key)
    if kind is int:
        # Beyond that a reader takes none: their hashes can be made equal.
        return bool(_LOWEST <= key <= _HIGHEST)
    return kind is bytes or (kind is str and (key.isascii() or is_text(key)))


def is_text(text: str) -> bool:
    """Whether it can be written, which half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _within(other: Any) -> Iterable[Any]:
    """What is in a value that is no plain data, as lists: as far as a writer goes into it."""
    if isinstance(other, Mapping):
        return list(other), list(other.values())
    if isinstance(other, cbor2.CBORTag):
        return ([other.value],)
    if isinstance(other, (Sequence, Set, deque)) and not isinstance(other, (str, bytes, bytearray, memoryview)):
        return (list(other),)
    return ()


def _members_of(value: Any, most: int) -> int:
    """How many members of maps and lists a writer would go through; any number above `most` if there are more.

    Each container is looked into once for each level that it is on, however often it is there.

    Raises:
        NotPortable: it is nested too deep, or contains itself.
    """
    level: dict[int, tuple[Any, int]] = {0: ((value,), 1)}
    members = 0
    for _ in range(MAX_LEVELS + 2):
        below: dict[int, tuple[Any, int]] = {}
        for container, times in level.values():
            for some in (container,) if type(container) in _NESTED else _within(container):
                members += times * len(some)
                if members > most:
                    return members
                for member in (*some, *some.values()) if type(some) is dict else some:
                    if type(member) not in _ATOMS:
                        _, before = below.get(id(member), (None, 0))
                        below[id(member)] = (member, before + times)
        if not below:
            return members
        level = below
    raise NotPortable(f"it is nested more than {MAX_LEVELS} levels deep, or contains itself")


def portable(value: Any) -> bytes:
    """Its canonical CBOR, which can be read again.

    A value that contains the same list many times, or itself, has many members where it takes little memory. Not more
    of them are looked through than a state can have bytes.

    Raises:
        NotPortable: there is none, or no server could read it.
    """
    try:
        seen = glance(value, _FEW)
        if seen is Glance.LARGE:
            if _members_of(value, MAX_STATE_BYTES) > MAX_STATE_BYTES:
                raise NotPortable(f"it has more members than the {MAX_STATE_BYTES} bytes of a state")
            seen = glance(value)
        encoded = cbor2.dumps(value, canonical=True)
    except NotPortable:
        raise
    except BaseException as error:
        if is_stopping(error):
            raise
        raise NotPortable(f"it cannot be written: {said(error)}") from error
    if seen is Glance.OTHER:
        try:
            loads_state_untrusted(encoded, MAX_LEVELS)
        except BaseException as error:
            if is_stopping(error):
                raise
            raise NotPortable(f"it could not be read again: {said(error)}") from error
    return encoded


def a_state(method: str, given: Any) -> Any:
    """What a method of a world gave as a state, if it is one.

    Raises:
        NotPortable: it gave nothing, as a method does of which one branch has no `return`.
    """
    if given is None:
        raise NotPortable(f"{method} gave None, which is no state: does a branch of it lack a `return`?")
    return given


def copied(state: Any) -> Any:
    """The same state in objects of its own. Raises `NotPortable` as `portable`."""
    return loads_state_untrusted(portable(state), MAX_LEVELS)
