"""Routes that belong together, written down before there is an application to give them to.

FastAPI's `APIRouter` makes each route when it is written, and once more when its router is included. For the API of a
homeserver that was half of what its start took. Here a route is made once, by the application that takes it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from fastapi import FastAPI
from fastapi.params import Depends

from batonpass.actors.http.app import StrictRoute

__all__ = ["Routes", "text_of"]

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def text_of(*content_types: str) -> dict[int | str, dict[str, Any]]:
    """What the API's document says of a route that answers with a text of one of these types."""
    kinds = sorted({kind.partition(";")[0] for kind in content_types})
    return {200: {"content": {kind: {"schema": {"type": "string"}} for kind in kinds}}}


class Routes:
    """What a module adds to an API; `add_to` gives it to one. Every route is a `StrictRoute`.

    Args:
        prefix: of the paths of all of them.
        tags: under which the OpenAPI document has all of them.
        dependencies: of all of them, before their own.
    """

    def __init__(self, *, prefix: str = "", tags: Sequence[str] = (), dependencies: Sequence[Depends] = ()) -> None:
        self._prefix: Final = prefix
        self._tags: Final = tuple(tags)
        self._dependencies: Final = tuple(dependencies)
        self._written: Final[list[tuple[str, str, Callable[..., Any], dict[str, Any]]]] = []

    def get(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """A decorator: GET of this path; `options` are those of `FastAPI.get`."""
        return self._on("GET", path, options)

    def put(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """As `get`, of PUT."""
        return self._on("PUT", path, options)

    def post(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """As `get`, of POST."""
        return self._on("POST", path, options)

    def patch(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """As `get`, of PATCH."""
        return self._on("PATCH", path, options)

    def delete(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """As `get`, of DELETE."""
        return self._on("DELETE", path, options)

    def _on(self, method: str, path: str, options: dict[str, Any]) -> Callable[[Endpoint], Endpoint]:
        def write(endpoint: Endpoint) -> Endpoint:
            self._written.append((method, path, endpoint, options))
            return endpoint

        return write

    def add_to(self, app: FastAPI) -> None:
        """Make the routes, in the order in which they were written, after those that `app` has; it is prepared."""
        for method, path, endpoint, options in self._written:
            tags = [*self._tags, *options.get("tags", ())]
            dependencies = [*self._dependencies, *options.get("dependencies", ())]
            app.router.add_api_route(
                self._prefix + path,
                endpoint,
                methods=[method],
                route_class_override=StrictRoute,
                **options | {"tags": tags, "dependencies": dependencies},
            )
