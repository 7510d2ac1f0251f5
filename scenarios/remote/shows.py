"""`baton shows`: the shows of a running instance, nodes of them that an operator holds, and RESET."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, print_table, show, table

__all__ = ["hold", "list_shows", "release", "reset"]

_SIMSERVER: Final = "simserver"
_as_json = click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
_url = click.option(
    "--url", envvar="BATON_URL", show_envvar=True, required=True, metavar="URL", help="Of a homeserver's REST."
)
_token_file = click.option(
    "--token-file",
    envvar="BATON_OPERATOR_TOKEN_FILE",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="With the operator token of the simulation servers; that of homeservers is another one.",
)
_timeout = click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1, max=600.0),
    default=30.0,
    metavar="SECONDS",
    help="For an answer. [default: 30]",
)


@click.command(name="list", short_help="Each node's part in the shows: controller, newest frame, engine.")
@click.option("--json", "json_wanted", is_flag=True, help="The servers' answers as JSON, by server.")
@_url
@_token_file
@_timeout
def list_shows(url: str, token_file: Path | None, timeout_s: float, json_wanted: bool) -> int:
    """Show what each simulation server of the instance knows of the shows in which it takes part.

    Needs no token, and shows none to a server. The exit status is 1 if one of them does not answer.

    \b
    Examples:
      baton shows list
      baton shows list --json
    """
    del token_file
    views: dict[str, Any] = {}
    silent: dict[str, str] = {}
    with RemoteServer(url, None, timeout_s) as home:
        servers = {row["name"]: row["rest_url"] for row in home.call("GET", "/v1/servers") if row["role"] == _SIMSERVER}
    for name, rest_url in sorted(servers.items()):
        try:
            with RemoteServer(rest_url, None, timeout_s) as server:
                views[name] = server.call("GET", "/v1/local/shows")
        except EnvironmentFailed as error:
            silent[name] = str(error)
    if json_wanted:
        show(views)
    elif any(views.values()):
        print_table(_table(views))
    else:
        click.echo("no server takes part in a show")
    for sentence in silent.values():
        click.echo(f"baton: {sentence}", err=True)
    return 1 if silent else 0


def _table(views: dict[str, Any]) -> Any:
    made = table("shows", "show", "node", "controller", "newest frame", "engine", "frames not applied", "held")
    for name, shows in views.items():
        for each in shows:
            engine = each["engine"]
            made.add_row(
                each["entity"],
                name,
                "itself" if each["is_controller"] else each["controller"] or "not known",
                "none" if each["newest"] is None else f"{each['newest']:,}",
                f"{engine['state']}: {engine['error']}" if engine["error"] else engine["state"],
                f"{each['not_applied']:,}",
                ", ".join(each["held"]),
            )
    return made


def _of_a_node(command: Callable[..., int]) -> Callable[..., int]:
    """The arguments and options of what is done with one node of one show."""
    options = (
        click.argument("entity", metavar="SHOW", type=QualifiedName()),
        click.argument("node", metavar="SERVER", type=QualifiedName()),
        _as_json,
        _url,
        _token_file,
        _timeout,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="Have a node of a show ignored, until it is released.")
@_of_a_node
def hold(entity: str, node: str, **flags: Any) -> int:
    """Have the controller of SHOW send nothing to SERVER and ignore what it sends, until it is released.

    The show remembers it through failovers. A node that is given the show all the same, because it was the last one,
    is released by that.

    \b
    Example:
      baton shows hold alpha.show-wall alpha.s2
    """
    return _ask_controller(entity, f"nodes/{node}/hold", f"{node} is held in {entity}", **flags)


@click.command(short_help="Have a node of a show take part again.")
@_of_a_node
def release(entity: str, node: str, **flags: Any) -> int:
    """Have the controller of SHOW hear SERVER again, which takes part from the next full state on.

    \b
    Example:
      baton shows release alpha.show-wall alpha.s2
    """
    return _ask_controller(entity, f"nodes/{node}/release", f"{node} is released in {entity}", **flags)


@click.command(short_help="Have every engine of a show forget what was before.")
@click.argument("entity", metavar="SHOW", type=QualifiedName())
@_as_json
@_url
@_token_file
@_timeout
def reset(entity: str, **flags: Any) -> int:
    """Have the next frame of SHOW be a RESET, as after a jump in its timeline. Local time begins anew at 0, and every
    node forgets its last state, images and interaction data.

    \b
    Example:
      baton shows reset alpha.show-wall
    """
    return _ask_controller(entity, "reset", f"the next frame of {entity} is a RESET", **flags)


def _ask_controller(
    entity: str,
    act: str,
    done: str,
    *,
    url: str,
    token_file: Path | None,
    timeout_s: float,
    json_wanted: bool,
) -> int:
    """At the server with authority over the show; the homeserver does not see its token."""
    with RemoteServer(url, None, timeout_s) as home:
        name = home.call("GET", f"/v1/entities/{entity}")["authority"]
        if not name:
            raise EnvironmentFailed(f"no server has authority over {entity} now: see `baton why {entity}`")
        rest_url = home.call("GET", f"/v1/servers/{name}")["rest_url"]
    with RemoteServer(rest_url, token_file, timeout_s) as controller:
        answer = controller.call("POST", f"/v1/local/shows/{entity}/{act}")
    if json_wanted:
        show(answer)
    else:
        click.echo(done)
    return 0
