"""Routes, written down before there is an application: each is made once, when needed, and as strict as all others."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Depends, FastAPI

from batonpass.actors.http.app import StrictRoute, document_once, prepare_app
from batonpass.actors.http.routes import Routes


def asks(told: list[str], name: str) -> Callable[[], Coroutine[Any, Any, None]]:
    async def dependency() -> None:
        told.append(name)

    return dependency


async def answered(app: FastAPI, method: str, path: str) -> int:
    """The status of the answer to a request without a body."""
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return int(said[0]["status"])


async def test_a_route_is_made_once_and_asks_what_its_application_and_its_module_and_itself_ask() -> None:
    told: list[str] = []
    routes = Routes(prefix="/v1", tags=["all"], dependencies=[Depends(asks(told, "module"))])

    @routes.get("/things/first", tags=["own"], dependencies=[Depends(asks(told, "own"))])
    async def first() -> None:
        told.append("first")

    @routes.get("/things/{name}")
    async def any_of_them(name: str) -> None:
        told.append(name)

    app = FastAPI()
    prepare_app(app)
    app.router.dependencies.append(Depends(asks(told, "application")))
    before = len(app.routes)
    routes.add_to(app)
    made = app.routes[before:]
    assert [type(route) for route in made] == [StrictRoute, StrictRoute]
    assert await answered(app, "GET", "/v1/things/first") == 200
    assert await answered(app, "GET", "/v1/things/second") == 200
    assert told == ["application", "module", "own", "first", "application", "module", "second"]
    document = app.openapi()["paths"]
    assert document["/v1/things/first"]["get"]["tags"] == ["all", "own"]
    assert document["/v1/things/{name}"]["get"]["tags"] == ["all"]


async def test_an_app_whose_document_there_is_makes_only_the_routes_that_it_is_asked_for() -> None:
    routes = Routes()

    @routes.get("/first")
    async def first() -> None:
        """Nothing."""

    @routes.get("/second/{name}")
    async def second(name: str) -> None:
        """Nothing."""

    def made_of(app: FastAPI) -> list[str]:
        return [route.path for route in app.routes if isinstance(route, StrictRoute) and "app" in vars(route)]

    apps = [FastAPI(title="of routes that are made late") for _ in range(2)]
    for app in apps:
        prepare_app(app)
        routes.add_to(app)
        document_once(app)
    assert [made_of(app) for app in apps] == [["/first", "/second/{name}"], []]
    assert await answered(apps[1], "GET", "/second/one") == 200
    assert made_of(apps[1]) == ["/second/{name}"]
    assert await answered(apps[1], "PUT", "/second/one") == 405
    assert await answered(apps[1], "GET", "/third") == 404
    assert apps[1].openapi() == apps[0].openapi()


async def test_each_method_is_written_by_its_name() -> None:
    routes = Routes()
    for write in (routes.get, routes.put, routes.post, routes.patch, routes.delete):

        @write("/thing")
        async def thing() -> None:
            """Nothing."""

    app = FastAPI()
    prepare_app(app)
    routes.add_to(app)
    for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
        assert await answered(app, method, "/thing") == 200
    assert await answered(app, "OPTIONS", "/thing") == 405
