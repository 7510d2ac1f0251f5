"""Real processes are drained under the inputs of a player: nothing is lost or doubled, and the server is empty."""

import pytest
import trio

from batonpass.scenarios.players.rest_client import ApiFailure
from tests.scenarios.operated import DEADLINE_S, Stage, stage

S1, S2, S3 = "alpha.s1", "alpha.s2", "alpha.s3"


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
        # It heard of its drain with the last renewal of its lease, and hears of the end before it refuses anybody.
        await comes_back(on)
        await on.run.spawn("alpha.new", S1)
        for flag, said in (
            ("--pause", "balancing is paused since 2"),
            ("--resume", "not balancing (placement.balance is"),
        ):
            status, out, _ = await on.baton("server", "balance", flag)
            assert (status, out.startswith(said)) == (0, True), out
            assert "placement.balance" in out, "it is off by configuration, paused or not"
        await on.judge()


async def comes_back(on: Stage) -> None:
    back = {"to": S1, "transfer_id": "back-again"}
    await on.run.client.call("alpha", "POST", "/v1/entities/alpha.ball-0/transfers", back)
    seen: dict[str, str] = {"result": "pending"}
    with trio.fail_after(DEADLINE_S):
        while seen["result"] == "pending":
            await trio.sleep(0.05)
            seen = await on.run.client.call("alpha", "GET", "/v1/transfers/back-again")
    assert seen["result"] == "done", seen["reason"]


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
        await on.cluster.restart(leader, same_code=True)
        assert (await on.drain(S1))[-1]["empty"]
        await on.judge()
