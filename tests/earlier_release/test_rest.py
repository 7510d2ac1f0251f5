"""Answers of the earlier release's REST are read by today's clients, and today's answers have all that was in them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from batonpass import RestClient
from tests.earlier_release.running import cluster_in, get, running
from tests.earlier_release.vectors import recorded
from tests.homeserver.process import ROOT
from tests.scenarios.commands import Baton, baton_command, parsed

REST: Final = recorded("rest")
READ: Final = [one for one in REST["answers"] if one["status"] == 200]

# --- old answers, today's clients -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["alpha.h1", "alpha.s1"])
def old_server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A server that gives the recorded answers: its name and its URL."""
    command = (sys.executable, "-m", "tests.earlier_release.recorded_server", request.param)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield request.param, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def test_a_client_reads_every_answer(old_server: tuple[str, str]) -> None:
    name, url = old_server
    client = RestClient({"alpha": [url]}, {"alpha": "token"})
    try:
        paths = {one["path"]: one["body"] for one in reversed(READ) if one["at"] == name}
        for path, body in paths.items():
            if not isinstance(body, str):
                assert await client.call("alpha", "GET", path) == body
    finally:
        await client.aclose()


@pytest.fixture
def baton(
    old_server: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Baton:
    token = tmp_path / "token"
    token.write_text("a token that nobody looks at")
    monkeypatch.setenv("BATON_URL", old_server[1])
    monkeypatch.setenv("BATON_TOKEN_FILE", str(token))
    monkeypatch.setenv("BATON_OPERATOR_TOKEN_FILE", str(token))
    return baton_command(capsys)


def body_of(at: str, path: str) -> Any:
    return next(one["body"] for one in READ if (one["at"], one["path"]) == (at, path))


def test_commands_show_the_answers(baton: Baton, old_server: tuple[str, str]) -> None:
    name, url = old_server
    if name == "alpha.h1":
        commands = {
            ("cluster", "status"): "/v1/cluster",
            ("server", "load"): "/v1/servers/load",
            ("recoveries",): "/v1/recoveries",
            ("tree", "get", "jobs/one"): "/v1/tree/jobs/one",
            ("observe", url): "/v1/actors",
        }
        why = [one["path"].split("/")[3] for one in READ if one["path"].endswith("/why")]
        commands |= {("why", entity): f"/v1/entities/{entity}/why" for entity in why}
    else:
        commands = {("observe", url): "/v1/actors"}
    for command, path in commands.items():
        status, out, err = baton(*command)
        assert (status, err) == (0, ""), command
        assert out
        assert parsed(baton(*command, "--json")) == body_of(name, path)


# --- today's answers --------------------------------------------------------------------------------------------------

NAMED: Final = frozenset({"counts", "results", "locks", "sources", "offices", "routes", "link"})
"""Maps whose keys are names of something, not fields."""

Shape = dict[tuple[str, ...], set[str]]


def add_fields(shape: Shape, value: Any, path: tuple[str, ...] = ()) -> None:
    """Which fields there are, and of which types, whatever number of elements lists have."""
    kinds = shape.setdefault(path, set())
    match value:
        case dict():
            kinds.add("map")
            for name, inner in value.items():
                add_fields(shape, inner, (*path, "*" if path and path[-1] in NAMED else name))
        case list():
            kinds.add("list")
            for inner in value:
                add_fields(shape, inner, (*path, "[]"))
        case bool() | str():
            kinds.add(type(value).__name__)
        case int() | float():
            kinds.add("number")
        case _:
            # Nothing at the moment.
            pass


def route_of(one: dict[str, Any]) -> str:
    """The route that gave an answer."""
    role = "homeserver" if ".h" in one["at"] else "simserver"
    found = [route for route in REST["routes"][role] if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", route), one["path"])]
    # A name in a path looks like a parameter.
    return f"{role} {min(found, key=lambda route: route.count('{'), default=one['path'])}"


def shapes(answers: list[dict[str, Any]]) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for one in answers:
        if not isinstance(one["body"], str):
            add_fields(found.setdefault(route_of(one), {}), one["body"])
    return found


def test_every_route_that_reads_was_recorded() -> None:
    routes = {f"{role} {path}" for role, paths in REST["routes"].items() for path in paths}
    assert routes - {"homeserver /v1/directory"} <= {route_of(one) for one in READ}


async def test_todays_answers_have_all_fields_with_the_same_types(tmp_path: Path) -> None:
    cluster = cluster_in(tmp_path)
    tokens = {
        name: (cluster / "secrets" / f"alpha.{name}-token").read_text()
        for name in ("client", "operator", "simserver-operator")
    }
    asked = [one for one in READ if one["at"] in ("alpha.h1", "alpha.s1") and one["path"] != "/v1/watch"]
    answers = []
    async with running(cluster) as urls:
        for one in asked:
            token = tokens[
                "client"
                if one["token"] == "client"
                else "operator"
                if one["at"] == "alpha.h1"
                else "simserver-operator"
            ]
            status, body = await get(urls[one["at"]], one["path"], token, **one["params"])
            if status == 200:
                answers.append({**one, "body": body})
    before, now = shapes(asked), shapes(answers)
    import pprint

    missing = {r: {"/".join(p): k for p, k in s.items() if p not in now.get(r, {})} for r, s in before.items()}
    pprint.pprint({r: m for r, m in missing.items() if m})
    other = {
        r: {
            "/".join(p): (k, now[r][p])
            for p, k in s.items()
            if p in now.get(r, {}) and k and now[r][p] and not k & now[r][p]
        }
        for r, s in before.items()
    }
    pprint.pprint({r: m for r, m in other.items() if m})
    pprint.pprint(
        [(o["path"]) for o in asked if not any(a["path"] == o["path"] and a["at"] == o["at"] for a in answers)]
    )
    assert 0
