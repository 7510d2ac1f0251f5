"""Many messages as one record: for each kind of message a column for each field, and the traces beside them.

What leaves together is much alike: the same kind, the same two servers, the same way so far. So a column whose values
are all the same holds one of them, and routes stand in a table of the batch. Of a trace there is only which of them it
took and its numbers (`Trace.packed`). One text is written and read for all of them, and one validator goes through all
messages of a kind. What comes out is what the messages alone would be, or nothing: one that is wrong spoils all.

A reader could be made to repeat what stands once: only what is short may stand for a whole column.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from batonpass.authority.errors import MessageError
from batonpass.authority.wire import hop_routes as routes
from batonpass.authority.wire.batch import MAX_BATCH, Batch
from batonpass.authority.wire.hop_routes import BadTrace, HopRoute
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Message

__all__ = ["MAX_SHARED", "Row", "columns_of", "rows_untrusted"]

MAX_SHARED: Final = 128
"""Characters, or bytes, of a value that stands for a whole column: a name, a hash, a short text."""

Row = tuple[Message, Trace, bool]
"""A message, its trace, and whether it is a numbered hop."""

_PLAIN: Final = (str, bytes, int, bool, type(None))
_PARTS: Final = frozenset({"count", "routes", "traces", "on_path", "kinds", "fields"})
_KINDS: Final[dict[str, type[BaseModel]]] = {
    kind.model_fields["type"].default: kind for kind in get_args(get_args(Message)[0]) if kind is not Batch
}


@dataclass(frozen=True)
class _Plan:
    """How messages of one kind are taken apart and put together."""

    names: tuple[str, ...]
    traces: tuple[str, ...]
    """Fields that are traces."""
    models: tuple[str, ...]
    """Fields with models in them; all others are plain data as they are."""
    reader: TypeAdapter[Any]


@cache
def _plan(kind: type[BaseModel]) -> _Plan:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name in kind.model_fields}
    names = tuple(name for name in kind.model_fields if name != "type")
    traces = tuple(name for name in names if Trace in _types_in(hints[name]))
    models = tuple(name for name in names if any(map(_is_model, _types_in(hints[name]))))
    return _Plan(names, traces, models, TypeAdapter(list[kind]))  # type: ignore[valid-type]  # made at run time


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _types_in(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _types_in(part)


# --- writing ----------------------------------------------------------------------------------------------------------


class _BatchRoutes:
    """The routes of a batch, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.places: Final[dict[HopRoute, int]] = {}

    def pack(self, trace: Trace) -> tuple[str, int, bytes]:
        """A trace by the place of its route."""
        route, numbers = trace.packed()
        return trace.transfer_id, self.places.setdefault(route, len(self.places)), numbers


