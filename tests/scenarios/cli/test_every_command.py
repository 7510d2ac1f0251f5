"""What holds of every command: it explains itself and each option, has `--json`, and refuses others with status 2."""

from typing import Final

import click
import pytest

from tests.docs.site.references import commands
from tests.scenarios.commands import baton_command

ALL: Final = dict(commands())
RUN: Final = {name: command for name, command in ALL.items() if not isinstance(command, click.Group)}
# What they print is for programs already, or a log.
WITHOUT_JSON: Final = {
    "baton completion": "a script for a shell",
    "baton homeserver": "a server",
    "baton simserver": "a server",
    "baton relay": "a server",
    "baton keys export": "keys, in a form of one's choice",
    "baton player sign": "a proof",
    "baton tree export": "nodes, as lines of JSON",
    "baton tree tx": "results, as JSON",
    "baton logs": "lines of logs",
}


@pytest.mark.parametrize("name", ALL)
def test_a_command_explains_itself_and_every_option(name: str) -> None:
    command = ALL[name]
    assert command.help
    assert command.get_short_help_str()
    unsaid = [one.name for one in command.params if isinstance(one, click.Option) and not one.help and not one.hidden]
    assert unsaid == []


def test_every_command_has_json_but_for_those_whose_output_is_for_programs_or_a_log() -> None:
    without = {
        name
        for name, command in RUN.items()
        if not any("--json" in one.opts for one in command.params if isinstance(one, click.Option))
    }
    assert without == set(WITHOUT_JSON)


def test_every_command_has_help_and_takes_no_option_that_it_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    baton = baton_command(capsys)
    for name in ALL:
        words = name.split()[1:]
        for flag in ("--help", "-h"):
            status, out, err = baton(*words, flag)
            assert (status, err) == (0, ""), name
            assert out.startswith(f"Usage: {name} "), name
        status, out, err = baton(*words, "--no-such-option")
        assert (status, out) == (2, ""), name
        assert err.startswith("baton: "), name
        assert err.count("\n") == 1, name
