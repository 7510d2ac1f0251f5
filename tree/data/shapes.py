"""Shapes: what a value looks like, with holes; the part of Khepri's `if_data_matches` that ets match patterns play.

A shape is plain data in which a map with one of these keys, alone, has a meaning:

    {"$any": true}        anything
    {"$bind": "x"}        anything, called x in the guards; used twice, both must be equal
    {"$value": v}         exactly v, however v looks

Every other map is met by a map that has at least its keys (as in Erlang), each value meeting its shape. A list is met
by a list of the same length, and everything else by an equal value. Equality is that of the bytes: 1, 1.0 and true
differ.

Guards are lists `[op, left, right]` with `op` one of eq, ne, lt, le, gt, ge, and must all hold. An operand is
`{"$bind": "x"}` or a literal. Order exists between two numbers (not booleans), two texts, and two byte strings; of
other pairs lt, le, gt and ge are all false.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, NamedTuple

from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import BadData

__all__ = ["COMPARISONS", "ShapeMeasures", "check_shape", "compare", "meets"]

MAX_GUARDS: Final = 16
COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"lt": lt, "le": le, "gt": gt, "ge": ge}


class ShapeMeasures(NamedTuple):
    """How large a shape is with its guards, and how many values it binds or guards: what meeting it can take."""

    size_bytes: int
    holes: int


def check_shape(shape: Any, guards: Any) -> ShapeMeasures:
    """Raises `BadData` for a shape or guards that mean nothing: an unknown `$` key, a guard on what is not bound."""
    size_bytes = len(encode([shape, guards]))  # plain, and not nested too deep for recursion
    bound: list[str] = []
    _collect_bindings(shape, bound)
    if not isinstance(guards, list | tuple) or len(guards) > MAX_GUARDS:
        raise BadData(f"guards are a list of at most {MAX_GUARDS}")
    for guard in guards:
        match guard:
            case [str(op), left, right] if op in COMPARISONS:
                _check_operand(left, bound)
                _check_operand(right, bound)
            case _:
                raise BadData(f"a guard is [op, left, right], op one of {', '.join(COMPARISONS)}; not {guard!r:.80}")
    return ShapeMeasures(size_bytes, len(bound) + len(guards))


def meets(shape: Any, guards: Sequence[Any], value: Any) -> bool:
    """Whether the value has this (checked) shape and all guards hold of what it bound."""
    bindings: dict[str, Any] = {}
    return _meets(shape, value, bindings) and all(
        compare(op, _operand(left, bindings), _operand(right, bindings)) for op, left, right in guards
    )


def compare(op: str, left: Any, right: Any) -> bool:
    """`left op right` between two plain values; see the module."""
    if op in {"eq", "ne"}:
        return (_equal(left, right)) is (op == "eq")
    return _have_order(left, right) and _ORDER[op](left, right)


def _collect_bindings(shape: Any, bound: list[str]) -> None:
    if isinstance(shape, Mapping):
        match _special(shape):
            case ("$bind", str(name)):
                bound.append(name)
            case ("$any", True) | ("$value", _):
                return
            case (key, _):
                raise BadData(f"{key} means nothing in a shape; use $any, $bind or $value")
            case None:
                for inner in shape.values():
                    _collect_bindings(inner, bound)
    elif isinstance(shape, list | tuple):
        for inner in shape:
            _collect_bindings(inner, bound)


def _special(shape: Mapping[Any, Any]) -> tuple[str, Any] | None:
    if len(shape) == 1:
        ((key, value),) = shape.items()
        if isinstance(key, str) and key.startswith("$"):
            return key, value
    return None


def _check_operand(operand: Any, bound: list[str]) -> None:
    if isinstance(operand, Mapping) and "$bind" in operand:
        name = operand["$bind"]
        if len(operand) != 1 or not isinstance(name, str) or name not in bound:
            raise BadData(f"the guard speaks of {name!r:.40}, which the shape does not bind")


def _operand(operand: Any, bindings: Mapping[str, Any]) -> Any:
    if isinstance(operand, Mapping) and "$bind" in operand:
        return bindings[operand["$bind"]]
    return operand


def _meets(shape: Any, value: Any, bindings: dict[str, Any]) -> bool:
    if isinstance(shape, Mapping):
        match _special(shape):
            case ("$any", _):
                return True
            case ("$bind", name):
                return _equal(bindings.setdefault(name, value), value)
            case ("$value", exact):
                return _equal(exact, value)
            case _:
                return isinstance(value, Mapping) and all(
                    key in value and _meets(inner, value[key], bindings) for key, inner in shape.items()
                )
    if isinstance(shape, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(shape)
            and all(_meets(inner, item, bindings) for inner, item in zip(shape, value, strict=True))
        )
    return _equal(shape, value)


def _equal(left: Any, right: Any) -> bool:
    return left is right or encode(left) == encode(right)


def _have_order(left: Any, right: Any) -> bool:
    kinds = (_kind(left), _kind(right))
    return kinds[0] is not None and kinds[0] == kinds[1]


def _kind(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "bytes" if isinstance(value, bytes) else None
