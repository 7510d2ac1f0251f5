"""What has changed in a value of plain CBOR data, so that a peer with the former value can be told less than all of it.

A patch is itself plain data (docs/players-door.md):

    [value]                 the new value
    []                      of a member of a map: it is there no more
    {key or index: patch}   the changed members of a map whose keys are texts, or of a list that is as long as before

A map or list of which every member has a new value is replaced: to name its members would only be longer.
"""

from math import copysign
from typing import Any, Final

import cbor2

from batonpass.authority.errors import MessageError

__all__ = ["patch_of", "patched_untrusted"]

_MAX_LEVELS: Final = 400


def patch_of(before: Any, after: Any) -> Any | None:
    """What makes `after` of `before`; None if they are encoded alike: 1 is neither 1.0 nor True, and 0.0 is not -0.0.

    The patch has parts of `after`, which must not be changed afterwards.
    """
    if before is after:
        return None
    kind = type(before)
    if kind is not type(after):
        return [after]
    if kind is dict:
        return _patch_of_map(before, after)
    if kind is list or kind is tuple:
        return _patch_of_list(before, after)
    if before != after or (kind is float and copysign(1.0, before) != copysign(1.0, after)):
        return [after]
    # Sets, dates and the like, of which == does not say whether they are encoded alike.
    return None if kind in _ATOMS else _replaced(before, after)


_ATOMS: Final = frozenset({int, float, str, bytes, bool, type(None)})


def _replaced(before: Any, after: Any) -> list[Any] | None:
    return None if cbor2.dumps(before, canonical=True) == cbor2.dumps(after, canonical=True) else [after]


def _patch_of_map(before: dict[Any, Any], after: dict[Any, Any]) -> Any | None:
    changed: dict[str, Any] = {}
    whole = kept = 0
    for key, value in after.items():
        if type(key) is not str:
            return _replaced(before, after)
        if key not in before:
            changed[key] = [value]
            whole += 1
            continue
        kept += 1
        patch = patch_of(before[key], value)
        if patch is not None:
            changed[key] = patch
            whole += type(patch) is list
    if kept < len(before):
        for key in before:
            if type(key) is not str:
                return _replaced(before, after)
            if key not in after:
                changed[key] = []
    if not changed:
        return None
    return [after] if whole == len(after) else changed


def _patch_of_list(before: Any, after: Any) -> Any | None:
    if len(before) != len(after):
        return [after]
    changed: dict[int, Any] = {}
    whole = 0
    for index, value in enumerate(after):
        patch = patch_of(before[index], value)
        if patch is not None:
            changed[index] = patch
            whole += type(patch) is list
    if not changed:
        return None
    return [after] if whole == len(after) else changed


def patched_untrusted(value: Any, patch: Any, levels: int = _MAX_LEVELS) -> Any:
    """The value after a patch of somebody else; `value` stays as it is.

    Raises:
        MessageError: the patch is none, or not of this value.
    """
    match patch:
        case [new]:
            return new
        case dict() if levels and isinstance(value, dict):
            members = dict(value)
            for key, part in patch.items():
                if part == []:
                    members.pop(key, None)
                elif key in members or (isinstance(part, list) and len(part) == 1):
                    members[key] = patched_untrusted(members.get(key), part, levels - 1)
                else:
                    raise MessageError("a patch is of a member that is not there")
            return members
        case dict() if levels and isinstance(value, list | tuple):
            items = list(value)
            for index, part in patch.items():
                if type(index) is not int or not 0 <= index < len(items):
                    raise MessageError("a patch is of a place that is not there")
                items[index] = patched_untrusted(items[index], part, levels - 1)
            return items
        case _:
            raise MessageError("this is no patch of this value")
