"""Entities of a simulation: declared fields, which hold values, and can be written in a step only.

A field holds no list or dict that could be changed behind the driver's back. What is assigned is brought into canonical
form (`canonical.freeze`), so lists are tuples and maps are read-only. Thus a write is an assignment, each of them is
seen, and what was not written need not be encoded again.
"""

from collections.abc import Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from batonpass.simserver.sync.lockstep.acts import StepGuard
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, encode_frozen, freeze

__all__ = ["FieldRefused", "SimEntity"]

_NO_DEFAULT: Final = object()
# By class; programs have few of them, and nothing from outside makes one.
_FIELDS: Final[dict[type, Mapping[str, "_Field"]]] = {}
_SCALARS: Final = (bool, int, float, str, bytes, NoneType)


class FieldRefused(TypeError):
    """A field is not declared, or does not take the value; the sentence names the class, the field and the remedy."""


class _Kind(NamedTuple):
    """What a field, or a value within one, may be.

    Attributes:
        types: of the value itself.
        places: of the values in a tuple of a certain length, by their places; None if it may have any.
        rest: of the values in a tuple of any length; None if they may be anything.
        of_map: of the values in a map; None if they may be anything.
    """

    types: frozenset[type]
    places: "tuple[_Kind, ...] | None" = None
    rest: "_Kind | None" = None
    of_map: "_Kind | None" = None


class _Field(NamedTuple):
    kind: _Kind
    default: Any


class SimEntity:
    """Something of a game, as a class of yours that declares its fields with types and defaults.

    Fields are `int`, `float`, `bool`, `str`, `bytes`, `tuple[…]`, `Mapping[str, …]`, or one of them or `None`. They can
    be read at any time, and written from the methods and callbacks that the driver calls, never from elsewhere. The
    driver makes the objects: `SimDriver.spawn`.
    """

    _sim: Any
    _id: int
    _guard: StepGuard
    _encoded: bytes | None

    def __init__(self, sim: Any, guard: StepGuard, id: int, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)
        self.__dict__.update(_sim=sim, _guard=guard, _id=id, _encoded=None)

    @property
    def id(self) -> int:
        """Its number: 1 for the first entity after a reset, and never given again until the next one."""
        return self._id

    @property
    def sim(self) -> Any:
        """The driver: your class of `SimDriver`."""
        return self._sim

    def sim_enter(self) -> None:
        """Called when it has entered the scene, at the end of the tick in which it was spawned."""

    def sim_tick(self) -> None:
        """Called in each tick, in the order of spawning."""

    def sim_exit(self) -> None:
        """Called when it has left the scene, at the end of the tick in which it was removed."""

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self)
        self._guard.require_open(f"{kind.__name__} {self._id}.{name} is written")
        taken = accept(kind, name, value)
        self.__dict__[name] = taken
        self.__dict__["_encoded"] = None
        if self._guard.traced:
            self._guard.did("write", f"{kind.__name__} {self._id}.{name}", taken)

    def __delattr__(self, name: str) -> None:
        raise FieldRefused(f"{type(self).__name__}.{name} cannot be deleted: a field may be None, if it is declared so")

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={self.__dict__[name]!r}" for name in fields_of(type(self)))
        return f"{type(self).__name__} {self._id}({fields})"

    def encoded(self, *, afresh: bool = False) -> bytes:
        """Return the canonical bytes of `[id, class name, fields]`.

        Args:
            afresh: whether to encode it even if nothing was written since the last time.
        """
        known = self._encoded
        if known is None or afresh:
            kind = type(self)
            known = encode_row(self._id, kind, self.__dict__)
            self.__dict__["_encoded"] = known
        return known


