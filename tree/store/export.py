"""Export and import: nodes as rows of plain data that stand for themselves, on any tree of any instance.

An export is a stream of maps. First comes `{"format": "batonpass tree", "version": 1, "revision": ..., "pattern":
...}`, then one `{"path", "data" | "procedure", "keep_while"}` per node in the order of paths. Last comes `{"end": true,
"nodes": N}`, so that a stream that was cut is noticed. A node without payload has neither data nor procedure, and, if
it is there for the nodes below it alone, `"made_on_the_way": true`. Versions of payloads are not part of it: an import
is a write like any other. `tree.data.json_form` says how rows become lines of JSON.

An import is one command and so applies as a whole or not at all; what does not fit one command is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from batonpass.tree.data.errors import Abort, BadData, TreeError
from batonpass.tree.data.path import ROOT, Path, check_path
from batonpass.tree.data.payload import NO_PAYLOAD, StoredProcedure
from batonpass.tree.store.keep_while import keep_while_from_data_untrusted, keep_while_to_data
from batonpass.tree.store.pattern import Pattern, pattern_from_data_untrusted, pattern_to_data
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import ImportedNode, Transaction

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MAX_IMPORTED_NODES",
    "export",
    "import_rows",
    "read_rows_untrusted",
]

FORMAT: Final = "batonpass tree"
FORMAT_VERSION: Final = 1
# One command carries an import, and bounds its bytes; this bounds the work.
MAX_IMPORTED_NODES: Final = 100_000


def export(store: Store, pattern: Pattern) -> Iterator[dict[str, Any]]:
    """The nodes that match, as the stream described above. The tree must not change meanwhile."""
    yield {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "revision": store.revision,
        "pattern": pattern_to_data(pattern),
    }
    nodes = 0
    for path, view in store.matches(pattern):
        row: dict[str, Any] = {"path": list(path)}
        if view.has_data:
            row["data"] = view.data
        elif view.has_payload:
            row["procedure"] = view.procedure
        pairs = store.keep_while(path)
        if pairs:
            row["keep_while"] = keep_while_to_data(pairs)
        if store.made_on_the_way(path):
            row["made_on_the_way"] = True
        nodes += 1
        yield row
    yield {"end": True, "nodes": nodes}


def read_rows_untrusted(rows: Any) -> tuple[Pattern, list[ImportedNode]]:
    """The exported pattern and the nodes; raises `BadData` for anything but a whole export of this version."""
    if not isinstance(rows, list) or len(rows) < 2:
        raise BadData("an import is a list of rows: a head, nodes, and an end")
    match rows[0]:
        case {"format": str(form), "version": int(version), "pattern": pattern_data}:
            if (form, version) != (FORMAT, FORMAT_VERSION):
                raise BadData(f"this is {form!r:.40} version {version}; only {FORMAT!r} {FORMAT_VERSION} can be read")
        case _:
            raise BadData(f"the first row of an import says {FORMAT!r}, its version, and the exported pattern")
    match rows[-1]:
        case {"end": True, "nodes": int(nodes)} if nodes == len(rows) - 2:
            pass
        case _:
            raise BadData("the export is not whole: its last row does not name the number of nodes that came before it")
    if nodes > MAX_IMPORTED_NODES:
        raise BadData(f"an import has at most {MAX_IMPORTED_NODES} nodes, not {nodes}")
    try:
        return pattern_from_data_untrusted(pattern_data), [_node_untrusted(row) for row in rows[1:-1]]
    except BadData:
        raise
    except TreeError as error:
        raise BadData(error.message) from error


def _node_untrusted(row: Any) -> ImportedNode:
    if not isinstance(row, Mapping) or "path" not in row:
        raise BadData(f"not the row of a node: {row!r:.100}")
    payload: Any = NO_PAYLOAD
    if "data" in row:
        payload = row["data"]
    elif "procedure" in row:
        payload = StoredProcedure(row["procedure"])
    kept = row.get("keep_while")
    on_the_way = row.get("made_on_the_way", False)
    if type(on_the_way) is not bool or (on_the_way and (payload is not NO_PAYLOAD or kept is not None)):
        raise BadData("only a node without payload and keep_while can be made on the way, which is true or false")
    return ImportedNode(
        check_path(row["path"]), payload, None if kept is None else keep_while_from_data_untrusted(kept), on_the_way
    )


def import_rows(transaction: Transaction, args: Any) -> dict[str, Any]:
    """The procedure `tree.import`: {rows, mode}; `merge` (default) writes, `replace` first removes all others.

    With `replace`, the nodes that match the exported pattern and are not in the rows go away, with what is below them.
    A row without `keep_while` takes away what its node was kept while. Only the outcome counts: what keeps nodes is
    looked at when everything is written. Raises `BadData` and whatever the writes raise. Answers {nodes, removed}.
    """
    mode = args.get("mode", "merge") if isinstance(args, Mapping) else None
    if mode not in ("merge", "replace"):
        raise Abort("bad_arguments", "`mode` is merge or replace")
    pattern, nodes = read_rows_untrusted(args.get("rows"))
    unwanted: list[Path] = []
    if mode == "replace":
        wanted = {node.path for node in nodes}
        # Parents of wanted nodes stay as well: they would only be made again, with versions that start over.
        wanted |= {path[:length] for path in wanted for length in range(len(path))}
        unwanted = [path for path, _ in transaction.matches(pattern) if path not in wanted and path != ROOT]
    effects = transaction.import_nodes(nodes, unwanted, forget_keep_while=mode == "replace")
    return {"nodes": len(nodes), "removed": effects.removed_count}
