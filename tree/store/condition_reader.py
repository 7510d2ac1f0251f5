"""Reading conditions from plain data, which may have come from the network: `tree.store.conditions` shows the forms."""

from collections.abc import Callable
from typing import Any, Final

from batonpass.tree.data.errors import BadData, BadPath
from batonpass.tree.store.conditions import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    IfChildListLength,
    IfChildListVersion,
    IfDataLike,
    IfDataMatches,
    IfHasData,
    IfHasPayload,
    IfNameMatches,
    IfNodeExists,
    IfPathMatches,
    IfPayloadVersion,
    Name,
    NotOf,
)

__all__ = ["MAX_NESTING", "MAX_PARTS", "ConditionReader", "condition_from_data_untrusted"]

MAX_NESTING: Final = 16
MAX_PARTS: Final = 256


def condition_from_data_untrusted(data: Any) -> Condition:
    """Read a condition from plain data; raises `BadData` when it is malformed, nested too deep or too large."""
    return ConditionReader().read(data)


class ConditionReader:
    """Counts the parts read so far, so that a small message cannot become endless work."""

    def __init__(self) -> None:
        self.parts_read = 0

    def read(self, data: Any, nesting: int = 0) -> Condition:
        """The condition; raises `BadData`, also when all that this reader read is too much."""
        self.parts_read += 1
        if nesting > MAX_NESTING or self.parts_read > MAX_PARTS:
            raise BadData(f"a condition has at most {MAX_PARTS} parts, nested at most {MAX_NESTING} deep")
        match data:
            case str():
                return _name(data)
            case ["all_of", list(parts)]:
                return AllOf([self.read(part, nesting + 1) for part in parts])
            case ["any_of", list(parts)]:
                return AnyOf([self.read(part, nesting + 1) for part in parts])
            case ["not_of", part]:
                return NotOf(self.read(part, nesting + 1))
            case [str(tag), *arguments] if tag in _READERS:
                condition = _READERS[tag](arguments)
                if condition is not None:
                    return condition
        raise BadData(f"not a condition: {data!r:.100}")


def _name(data: str) -> Condition:
    try:
        return Name(data)
    except BadPath as error:
        raise BadData(f"not a name: {data!r:.100} ({error.message})") from error


def _read_names(kind: type[IfNameMatches], arguments: list[Any]) -> Condition | None:
    match arguments:
        case [None]:
            return kind()
        case ["regex", str(regex)]:
            return kind(regex=regex)
        case ["prefix", str(prefix)]:
            _name(prefix)
            return kind(prefix=prefix)
        case _:
            return None


def _read_flag(kind: Callable[[bool], Condition], arguments: list[Any]) -> Condition | None:
    match arguments:
        case [bool(flag)]:
            return kind(flag)
        case _:
            return None


def _read_counter(kind: Callable[[int | Compare], Condition], arguments: list[Any]) -> Condition | None:
    match arguments:
        case [int(number)] if type(number) is int:
            return kind(number)
        case [[str(op), int(number)]] if type(number) is int:
            return kind(Compare(op, number))
        case _:
            return None


def _read_data(arguments: list[Any]) -> Condition | None:
    match arguments:
        case [value]:
            return IfDataMatches(value)
        case [shape, list(guards)]:
            return IfDataLike(shape, guards)
        case _:
            return None


_READERS: Final[dict[str, Callable[[list[Any]], Condition | None]]] = {
    "if_name_matches": lambda arguments: _read_names(IfNameMatches, arguments),
    "if_path_matches": lambda arguments: _read_names(IfPathMatches, arguments),
    "if_has_payload": lambda arguments: _read_flag(IfHasPayload, arguments),
    "if_has_data": lambda arguments: _read_flag(IfHasData, arguments),
    "if_node_exists": lambda arguments: _read_flag(IfNodeExists, arguments),
    "if_payload_version": lambda arguments: _read_counter(IfPayloadVersion, arguments),
    "if_child_list_version": lambda arguments: _read_counter(IfChildListVersion, arguments),
    "if_child_list_length": lambda arguments: _read_counter(IfChildListLength, arguments),
    "if_data_matches": _read_data,
}
