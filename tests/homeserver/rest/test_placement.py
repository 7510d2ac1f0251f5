"""Load, drains and balance through a running homeserver: what operators see and may do, and what becomes of it."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.model.records import DirectoryRow, EntityRecord, LeaseRow, RecoveryRow, Role
from batonpass.authority.model.standing import LeasePhase, Standing
from batonpass.authority.node.config import ConfigError
from batonpass.authority.placement.policy import Balance, Move, View
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import CensusRequest, MoveItem, Moves
from batonpass.crypto.keys import Identity
from batonpass.homeserver.config import PlacementSettings
from batonpass.homeserver.placement.balancer import load_policy
from batonpass.simserver.world.demo_balls import Balls
from batonpass.tree.raft.submissions import NoQuorum
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until

# Many moves on a machine that others share; nothing waits for so long unless something is wrong.
PATIENCE_S = 90.0


class Operator:
    """Somebody who has the operator token of an instance."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._headers = {"authorization": f"Bearer {(home.directory / 'operator').read_text()}"}

    async def do(self, method: str, path: str, body: Any = None) -> Any:
        return await self._home.api.do(method, path, body, token=False, headers=self._headers)

    async def refused(self, status: int, code: str, method: str, path: str, body: Any = None) -> Any:
        return await self._home.api.refused(status, code, method, path, body, token=False, headers=self._headers)


async def spawn(home: Home, count: int, server: str) -> None:
    ada = await home.player("alpha.ada")
    for number in range(count):
        await home.entity(f"alpha.ball-{number}", ada, server)


async def loads(home: Home) -> dict[str, Any]:
    return {row["server"]: row for row in (await home.api.get("/v1/servers/load"))["servers"]}


async def reported(home: Home, **entities: int) -> None:
    """Wait until the servers have reported so many entities."""
    wanted = {f"alpha.{name}": count for name, count in entities.items()}
    with trio.fail_after(PATIENCE_S):
        while True:
            if {name: row["entities"] for name, row in (await loads(home)).items()} == wanted:
                return
            await trio.sleep(0.1)


async def test_every_simulation_server_reports_its_load(world: Home) -> None:
    await spawn(world, 3, "alpha.s1")
    await reported(world, s1=3, s2=0)
    table = await world.api.get("/v1/servers/load")
    assert (table["leads"], table["balancing"]) == (True, False)
    busy, idle = table["servers"]
    assert busy["tick_fraction"] > 0
    assert idle["tick_fraction"] >= 0
    assert not busy["draining"]


async def test_a_server_is_drained_opened_again_and_removed(world: Home) -> None:
    operator = Operator(world)
    await spawn(world, 5, "alpha.s1")
    assert (await world.api.get("/v1/servers/alpha.s1/drain"))["draining"] is False
    view = await operator.do("POST", "/v1/servers/alpha.s1/drain")
    assert (view["draining"], view["entities"], view["empty"]) == (True, 5, False)
    assert await operator.do("POST", "/v1/servers/alpha.s1/drain") is not None
    await operator.refused(409, "not_drained", "DELETE", "/v1/servers/alpha.s2")
    view = await world.api.drained("alpha.s1")
    assert (view["entities"], view["delegated"], view["held"], view["leaving"]) == (0, 0, 0, 0)
    assert len(world.simservers["alpha.s2"].holdings) == 5
    ada = {"id": "alpha.late", "kind": "ball", "spawner": "alpha.ada", "server": "alpha.s1"}
    await world.api.refused(409, "draining", "POST", "/v1/entities", ada)
    await world.api.refused(409, "draining", "POST", "/v1/entities/alpha.ball-0/transfers", {"to": "alpha.s1"})
    assert (await operator.do("DELETE", "/v1/servers/alpha.s1/drain"))["draining"] is False
    await world.api.do("POST", "/v1/entities", ada)

    await operator.do("POST", "/v1/servers/alpha.s1/drain")
    await world.api.drained("alpha.s1")
    assert (await operator.do("DELETE", "/v1/servers/alpha.s1"))["name"] == "alpha.s1"
    assert [row["name"] for row in await world.api.get("/v1/servers")] == ["alpha.h1", "alpha.s2"]
    assert set(await loads(world)) == {"alpha.s2"}
    await world.api.refused(404, "not_found", "GET", "/v1/servers/alpha.s1/drain")


