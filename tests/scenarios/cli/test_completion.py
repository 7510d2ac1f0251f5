"""Completion in a shell: every command and option, and none of their modules is imported for it."""

import json
import subprocess
import sys

import pytest

from batonpass.scenarios.cli import main as cli
from tests.scenarios.commands import baton_command

_COMPLETE = """
import json, sys
from click.shell_completion import ShellComplete
from batonpass.scenarios.cli.main import cli
made = ShellComplete(cli, {}, "baton", "_BATON_COMPLETE")
def completed(line):
    *before, word = line.split(" ")
    return [one.value for one in made.get_completions(before, word)]
found = {line: completed(line) for line in sys.argv[1:]}
dear = ("batonpass.scenarios.remote", "batonpass.homeserver", "trio")
heavy = [name for name in sys.modules if name.startswith(dear)]
print(json.dumps([found, heavy]))
"""


def test_commands_are_completed_without_importing_any() -> None:
    lines = ("", "d", "entity ", "transfer s", "nothing", "--ver")
    done = subprocess.run([sys.executable, "-c", _COMPLETE, *lines], capture_output=True, text=True, check=True)
    found, heavy = json.loads(done.stdout)
    assert {"entity", "transfer", "doctor", "why", "up", "tree", "run"} <= set(found[""])
    assert found["d"] == ["doctor", "drain"]
    assert found["transfer s"] == ["show"]
    assert found["nothing"] == []
    assert found["--ver"] == ["--version"]
    assert heavy == []


def test_options_of_a_command_and_their_values_are_completed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMPLETE, "entity ls --st", "entity ls --standing l"],
        capture_output=True,
        text=True,
        check=True,
    )
    found, _ = json.loads(done.stdout)
    assert found == {"entity ls --st": ["--standing"], "entity ls --standing l": ["lost"]}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = baton_command(capsys)("completion", shell)
    assert (status, err) == (0, "")
    assert f"_BATON_COMPLETE={shell}_complete" in out
    assert cli.run_command(["completion", "cmd"]) == cli.BAD_USAGE
