"""Rights that change in the log at once, over REST: who owns a ball that stays where it is, and who has heard of it."""

from typing import Any

import pytest

from authority.ownership import Ownership
from tests.homeserver.served import Home, Player, until
from tests.homeserver.test_rules import BALL, Game


@pytest.fixture
async def game(world: Home) -> Game:
    game = Game(world, await world.player("alpha.ada"), await world.player("alpha.bob"))
    await world.entity(BALL, game.ada, "alpha.s1")
    return game


def ownership(who: Player, transfer_id: str, want: str = "by_rule", owner_rev: int | None = None) -> dict[str, Any]:
    """The body of a request to own the ball where it is."""
    stated: dict[str, Any] = {"transfer_id": transfer_id, "want": want, "owner_rev": owner_rev}
    return {"requester": who.name, "proof": who.proof(action="ownership", entity=BALL, **stated)} | stated


async def own(game: Game, *args: Any) -> dict[str, Any]:
    view: dict[str, Any] = await game.api.do("POST", f"/v1/entities/{BALL}/ownership", ownership(*args))
    return view


async def owner_is(game: Game, who: Player, rev: int) -> None:
    """The log says so, and the server that simulates the ball has heard of it."""
    record = await game.record()
    assert (record["owner"], record["owner_rev"], record["authority"], record["epoch"]) == (
        who.name,
        rev,
        "alpha.s1",
        1,
    )
    holding = game.home.simservers["alpha.s1"].holdings.get(BALL)
    assert holding is not None
    await until(lambda: holding.life.ownership == Ownership(who.name, rev))


async def lock(game: Game, action: str, who: Player, name: str = "dock") -> dict[str, Any]:
    rev = (await game.record())["locks_rev"]
    proof = who.proof(action=action, entity=BALL, name=name, locks_rev=rev)
    body = {"by": who.name, "locks_rev": rev, "proof": proof}
    view: dict[str, Any] = await game.api.do("POST", f"/v1/entities/{BALL}/locks/{name}/{action}", body)
    return view


async def give_up(game: Game, who: Player, how: str, **stated: Any) -> dict[str, Any]:
    rev = (await game.record())["owner_rev"]
    proof = who.proof(action=how.replace("-", "_"), entity=BALL, owner_rev=rev, **stated)
    view: dict[str, Any] = await game.api.do(
        "POST", f"/v1/entities/{BALL}/{how}", {"by": who.name, "proof": proof} | stated
    )
    return view


async def test_under_allow_the_first_in_the_log_gets_it_and_the_loser_is_told(game: Game) -> None:
    await game.set(game.ada, rule="allow")
    eve = await game.home.player("alpha.eve")
    assert (await own(game, game.bob, "bobs-wish", "by_rule", 1))["result"] == "done"
    await owner_is(game, game.bob, 2)
    body = ownership(eve, "eves-wish", "by_rule", 1)
    assert await game.api.refused(409, "owner_changed", "POST", f"/v1/entities/{BALL}/ownership", body) == "alpha.bob"
    assert (await own(game, game.bob, "bobs-wish", "by_rule", 1))["owner_rev"] == 2, "said again, it is the same"
    await owner_is(game, game.bob, 2)


async def test_under_ask_the_masters_yes_makes_the_owner(game: Game) -> None:
    assert (await own(game, game.bob, "bobs-wish"))["phase"] == "asked"
    (ask,) = await game.api.get("/v1/players/alpha.ada/asks")
    assert (ask["transfer_id"], ask["stay"], ask["requester"]) == ("bobs-wish", True, "alpha.bob")
    for _ in range(2):
        assert (await game.answer(game.ada, "bobs-wish", allow=True))["result"] == "done"
    await owner_is(game, game.bob, 2)


async def test_what_is_taken_back_cannot_be_granted_any_more(game: Game) -> None:
    await own(game, game.bob, "bobs-wish")
    body = {"by": "alpha.bob", "proof": game.bob.proof(action="cancel", transfer_id="bobs-wish")}
    for _ in range(2):
        view = await game.api.do("POST", "/v1/transfers/bobs-wish/cancel", body)
        assert (view["result"], view["reason"]) == ("refused", "cancelled")
    word = game.word(game.ada, "bobs-wish", allow=True)
    await game.api.refused(409, "too_late", "POST", "/v1/transfers/bobs-wish/answer", word)
    await owner_is(game, game.ada, 1)


async def test_a_lock_keeps_everybody_out_until_it_is_given_back_as_often_as_it_was_taken(game: Game) -> None:
    await game.set(game.ada, rule="allow")
    await lock(game, "lock", game.ada)
    assert (await lock(game, "lock", game.ada))["locks"] == {"dock": {"by": "alpha.ada", "count": 2}}
    path = f"/v1/entities/{BALL}/ownership"
    await game.api.refused(409, "locked", "POST", path, ownership(game.bob, "bobs-wish"))
    await game.api.refused(403, "not_master", "POST", path, ownership(game.bob, "bobs-wish", "forced"))
    await lock(game, "unlock", game.ada)
    await game.api.refused(409, "locked", "POST", path, ownership(game.bob, "bobs-wish"))
    assert (await lock(game, "unlock", game.ada))["locks"] == {}
    assert (await own(game, game.bob, "bobs-wish"))["result"] == "done"
    await lock(game, "lock", game.bob)
    assert (await own(game, game.ada, "by-force", "forced"))["result"] == "done"
    await owner_is(game, game.ada, 3)
    assert (await game.record())["locks"] == {}, "the locks of the former owner went with its ownership"


async def test_given_up_it_is_available_and_handed_back_it_is_its_former_owners(game: Game) -> None:
    path = f"/v1/entities/{BALL}/ownership"
    await game.api.refused(409, "not_available", "POST", path, ownership(game.bob, "bobs-wish", "if_available"))
    proof = game.ada.proof(action="divest", entity=BALL, owner_rev=1, if_wanted=True)
    body = {"by": "alpha.ada", "proof": proof, "if_wanted": True}
    await game.api.refused(409, "not_wanted", "POST", f"/v1/entities/{BALL}/divest", body)
    assert (await give_up(game, game.ada, "divest", if_wanted=False))["owner"] == ""
    assert (await own(game, game.bob, "bobs-wish", "if_available"))["result"] == "done"
    await owner_is(game, game.bob, 3)
    assert (await give_up(game, game.bob, "hand-back"))["owner"] == "alpha.ada"
    await owner_is(game, game.ada, 4)
    body = {"by": "alpha.bob", "proof": game.bob.proof(action="hand_back", entity=BALL, owner_rev=4)}
    assert await game.api.refused(403, "not_owner", "POST", f"/v1/entities/{BALL}/hand-back", body) == "alpha.bob"
