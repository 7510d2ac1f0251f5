"""Real processes are drained under the inputs of a player: nothing is lost or doubled, and the server is empty."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from scenarios.cases import Run, open_run
from scenarios.client import ApiFailure
from scenarios.cluster import ClusterSpec, LocalCluster
from scenarios.evidence import collect

DEADLINE_S = 60.0
S1, S2, S3 = "alpha.s1", "alpha.s2", "alpha.s3"


class Stage:
    """A cluster with balls that a player pushes all the time."""

    def __init__(self, cluster: LocalCluster, run: Run, pushing: trio.CancelScope) -> None:
        self.cluster = cluster
        self.run = run
        self._pushing = pushing

    async def baton(self, *arguments: str) -> tuple[int, str, str]:
        """Run the command as an operator of alpha: exit status, stdout, stderr."""
        home = self.cluster.server("alpha.h1").rest_url
        token = self.cluster.directory / "secrets" / "alpha.operator-token"
        command = [sys.executable, "-m", "scenarios.cli", *arguments, "--url", home, "--token-file", str(token)]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    async def drain(self, server: str) -> list[dict[str, Any]]:
        """Drain a server; what was seen of it on the way."""
        status, out, err = await self.baton("drain", server, "--json", "--within", str(DEADLINE_S))
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]

    async def entities_on(self, server: str) -> list[str]:
        found: list[str] = await self.run.client.get(f"{self.cluster.server(server).rest_url}/v1/local/entities")
        return found

    async def judge(self) -> None:
        """Every input was applied exactly once, in order, and no two servers simulated an entity at one time."""
        self._pushing.cancel()
        with trio.CancelScope(shield=True):
            await self._judge()

    async def _judge(self) -> None:
        assert await self.run.players.drained(DEADLINE_S)
        run = self.run
        evidence = await collect(run.client, run.simservers, run.players, run.entities, run.world_check)
        assert evidence.findings == []
        assert evidence.invariants.broken() == {}
        assert sum(stream.sent for stream in run.players.streams.values()) > len(run.entities)


@asynccontextmanager
async def stage(entities: int, *, simservers: int = 3, homeservers: int = 1) -> AsyncIterator[Stage]:
    spec = ClusterSpec({"alpha": homeservers}, simservers=simservers)
    async with LocalCluster.start(spec) as cluster, open_run(cluster, seed=7) as run:
        for number in range(entities):
            await run.spawn(f"alpha.ball-{number}", S1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.push_all)
            yield Stage(cluster, run, nursery.cancel_scope)
            nursery.cancel_scope.cancel()


async def test_a_drained_server_is_empty_and_no_input_was_lost_or_doubled() -> None:
    async with stage(40) as on:
        views = await on.drain(S1)
        assert views[0]["draining"]
        assert views[-1]["empty"]
        assert (views[-1]["entities"], views[-1]["held"]) == (0, 0)
        assert await on.entities_on(S1) == []
        there = [len(await on.entities_on(server)) for server in (S2, S3)]
        assert sum(there) == 40
        assert min(there) > 0, "they are spread over those that are left"
        await refuses_everything(on)
        status, out, _ = await on.baton("drain", S1, "--cancel")
        assert (status, out) == (0, f"{S1} takes entities again\n")
        await on.run.spawn("alpha.new", S1)
        await on.judge()


async def refuses_everything(on: Stage) -> None:
    """New entities, and old ones that should come back."""
    with pytest.raises(ApiFailure) as refused:
        await on.run.spawn("alpha.late", S1)
    assert refused.value.code == "draining"
    with pytest.raises(ApiFailure) as refused:
        await on.run.client.call("alpha", "POST", "/v1/entities/alpha.ball-0/transfers", {"to": S1})
    assert refused.value.code == "draining"


async def test_a_drain_goes_on_without_whoever_asked_for_it_and_with_another_leader() -> None:
    async with stage(30, homeservers=3) as on:
        status, _, _ = await on.baton("drain", S1, "--no-wait")
        assert status == 0
        leader = (await on.run.client.call("alpha", "GET", "/v1/cluster"))["leader"]
        await on.cluster.kill(leader)
        with trio.fail_after(DEADLINE_S):
            while True:
                if not await on.entities_on(S1):
                    break
                await trio.sleep(0.1)
        await on.cluster.restart(leader)
        assert (await on.drain(S1))[-1]["empty"]
        await on.judge()
