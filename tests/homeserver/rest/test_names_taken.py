"""Who has the client token can take a name that a server was to have; an operator gets it back."""

from batonpass.crypto.keys import Identity
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home


def operator(home: Home) -> dict[str, str]:
    return {"authorization": "Bearer " + (home.directory / "operator").read_text()}


async def test_an_operator_frees_the_name_of_a_server_that_a_player_has(alpha: Home) -> None:
    await alpha.player("alpha.s9")
    server = Server(alpha, "alpha.s9")
    assert (
        await alpha.api.refused(409, "key_conflict", "PUT", "/v1/servers/alpha.s9", server.registration()) == "alpha.s9"
    )
    await alpha.api.refused(403, "missing_right", "DELETE", "/v1/players/alpha.s9")
    view = await alpha.api.do("DELETE", "/v1/players/alpha.s9", headers=operator(alpha))
    assert view["name"] == "alpha.s9"
    await alpha.api.refused(404, "not_found", "GET", "/v1/players/alpha.s9/keys")
    # Not to another player, who would be taken for the one that was.
    keys = {"keys": Identity.generate().public.to_jwks()["keys"]}
    assert await alpha.api.refused(409, "key_conflict", "PUT", "/v1/players/alpha.s9/keys", keys) == "alpha.s9"
    assert (await alpha.api.do("PUT", "/v1/servers/alpha.s9", server.registration(after=1)))["name"] == "alpha.s9"
    await alpha.api.refused(404, "not_found", "DELETE", "/v1/players/alpha.s9", headers=operator(alpha))


async def test_a_player_with_rights_stays(world: Home) -> None:
    ada, bob = await world.player("alpha.ada"), await world.player("alpha.bob")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    assert await world.api.refused(409, "has_rights", "DELETE", "/v1/players/alpha.ada", headers=operator(world)) == 1
    await world.api.do("DELETE", "/v1/entities/alpha.ball-1", headers=operator(world))
    for player in (ada, bob):
        await world.api.do("DELETE", f"/v1/players/{player.name}", headers=operator(world))


async def test_an_operator_frees_the_name_of_a_server_that_an_entity_has(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.s9", ada, "alpha.s1")
    server = Server(world, "alpha.s9")
    await world.api.refused(409, "key_conflict", "PUT", "/v1/servers/alpha.s9", server.registration())
    await world.api.refused(403, "missing_right", "DELETE", "/v1/entities/alpha.s9")
    grave = await world.api.do("DELETE", "/v1/entities/alpha.s9", headers=operator(world))
    assert grave["entity"] == "alpha.s9"
    await world.api.refused(404, "not_found", "GET", "/v1/entities/alpha.s9")
    await world.api.do("PUT", "/v1/servers/alpha.s9", server.registration())
    await world.api.refused(404, "not_found", "DELETE", "/v1/entities/alpha.none", headers=operator(world))
