"""Players who come to the door by an invitation, or where an instance is open; over real sockets."""

from pathlib import Path
from typing import Any

from batonpass.authority.model.enrolment import Right
from batonpass.homeserver.config import OpenEnrolment
from batonpass.homeserver.door.enrolment import OPEN_RATE
from tests.homeserver.door.visitor import visiting
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served


async def invited(home: Home, players: str = "alpha.guest-*", **more: Any) -> dict[str, Any]:
    body = {"players": players} | more
    made: dict[str, Any] = await home.api.do("POST", "/v1/invitations", body)
    return made


async def refused(home: Home, who: Player, invitation: str, code: str, **changed: Any) -> None:
    async with visiting(home.api.url) as visitor:
        assert await visitor.turned_away(visitor.enrolling(who, invitation, **changed)) == code


async def test_a_stranger_comes_by_an_invitation_and_is_a_player_from_then_on(world: Home) -> None:
    made = await invited(world, rights=["spawn", "own"], kinds=["ball"], most_entities=1)
    guest = Player("alpha.guest-1")
    async with visiting(world.api.url) as visitor:
        welcome = await visitor.enrol(guest, made["invitation"])
        assert (welcome.player, welcome.rights, welcome.kinds) == ("alpha.guest-1", ["spawn", "own"], ["ball"])
        assert welcome.token
        ball = {"id": "alpha.guest-1-a", "kind": "ball", "spawner": guest.name, "server": "alpha.s1"}
        assert (await visitor.do("POST", "/v1/entities", ball))["owner"] == guest.name
        # The same again is there; another one is more than it may have; and it is no master that decides.
        await visitor.do("POST", "/v1/entities", ball)
        await visitor.refused(403, "not_permitted", "POST", "/v1/entities", ball | {"id": "alpha.guest-1-b"})
        delete = {"by": guest.name, "master_rev": 1, "proof": ""}
        await visitor.refused(403, "not_permitted", "POST", "/v1/entities/alpha.guest-1-a/delete", delete)
    async with visiting(world.api.url) as visitor:
        assert (await visitor.enter(guest)).rights == ["spawn", "own"]
        # What is taken away is gone for those that are connected, too.
        await world.api.do("PUT", f"/v1/players/{guest.name}/enrolment", {"rights": []})
        await visitor.refused(403, "not_permitted", "POST", "/v1/entities", ball)
    await refused(world, Player("alpha.guest-2"), made["invitation"], "bad_invitation")
    await refused(world, Player("alpha.guest-1"), made["invitation"], "key_conflict")
    async with visiting(world.api.url) as visitor:
        assert (await visitor.enrol(guest, made["invitation"])).rights == []
    (listed,) = await world.api.get("/v1/invitations")
    assert (listed["id"], listed["uses"]) == (made["id"], 0)
    assert "invitation" not in listed
    await world.api.do("DELETE", f"/v1/invitations/{made['id']}")
    assert await world.api.get("/v1/invitations") == []


async def test_an_invitation_under_a_name_of_the_request_is_made_once(alpha: Home) -> None:
    made = await invited(alpha, uses=2, request_id="a guest on monday")
    async with visiting(alpha.api.url) as visitor:
        await visitor.enrol(Player("alpha.guest-1"), made["invitation"])
    alpha.clock.ahead_s = 10.0
    again = await invited(alpha, uses=2, request_id="a guest on monday")
    assert again == made | {"uses": 1}, "but for the use"
    assert (await invited(alpha, request_id="a guest on tuesday"))["invitation"] != made["invitation"]
    assert (await invited(alpha))["invitation"] != (await invited(alpha))["invitation"]
    other = {"players": "alpha.guest-*", "uses": 3, "request_id": "a guest on monday"}
    await alpha.api.refused(409, "already_exists", "POST", "/v1/invitations", other)
    assert len(await alpha.api.get("/v1/invitations")) == 4


async def test_what_is_wrong_with_a_stranger_is_said_and_counts_nothing(alpha: Home) -> None:
    made = await invited(alpha)
    good = made["invitation"]
    guest = Player("alpha.guest-1")
    for code, who, invitation, changed in (
        ("not_invited", guest, "", {}),
        ("bad_invitation", guest, "no invitation", {}),
        ("bad_invitation", guest, f"{made['id']}.guessed", {}),
        ("bad_invitation", guest, good[:-1], {}),
        ("bad_invitation", Player("alpha.ada"), good, {}),
        ("wrong_home", Player("beta.guest-1"), good, {}),
        ("bad_keys", guest, good, {"keys": [{"kty": "EC"}, {}]}),
        ("bad_keys", guest, good, {"keys": guest.keys[:1] * 2}),
        ("bad_proof", guest, good, {"keys": Player("alpha.guest-1").keys}),
        ("bad_proof", guest, good, {"proof": "a.b.c"}),
        ("other_version", guest, good, {}),
        ("key_conflict", Player("alpha.h1"), (await invited(alpha, "alpha.h?"))["invitation"], {}),
    ):
        if code == "other_version":
            async with visiting(alpha.api.url) as visitor:
                asked = visitor.enrolling(who, invitation).model_copy(update={"version": 2})
                assert await visitor.turned_away(asked) == code
        else:
            await refused(alpha, who, invitation, code, **changed)
    assert [one["uses"] for one in await alpha.api.get("/v1/invitations")] == [1, 1]
    alpha.clock.ahead_s = 25 * 3600.0
    async with visiting(alpha.api.url) as visitor:
        proof = visitor.proof(guest, lifetime_s=alpha.clock.ahead_s + 60)
        assert await visitor.turned_away(visitor.enrolling(guest, good, proof=proof)) == "bad_invitation"
    assert await alpha.api.get("/v1/invitations") == []
    await alpha.api.refused(404, "not_found", "GET", "/v1/players/alpha.guest-1/enrolment")


async def test_where_an_instance_is_open_players_come_under_the_names_that_it_says(tmp_path: Path) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        opened = OpenEnrolment(players="alpha.guest-*", rights=(Right.OWN,), kinds=())
        async with served(config.model_copy(update={"open_enrolment": opened})) as home:
            guest = Player("alpha.guest-1")
            for _ in range(2):
                async with visiting(home.api.url) as visitor:
                    assert (await visitor.enrol(guest)).rights == ["own"]
            await refused(home, Player("alpha.ada"), "", "not_invited")
            await refused(home, Player("alpha.guest-1"), "", "key_conflict")
            registered = await home.player("alpha.guest-x")
            await refused(home, registered, "", "key_conflict")
            # Nobody fills the directory: strangers of one address come ever more slowly.
            codes = []
            for number in range(OPEN_RATE.burst + 1):
                async with visiting(home.api.url) as visitor:
                    stranger = Player(f"alpha.guest-s{number}")
                    await visitor.say(visitor.enrolling(stranger))
                    codes.append((await visitor.hear(object)).type)
            assert codes[-1] == "refused"
            assert codes.count("welcome") >= OPEN_RATE.burst - 2
