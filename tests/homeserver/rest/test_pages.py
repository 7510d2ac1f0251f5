"""What a homeserver hands out at /play/: the client for browsers, and the pages of a game."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.homeserver.served import Home, homeserver_config, new_ports, served


@pytest.fixture
async def with_pages(tmp_path: Path) -> AsyncIterator[Home]:
    pages = tmp_path / "pages"
    (pages / "inner").mkdir(parents=True)
    (pages / "index.html").write_text("<title>a game</title>")
    (pages / "game.js").write_text("1;")
    (pages / "secret.toml").write_text("token = 1")
    (pages / "led.html").symlink_to(tmp_path / "outside.html")
    (tmp_path / "outside.html").write_text("outside")
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        async with served(config.model_copy(update={"pages": pages})) as home:
            yield home


async def get(home: Home, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=home.api.url, trust_env=False) as client:
        # As it stands: httpx takes dots out of paths.
        return await client.get(httpx.URL(home.api.url + path))


async def test_pages_are_handed_out_with_the_client_beside_them(with_pages: Home) -> None:
    index = await get(with_pages, "/play/")
    assert (index.status_code, index.text) == (200, "<title>a game</title>")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert (await get(with_pages, "/play")).headers["location"] == "play/"
    policy = index.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "connect-src 'self' ws: wss:" in policy
    assert "unsafe" not in policy
    kinds = {
        name: (await get(with_pages, f"/play/{name}")).headers["content-type"] for name in ("game.js", "client.js")
    }
    assert kinds == dict.fromkeys(kinds, "text/javascript; charset=utf-8")
    assert "export async function connect" in (await get(with_pages, "/play/client.js")).text
    assert (await get(with_pages, "/play/client.d.ts")).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name",
    ["secret.toml", "led.html", "inner", "..%2Foutside.html", "%2e%2e", "inner%2Fx.html", ".hidden.html", "x.js"],
)
async def test_nothing_else_is(with_pages: Home, name: str) -> None:
    answer = await get(with_pages, f"/play/{name}")
    assert answer.status_code in {404, 422}
    assert answer.json()["code"] in {"not_found", "unknown_route", "invalid_field"}


async def test_a_page_is_read_when_it_is_asked_for(with_pages: Home, tmp_path: Path) -> None:
    (tmp_path / "pages" / "index.html").write_text("<title>another</title>")
    assert (await get(with_pages, "/play/")).text == "<title>another</title>"


async def test_without_pages_there_is_the_client_alone(alpha: Home) -> None:
    assert (await get(alpha, "/play/")).json()["code"] == "not_found"
    assert (await get(alpha, "/play/door.js")).status_code == 200
