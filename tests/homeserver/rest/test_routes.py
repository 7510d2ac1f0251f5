"""Every route as it is meant to be used."""

import json

import pytest
import trio

from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.wire.hops import Trace
from batonpass.homeserver.rest.models import TransferView
from tests.homeserver.served import Home, Player, until


async def test_health_says_who_is_there(alpha: Home) -> None:
    assert await alpha.api.get("/healthz") == {"status": "ok", "name": "alpha.h1", "role": "homeserver", "clock": ""}


async def test_the_cluster_is_leader_term_and_members(alpha: Home) -> None:
    view = await alpha.api.get("/v1/cluster")
    assert (view["instance"], view["name"], view["leader"]) == ("alpha", "alpha.h1", "alpha.h1")
    assert view["term"] >= 1
    assert view["applied_index"] <= view["commit_index"]
    (member,) = view["members"]
    assert (member["name"], member["rest_url"]) == ("alpha.h1", alpha.api.url)
    assert (view["refusals"], view["routes"]) == ([], {})


async def test_servers_are_listed_with_addresses_and_public_keys(world: Home) -> None:
    servers = await world.api.get("/v1/servers")
    assert [(s["name"], s["role"]) for s in servers] == [
        ("alpha.h1", "homeserver"),
        ("alpha.s1", "simserver"),
        ("alpha.s2", "simserver"),
    ]
    assert all(s["rest_url"] and s["link_port"] and len(s["keys"]["keys"]) == 2 for s in servers)
    assert all("d" not in key for s in servers for key in s["keys"]["keys"])
    assert await world.api.get("/v1/servers/alpha.s2") == servers[2]


async def test_a_players_keys_are_pinned(alpha: Home) -> None:
    ada = Player("alpha.ada")
    pinned = await alpha.api.do("PUT", "/v1/players/alpha.ada/keys", {"keys": ada.keys})
    assert (pinned["name"], pinned["revision"]) == ("alpha.ada", 1)
    assert {key["kid"] for key in pinned["keys"]} == {key["kid"] for key in ada.keys}
    assert await alpha.api.do("PUT", "/v1/players/alpha.ada/keys", {"keys": ada.keys}) == pinned
    assert await alpha.api.get("/v1/players/alpha.ada/keys") == pinned
    other = {"keys": Player("alpha.ada").keys}
    assert await alpha.api.refused(409, "key_conflict", "PUT", "/v1/players/alpha.ada/keys", other) == "alpha.ada"


async def test_an_entity_is_created_read_and_moved_and_its_transfer_told_hop_by_hop(world: Home) -> None:
    ada = await world.player("alpha.ada")
    created = await world.entity("alpha.ball-1", ada, "alpha.s1")
    assert created == {
        "id": "alpha.ball-1",
        "kind": "ball",
        "owner": "alpha.ada",
        "owner_rev": 1,
        "master": "alpha.ada",
        "master_rev": 1,
        "rule": "ask",
        "rule_rev": 1,
        "authority": "alpha.s1",
        "epoch": 1,
        "sub": 0,
        "delegation": [],
        "previous_owner": "",
        "locks": {},
        "locks_rev": 1,
        "orphans": "adopt",
        "standing": "simulated",
        "on_leave": "keep",
        "heir": "",
        "owner_timeout_s": 0,
        "policies_rev": 1,
        "release_rev": 1,
        "suspended": False,
        "stands_still": False,
        "parent": "",
        "parent_rev": 1,
        "children": [],
    }
    for consistency in ("linearizable", "local"):
        assert await world.api.get(f"/v1/entities/alpha.ball-1?consistency={consistency}") == created

    begun = await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", {"to": "alpha.s2"})
    assert (begun["phase"], begun["result"], begun["hops"]) == ("permitted", "pending", None)
    assert (begun["mode"], begun["mode_taken"]) == ("eager", None)
    done = await world.finished(begun["transfer_id"])
    assert (done["phase"], done["result"], done["reason"]) == ("done", "done", "")
    assert (done["source"], done["target"], done["epoch"], done["hops"]) == ("alpha.s1", "alpha.s2", 2, 3)
    assert [hop[1] for hop in done["trace"]["hops"]] == ["handoff", "grant", "activated"]
    assert (done["mode"], done["mode_taken"]) == ("eager", "eager")
    assert set(done["timings_ms"]) == {"request", "rule", "commit", "state", "activation", "total"}
    assert all(0 <= took <= done["timings_ms"]["total"] for took in done["timings_ms"].values())
    assert await world.api.get("/v1/entities/alpha.ball-1/transfers") == [done]
    moved = await world.api.get("/v1/entities/alpha.ball-1")
    assert moved == created | {"authority": "alpha.s2", "epoch": 2}


