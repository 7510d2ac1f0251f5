"""/v1/tx: several operations as one, under conditions; etcd's transactions with Khepri's operations."""

from typing import Any, Final

from fastapi import Depends
from fastapi.responses import JSONResponse, Response

from batonpass.actors.http.routes import Routes
from batonpass.authority.model.reserved_paths import check_write
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import client_access
from batonpass.homeserver.rest.errors import refusing
from batonpass.homeserver.rest.tree_inputs import conditions_untrusted, keep_while_untrusted, pattern_untrusted
from batonpass.homeserver.rest.tree_models import (
    OPERATIONS,
    REQUIRED,
    ComparisonBody,
    OperationBody,
    TransactionBody,
    TransactionView,
)
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.json_form import from_json_untrusted, to_json
from batonpass.tree.data.work_budget import MAX_STEPS, WorkBudget
from batonpass.tree.store.pattern import pattern_to_data, steps_to_make

__all__ = ["operation_to_data", "transaction_routes"]

_READING: Final = frozenset({"get", "view", "get_many", "exists", "has_data", "count", "children"})


def transaction_routes(node: HomeserverNode) -> Routes:
    """The one route."""
    routes = Routes(tags=["tree"], dependencies=[Depends(client_access(node.tokens))])

    @routes.post("/v1/tx", response_model=TransactionView)
    async def transaction(body: TransactionBody) -> Response:
        """If all comparisons hold, apply `then`, otherwise `else`; if one operation is refused, none is applied."""
        with refusing():
            args = await node.in_turn(lambda: _arguments(body))
            if all(operation.op in _READING for operation in body.then + body.otherwise):
                # What changes nothing has no business in the log, where every member would run it, now and after
                # every restart.
                answer = await node.replica.read("tree.query", args)
            else:
                answer = await node.replica.submit("tree.transaction", args)
        return await node.in_turn(lambda: JSONResponse(to_json(answer)))

    return routes


def _arguments(body: TransactionBody) -> dict[str, Any]:
    """As `tree.transaction` takes it; raises as `operation_to_data`, and `TooMuch` for too many conditions."""
    effort = WorkBudget(MAX_STEPS)
    return {
        "if": [_comparison(comparison, effort) for comparison in body.comparisons],
        "then": [operation_to_data(operation, effort) for operation in body.then],
        "else": [operation_to_data(operation, effort) for operation in body.otherwise],
    }


def _comparison(comparison: ComparisonBody, effort: WorkBudget) -> list[Any]:
    (condition,) = conditions_untrusted([comparison.condition])
    pattern = pattern_untrusted(comparison.path)
    effort.take(steps_to_make((*pattern, condition)))
    return [pattern_to_data(pattern), condition.to_data()]


def operation_to_data(operation: OperationBody, effort: WorkBudget) -> dict[str, Any]:
    """The operation as `tree.transaction` takes it; raises `BadData`, `PathReserved`, and as the inputs do."""
    takes, given = OPERATIONS[operation.op], operation.model_fields_set - {"op", "path"}
    surplus, missing = sorted(given - takes), [name for name in REQUIRED if name in takes and name not in given]
    if surplus or missing:
        wrong = f"takes no {surplus[0]!r}" if surplus else f"needs {missing[0]!r}"
        raise BadData(f"the operation {operation.op!r} {wrong}")
    pattern = pattern_untrusted(operation.path)
    effort.take(steps_to_make(pattern))
    data: dict[str, Any] = {"op": operation.op, "path": pattern_to_data(pattern)}
    if operation.op not in _READING:
        check_write(pattern)
    for name in given & {"data", "expected"}:
        data[name] = from_json_untrusted(getattr(operation, name))
    if operation.condition is not None:
        (condition,) = conditions_untrusted([operation.condition])
        effort.take(condition.steps_to_make)
        data["condition"] = condition.to_data()
    if operation.keep_while is not None:
        data["keep_while"] = keep_while_untrusted(pattern, operation.keep_while)
    if operation.full:
        data["full"] = True
    return data
