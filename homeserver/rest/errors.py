"""How what goes wrong inside becomes an error answer: every exception has one status and one stable code.

What can go wrong with the tree, as error answers: every code has one status.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from batonpass.actors.http.app import ApiError, error_response
from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.model.reserved_paths import PathReserved
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.tree.data.errors import BadData, MalformedCommand, TreeError
from batonpass.tree.data.json_form import to_json
from batonpass.tree.raft.submissions import Aborted, NoQuorum, OutcomeUnknown

__all__ = ["REASON_STATUS", "TREE_STATUS", "install_errors", "nobody_waits", "refusing", "tree_error"]

REASON_STATUS: Final[dict[Reason, int]] = {
    Reason.NOT_FOUND: 404,
    Reason.UNKNOWN_TARGET: 422,
    Reason.OUTSIDE_CELL: 422,
    Reason.DENIED: 403,
    Reason.NOT_OWNER: 403,
    Reason.NOT_MASTER: 403,
    Reason.NOT_REQUESTER: 403,
    Reason.WRONG_HOME: 421,
    Reason.TOO_OFTEN: 429,
}
"""The HTTP status of a reason; 409 if it is not here."""


def nobody_waits() -> ApiError:
    """The answer to a request that is taken up too late for its sender."""
    return ApiError(503, "nobody_waits", "the time is over for which the sender waits: nothing was done")


async def _on_refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)  # noqa: S101 — registered for this class only
    value, after_s = next(iter(error.details.values()), None), error.details.get("retry_after_s")
    status = REASON_STATUS.get(error.reason, 409)
    return error_response(status, error.reason.value, error.sentence, value, retry_after_s=after_s)


async def _on_bad_message(_request: Request, error: Exception) -> JSONResponse:
    return error_response(400, "bad_message", str(error))


async def _on_unfit(_request: Request, error: Exception) -> JSONResponse:
    return error_response(422, "unfit_data", f"this cannot be kept in the log: {error}")


async def _on_no_quorum(_request: Request, error: Exception) -> JSONResponse:
    return error_response(503, "no_quorum", f"{error}; nothing was changed: try again, or another member")


async def _on_unknown(_request: Request, error: Exception) -> JSONResponse:
    return error_response(503, "outcome_unknown", f"{error}; it may have been done: repeat the same request")


async def _on_unreachable(_request: Request, error: Exception) -> JSONResponse:
    return error_response(502, "peer_unreachable", str(error))


def install_errors(app: FastAPI) -> None:
    """Answer this server's own exceptions with their codes."""
    app.add_exception_handler(Refused, _on_refused)
    app.add_exception_handler(MessageError, _on_bad_message)
    app.add_exception_handler(BadData, _on_unfit)
    app.add_exception_handler(MalformedCommand, _on_unfit)
    app.add_exception_handler(NoQuorum, _on_no_quorum)
    app.add_exception_handler(OutcomeUnknown, _on_unknown)
    app.add_exception_handler(InstanceUnreachable, _on_unreachable)


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
