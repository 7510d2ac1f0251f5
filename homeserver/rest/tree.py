"""/v1/tree: one node by its path, or many by a pattern; reading, and writing outside of authority's rows."""

import hashlib
import json
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.authority.model.reserved_paths import check_write
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import client_access, viewer_access
from batonpass.homeserver.rest.errors import refusing, tree_error
from batonpass.homeserver.rest.tree_inputs import (
    MAX_PATTERN_CHARACTERS,
    all_of,
    conditions_untrusted,
    keep_while_untrusted,
    path_from_json_untrusted,
    path_of_url_untrusted,
    pattern_untrusted,
    preconditions_untrusted,
)
from batonpass.homeserver.rest.tree_models import (
    CreateBody,
    DeletedView,
    NodeBody,
    NodePage,
    PutBody,
    WrittenView,
    node_row,
    touched_of_data,
)
from batonpass.tree.data.errors import BadData, NodeNotFound
from batonpass.tree.data.json_form import from_json_untrusted, to_json
from batonpass.tree.data.path import Path
from batonpass.tree.data.work_budget import steps_of_data
from batonpass.tree.store.conditions import AllOf, Condition
from batonpass.tree.store.keep_while import keep_while_to_data
from batonpass.tree.store.pattern import Pattern
from batonpass.tree.store.store import Store

__all__ = ["MAX_PAGE_BYTES", "tree_routes"]

# A page ends when the payloads on it are this much together.
MAX_PAGE_BYTES: Final = 1024 * 1024

Consistency = Annotated[
    Literal["linearizable", "low_latency"],
    Query(description="linearizable: sees every write answered before this call; low_latency: this member's copy"),
]
Limit = Annotated[int, Query(ge=0, le=1000, description="how many children, or nodes, at most")]
PatternText = Annotated[str | None, Query(max_length=MAX_PATTERN_CHARACTERS, description="nodes below the path")]
After = Annotated[str | None, Query(description="`next` of the page before, as JSON")]
ChildrenAfter = Annotated[str | None, Query(description="`next_child` of the answer before")]
Full = Annotated[bool, Query(description="tell every node that was touched, with what it was before")]
Conditions = Annotated[str | None, Query(description="JSON list of conditions that must all hold of the node")]

_ETAG: Final = {"ETag": {"description": "of this answer, for If-Match and If-None-Match", "schema": {"type": "string"}}}
_TAGGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": _ETAG},
    304: {"description": "It is still what If-None-Match names.", "model": None, "headers": _ETAG},
}
_CREATED: Final[dict[int | str, dict[str, Any]]] = {
    201: {"description": "The node was made.", "model": WrittenView},
}


_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "path": {
        "name": "path",
        "in": "path",
        "required": True,
        "description": "the names of a node between slashes, each percent-encoded for itself",
        "schema": {"type": "string"},
    },
    "If-Match": {
        "name": "If-Match",
        "in": "header",
        "required": False,
        "description": 'entity tags, or versions as "3", one of which the node must have; *: it must exist',
        "schema": {"type": "string"},
    },
    "If-None-Match": {
        "name": "If-None-Match",
        "in": "header",
        "required": False,
        "description": "entity tags that it must not have; *: any",
        "schema": {"type": "string"},
    },
}


def _documented(*names: str) -> dict[str, Any]:
    """The parameters that handlers take from the request itself, for the OpenAPI document."""
    return {"parameters": [_PARAMETERS[name] for name in names]}


