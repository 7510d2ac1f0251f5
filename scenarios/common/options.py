"""Kinds of values on the command line that click does not have."""

import math
import secrets
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from batonpass.authority.names import BadName, check_name

__all__ = [
    "FiniteRange",
    "QualifiedName",
    "html_file_option",
    "json_file_option",
    "output_file",
    "telemetry_handler_option",
]


class FiniteRange(click.FloatRange):
    """A number in a range; unlike click's, it does not take `nan`, which is in every range and in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number in the range {self._describe_range()}.", param, ctx)
        return number


class QualifiedName(click.types.StringParamType):
    """A name of a server or player: what is none would stand in a URL and be a path there."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error."""
        try:
            return check_name(value)
        except BadName as error:
            self.fail(str(error), param, ctx)


def output_file(_ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """A callback: refuse, before a long run, a file that could not be written after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.parent} to write {path.name} into", param=param)
    return path


def html_file_option(help_: str = "Write the report as one HTML page that opens offline.") -> Callable[[Any], Any]:
    """`--html FILE`, which the command gets as `html_file`."""
    kind = click.Path(dir_okay=False, writable=True, path_type=Path)
    return click.option("--html", "html_file", type=kind, callback=output_file, help=help_)


def json_file_option(help_: str = "Also write it as JSON.") -> Callable[[Any], Any]:
    """`--json FILE`, which the command gets as `json_file`; without FILE, or as `-`, it is for stdout.

    Then everything else that the command prints goes to stderr, so that programs can read what comes from stdout.
    Otherwise the last line on stdout says where the JSON is. No command says so itself: what it gets for stdout is a
    file that goes away.
    """
    kind = click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path)
    text = f"{help_} To stdout without FILE; tables go to stderr then."
    shape: dict[str, Any] = {"type": kind, "metavar": "[FILE]", "is_flag": False, "flag_value": "-"}
    return click.option("--json", "json_file", callback=_json_file, help=text, **shape)


def _json_file(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """A callback: where to write. What is for stdout is written to a file of its own, and shown when all is done."""
    if path is None or str(path) != "-":
        path = output_file(ctx, param, path)
        if path is not None:
            ctx.call_on_close(partial(_say_where, path, _stamp(path)))
        return path
    stdout, sys.stdout = sys.stdout, sys.stderr
    # Nothing is there before the command writes it: options after this one may be wrong.
    path = Path(tempfile.gettempdir()) / f"baton-json-{secrets.token_hex(16)}"

    def show() -> None:
        sys.stdout = stdout
        if path.exists():
            click.echo(path.read_text(encoding="utf-8"), nl=False)
            path.unlink()

    ctx.call_on_close(show)
    return path


def _stamp(path: Path) -> tuple[int, int] | None:
    """Differs as soon as the file is written."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _say_where(path: Path, before: tuple[int, int] | None) -> None:
    """Nothing, where the command has ended before it wrote anything."""
    if _stamp(path) != before:
        click.echo(f"JSON report: {path}")


def telemetry_handler_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--telemetry-handler FUNCTION`, several times, as `telemetry_handlers`; None if not given, `""` names none."""
    return click.option(
        "--telemetry-handler",
        "telemetry_handlers",
        multiple=True,
        metavar="MODULE:FUNCTION",
        callback=lambda _ctx, _param, given: tuple(filter(None, given)) if given else None,
        help="Listens to the telemetry of all servers but relays; '' for none.",
    )(command)
