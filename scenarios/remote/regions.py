"""`baton regions`: which simulation server of a running instance has which part of space."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Final

import click

from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, table

__all__ = ["begin", "end", "merge", "move", "picture", "show_regions", "split"]

_operator = partial(remote_options, "the operator token", "BATON_OPERATOR_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
_if_revision = click.option(
    "--if-revision", "revision", type=click.IntRange(min=0), help="Refuse if the table has another revision by now."
)
_LETTERS: Final = ascii_uppercase + ascii_lowercase + digits
_WIDTH, _HEIGHT = 60, 16
_PICTURED_AXES: Final = 2
_Cells = Sequence[Mapping[str, Any]]


class _Corner(click.ParamType[Any]):
    """Numbers with commas between them."""

    name = "X[,Y[,Z]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        try:
            numbers = [float(part) for part in str(value).split(",")]
        except ValueError:
            numbers = [math.nan]
        if not all(map(math.isfinite, numbers)):
            self.fail(f"{value!r} is not of the form 0,100: numbers with commas between them", param, ctx)
        return numbers


@click.command("show", short_help="The cells, their servers, and a picture.")
@_as_json
@_operator()
def show_regions(server: RemoteServer, json_wanted: bool) -> int:
    """Show which part of space each simulation server has. Needs no token.

    Space of one or two axes is drawn, a letter for each server; the outer cells continue without end.

    \b
    Examples:
      baton regions show
      baton regions show --json | jq '.cells[].server'
    """
    _tell(server.call("GET", "/v1/regions"), json_wanted)
    return 0


@click.command(short_help="Share space among simulation servers.")
@click.argument("servers", metavar="SERVER...", nargs=-1, required=True, type=QualifiedName())
@click.option("--axes", type=click.IntRange(1, 3), default=2, show_default=True, help="Numbers of a position.")
@click.option("--low", type=_Corner(), help="The lowest corner of a box that is shared evenly.")
@click.option("--high", type=_Corner(), help="The opposite corner.")
@click.option(
    "--margin",
    type=FiniteRange(min=0.0),
    default=0.0,
    help="An entity leaves only when it is this far beyond the cells of its server. [default: 0]",
)
@click.option(
    "--hold",
    "hold_s",
    type=FiniteRange(min=0.0, max=3600.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long an entity stays on a server at least.",
)
@click.option(
    "--if-revision",
    "revision",
    type=click.IntRange(min=0),
    default=0,
    help="Replace the table that has this revision. [default: there must be none]",
)
@_as_json
@_operator()
def begin(
    server: RemoteServer,
    servers: Sequence[str],
    axes: int,
    low: list[float] | None,
    high: list[float] | None,
    margin: float,
    hold_s: float,
    revision: int,
    json_wanted: bool,
) -> int:
    """Have a table of regions: a box of space is shared evenly among SERVERs, and the outer cells continue without end.

    The entities of a world that has `position` and no `destination` go to the server of the cell that they are in.
    One SERVER has all of space, until cells are split.

    \b
    Examples:
      baton regions begin alpha.s1
      baton regions begin alpha.s1 alpha.s2 alpha.s3 alpha.s4 --low 0,0 --high 100,100 --margin 1
    """
    body = {
        "axes": axes,
        "servers": list(servers),
        "low": low or [],
        "high": high or [],
        "margin": margin,
        "hold_s": hold_s,
        "revision": revision,
    }
    _tell(server.call("PUT", "/v1/regions", json=body), json_wanted)
    return 0


@click.command(short_help="Have no table of regions any more.")
@_as_json
@_operator()
def end(server: RemoteServer, json_wanted: bool) -> int:
    """Have no table of regions any more: entities stay where they are."""
    _tell(server.call("DELETE", "/v1/regions"), json_wanted)
    return 0


@click.command(short_help="Cut a cell in two.")
@click.argument("cell")
@click.option("--axis", type=click.IntRange(0, 2), required=True, help="Along which axis: 0, 1 or 2.")
@click.option("--at", type=FiniteRange(), required=True, metavar="COORDINATE", help="Where the border is.")
@click.option("--low", type=QualifiedName(), help="The server of the low half. [default: that of the cell]")
@click.option("--high", type=QualifiedName(), help="The server of the high half. [default: that of the cell]")
@_if_revision
@_as_json
@_operator()
def split(
    server: RemoteServer,
    cell: str,
    axis: int,
    at: float,
    low: str | None,
    high: str | None,
    revision: int | None,
    json_wanted: bool,
) -> int:
    """Cut CELL in two; the halves are called as it with a 0 and a 1 after it.

    \b
    Example:
      baton regions split c0 --axis 1 --at 50 --high alpha.s2
    """
    body = {"axis": axis, "at": at, "low": low, "high": high, "revision": revision}
    _tell(server.call("POST", f"/v1/regions/{cell}/split", json=body), json_wanted)
    return 0


@click.command(short_help="Make one cell of two halves.")
@click.argument("cell")
@click.option("--server", "server_name", type=QualifiedName(), help="Its server. [default: that of the low half]")
@_if_revision
@_as_json
@_operator()
def merge(server: RemoteServer, cell: str, server_name: str | None, revision: int | None, json_wanted: bool) -> int:
    """Make one cell, called CELL, of its two halves.

    \b
    Example:
      baton regions merge c0 --server alpha.s1
    """
    body = {"server": server_name, "revision": revision}
    _tell(server.call("POST", f"/v1/regions/{cell}/merge", json=body), json_wanted)
    return 0


@click.command(short_help="Give a cell to another server.")
@click.argument("cell")
@click.argument("server_name", metavar="SERVER", type=QualifiedName())
@_if_revision
@_as_json
@_operator()
def move(server: RemoteServer, cell: str, server_name: str, revision: int | None, json_wanted: bool) -> int:
    """Give CELL to SERVER; the entities in it follow.

    \b
    Example:
      baton regions move c01 alpha.s3
    """
    body = {"server": server_name, "revision": revision}
    _tell(server.call("POST", f"/v1/regions/{cell}/move", json=body), json_wanted)
    return 0


def _tell(view: dict[str, Any], json_wanted: bool) -> None:
    if json_wanted:
        show(view)
        return
    cells = view["cells"]
    if not cells:
        click.echo("there is no table of regions; begin one with `baton regions begin`")
        return
    if view["axes"] <= _PICTURED_AXES:
        click.echo("\n".join(picture(cells)))
    names = _letters(cells)
    click.echo(f"revision {view['revision']}: {len(cells)} cells, margin {view['margin']:g}, hold {view['hold_s']:g} s")
    listing = table(
        "", "", "cell", "server", "entities", "ticks take", *(f"axis {axis}" for axis in range(view["axes"]))
    )
    for cell in cells:
        sides = zip(cell["low"], cell["high"], strict=True)
        known = cell["entities"] is not None
        entities, takes = (f"{cell['entities']:,}", f"{100 * cell['tick_fraction']:.1f} %") if known else ("", "")
        row = (names[cell["server"]], cell["cell"], cell["server"], entities, takes)
        listing.add_row(*row, *(_side(*side) for side in sides))
    print_table(listing)
    if view["leads"] and view["counts"]:
        click.echo(", ".join(f"{name} {count:,}" for name, count in sorted(view["counts"].items())))


def _side(low: float | None, high: float | None) -> str:
    return f"{'…' if low is None else f'{low:g}'} to {'…' if high is None else f'{high:g}'}"


def _letters(cells: _Cells) -> dict[str, str]:
    """A letter for each server, in the order of their names; those beyond the alphabet share one."""
    servers = sorted({cell["server"] for cell in cells})
    return {server: _LETTERS[number] if number < len(_LETTERS) else "*" for number, server in enumerate(servers)}


def picture(cells: _Cells) -> list[str]:
    """Lines with the letter of the server at each place; of two axes the second one points up.

    Shown is the box around all borders, and a fifth of it beyond on each side.
    """
    letters, axes = _letters(cells), len(cells[0]["low"])
    across = _places([cell["low"][0] for cell in cells], _WIDTH)
    up = _places([cell["low"][1] for cell in cells], _HEIGHT) if axes > 1 else [0.0]
    lines = []
    for y in reversed(up):
        places = ((x, y)[:axes] for x in across)
        lines.append("".join(letters[_server_at(cells, place)] for place in places))
    return lines


def _places(borders: Sequence[float | None], count: int) -> list[float]:
    """The middles of `count` equal parts of what is shown along an axis."""
    finite = [at for at in borders if at is not None]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    beyond = (high - low) / 5 or max(1.0, abs(low))
    low, high = low - beyond, high + beyond
    return [low + (high - low) * (number + 0.5) / count for number in range(count)]


def _server_at(cells: _Cells, place: Sequence[float]) -> str:
    for cell in cells:
        sides = zip(cell["low"], place, cell["high"], strict=True)
        if all((low is None or low <= at) and (high is None or at < high) for low, at, high in sides):
            found: str = cell["server"]
            return found
    raise ValueError(f"no cell is at {place}")