async def test_nothing_can_be_passed_to_a_dead_server_any_more_when_it_is_drained(
    world: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home has others hand over what is delegated to it, few at a time; so it can be removed without anybody's help."""
    operator, store, gone, count = Operator(world), world.node.store, "alpha.s9", 5
    monkeypatch.setattr("batonpass.homeserver.placement.balancer.MAX_TAKEN_BACK", 2)
    row = DirectoryRow(name=gone, role=Role.SIMSERVER, keys=Identity.generate().public.to_jwks())
    await store.submit("directory.register", row=row.to_data())
    await store.submit("lease.claim", server=gone, incarnation=1, nonce="first", previous_nonce="")
    await spawn(world, count, "alpha.s2")
    for number in range(count):
        group = ["alpha.s1", "alpha.s2", gone]
        await world.api.do("PUT", f"/v1/entities/alpha.ball-{number}/delegation", {"group": group})
    await reported(world, s1=0, s2=count)
    view = await operator.do("POST", f"/v1/servers/{gone}/drain")
    assert (view["delegated"], view["empty"]) == (count, False), "it may be alive: nobody is moved for that"
    await store.submit("lease.expire", server=gone, incarnation=1, office=store.lease_office().number)
    view = await world.api.drained(gone)
    assert (view["entities"], view["delegated"]) == (0, 0)
    for number in range(count):
        record = await world.api.get(f"/v1/entities/alpha.ball-{number}")
        assert (record["authority"], record["delegation"], record["epoch"]) == ("alpha.s1", [], 2)
    assert (await operator.do("DELETE", f"/v1/servers/{gone}"))["name"] == gone


async def test_what_is_in_the_log_is_not_said_to_be_unchanged(world: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The majority is lost just after a drain is begun: whoever asked for it must not believe that there is none."""
    operator, store = Operator(world), world.node.store

    async def lost() -> None:
        raise NoQuorum("no majority")

    changes = ["POST /v1/servers/alpha.s1/drain", "DELETE /v1/servers/alpha.s1/drain"]
    changes += ["POST /v1/servers/balance/pause", "DELETE /v1/servers/balance/pause"]
    for method, path in map(str.split, changes):
        with monkeypatch.context() as patched:
            patched.setattr(store, "fresh", lost)
            await operator.refused(503, "outcome_unknown", method, path)
            await operator.refused(503, "no_quorum", "GET", "/v1/servers/alpha.s1/drain")
        assert len(store.drains()) == (path.endswith("drain") and method == "POST")
        assert (store.balance_paused_since_s() is not None) == (path.endswith("pause") and method == "POST")


async def test_a_dead_server_that_holds_nothing_by_the_log_is_empty_though_it_does_not_report(
    world: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, store, gone = Operator(world), world.node.store, "alpha.s9"
    row = DirectoryRow(name=gone, role=Role.SIMSERVER, keys=Identity.generate().public.to_jwks())
    await store.submit("directory.register", row=row.to_data())
    view = await operator.do("POST", f"/v1/servers/{gone}/drain")
    assert (view["entities"], view["held"], view["empty"]) == (0, None, True), "it never had a lease"
    await store.submit("lease.claim", server=gone, incarnation=1, nonce="first", previous_nonce="")
    view = await operator.do("POST", f"/v1/servers/{gone}/drain")
    assert (view["held"], view["empty"]) == (None, False), "it may be alive"
    await store.submit("lease.expire", server=gone, incarnation=1, office=store.lease_office().number)
    view = await operator.do("POST", f"/v1/servers/{gone}/drain")
    assert (view["entities"], view["held"], view["waiting"], view["empty"]) == (0, None, 0, True)
    # What it left is told; that it is removed is what ends the waiting for it.
    waits = RecoveryRow(entity="alpha.left", last=gone, epoch=2, held=True)
    taken = RecoveryRow(entity="alpha.taken", last=gone, epoch=2, target="alpha.s1")
    monkeypatch.setattr(store, "takeovers", lambda: [waits, taken])
    view = await operator.do("GET", f"/v1/servers/{gone}/drain")
    assert (view["waiting"], view["empty"]) == (1, False)
    # What is lost waits for nobody any more who is there, and had nothing.
    lost = EntityRecord(
        id="alpha.left", kind="ball", master="alpha.ada", owner="", authority="", standing=Standing.LOST
    )
    monkeypatch.setattr(store, "entity", lambda entity: lost)
    view = await operator.do("GET", f"/v1/servers/{gone}/drain")
    assert (view["waiting"], view["empty"]) == (1, False), "it may come back with it"
    is_back = LeaseRow(server=gone, incarnation=2, nonce="n", phase=LeasePhase.ALIVE)
    with monkeypatch.context() as patched:
        patched.setattr(store, "lease", lambda server: is_back)
        assert (await operator.do("GET", f"/v1/servers/{gone}/drain"))["waiting"] == 0
    assert (await operator.do("DELETE", f"/v1/servers/{gone}"))["name"] == gone


async def test_a_live_server_that_keeps_the_only_copies_of_others_entities_is_not_removed(
    world: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could reach it any more; one death later they would be lost."""
    operator = Operator(world)
    await operator.do("POST", "/v1/servers/alpha.s1/drain")
    await world.api.drained("alpha.s1")
    with monkeypatch.context() as patched:
        for found in (3, None):
            patched.setattr("batonpass.homeserver.rest.placement._sole_replicas", lambda node, found=found: found)
            await operator.refused(409, "not_drained", "DELETE", "/v1/servers/alpha.s1")
    assert (await operator.do("DELETE", "/v1/servers/alpha.s1"))["name"] == "alpha.s1"


async def test_a_drained_server_knows_it_and_refuses_entities_that_want_to_come_before_they_are_frozen(
    world: Home,
) -> None:
    await spawn(world, 1, "alpha.s2")
    await Operator(world).do("POST", "/v1/servers/alpha.s1/drain")
    await until(lambda: world.simservers["alpha.s1"].lease.is_drained)
    here = world.simservers["alpha.s2"]
    (holding,) = here.holdings
    here.departures.wants_to_go(holding.id, "alpha.s1")
    await until(lambda: here.counts["declined_draining"] > 0)
    (stint,) = here.custody.to_data()
    assert (stint["epoch"], stint["ended_ns"]) == (1, 0), "it was never frozen"
    await Operator(world).do("DELETE", "/v1/servers/alpha.s1/drain")
    await until(lambda: not world.simservers["alpha.s1"].lease.is_drained)


async def test_nobody_but_its_home_instance_says_where_the_entities_of_a_server_go(world: Home) -> None:
    """A simulation server with good keys wants another one's entities, or to know which it has."""
    await spawn(world, 1, "alpha.s1")
    victim, mallory = world.simservers["alpha.s1"], world.simservers["alpha.s2"]
    moves = Moves(moves=[MoveItem(transfer_id="transfer-1", entity="alpha.ball-0", target="alpha.s2")])
    for message in (moves, CensusRequest(number=1, limit=10)):
        before = victim.counts["bad_message"]
        mallory.outbox.send(message, Trace("placement"), "alpha.s1", on_path=False)
        await until(lambda: victim.counts["bad_message"] > before)  # noqa: B023 — waited for before the next
    assert [holding.life.frozen for holding in victim.holdings] == [False]
    assert victim.departures.under_way == 0


async def test_only_operators_drain_and_remove_and_only_simulation_servers(world: Home) -> None:
    operator = Operator(world)
    of_operators = ["POST /alpha.s1/drain", "DELETE /alpha.s1/drain", "DELETE /alpha.s1"]
    for method, path in map(str.split, [*of_operators, "POST /balance/pause", "DELETE /balance/pause"]):
        await world.api.refused(401, "no_token", method, f"/v1/servers{path}", token=False)
        await world.api.refused(403, "missing_right", method, f"/v1/servers{path}")
    await operator.refused(422, "unknown_target", "POST", "/v1/servers/alpha.h1/drain")
    await operator.refused(404, "not_found", "DELETE", "/v1/servers/alpha.h1")
    await operator.refused(421, "wrong_home", "POST", "/v1/servers/beta.s1/drain")
    await world.api.refused(421, "wrong_home", "GET", "/v1/servers/beta.s1/drain")


async def test_with_nowhere_to_go_entities_are_simulated_where_they_are(alpha: Home) -> None:
    node = await alpha.simserver("alpha.s1")
    await spawn(alpha, 2, "alpha.s1")
    await Operator(alpha).do("POST", "/v1/servers/alpha.s1/drain")
    ticks = [holding.life.tick for holding in node.holdings]
    await until(lambda: all(holding.life.tick > tick + 10 for holding, tick in zip(node.holdings, ticks, strict=True)))
    view = await alpha.api.get("/v1/servers/alpha.s1/drain")
    assert (view["empty"], view["targets"]) == (False, 0)
    node = await alpha.simserver("alpha.s2")
    await alpha.api.drained("alpha.s1")
    # Nor with all of them drained: what the last one has stays there, until one takes entities again.
    await reported(alpha, s1=0, s2=2)
    view = await Operator(alpha).do("POST", "/v1/servers/alpha.s2/drain")
    assert (view["empty"], view["targets"], view["entities"]) == (False, 0, 2)
    ticks = [holding.life.tick for holding in node.holdings]
    await until(lambda: all(holding.life.tick > tick + 10 for holding, tick in zip(node.holdings, ticks, strict=True)))
    await Operator(alpha).do("DELETE", "/v1/servers/alpha.s1/drain")
    await alpha.api.drained("alpha.s2")


async def test_full_servers_are_no_targets_until_they_have_room(alpha: Home) -> None:
    await alpha.simserver("alpha.s1")
    await spawn(alpha, 2, "alpha.s1")
    target = await alpha.simserver("alpha.s2", max_entities=1)
    await alpha.entity("alpha.full", await alpha.player("alpha.bob"), "alpha.s2")
    await Operator(alpha).do("POST", "/v1/servers/alpha.s1/drain")

    def is_full() -> bool | None:
        report = alpha.node.balancer.report("alpha.s2")
        return None if report is None else report.load.is_full

    await until(is_full)
    view = await alpha.api.get("/v1/servers/alpha.s1/drain")
    assert (view["empty"], view["targets"], view["full"], view["entities"]) == (False, 0, 1, 2)
    target.reception._vacancies.max_entities = 10
    await alpha.api.drained("alpha.s1")
    await until(lambda: is_full() is False)
    view = await alpha.api.get("/v1/servers/alpha.s1/drain")
    assert (view["targets"], view["full"]) == (1, 0)


async def test_failures_33_moves_back_that_somebody_asked_for_are_counted_too(world: Home) -> None:
    await spawn(world, 1, "alpha.s1")
    for number, target in enumerate(("alpha.s2", "alpha.s1", "alpha.s2")):
        body = {"to": target, "transfer_id": f"transfer-{number}"}
        await world.api.do("POST", "/v1/entities/alpha.ball-0/transfers", body)
        assert (await world.finished(f"transfer-{number}"))["result"] == "done"
    assert (await world.api.get("/v1/servers/load"))["counts"] == {"oscillations": 2}


def all_to_the_last(view: View, balance: Balance) -> list[Move]:
    """A policy: whatever is hot, and what is not, to the last server."""
    last = max(server.name for server in view.servers)
    return [Move(resident.entity, resident.server, last) for resident in view.residents]


async def test_failures_33_a_policy_of_ones_own_moves_entities_within_hold_and_budget(tmp_path: Path) -> None:
    placement = PlacementSettings(
        balance=True,
        policy=f"{__name__}:all_to_the_last",
        # Everything that ticks is hot.
        hot=2e-6,
        cool=1e-6,
        min_hold_s=0.5,
        moves_per_s=2.0,
    )
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports).model_copy(update={"placement": placement})
        async with served(config) as home:
            for name in ("alpha.s1", "alpha.s2"):
                await home.simserver(name)
            operator = Operator(home)
            paused = await operator.do("POST", "/v1/servers/balance/pause")
            assert (await operator.do("POST", "/v1/servers/balance/pause"))["paused_since_s"] == paused[
                "paused_since_s"
            ]
            await spawn(home, 4, "alpha.s1")
            await reported(home, s1=4, s2=0)
            # Nobody may be asked for a census then; whoever is hot would have to give something up.
            assert [load.tick_fraction > 2e-6 for load in home.node.balancer.loads() if load.entities] == [True]
            assert home.node.balancer.givers(home.node.balancer.loads()) == []
            assert (await operator.do("DELETE", "/v1/servers/balance/pause"))["paused_since_s"] is None
            began_s = trio.current_time()
            with trio.fail_after(PATIENCE_S):
                while True:
                    if len(home.simservers["alpha.s2"].holdings) == 4:
                        break
                    await trio.sleep(0.05)
            assert trio.current_time() - began_s > 0.4, "two moves a second, two at once"
            table = await home.api.get("/v1/servers/load")
            assert (table["balancing"], table["paused_since_s"]) == (True, None)
            assert table["counts"]["moves"] == 4
            assert table["counts"].get("oscillations", 0) == 0


class Towers(Balls):
    """A world in which balls with ballast are immovable."""

    def immovable(self, state: Any) -> bool:
        return bool(state["ballast"])


async def test_balance_leaves_who_is_immovable_and_a_request_or_a_drain_moves_it(tmp_path: Path) -> None:
    placement = PlacementSettings(
        balance=True, policy=f"{__name__}:all_to_the_last", hot=2e-6, cool=1e-6, min_hold_s=0.0
    )
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports).model_copy(update={"placement": placement})
        async with served(config) as home:
            for name in ("alpha.s1", "alpha.s2"):
                await home.simserver(name, world=f"{__name__}:Towers")
            first, last = (home.simservers[name].holdings for name in ("alpha.s1", "alpha.s2"))
            tower = await home.entity("alpha.tower", await home.player("alpha.eve"), "alpha.s1", params={"ballast": 1})
            await spawn(home, 3, "alpha.s1")
            counts = home.node.balancer.placement_limits.counts
            # The old authority of one has it for a moment longer, frozen, until it hears that the new one simulates it.
            await until(lambda: len(last) == 3 and first.ids() == {tower["id"]} and counts["immovable"] >= 3)
            body = {"to": "alpha.s2", "transfer_id": "asked-for"}
            await home.api.do("POST", "/v1/entities/alpha.tower/transfers", body)
            assert (await home.finished("asked-for"))["result"] == "done"
            await Operator(home).do("POST", "/v1/servers/alpha.s2/drain")
            await home.api.drained("alpha.s2")
            assert tower["id"] in first.ids()


@pytest.mark.parametrize(
    "spec",
    [
        "nowhere:f",
        "batonpass.authority.placement.policy:nothing",
        "batonpass.authority.placement.policy",
        "json:__name__",
    ],
)
def test_a_policy_that_cannot_be_one_is_refused_at_the_start(spec: str) -> None:
    with pytest.raises(ConfigError, match="policy"):
        load_policy(spec)


def test_numbers_that_cannot_be_meant_are_refused_in_the_configuration() -> None:
    with pytest.raises(ValueError, match="cool"):
        PlacementSettings(hot=0.5, cool=0.6)
    for limit in fields(Balance):
        for number in (math.inf, math.nan):
            with pytest.raises(ValueError, match=rf"{limit.name}\n.*finite number"):
                PlacementSettings.model_validate({limit.name: number})
