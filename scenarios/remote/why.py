"""`baton why`: what keeps an entity from running, and what to do about it."""

from functools import partial

import click

from batonpass.scenarios.common.options import QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, remote_options, show

__all__ = ["why"]

_reader = partial(remote_options, "the operator token; none is needed", "BATON_OPERATOR_TOKEN_FILE")


@click.command(short_help="Why an entity does not run, and what to do about it.")
@click.argument("entity", type=QualifiedName())
@click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
@_reader()
def why(server: RemoteServer, entity: str, json_wanted: bool) -> int:
    """Say whether ENTITY runs, and if not, which one cause is to be seen to first, and what to do.

    Ask a homeserver of the instance that the entity's name begins with. It looks into its log and asks the simulation
    server that has authority. The first line is the state, the second the cause, the third the remedy. Needs no token.

    \b
    Exit status:
      0  the entity runs
      1  it does not; or another instance is its home (the error names it)
      2  wrong usage
      3  the homeserver cannot be reached, or cannot answer: ask another one

    \b
    Causes (docs/reference/operations.md has a table): runs, frozen, on_its_way, quarantined, untaken, suspended,
    unleased, unreachable, not_there, recovering, waits_for_disk, waits_for_return, waits_for_copies, lost,
    log_went_back, no_majority, deleted, not_known.

    \b
    Examples:
      baton why alpha.ball-1
      baton why alpha.ball-1 --json | jq -r .cause
    """
    view = server.call("GET", f"/v1/entities/{entity}/why")
    if json_wanted:
        show(view)
        return 0 if view["runs"] else 1
    state = "runs" if view["runs"] else f"does not run: {view['cause']}"
    about = f", transfer {view['transfer_id']}" if view["transfer_id"] else ""
    since = "" if view["since_s"] is None else f", for {view['since_s']:.1f} s"
    click.echo(f"{entity} {state}{about}{since} (epoch {view['epoch']}, as {view['told_by']} sees it)")
    click.echo(f"cause:  {view['text']}")
    click.echo(f"remedy: {view['remedy']}")
    return 0 if view["runs"] else 1
