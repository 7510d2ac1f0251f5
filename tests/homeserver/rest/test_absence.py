"""Players who go away, on real servers: what they own gets another owner, waits for them, or ends."""

from typing import Any

import pytest

from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import NotHere, OwnerRequest, Present
from tests.homeserver.served import Home, Player, until

POLICIES: dict[str, dict[str, Any]] = {
    "alpha.sword": {"on_leave": "adopt", "heir": "alpha.bob", "owner_timeout_s": 20},
    "alpha.boat": {"on_leave": "divest", "owner_timeout_s": 20},
    "alpha.statue": {"on_leave": "freeze", "owner_timeout_s": 20},
    "alpha.house": {"on_leave": "keep"},
    "alpha.pet": {"on_leave": "despawn", "owner_timeout_s": 20},
}


@pytest.fixture
async def ada(world: Home) -> Player:
    """Ada owns a sword, a house and a pet."""
    ada = await world.player("alpha.ada")
    await world.player("alpha.bob")
    for entity, policy in POLICIES.items():
        view = await world.entity(entity, ada, "alpha.s1", **policy)
        assert {name: view[name] for name in policy} == policy
    return ada


async def check_what_is_left(world: Home) -> None:
    """The log says so, and the server that simulates them has heard of it."""
    holdings = world.simservers["alpha.s1"].holdings
    sword, boat = holdings.get("alpha.sword"), holdings.get("alpha.boat")
    assert sword is not None
    assert boat is not None
    await until(lambda: boat.life.ownership == Ownership("", 2, suspended=False))
    statue = holdings.get("alpha.statue")
    assert statue is not None
    await until(lambda: statue.life.ownership == Ownership("", 2, suspended=True))
    await until(lambda: sword.life.ownership == Ownership("alpha.bob", 2) and holdings.get("alpha.pet") is None)
    assert [row["entity"] for row in await world.api.get("/v1/players/alpha.ada/entities")] == ["alpha.house"]
    await world.api.refused(404, "not_found", "GET", "/v1/entities/alpha.pet")


async def test_failures_row_40_who_leaves_leaves_each_as_its_policy_says(world: Home, ada: Player) -> None:
    owned = await world.api.get("/v1/players/alpha.ada/entities")
    assert {row["entity"]: row["on_leave"] for row in owned} == {
        "alpha.boat": "divest",
        "alpha.house": "keep",
        "alpha.pet": "despawn",
        "alpha.statue": "freeze",
        "alpha.sword": "adopt",
    }
    ended = {}
    for row in owned:
        stated = {"entity": row["entity"], "owner_rev": row["owner_rev"]}
        body = {"by": "alpha.ada", "owner_rev": row["owner_rev"], "proof": ada.proof(action="leave", **stated)}
        left = await world.api.do("POST", f"/v1/entities/{row['entity']}/leave", body)
        ended[left["entity"]] = (left["owner"], left["ended"])
    assert ended == {
        "alpha.boat": ("", False),
        "alpha.house": ("alpha.ada", False),
        "alpha.pet": ("alpha.ada", True),
        "alpha.statue": ("", False),
        "alpha.sword": ("alpha.bob", False),
    }
    await check_what_is_left(world)
    await check_its_master_releases_the_statue(world, ada)
    await world.api.refused(403, "not_owner", "POST", "/v1/entities/alpha.sword/leave", sword_again(ada))


async def check_its_master_releases_the_statue(world: Home, ada: Player) -> None:
    """It takes no tick until then, also where it was handed over to."""
    one, two = world.simservers["alpha.s1"], world.simservers["alpha.s2"]
    still = one.holdings.get("alpha.statue")
    assert still is not None
    tick = still.life.tick
    await world.api.do("POST", "/v1/entities/alpha.statue/transfers", {"to": "alpha.s2", "transfer_id": "statue-1"})
    await world.finished("statue-1")
    moved = two.holdings.get("alpha.statue")
    assert moved is not None
    assert (moved.life.tick, moved.life.ownership) == (tick, Ownership("", 2, suspended=True))
    assert await suspended(world) == {"suspended": True, "stands_still": True}
    stated: dict[str, Any] = {"entity": "alpha.statue", "master_rev": 1, "discard_inputs": False}
    proof = ada.proof(action="release", release_rev=1, **stated)
    body = {"by": "alpha.ada", "master_rev": 1, "proof": proof}
    await world.api.do("POST", "/v1/entities/alpha.statue/release", body)
    await until(lambda: moved.life.ownership == Ownership("", 3, suspended=False) and moved.life.tick > tick)
    assert await suspended(world) == {"suspended": False, "stands_still": False}


async def suspended(world: Home) -> dict[str, Any]:
    """What REST says of the statue: as it is called now, and by the former name, for one release."""
    view = await world.api.get("/v1/entities/alpha.statue")
    return {name: view[name] for name in ("suspended", "stands_still")}


def sword_again(ada: Player) -> dict[str, Any]:
    proof = ada.proof(action="leave", entity="alpha.sword", owner_rev=1)
    return {"by": "alpha.ada", "owner_rev": 1, "proof": proof}


async def test_failures_row_40_a_player_of_whom_nothing_is_heard_counts_as_gone(world: Home, ada: Player) -> None:
    inactivity = world.simservers["alpha.s1"].inactivity
    for entity in POLICIES:
        await inactivity._ask(OwnerRequest(entity=entity, silent_s=19, owner_rev=1))
    assert len(await world.api.get("/v1/players/alpha.ada/entities")) == len(POLICIES)
    for entity in POLICIES:
        await inactivity._ask(OwnerRequest(entity=entity, silent_s=20, owner_rev=1))
    await check_what_is_left(world)

    # What is left may be treated otherwise later.
    record = await world.api.get("/v1/entities/alpha.house")
    revisions = {name: record[name] for name in ("rule_rev", "owner_rev", "master_rev", "policies_rev")}
    settings: dict[str, Any] = {"on_leave": "adopt", "heir": "", "owner_timeout_s": 30}
    nothing: dict[str, Any] = {"rule": None, "owner": None, "master": None}
    proof = ada.proof(action="rights", entity="alpha.house", **nothing, **revisions, **settings)
    changed = await world.api.do("PATCH", "/v1/entities/alpha.house", {"by": "alpha.ada", "proof": proof} | settings)
    assert {name: changed[name] for name in settings} == settings
    proof = ada.proof(action="rights", entity="alpha.house", **nothing, **revisions)
    body = {"by": "alpha.ada", "proof": proof} | settings
    await world.api.refused(403, "proof_mismatch", "PATCH", "/v1/entities/alpha.house", body)


async def test_who_is_present_at_a_server_that_has_its_entity_no_more_hears_where_it_went(
    world: Home, ada: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.simservers["alpha.s1"]
    told: list[NotHere] = []
    monkeypatch.setattr(one.outbox, "tell_player", lambda player, notice: told.append(notice))
    await world.api.do("POST", "/v1/entities/alpha.house/transfers", {"to": "alpha.s2", "transfer_id": "transfer-1"})
    await world.finished("transfer-1")
    await until(lambda: one.holdings.get("alpha.house") is None)
    # Its owner has given no input, so it is told as the owner that it is.
    went = NotHere(entity="alpha.house", moved_to="alpha.s2", epoch=2)
    assert told == [went]
    for entity in ("", "alpha.sword", "alpha.house", "alpha.stranger"):
        one._present(Present(entity=entity), ada.name)
    assert told == [went, went, NotHere(entity="alpha.stranger")], "what is here is only heard of"
