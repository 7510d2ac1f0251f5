"""A cluster of real processes whose balls a player pushes all the time, and an operator with the `baton` command.

The command runs in the process of the test: one of its own would take 1.5 s of processor time for its imports.
"""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from typing import Any

import trio

from batonpass.scenarios.cases.cases import Run, open_run
from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.judge.custody import FinalAuthority, judge
from batonpass.scenarios.judge.evidence import collect, leases_over
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, answered, come

__all__ = ["Stage", "stage"]

S1 = "alpha.s1"


class Stage:
    """The cluster, and what the operator does to it."""

    def __init__(self, cluster: LocalCluster, run: Run, pushing: trio.CancelScope) -> None:
        self.cluster = cluster
        self.run = run
        self._pushing = pushing
        # Of servers that were restarted or removed: a custody log lives as long as its process.
        self._earlier_stints: list[dict[str, Any]] = []

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run `baton`, in a thread of this process: exit status, stdout, stderr."""
        out, err = io.StringIO(), io.StringIO()

        def run() -> int:
            with redirect_stdout(out), redirect_stderr(err):
                return run_command(list(arguments))

        status = await trio.to_thread.run_sync(run, abandon_on_cancel=True)
        return status, out.getvalue(), err.getvalue()

    async def baton(self, *arguments: str) -> tuple[int, str, str]:
        """The same, as an operator of alpha."""
        home = self.cluster.server("alpha.h1").rest_url
        token = self.cluster.operator_token_file("alpha")
        more = ("--url", home, "--token-file", str(token), "--timeout", str(PATIENCE_S))
        return await self.command(*arguments, *more)

    async def drain(self, server: str) -> list[dict[str, Any]]:
        """Drain a server until it is empty; what was seen of it on the way.

        The command gives up, and the drain goes on, where nobody has taken anything for a while: so it is given again.
        """
        views: list[dict[str, Any]] = []
        while True:
            status, out, err = await self.baton("drain", server, "--json", "--within", str(LIMIT_S))
            views.extend(json.loads(line) for line in out.splitlines())
            if status == 0:
                return views
            assert "the drain goes on" in err, err

    async def entities_on(self, *servers: str, total: int) -> list[int]:
        """How many entities each of these servers has, once all together have so many."""
        urls = [f"{self.cluster.server(server).rest_url}/v1/local/entities" for server in servers]

        async def numbers() -> list[int]:
            return [len(await self.run.client.get(url)) for url in urls]

        return await come(numbers, lambda seen: sum(seen) == total, what=f"{total} entities on {servers}")

    async def keep_custody_log(self, server: str) -> None:
        """Before its process ends."""
        url = self.cluster.server(server).rest_url
        self._earlier_stints += (await answered(f"{url}/v1/local/custody"))["stints"]

    async def judge(self) -> None:
        """Every input was applied exactly once, in order, and no two servers simulated an entity at one time."""
        self._pushing.cancel()
        with trio.CancelScope(shield=True):
            await self._judge()

    async def _judge(self) -> None:
        run = self.run
        assert await run.players.drained(PATIENCE_S)
        run.simservers = self.cluster.simserver_urls()
        evidence = await collect(run.client, run.simservers, run.players, run.entities, run.world_check)
        finals = {}
        for entity in run.entities:
            record = await run.client.call("alpha", "GET", f"/v1/entities/{entity}")
            finals[entity] = FinalAuthority(record["authority"], record["epoch"], record["sub"])
        over = await leases_over(run.client, run.simservers)
        custody = judge([*self._earlier_stints, *evidence.stints], finals, 50_000_000, over)
        assert custody.findings == [], custody.findings
        assert (evidence.invariants.inputs_lost, evidence.invariants.inputs_duplicated) == (0, 0), evidence.findings
        assert sum(stream.sent for stream in run.players.streams.values()) > len(run.entities)


@asynccontextmanager
async def _limit() -> AsyncIterator[None]:
    with trio.fail_after(LIMIT_S):
        yield


@asynccontextmanager
async def stage(entities: int, *, simservers: int = 3, homeservers: int = 1) -> AsyncIterator[Stage]:
    """Balls on the first server, pushed until they are judged."""
    # Nobody dies here without coming back: only a machine that has much else to do would end a lease.
    spec = ClusterSpec({"alpha": homeservers}, simservers=simservers, lease_term_s=60.0)
    starting = LocalCluster.start(spec, grace_s=PATIENCE_S)
    async with _limit(), starting as cluster, open_run(cluster, seed=7, patience_s=PATIENCE_S) as run:
        for number in range(entities):
            await run.spawn(f"alpha.ball-{number}", S1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.push_all)
            yield Stage(cluster, run, nursery.cancel_scope)
            nursery.cancel_scope.cancel()
