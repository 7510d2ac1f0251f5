"""/v1/export and /v1/import: parts of the tree as lines of JSON, from any tree of any instance to any other.

An export is of one moment. Which nodes there are is collected in one go, and their payloads, which never change in
place, are written out while the tree continues.
"""

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.streaming import JsonLines, stream_responses
from batonpass.actors.http.strict_json import TooManyValues, count_values_untrusted, read_json_untrusted
from batonpass.authority.model.reserved_paths import check_keep_while, check_write, is_reserved
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import client_access
from batonpass.homeserver.rest.errors import refusing
from batonpass.homeserver.rest.tree_inputs import MAX_PATTERN_CHARACTERS, pattern_untrusted
from batonpass.homeserver.rest.tree_models import ImportedView
from batonpass.tree.data.errors import BadData, TooMuch
from batonpass.tree.data.json_form import from_json_untrusted, to_json
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.data.payload import StoredProcedure
from batonpass.tree.data.work_budget import STEPS_PER_ROW, steps_of_data
from batonpass.tree.store.export import FORMAT, FORMAT_VERSION, read_rows_untrusted
from batonpass.tree.store.keep_while import Pairs, keep_while_to_data, steps_of_pairs
from batonpass.tree.store.pattern import Pattern, pattern_to_data
from batonpass.tree.store.store import Store

__all__ = ["MAX_EXPORTED_NODES", "MAX_IMPORTED_VALUES", "transport_routes"]

# To find them takes a member about a microsecond each, in which it does nothing else.
MAX_EXPORTED_NODES: Final = 100_000
MAX_EXPORTS: Final = 2
# Of all rows of one import together (`actors.http.strict_json`). They are read in slices, but checked and encoded in
# one go.
MAX_IMPORTED_VALUES: Final = 250_000
_LINES_A_SLICE: Final = 64
# What is written out at a time, about, in steps of `tree.data.work_budget`: some 5 ms.
_STEPS_A_PIECE: Final = 4096

# Path, node, what it is kept while, and whether it was made on the way.
_Found = tuple[Path, NodeView, Pairs, bool]
PatternText = Annotated[str, Query(max_length=MAX_PATTERN_CHARACTERS, description="which nodes; all below the root")]
Reserved = Annotated[bool, Query(description="the rows of authority too, which cannot be imported")]
Mode = Annotated[
    Literal["merge", "replace"],
    Query(description="merge writes; replace also removes what matches the exported pattern and is not in the rows"),
]
Consistency = Annotated[Literal["linearizable", "low_latency"], Query(description="as of GET /v1/tree/{path}")]

_LINES: Final = stream_responses(JsonLines, "A head, one line per node in the order of paths, and an end.")
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string", "description": "what an export answered"}}},
    }
}


def transport_routes(node: HomeserverNode) -> Routes:
    """Out and in."""
    routes = Routes(tags=["tree"], dependencies=[Depends(client_access(node.tokens))])
    under_way: set[object] = set()

    @routes.get("/v1/export", responses=_LINES, response_class=JsonLines)
    async def export(
        pattern: PatternText = "**", reserved: Reserved = False, consistency: Consistency = "linearizable"
    ) -> JsonLines:
        """The nodes that match, as they are at one moment, as JSON lines."""
        with refusing():
            wanted = pattern_untrusted(pattern)
            if consistency == "linearizable":
                await node.store.fresh()
            if len(under_way) >= MAX_EXPORTS:
                text = f"{MAX_EXPORTS} exports are under way already: try again later, or another member"
                raise ApiError(503, "too_many_exports", text, MAX_EXPORTS)
            async with node.replica.long_work:
                store = node.replica.store
                found, revision = _collect(store, wanted, reserved), store.revision
        mark = object()
        under_way.add(mark)
        return JsonLines(_pieces(node, wanted, revision, found), on_end=lambda: under_way.discard(mark))

    @routes.post("/v1/import", response_model=ImportedView, openapi_extra=_BODY, operation_id="import")
    async def import_(request: Request, mode: Mode = "merge") -> Response:
        """Write the nodes of an export, all or none of them, outside of authority's rows."""
        with refusing():
            body = await request.body()
            lines = await node.in_turn(lambda: _lines_untrusted(body))
            rows = list[Any]()
            for place in range(0, len(lines), _LINES_A_SLICE):
                rows += await node.in_turn(partial(_read_lines, lines[place : place + _LINES_A_SLICE]))
            await node.in_turn(lambda: _check_rows_untrusted(rows, mode))
            answer = await node.replica.submit("tree.import", {"rows": rows, "mode": mode})
        return JSONResponse(answer)

    return routes


