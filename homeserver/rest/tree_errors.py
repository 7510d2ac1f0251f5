"""What can go wrong with the tree, as error answers: every code has one status."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from batonpass.actors.http.app import ApiError
from batonpass.authority.model.reserved_paths import PathReserved
from batonpass.tree.data.errors import MalformedCommand, TreeError
from batonpass.tree.data.json_form import to_json
from batonpass.tree.raft.submissions import Aborted

__all__ = ["TREE_STATUS", "refusing", "tree_error"]

TREE_STATUS: Final = {
    "bad_arguments": 422,
    "bad_data": 422,
    "bad_path": 422,
    "bad_pattern": 422,
    "compacted": 410,
    "keep_while_conditions_not_met": 409,
    "mismatching_node": 409,
    "node_not_found": 404,
    "possibly_matching_many_nodes": 422,
    "precondition_failed": 412,
    "procedure_crashed": 500,
    "reserved_path": 403,
    "too_much": 422,
    "too_much_for_etcd": 422,
    "watcher_cut": 410,
}
# With If-Match or If-None-Match, these say that the precondition failed (RFC 9110, section 13.1).
_PRECONDITIONS: Final = frozenset({"mismatching_node", "node_not_found"})


def tree_error(code: str, message: str, details: Any = None, *, conditional: bool = False) -> ApiError:
    """The answer for an error of the tree; `conditional` requests are answered with 412 when a condition failed."""
    if conditional and code in _PRECONDITIONS:
        code = "precondition_failed"
    value = None
    if isinstance(details, dict):
        path = details.get("node_path")
        value = "/".join(path) if isinstance(path, list) else next(iter(details.values()), None)
    return ApiError(TREE_STATUS[code], code, message, value, to_json(details))


@contextmanager
def refusing(*, conditional: bool = False) -> Iterator[None]:
    """Around work on the tree: its errors become answers. Those that this module does not know pass."""
    try:
        yield
    except PathReserved as error:
        raise ApiError(403, "reserved_path", error.sentence, error.root) from error
    except Aborted as error:
        if error.code not in TREE_STATUS:
            raise
        raise tree_error(error.code, error.message, error.details, conditional=conditional) from error
    except MalformedCommand:
        raise  # it is too long for the log, which has an answer of its own
    except TreeError as error:
        raise tree_error(error.code, error.message, error.details, conditional=conditional) from error
