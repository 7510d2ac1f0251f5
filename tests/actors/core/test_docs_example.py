"""What the pages about actors show runs as it stands there, and what they name exists."""

import ast
import builtins
import re
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

import batonpass.actors.groups as actors_groups
import batonpass.actors.machines as actors_machines
import batonpass.actors.observe.metrics as actors_metrics
import batonpass.actors.observe.poller as actors_poller
import batonpass.actors.remote as actors_remote
import batonpass.actors.stages as actors_stages
from batonpass import actors
from batonpass.authority.node import tree_names
from batonpass.testing import actors as testing_actors
from tests.actors.oracle.lines import recorded_lines
from tests.collected import ROOT

FOR_EVERYBODY = ROOT / "docs" / "explanation" / "actors.md"
REFERENCE = ROOT / "docs" / "reference" / "actors.md"
FOR_OTP = ROOT / "docs" / "reference" / "actors-for-otp.md"
MODULES = ROOT / "docs" / "reference" / "actors-otp-modules.md"
RECORDED_MODULES = ROOT / "tests" / "actors" / "oracle" / "otp_modules.txt"
ELSEWHERE = {"Cancelled", "ContextVar", "ConsumerSupervisor", "Enum"}
PAGES = pytest.mark.parametrize("page", [FOR_EVERYBODY, FOR_OTP], ids=lambda page: page.stem)


def python_of(page: Path) -> str:
    """The page, with every line that is not Python left empty, so that tracebacks tell the lines of the page."""
    lines, inside = list[str](), False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


@PAGES
def test_all_python_runs_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = python_of(page)
    assert "trio.run(" in source
    monkeypatch.setattr(trio, "run", partial(trio.run, clock=trio.testing.MockClock(autojump_threshold=0)))
    exec(compile(source, str(page), "exec"), {"__name__": "example"})  # noqa: S102 - our own text


@pytest.mark.parametrize(
    "page", [FOR_EVERYBODY, REFERENCE, FOR_OTP, MODULES], ids=["guide", "reference", "otp", "modules"]
)
def test_what_a_page_names_exists(page: Path) -> None:
    shown = {node.name for node in ast.walk(ast.parse(python_of(page))) if isinstance(node, ast.ClassDef)}
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    # Names of Elixir stand in the left column of the tables.
    prose = re.sub(r"^\|.*?\|", "", prose, flags=re.MULTILINE) if page in {FOR_OTP, MODULES} else prose
    named = set(re.findall(r"`([A-Z][A-Za-z]+[a-z])\b", prose))
    below = (actors_groups, actors_machines, actors_metrics, actors_poller, actors_remote, actors_stages)
    rooms = (actors, *below, tree_names, testing_actors)
    ours = {*shown, *(name for room in rooms for name in room.__all__)}
    assert named <= ours | ELSEWHERE | set(dir(builtins)), f"{page.name} names what actors does not export"


def test_every_module_of_elixir_and_otp_has_one_row_and_a_verdict() -> None:
    """The record is what `elixir otp_modules.exs` prints, of kernel and stdlib only what the manuals have."""
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", MODULES.read_text(encoding="utf-8"), re.MULTILINE)
    rows = [row for row in rows if row[0] not in {"module", "application"}]
    assert {verdict for _, verdict, _ in rows} == {"same", "other", "not here"}
    named = [name for row in rows for name in re.findall(r"`(:?[\w.]+)`", row[0])]
    assert len(named) == len(set(named)), "two rows about one module"
    lines = RECORDED_MODULES.read_text(encoding="utf-8").splitlines()
    recorded = {line.split()[1] for line in lines if not line.startswith("#")}
    assert recorded - set(named) == set(), "modules without a row"
    assert len(recorded) > 180


def functions_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_tests_that_prove_a_statement_exist() -> None:
    text = FOR_OTP.read_text(encoding="utf-8")
    files = {file.stem: file for file in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+)(?:::(test_\w+))?`", text)
    assert len(named) > 40
    for module, test in named:
        assert module in files, f"there is no {module}.py"
        assert not test or test in functions_of(files[module]), f"{module}.py has no {test}"


def test_the_oracle_lines_that_prove_a_statement_were_recorded() -> None:
    lines = recorded_lines()
    named = re.findall(r"oracle: `([^`]+)`", FOR_OTP.read_text(encoding="utf-8"))
    assert len(named) > 5
    for what in named:
        assert any(line.startswith(what) for line in lines), f"nothing was recorded of {what!r}"
