"""Kinds of values on the command line that click does not have."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from authority.names import BadName, check_name

__all__ = ["FiniteRange", "QualifiedName", "json_file_option", "output_file", "telemetry_handler_option"]


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


def json_file_option(help_: str = "Also write it as JSON.") -> Callable[[Any], Any]:
    """`--json FILE`, which the command gets as `json_file`."""
    kind = click.Path(dir_okay=False, writable=True, path_type=Path)
    return click.option("--json", "json_file", type=kind, callback=output_file, help=help_)


def telemetry_handler_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--telemetry-handler FUNCTION`, several times, as `telemetry_handlers`; None if not given, `""` names nobody."""
    return click.option(
        "--telemetry-handler",
        "telemetry_handlers",
        multiple=True,
        metavar="MODULE:FUNCTION",
        callback=lambda _ctx, _param, given: tuple(filter(None, given)) if given else None,
        help="Listens to the telemetry of all servers but relays; '' for nobody.",
    )(command)
