"""`copy.deepcopy`, twice as fast: a search of states spends most of its time with it.

It asks a type once how things of it are copied, and not every thing. What it does not know it leaves to `copy`.
"""

import copy
import types
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from batonpass.crypto.bounded_tables import FifoTable

__all__ = ["deep_copy"]

_Memo = dict[int, Any]
_Copier = Callable[[Any, _Memo], Any]
_MISSING: Final = object()
# What `copy` shares, too: nothing in it changes.
_ATOMS: Final[set[type]] = {
    type(None), int, float, bool, complex, bytes, str, range, type(Ellipsis), type(NotImplemented), property,
    types.FunctionType, types.BuiltinFunctionType, types.CodeType, type,
}  # fmt: skip
_copiers: Final[dict[type, _Copier]] = {}


def deep_copy(value: Any, memo: _Memo) -> Any:
    """A copy of `value` and of all that is in it, which shares what `memo` (by `id`) says.

    `value` must hold on to all that is in it, so that no two of its parts have one `id`.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    known = memo.get(id(value), _MISSING)
    if known is not _MISSING:
        return known
    copier = _copiers.get(kind)
    if copier is None:
        copier = _copiers[kind] = _copier_of(kind)
    made = copier(value, memo)
    memo[id(value)] = made
    return made


def _copier_of(kind: type) -> _Copier:
    if issubclass(kind, type | Enum):
        return _same
    known = {
        dict: _copied_dict, OrderedDict: _copied_dict, Counter: _copied_dict, list: _copied_list,
        tuple: _copied_tuple, set: _copied_set, frozenset: _copied_set, types.MethodType: _copied_method,
    }.get(kind)  # fmt: skip
    if known is not None:
        return known
    if issubclass(kind, FifoTable):
        return _copied_table
    if kind.__bases__ == (tuple,) and hasattr(kind, "_fields"):
        return _copied_named
    return _copier_of_slots(kind) if _is_plain(kind) else copy.deepcopy


def _is_plain(kind: Any) -> bool:
    """Whether its things are what is in their attributes, and nothing more."""
    if any(hasattr(kind, name) for name in ("__deepcopy__", "__getnewargs__", "__getnewargs_ex__")):
        return False
    if any(getattr(kind, name) is not getattr(object, name) for name in ("__new__", "__reduce__", "__reduce_ex__")):
        return False
    # Dataclasses that are frozen and have slots have their own of these, which do what is done here.
    return all(
        method is None or method is getattr(object, name, None) or method.__module__ == "dataclasses"
        for name in ("__getstate__", "__setstate__")
        for method in (getattr(kind, name, None),)
    )


def _copier_of_slots(kind: Any) -> _Copier:
    slots = tuple(name for name in _slots_of(kind) if name not in ("__dict__", "__weakref__"))
    new_one, set_attribute = kind.__new__, object.__setattr__

    def copied(value: Any, memo: _Memo) -> Any:
        made: Any = new_one(kind)
        memo[id(value)] = made
        for name in slots:
            held = getattr(value, name, _MISSING)
            if held is not _MISSING:
                set_attribute(made, name, held if type(held) in _ATOMS else deep_copy(held, memo))
        attributes = getattr(value, "__dict__", None)
        if attributes:
            new = made.__dict__
            for name, held in attributes.items():
                new[name] = held if type(held) in _ATOMS else deep_copy(held, memo)
        return made

    return copied


def _slots_of(kind: type) -> Iterable[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{base.__name__.lstrip('_')}{name}" if is_private else name


def _same(value: Any, memo: _Memo) -> Any:
    return value


def _copied_dict(value: Any, memo: _Memo) -> Any:
    made: dict[Any, Any] = type(value)()
    memo[id(value)] = made
    for key, held in value.items():
        made[key if type(key) in _ATOMS else deep_copy(key, memo)] = (
            held if type(held) in _ATOMS else deep_copy(held, memo)
        )
    return made


def _copied_table(value: FifoTable[Any, Any], memo: _Memo) -> Any:
    made: FifoTable[Any, Any] = type(value)(value.max_entries, deep_copy(value.on_evict, memo))
    memo[id(value)] = made
    for key, held in value.items():
        made[deep_copy(key, memo)] = deep_copy(held, memo)
    return made


def _copied_list(value: Any, memo: _Memo) -> Any:
    made: list[Any] = []
    memo[id(value)] = made
    made.extend(held if type(held) in _ATOMS else deep_copy(held, memo) for held in value)
    return made


def _copied_tuple(value: Any, memo: _Memo) -> Any:
    made: Any = tuple([held if type(held) in _ATOMS else deep_copy(held, memo) for held in value])
    # It may have come by itself, by way of what is in it.
    return memo.get(id(value), value if all(map(_is, made, value)) else made)


def _copied_named(value: Any, memo: _Memo) -> Any:
    made: Any = type(value)._make([held if type(held) in _ATOMS else deep_copy(held, memo) for held in value])
    return memo.get(id(value), made)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _copied_set(value: Any, memo: _Memo) -> Any:
    return type(value)(held if type(held) in _ATOMS else deep_copy(held, memo) for held in value)


def _copied_method(value: Any, memo: _Memo) -> Any:
    return types.MethodType(value.__func__, deep_copy(value.__self__, memo))
