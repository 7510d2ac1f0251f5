"""Many entities are created by one request, each as by its own."""

from typing import Any

from batonpass.homeserver.rest.creations import MAX_MANY
from tests.homeserver.served import Home


def ball(number: int, **changes: Any) -> dict[str, Any]:
    return {"id": f"alpha.n{number}", "kind": "ball", "spawner": "alpha.ada", "server": "alpha.s1", **changes}


async def created(world: Home, entities: list[dict[str, Any]]) -> Any:
    """The answer in which the outcome of each is known: a busy machine takes its time, and a repetition tells."""
    while True:
        view = await world.api.do("POST", "/v1/entities/many", {"entities": entities})
        if all(one["status"] < 500 for one in view["failed"]):
            return view


async def test_many_are_created_each_by_itself_and_a_repetition_creates_none_twice(world: Home) -> None:
    await world.player("alpha.ada")
    wrong = [
        ball(100, kind="no such thing"),
        ball(101, server="alpha.s9"),
        ball(102, spawner="alpha.nobody"),
        ball(103, id="beta.ball"),
    ]
    many = [ball(number, server=f"alpha.s{1 + number % 2}") for number in range(40)]
    view = await created(world, [*wrong[:2], *many, *wrong[2:]])
    assert view["created"] == 40
    assert [(one["id"], one["status"], one["code"]) for one in view["failed"]] == [
        ("alpha.n100", 422, "spawn_refused"),
        ("alpha.n101", 422, "unknown_target"),
        ("alpha.n102", 422, "not_a_player"),
        ("beta.ball", 421, "wrong_home"),
    ]
    assert all(one["message"] for one in view["failed"])
    for number in (0, 39):
        record = await world.api.get(f"/v1/entities/alpha.n{number}")
        assert (record["authority"], record["epoch"]) == (f"alpha.s{1 + number % 2}", 1)
    assert {server: len(node.holdings) for server, node in world.simservers.items()} == {"alpha.s1": 20, "alpha.s2": 20}
    assert await created(world, many) == {"created": 40, "failed": []}
    assert sum(len(node.holdings) for node in world.simservers.values()) == 40


async def test_who_asks_for_too_many_or_for_one_twice_is_told_so(alpha: Home) -> None:
    for wrong in ([], [ball(1), ball(1)], [ball(number) for number in range(MAX_MANY + 1)]):
        await alpha.api.refused(422, "invalid_field", "POST", "/v1/entities/many", {"entities": wrong})
