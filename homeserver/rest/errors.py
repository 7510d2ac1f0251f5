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

__all__ = [
    "REASON_STATUS",
    "TREE_STATUS",
    "error_of",
    "install_errors",
    "nobody_waits",
    "not_told",
    "refusing",
    "tree_error",
]

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


def not_told(error: Exception, value: str, how: str = "") -> ApiError:
    """What was asked for is in the log, but the server that has to act on it could not be told."""
    text = f"{error}; it was decided, but no server acts on it yet: repeat the same request{how}"
    return ApiError(503, "authority_unreachable", text, value)


def error_of(error: Exception) -> ApiError:
    """The answer to what went wrong; raises `error` itself if it is none of this server's own."""
    match error:
        case ApiError():
            return error
        case Refused():
            status, value = REASON_STATUS.get(error.reason, 409), next(iter(error.details.values()), None)
            return ApiError(status, error.reason.value, error.sentence, value)
        case MessageError():
            return ApiError(400, "bad_message", str(error))
        case BadData() | MalformedCommand():
            return ApiError(422, "unfit_data", f"this cannot be kept in the log: {error}")
        case NoQuorum():
            return ApiError(503, "no_quorum", f"{error}; nothing was changed: try again, or another member")
        case OutcomeUnknown():
            return ApiError(503, "outcome_unknown", f"{error}; it may have been done: repeat the same request")
        case InstanceUnreachable():
            return ApiError(502, "peer_unreachable", str(error))
        case _:
            raise error


async def _on_own(_request: Request, error: Exception) -> JSONResponse:
    answer, details = error_of(error), error.details if isinstance(error, Refused) else {}
    after_s = details.get("retry_after_s")
    return error_response(answer.status, answer.code, answer.message, answer.value, retry_after_s=after_s)


def install_errors(app: FastAPI) -> None:
    """Answer this server's own exceptions with their codes."""
    for kind in (Refused, MessageError, BadData, MalformedCommand, NoQuorum, OutcomeUnknown, InstanceUnreachable):
        app.add_exception_handler(kind, _on_own)


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
