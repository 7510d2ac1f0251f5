"""The `baton` command: clusters, scenarios, and the servers themselves.

Only what every command needs is imported at the top. Each command imports the rest when it runs, so that `--help` and
typing mistakes are answered at once.
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from batonpass.scenarios.cli.command_end import ended_by, fail, interrupted, misused
from batonpass.scenarios.cli.groups import LazyGroup
from batonpass.scenarios.cli.local_groups import bench, chaos, run, simulate, tokens
from batonpass.scenarios.cli.remote_groups import entity, player, transfer
from batonpass.scenarios.cli.server_commands import LOG_LEVEL, homeserver, key_and_value, relay, simserver
from batonpass.scenarios.common.ending import end_as_ctrl_c_does
from batonpass.scenarios.common.options import FiniteRange, telemetry_handler_option
from batonpass.scenarios.common.status import BAD_RESULT, BAD_USAGE, CLUSTER_FAILED, INTERRUPTED, OK

if TYPE_CHECKING:
    from batonpass.scenarios.cluster.topology import ClusterSpec

__all__ = ["BAD_RESULT", "BAD_USAGE", "CLUSTER_FAILED", "INTERRUPTED", "OK", "cli", "main", "run_command"]

SECONDS = FiniteRange(min=0.0, max=86_400.0)

# Those of scenarios.remote.observe, which is imported only when it is used.
_OBSERVE_ACTIONS = ("state", "replace", "suspend", "resume", "trace", "statistics", "terminate")

# What runs servers, which are told by their own files whom to ask and to believe.
_SERVING = ("up", "homeserver", "simserver", "relay")

_EPILOG = """\
\b
Examples:
  baton run cases                          the transfer cases on a fresh cluster, with a report
  baton bench tree --quick                 the replicated tree against etcd, in a minute
  baton bench actors --quick               actors against other libraries and bare trio
  baton bench link --quick                 the sealed link against UDP, TLS, CurveZMQ and QUIC
  baton bench events --quick               event streams, and a plain server of the same rules
  baton bench clients --quick              the players' door, beside Colyseus on node and a bare WebSocket
  baton bench followers --quick            shows of many followers, beside bare UDP
  baton bench scene --quick                scenes' messages received and applied, beside @dcl/ecs on node
  baton bench timeline --quick             what a change of the past costs, beside rollback
  baton bench transfers --quick            hand-overs of authority, and the floor below them
  baton bench worlds --quick               very many entities in a batch world, beside bare numpy and Mesa
  baton up                                 a cluster to play with, until Ctrl-C
  baton up --instances alpha:3 --dir here  the same one again tomorrow
  baton homeserver --config alpha.h1.toml  one server by hand
  baton observe http://127.0.0.1:17103     the actors of a live server
  baton doctor                             what is wrong with this machine, and what to do
  baton entity ls                          the entities of a running instance

\b
Exit status:
    0  all is well, or a cluster was stopped as asked
    1  a run's result is bad: hops differ from the formula, an invariant is broken, a demand is missed;
       or a server refused what was asked
    2  wrong usage or configuration
    3  the cluster or its environment failed
    4  `baton homeserver`: its instance has let it go, and it is no member any more
  130  interrupted by Ctrl-C: what the command had started and made is gone
  143  the same by SIGTERM
