"""The role player over REST: it stands in for the client token, for one player, who signs what takes a signature."""

import time
from typing import Any

from batonpass.authority.model.enrolment import DoorGrant, Right
from batonpass.crypto.access_tokens import TokenRole
from tests.homeserver.rest.test_rules import BALL, Game
from tests.homeserver.served import Home, Player
from tests.tokens import token_of


def bearer(player: str, role: TokenRole = TokenRole.PLAYER, **more: Any) -> dict[str, str]:
    """The head of a request with a token that is good now."""
    now_s = int(time.time())  # noqa: TID251 -- the servers of these tests have the clock of this machine
    token = token_of(role, subject=player, issued_s=now_s, not_before_s=now_s, expires_s=now_s + 600, **more)
    return {"authorization": f"Bearer {token}"}


async def test_a_player_asks_for_itself_with_its_own_signature_and_for_nobody_else(world: Home) -> None:
    game = Game(world, await world.player("alpha.ada"), await world.player("alpha.bob"))
    await world.entity(BALL, game.ada, "alpha.s1")
    path = f"/v1/entities/{BALL}/ownership"

    def asked(who: Player, signer: Player, wish: str) -> dict[str, Any]:
        stated: dict[str, Any] = {"want": "by_rule", "owner_rev": None, "transfer_id": wish}
        proof = signer.proof(action="ownership", entity=BALL, **stated)
        return {"requester": who.name, "proof": proof} | stated

    own = bearer("alpha.bob")
    forged = asked(game.bob, game.ada, "wish-0001")
    await world.api.refused(403, "wrong_signer", "POST", path, forged, headers=own)
    unsigned = asked(game.bob, game.bob, "wish-0001") | {"proof": ""}
    await world.api.refused(403, "bad_proof", "POST", path, unsigned, headers=own)
    await world.api.refused(403, "bad_proof", "POST", path, unsigned | {"proof": "{}"}, headers=own)
    others = asked(game.ada, game.ada, "wish-0001")
    await world.api.refused(403, "wrong_signer", "POST", path, others, headers=own)
    good = asked(game.bob, game.bob, "wish-0001")
    await world.api.refused(403, "missing_right", "POST", path, good, headers=bearer("alpha.bob", TokenRole.VIEWER))
    assert (await world.api.do("POST", path, good, headers=own))["result"] == "pending"


async def test_what_a_player_may_is_what_it_may_at_the_door(world: Home) -> None:
    await world.player("alpha.ada")
    ball = {"id": "alpha.ada-ball", "spawner": "alpha.ada", "server": "alpha.s1", "kind": "ball"}
    own = bearer("alpha.ada")
    await world.api.refused(403, "not_permitted", "POST", "/v1/entities", ball, headers=own)
    grant = DoorGrant(rights=(Right.SPAWN,), kinds=("ball",)).model_dump(mode="json")
    await world.api.do("PUT", "/v1/players/alpha.ada/enrolment", grant)
    for other in ({"id": "alpha.ball-9"}, {"kind": "cube"}, {"spawner": "alpha.bob"}):
        await world.api.refused(403, "not_permitted", "POST", "/v1/entities", ball | other, headers=own)
    assert (await world.api.do("POST", "/v1/entities", ball, headers=own))["owner"] == "alpha.ada"
    # A right that was not given.
    by = {"by": "alpha.ada", "proof": "x", "owner_rev": 1}
    await world.api.refused(403, "not_permitted", "POST", "/v1/entities/alpha.ada-ball/leave", by, headers=own)
    await world.api.refused(403, "missing_right", "GET", "/v1/tree", headers=own)
    await world.api.refused(403, "missing_right", "DELETE", "/v1/entities/alpha.ada-ball", headers=own)


async def test_a_viewer_looks_and_changes_nothing_and_a_scope_closes_the_rest(world: Home) -> None:
    await world.api.do("PUT", "/v1/tree/shop/a", {"data": 1})
    await world.api.do("PUT", "/v1/tree/other", {"data": 2})
    viewer, shop = bearer("eve", TokenRole.VIEWER), bearer("eve", TokenRole.VIEWER, scope=("/v1/tree/shop/*",))
    for path in ("/v1/tree", "/v1/tree/shop/a", "/v1/tree/other", "/v1/map"):
        assert (await world.api.call("GET", path, headers=viewer)).status_code == 200
    assert (await world.api.call("GET", "/v1/tree/shop/a", headers=shop)).json()["data"] == 1
    await world.api.refused(403, "out_of_scope", "GET", "/v1/tree/other", headers=shop)
    for head in (viewer, shop):
        await world.api.refused(403, "missing_right", "PUT", "/v1/tree/shop/a", {"data": 3}, headers=head)
        await world.api.refused(403, "missing_right", "DELETE", "/v1/tree/shop/a", headers=head)
    assert (await world.api.get("/v1/tree/shop/a"))["data"] == 1
