"""What the OpenAPI document says of requests is what servers take: operations of transactions, and lists of names."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from batonpass.homeserver.rest.groups import NewGroup
from batonpass.homeserver.rest.models import DelegationBody
from batonpass.homeserver.rest.transactions import operation_to_data
from batonpass.homeserver.rest.tree_models import OPERATIONS, OperationBody
from batonpass.tree.data.errors import TreeError
from batonpass.tree.data.work_budget import MAX_STEPS, WorkBudget

SCHEMA: Final = OperationBody.model_json_schema()
FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "data": st.sampled_from([None, 1, "text", {}]),
    "expected": st.sampled_from([None, 1]),
    "condition": st.sampled_from([None, ["if_node_exists", True]]),
    "keep_while": st.sampled_from([None, [], [["*", ["if_node_exists", True]]]]),
    "full": st.booleans(),
    "more": st.just(1),
}


def is_documented(operation: dict[str, Any]) -> bool:
    """Whether exactly one of the forms has all that is given, and finds all that it needs."""
    forms = [form for form in SCHEMA["oneOf"] if form["properties"]["op"]["const"] == operation["op"]]
    fits = [set(form["required"]) <= set(operation) <= set(form["properties"]) for form in forms]
    return fits == [True]


@given(st.sampled_from(sorted(OPERATIONS)), st.fixed_dictionaries({}, optional=FIELDS))
def test_an_operation_is_taken_exactly_if_it_is_documented(op: str, fields: dict[str, Any]) -> None:
    operation = {"op": op, "path": "jobs/one", **fields}
    try:
        operation_to_data(OperationBody.model_validate(operation), WorkBudget(MAX_STEPS))
    except (ValidationError, TreeError):
        assert not is_documented(operation)
    else:
        assert is_documented(operation)


def test_every_operation_has_one_form_and_nothing_is_said_beside_them() -> None:
    assert [form["title"] for form in SCHEMA["oneOf"]] == list(OPERATIONS)
    assert {"properties", "required", "additionalProperties"}.isdisjoint(SCHEMA)


@pytest.mark.parametrize(("body", "field"), [(NewGroup, "entities"), (DelegationBody, "group")])
def test_a_list_that_names_each_once_says_so(body: type[BaseModel], field: str) -> None:
    assert body.model_json_schema()["properties"][field]["uniqueItems"] is True
    with pytest.raises(ValidationError, match="named more than once"):
        body.model_validate({field: ["alpha.a", "alpha.a"], "to": "alpha.s1"})
