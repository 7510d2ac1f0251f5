"""Every `baton` command that a page shows is one that the program takes: its name, its options and their values."""

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import click
import pytest

from batonpass.scenarios.cli.main import cli
from tests.docs.commands import CURRENT, Command, commands
from tests.docs.pages import name_of, prose

ABOUT_FILES: Final = re.compile(r"does not exist|is not a file|is a file|is a directory|cannot read")


def arguments_of(command: str) -> list[str] | None:
    """The words behind `baton` of what is typed at a prompt; None if it is another command."""
    if not command.startswith("baton "):
        return None
    return shlex.split(re.split(r" [|>&] ?", command.replace("\\\n", " "))[0], comments=True)[1:]


def why_refused(arguments: list[str]) -> str:
    """What the program says against `arguments`; empty if it takes them. Nothing is run, and no file looked for."""
    command: click.Command = cli
    # A command remembers its options for help as it was first asked, for all that come after this.
    context = click.Context(cli, info_name="baton", **cli.context_settings)
    words = list(arguments)
    try:
        while isinstance(command, click.Group) and words:
            if words[0].startswith("-"):
                break
            name, found, words = command.resolve_command(context, words)
            assert found is not None
            command, context = found, click.Context(found, info_name=name, parent=context)
        if not isinstance(command, click.Group):
            command.make_context(context.info_name, words, parent=context.parent)
    except click.exceptions.Exit:
        return ""
    except click.UsageError as error:
        said = error.format_message()
        return "" if ABOUT_FILES.search(said) else said
    return ""


@pytest.fixture(autouse=True)
def told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the pages have readers do: which server is asked, and with which tokens, stands in the environment."""
    monkeypatch.setenv("BATON_URL", "http://127.0.0.1:17103")
    for name in ("BATON_TOKEN_FILE", "BATON_OPERATOR_TOKEN_FILE", "BATON_KEYS"):
        monkeypatch.setenv(name, "alpha.token")


def shown_in(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands of a page's blocks, each with its place."""
    for one in commands(page):
        arguments = arguments_of(one.text)
        if arguments is not None:
            yield one.place, arguments


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_each_command_of_a_page_is_one(page: Path) -> None:
    refused = {f"{place}: {' '.join(words)}": why_refused(words) for place, words in shown_in(page)}
    assert {shown: why for shown, why in refused.items() if why} == {}


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_each_command_that_a_sentence_names_is_one(page: Path) -> None:
    """With its options if it has any; what a sentence leaves out, as the server that a command asks, is not missed."""
    refused = {}
    for shown in re.findall(r"`baton ([a-z][^`…]*)`", prose(page.read_text(encoding="utf-8"))):
        words = [re.sub(r"^[A-Z]+$", "alpha.s1", word) for word in shlex.split(" ".join(shown.split()))]
        for alternatives in product(*(word.split("|") for word in words)):
            why = why_refused(list(alternatives))
            if why and not why.startswith("Missing "):
                refused[shown] = why
    assert refused == {}


def test_a_command_on_several_lines_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "baton up \\\n    --world a:B \\\n    --world-option 'x=[1,\n    2]'"
    page = tmp_path / "page.md"
    page.write_text(f"```console\n$ {typed}\nit's up\n$ baton down  # its end\n```\n", encoding="utf-8")
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    assert list(commands(page)) == [
        Command("page.md", 2, typed, "it's up"),
        Command("page.md", 7, "baton down  # its end", ""),
    ]
    assert arguments_of(typed) == ["up", "--world", "a:B", "--world-option", "x=[1,\n    2]"]


def test_there_are_commands() -> None:
    assert sum(len(list(shown_in(page))) for page in CURRENT) > 90


@pytest.mark.parametrize(
    "line",
    ["baton drian alpha.s1", "baton up --instnaces alpha:3", "baton cluster transfr", "baton up --simservers many"],
)
def test_a_command_that_there_is_not_is_refused(line: str) -> None:
    arguments = arguments_of(line)
    assert arguments is not None
    assert why_refused(arguments)


def test_what_is_said_of_a_command_is_no_part_of_it() -> None:
    assert arguments_of("baton up --play    # a world") == ["up", "--play"]
    assert arguments_of("make run") is None