def tree_routes(node: HomeserverNode) -> Routes:
    """Reading and writing nodes."""
    routes = Routes(tags=["tree"])
    viewer, client = [Depends(viewer_access(node.tokens))], [Depends(client_access(node.tokens))]

    # The root has a route of its own: a parameter of a path stands after a slash.
    @routes.get(
        "/v1/tree",
        dependencies=viewer,
        response_model=NodeBody | NodePage,
        responses=_TAGGED,
        openapi_extra=_documented("If-None-Match"),
        operation_id="get_root",
    )
    @routes.get(
        "/v1/tree/{path:names}",
        dependencies=viewer,
        response_model=NodeBody | NodePage,
        responses=_TAGGED,
        openapi_extra=_documented("path", "If-None-Match"),
        operation_id="get_node",
    )
    async def get(
        request: Request,
        pattern: PatternText = None,
        consistency: Consistency = "linearizable",
        limit: Limit = 100,
        after: After = None,
        children_after: ChildrenAfter = None,
    ) -> Response:
        """A node: its data, its versions, its children; or, with a pattern, the nodes below it that match."""
        with refusing():
            path = path_of_url_untrusted(request)
            wanted = None if pattern is None else pattern_untrusted(pattern)
            if wanted is not None and not limit:
                raise ApiError(422, "invalid_field", "query.limit: a page of nodes has at least 1", limit)
            last = None if after is None else path_from_json_untrusted(after)
            if consistency == "linearizable":
                await node.store.fresh()
            async with node.replica.long_work:
                store = node.replica.store
                if wanted is None:
                    return _tagged(request, read_node(store, path, limit, children_after))
                return _tagged(request, read_page(store, (*path, *wanted), limit, last))

    @routes.put(
        "/v1/tree/{path:names}",
        dependencies=client,
        response_model=WrittenView,
        responses=_CREATED,
        openapi_extra=_documented("path", "If-Match", "If-None-Match"),
        operation_id="put_node",
    )
    async def put(request: Request, body: PutBody, full: Full = False) -> Response:
        """Set the data of a node, making it and its parents if needed."""
        preconditions: list[Condition] = []
        with refusing():
            path = _writable(request)
            preconditions = preconditions_untrusted(request)
            async with node.replica.long_work:
                args = _arguments(path, body, full)
                args["condition"] = all_of(preconditions + conditions_untrusted(body.conditions))
        with refusing(conditional=bool(preconditions)):
            answer = await node.replica.submit("tree.put", args)
            return await node.in_turn(lambda: _written(path, answer))

    @routes.post(
        "/v1/tree/{path:names}",
        dependencies=client,
        status_code=201,
        response_model=WrittenView,
        openapi_extra=_documented("path"),
        operation_id="create_node",
    )
    async def create(request: Request, body: CreateBody, full: Full = False) -> Response:
        """Make a node that does not exist yet (409 `mismatching_node` if it does)."""
        with refusing():
            path = _writable(request)
            args = await node.in_turn(lambda: _arguments(path, body, full))
            return _written(path, await node.replica.submit("tree.create", args))

    @routes.delete(
        "/v1/tree/{path:names}",
        dependencies=client,
        response_model=DeletedView,
        openapi_extra=_documented("path", "If-Match", "If-None-Match"),
        operation_id="delete_node",
    )
    async def delete(request: Request, conditions: Conditions = None, full: Full = False) -> Response:
        """Remove a node and everything below it. That there is none is no error, unless a condition says so."""
        with refusing():
            path = _writable(request)
            preconditions = preconditions_untrusted(request)
            required = AllOf([*preconditions, *conditions_untrusted(_list_untrusted(conditions))])
            operation = {"op": "delete", "path": list(path), "full": full}
            comparisons = [[list(path), required.to_data()]] if required.parts else []
            # At the same moment: what the node is instead.
            otherwise = [{"op": "view", "path": list(path)}]
            args = {"if": comparisons, "then": [operation], "else": otherwise}
            answer = await node.replica.submit("tree.transaction", args)
        (result,) = answer["results"]
        if not answer["succeeded"]:
            raise _not_as_expected(path, required, result, conditional=bool(preconditions))
        if not full:
            return JSONResponse({"removed": result, "touched": None})
        async with node.replica.long_work:
            touched = touched_of_data(result)
            return JSONResponse({"removed": sum(row["after"] is None for row in touched), "touched": touched})

    return routes


