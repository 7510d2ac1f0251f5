"""What a page tells people to ask or to run is there: routes, modules, targets of make, and JavaScript that parses."""

import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from batonpass.homeserver.rest.callers import HOMESERVER_CALLERS, RELAY_CALLERS
from batonpass.simserver.server.callers import SIMSERVER_CALLERS
from tests.chromium import installed
from tests.docs.pages import PAGES, ROOT, Block, blocks, is_in, name_of

CURRENT: Final = [page for page in PAGES if not is_in(page, "history") and page.name != "CHANGELOG.md"]
METHODS: Final = "GET|POST|PUT|PATCH|DELETE"
NAMED: Final = re.compile(rf"\b({METHODS}) (/(?:v1|healthz|metrics|openapi\.json|play)(?:/[^ `\"'?,;)]*)?)")
CURL: Final = re.compile(r"\bcurl ((?:[^`\n]|\\\n)*)")
ROUTES: Final = [
    (method, re.compile(re.sub(r"\{path\}", ".+", path) if "{path}" in path else re.sub(r"\{\w+\}", "[^/]+", path)))
    for method, path in (*HOMESERVER_CALLERS, *RELAY_CALLERS, *SIMSERVER_CALLERS)
]
JAVASCRIPT: Final = [block for page in CURRENT for block in blocks(page) if block.language == "js"]
PARSES: Final = """
import { readFileSync } from "node:fs"; import { SourceTextModule } from "node:vm";
const wrong = {};
for (const [name, text] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  try { new SourceTextModule(text); } catch (error) { wrong[name] = String(error); }
}
console.log(JSON.stringify(wrong));
"""


def requests_in(text: str) -> Iterator[tuple[str, str]]:
    """Method and path of each request that `text` names: `GET /v1/…`, and what `curl` is told."""
    for method, path in NAMED.findall(text):
        yield method, re.sub(r"[.:]$", "", path)
    for arguments in CURL.findall(text):
        path = re.search(r"(/(?:v1|healthz|metrics|play)\b[^ ?\"'`]*)", arguments)
        if path is not None:
            method = re.search(rf"-X ({METHODS})", arguments)
            yield method[1] if method else "POST" if " -d " in arguments else "GET", path[1]


def is_route(method: str, path: str) -> bool:
    return any(method == one and expression.fullmatch(path) for one, expression in ROUTES)


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_each_request_that_a_page_names_has_a_route(page: Path) -> None:
    named = set(requests_in(page.read_text(encoding="utf-8")))
    assert [f"{method} {path}" for method, path in sorted(named) if not is_route(method, path)] == []


def test_there_are_requests_and_others_are_found_out() -> None:
    assert sum(len(set(requests_in(page.read_text(encoding="utf-8")))) for page in CURRENT) > 200
    assert set(requests_in("`GET /v1/entitties/alpha.b-1`; `curl -X PUT $URL/v1/x -d '{}'`, `curl $URL/healthz`")) == {
        ("GET", "/v1/entitties/alpha.b-1"),
        ("PUT", "/v1/x"),
        ("GET", "/healthz"),
    }
    assert not is_route("GET", "/v1/entitties/alpha.b-1")
    assert not is_route("DELETE", "/healthz")


def test_each_module_that_a_page_has_people_run_is_one() -> None:
    named = {one for page in CURRENT for one in re.findall(r"python -m ([\w.]*\w)", page.read_text(encoding="utf-8"))}
    assert len(named) > 5
    templates = {one for one in named if one.endswith("_NAME")}
    assert [one for one in named - templates if importlib.util.find_spec(one) is None] == []
    assert [one for one in templates if importlib.util.find_spec(one.rpartition(".")[0]) is None] == []


def test_each_target_of_make_that_a_page_names_is_one() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {
        one
        for page in CURRENT
        for one in re.findall(r"(?:`|^\$ )make ([a-z]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert named >= {"run", "test", "fuzz"}
    assert named <= targets


def id_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def wrong_ones(texts: dict[str, str]) -> dict[str, str]:
    """What node says of those that are no JavaScript, by name."""
    command = [installed("node", "nodejs"), "--experimental-vm-modules", "--no-warnings", "--input-type=module"]
    done = subprocess.run([*command, "-e", PARSES], input=json.dumps(texts), capture_output=True, text=True, check=True)
    wrong: dict[str, str] = json.loads(done.stdout)
    return wrong


def test_javascript_of_pages_parses() -> None:
    shown = {id_of(block): block.text for block in JAVASCRIPT}
    assert len(shown) >= 4
    assert set(wrong_ones({**shown, "broken": "const = 1;"})) == {"broken"}
