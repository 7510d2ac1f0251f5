"""What APIs of one kind share in a process."""

from fastapi import FastAPI

from batonpass.actors.http.app import document_once, prepare_app
from batonpass.actors.http.web_service import WebService


def _app(title: str, path: str) -> FastAPI:
    app = FastAPI(title=title)
    prepare_app(app)

    @app.get(path)
    async def read() -> None: ...

    document_once(app)
    return app


def test_apps_of_one_title_have_one_document_also_while_they_are_served() -> None:
    first, second, other = _app("twins", "/a"), _app("twins", "/a"), _app("another", "/b")
    document = first.openapi()
    for app in (first, second):
        WebService(app, "127.0.0.1")
        assert app.openapi() is document
    assert list(document["paths"]) == ["/a"]
    assert list(other.openapi()["paths"]) == ["/b"]
