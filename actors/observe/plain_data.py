"""A state from JSON, in the shape of the one there is: what an operator may put in its place from outside.

`actors.observe.display` shows a state as JSON, but leaves things out, and JSON knows few types. So what comes back is
laid beside the present state, and each part takes the type of its counterpart, or all of it is refused:

==============================  ====================================================================================
the present part                what JSON may put there
==============================  ====================================================================================
`bool`, `int`, `str`, `None`    the same kind
`float`                         any number that it can hold
`list`                          a list, longer or shorter if its items are of one type
`tuple`                         a list of as many items
`dict`                          an object; keys come and go if its values are of one type and its keys are text
a `NamedTuple`                  an object with all its fields
a frozen dataclass              `{"Class": {…}}` with all fields that are shown; the others stay
everything else                 nothing
==============================  ====================================================================================

Any part that is given exactly as it is shown (`"<hidden>"`, `"<32 bytes>"`, what was shortened) stays as it is, so that
what was shown can be changed in one place and given back. Within a list that is changed this does not hold: it cannot
be told there whose hidden part would stay. Text that stands for what was left out never becomes a part itself. Classes
that check their fields when they are made do so here too.

This module is pure: it imports no trio.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any, Final, final

from batonpass.actors.observe.display import Json, picture, stands_for_more

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["MAX_DEPTH", "NotReplaceable", "in_shape_of_untrusted"]

MAX_DEPTH: Final = 32
"""Of the JSON: twice what is ever shown."""
_PATH_CHARACTERS: Final = 200
_KEY_CHARACTERS: Final = 40

_LEFT_OUT: Final = "…"
"""What a part is shown as whose surroundings are not shown."""


@final
class NotReplaceable(Exception):
    """The JSON cannot take the place of the state; `path` says which part of it, `why` what is wrong there."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def in_shape_of_untrusted(given: Json, present: Any) -> Any:
    """What `given` says, made of the types of `present`, which is not changed; see the head of the module.

    Raises `NotReplaceable`, and nothing else.
    """
    _check_depth(given)
    return _of(given, present, picture(present), _StatePlace("state", certain=True))


@final
@dataclasses.dataclass(frozen=True, slots=True)
class _StatePlace:
    """Where in the state we are; `certain` if what is there now is what was shown there."""

    path: str
    certain: bool

    def field(self, name: str, *, certain: bool = True) -> _StatePlace:
        name = name if len(name) <= _KEY_CHARACTERS else name[: _KEY_CHARACTERS - 1] + "…"
        return self._below(f".{name}" if name.isidentifier() else f"[{name!r}]", certain=certain)

    def item(self, number: int, *, certain: bool) -> _StatePlace:
        return self._below(f"[{number}]", certain=certain)

    def _below(self, step: str, *, certain: bool) -> _StatePlace:
        path = self.path + step
        if len(path) > _PATH_CHARACTERS:
            path = "…" + path[1 - _PATH_CHARACTERS :]
        return _StatePlace(path, self.certain and certain)

    def refused(self, why: str) -> NotReplaceable:
        return NotReplaceable(self.path, why)


def _of(given: Json, present: Any, shown: Json, place: _StatePlace) -> Any:
    if place.certain and _same(given, shown):
        return present
    # Exact types, as in `actors.observe.display`: what a subclass is for is not known.
    kind = type(present)
    if present is None or kind in (bool, int, float, str):
        return _scalar(given, present, place)
    if kind is list or kind is tuple:
        return _sequence(given, present, shown, place)
    if kind is dict:
        return _mapping(given, present, shown, place)
    if isinstance(present, tuple) and hasattr(present, "_fields"):
        return _named_tuple(given, present, shown, place)
    if dataclasses.is_dataclass(present) and not isinstance(present, type) and _is_frozen(present):
        return _dataclass(given, present, shown, place)
    hint = "" if place.certain else " (in a list that is changed, not even as it is shown)"
    raise place.refused(f"a {kind.__qualname__} cannot be given as JSON{hint}")


def _scalar(given: Json, present: Any, place: _StatePlace) -> Any:
    kind = type(present)
    match given:
        case None | bool() | str() if type(given) is kind:
            return _fresh_scalar(given, place) if given != present else present
        case int() if kind is int and type(given) is int:
            return given
        case int() | float() if kind is float and type(given) is not bool:
            return _finite(given, place)
    raise place.refused(f"it is {_NAMES[kind]}, and {_NAMES[type(given)]} cannot take its place")


def _sequence(given: Json, present: list[Any] | tuple[Any, ...], shown: Json, place: _StatePlace) -> Any:
    if not isinstance(given, list):
        raise place.refused(f"it is a list, and {_NAMES[type(given)]} cannot take its place")
    several = _several_types(present)
    if len(given) != len(present) and (several or type(present) is tuple):
        why = "its items are of different types" if several else "it is a tuple"
        raise place.refused(f"{why}, so it keeps its {len(present)} items, and {len(given)} were given")
    # The items of a list change places; a tuple of different types is a record.
    certain = several and type(present) is tuple
    shown_items = shown if isinstance(shown, list) else []
    made = []
    for number, item in enumerate(given):
        there = place.item(number, certain=certain)
        if number < len(present):
            seen = shown_items[number] if number < len(shown_items) else _LEFT_OUT
            made.append(_of(item, present[number], seen, there))
        else:
            made.append(_one_more(item, present, there))
    return type(present)(made)


