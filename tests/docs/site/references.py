"""Pages that are made from the code: the API from docstrings, the commands from their help, REST from its document."""

import ast
import json
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc, isclass, isroutine
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import click

from batonpass.homeserver.rest.api import make_app
from batonpass.scenarios.cli.main import cli
from batonpass.simserver.server.http_status import make_status_app
from tests.docs.pages import ROOT
from tests.docs.site.docstrings import as_rst
from tests.docs.site.rest_pages import rest_page

__all__ = ["commands", "documents", "public_modules", "write_references"]

REFERENCE: Final = "docs/reference"


def write_references(into: Path) -> list[str]:
    """Write all of them below `into`; their names, which are those that pages of docs/reference could have."""
    public = public_modules()
    pages = {f"api/{name}": api_page(name, names, public) for name, names in public.items()}
    pages["commands"] = commands_page()
    made = [f"{REFERENCE}/{name}.md" for name in pages]
    for title, (name, document) in documents().items():
        pages[name] = rest_page(title, document)
        made.append(f"{REFERENCE}/{name}.md")
    for name, text in pages.items():
        path = into / REFERENCE / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return made


def public_modules() -> dict[str, list[str]]:
    """The packages whose `__init__` says what is public, with the names that it gives."""
    found = {}
    for source in _inits():
        module = ".".join(source.parent.relative_to(ROOT).parts)
        names = _public(source)
        if names:
            found[module] = names
    return dict(sorted(found.items()))


def _inits() -> Iterator[Path]:
    top = ROOT / "batonpass"
    yield top / "__init__.py"
    for package in sorted(path for path in top.iterdir() if path.is_dir()):
        yield from sorted(package.rglob("__init__.py"))


def _public(source: Path) -> list[str]:
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() as value):
                names: list[str] = ast.literal_eval(value)
                return [name for name in names if not name.startswith("__")]
            case _:
                pass
    return []


def api_page(module: str, names: list[str], others: dict[str, list[str]]) -> str:
    """What a package has for programs of others, from its docstrings; what one below it has stands there."""
    of = import_module(module)
    lines = [f"# `{module}`", "", "```{eval-rst}", *as_rst(cleandoc(of.__doc__ or "").splitlines()), ""]
    for name in names:
        value = getattr(of, name)
        below = [other for other, its in others.items() if other.startswith(f"{module}.") and name in its]
        if below:
            lines += [f"``{name}``: see :py:obj:`{below[-1]}.{name}`.", ""]
        else:
            kind = "class" if isclass(value) else "function" if isroutine(value) else "data"
            kind = "exception" if kind == "class" and issubclass(value, BaseException) else kind
            lines += [f".. auto{kind}:: {module}.{name}", *(["   :members:"] if kind == "class" else []), ""]
    return "\n".join([*lines, "```", ""])


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands with their full names, as `baton entity ls`, in the order of `--help`."""
    return ((context.command_path, context.command) for context in _contexts())


def _contexts() -> Iterator[click.Context]:
    def below(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
        settings = {**command.context_settings, "terminal_width": 100}
        context = click.Context(command, info_name=name, parent=parent, **settings)
        yield context
        if isinstance(command, click.Group):
            for inner_name in command.list_commands(context):
                inner = command.get_command(context, inner_name)
                if inner is not None and not inner.hidden:
                    yield from below(inner, inner_name, context)

    yield from below(cli, "baton", None)


def commands_page() -> str:
    """What each command says at `--help`."""
    lines = ["# Commands", ""]
    lines += [
        "What each command says at `--help`. How they are used: [the command line](../guides/command-line.md).",
        "",
    ]
    for context in _contexts():
        lines += [f"## {context.command_path}", "", "```text", context.get_help(), "```", ""]
    return "\n".join(lines)


def documents() -> dict[str, tuple[str, dict[str, Any]]]:
    """The OpenAPI documents of the servers by the titles of their pages, each with the name of its page."""
    node = MagicMock()
    node.config.pages = {}
    homeserver: dict[str, Any] = make_app(node).openapi()
    simserver: dict[str, Any] = make_status_app(MagicMock(), MagicMock(), MagicMock()).openapi()
    return {
        "Routes of homeservers": ("rest-homeserver", json.loads(json.dumps(homeserver))),
        "Routes of simulation servers": ("rest-simserver", json.loads(json.dumps(simserver))),
    }
