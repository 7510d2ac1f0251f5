"""Messages of actors as bytes: plain data, references, and types that were registered by name.

The bytes are CBOR (RFC 8949). What arrives equals what was sent, type for type: a tuple stays a tuple, a map keeps its
order. What is not on this list is refused on the way out (`Unsendable`) instead of arriving as something else:

- None, bool, int, float, str, bytes; list, tuple, dict, set, frozenset of all of these: exactly, not subclasses
- `Ref`, `RemoteNamed` and `Named`, `From`: they work at the other end
- exceptions, which arrive as `RemoteError`
- dataclasses and enums given to `register` under the same name on both nodes

Nothing that arrives can name a class to import or a function to call: a type is looked up in the table that this
node's own code has filled.

Pure. How references are described and resolved is the business of a `References`.
"""

from __future__ import annotations

import dataclasses
import enum
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, final

import cbor2

from batonpass.actors.remote.errors import RemoteError, Undecodable, Unsendable
from batonpass.actors.remote.settings import (
    MAX_DEPTH,
    MAX_ERROR_CHARACTERS,
    MAX_LOOSE_KEYS,
    MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TUPLE: Final = 224
MAP: Final = 225
SET: Final = 226
FROZENSET: Final = 227
REF: Final = 228
NAMED: Final = 229
CALLER: Final = 230
ERROR: Final = 231
RECORD: Final = 232
MEMBER: Final = 233

_UINT64_END: Final = 2**64

_KNOWN_TAGS: Final = (
    0,
    1,
    4,
    5,
    *range(21, 41),
    *range(52, 55),
    *range(100, 105),
    *range(258, 262),
    1004,
    43000,
    55799,
)
"""Every tag that cbor2 would turn into an object by itself, but for big integers (2, 3); others get to the tag hook."""

_HEADS: Final = bytes(range(0x80, 0xDC))
"""First bytes of arrays, maps and tags: no value is nested deeper than it has of these."""

Encoder = Any
"""`Callable[[cbor2.CBOREncoder, Any], object]`; cbor2 says that its own methods take more precise types."""


class WireRef(NamedTuple):
    """A reference to one life of one actor, as it travels. `seal` proves that `node` itself has given it away."""

    node: str
    creation: int
    pid: int
    seal: int


class WireNamed(NamedTuple):
    """A published name of a node."""

    node: str
    name: str


class WireCaller(NamedTuple):
    """The caller of one call, who waits at `node`."""

    node: str
    creation: int
    number: int
    seal: int


Wire = WireRef | WireNamed | WireCaller


class References(Protocol):
    """Turns references into what travels, and back."""

    @property
    def node(self) -> str:
        """The name of this node."""
        ...

    @property
    def types(self) -> Iterable[type]:
        """The classes whose instances `describe` takes."""
        ...

    def describe(self, reference: Any) -> Wire:
        """What travels in place of `reference`. Raises `Unsendable`."""
        ...

    def resolve(self, wire: Wire) -> Any:
        """What stands here for a reference that came. Never raises: what is unknown or forged is a dead actor."""
        ...


@final
class DataOnly:
    """For messages without references; what came stays as it is described."""

    def __init__(self, node: str = "") -> None:
        self.node = node
        self.types: Iterable[type] = (WireRef, WireNamed, WireCaller)

    def describe(self, reference: Any) -> Wire:
        """`reference`, which is a description already."""
        described: Wire = reference
        return described

    def resolve(self, wire: Wire) -> Wire:
        """`wire` itself."""
        return wire


class _Encoders(dict[type, Encoder]):
    """By exact type; cbor2 asks here first, and finds no other."""

    def __missing__(self, cls: type) -> Encoder:
        if issubclass(cls, BaseException):
            return self[BaseException]
        hint = "codec.register it" if dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum) else "send plain data"
        raise Unsendable(f"a {cls.__module__}.{cls.__qualname__} cannot travel to another node: {hint}")


