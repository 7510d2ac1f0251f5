"""Rights that change in the log at once, over REST: who owns a ball that stays where it is, and who has heard of it."""

from typing import Any

import pytest

from batonpass.authority.model.ownership import Ownership
from tests.homeserver.rest.test_rules import BALL, Game
from tests.homeserver.served import Home, Player, until


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
    # A revision that never was is a mistake, not somebody who was faster.
    answer = await game.api.call("POST", f"/v1/entities/{BALL}/ownership", ownership(eve, "eves-wish", "by_rule", 99))
    assert (answer.status_code, answer.json()["code"]) == (409, "owner_changed")
    assert "has not had revision 99 yet: alpha.bob owns it, under owner_rev 2;" in answer.json()["message"]


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


async def test_who_has_nothing_to_do_with_a_request_does_not_take_it_back(game: Game) -> None:
    await own(game, game.bob, "bobs-wish")
    eve = await game.home.player("alpha.eve")
    body = {"by": eve.name, "proof": eve.proof(action="cancel", transfer_id="bobs-wish")}
    path = "/v1/transfers/bobs-wish"
    assert await game.api.refused(403, "not_requester", "POST", f"{path}/cancel", body) == eve.name
    operator = (game.home.directory / "operator").read_text().strip()
    as_operator = {"headers": {"authorization": f"Bearer {operator}"}}
    await game.api.refused(403, "missing_right", "DELETE", path)
    await game.api.refused(403, "not_requester", "DELETE", path, **as_operator)
    assert (await game.api.get(path))["result"] == "pending", "the operator does not speak for a player"

    # What is asked for in nobody's name is the operator's to take back: this one waits for its notice to be over.
    await game.home.entity("alpha.ball-2", game.ada, "alpha.s1")
    move = {"to": "alpha.s2", "transfer_id": "by-nobody", "notice_ms": 10_000}
    await game.api.do("POST", "/v1/entities/alpha.ball-2/transfers", move)
    for _ in range(2):
        view = await game.api.do("DELETE", "/v1/transfers/by-nobody", **as_operator)
        assert (view["result"], view["reason"]) == ("refused", "cancelled")
    assert (await game.api.get("/v1/entities/alpha.ball-2"))["authority"] == "alpha.s1"


async def test_rights_go_to_players_alone(game: Game) -> None:
    path = f"/v1/entities/{BALL}"
    new = {"id": "alpha.new", "kind": "ball", "spawner": game.ada.name, "server": "alpha.s1"}
    for name in ("alpha.s1", "alpha.h1", "alpha.nobody", "gamma.nobody", BALL):
        for field in ("owner", "heir") if name == "alpha.s1" else ("owner", "master", "heir"):
            body = game.change(game.ada, await game.record(), **{field: name})
            assert await game.api.refused(422, "not_a_player", "PATCH", path, body) == name
        for field in ("spawner", "heir"):
            answer = await game.api.call("POST", "/v1/entities", new | {field: name})
            assert (answer.status_code, answer.json()["code"]) == (422, "not_a_player")
            assert answer.json()["message"].startswith(f"{field}: "), answer.text
            assert name in answer.json()["message"]
    await owner_is(game, game.ada, 1)
    await game.api.refused(404, "not_found", "GET", "/v1/entities/alpha.new")
    await game.set(game.ada, owner=game.bob.name, master=game.bob.name, heir=game.ada.name)
    await game.set(game.bob, heir="")

    # Neither by its own word: the keys of a server are known as well as those of players.
    server = Player("alpha.s1")
    body = ownership(server, "servers-wish")
    assert await game.api.refused(422, "not_a_player", "POST", f"{path}/ownership", body) == "alpha.s1"
    await game.api.refused(409, "already_exists", "POST", "/v1/entities", new | {"id": "alpha.s1"})


async def test_a_server_may_be_master_answers_with_its_own_keys_and_never_becomes_owner(game: Game) -> None:
    path = f"/v1/entities/{BALL}"
    server = Player("alpha.s1")
    server.identity = game.home.simservers["alpha.s1"].sealer.identity
    await game.set(game.ada, master="alpha.s1")
    assert (await own(game, game.bob, "bobs-wish"))["phase"] == "asked"
    (ask,) = await game.api.get("/v1/players/alpha.s1/asks")
    assert (ask["transfer_id"], ask["master_rev"]) == ("bobs-wish", 2)
    word = game.word(game.ada, "bobs-wish", allow=True, master_rev=2)
    await game.api.refused(403, "not_master", "POST", "/v1/transfers/bobs-wish/answer", word)
    assert (await game.answer(server, "bobs-wish", allow=True, master_rev=2))["result"] == "done"
    await owner_is(game, game.bob, 2)
    assert (await game.set(server, rule="deny"))["rule"] == "deny"
    # What goes to the master where nobody else is named goes to nobody.
    await game.set(server, owner=game.ada.name, on_leave="adopt")
    body = {"by": game.ada.name, "owner_rev": 3}
    proof = game.ada.proof(action="leave", entity=BALL, owner_rev=3)
    left = await game.api.do("POST", f"{path}/leave", body | {"proof": proof})
    assert (left["owner"], left["owner_rev"]) == ("", 4)
    body = ownership(server, "servers-wish", "forced")
    assert await game.api.refused(422, "not_a_player", "POST", f"{path}/ownership", body) == "alpha.s1"
    await game.set(server, master=game.ada.name)