# --- reading ------------------------------------------------------------------------------------------------------


def read_node(store: Store, path: Path, limit: int, after: str | None) -> dict[str, Any]:
    """The fields of a `NodeBody`; raises `NodeNotFound`, and `TooMuch` when it has more children than can be sorted."""
    view = store.view(path)
    if view is None:
        store.get(path)  # raises, naming the first that is missing
        raise NodeNotFound("there is no such node")
    children: list[str] = []
    if limit:
        with store.reading() as reading:
            children = [name for name in reading.children(path) if after is None or name > after]
    return {
        **node_row(path, view),
        "keep_while": to_json(keep_while_to_data(store.keep_while(path))),
        "children": children[:limit],
        "next_child": children[limit - 1] if len(children) > limit else None,
        "revision": store.revision,
    }


def read_page(store: Store, pattern: Pattern, limit: int, after: Path | None) -> dict[str, Any]:
    """The fields of a `NodePage`; raises `TooMuch` when finding the next node takes too long."""
    rows: list[dict[str, Any]] = []
    size_bytes = 0
    following: list[str] | None = None
    with store.reading() as reading:
        for path, view in reading.matches(pattern, after):
            if len(rows) >= limit or size_bytes > MAX_PAGE_BYTES:
                following = rows[-1]["path"]
                break
            reading.spend(steps_of_data(view.encoded))
            rows.append(node_row(path, view))
            size_bytes += 0 if view.encoded is None else len(view.encoded)
    return {"nodes": rows, "next": following, "revision": store.revision}


def _tagged(request: Request, content: dict[str, Any]) -> Response:
    """The answer with its entity tag, or 304 if the caller has it.

    Versions begin anew when a node is deleted and made again. So the tag also has a digest of the whole answer, but for
    the tree's revision, which changes with everything.
    """
    told = {name: value for name, value in content.items() if name != "revision"}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    tag = f'"{content["payload_version"]}.{digest}"' if "payload_version" in content else f'"{digest}"'
    given = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if tag in given or given == ["*"]:
        return Response(status_code=304, headers={"etag": tag})
    return JSONResponse(content, headers={"etag": tag})


# --- writing ------------------------------------------------------------------------------------------------------


def _writable(request: Request) -> Path:
    path = path_of_url_untrusted(request)
    check_write(path)
    return path


def _not_as_expected(path: Path, required: Condition, props: Any, *, conditional: bool) -> ApiError:
    """The same as of a `PUT`; `props` is what the node is, or None if there is none."""
    details = {
        "node_name": path[-1] if path else "",
        "node_path": list(path),
        "node_is_target": True,
        "condition": required.to_data(),
    }
    name = "/".join(path)
    if props is None:
        return tree_error("node_not_found", f"there is no node {name}", details, conditional=conditional)
    text = f"the node {name} is not as expected"
    return tree_error("mismatching_node", text, details | {"node_props": props}, conditional=conditional)


def _arguments(path: Path, body: PutBody | CreateBody, full: bool) -> dict[str, Any]:
    keep_while = None if body.keep_while is None else keep_while_untrusted(path, body.keep_while)
    return {"path": list(path), "data": from_json_untrusted(body.data), "keep_while": keep_while, "full": full}


def _written(path: Path, answer: dict[str, Any]) -> Response:
    touched = answer.get("touched")
    content = {
        "path": list(path),
        "existed": answer["existed"],
        "previous": to_json(answer["previous"]),
        "payload_version": answer["payload_version"],
        "touched": None if touched is None else touched_of_data(touched),
    }
    return JSONResponse(content, 200 if answer["existed"] else 201)


def _list_untrusted(text: str | None) -> list[Any]:
    if text is None:
        return []
    try:
        conditions = read_json_untrusted(text)
    except ValueError as error:
        raise BadData(f"conditions are a JSON list: {error}") from error
    if not isinstance(conditions, list):
        raise BadData("conditions are a JSON list")
    return conditions
