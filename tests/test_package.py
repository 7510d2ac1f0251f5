"""The distribution is one package, `batonpass`, and takes no other name from the programs beside it."""

import ast
import logging
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import batonpass
from batonpass.authority.node.plugins import import_named
from batonpass.authority.placement.policy import relieve
from batonpass.homeserver.overview.routes import dashboard_files
from batonpass.scenarios.sectors.world import Airspace
from batonpass.simserver.world.demo_balls import Balls
from tests.lowest_versions import lowest

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("actors", "authority", "crypto", "homeserver", "scenarios", "simserver", "tree")


def test_every_public_name_is_there_and_the_version_is_that_of_the_distribution() -> None:
    for name in batonpass.__all__:
        assert getattr(batonpass, name) is not None
        assert name in dir(batonpass)
    assert batonpass.__version__ == "0.1.0"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        batonpass.nothing  # noqa: B018


def test_importing_it_imports_none_of_its_parts() -> None:
    program = "import sys, batonpass; print(*(name for name in sys.modules if name.startswith('batonpass.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("simserver.balls:Balls", Balls),
        ("scenarios.airspace:Airspace", Airspace),
        ("authority.placement:relieve", relieve),
    ],
)
def test_what_configurations_name_is_found_by_its_former_name_too(
    former: str, now: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert import_named("a world", former, "ClassName") is now
    assert f"a world: it is called {now.__module__}:{now.__name__} now" in caplog.text


def test_a_wheel_holds_one_package_which_nothing_in_the_current_folder_can_disturb(tmp_path: Path) -> None:
    source, wheels, site, here = (tmp_path / name for name in ("source", "wheels", "site", "here"))
    left_out = shutil.ignore_patterns(".*", "build", "run", "*.egg-info", "__pycache__", "tests", "docs")
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source)], check=True)
    (wheel,) = wheels.glob("batonpass-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(site)
    assert {name.split("/")[0] for name in names} == {"batonpass", wheel.name.split("-py3")[0] + ".dist-info"}
    for room in ROOMS:
        assert f"batonpass/{room}/__init__.py" in names
    assert {"batonpass/py.typed", "batonpass/scenarios/report/page.html.jinja"} <= set(names)
    page = ("game.html", "game.css", "page.js", "fireflies.js", "events.js")
    assert {f"batonpass/simserver/sync/browser/{name}" for name in page} <= set(names)
    assert {f"batonpass/homeserver/overview/page/{name}" for name in {*dashboard_files()} - {"client.js"}} <= set(names)
    here.mkdir()
    for room in ROOMS:
        (here / f"{room}.py").write_text("raise RuntimeError('a module of somebody else')\n")
    program = "import batonpass; print(batonpass.__file__); from batonpass.scenarios.cli.entry import main; main()"
    command = [sys.executable, "-c", program, "up", "--help"]
    done = subprocess.run(command, cwd=here, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(site))
    assert "Usage: " in done.stdout


# ---- what it needs ----

SERVED = (
    "actors",
    "authority",
    "batonpass/client",
    "batonpass/opentelemetry.py",
    "crypto",
    "homeserver",
    "simserver",
    "tree",
)


def needed() -> dict[str, Requirement]:
    """What the package says it needs at run time, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = (
        *project["dependencies"],
        *project["optional-dependencies"]["metrics"],
        *project["optional-dependencies"]["otel"],
    )
    return {canonicalize_name(one.name): one for one in map(Requirement, declared)}


def imported_libraries() -> dict[tuple[str, ...], str]:
    """The libraries that servers and the client import, each with a file that does; several may share a name."""
    of_module = packages_distributions()
    found: dict[tuple[str, ...], str] = {}
    for part in SERVED:
        for file in (ROOT / part).rglob("*.py") if (ROOT / part).is_dir() else (ROOT / part,):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in names:
                    top = name.partition(".")[0]
                    if top not in sys.stdlib_module_names and top != "batonpass":
                        libraries = sorted(set(map(canonicalize_name, of_module.get(top, [top]))))
                        found[tuple(libraries)] = str(file.relative_to(ROOT))
    return found


def test_every_library_that_is_imported_is_declared() -> None:
    """One that comes with another is there in whatever version that one takes."""
    assert {names: file for names, file in imported_libraries().items() if needed().keys().isdisjoint(names)} == {}


def test_every_library_has_a_floor_and_a_bound_above_it() -> None:
    for name, one in needed().items():
        operators = {specifier.operator for specifier in one.specifier}
        assert operators in ({"=="}, {">=", "<"}), name
        assert one.specifier.contains(version(name)), f"{name} {version(name)} is what the tests run with"


def test_make_lowest_tries_the_floor_of_every_library_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tried = [Requirement(line) for line in lowest(project)]
    declared = [Requirement(line) for line in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    assert [one.name for one in tried] == [one.name for one in declared]
    for one, of in zip(tried, declared, strict=True):
        (floor,) = one.specifier
        assert of.specifier.contains(floor.version), of
    with pytest.raises(ValueError, match="no lowest version"):
        lowest({"dependencies": ["trio<1"], "optional-dependencies": {"dev": []}})
