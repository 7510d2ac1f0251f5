"""docs/reference/rest.md says what is so: its example runs, and no route, code or phase is missing."""

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from batonpass.authority.errors import Reason
from batonpass.authority.wire.phase_timings import PHASES
from batonpass.homeserver.rest.cluster import CHANGE_STATUS
from batonpass.homeserver.rest.errors import TREE_STATUS
from batonpass.simserver.server.config import SimserverConfig
from tests.homeserver.process import ROOT, server_process, wait_ready
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports

DOCUMENT = (ROOT / "docs" / "reference" / "rest.md").read_text()
SOURCES = [*(ROOT / "homeserver").rglob("*.py"), *(ROOT / "actors" / "http").glob("*.py")]
SOURCES += [ROOT / "simserver" / "server" / "http_status.py", ROOT / "actors" / "observe" / "observation.py"]


async def test_every_route_has_its_row(alpha: Home) -> None:
    routes = {f"{m.upper()} {path}" for path, methods in alpha.api.contract.paths.items() for m in methods}
    rows = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", DOCUMENT, re.MULTILINE))
    assert rows == routes | {"GET /openapi.json"}


async def test_every_route_is_told_of_beside_its_row(alpha: Home) -> None:
    """With its method, and with the path as it stands in a request: of the answer only people can tell."""
    prose = DOCUMENT.partition("## Routes one by one")[2].partition("## Errors")[0]
    for path, methods in alpha.api.contract.paths.items():
        # Names of nodes have slashes; others end where the example does.
        parts = re.split(r"(\{\w+\})", path)
        name = {"{path}": ".+"}
        expression = "".join(name.get(part, "[^\\s/`?'\"]+") if part[:1] == "{" else re.escape(part) for part in parts)
        for method in methods:
            word = r"(?:GET|curl(?! -X))" if method == "get" else method.upper()
            assert re.search(rf"\b{word}\b[^\n]*{expression}(?![\w/])", prose), f"{method.upper()} {path}"


def test_every_code_has_its_row() -> None:
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \| \S[^|]* \| \S[^|]* \|$", DOCUMENT, re.MULTILINE)
    documented = {code for _, code in rows}
    assert len(documented) == len(rows)
    raised = {reason.value for reason in Reason} | set(TREE_STATUS) | set(CHANGE_STATUS)
    assert {(str(status), code) for code, status in (TREE_STATUS | CHANGE_STATUS).items()} <= set(rows)
    for source in SOURCES:
        found = re.findall(r"(?:\b(\d{3})(?: if [^,]*)?,|\bcode, message =) \"([a-z_]+)\"", source.read_text())
        raised |= {code for _, code in found}
    assert raised <= documented
    statuses = {(int(status), code) for status, code in rows}
    for source in SOURCES:
        found = re.findall(r"\((\d{3}), \"([a-z_]+)\"", source.read_text())
        assert {(int(status), code) for status, code in found} <= statuses, source


def test_every_phase_is_explained() -> None:
    for phase in PHASES:
        assert f"| `{phase}` |" in DOCUMENT


def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    with new_ports() as ports, ExitStack() as running:
        home = homeserver_config(tmp_path, ports)
        wait_ready(running.enter_context(server_process(home)), home)
        for name in ("alpha.s1", "alpha.s2"):
            fields: dict[str, Any] = {"rest": {"port": ports.choose()}, "home_urls": (home.rest.url,)}
            config = SimserverConfig(
                name=name, instance="alpha", directory=tmp_path / name, join_token_file=tmp_path / "join", **fields
            )
            wait_ready(running.enter_context(server_process(config)), config)
        example = example.replace("http://127.0.0.1:8000", home.rest.url)
        example = example.replace("playground/secrets/alpha.client-token", str(tmp_path / "client"))
        done = subprocess.run(
            [sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["asked", "done 3", "alpha.bob"]