@final
class Codec:
    """Encodes and decodes for one node; see the head of the module. `register` types before the first message."""

    def __init__(self, references: References | None = None) -> None:
        self._references: References = references if references is not None else DataOnly()
        self._records: dict[str, tuple[type, tuple[str, ...]]] = {}
        self._members: dict[str, type[enum.Enum]] = {}
        self._registered: dict[type, str] = {}
        self._encoders = _Encoders(_NATIVE)
        self._encoders[BaseException] = self._encode_error
        # Not through cbor2's tag hook, which gets what is inside a tag in immutable form.
        self._decoders: dict[int, Callable[[Any, bool], Any]] = _REFUSED | {
            TUPLE: lambda value, _: tuple(_list(value)),
            MAP: lambda value, _: _decode_map(value),
            SET: lambda value, _: set(_few_loose(_list(value))),
            FROZENSET: lambda value, _: frozenset(_few_loose(_list(value))),
            REF: lambda value, _: self._references.resolve(WireRef(*_numbered(value))),
            NAMED: lambda value, _: self._references.resolve(WireNamed(*_texts(value, 2))),
            CALLER: lambda value, _: self._references.resolve(WireCaller(*_numbered(value))),
            ERROR: lambda value, _: RemoteError(*_texts(value, 3)),
            RECORD: lambda value, _: self._decode_record(value),
            MEMBER: lambda value, _: self._decode_member(value),
        }
        self.use(self._references)

    def use(self, references: References) -> None:
        """Describe and resolve references with these from now on."""
        self._references = references
        for cls in references.types:
            self._encoders[cls] = self._encode_reference

    def register(self, cls: type, name: str) -> None:
        """Let instances of a dataclass, or the members of an enum, travel under `name`: the same on both nodes.

        A dataclass arrives made by its own constructor from its fields, so `__post_init__` is the place to check them:
        whatever that raises makes the message undecodable. The same registration twice is one. Raises `ValueError`
        for a name or class that is registered otherwise, a name that is empty or longer than 255 bytes, and a class
        that is neither.
        """
        if self._registered.get(cls) == name:
            return
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            raise ValueError(f"{name!r} is not a name for a type: 1 to {MAX_NAME_BYTES} bytes")
        if name in self._registered.values() or cls in self._registered:
            raise ValueError(f"{name!r} or {cls.__qualname__} is registered already; a type has one name")
        if issubclass(cls, enum.Enum):
            self._members[name] = cls
            self._encoders[cls] = lambda encoder, member: encoder.encode_semantic(MEMBER, [name, member.name])
        elif dataclasses.is_dataclass(cls):
            fields = tuple(field.name for field in dataclasses.fields(cls) if field.init)
            self._records[name] = (cls, fields)
            self._encoders[cls] = lambda encoder, value: encoder.encode_semantic(
                RECORD, [name, *[getattr(value, field) for field in fields]]
            )
        else:
            raise ValueError(f"{cls.__qualname__} is neither a dataclass nor an enum; send its data instead")
        self._registered[cls] = name

    # Out

    def encode(self, value: Any) -> bytes:
        """The bytes of one message. Raises `Unsendable`, which names what cannot travel, and why."""
        try:
            encoded = cbor2.dumps(value, encoders=self._encoders)
        except Unsendable:
            raise
        except (cbor2.CBOREncodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unsendable(f"the message cannot travel to another node: {error}") from error
        if len(encoded) > MAX_PAYLOAD_BYTES:
            raise Unsendable(f"a message of {len(encoded)} bytes: the largest is {MAX_PAYLOAD_BYTES}; send it in parts")
        if len(encoded) - len(encoded.translate(None, _HEADS)) > MAX_DEPTH:
            _require_shallow(encoded)
        return encoded

    def _encode_reference(self, encoder: cbor2.CBOREncoder, reference: Any) -> None:
        wire = self._references.describe(reference)
        encoder.encode_semantic(_WIRE_TAGS[type(wire)], list(wire))

    def _encode_error(self, encoder: cbor2.CBOREncoder, error: BaseException) -> None:
        if isinstance(error, RemoteError):
            said = [error.type_name, error.text, error.node]
        else:
            said = [type(error).__qualname__[:MAX_NAME_BYTES], _sentence_of(error), self._references.node]
        encoder.encode_semantic(ERROR, said)

    # In

    def decode_untrusted(self, encoded: bytes) -> Any:
        """The message of these bytes. Raises `Undecodable` for anything else."""
        if len(encoded) > MAX_PAYLOAD_BYTES:
            raise Undecodable(f"a message of {len(encoded)} bytes: the largest is {MAX_PAYLOAD_BYTES}")
        stream = BytesIO(encoded)
        try:
            value = cbor2.load(
                stream,
                tag_hook=_refuse_tag,
                semantic_decoders=self._decoders,
                max_depth=MAX_DEPTH,
                allow_indefinite=False,
                allow_duplicate_keys=False,
                strict_hashable_types=True,
            )
        # Constructors of registered types run in here, and may raise anything.
        except Exception as error:
            raise Undecodable(f"not a message: {error.__cause__ or error}") from error
        if stream.tell() != len(encoded):
            raise Undecodable(f"{len(encoded) - stream.tell()} bytes follow the message")
        return value

    def _decode_record(self, value: Any) -> Any:
        name, *fields = _list(value)
        cls, names = self._records.get(name, (None, ())) if isinstance(name, str) else (None, ())
        if cls is None:
            raise Undecodable(f"no dataclass is registered here as {name!r}")
        return cls(**dict(zip(names, fields, strict=True)))

    def _decode_member(self, value: Any) -> Any:
        name, member = _texts(value, 2)
        if name not in self._members:
            raise Undecodable(f"no enum is registered here as {name!r}")
        return self._members[name][member]


_WIRE_TAGS: Final[dict[type, int]] = {WireRef: REF, WireNamed: NAMED, WireCaller: CALLER}


def _encode_tuple(encoder: cbor2.CBOREncoder, value: tuple[Any, ...]) -> None:
    encoder.encode_semantic(TUPLE, list(value))


def _encode_dict(encoder: cbor2.CBOREncoder, value: dict[Any, Any]) -> None:
    for key in value:
        if type(key) is not str and type(key) is not bytes:
            break
    else:
        encoder.encode_map(value)
        return
    # A flat list, because its reader must be able to count it before anything is put into a map.
    pairs = [part for pair in value.items() for part in pair]
    _few_loose(value)
    encoder.encode_semantic(MAP, pairs)


def _encode_set(encoder: cbor2.CBOREncoder, value: set[Any]) -> None:
    encoder.encode_semantic(SET, _few_loose(list(value)))


def _encode_frozenset(encoder: cbor2.CBOREncoder, value: frozenset[Any]) -> None:
    encoder.encode_semantic(FROZENSET, _few_loose(list(value)))


_NATIVE: Final[dict[type, Encoder]] = {
    type(None): lambda encoder, _: encoder.encode_none(),
    bool: cbor2.CBOREncoder.encode_bool,
    int: cbor2.CBOREncoder.encode_int,
    float: cbor2.CBOREncoder.encode_float,
    str: cbor2.CBOREncoder.encode_string,
    bytes: cbor2.CBOREncoder.encode_bytes,
    list: cbor2.CBOREncoder.encode_array,
    tuple: _encode_tuple,
    dict: _encode_dict,
    set: _encode_set,
    frozenset: _encode_frozenset,
}


def _sentence_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(it has no sentence: its __str__ raised)"
    return text[:MAX_ERROR_CHARACTERS].encode("utf-8", "replace").decode()


def _refuse_tag(*_: Any) -> NoReturn:
    raise Undecodable("a tag that no message has")


_REFUSED: Final[dict[int, Callable[[Any, bool], Any]]] = dict.fromkeys(_KNOWN_TAGS, _refuse_tag)


def _forget(*_: Any) -> None:
    """In place of the decoder of any tag: only how deep it is nested matters."""


_FORGOTTEN: Final[dict[int, Callable[[Any, bool], Any]]] = dict.fromkeys(range(TUPLE, MEMBER + 1), _forget)


def _require_shallow(encoded: bytes) -> None:
    """Refuse here what the other node would refuse."""
    try:
        cbor2.loads(encoded, tag_hook=_forget, semantic_decoders=_FORGOTTEN, max_depth=MAX_DEPTH)
    except cbor2.CBORDecodeError as error:
        raise Unsendable(f"the message is nested more than {MAX_DEPTH} deep: {error}") from error


def _list(value: Any) -> list[Any]:
    # As the key of a map, or inside one, a list arrives as a tuple.
    if not isinstance(value, list | tuple):
        raise Undecodable(f"a list belongs here, not {type(value).__name__}")
    return list(value)


def _few_loose(keys: Any) -> Any:
    if len(keys) > MAX_LOOSE_KEYS and not all(isinstance(key, str | bytes) for key in keys):
        raise Unsendable(
            f"{len(keys)} keys that are not all text or bytes: at most {MAX_LOOSE_KEYS} can travel in one map or set"
        )
    return keys


def _decode_map(value: Any) -> dict[Any, Any]:
    parts = _list(value)
    keys = _few_loose(parts[0::2])
    decoded = dict(zip(keys, parts[1::2], strict=True))
    if len(decoded) != len(keys):
        raise Undecodable("a map with a key given twice")
    return decoded


def _texts(value: Any, count: int) -> list[str]:
    texts = _list(value)
    if len(texts) != count or not all(isinstance(text, str) for text in texts):
        raise Undecodable(f"{count} texts belong here")
    return texts


def _numbered(value: Any) -> tuple[str, int, int, int]:
    """A node's name, and three numbers of 64 bits."""
    parts = _list(value)
    if (
        len(parts) != 4
        or not isinstance(parts[0], str)
        or not all(type(part) is int and 0 <= part < _UINT64_END for part in parts[1:])
    ):
        raise Undecodable("the name of a node and three numbers belong here")
    return parts[0], parts[1], parts[2], parts[3]
