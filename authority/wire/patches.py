"""What has changed in a value of plain CBOR data, so that a peer with the former value can be told less than all of it.

A patch is itself plain data (docs/reference/players-door.md):

    [value]                 the new value
    []                      of a member of a map: it is there no more
    {key or index: patch}   the changed members of a map whose keys are texts, or of a list that is as long as before

A map or list of which every member has a new value is replaced: to name its members would only be longer.

Many things change alike, such as robots that all have another position. What they share of their patches is a *shape*:
the patch with 0 in place of each `[value]`. With its shape a patch is the list of its values, and the names of members
are said once for all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import copysign
from typing import Any, Final

import cbor2

from batonpass.authority.errors import MessageError

__all__ = ["change_of", "filled_untrusted", "leaves_untrusted", "patch_of", "patched_untrusted"]

_MAX_LEVELS: Final = 400


def patch_of(before: Any, after: Any) -> Any | None:
    """The patch that makes `after` of `before`; None if they are encoded alike. See `change_of`."""
    values: list[Any] = []
    shape = change_of(before, after, values)
    return None if shape is None else filled_untrusted(shape, values)


def change_of(before: Any, after: Any, values: list[Any]) -> Any | None:
    """The shape of the patch that makes `after` of `before`, whose values are added to `values`, in order.

    None if they are encoded alike: 1 is neither 1.0 nor True, and 0.0 is not -0.0. The values are parts of `after`,
    which must not be changed afterwards. Keys such as `"10"` come first, by number: so they come in objects of
    JavaScript, whatever order they were put in.
    """
    if before is after:
        return None
    kind = type(before)
    if kind is not type(after):
        return _new(after, values)
    if kind is dict:
        return _change_of_map(before, after, values)
    if kind is list or kind is tuple:
        return _change_of_list(before, after, values)
    if before != after or (kind is float and copysign(1.0, before) != copysign(1.0, after)):
        return _new(after, values)
    # Sets, dates and the like, of which == does not say whether they are encoded alike.
    return None if kind in _ATOMS else _replaced(before, after, values)


_MISSING: Final = object()
_ATOMS: Final = frozenset({int, float, str, bytes, bool, type(None)})
# Texts that begin with a digit come before it.
_AFTER_DIGITS: Final = ":"


_NEW: Final = 0
"""The shape of `[value]`."""


def _new(after: Any, values: list[Any]) -> int:
    values.append(after)
    return _NEW


def _replaced(before: Any, after: Any, values: list[Any]) -> int | None:
    same = cbor2.dumps(before, canonical=True) == cbor2.dumps(after, canonical=True)
    return None if same else _new(after, values)


def _change_of_map(  # noqa: C901, PLR0912 — a call for each member would take longer than all of it
    before: dict[Any, Any], after: dict[Any, Any], values: list[Any], items: Iterable[tuple[Any, Any]] | None = None
) -> Any | None:
    """`items` are those of `after`, in the order of JavaScript; as they come, if that is not needed."""
    began, changed = len(values), dict[str, Any]()
    whole = kept = 0
    for key, value in after.items() if items is None else items:
        if type(key) is not str:
            del values[began:]
            return _replaced(before, after, values)
        former = before.get(key, _MISSING)
        if former is _MISSING:
            part: Any = _new(value, values)
        else:
            kept += 1
            # What is the same, which most is, costs no call, nor does another number or text.
            if former is value:
                continue
            if type(value) is type(former) and type(value) in _ATOMS and former != value:
                part = _NEW
                values.append(value)
            elif (part := change_of(former, value, values)) is None:
                continue
        if items is None and key < _AFTER_DIGITS:
            del values[began:]
            return _change_of_map(before, after, values, sorted(after.items(), key=_place))
        changed[key] = part
        whole += part == 0
    if kept < len(before):
        for key in before:
            if type(key) is not str:
                del values[began:]
                return _replaced(before, after, values)
            if key not in after:
                changed[key] = []
    if not changed:
        return None
    if whole < len(after):
        return changed
    del values[began:]
    return _new(after, values)


def _place(item: tuple[Any, Any]) -> int:
    """By indices of arrays in JavaScript (ECMA-262, section 6.1.7), and everything else after them."""
    key = item[0]
    if type(key) is str and key.isdecimal() and len(key) <= 10 and str(int(key)) == key:
        return min(int(key), 2**32 - 1)
    return 2**32 - 1


def _change_of_list(before: Any, after: Any, values: list[Any]) -> Any | None:
    if len(before) != len(after):
        return _new(after, values)
    began, changed = len(values), dict[int, Any]()
    whole = 0
    for index, value in enumerate(after):
        part = change_of(before[index], value, values)
        if part is not None:
            changed[index] = part
            whole += part == 0
    if not changed:
        return None
    if whole < len(after):
        return changed
    del values[began:]
    return _new(after, values)


def patched_untrusted(value: Any, patch: Any, levels: int = _MAX_LEVELS) -> Any:
    """The value after a patch that others made; `value` stays as it is.

    Raises:
        MessageError: the patch is none, or not of this value.
    """
    match patch:
        case [new]:
            return new
        case dict() if levels and isinstance(value, dict):
            members = dict(value)
            for key, part in patch.items():
                if part == [] and key in members:
                    del members[key]
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


def leaves_untrusted(shape: Any, levels: int = _MAX_LEVELS) -> int:
    """How many values a patch of this shape has.

    Raises:
        MessageError: this is no shape.
    """
    match shape:
        case []:
            return 0
        case int() if shape == 0 and type(shape) is int:
            return 1
        case dict() if levels:
            return sum(leaves_untrusted(part, levels - 1) for part in shape.values())
        case _:
            raise MessageError("this is no shape of a patch")


def filled_untrusted(shape: Any, values: Sequence[Any]) -> Any:
    """The patch of this shape, which `leaves_untrusted` has counted, with as many values as it has leaves."""
    return _filled(shape, iter(values))


def _filled(shape: Any, values: Iterator[Any]) -> Any:
    if type(shape) is dict:
        return {key: _filled(part, values) for key, part in shape.items()}
    return [next(values)] if shape == 0 else []