"""


@click.group(
    cls=LazyGroup,
    members={
        "backup": (
            "batonpass.scenarios.cli.backups:backup",
            "Write the metadata of a homeserver into one file, while it runs.",
        ),
        "completion": (
            "batonpass.scenarios.cli.completion:completion",
            "What a shell reads so that it completes these commands.",
        ),
        "doctor": (
            "batonpass.scenarios.remote.doctor:doctor",
            "What is wrong with this machine, these files and this instance, and what to do.",
        ),
        "drain": ("batonpass.scenarios.remote.servers:drain", "Move everything away from a simulation server."),
        "play": (
            "batonpass.scenarios.remote.play:play",
            "Drive an entity from the terminal, wherever it is simulated.",
        ),
        "put-aside": (
            "batonpass.scenarios.remote.put_aside:put_aside",
            "What a simulation server was told to give up, on its disk.",
        ),
        "recoveries": (
            "batonpass.scenarios.remote.recoveries:recoveries",
            "What dead servers left, and which server takes it over.",
        ),
        "restore": ("batonpass.scenarios.cli.backups:restore", "Have a stopped homeserver begin with a backup."),
        "watch": (
            "batonpass.scenarios.remote.watch:watch",
            "Watch entities as they change, wherever they are simulated.",
        ),
        "logs": (
            "batonpass.scenarios.cluster.log_command:logs",
            "What the servers of a cluster of `baton up --dir` have written.",
        ),
        "why": ("batonpass.scenarios.remote.why:why", "Why an entity does not run, and what to do about it."),
    },
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version("batonpass"), "--version", message="batonpass %(version)s")
@click.option(
    "--cluster",
    "cluster_directory",
    envvar="BATON_CLUSTER",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Of `baton up --dir`: ask that cluster, believe its certificates, and show its tokens.",
)
@click.option(
    "--ca-file",
    envvar="BATON_CA_FILE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Believe servers by the certificate authorities of this file alone.",
)
@click.pass_context
def cli(context: click.Context, cluster_directory: Path | None, ca_file: Path | None) -> None:
    """Pass authority over simulated entities between servers like a baton: sealed, signed, fenced, counted hop by hop.

    A cluster consists of logical instances. Each has homeservers, which agree in a replicated log on who may act on an
    entity. Each has simulation servers, which hold the entities as actors and hand them over.
    """
    if cluster_directory is not None and context.invoked_subcommand not in _SERVING:
        from batonpass.scenarios.cli.named_cluster import named_cluster

        context.with_resource(named_cluster(cluster_directory))
        if ca_file is None and (named := os.environ.get("BATON_CA_FILE")):
            ca_file = Path(named)
    if ca_file is not None:
        from batonpass.actors.http.client import believe

        try:
            believe(ca_file)
        except OSError as error:
            raise click.UsageError(f"--ca-file {ca_file} has no certificates: {error}") from error


for _group in (run, bench, chaos, simulate, entity, player, tokens, transfer):
    cli.add_command(_group)


# ---- a running instance ----


@cli.group(
    cls=LazyGroup,
    members={
        "delete": ("batonpass.scenarios.remote.tree:delete", "remove a node and everything below it"),
        "export": ("batonpass.scenarios.remote.tree:export", "write nodes as JSON lines to stdout"),
        "get": ("batonpass.scenarios.remote.tree:get", "show a node: its data, versions and children"),
        "import": ("batonpass.scenarios.remote.tree:import_", "write nodes from an export"),
        "ls": ("batonpass.scenarios.remote.tree:ls", "list the nodes below a node, or those that match a pattern"),
        "put": ("batonpass.scenarios.remote.tree:put", "set a node's data"),
        "tx": ("batonpass.scenarios.remote.tree:tx", "several operations as one, under conditions"),
        "watch": ("batonpass.scenarios.remote.tree:watch", "follow what happens to nodes"),
    },
    short_help="Read, write and follow the tree of a running instance.",
)
def tree() -> None:
    """Read, write and follow the tree of a running instance, through any of its homeservers.

    \b
    Where it is, and the client token, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_TOKEN_FILE=playground/secrets/alpha.client-token
      baton tree put jobs/7 '{"n": 1}'
      baton tree ls jobs

    Paths are names with slashes between them. The rows of authority (entities, transfers, ...) can be read, not
    written.
    """


@cli.group(
    cls=LazyGroup,
    members={
        "accept-loss": (
            "batonpass.scenarios.remote.cluster:accept_loss",
            "accept that the log is an older one than it was",
        ),
        "add": ("batonpass.scenarios.remote.cluster:add", "let a new member in"),
        "remove": ("batonpass.scenarios.remote.cluster:remove", "let a member go"),
        "replace": ("batonpass.scenarios.remote.cluster:replace", "let a new member in, and an old one go"),
        "status": ("batonpass.scenarios.remote.cluster:status", "who the members are, who leads, how far each is"),
        "transfer": ("batonpass.scenarios.remote.cluster:transfer", "hand the leadership over"),
    },
    short_help="Look at the members of a running instance, and change them.",
)
def cluster() -> None:
    """Look at the members of a running instance, and change them, through any of its homeservers.

    \b
    Where it is, and the operator token, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_OPERATOR_TOKEN_FILE=playground/secrets/alpha.operator-token
      baton cluster status
      baton cluster transfer alpha.h2
    """


@cli.group(
    cls=LazyGroup,
    members={
        "add": ("batonpass.scenarios.remote.servers:add", "start one more in a running `baton up`"),
        "balance": (
            "batonpass.scenarios.remote.servers:balance",
            "hold moves from hot to cool ones still, or let them go on",
        ),
        "load": ("batonpass.scenarios.remote.servers:load", "how much each of them has to do"),
        "remove": ("batonpass.scenarios.remote.servers:remove", "drain one, and take it out of the directory"),
    },
    short_help="The simulation servers of a running instance: load, adding, removing.",
)
def server() -> None:
    """Look at the simulation servers of a running instance, through any of its homeservers.

    \b
    Where it is, and the operator token, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_OPERATOR_TOKEN_FILE=playground/secrets/alpha.operator-token
      baton server load
      baton drain alpha.s2
      baton server add --dir playground
      baton server remove alpha.s2 --dir playground
    """


@cli.group(
    cls=LazyGroup,
    members={
        "begin": ("batonpass.scenarios.remote.regions:begin", "share space among servers"),
        "end": ("batonpass.scenarios.remote.regions:end", "have no table of regions any more"),
        "merge": ("batonpass.scenarios.remote.regions:merge", "make one cell of two halves"),
        "move": ("batonpass.scenarios.remote.regions:move", "give a cell to another server"),
        "show": ("batonpass.scenarios.remote.regions:show_regions", "the cells, their servers, and a picture"),
        "split": ("batonpass.scenarios.remote.regions:split", "cut a cell in two"),
    },
    short_help="Which simulation server has which part of space.",
)
def regions() -> None:
    """Look at which simulation server has which part of space, and change that.

    \b
    Where it is, and the operator token, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_OPERATOR_TOKEN_FILE=playground/secrets/alpha.operator-token
      baton regions begin alpha.s1 alpha.s2 --low 0,0 --high 100,100
      baton regions show
      baton regions move c1 alpha.s3
    """


@cli.group(
    cls=LazyGroup,
    members={
        "ls": ("batonpass.scenarios.remote.invite:list_invitations", "the invitations whose time is not over"),
        "make": ("batonpass.scenarios.remote.invite:make", "invite players, who need no client token then"),
        "player": ("batonpass.scenarios.remote.invite:player", "what a player may do at the door, and to say it"),
        "revoke": ("batonpass.scenarios.remote.invite:revoke", "no player comes by an invitation any more"),
    },
    short_help="Invitations, by which players come without the client token.",
)
def invite() -> None:
    """Invite players to a running instance: their programs show an invitation at the door of any homeserver.

    \b
    Where it is, and its client token, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_TOKEN_FILE=playground/secrets/alpha.client-token
      baton invite make alpha.ada
      baton invite make 'alpha.guest-*' --kind ball --uses 20 --hours 1
      baton invite ls
      baton invite revoke 3f0c2b7d9a51e604
    """


@cli.group(
    cls=LazyGroup,
    members={
        "hold": ("batonpass.scenarios.remote.shows:hold", "have a node of a show ignored, until it is released"),
        "list": (
            "batonpass.scenarios.remote.shows:list_shows",
            "each node's part in the shows: controller, newest frame, engine",
        ),
        "release": ("batonpass.scenarios.remote.shows:release", "have a node of a show take part again"),
        "reset": ("batonpass.scenarios.remote.shows:reset", "have every engine of a show forget what was before"),
    },
    short_help="The shows of a running instance: list, hold and release nodes, reset.",
)
def shows() -> None:
    """Look at the shows of a running instance, and hold a node that misbehaves.

    \b
    Where it is, and the operator token of its simulation servers, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_OPERATOR_TOKEN_FILE=playground/secrets/alpha.simserver-operator-token
      baton shows list
      baton shows hold alpha.show-wall alpha.s2
      baton shows release alpha.show-wall alpha.s2
      baton shows reset alpha.show-wall
    """


@cli.group(
    cls=LazyGroup,
    members={
        "export": ("batonpass.scenarios.keys.commands:export", "write keys as JWK, PEM or raw"),
        "forget": ("batonpass.scenarios.keys.commands:forget", "believe new keys of a name that were refused"),
        "new": ("batonpass.scenarios.keys.commands:new", "make the keys of a new server or player"),
        "reset": ("batonpass.scenarios.keys.commands:reset", "give a server new keys that has lost its own"),
        "revoke": ("batonpass.scenarios.keys.commands:revoke", "have no server believe a key any longer, for ever"),
        "rotate": (
            "batonpass.scenarios.keys.commands:rotate",
            "put new keys in the place of the current ones, with an overlap",
        ),
        "show": ("batonpass.scenarios.keys.commands:show", "which keys a server has, and until when they are good"),
    },
    short_help="The keys of servers: make, show, rotate, revoke, export.",
)
def keys() -> None:
    """The keys of servers: one that signs and one that agrees on secrets, which make a generation.

    The current generation signs. One that was rotated out is good until its overlap ends. A revoked one never is again.
    Others believe in new keys because the old ones have signed them; docs/reference/keys.md tells the life of a key.

    \b
    Keys are those of a server that runs (--url), or in files (--config, --dir):
      export BATON_URL=http://127.0.0.1:17103
      export BATON_OPERATOR_TOKEN_FILE=playground/secrets/alpha.operator-token
      baton keys show
      baton keys rotate --overlap 3600
      baton keys show --dir playground/alpha.s1/state
    """


@cli.command(short_help="Look into a live server: its actors, and one of them from inside.")
@click.argument("node")
@click.argument("action", required=False, type=click.Choice(_OBSERVE_ACTIONS))
@click.argument("actor", required=False)
@click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--every", "every_s", type=FiniteRange(0.1, 3600.0), default=1.0, metavar="SECONDS", help="With --watch.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, metavar="N", help="Rows shown. [default: 200]")
@click.option("--seconds", type=FiniteRange(0.1, 3600.0), default=60.0, help="How long to trace. [default: 60]")
@click.option("--events", type=click.IntRange(1, 100_000), default=1000, help="Traced at most. [default: 1000]")
@click.option("--off", is_flag=True, help="Switch the statistics off.")
@click.option("--to", metavar="JSON", help="The new state: as `state` shows it, but for what shall change.")
@click.option("--url", envvar="BATON_URL", metavar="URL", help="Of a homeserver, if NODE is a name.")
@click.option(
    "--token-file",
    envvar="BATON_OPERATOR_TOKEN_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With NODE's operator token; homeservers and simulation servers have different ones.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1, max=600.0),
    default=35.0,
    metavar="SECONDS",
    help="For an answer. [default: 35]",
)
def observe(node: str, action: Any, actor: str | None, **flags: Any) -> int:
    """Look into NODE, a live server: its URL, or its name.

    Without an ACTION it shows all its actors, as a tree, and needs no token.

    \b
    The actions look into one ACTOR (its pid, or its name, id or path in the tree) or change it, and need the
    operator token:
      state        what it holds, or, if it is stuck, in which callback, since when and where
      replace      put the state --to in its place, if it has the same shape
      suspend      have it handle no messages: they are kept, calls time out
      resume       have it continue
      trace        what it is sent and what it answers, from now on
      statistics   how much it does: counted from the first such command, until --off
      terminate    end it; its supervisor starts it again, if that is how it is supervised

    \b
    Examples:
      baton observe http://127.0.0.1:17103
      baton observe alpha.s1 --url http://127.0.0.1:17103 --watch
      baton observe alpha.s1 state 12 --token-file playground/secrets/alpha.simserver-operator-token

    What an actor has handled is only counted while its statistics are on. The exit status is 1 when there is no such
    actor, no state to show, or a state that cannot be replaced so.
    """
    from batonpass.scenarios.remote.observe import ObserveOptions
    from batonpass.scenarios.remote.observe import observe as look

    wanted = ObserveOptions(**{name: flags[name] for name in ObserveOptions.__dataclass_fields__})
    return look(
        node, action, actor, wanted, url=flags["url"], token_file=flags["token_file"], timeout_s=flags["timeout_s"]
    )


# ---- a cluster to play with ----


@cli.command(short_help="Start a cluster on this machine, until Ctrl-C.")
@click.option(
    "--instances", metavar="NAME:COUNT,...", help="Homeservers per logical instance. [default: alpha:3,beta:3]"
)
@click.option("--simservers", type=int, metavar="K", help="Simulation servers per instance. [default: 2]")
@click.option("--relays", type=int, metavar="N", help="Relays between instances. [default: 0]")
@click.option("--route", "routes", multiple=True, metavar="A:B=r1,r2", help="Let A and B talk through relays only.")
@click.option("--world", metavar="MODULE:CLASS", help="The simulation. [default: that of the simulation server]")
@click.option("--world-option", "world_options", multiple=True, metavar="KEY=VALUE", help="Handed to the world.")
@click.option(
    "--lease-term",
    "lease_term_s",
    type=FiniteRange(0.5, 3600.0),
    metavar="SECONDS",
    help="After which a silent server is replaced. [default: what the world says, or 6]",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep configurations, keys, journals and logs here, and go on from them at the next start.",
)
@click.option(
    "--tls/--no-tls",
    default=None,
    help="Ask servers by TLS, with certificates of an authority that is made in the directory. [default: no]",
)
@click.option("--play", is_flag=True, help="With the arena, a world to play in with a browser, which is opened.")
@click.option("--no-open", is_flag=True, help="With --play: print the address alone.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON lines on stdout, for programs.")
@click.option("--log-level", type=LOG_LEVEL, help="Of the servers. [default: INFO]")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Of the servers' logs. [default: text]")
@telemetry_handler_option
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=180.0,
    metavar="SECONDS",
    help="For one more server to become ready. [default: 180]",
)
@click.option("--grace", "grace_s", type=SECONDS, default=10.0, metavar="SECONDS", help="For all to end. [default: 10]")
def up(**flags: Any) -> int:
    """Start a cluster of real processes on this machine and run it until Ctrl-C.

    With --dir, what is not given on the command line is as it was at the last start in that directory.

    \b
    Examples:
      baton up
      baton up --instances alpha:3,beta:3,gamma:1 --relays 1 --route alpha:gamma=r1
      baton up --instances alpha:3 --dir ./playground
      baton up --json --simservers 4 > cluster.jsonl
      baton up --play
    """
    if flags["no_open"] and not flags["play"]:
        raise click.UsageError("--no-open is said of --play")
    spec = _spec_of(flags)
    from batonpass.scenarios.cli.up_command import JsonScreen, TerminalScreen, run_until_asked_to_end

    screen = JsonScreen() if flags["as_json"] else TerminalScreen()
    return run_until_asked_to_end(
        spec,
        screen,
        timeout_s=flags["timeout_s"],
        grace_s=flags["grace_s"],
        plays=flags["play"],
        opens=flags["play"] and not flags["no_open"],
    )


def _spec_of(flags: dict[str, Any]) -> "ClusterSpec":
    from dataclasses import replace

    from batonpass.scenarios.cluster.topology import ClusterSpec, parse_instances, parse_route

    given = {
        "instances": flags["instances"] and parse_instances(flags["instances"]),
        "simservers": flags["simservers"],
        "relays": flags["relays"],
        "routes": tuple(parse_route(route) for route in flags["routes"]) or None,
        "world": flags["world"],
        "world_options": dict(key_and_value(option) for option in flags["world_options"]) or None,
        "lease_term_s": flags["lease_term_s"],
        "directory": flags["directory"] and flags["directory"].absolute(),
        "log_level": flags["log_level"],
        "log_format": flags["log_format"],
        "telemetry_handlers": flags["telemetry_handlers"],
        "tls": flags["tls"],
    }
    given = {name: value for name, value in given.items() if value is not None}
    usual: dict[str, Any] = {"instances": {"alpha": 3, "beta": 3}}
    if flags["play"]:
        usual = {"instances": {"alpha": 3}, "simservers": 3}
    spec = ClusterSpec(**{**usual, **given})
    if "directory" in given:
        from batonpass.scenarios.cluster.blueprint import remembered_spec

        earlier = remembered_spec(given["directory"])
        # Another world may want another term.
        kept = {} if flags["world"] is None else {"lease_term_s": None}
        spec = spec if earlier is None else replace(earlier, **(kept | given))
    if flags["play"]:
        from batonpass.scenarios.arena.start import arena_spec

        spec = arena_spec(spec)
    return spec


# ---- the servers ----


for one in (homeserver, simserver, relay):
    cli.add_command(one)


# ---- the end ----


def main() -> NoReturn:
    """Run `baton` and exit with its status; each foreseeable error is one line on stderr."""
    end_as_ctrl_c_does()
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run `baton` with these arguments and return the exit status; foreseeable errors are one line on stderr."""
    try:
        status = cli.main(args=arguments, prog_name="baton", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return misused(error)
    except click.ClickException as error:
        return fail(error.format_message(), error.exit_code)
    except click.Abort:
        return interrupted()
    except BaseException as error:
        return ended_by(error)
    return status if isinstance(status, int) else OK


if __name__ == "__main__":
    main()
