"""The map, the lists, the stream and the page over HTTP, and who may look on."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any
from unittest.mock import AsyncMock, MagicMock, patch

import httpx
import pytest
import trio

from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.homeserver import overview
from batonpass.homeserver.overview.routes import dashboard_files
from batonpass.homeserver.overview.vendored import VENDORED
from batonpass.homeserver.rest import make_app
from batonpass.scenarios.bench.transfers.dashboards import dashboards_open, until_told
from tests.homeserver.rest.test_tree_watches import Reader
from tests.homeserver.served import DEADLINE_S, Home, until
from tests.tokens import gate

LOOKED_AT = (
    *("/v1/map", "/v1/acts", "/v1/entities", "/v1/players", "/v1/transfers", "/v1/live"),
    *("/v1/servers/{name}/supervision", "/v1/samples", "/v1/positions", "/v1/synchronisation"),
)
TAGGED = ("/v1/entities", "/v1/players", "/v1/transfers")


@asynccontextmanager
async def looking_on(home: Home) -> AsyncIterator[Reader]:
    async with await trio.open_tcp_stream("127.0.0.1", home.node.config.rest.port) as stream:
        reader = Reader(stream)
        response = await reader.ask("/v1/live", {})
        assert response.status_code == 200
        assert dict(response.headers)[b"content-type"].startswith(b"text/event-stream")
        assert dict(response.headers)[b"x-accel-buffering"] == b"no"
        yield reader


async def _until_told(reader: Reader, kind: str, fits: Any) -> Any:
    while True:
        told, data = await reader.event()
        assert told != "reset", "not so much happens here"
        if told == kind and fits(data):
            return data


async def test_an_instance_is_seen_listed_and_followed(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await until(lambda: all(world.node.balancer.report(name) for name in world.simservers))
    async with looking_on(world) as reader:
        kind, seen = await reader.event()
        assert (kind, seen["instance"], seen["told_by"], seen["leader"]) == ("map", "alpha", "alpha.h1", "alpha.h1")
        assert [one["name"] for one in seen["servers"]] == ["alpha.s1", "alpha.s2"]
        assert [(one["name"], one["leads"], one["health"]) for one in seen["members"]] == [("alpha.h1", True, "ok")]
        for number in range(3):
            await world.entity(f"alpha.ball-{number}", ada, "alpha.s1")
        await _until_told(reader, "entities", lambda data: "alpha.ball-2" in data["entities"])
        await world.api.do(
            "POST", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2", "transfer_id": "move-0001"}
        )
        await world.finished("move-0001")
        passed = await _until_told(
            reader, "transfers", lambda data: any(one["phase"] == "done" for one in data["transfers"])
        )
        assert [(one["transfer_id"], one["target"]) for one in passed["transfers"]] == [("move-0001", "alpha.s2")]
        body = {"to": "alpha.s2", "transfer_id": "move-0001"}
        headers = {"baton-act": "dashboard"}
        await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", body, headers=headers)
        act = await _until_told(reader, "acts", bool)
        assert (act["path"], act["said"]) == ("/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"})
        assert (await world.api.get("/v1/acts"))["acts"] == [act]
    page = await world.api.get("/v1/entities?limit=2")
    assert [one["id"] for one in page["entities"]] == ["alpha.ball-0", "alpha.ball-1"]
    assert (page["after"], page["total"]) == ("alpha.ball-1", 3)
    rest = await world.api.get("/v1/entities?limit=2&after=alpha.ball-1", token=False)
    assert ([one["id"] for one in rest["entities"]], rest["after"]) == (["alpha.ball-2"], None)
    found = await world.api.get("/v1/entities?search=ball&server=alpha.s2&owner=alpha.ada&kind=ball")
    assert [(one["id"], one["standing"]) for one in found["entities"]] == [("alpha.ball-1", "simulated")]
    assert (await world.api.get("/v1/entities?standing=lost"))["entities"] == []
    assert [one["transfer_id"] for one in await world.api.get("/v1/transfers?limit=1", token=False)] == ["move-0001"]
    seen = await world.api.get("/v1/map")
    assert (seen["entities"], seen["recovering"]) == (3, 0)
    page = await world.api.get("/v1/players?search=ada&limit=1", token=False)
    assert page == {"players": [{"name": "alpha.ada", "version": 1, "revision": 1}], "after": None, "total": 1}
    for path in TAGGED:
        tag = (await world.api.call("GET", path)).headers["etag"]
        for given in (tag, f'"other", W/{tag}', "*"):
            answer = await world.api.call("GET", path, headers={"if-none-match": given})
            assert (answer.status_code, answer.headers["etag"], answer.content) == (304, tag, b""), path
        assert (await world.api.call("GET", path, headers={"if-none-match": '"other"'})).json()
    for path in LOOKED_AT[:5]:
        assert await world.api.refused(422, "invalid_field", "GET", f"{path}?mistake=1") == "mistake"
    async with dashboards_open(world.api.url, 3) as had:
        await world.api.do(
            "POST", "/v1/entities/alpha.ball-2/transfers", {"to": "alpha.s2", "transfer_id": "move-0002"}
        )
        await until(lambda: all(had))
    created = partial(world.entity, "alpha.ball-9", ada, "alpha.s1")
    assert await until_told(world.api.url, b"alpha.ball-9", created) < DEADLINE_S
    await _trees(world)
    said = await world.api.get("/v1/synchronisation", token=False)
    assert said == {"synchronised": [], "more": 0, "silent": []}
    said = await world.api.get("/v1/positions", token=False)
    assert (said["entities"], said["silent"], said["servers"]) == (4, [], ["alpha.s1", "alpha.s2"])
    await _page(world)


async def _trees(home: Home) -> None:
    """Of this server and, asked for by it, of another one."""
    own = await home.api.get("/v1/servers/alpha.h1/supervision", token=False)
    assert (own["node"], own["top"]["id"]) == ("alpha.h1", "root")
    assert {"homeserver", "faces", "rest"} <= {row["id"] for row in own["below"]}
    assert (await home.api.get("/v1/supervision", token=False))["node"] == "alpha.h1"
    other = await home.api.get("/v1/servers/alpha.s1/supervision")
    assert other["node"] == "alpha.s1"
    (entities,) = (row for row in other["below"] if row["id"] == "entities")
    page = await home.api.get(f"/v1/servers/alpha.s1/supervision?under={entities['pid']}&limit=1")
    assert (page["top"]["id"], len(page["below"]), page["next"]) == ("entities", 1, 1)
    gone = "/v1/servers/alpha.s1/supervision?under=9999999"
    assert await home.api.refused(404, "unknown_actor", "GET", gone) == "alpha.s1"
    for name in ("alpha.s9", "alpha.ada"):
        assert await home.api.refused(404, "not_found", "GET", f"/v1/servers/{name}/supervision") == name
    with patch.object(HttpClient, "request", AsyncMock(side_effect=HttpFailed("no answer within 2 s"))):
        assert await home.api.refused(502, "peer_unreachable", "GET", "/v1/servers/alpha.s1/supervision") == "alpha.s1"


async def _page(home: Home) -> None:
    answer = await home.api.call("GET", "/dashboard", token=False)
    assert (answer.status_code, answer.headers["location"]) == (308, "dashboard/")
    for name, (kind, content) in dashboard_files().items():
        answer = await home.api.http.get(f"/dashboard/{name if name != 'index.html' else ''}")
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, kind, content)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
    assert await home.api.refused(404, "not_found", "GET", "/dashboard/nothing.js", token=False) == "nothing.js"


@pytest.mark.parametrize(
    ("said", "is_loopback", "is_open"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
async def test_everybody_looks_on_on_loopback_and_elsewhere_if_it_is_said(
    said: bool | None, is_loopback: bool, is_open: bool
) -> None:
    node = MagicMock()
    node.tokens, node.config.pages = gate(client="client"), None
    node.config.dashboard, node.config.rest.is_loopback = said, is_loopback
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=make_app(node)), base_url="http://alpha") as http:
        for path in LOOKED_AT:
            for token in (None, "guess", "client"):
                headers = {"authorization": f"Bearer {token}"} if token else {}
                answer = await http.get(f"{path.format(name='alpha.s1')}?mistake=1", headers=headers)
                expected = "invalid_field" if is_open or token == "client" else "wrong_token" if token else "no_token"  # noqa: S105
                assert answer.json()["code"] == expected, (path, token)
        assert (await http.get("/dashboard/")).status_code == 200


def test_the_document_says_that_a_token_may_not_be_needed() -> None:
    node = MagicMock()
    node.tokens, node.config.pages = gate(client="client"), None
    document = make_app(node).openapi()
    for path in LOOKED_AT:
        assert document["paths"][path]["get"]["security"] == [{"HTTPBearer": []}, {}]


def test_what_is_from_others_is_as_they_made_it_with_their_licence() -> None:
    page = files(overview) / "page"
    for package in VENDORED:
        assert package.licence in (page / package.licence_file).read_text(encoding="utf-8").splitlines()[0]
        for name, digest in package.files.items():
            assert hashlib.sha256(dashboard_files()[name][1]).hexdigest() == digest, name
            assert package.version.encode() in dashboard_files()[name][1] or name.endswith(".css")


def test_the_page_names_no_foreign_host_and_has_no_script_or_style_of_its_own() -> None:
    from_others = {name for package in VENDORED for name in package.files}
    for name, (_, content) in dashboard_files().items():
        if name in from_others:
            # What it has of that are comments, and the content security policy allows none of it.
            continue
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in "".join(part for part in text.split() if part.startswith(("http:", "https:", "//cdn"))), name
        assert "http:" not in text, name
        assert "https:" not in text, name
        assert "innerHTML" not in text, name
        assert " style=" not in text, name
        assert " onclick=" not in text, name
