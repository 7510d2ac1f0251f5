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
from tests.earlier_release.running import cluster_in, running
from tests.earlier_release.vectors import recorded
from tests.homeserver.process import ROOT
from tests.scenarios.asked import answered
from tests.scenarios.commands import Baton, baton_command

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
    token.write_text("nobody-looks-at-this-token")
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
        there = [one["body"]["id"] for one in READ if re.fullmatch("/v1/entities/[^/]+", one["path"])]
        commands |= {("why", entity): f"/v1/entities/{entity}/why" for entity in there}
    else:
        commands = {("observe", url): "/v1/actors"}
    for command, path in commands.items():
        body = body_of(name, path)
        # Of an entity that does not run, the exit status says so.
        ends_with = 0 if body.get("runs", True) else 1
        status, out, err = baton(*command)
        assert (status, err) == (ends_with, ""), command
        assert out
        status, out, _ = baton(*command, "--json")
        read = json.loads(out)
        assert status == ends_with
        # The command follows all pages.
        assert read == {part: value for part, value in body.items() if part != "next" or part in read}


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
    assert routes <= {route_of(one) for one in READ}


GONE: Final = re.compile(r"/alpha\.box-1(/|$)|/beta\.")
"""Of what there is nothing to say any more: box-1 ends when its authority dies, and beta is not there."""
LASTING: Final = (
    "/v1/players/{player}/keys",
    "/v1/transfers/{transfer_id}",
    "/v1/tree/{path}",
    "/v1/entities/{entity_id}",
)
"""Routes whose answers are the same after servers were started again, but for the fields in `PASSING`."""
PASSING: Final = frozenset({"revision", "authority", "epoch", "waits", "standing"})


async def test_todays_answers_have_all_fields_with_the_same_types(tmp_path: Path) -> None:
    cluster = cluster_in(tmp_path)
    answers = []
    async with running(cluster) as urls:
        home, operator = urls["alpha.h1"], (cluster / "secrets" / "alpha.operator-token").read_text().strip()
        await answered(f"{home}/v1/recoveries", lambda view: view["waiting"] == [])
        await answered(f"{home}/v1/servers/load", reported, token=operator)
        for one in READ:
            if one["at"] == "alpha.s2" or one["path"] == "/v1/watch":
                # The one has nothing that the others have not; the other never ends.
                continue
            if not GONE.search(one["path"]):
                url = urls[one["at"]] + one["path"]
                body = await answered(url, token=token_for(one, cluster), **one["params"])
                answers.append((one, {**one, "body": body}))
    before, now = (shapes(list(some)) for some in zip(*answers, strict=True))
    for route, shape in before.items():
        for path, kinds in shape.items():
            if path[-1:] != ("*",):
                assert path in now[route], (route, path, "a field is missing")
            found = now[route].get(path, set())
            assert not kinds or not found or kinds & found, (route, path, "a field has another type")
    for old, new in answers:
        if route_of(old).removeprefix("homeserver ") in LASTING:
            kept = {name: value for name, value in new["body"].items() if name in old["body"]}
            assert lasting(kept) == lasting(old["body"])


def reported(load: dict[str, Any]) -> bool:
    """Whether both servers have said how loaded they are."""
    return sorted(row["server"] for row in load["servers"]) == ["alpha.s1", "alpha.s2"]


def token_for(one: dict[str, Any], cluster: Path) -> str:
    """The token with which this was asked."""
    role = "operator" if one["at"] == "alpha.h1" else "simserver-operator"
    name = {"op": role}.get(one["token"], "client")
    return (cluster / "secrets" / f"alpha.{name}-token").read_text().strip()


def lasting(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in PASSING}
