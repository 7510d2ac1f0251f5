"""`baton put-aside`: what a simulation server was told to give up, as it is kept on its disk."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.remote.connection import print_table, table
from batonpass.simserver.durability.put_aside import Aside, read_aside
from batonpass.simserver.entity.snapshot import EntitySnapshot

__all__ = ["put_aside"]


@click.command(short_help="What a simulation server was told to give up, on its disk.")
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Of the simulation server, as in its configuration.",
)
@click.option("--entity", metavar="ENTITY", help="This one alone, and with its state.")
@click.option("--json", "json_wanted", is_flag=True, help="As JSON lines.")
def put_aside(directory: Path, entity: str | None, json_wanted: bool) -> int:
    """Show what a server had of entities and gave up, because the log of their home does not say that it is its own.

    The server may run. Nothing is changed. A file that is not wanted any more may be removed while the server is
    stopped. The oldest go by themselves beyond 16,384 files or 512 MiB.

    \b
    Examples:
      baton put-aside --dir playground/alpha.s1/state
      baton put-aside --dir playground/alpha.s1/state --entity alpha.ball-0 --json
    """
    if not any((directory / name).exists() for name in ("put_aside", "lease.json")):
        raise EnvironmentFailed(f"{directory} is not where a simulation server keeps its state: give its `directory`")
    some = [(path, one) for path, one in read_aside(directory / "put_aside") if entity in (None, one.entity)]
    some.sort(key=lambda pair: (pair[1].entity, pair[1].fence))
    if entity is not None and not some:
        raise EnvironmentFailed(f"nothing of {entity} is put aside in {directory / 'put_aside'}")
    if json_wanted:
        for path, one in some:
            click.echo(json.dumps(_row(path, one, with_state=entity is not None)))
        return 0
    listing = table(f"Put aside in {directory / 'put_aside'}", "entity", "fence", "tick", "when", "bytes", "file")
    for path, one in some:
        when = datetime.fromtimestamp(one.at_s, UTC).isoformat(" ", "seconds")
        listing.add_row(one.entity, f"{one.epoch:,}.{one.sub}", f"{one.tick:,}", when, f"{len(one.state):,}", path.name)
    print_table(listing)
    if entity is not None:
        for _, one in some:
            click.echo(f"{one.epoch:,}.{one.sub}: {one.why}\n{_state_of(one)}")
    return 0


def _state_of(one: Aside) -> str:
    try:
        return repr(EntitySnapshot.decode(one.state).world)
    except Exception as error:  # what a world gave once may be read in no other way than as bytes
        return f"the state cannot be read ({type(error).__name__}); --json has its bytes"


def _row(path: Path, one: Aside, *, with_state: bool) -> dict[str, Any]:
    row = {"entity": one.entity, "epoch": one.epoch, "sub": one.sub, "tick": one.tick, "at_s": one.at_s}
    row |= {"why": one.why, "state_hash": one.state_hash, "file": str(path)}
    return row | {"state": one.state.hex()} if with_state else row
