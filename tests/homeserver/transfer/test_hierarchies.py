"""Hierarchies and groups on real servers: what belongs together moves together, whoever has it moved."""

from typing import Any

import pytest
import trio

from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S
from tests.homeserver.served import Home, Player, until

SHIP = "alpha.ship"
CREW = ("alpha.crew-1", "alpha.crew-2")


@pytest.fixture
async def ada(world: Home) -> Player:
    """Ada has a ship with a crew of two, all on alpha.s1."""
    ada = await world.player("alpha.ada")
    for entity in (SHIP, *CREW):
        await world.entity(entity, ada, "alpha.s1")
    for child in CREW:
        await attach(world, ada, child, SHIP)
    return ada


async def attach(world: Home, by: Player, child: str, parent: str) -> dict[str, Any]:
    rev = (await world.api.get(f"/v1/entities/{child}"))["parent_rev"]
    proof = by.proof(action="attach", entity=child, parent=parent, parent_rev=rev)
    body = {"by": by.name, "parent": parent, "parent_rev": rev, "proof": proof}
    record: dict[str, Any] = await world.api.do("PUT", f"/v1/entities/{child}/parent", body)
    return record


async def places(world: Home) -> set[str]:
    return {(await world.api.get(f"/v1/entities/{entity}"))["authority"] for entity in (SHIP, *CREW)}


async def test_failures_row_35_a_ship_moves_with_its_crew_or_not_at_all(world: Home, ada: Player) -> None:
    assert (await world.api.get(f"/v1/entities/{SHIP}"))["children"] == list(CREW)
    body = {"to": "alpha.s2", "transfer_id": "sets-sail"}
    alone = f"/v1/entities/{CREW[0]}/transfers"
    assert await world.api.refused(409, "attached", "POST", alone, {"to": "alpha.s2"}) == CREW[0]
    begun = await world.api.do("POST", f"/v1/entities/{SHIP}/transfers", body)
    assert begun["group"] == "sets-sail"
    report = await world.api.get("/v1/groups/sets-sail")
    for member in report["members"]:
        assert (await world.finished(member["transfer_id"]))["result"] == "done"
    assert await places(world) == {"alpha.s2"}
    report = await world.api.get("/v1/groups/sets-sail")
    assert (report["phase"], [member["entity"] for member in report["members"]]) == ("committed", [SHIP, *CREW])
    assert (await attach(world, ada, CREW[0], ""))["parent"] == ""
    view = await world.api.do("POST", alone, {"to": "alpha.s1"})
    assert (await world.finished(view["transfer_id"]))["result"] == "done"


async def test_what_would_leave_its_crew_behind_stays_and_is_moved_with_it(world: Home, ada: Player) -> None:
    departures = world.simservers["alpha.s1"].departures
    departures.wants_to_go(CREW[0], "alpha.s2")
    await until(lambda: departures._counts["refused_attached"] == 1)
    assert await places(world) == {"alpha.s1"}
    departures.wants_to_go(CREW[0], "alpha.s2")
    assert not departures.is_under_way(CREW[0]), "it is not frozen again and again"
    departures.wants_to_go(SHIP, "alpha.s2")
    target = world.simservers["alpha.s2"].holdings
    await until(lambda: all(target.get(entity) is not None for entity in (SHIP, *CREW)))
    assert await places(world) == {"alpha.s2"}

    # Nor does a drain know of hierarchies.
    operator = {"authorization": f"Bearer {(world.directory / 'operator').read_text()}"}
    await world.api.do("POST", "/v1/servers/alpha.s2/drain", headers=operator)
    target = world.simservers["alpha.s1"].holdings
    await until(lambda: all(target.get(entity) is not None for entity in (SHIP, *CREW)))
    assert await places(world) == {"alpha.s1"}


async def test_failures_row_28_what_is_not_taken_is_passed_on_with_its_whole_hierarchy(
    world: Home, ada: Player
) -> None:
    """Else it would stand still for good: the log lets no child go alone."""
    source = world.simservers["alpha.s1"]
    source.environment.world.kinds = ("ship",)  # type: ignore[attr-defined]  # as of an earlier release
    mate = source.holdings.get(CREW[1])
    assert mate is not None
    mate.life._bring_up_to_date()
    assert mate.life.is_untaken
    target = world.simservers["alpha.s2"].holdings
    await until(lambda: all(target.get(entity) is not None for entity in (SHIP, *CREW)))
    assert await places(world) == {"alpha.s2"}
    assert world.node.balancer.placement_limits.counts["passed_on"] >= 1


