"""Entities of tens of megabytes move over a real link, in nobody's way; those that are larger stay, and say why."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
import trio

from batonpass.actors.link.settings import LinkSettings
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.transfer.source.backoff import RetryBackoff
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until

MIB = 1024 * 1024
VERY_LONG_NS = 600_000_000_000


@pytest.fixture
async def alpha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    """An instance whose leases outlast tens of megabytes that all its servers, in one process, have to read and seal.

    Without a lease a server drops a state, and then it is right that it comes again. For the same reason nobody is
    given up, and nothing is repeated, that only takes long: how long it takes is a matter of the machine.
    """
    for name in ("admission", "precopy"):
        monkeypatch.setattr(f"batonpass.simserver.transfer.source.{name}.PATIENCE_NS", VERY_LONG_NS)
    monkeypatch.setattr("batonpass.simserver.net.in_flight.READING_NS", VERY_LONG_NS)
    monkeypatch.setattr("batonpass.simserver.lease.keeper.LATE_NS", VERY_LONG_NS)
    monkeypatch.setattr("batonpass.authority.machines.source.STAGE_PATIENCE_NS", VERY_LONG_NS)
    monkeypatch.setattr("batonpass.authority.wire.sealing.LIFETIME_S", VERY_LONG_NS / 1e9)
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports).model_copy(update={"lease_term_s": 600.0})
        async with served(config) as home:
            yield home


async def begin(home: Home, entity: str, to: str, transfer_id: str) -> None:
    body = {"to": to, "transfer_id": transfer_id, "transport": "link"}
    await home.api.do("POST", f"/v1/entities/{entity}/transfers", body)


async def test_a_small_hand_over_overtakes_one_of_many_megabytes(alpha: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # 24 MiB are some 400 round trips then, and the small one needs a dozen, however quick or busy the machine is.
    slow = partial(LinkEndpoint, settings=LinkSettings(max_flight_bytes=64 * 1024))
    monkeypatch.setattr("batonpass.simserver.server.main.LinkEndpoint", slow)
    one, two = await alpha.simserver("alpha.s1"), await alpha.simserver("alpha.s2")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.big", ada, "alpha.s1", params={"ballast": 24 * MIB})
    await alpha.entity("alpha.small", ada, "alpha.s1", params={"ballast": 100})
    fill(one, "alpha.big")
    await begin(alpha, "alpha.big", "alpha.s2", "transfer-big")
    await until(lambda: one.departures.is_under_way("alpha.big"))
    await begin(alpha, "alpha.small", "alpha.s2", "transfer-small")
    await until(lambda: two.holdings.get("alpha.small"))
    assert two.holdings.get("alpha.big") is None
    for transfer_id in ("transfer-small", "transfer-big"):
        assert (await alpha.finished(transfer_id))["result"] == "done"
    holding = two.holdings.get("alpha.big")
    assert holding is not None
    assert len(holding.life.world["ballast"]) == 24 * MIB
    # However long it took, it was sent once: what is repeated meanwhile is not the state.
    assert one.outbox.posted_bytes("alpha.s2") < 25 * MIB
    assert one.counts["internal_error"] == two.counts["internal_error"] == 0


async def test_failures_row_26_a_state_goes_ahead_while_it_is_simulated_and_only_the_rest_when_it_stands_still(
    alpha: Home,
) -> None:
    one, two = await alpha.simserver("alpha.s1"), await alpha.simserver("alpha.s2")
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.big", ada, "alpha.s1", params={"ballast": 8 * MIB})
    ballast = fill(one, "alpha.big")
    ticks = one.ticks
    for number, (to, mode) in enumerate((("alpha.s2", "eager"), ("alpha.s1", "staged"))):
        body = {"to": to, "transfer_id": f"transfer-{number}", "transport": "link", "mode": mode}
        await alpha.api.do("POST", "/v1/entities/alpha.big/transfers", body)
        view = await alpha.finished(f"transfer-{number}")
        assert view["result"] == "done"
        assert view["counters"]["precopied_bytes"] >= 8 * MIB
        assert view["counters"]["state_bytes"] < MIB
    holding = one.holdings.get("alpha.big")
    assert holding is not None
    assert holding.life.world["ballast"] == ballast
    assert one.ticks > ticks
    assert (one.counts["precopied"], two.counts["precopied"]) == (1, 1)
    assert one.arrivals._chunks.bytes == two.arrivals._chunks.bytes == 0
    assert one.counts["internal_error"] == two.counts["internal_error"] == 0


def fill(node: SimserverNode, entity: str) -> bytes:
    """Give an entity ballast in which no part is like another."""
    holding = node.holdings.get(entity)
    assert holding is not None
    ballast = Random(1).randbytes(len(holding.life.world["ballast"]))
    holding.life.world = holding.life.world | {"ballast": ballast}
    return ballast


async def test_a_state_that_is_too_large_stays_and_the_log_says_why(alpha: Home) -> None:
    one, two = await alpha.simserver("alpha.s1"), await alpha.simserver("alpha.s2")
    ada = await alpha.player("alpha.ada")
    big = {"id": "alpha.big", "kind": "ball", "spawner": ada.name, "server": "alpha.s1"}
    body = big | {"params": {"ballast": MAX_STATE_BYTES}}
    assert await alpha.api.refused(409, "state_too_large", "POST", "/v1/entities", body) == "alpha.big"
    await alpha.api.refused(404, "not_found", "GET", "/v1/entities/alpha.big")
    # What grew so large since is not to be had by anybody else.
    await alpha.entity("alpha.big", ada, "alpha.s1", params={"ballast": 0})
    grown = one.holdings.get("alpha.big")
    assert grown is not None
    grown.life.world = grown.life.world | {"ballast": bytes(MAX_STATE_BYTES)}
    await begin(alpha, "alpha.big", "alpha.s2", "transfer-1")
    view = await alpha.finished("transfer-1")
    assert (view["result"], view["reason"]) == ("refused", "state_too_large")
    await until(lambda: not len(one.departures))
    holding = one.holdings.get("alpha.big")
    assert holding is not None
    await until(lambda: not holding.life.frozen)
    assert (await alpha.api.get("/v1/entities/alpha.big"))["authority"] == "alpha.s1"
    # More than once if it was ordered again before home had heard that.
    assert one.counts["state_too_large"] >= 1
    # Nothing of the state: these two have other things to tell each other, too.
    assert one.link.backlog("alpha.s2").bytes < MIB
    assert two.holdings.get("alpha.big") is None
    assert one.counts["internal_error"] == 0

    # The world's own wish to move it ends here: nothing is asked, and it goes on.
    forgetful = RetryBackoff(one.departures._clock)
    one.departures.retry_backoff = one.departures._preparation.retry_backoff = forgetful
    before = one.counts["state_too_large"]
    one.departures.wants_to_go("alpha.big", "alpha.s2")
    one.departures.wants_to_go("alpha.big", "alpha.s2")
    await until(lambda: one.counts["state_too_large"] > before)
    assert not holding.life.frozen
    # What was asked while this node was busy is answered before it ends.
    for _ in range(3):
        assert (await alpha.api.get("/v1/entities/alpha.big"))["authority"] == "alpha.s1"
    await until(lambda: not one.departures.reports.untold)
    # A drain shows what keeps it waiting.
    with trio.fail_after(120):
        while True:
            if (await alpha.api.get("/v1/servers/alpha.s1/drain"))["too_large"] == 1:
                break
            await trio.sleep(0.1)
    # One that is no more keeps it waiting no longer.
    assert one.departures.retry_backoff.too_large({"alpha.other"}) == 0
