"""Simulation servers come, go and are upgraded one by one while players play on; not one input is lost or doubled."""

from typing import Any

import trio

from batonpass.authority.machines.replica_choice import backup_replicas_of
from batonpass.scenarios.cluster.control import serve_control
from tests.collected import ROOT
from tests.scenarios.asked import PATIENCE_S, limited
from tests.scenarios.cluster.test_failover import World, world
from tests.scenarios.operated import Stage, stage
from tests.scenarios.upgraded_world import FormerBalls, LatterBalls

pytestmark = limited

S1, S2, S3 = "alpha.s1", "alpha.s2", "alpha.s3"


async def test_every_server_in_turn_is_drained_restarted_and_comes_back() -> None:
    """The rolling upgrade of docs/reference/operations.md."""
    async with stage(16, simservers=2) as on:
        for server, other in ((S1, S2), (S2, S1)):
            await on.drain(server)
            await on.entities_on(server, total=0)
            await on.entities_on(other, total=16)
            before = on.cluster.server(server).pid
            await on.keep_custody_log(server)
            after = await on.cluster.restart(server)
            assert after.pid != before
            status, _, err = await on.baton("drain", server, "--cancel")
            assert status == 0, err
        await on.judge()


async def test_a_server_is_added_and_another_removed_while_the_cluster_runs() -> None:
    async with stage(12, simservers=2) as on, trio.open_nursery() as nursery:
        await nursery.start(serve_control, on.cluster)
        directory = str(on.cluster.directory)
        status, out, err = await on.command("server", "add", "--dir", directory, "--timeout", str(PATIENCE_S))
        assert (status, out.split(":")[0]) == (0, f"{S3} is added"), err
        await on.drain(S2)
        await on.drain(S1)
        await on.keep_custody_log(S1)
        status, out, err = await on.baton("server", "remove", S1, "--dir", directory)
        assert status == 0, err
        assert out.splitlines()[-1] == f"{S1} is removed"
        await on.entities_on(S3, total=12)  # there was nowhere else to go
        assert await simservers(on) == [S2, S3]
        assert [server.name for server in on.cluster.servers] == ["alpha.h1", S2, S3]
        await on.judge()
        nursery.cancel_scope.cancel()


async def simservers(on: Stage) -> list[str]:
    rows = await on.run.client.call("alpha", "GET", "/v1/servers")
    return [row["name"] for row in rows if row["role"] == "simserver"]


def upgrade(running: World, server: str) -> None:
    """Have a server start with the later world when it is started again."""
    config = running.cluster.directory / server / "config.toml"
    before = config.read_text()
    after = before.replace(FormerBalls.__name__, LatterBalls.__name__)
    assert after != before
    config.write_text(after)


async def test_failures_row_28_what_a_server_of_before_has_taken_over_goes_on_where_its_form_is_known() -> None:
    """In the midst of an upgrade a server dies whose follower has not been upgraded yet, and is not back for long."""
    importable = {"PYTHONPATH": str(ROOT)}
    followed_by_the_former_one = [
        number for number in range(99) if backup_replicas_of(f"alpha.ball-{number}", S2, (S1, S2, S3), 1) == (S1,)
    ]
    options: dict[str, Any] = {"environment": importable, "world": f"{FormerBalls.__module__}:{FormerBalls.__name__}"}
    async with world(**options) as running:
        for server in (S2, S3):
            upgrade(running, server)
            # Its world, which is what is of a later release here, is imported by each process for itself.
            await running.cluster.restart(server, same_code=True)
        await running.spawn(followed_by_the_former_one[:4], S2)
        await running.push(20)
        await running.everything_durable()
        await running.keep_custody(S2)
        await running.cluster.kill(S2)
        await running.push(20)
        records = await running.until(lambda record: record["authority"] == S3)
        await running.push(20)
        await running.exactly_once()
        for name in records:
            assert not (await running.here(S3, name))["broken"]
        stats = await running.stats(S1)
        assert stats["counts"]["adopted"] == len(records), "the copies were there"
        await running.nobody_overlaps(S1, S3)
