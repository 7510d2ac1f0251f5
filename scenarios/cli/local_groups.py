"""The groups of `baton` that run on this machine: scenarios, measurements, faults on purpose, simulations."""

import click

from batonpass.scenarios.cli.groups import DefaultGroup, LazyGroup

__all__ = ["bench", "chaos", "run", "simulate", "tokens"]


@click.group(
    cls=LazyGroup,
    members={
        "airspace": (
            "batonpass.scenarios.airspace.run",
            "aircraft that are warned of those of other sectors whom they will meet, and a picture of it",
        ),
        "boxes": (
            "batonpass.scenarios.pushing.run",
            "robots that push boxes over a border: authority over a box goes where the push is",
        ),
        "boids": (
            "batonpass.scenarios.boids.command",
            "a flock over several servers, each of which steps its part at once, and a picture of it",
        ),
        "cases": (
            "batonpass.scenarios.cases.cases",
            "the transfer cases: hops on the wire against the formula, latency, invariants",
        ),
        "followers": (
            "batonpass.scenarios.followers.run",
            "one server computes each frame of a show, all others show exactly that, and it is killed",
        ),
        "lockstep": (
            "batonpass.scenarios.lockstep.run",
            "clients that compute the same game, while its event stream moves and loses its server",
        ),
        "scenes": (
            "batonpass.scenarios.scenes.run",
            "a renderer and its scenes, each a process: double-buffered, and one stage after the other",
        ),
        "sectors": ("batonpass.scenarios.sectors.run", "aircraft crossing sector borders: every border is a hand-over"),
        "timeline": (
            "batonpass.scenarios.timeline.run",
            "peers that change one shared past over a bad network, and see their own inputs at once",
        ),
    },
    short_help="Run a scenario on a fresh cluster and report.",
)
def run() -> None:
    """Run a scenario on a fresh local cluster and report what was measured."""


@click.group(
    cls=LazyGroup,
    members={
        "actors": (
            "batonpass.scenarios.bench.actors.command",
            "actors against other Python actor libraries and bare trio",
        ),
        "clients": (
            "batonpass.scenarios.bench.clients.command",
            "clients of the players' door against Colyseus on node, and a bare WebSocket",
        ),
        "drain": ("batonpass.scenarios.bench.drain", "how long it takes to empty a server of very many entities"),
        "events": (
            "batonpass.scenarios.bench.events.command",
            "event streams against GoEventStream's rules in FastAPI, and a server that does nothing",
        ),
        "followers": (
            "batonpass.scenarios.bench.followers.command",
            "shows of many followers against bare UDP that sends the same bytes to as many",
        ),
        "link": (
            "batonpass.scenarios.bench.link.command",
            "the sealed link against UDP, TLS, CurveZMQ, QUIC; envelopes",
        ),
        "scene": (
            "batonpass.scenarios.bench.scene.command",
            "scenes' messages received and applied, against `@dcl/ecs` on node with the same bytes",
        ),
        "timeline": (
            "batonpass.scenarios.bench.timeline.command",
            "a retroactive timeline against a plain event loop, a naive replay, and a rollback engine",
        ),
        "transfers": (
            "batonpass.scenarios.bench.transfers.command",
            "hand-overs of authority, above bare UDP and cryptography",
        ),
        "tree": ("batonpass.scenarios.bench.tree.command", "the replicated tree against etcd, on this machine"),
        "worlds": (
            "batonpass.scenarios.bench.worlds.command",
            "very many entities in a batch world, against bare numpy and Mesa",
        ),
    },
    short_help="Measure on this machine.",
)
def bench() -> None:
    """Measure on this machine, against demands and against others that do the same work."""


@click.group(
    cls=LazyGroup,
    members={
        "clients": (
            "batonpass.scenarios.chaos.clients",
            "break off clients' connections while servers hand over, and are killed",
        ),
        "transfers": (
            "batonpass.scenarios.chaos.transfers",
            "kill or stop either end, or the leader, in hand-overs",
        ),
        "tree": ("batonpass.scenarios.chaos.tree", "kill, stop, partition, power cut, torn and corrupted journals"),
    },
    short_help="Break things on purpose, and judge what becomes of it.",
)
def chaos() -> None:
    """Let faults happen to real processes on this machine, and judge what becomes of what they acknowledged."""


@click.group(
    cls=DefaultGroup,
    default="servers",
    members={
        "machines": (
            "batonpass.scenarios.simulation.machines.command",
            "whole clusters of the pure machines, as fast as can be",
        ),
        "raft": ("batonpass.scenarios.simulation.tree.command", "real replicas on a virtual clock, network and disk"),
        "servers": (
            "batonpass.scenarios.simulation.servers.command",
            "whole clusters of servers; what flags alone mean",
        ),
        "transfers-search": (
            "batonpass.scenarios.simulation.search.command",
            "every state that a small hand-over can reach",
        ),
    },
    short_help="Run real code on a virtual clock, network and disk.",
)
def simulate() -> None:
    """Run real code on a virtual clock, network and disk: what takes days and bad luck elsewhere takes minutes here.

    `baton simulate --seeds 1000` is `baton simulate servers --seeds 1000`.
    """


@click.group(
    cls=LazyGroup,
    members={
        "create": ("batonpass.scenarios.keys.tokens:create", "make a token, and print it"),
        "issuer": ("batonpass.scenarios.keys.tokens:make", "make the issuer of a cluster, or show it"),
        "revoke": ("batonpass.scenarios.keys.tokens:revoke_one", "have a token not taken before its time is over"),
        "show": ("batonpass.scenarios.keys.tokens:show", "what a token says, and whether a cluster takes it"),
    },
    short_help="Who may do what: make, show and revoke tokens.",
)
def tokens() -> None:
    """Tokens, with which people and programs show a server what they may do: a role, for one instance, for a time.

    They are signed by the issuer of a cluster, with a key that no server has. `baton up` makes the issuer, and tokens
    for who runs the cluster; docs/reference/tokens.md tells the rest.

    \b
    Examples:
      baton tokens create --dir playground --role viewer --expires 8h --out viewer.token
      baton tokens show viewer.token --dir playground
      baton tokens revoke viewer.token --dir playground
    """
