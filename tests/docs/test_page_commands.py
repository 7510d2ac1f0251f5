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
from tests.docs.pages import PAGES, blocks, is_in, name_of, prose

CURRENT: Final = [page for page in PAGES if not is_in(page, "history")]
ABOUT_FILES: Final = re.compile(r"does not exist|is not a file|is a file|is a directory|cannot read")


def arguments_of(line: str) -> list[str] | None:
    """The words behind `baton` on a line of a page; None if it is no such line. Two blanks begin what is said of it."""
    found = re.match(r"\s*\$?\s*(?:\.venv/bin/)?baton ((?:'[^']*'|\S| (?! |#))+)", line)
    if found is None or "..." in found[1] or "…" in found[1]:
        return None
    return shlex.split(re.split(r" [|>&] ?", found[1])[0], comments=True)


def why_refused(arguments: list[str]) -> str:
    """What the program says against `arguments`; empty if it takes them. Nothing is run, and no file looked for."""
    command: click.Command = cli
    context = click.Context(cli, info_name="baton")
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


def whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a block, with their numbers: one that ends in a backslash or a quotation goes with the next."""
    whole, began = "", 0
    for number, line in enumerate(text.splitlines()):
        whole, began = (f"{whole} {line.strip()}", began) if whole else (line, number)
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip()
        elif "baton " not in whole or re.split(r"  +|#", whole.strip())[0].count("'") % 2 == 0:
            yield began, whole
            whole = ""
    if whole:
        yield began, whole


def shown_in(page: Path) -> Iterator[tuple[int, list[str]]]:
    """The commands of a page's blocks, each with its line."""
    for block in blocks(page):
        if block.language in {"", "console", "bash", "sh"}:
            for number, line in whole_lines(block.text):
                arguments = arguments_of(line)
                if arguments is not None:
                    yield block.line + 1 + number, arguments


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_each_command_of_a_page_is_one(page: Path) -> None:
    refused = {f"line {line}: {' '.join(words)}": why_refused(words) for line, words in shown_in(page)}
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


def test_a_command_on_several_lines_is_one() -> None:
    text = "$ baton up \\\n    --world a:B \\\n    --world-option 'x=[1,\n    2]'\nit's up"
    assert list(whole_lines(text)) == [(0, "$ baton up --world a:B --world-option 'x=[1, 2]'"), (4, "it's up")]
    said = "$ baton up  # one's own\n$ baton down"
    assert list(whole_lines(said)) == list(enumerate(said.splitlines()))


def test_there_are_commands() -> None:
    assert sum(len(list(shown_in(page))) for page in CURRENT) > 90


@pytest.mark.parametrize(
    "line",
    ["baton drian alpha.s1", "baton up --instnaces alpha:3", "$ baton cluster transfr", "baton up --simservers many"],
)
def test_a_command_that_there_is_not_is_refused(line: str) -> None:
    arguments = arguments_of(line)
    assert arguments is not None
    assert why_refused(arguments)


def test_what_is_said_of_a_command_is_no_part_of_it() -> None:
    assert arguments_of("baton drain alpha.s1      move everything away") == ["drain", "alpha.s1"]
    assert arguments_of("$ baton up --play    # a world") == ["up", "--play"]
    assert arguments_of("baton is a program") == ["is", "a", "program"]
    assert arguments_of("the baton is passed") is None