def encode_row(id: int, kind: type[SimEntity], values: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of `[id, class name, fields]`, from a map that has accepted values for its fields."""
    return encode_frozen((id, kind.__name__, {name: values[name] for name in fields_of(kind)}))


def accept_all(kind: type[SimEntity], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all fields of a new entity, from those that are given and the defaults.

    Raises:
        FieldRefused, NotCanonical: a name or value is not taken, or one is missing.
    """
    taken = {name: accept(kind, name, value) for name, value in values.items()}
    for name, field in fields_of(kind).items():
        if name not in taken:
            if field.default is _NO_DEFAULT:
                raise FieldRefused(f"{kind.__name__}.{name} has no default: give it when you spawn one")
            taken[name] = field.default
    return taken


def accept(kind: type[SimEntity], name: str, value: Any) -> Any:
    """Return what a field holds when `value` is assigned to it. Raises `FieldRefused` or `NotCanonical`."""
    field = fields_of(kind).get(name)
    if field is None:
        raise FieldRefused(f"{kind.__name__}.{name} is not declared: write `{name}: int`, or its type, in the class")
    return _accept(f"{kind.__name__}.{name}", field.kind, value)


def fields_of(kind: type[SimEntity]) -> Mapping[str, _Field]:
    """Return the fields that a class declares, in the order of their encoding. Raises `FieldRefused` if one is none."""
    known = _FIELDS.get(kind)
    if known is None:
        known = _FIELDS[kind] = _declared(kind)
    return known


def _declared(kind: type[SimEntity]) -> Mapping[str, _Field]:
    fields: dict[str, _Field] = {}
    inherited = get_type_hints(SimEntity)
    for name, hint in get_type_hints(kind).items():
        if name in inherited or get_origin(hint) is ClassVar or hint is ClassVar:
            continue
        path = f"{kind.__name__}.{name}"
        if hasattr(SimEntity, name) or name.startswith("_"):
            raise FieldRefused(f"{path}: the name is SimEntity's own; name the field otherwise")
        declared = _kind_of(path, hint)
        default = getattr(kind, name, _NO_DEFAULT)
        fields[name] = _Field(declared, default if default is _NO_DEFAULT else _accept(path, declared, default))
    return MappingProxyType({name: fields[name] for name in freeze(dict.fromkeys(fields))})


def _accept(path: str, kind: _Kind, value: Any) -> Any:
    return _fitting(path, kind, value, freeze(value, path))


def _fitting(path: str, kind: _Kind, value: Any, taken: Any) -> Any:
    """What was frozen of a value, with integers as floats where these are declared. Raises `FieldRefused`."""
    types, own = kind.types, type(taken)
    if type(value) is float and float not in types:
        raise FieldRefused(f"{path} takes {_named(types)}, not the float {value!r}: use //, or declare it float")
    if own is int and int not in types and float in types:
        return float(taken)
    if own not in types and not (own is int and float in types):
        raise FieldRefused(f"{path} takes {_named(types)}, not {type(value).__name__}: declare it so, or convert it")
    if own is MappingProxyType and (of_map := kind.of_map) is not None:
        items = {key: _fitting(f"{path}.{key}", of_map, value[key], item) for key, item in taken.items()}
        return MappingProxyType(items)
    if own is tuple and kind.rest is not None:
        rest = kind.rest
        pairs = enumerate(zip(value, taken, strict=True))
        return tuple([_fitting(f"{path}[{at}]", rest, given, item) for at, (given, item) in pairs])
    if own is tuple and kind.places is not None:
        if len(taken) != len(kind.places):
            raise FieldRefused(
                f"{path} takes {len(kind.places)} values, not {len(taken)}: declare tuple[…, ...] for any"
            )
        rows = enumerate(zip(kind.places, value, taken, strict=True))
        return tuple([_fitting(f"{path}[{at}]", one, given, item) for at, (one, given, item) in rows])
    return taken


def _kind_of(path: str, hint: Any) -> _Kind:
    """Raises `FieldRefused`: there are no such fields."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        members = [_kind_of(path, member) for member in get_args(hint)]
        types = frozenset(one for member in members for one in member.types)
        # Of two kinds of tuples or maps, a value may be either, and nothing is demanded of what is within.
        tuples = [member for member in members if tuple in member.types]
        maps = [member for member in members if MappingProxyType in member.types]
        places, rest = (tuples[0].places, tuples[0].rest) if len(tuples) == 1 else (None, None)
        return _Kind(types, places, rest, maps[0].of_map if len(maps) == 1 else None)
    if origin is Literal:
        return _Kind(frozenset(type(one) for one in get_args(hint)))
    if hint in _SCALARS:
        return _Kind(frozenset({hint}))
    if hint is Any:
        return _Kind(frozenset({*_SCALARS, tuple, MappingProxyType}))
    kind, within = origin or hint, get_args(hint)
    if kind is tuple:
        if within[1:] == (...,):
            return _Kind(frozenset({tuple}), rest=_kind_of(path, within[0]))
        return _Kind(frozenset({tuple}), tuple(_kind_of(path, one) for one in within) if origin else None)
    if isinstance(kind, type) and issubclass(kind, Mapping) and not issubclass(kind, dict):
        return _Kind(frozenset({MappingProxyType}), of_map=_kind_of(path, within[1]) if within else None)
    raise FieldRefused(
        f"{path} is declared as {hint}: fields are int, float, bool, str, bytes, tuple[…] or Mapping[str, …], or None"
    )


def _named(types: frozenset[type]) -> str:
    names = {MappingProxyType: "Mapping", NoneType: "None"}
    return " or ".join(sorted(names.get(one, one.__name__) for one in types))


__all__ += ["NotCanonical", "accept", "accept_all", "encode_row", "fields_of"]
