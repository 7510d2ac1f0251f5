"""`baton` as a test runs it: in its own process, and what it said."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from batonpass.scenarios.cli import main as cli

Baton = Callable[..., tuple[int, str, str]]
"""Runs a command with these arguments; its status, what it wrote, and what it complained about."""


def baton_command(capsys: pytest.CaptureFixture[str], *first: str) -> Baton:
    """`baton`, or one command of it, whose arguments begin with `first`."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = cli.run_command([*first, *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def parsed(result: tuple[int, str, str]) -> Any:
    """The JSON that a command wrote, which found nothing wrong."""
    status, out, err = result
    assert (status, err) == (0, "")
    return json.loads(out)
