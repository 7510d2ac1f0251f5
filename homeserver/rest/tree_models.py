"""What requests and answers about the tree look like. Data is in the JSON form of `tree.data.json_form`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from batonpass.actors.http.app import RequestBody
from batonpass.tree.data.json_form import to_json
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path

__all__ = [
    "OPERATIONS",
    "REQUIRED",
    "ComparisonBody",
    "CreateBody",
    "DeletedView",
    "ImportedView",
    "NodeBody",
    "NodePage",
    "NodeRow",
    "NodeState",
    "OperationBody",
    "PutBody",
    "TouchedView",
    "TransactionBody",
    "TransactionView",
    "WrittenView",
    "node_row",
    "node_state",
    "state_of_data",
    "touched_of_data",
]

_TELL: Final = frozenset({"full"})
_WRITE: Final = frozenset({"data", "keep_while"}) | _TELL
# What each operation takes besides `op` and `path`. Those that only read take nothing, and only they may take nothing
# and be let near the rows of authority.
OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    "get": frozenset(),
    "view": frozenset(),
    "get_many": frozenset(),
    "exists": frozenset(),
    "has_data": frozenset(),
    "count": frozenset(),
    "children": frozenset(),
    "put": _WRITE | {"condition"},
    "create": _WRITE,
    "update": _WRITE,
    "compare_and_swap": _WRITE | {"expected"},
    "make": frozenset({"condition", "keep_while"}) | _TELL,
    "clear_payload": _TELL,
    "delete": _TELL | {"condition"},
    "put_many": frozenset({"data", "keep_while"}),
    "update_many": frozenset({"data", "keep_while"}),
    "clear_many_payloads": frozenset(),
    "delete_many": frozenset(),
}
REQUIRED: Final = ("data", "expected")
"""What an operation needs if it takes it."""

Data = Annotated[
    Any, Field(description="any JSON; see docs/reference/rest.md for bytes and other values that JSON lacks")
]
KeepWhile = Annotated[
    list[Any] | None,
    Field(description="list of [pattern, condition]: the node stays while all hold; [] lets it stay; null: as it is"),
]
PatternBody = Annotated[str | list[Any], Field(description="written form, for example jobs/*, or a list")]


class NodeState(BaseModel):
    """What a node holds, and how often that changed."""

    has_data: bool
    data: Any = Field(description="null if there is none")
    procedure: str | None = Field(description="the name of the stored procedure, if the payload is one")
    payload_version: int
    child_list_version: int
    child_list_length: int


class NodeRow(NodeState):
    """One of many nodes."""

    path: list[str]


class NodeBody(NodeRow):
    """One node with the names of its children."""

    keep_while: list[Any] = Field(description="what it is kept while: list of [pattern, condition]")
    children: list[str] = Field(description="in the order of their names")
    next_child: str | None = Field(description="there are more children: ask again with `children_after` set to this")
    revision: int = Field(description="of the whole tree, when this was read; watch from here")


class NodePage(BaseModel):
    """The nodes that match a pattern, in the order of their paths."""

    nodes: list[NodeRow]
    next: list[str] | None = Field(description="there may be more: ask again with `after` set to this, as JSON")
    revision: int = Field(description="of the whole tree, when this page was read")


class PutBody(RequestBody):
    """Set a node's data, making it and its parents if needed."""

    data: Data
    conditions: list[Any] = Field(default_factory=list, max_length=64, description="all must hold of the node")
    keep_while: KeepWhile = None


class CreateBody(RequestBody):
    """Make a node that does not exist yet."""

    data: Data
    keep_while: KeepWhile = None


class TouchedView(BaseModel):
    """A node that a write changed or removed, the node itself included."""

    path: list[str]
    reason: Literal["written", "explicit", "keep_while"]
    before: NodeState | None = Field(description="null: it was made")
    after: NodeState | None = Field(description="null: it is gone")


class WrittenView(BaseModel):
    """What a write did."""

    path: list[str]
    existed: bool
    previous: Any = Field(description="the data before; null if there was none")
    payload_version: int
    touched: list[TouchedView] | None = Field(description="with ?full=true")


