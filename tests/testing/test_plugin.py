"""The plugin as somebody has it who installs batonpass: everything in docs/guides/testing.md is run."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.scenarios.asked import limited

pytest_plugins = "pytester"
pytestmark = limited

PLUGIN = "batonpass.testing.plugin"
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
WORLD, TICKED, KILLED, SHARED = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("block", [TICKED, KILLED, SHARED], ids=["ticked", "killed", "shared"])
def test_what_the_page_says_passes(pytester: pytest.Pytester, block: str) -> None:
    pytester.makepyfile(counters=WORLD, test_it=block)
    pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:xdist", "-p", "no:timeout").assert_outcomes(passed=1)


def test_a_server_that_is_paused_hangs_and_goes_on(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_pauses(baton_cluster):
            assert baton_cluster.servers == ["alpha.h1", "alpha.s1", "alpha.s2"]
            baton_cluster.spawn("alpha.ball-1", "ball", owner="alpha.ada", server="alpha.s1")
            baton_cluster.pause("alpha.s1")
            baton_cluster.until(lambda: baton_cluster.authority("alpha.ball-1") == "alpha.s2")
            baton_cluster.resume("alpha.s1")
            baton_cluster.move("alpha.ball-1", "alpha.s1")
    """)
    pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:xdist", "-p", "no:timeout").assert_outcomes(passed=1)


def test_the_plugin_is_there_where_batonpass_is_installed_and_imports_nothing_yet() -> None:
    code = f"import sys, {PLUGIN}; print(sorted(n for n in sys.modules if n.startswith('batonpass')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(["batonpass", "batonpass.testing", PLUGIN])
    names = {each.name: each.value for each in entry_points(group="pytest11")}
    assert names.get(PLUGIN, PLUGIN) == PLUGIN
