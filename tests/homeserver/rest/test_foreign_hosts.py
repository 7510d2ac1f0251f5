"""A page on the web whose name points to a server of ours reads nothing from it (DNS rebinding)."""

from pathlib import Path

import httpx

from batonpass.actors.http.client import trusted_authorities
from tests.homeserver.served import Home, homeserver_config, new_ports, served

# Of a path with parameters any will do: nothing is looked up for such a request.
NAMES = {"name": "alpha.s1", "entity_id": "alpha.ball-1", "path": "x"}


async def test_no_route_is_read_under_the_name_of_a_page(world: Home) -> None:
    urls = [world.api.url, (await world.api.get("/v1/servers/alpha.s1"))["rest_url"]]
    page = {"host": "attacker.example:80", "origin": "http://attacker.example:80"}
    for url in urls:
        async with httpx.AsyncClient(base_url=url, trust_env=False, verify=trusted_authorities()) as client:
            document = (await client.get("/openapi.json")).json()
            paths = [path for path, operations in document["paths"].items() if "get" in operations]
            assert len(paths) > 5
            for path in paths:
                asked = path
                for name, value in NAMES.items():
                    asked = asked.replace("{" + name + "}", value)
                answer = await client.get(asked, headers=page)
                assert (answer.status_code, answer.json()["code"]) == (421, "host_refused"), asked
                assert "attacker.example" in answer.json()["message"]


async def test_pages_that_may_open_websockets_here_do_not_read_the_api_under_their_own_names(tmp_path: Path) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        config = config.model_copy(update={"player_origins": ("*",), "allowed_hosts": ("h1.example",)})
        async with served(config) as home:
            for host, status in (("attacker.example", 421), ("h1.example", 200), ("H1.Example:80", 200)):
                assert (await home.api.http.get("/healthz", headers={"host": host})).status_code == status, host


async def test_every_answer_is_for_its_own_origin_and_is_what_its_type_says(world: Home) -> None:
    for path in ("/healthz", "/v1/cluster", "/nothing", "/v1/tree/x", "/v1/actors", "/%zz"):
        answer = await world.api.http.get(path)
        said = (answer.headers["x-content-type-options"], answer.headers["cross-origin-resource-policy"])
        assert said == ("nosniff", "same-origin"), path
