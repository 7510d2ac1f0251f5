"""The distribution is one package, `batonpass`, and takes no other name from the programs beside it."""

import logging
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

import batonpass
from batonpass.authority.node.plugins import import_named
from batonpass.authority.placement.policy import relieve
from batonpass.scenarios.sectors.world import Airspace
from batonpass.simserver.world.demo_balls import Balls

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
    here.mkdir()
    for room in ROOMS:
        (here / f"{room}.py").write_text("raise RuntimeError('a module of somebody else')\n")
    program = "import batonpass; print(batonpass.__file__); from batonpass.scenarios.cli.entry import main; main()"
    command = [sys.executable, "-c", program, "up", "--help"]
    done = subprocess.run(command, cwd=here, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(site))
    assert "Usage: " in done.stdout