async def test_failures_row_34_apart_what_can_move_moves_and_the_report_says_what_cannot(
    world: Home, ada: Player
) -> None:
    for number in (1, 2):
        await world.entity(f"alpha.ball-{number}", ada, "alpha.s1")
    entities = ["alpha.ball-1", "alpha.nothing", CREW[0], "alpha.ball-2"]
    body = {"entities": entities, "to": "alpha.s2", "group": "by-themselves", "all_or_none": False}
    body |= {"notice_ms": 1, "freeze_budget_ms": 10_000}
    await world.api.do("POST", "/v1/groups", body)
    for number in (0, 3):
        await world.finished(f"by-themselves-{number}")
    report = await world.api.get("/v1/groups/by-themselves")
    assert (report["phase"], report["results"]) == ("apart", {"done": 2, "refused": 2})
    assert [member["reason"] for member in report["members"]] == ["", "not_found", "attached", ""]


@pytest.mark.parametrize("mode", ["eager", "staged"])
async def test_apart_the_top_of_a_hierarchy_brings_what_is_below(world: Home, ada: Player, mode: str) -> None:
    body = {"entities": [SHIP], "to": "alpha.s2", "group": "sets-sail", "all_or_none": False, "mode": mode}
    await world.api.do("POST", "/v1/groups", body)
    assert (await world.finished("sets-sail-0"))["result"] == "done"
    assert await places(world) == {"alpha.s2"}

    # Whoever is named too, above or below it, comes along by the transfer that the report tells of.
    body |= {"entities": [CREW[0], SHIP, CREW[1]], "to": "alpha.s1", "group": "comes-home"}
    await world.api.do("POST", "/v1/groups", body)
    for number in range(3):
        assert (await world.finished(f"comes-home-{number}"))["result"] == "done"
    assert await places(world) == {"alpha.s1"}
    assert (await world.api.get("/v1/groups/comes-home"))["results"] == {"done": 3}


async def test_failures_row_3_two_groups_of_the_same_entities_both_move_one_after_the_other(
    world: Home, ada: Player
) -> None:
    """Asked for at the same time, in the other order, of entities on two servers."""
    balls = ["alpha.ball-1", "alpha.ball-2"]
    for number, ball in enumerate(balls, 1):
        await world.entity(ball, ada, f"alpha.s{number}")
    targets = {"goes-there": (balls, "alpha.s3"), "goes-away": (balls[::-1], "alpha.s4")}
    for _, target in targets.values():
        await world.simserver(target)
    async with trio.open_nursery() as nursery:
        for group, (entities, target) in targets.items():
            body = {"entities": entities, "to": target, "group": group}
            nursery.start_soon(world.api.do, "POST", "/v1/groups", body)
    for group in targets:
        for number in range(2):
            await world.finished(f"{group}-{number}")
    reports = [await world.api.get(f"/v1/groups/{group}") for group in targets]
    assert [(report["phase"], report["results"]) for report in reports] == [("committed", {"done": 2})] * 2


@pytest.fixture
def submitted(world: Home, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The procedures that the homeserver has the log carry out."""
    procedures: list[str] = []
    submit = world.node.store.submit

    async def noted(procedure: str, /, **args: Any) -> Any:
        procedures.append(procedure)
        return await submit(procedure, **args)

    monkeypatch.setattr(world.node.store, "submit", noted)
    return procedures


async def stand_open(world: Home, ada: Player) -> dict[str, str]:
    """The phases of two groups that nobody decides, as nobody answers for beta: of one ball, and of the ship apart."""
    await world.entity("alpha.ball", ada, "alpha.s1")
    for group, entity, all_or_none in (("together", "alpha.ball", True), ("by-itself", SHIP, False)):
        body = {"entities": [entity], "to": "beta.s1", "group": group, "all_or_none": all_or_none}
        await world.api.do("POST", "/v1/groups", body)
    return {"together": "open", "by-itself": "apart"}


async def test_whoever_looks_at_groups_without_a_token_writes_nothing_into_the_log(
    world: Home, ada: Player, submitted: list[str]
) -> None:
    groups = await stand_open(world, ada)
    submitted.clear()
    for group, phase in groups.items():
        report = await world.api.get(f"/v1/groups/{group}", token=False)
        assert (report["phase"], set(report["results"])) == (phase, {"pending"})
    for number in range(20):
        value = f"made-up-{number}"
        assert await world.api.refused(404, "not_found", "GET", f"/v1/groups/{value}", token=False) == value
    assert "group.look" not in submitted


async def test_a_group_whose_time_is_up_is_refused_when_somebody_asks(
    world: Home, ada: Player, submitted: list[str]
) -> None:
    groups = await stand_open(world, ada) | {"together": "refused"}
    world.clock.ahead_s = GROUP_LIFETIME_S + 2.0
    for _ in range(3):
        for group, phase in groups.items():
            report = await world.api.get(f"/v1/groups/{group}", token=False)
            assert (report["phase"], set(report["results"])) == (phase, {"refused"})
    assert submitted.count("group.look") <= 4, "what is decided is no matter for the log"