def _mapping(given: Json, present: dict[Any, Any], shown: Json, place: _StatePlace) -> dict[Any, Any]:
    if not isinstance(given, dict):
        raise place.refused(f"it is an object, and {_NAMES[type(given)]} cannot take its place")
    keys = _keys_by_name(present, place)
    fixed = _several_types(present.values())
    for name in keys if fixed else ():
        if name not in given:
            raise place.field(name).refused("it is missing, and its neighbours are of different types")
    takes_new = not fixed and all(type(key) is str for key in present)
    shown_items = shown if isinstance(shown, dict) else {}
    made = {}
    for name, item in given.items():
        if name in keys:
            key = keys[name]
            seen = shown_items.get(name, _LEFT_OUT)
            made[key] = _of(item, present[key], seen, place.field(name))
        elif takes_new:
            there = place.field(name, certain=False)
            made[_fresh_scalar(name, there)] = _one_more(item, present.values(), there)
        else:
            raise place.field(name).refused(
                "there is no such key, and new ones are only for text with values of one type"
            )
    return made


def _keys_by_name(present: dict[Any, Any], place: _StatePlace) -> dict[str, Any]:
    """The keys, by what they are called in JSON."""
    keys: dict[str, Any] = {}
    for key in present:
        name = str(picture(key))
        if name in keys or (type(key) is str and name != key):
            raise place.refused(
                "its keys are not what is shown: some are too long or strange, or look the same in JSON"
            )
        keys[name] = key
    return keys


def _named_tuple(given: Json, present: Any, shown: Json, place: _StatePlace) -> Any:
    parts = _fields(given, present._fields, place)
    seen = shown if isinstance(shown, dict) else {}
    made = [
        _of(parts[name], item, seen.get(name, _LEFT_OUT), place.field(name))
        for name, item in zip(present._fields, present, strict=True)
    ]
    try:
        return type(present)._make(made)
    except Exception as error:
        raise _refused_by_its_class(error, present, place) from error


def _dataclass(given: Json, present: Any, shown: Json, place: _StatePlace) -> Any:
    kind = type(present).__name__
    fields = dataclasses.fields(present)
    inner = _fields(given, [kind], place)[kind]
    place = place.field(kind)
    parts = _fields(inner, [field.name for field in fields if field.repr], place)
    if not place.certain and len(parts) < len(fields):
        raise place.refused("it has fields that are not shown, and lies in a list that is changed")
    if not all(field.init for field in fields):
        raise place.refused("it has fields that cannot be given to its class")
    outer = shown.get(kind) if isinstance(shown, dict) else None
    seen = outer if isinstance(outer, dict) else {}
    changed = {}
    for name, part in parts.items():
        if not hasattr(present, name):
            raise place.field(name).refused("it has no value now")
        changed[name] = _of(part, getattr(present, name), seen.get(name, _LEFT_OUT), place.field(name))
    try:
        return dataclasses.replace(present, **changed)
    except Exception as error:
        raise _refused_by_its_class(error, present, place) from error


def _refused_by_its_class(error: Exception, present: Any, place: _StatePlace) -> NotReplaceable:
    return place.refused(f"{type(present).__name__} refuses it: {picture(error)}")


def _fields(given: Json, names: Iterable[str], place: _StatePlace) -> dict[str, Json]:
    """The members of an object that has exactly these."""
    wanted = list(names)
    if not isinstance(given, dict):
        raise place.refused(
            f"it is an object with {', '.join(wanted)}, and {_NAMES[type(given)]} cannot take its place"
        )
    for name in wanted:
        if name not in given:
            raise place.field(name).refused("it is missing")
    for name in given:
        if name not in wanted:
            raise place.field(name).refused(f"there is no such field; there are {', '.join(wanted)}")
    return {name: given[name] for name in wanted}


def _several_types(parts: Iterable[Any]) -> bool:
    return len({type(part) for part in parts}) > 1


def _one_more(given: Json, others: Collection[Any], place: _StatePlace) -> Any:
    """An item that has no counterpart, in a collection of others, which are of one type."""
    return _of(given, next(iter(others)), _LEFT_OUT, place) if others else _fresh(given, place)


def _fresh(given: Json, place: _StatePlace) -> Any:
    """JSON as Python has it, where there is nothing to compare it with."""
    match given:
        case list():
            return [_fresh(item, place.item(number, certain=False)) for number, item in enumerate(given)]
        case dict():
            return {
                _fresh_scalar(name, place.field(name)): _fresh(item, place.field(name)) for name, item in given.items()
            }
        case _:
            return _fresh_scalar(given, place)


def _fresh_scalar(given: Any, place: _StatePlace) -> Any:
    if isinstance(given, float):
        return _finite(given, place)
    if isinstance(given, str):
        if stands_for_more(given):
            raise place.refused(f"{given!r:.60} only stands for what was not shown")
        if any("\ud800" <= char <= "\udfff" for char in given):
            raise place.refused("this text has half a surrogate pair, which UTF-8 cannot hold")
    return given


def _finite(given: float, place: _StatePlace) -> float:
    try:
        made = float(given)
    except OverflowError:
        made = math.inf
    if not math.isfinite(made):
        raise place.refused("a float cannot hold this number")
    return made


def _same(given: Json, shown: Json) -> bool:
    """Equality that tells 1 from 1.0 and from true."""
    return json.dumps(given, sort_keys=True) == json.dumps(shown, sort_keys=True)


def _is_frozen(value: Any) -> bool:
    # Others may hold one that is not frozen, and would keep the old one.
    return bool(type(value).__dataclass_params__.frozen)


def _check_depth(given: Json) -> None:
    level: list[Json] = [given]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for value in level
            if isinstance(value, (list, dict))
            for part in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise NotReplaceable("state", f"it is nested deeper than {MAX_DEPTH} levels")


_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
