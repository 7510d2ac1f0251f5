"""What the bytes of a component mean: a schema writes values as bytes, and reads bytes that any peer may have written.

The merge never asks a schema. So a value that is no value hurts the reader, at that moment, and nothing else.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

__all__ = [
    "BOOLEAN",
    "BYTE",
    "COLOR3",
    "COLOR4",
    "DOUBLE",
    "ENTITY",
    "FLOAT",
    "INT",
    "INT64",
    "QUATERNION",
    "SHORT",
    "STRING",
    "TRANSFORM_BYTES",
    "TRANSFORM_SCHEMA",
    "VECTOR3",
    "BadValue",
    "Color3",
    "Color4",
    "Quaternion",
    "SceneSchema",
    "SceneTransform",
    "Vector3",
    "array_of",
    "map_of",
    "optional",
]


class BadValue(Exception):
    """The bytes of a component are no value of its schema."""


class Vector3(NamedTuple):
    """Three floats."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0


class Quaternion(NamedTuple):
    """A rotation."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    w: float = 1.0


class Color3(NamedTuple):
    """Red, green and blue, each from 0 to 1."""

    r: float = 0.0
    g: float = 0.0
    b: float = 0.0


class Color4(NamedTuple):
    """Red, green, blue and opacity, each from 0 to 1."""

    r: float = 0.0
    g: float = 0.0
    b: float = 0.0
    a: float = 1.0


class SceneTransform(NamedTuple):
    """Where an entity is, relative to its parent; the root's number is 0."""

    position: Vector3 = Vector3()
    rotation: Quaternion = Quaternion()
    scale: Vector3 = Vector3(1.0, 1.0, 1.0)
    parent: int = 0


_Read = Callable[[bytes, int], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class SceneSchema:
    """How values are written.

    Attributes:
        encode: a value as bytes. It raises struct.error, or what Python raises for a value of another type.
        read: the value at a place, and where it ends. It raises struct.error or `BadValue` if there is none.
    """

    encode: Callable[[Any], bytes]
    read: _Read

    def decode_untrusted(self, data: bytes) -> Any:
        """The value that `data` is, from its first byte to its last.

        Raises:
            BadValue: if it is none.
        """
        try:
            value, end = self.read(data, 0)
        except struct.error as error:
            raise BadValue(f"{len(data)} bytes are no value of the schema: {error}") from None
        if end != len(data):
            raise BadValue(f"{len(data)} bytes hold a value of {end}")
        return value


def _number(form: str) -> SceneSchema:
    packed = struct.Struct(form)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return packed.unpack_from(data, at)[0], at + packed.size

    return SceneSchema(packed.pack, read)


def _numbers(form: str, made: Callable[..., Any]) -> SceneSchema:
    packed = struct.Struct(form)

    def encode(value: Any) -> bytes:
        return packed.pack(*value)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return made(*packed.unpack_from(data, at)), at + packed.size

    return SceneSchema(encode, read)


_COUNT: Final = struct.Struct("<I")


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return _COUNT.pack(len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _COUNT.unpack_from(data, at)
    end = at + _COUNT.size + size
    if end > len(data):
        raise BadValue(f"a text says that it has {size} bytes, {len(data) - at - _COUNT.size} are there")
    try:
        return data[at + _COUNT.size : end].decode(), end
    except UnicodeDecodeError as error:
        raise BadValue(f"a text is no UTF-8: {error}") from None


BOOLEAN: Final = _number("<?")
BYTE: Final = _number("<B")
SHORT: Final = _number("<h")
INT: Final = _number("<i")
INT64: Final = _number("<q")
FLOAT: Final = _number("<f")
"""`Number` and `Float`."""
DOUBLE: Final = _number("<d")
ENTITY: Final = _number("<I")
STRING: Final = SceneSchema(_encode_text, _read_text)
VECTOR3: Final = _numbers("<3f", Vector3)
QUATERNION: Final = _numbers("<4f", Quaternion)
COLOR3: Final = _numbers("<3f", Color3)
COLOR4: Final = _numbers("<4f", Color4)


def array_of(schema: SceneSchema) -> SceneSchema:
    """A sequence of values: their number, and each of them."""

    def encode(values: Sequence[Any]) -> bytes:
        return _COUNT.pack(len(values)) + b"".join(map(schema.encode, values))

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        values: list[Any] = []
        for _ in range(count):
            value, end = schema.read(data, at)
            if end == at and count > len(data):
                raise BadValue(f"an array says that it has {count} values, which take no bytes")
            values.append(value)
            at = end
        return values, at

    return SceneSchema(encode, read)


def optional(schema: SceneSchema) -> SceneSchema:
    """A value that may be missing: a byte that says whether it is there, and the value."""

    def encode(value: Any) -> bytes:
        return b"\0" if value is None else b"\1" + schema.encode(value)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        there, at = BOOLEAN.read(data, at)
        return schema.read(data, at) if there else (None, at)

    return SceneSchema(encode, read)


def map_of(fields: Mapping[str, SceneSchema]) -> SceneSchema:
    """A value of each field, in the order of the fields."""

    def encode(value: Mapping[str, Any]) -> bytes:
        return b"".join(schema.encode(value[name]) for name, schema in fields.items())

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        value: dict[str, Any] = {}
        for name, schema in fields.items():
            value[name], at = schema.read(data, at)
        return value, at

    return SceneSchema(encode, read)


_TRANSFORM: Final = struct.Struct("<10fI")
TRANSFORM_BYTES: Final = _TRANSFORM.size
"""Of every Transform (ADR-123)."""


def _encode_transform(value: SceneTransform) -> bytes:
    return _TRANSFORM.pack(*value.position, *value.rotation, *value.scale, value.parent)


def _read_transform(data: bytes, at: int) -> tuple[SceneTransform, int]:
    numbers = _TRANSFORM.unpack_from(data, at)
    transform = SceneTransform(Vector3(*numbers[:3]), Quaternion(*numbers[3:7]), Vector3(*numbers[7:10]), numbers[10])
    return transform, at + TRANSFORM_BYTES


TRANSFORM_SCHEMA: Final = SceneSchema(_encode_transform, _read_transform)