def columns_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Messages and their traces, none of them a batch, as the data of one batch."""
    known = _BatchRoutes()
    traces = zip(*(known.pack(trace) for _, trace, _ in rows), strict=True)
    of_kind: dict[type[BaseModel], list[Message]] = {}
    for message, _, _ in rows:
        of_kind.setdefault(type(message), []).append(message)
    return {
        "count": len(rows),
        "traces": [_column(values) for values in traces],
        "on_path": _column([on_path for _, _, on_path in rows]),
        "kinds": _column([message.type for message, _, _ in rows]),
        "fields": {messages[0].type: _fields(kind, messages, known) for kind, messages in of_kind.items()},
        # Last, when all have been seen.
        "routes": [[route.crossings, route.places] for route in known.places],
    }


def _fields(kind: type[BaseModel], messages: Sequence[Message], known: _BatchRoutes) -> dict[str, Sequence[Any]]:
    plan, columns = _plan(kind), {}
    for name in plan.names:
        values: Sequence[Any] = list(map(attrgetter(name), messages))
        if name in plan.traces:
            values = [None if trace is None else known.pack(trace) for trace in values]
        elif name in plan.models:
            # Of hundreds of messages with a manifest, or with inputs, few have any.
            values = [
                m.model_dump(include={name})[name] if value else value
                for m, value in zip(messages, values, strict=True)
            ]
        columns[name] = _column(values)
    return columns


def _column(values: Sequence[Any]) -> Sequence[Any]:
    """The values, or one of them if all are the same and short; by type too, since True is equal to 1."""
    first = values[0]
    if _may_stand_for_all(first) and values.count(first) == len(values) and len(set(map(type, values))) == 1:
        return [first]
    return values


def _may_stand_for_all(value: object) -> bool:
    if isinstance(value, _PLAIN):
        return not isinstance(value, str | bytes) or len(value) <= MAX_SHARED
    return isinstance(value, list | dict) and not value


# --- reading ----------------------------------------------------------------------------------------------------------


def rows_untrusted(data: Mapping[str, Any]) -> list[Row]:
    """Read what `columns_of` made, from a peer: all messages of it, in order.

    Raises:
        MessageError: anything else, or anything in it is wrong.
    """
    if data.keys() != _PARTS:
        raise MessageError(f"columns are exactly {sorted(_PARTS)}")
    count = data["count"]
    if type(count) is not int or not 1 <= count <= MAX_BATCH:
        raise MessageError(f"columns are of 1 to {MAX_BATCH} messages")
    try:
        known = _routes_untrusted(data["routes"])
        traces = _traces_untrusted(data["traces"], count, known)
        on_path = _expanded(data["on_path"], count)
        messages = _messages_untrusted(data["kinds"], data["fields"], count, known)
    except (BadTrace, ValidationError, TypeError, KeyError) as error:
        raise MessageError("columns that are no messages and their traces") from error
    rows = list(zip(messages, traces, on_path, strict=True))
    for _, trace, is_hop in rows:
        if is_hop is not trace.under_way:
            raise MessageError(f"a batch and the hop trace of {trace.transfer_id} differ on whether this is a hop")
    return rows


def _expanded(column: Any, count: int) -> list[Any]:
    """The values of a column of `count` messages. Raises MessageError."""
    if not isinstance(column, list):
        raise MessageError("a column is a list")
    if len(column) == count:
        return column
    if len(column) != 1 or not _may_stand_for_all(column[0]):
        raise MessageError(f"a column has {count} values, or a short one for all of them")
    return list(repeat(column[0], count))


def _routes_untrusted(data: Any) -> list[HopRoute]:
    # One for the trace of each message, and one for the trace that it may carry.
    if not isinstance(data, list) or len(data) > 2 * MAX_BATCH:
        raise MessageError("routes are a list, of two for each message at most")
    known = []
    for item in data:
        if not isinstance(item, list) or len(item) != 2 or not all(isinstance(part, list) for part in item):
            raise MessageError("a route is a list of crossings and one of places")
        known.append(routes.route_of(tuple(map(tuple, item[0])), tuple(map(tuple, item[1]))))
    return known


def _traces_untrusted(data: Any, count: int, known: Sequence[HopRoute]) -> list[Trace]:
    if not isinstance(data, list) or len(data) != 3:
        raise MessageError("traces are three columns")
    ids, places, numbers = (_expanded(column, count) for column in data)
    return [
        _trace_untrusted(transfer_id, place, packed, known)
        for transfer_id, place, packed in zip(ids, places, numbers, strict=True)
    ]


def _trace_untrusted(transfer_id: Any, place: Any, packed: Any, known: Sequence[HopRoute]) -> Trace:
    if type(place) is not int or not 0 <= place < len(known):
        raise MessageError("a trace took a route that is not there")
    return Trace.unpacked_untrusted(transfer_id, known[place], packed)


def _messages_untrusted(kinds: Any, fields: Any, count: int, known: Sequence[HopRoute]) -> list[Message]:
    names = _expanded(kinds, count)
    if not isinstance(fields, dict) or fields.keys() != set(names):
        raise MessageError("there are fields for each kind of message, and no others")
    of_kind = {name: iter(_of_kind_untrusted(name, fields[name], names.count(name), known)) for name in fields}
    return [next(of_kind[name]) for name in names]


def _of_kind_untrusted(name: str, columns: Any, count: int, known: Sequence[HopRoute]) -> list[Message]:
    plan = _plan(_KINDS[name])
    if not isinstance(columns, dict) or "type" in columns:
        raise MessageError(f"the fields of {name} are columns, each with a name")
    values = {field: _expanded(column, count) for field, column in columns.items()}
    for field in plan.traces:
        if field in values:
            values[field] = [_carried_untrusted(value, known) for value in values[field]]
    values["type"] = [name] * count
    if any(value is not None for value in values.get("manifest", ())):
        raise MessageError(f"a batch holds a {name} whose state would be beside it")
    messages: list[Message] = plan.reader.validate_python(
        [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    )
    return messages


def _carried_untrusted(value: Any, known: Sequence[HopRoute]) -> Trace | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise MessageError("a trace is a transfer, a route and numbers")
    transfer_id, place, packed = value
    return _trace_untrusted(transfer_id, place, packed, known)