async def test_requests_that_mean_nothing_are_refused_before_anything_is_done(game: Game) -> None:
    path = f"/v1/entities/{BALL}/transfers"
    for field, value in (("want", "if_available"), ("proof", "eyJ"), ("ask_timeout_s", 7)):
        answer = await game.api.call("POST", path, {"to": "alpha.s2", field: value})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
        assert f"{field} is of a request in a player's name" in answer.json()["message"]
    both = {"want": "forced", "proof": "eyJ"}
    assert "proof and want are of" in (await game.api.call("POST", path, {"to": "alpha.s2"} | both)).text
    assert await game.api.get(path) == []
    # What is as it would be anyway is no mistake.
    await game.api.do("POST", path, {"to": "alpha.s2", "want": "by_rule", "proof": None, "transfer_id": "by-nobody"})
    await game.home.finished("by-nobody")

    answer = await game.api.call("POST", "/v1/groups", {"entities": [BALL, "alpha.x", BALL], "to": "alpha.s1"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    assert f"{BALL} is named more than once" in answer.json()["message"]
    abroad = {"entities": [BALL, "beta.x"], "to": "alpha.s1"}
    assert await game.api.refused(421, "wrong_home", "POST", "/v1/groups", abroad) == "beta.x"
    # What moves with its hierarchy is a group that is called like its transfer.
    assert await game.api.refused(404, "not_found", "GET", f"/v1/groups/{'g' * 64}") == "g" * 64
    assert await game.api.refused(422, "invalid_field", "GET", f"/v1/groups/{'g' * 65}")
    word: dict[str, Any] = {"by": game.ada.name, "proof": "eyJ"}
    for method, verb, more in (
        ("POST", "leave", {"owner_rev": 1}),
        ("POST", "delete", {"master_rev": 1}),
        ("PUT", "parent", {"parent": BALL, "parent_rev": 1}),
    ):
        assert await game.api.refused(421, "wrong_home", method, f"/v1/entities/beta.x/{verb}", word | more) == "beta.x"
    parent = word | {"parent": "beta.x", "parent_rev": 1}
    assert await game.api.refused(421, "wrong_home", "PUT", f"/v1/entities/{BALL}/parent", parent) == "beta.x"
    # Whether a server of another instance is there is not known here: that is no reason to refuse.
    assert (await game.api.do("POST", "/v1/groups", {"entities": [BALL], "to": "beta.s1"}))["phase"] == "open"
    assert await game.api.refused(422, "unknown_target", "POST", "/v1/groups", {"entities": [BALL], "to": "alpha.s9"})


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
    stale: dict[str, dict[str, Any]] = {
        "divest": {
            "if_wanted": False,
            "proof": game.ada.proof(action="divest", entity=BALL, owner_rev=77, if_wanted=False),
        },
        "hand-back": {"proof": game.ada.proof(action="hand_back", entity=BALL, owner_rev=77)},
    }
    for action, body in stale.items():
        path = f"/v1/entities/{BALL}/{action}"
        assert await game.api.refused(409, "stale_revision", "POST", path, {"by": "alpha.ada"} | body) == 1
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


async def test_failures_row_36_who_asks_about_a_move_of_what_was_deleted_hears_that_it_is_gone(game: Game) -> None:
    # Permitted, and not begun: as when the old authority has not heard of it.
    await game.home.node.store.submit("transfer.propose", transfer_id="too-late", entity=BALL, target="alpha.s2")
    assert (await game.api.get("/v1/transfers/too-late"))["result"] == "pending"
    word = {"by": "alpha.ada", "master_rev": 1, "proof": game.ada.proof(action="delete", entity=BALL, master_rev=1)}
    await game.api.do("POST", f"/v1/entities/{BALL}/delete", word)
    ended = await game.api.get("/v1/transfers/too-late")
    assert (ended["result"], ended["reason"]) == ("refused", "gone")
    assert await game.api.get("/v1/transfers/too-late?consistency=local") == ended
