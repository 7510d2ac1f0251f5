"""Kinds of values on the command line that click does not have."""

import math
from pathlib import Path
from typing import Any

import click

__all__ = ["FiniteRange", "output_file"]


class FiniteRange(click.FloatRange):
    """A number in a range; unlike click's, it does not take `nan`, which is in every range and in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number in the range {self._describe_range()}.", param, ctx)
        return number


def output_file(_ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """A callback: refuse, before a long run, a file that could not be written after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.parent} to write {path.name} into", param=param)
    return path
