"""A client under asyncio, with servers as real processes, of which the one that has its entity is killed."""

from functools import partial
from typing import Any

import anyio
import trio

from batonpass.client.client import connect
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

ADA = "alpha.ada"
BALL = "alpha.ball-1"
PUSH = bytes(12)


async def test_a_client_under_asyncio_plays_on_while_its_server_is_killed() -> None:
    spec = ClusterSpec(instances={"alpha": 1}, simservers=2, lease_term_s=6.0, log_level="WARNING")
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster:
            rest, me = cluster.rest_client(PATIENCE_S), Identity.generate()
            try:
                body = {"keys": me.public.to_jwks()["keys"]}
                await rest.call("alpha", "PUT", f"/v1/players/{ADA}/keys", body)
                ball = {"id": BALL, "kind": "ball", "spawner": ADA, "server": "alpha.s1", "params": {"p": [0, 0, 0]}}
                await come(partial(rest.call, "alpha", "POST", "/v1/entities", ball), what="the ball")
                url = cluster.server("alpha.h1").rest_url
                kill = partial(
                    trio.from_thread.run, cluster.kill, "alpha.s1", trio_token=trio.lowlevel.current_trio_token()
                )
                play = partial(anyio.run, _play, url, me, kill, backend="asyncio")
                seen = await trio.to_thread.run_sync(play)
                where = cluster.server("alpha.s2").rest_url
                state: dict[str, Any] = await rest.get(f"{where}/v1/local/entities/{BALL}")
            finally:
                with trio.CancelScope(shield=True):
                    await rest.aclose()
    sent, digest, servers = seen
    assert servers == ["alpha.s1", "alpha.s2"]
    assert state["sources"][ADA]["applied"] == sent
    assert state["sources"][ADA]["digest"] == digest


async def _play(url: str, me: Identity, kill: Any) -> tuple[int, str, list[str]]:
    servers: list[str] = []
    elsewhere = anyio.Event()
    async with connect(url, player=ADA, identity=me) as client:
        watch, steering = await client.watch(entity=BALL), await client.steer(BALL)

        async def listen() -> None:
            async for change in watch:
                if change.server not in servers:
                    servers.append(change.server)
                if len(servers) == 2:
                    elsewhere.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            last = 0
            for number in range(60):
                last = await steering.give(PUSH)
                if number == 30:
                    await steering.durable(last)
                    await anyio.to_thread.run_sync(kill)
                await anyio.sleep(0.02)
            await steering.durable(last)
            await elsewhere.wait()
            tasks.cancel_scope.cancel()
        assert (steering.stream.lost, len(watch.entities)) == (0, 1)
        assert last - steering.stream.floor == 60
        return steering.stream.sent, steering.stream.digest.hex(), servers