# --- out ----------------------------------------------------------------------------------------------------------


def _collect(store: Store, pattern: Pattern, reserved: bool) -> list[_Found]:
    found: list[_Found] = []
    with store.reading() as reading:
        for path, view in reading.matches(pattern):
            if not reserved and path and is_reserved(path):
                continue
            if len(found) >= MAX_EXPORTED_NODES:
                text = f"more than {MAX_EXPORTED_NODES} nodes match; export them in parts, with narrower patterns"
                raise TooMuch(text, {"nodes": MAX_EXPORTED_NODES})
            found.append((path, view, store.keep_while(path), store.made_on_the_way(path)))
    return found


async def _pieces(node: HomeserverNode, pattern: Pattern, revision: int, found: list[_Found]) -> AsyncIterator[bytes]:
    yield _line(
        {"format": FORMAT, "version": FORMAT_VERSION, "revision": revision, "pattern": pattern_to_data(pattern)}
    )
    following = iter(found)
    while piece := await node.in_turn(lambda: _piece(following)):
        yield piece
    yield _line({"end": True, "nodes": len(found)})


def _piece(following: Iterator[_Found]) -> bytes:
    """The lines of the next nodes; empty after the last."""
    lines, left = bytearray(), _STEPS_A_PIECE
    for path, view, pairs, made_on_the_way in following:
        lines += _line(_row(path, view, pairs, made_on_the_way))
        left -= STEPS_PER_ROW + steps_of_data(view.encoded) + steps_of_pairs(pairs)
        if left <= 0:
            break
    return bytes(lines)


def _row(path: Path, view: NodeView, pairs: Pairs, made_on_the_way: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"path": list(path)}
    if view.has_data:
        row["data"] = view.data
    elif view.has_payload:
        row["procedure"] = view.procedure
    if pairs:
        row["keep_while"] = keep_while_to_data(pairs)
    if made_on_the_way:
        row["made_on_the_way"] = True
    return row


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(to_json(row), ensure_ascii=False).encode("utf-8") + b"\n"


# --- in -----------------------------------------------------------------------------------------------------------


def _lines_untrusted(body: bytes) -> list[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers; raises `ApiError` if there is too much in them."""
    if body.count(b"\n") + count_values_untrusted(body, MAX_IMPORTED_VALUES) > MAX_IMPORTED_VALUES:
        text = f"{TooManyValues(MAX_IMPORTED_VALUES)}: import it in parts"
        raise ApiError(413, "too_many_values", text, MAX_IMPORTED_VALUES)
    return [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]


def _check_rows_untrusted(rows: list[Any], mode: str) -> None:
    """Check the rows of an export; raises `BadData`, `BadPath`, `PathReserved`."""
    pattern, nodes = read_rows_untrusted(rows)
    if mode == "replace":
        check_write(pattern)
    for path, payload, keep_while, _ in nodes:
        check_write(path)
        if keep_while is not None:
            check_keep_while(path, keep_while)
        if isinstance(payload, StoredProcedure):
            raise BadData(f"{'/'.join(path)} has a stored procedure; only programs place those, in code")


def _read_lines(lines: list[tuple[int, bytes]]) -> list[Any]:
    return [_read_line_untrusted(*line) for line in lines]


def _read_line_untrusted(number: int, line: bytes) -> Any:
    try:
        return from_json_untrusted(read_json_untrusted(line))
    except ValueError as error:
        raise BadData(f"line {number} is not JSON: {error}") from error