@pytest.mark.parametrize(
    ("mode", "taken"), [("staged", "staged"), ("eager", "staged"), ("eager", "eager"), ("eager", None)]
)
def test_a_transfer_tells_in_which_mode_it_went_also_where_a_freeze_budget_made_it_another(
    mode: str, taken: str | None
) -> None:
    kinds = {"staged": ["stage", "staged", "direct", "activated"], "eager": ["direct", "activated"], None: []}[taken]
    trace = Trace("transfer-1").mark("alpha.s1", "frozen", 1)
    for number, kind in enumerate(kinds):
        trace = trace.leave("alpha.s1", kind, number).arrive("alpha.s2", number + 1, 100)
    report = json.dumps({"trace": trace.to_data(), "off_path": {}, "counters": {}})
    record = TransferRecord(
        id="transfer-1",
        entity="alpha.ball-1",
        source="alpha.s1",
        target="alpha.s2",
        phase=Phase.DONE,
        mode=mode,
        report=report,
    )
    view = TransferView.of(record)
    assert (view.mode, view.mode_taken) == (mode, taken)


async def test_creating_and_requesting_may_be_repeated(world: Home) -> None:
    ada = await world.player("alpha.ada")
    created = await world.entity("alpha.ball-1", ada, "alpha.s1")
    assert await world.entity("alpha.ball-1", ada, "alpha.s1") == created
    body = {"to": "alpha.s2", "transfer_id": "transfer-1"}
    views = [await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", body) for _ in range(3)]
    assert all(view["id"] == view["transfer_id"] for view in views), "an alias"
    assert {view["transfer_id"] for view in views} == {"transfer-1"}
    assert (await world.finished("transfer-1"))["epoch"] == 2
    assert (await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", body))["result"] == "done"
    # Also the creation, which does not set it back to its beginning.
    assert await world.entity("alpha.ball-1", ada, "alpha.s1") == created | {"authority": "alpha.s2", "epoch": 2}
    assert world.simservers["alpha.s1"].holdings.get("alpha.ball-1") is None


async def test_with_a_delegation_an_entity_moves_directly_in_two_hops(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    # Without one it goes through its home, and the answer says so.
    body = {"to": "alpha.s2", "path": "direct", "transport": "link"}
    view = await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", body)
    assert view["direct"] is False
    done = await world.finished(view["transfer_id"])
    assert (done["direct"], done["epoch"]) == (False, 2)
    group = ["alpha.s1", "alpha.s2"]
    for wrong in (["alpha.s1"], ["alpha.s1", "alpha.s1"]):
        await world.api.refused(422, "invalid_field", "PUT", "/v1/entities/alpha.ball-1/delegation", {"group": wrong})
    delegated = await world.api.do("PUT", "/v1/entities/alpha.ball-1/delegation", {"group": group})
    assert delegated["delegation"] == group
    holding = world.simservers["alpha.s2"].holdings.get("alpha.ball-1")
    assert holding is not None
    await until(lambda: holding.group)

    view = await world.api.do("POST", "/v1/entities/alpha.ball-1/transfers", body | {"to": "alpha.s1"})
    done = await world.finished(view["transfer_id"])
    assert (done["hops"], done["direct"], done["epoch"], done["sub"]) == (2, True, 2, 1)
    assert set(done["timings_ms"]) == {"request", "state", "activation", "total"}


async def test_the_openapi_document_names_every_route_and_every_error(alpha: Home) -> None:
    document = alpha.api.contract.document
    expected = {
        ("get", "/healthz"),
        ("get", "/metrics"),
        ("get", "/v1/cluster"),
        ("post", "/v1/cluster/members"),
        ("delete", "/v1/cluster/members/{name}"),
        ("post", "/v1/cluster/leader"),
        ("get", "/v1/cluster/clock"),
        ("get", "/v1/cluster/offices"),
        ("get", "/v1/cluster/log-alarm"),
        ("post", "/v1/cluster/log-alarm/held"),
        ("delete", "/v1/cluster/log-alarm"),
        ("get", "/v1/acts"),
        ("get", "/v1/players"),
        ("get", "/v1/actors"),
        ("get", "/v1/actors/{pid}"),
        ("delete", "/v1/actors/{pid}"),
        ("get", "/v1/actors/{pid}/trace"),
        ("post", "/v1/actors/{pid}/suspend"),
        ("post", "/v1/actors/{pid}/resume"),
        ("put", "/v1/actors/{pid}/state"),
        ("put", "/v1/actors/{pid}/statistics"),
        ("delete", "/v1/actors/{pid}/statistics"),
        ("get", "/v1/servers"),
        ("get", "/v1/servers/{name}"),
        ("put", "/v1/servers/{name}"),
        ("delete", "/v1/servers/{name}"),
        ("get", "/v1/servers/load"),
        ("post", "/v1/servers/balance/pause"),
        ("delete", "/v1/servers/balance/pause"),
        ("get", "/v1/servers/{name}/drain"),
        ("post", "/v1/servers/{name}/drain"),
        ("delete", "/v1/servers/{name}/drain"),
        ("get", "/v1/recoveries"),
        ("get", "/v1/regions"),
        ("put", "/v1/regions"),
        ("delete", "/v1/regions"),
        ("post", "/v1/regions/{cell}/split"),
        ("post", "/v1/regions/{cell}/merge"),
        ("post", "/v1/regions/{cell}/move"),
        ("post", "/v1/groups"),
        ("get", "/v1/groups/{group}"),
        ("post", "/v1/entities/{entity_id}/delete"),
        ("put", "/v1/entities/{entity_id}/parent"),
        ("post", "/v1/entities/{entity_id}/leave"),
        ("post", "/v1/entities/{entity_id}/release"),
        ("get", "/v1/players/{player}/entities"),
        ("get", "/v1/directory"),
        ("post", "/v1/directory/{name}/reset"),
        ("get", "/v1/keys"),
        ("post", "/v1/keys/rotate"),
        ("post", "/v1/keys/revoke"),
        ("delete", "/v1/keys/pins/{name}"),
        ("post", "/v1/handoffs"),
        ("post", "/v1/federation"),
        ("post", "/v1/entities"),
        ("post", "/v1/entities/many"),
        ("get", "/v1/entities/{entity_id}"),
        ("patch", "/v1/entities/{entity_id}"),
        ("put", "/v1/entities/{entity_id}/delegation"),
        ("get", "/v1/entities/{entity_id}/why"),
        ("get", "/v1/entities/{entity_id}/transfers"),
        ("post", "/v1/entities/{entity_id}/transfers"),
        ("get", "/v1/transfers/{transfer_id}"),
        ("delete", "/v1/transfers/{transfer_id}"),
        ("post", "/v1/transfers/{transfer_id}/answer"),
        ("post", "/v1/transfers/{transfer_id}/cancel"),
        ("post", "/v1/entities/{entity_id}/ownership"),
        ("post", "/v1/entities/{entity_id}/divest"),
        ("post", "/v1/entities/{entity_id}/hand-back"),
        ("post", "/v1/entities/{entity_id}/locks/{name}/lock"),
        ("post", "/v1/entities/{entity_id}/locks/{name}/unlock"),
        ("put", "/v1/players/{player}/keys"),
        ("get", "/v1/players/{player}/keys"),
        ("delete", "/v1/players/{player}"),
        ("delete", "/v1/entities/{entity_id}"),
        ("get", "/v1/players/{player}/asks"),
        ("get", "/v1/tree"),
        ("get", "/v1/tree/{path}"),
        ("put", "/v1/tree/{path}"),
        ("post", "/v1/tree/{path}"),
        ("delete", "/v1/tree/{path}"),
        ("post", "/v1/tx"),
        ("get", "/v1/invitations"),
        ("post", "/v1/invitations"),
        ("delete", "/v1/invitations/{invitation_id}"),
        ("get", "/v1/players/{player}/enrolment"),
        ("put", "/v1/players/{player}/enrolment"),
        ("get", "/v1/servers/{name}/door"),
        ("get", "/v1/servers/{name}/supervision"),
        ("get", "/v1/supervision"),
        ("get", "/v1/samples"),
        ("get", "/v1/positions"),
        ("get", "/v1/synchronisation"),
        ("get", "/v1/local/door"),
        ("get", "/dashboard"),
        ("get", "/dashboard/"),
        ("get", "/dashboard/{name}"),
        ("get", "/v1/map"),
        ("get", "/v1/live"),
        ("get", "/v1/entities"),
        ("get", "/v1/transfers"),
        ("get", "/play"),
        ("get", "/play/"),
        ("get", "/play/{name}"),
        ("get", "/v1/watch"),
        ("get", "/v1/export"),
        ("post", "/v1/import"),
    }
    found = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert found == expected
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            assert "default" in operation["responses"], (method, path)


async def test_a_name_that_has_no_server_yet_is_not_known(alpha: Home) -> None:
    assert await alpha.api.refused(404, "not_found", "GET", "/v1/servers/alpha.s9") == "alpha.s9"
    with trio.fail_after(90):
        assert await alpha.api.refused(404, "not_found", "GET", "/v1/servers/beta.s1") == "beta.s1"
