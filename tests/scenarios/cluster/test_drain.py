"""Real processes are drained under the inputs of a player: nothing is lost or doubled, and the server is empty."""

import pytest

from batonpass.scenarios.players.rest_client import SILENT, ApiFailure
from tests.scenarios.asked import come, limited
from tests.scenarios.cases.test_cases import leader_of
from tests.scenarios.operated import Stage, stage

pytestmark = limited

S1, S2, S3 = "alpha.s1", "alpha.s2", "alpha.s3"


async def test_a_drained_server_is_empty_and_no_input_was_lost_or_doubled() -> None:
    async with stage(40) as on:
        views = await on.drain(S1)
        assert views[0]["draining"]
        assert views[-1]["empty"]
        assert (views[-1]["entities"], views[-1]["held"]) == (0, 0)
        await on.entities_on(S1, total=0)
        there = await on.entities_on(S2, S3, total=40)
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
    entity = "/v1/entities/alpha.ball-0"

    async def asked() -> str:
        return str((await on.run.client.call("alpha", "POST", f"{entity}/transfers", {"to": S1}))["transfer_id"])

    async def over(transfer: str) -> dict[str, str]:
        seen: dict[str, str] = await on.run.client.call("alpha", "GET", f"/v1/transfers/{transfer}")
        assert seen["result"] != "refused" or seen["reason"] in SILENT, seen
        return seen

    async def result() -> str:
        transfer = await asked()
        view = await come(lambda: over(transfer), lambda seen: seen["result"] != "pending", what="the way back")
        return view["result"]

    await come(result, lambda ended: ended == "done", what=f"that {S1} takes an entity")


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
        leader = await leader_of(on.cluster, "alpha")
        await on.cluster.kill(leader)
        await on.entities_on(S1, total=0)
        await on.cluster.restart(leader, same_code=True)
        assert (await on.drain(S1))[-1]["empty"]
        await on.judge()
