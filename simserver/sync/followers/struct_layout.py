"""Structs of C as values: fields say their types by annotations; offsets, sizes and the packer follow from these."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Self, get_args, get_type_hints

__all__ = ["FieldPlace", "Overlay", "RenderStreamStruct", "StructLayout", "layout_of"]


class Overlay(NamedTuple):
    """Of a field of bytes: structs that lie over one another there, a union. Each begins at its first byte."""

    structs: dict[str, type["RenderStreamStruct"]]


class FieldPlace(NamedTuple):
    """Where a field lies: the header's name, the offset in the struct, and the size, both in bytes."""

    name: str
    offset: int
    size: int


class StructLayout(NamedTuple):
    """What a struct is in memory: its packer, and the place of each field; parts of a union have one offset."""

    packer: struct.Struct
    places: tuple[FieldPlace, ...]
    alignment: int
    readers: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Of the whole, in bytes, with its last padding."""
        return self.packer.size


@dataclass(frozen=True, slots=True)
class RenderStreamStruct:
    """A struct of the header, as a value: fields are read by name, `pack` and `unpack` know its bytes."""

    PACK: ClassVar[int] = 4
    """No field is aligned to more than this, in bytes."""

    def pack(self) -> bytes:
        """Return the bytes of this struct. Raises ValueError, naming the struct, if a number does not fit its field."""
        try:
            return layout_of(type(self)).packer.pack(*_flat(self))
        except (struct.error, OverflowError) as err:
            raise ValueError(f"{self!r} cannot be packed: {err}") from err

    @classmethod
    def unpack(cls, buffer: bytes | bytearray | memoryview) -> Self:
        """Return the struct of exactly these bytes. Raises ValueError for another size or an unknown enum value."""
        layout = layout_of(cls)
        if len(buffer) != layout.size:
            raise ValueError(f"a {cls.__name__} has {layout.size} bytes, not {len(buffer)}")
        read: Self = _read(cls, iter(layout.packer.unpack(buffer)))
        return read


_LAYOUTS: Final[dict[type, StructLayout]] = {}


def layout_of(cls: type[RenderStreamStruct]) -> StructLayout:
    """Return where each field of `cls` lies, by the rules of C with `cls.PACK`."""
    if cls not in _LAYOUTS:
        _LAYOUTS[cls] = _laid_out(cls)
    return _LAYOUTS[cls]


def _laid_out(cls: type[RenderStreamStruct]) -> StructLayout:
    code, places, readers, largest = "<", list[FieldPlace](), list[type](), 1
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if name == "PACK":
            continue
        kind, *notes = get_args(hint) or (hint,)
        field_code, alignment, sizes = _field(name, kind, notes[0] if notes else None)
        alignment = min(alignment, cls.PACK)
        code = _padded(code, alignment)
        places += [FieldPlace(_in_header(part), struct.calcsize(code), size) for part, size in sizes.items()]
        code += field_code
        readers.append(kind)
        largest = max(largest, alignment)
    return StructLayout(struct.Struct(_padded(code, largest)), tuple(places), largest, tuple(readers))


def _field(name: str, kind: type, note: str | Overlay | None) -> tuple[str, int, dict[str, int]]:
    """Return how `struct` writes a field, its natural alignment, and the sizes of what it is by name."""
    if note is None:
        inner = layout_of(kind)
        return inner.packer.format[1:], inner.alignment, {name: inner.size}
    if isinstance(note, Overlay):
        inners = {part: layout_of(part_type) for part, part_type in note.structs.items()}
        sizes = {part: inner.size for part, inner in inners.items()}
        return f"{max(sizes.values())}s", max(inner.alignment for inner in inners.values()), sizes
    size = struct.calcsize(f"<{note}")
    return note, 1 if note.endswith("s") else size, {name: size}


def _padded(code: str, alignment: int) -> str:
    return code + "x" * (-struct.calcsize(code) % alignment)


def _in_header(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _flat(of: Any) -> Iterator[Any]:
    # Not by `dataclasses.astuple`, which copies each value deeply: a tenth of a controller's time.
    for name in of.__match_args__:
        value = getattr(of, name)
        if isinstance(value, RenderStreamStruct):
            yield from _flat(value)
        else:
            yield value


def _read(cls: Any, values: Iterator[Any]) -> Any:
    return cls(
        *(
            _read(reader, values) if issubclass(reader, RenderStreamStruct) else reader(next(values))
            for reader in layout_of(cls).readers
        )
    )