class DeletedView(BaseModel):
    """What a deletion did."""

    removed: int = Field(description="how many nodes went away: the node, those below, and those that it kept")
    touched: list[TouchedView] | None = Field(description="with ?full=true")


class ComparisonBody(RequestBody):
    """The condition must hold of every node that matches, or of a missing node if none does."""

    path: PatternBody
    condition: Any = Field(description="see docs/reference/rest.md")


def _one_of_the_operations(schema: dict[str, Any]) -> None:
    """Say of each operation for itself what it takes and needs, as the table does."""
    fields = schema.pop("properties")
    schema["oneOf"] = [
        {
            "title": name,
            "type": "object",
            "properties": {
                "op": {"const": name},
                "path": fields["path"],
                **{
                    one: {word: of for word, of in fields[one].items() if one not in REQUIRED or word != "default"}
                    for one in sorted(takes)
                },
            },
            "required": ["op", "path", *(one for one in REQUIRED if one in takes)],
            "additionalProperties": False,
        }
        for name, takes in OPERATIONS.items()
    ]
    for word in ("required", "additionalProperties"):
        schema.pop(word, None)


class OperationBody(RequestBody):
    """One operation of a transaction; which of the fields it takes is in docs/reference/rest.md."""

    model_config = ConfigDict(json_schema_extra=_one_of_the_operations)

    op: Literal[
        "get",
        "view",
        "get_many",
        "exists",
        "has_data",
        "count",
        "children",
        "put",
        "create",
        "update",
        "compare_and_swap",
        "make",
        "clear_payload",
        "delete",
        "put_many",
        "update_many",
        "clear_many_payloads",
        "delete_many",
    ]
    path: PatternBody
    data: Data = None
    expected: Data = None
    condition: Any = Field(default=None, description="of the target")
    keep_while: KeepWhile = None
    full: bool = Field(default=False, description="tell every touched node")


class TransactionBody(RequestBody):
    """If all comparisons hold, apply the operations under `then`, otherwise those under `else`: all of them or none."""

    model_config = ConfigDict(populate_by_name=True)

    comparisons: list[ComparisonBody] = Field(default_factory=list, alias="if", max_length=1024)
    then: list[OperationBody] = Field(default_factory=list, max_length=1024)
    otherwise: list[OperationBody] = Field(default_factory=list, alias="else", max_length=1024)


class TransactionView(BaseModel):
    """Which branch was taken, and the results of its operations, in order."""

    succeeded: bool
    results: list[Any]


class ImportedView(BaseModel):
    """What an import did."""

    nodes: int = Field(description="how many were written")
    removed: int = Field(description="how many went away, with mode=replace")


def node_state(view: NodeView) -> dict[str, Any]:
    """The fields of a `NodeState`."""
    return {
        "has_data": view.has_data,
        "data": to_json(view.data),
        "procedure": view.procedure,
        "payload_version": view.payload_version,
        "child_list_version": view.child_list_version,
        "child_list_length": view.child_count,
    }


def node_row(path: Path, view: NodeView) -> dict[str, Any]:
    """The fields of a `NodeRow`."""
    return {"path": list(path), **node_state(view)}


def state_of_data(data: dict[str, Any] | None) -> dict[str, Any] | None:
    """The fields of a `NodeState`, from a node as commands answer it (`NodeView.to_data`)."""
    if data is None:
        return None
    return {
        "has_data": "data" in data,
        "data": to_json(data.get("data")),
        "procedure": data.get("procedure"),
        "payload_version": data["payload_version"],
        "child_list_version": data["child_list_version"],
        "child_list_length": data["child_count"],
    }


def touched_of_data(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fields of `TouchedView`s, from the rows that commands answer."""
    return [
        {
            "path": row["path"],
            "reason": row["reason"],
            "before": state_of_data(row["before"]),
            "after": state_of_data(row["after"]),
        }
        for row in rows
    ]
