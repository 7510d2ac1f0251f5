"""What clients of a homeserver's door are told without asking: rights, transfers with their phases, questions."""

from typing import Any

from batonpass.authority.wire.door import DoorHello
from batonpass.authority.wire.home_door import (
    HOME_DOOR_VERSION,
    EntityNews,
    GoneNews,
    HomeFollow,
    QuestionNews,
    TransferNews,
)
from tests.homeserver.door.visitor import visiting
from tests.homeserver.served import Home


def about(entity: str, **wanted: Any) -> Any:
    """Whether news are of this entity, as it is wanted."""

    def fits(news: Any) -> bool:
        told = news.entity if isinstance(news, EntityNews) else news.transfer
        name = told["id"] if isinstance(news, EntityNews) else told["entity"]
        return name == entity and all(told[field] == value for field, value in wanted.items())

    return fits


async def test_master_and_requester_hear_the_question_the_answer_and_the_new_owner(world: Home) -> None:
    ada, bob = await world.player("alpha.ada"), await world.player("alpha.bob")
    await world.entity("alpha.one", ada, "alpha.s1")
    async with visiting(world.api.url) as master, visiting(world.api.url) as other:
        await master.enter(ada)
        await other.enter(bob)
        # How it stands, on coming in.
        await master.hear(EntityNews, about("alpha.one", owner="alpha.ada", master="alpha.ada"))
        wish = {"to": "alpha.s2", "transfer_id": "wish-0001", "requester": "alpha.bob", "proof": ""}
        await other.do("POST", "/v1/entities/alpha.one/transfers", wish)
        question = (await master.hear(QuestionNews)).question
        assert (question["entity"], question["requester"], question["master_rev"]) == ("alpha.one", "alpha.bob", 1)
        await master.hear(TransferNews, about("alpha.one", phase="asked"))
        await other.hear(TransferNews, about("alpha.one", phase="asked"))
        yes = {"by": "alpha.ada", "allow": True, "master_rev": 1, "proof": ""}
        await master.do("POST", "/v1/transfers/wish-0001/answer", yes)
        phases = [
            (await other.hear(TransferNews, about("alpha.one"))).transfer["phase"] for _ in ("permitted", "committed")
        ]
        assert phases == ["permitted", "committed"]
        done = (await other.hear(TransferNews, about("alpha.one", phase="done"))).transfer
        assert done["trace"] is None
        await other.hear(EntityNews, about("alpha.one", owner="alpha.bob", authority="alpha.s2"))
        await master.hear(EntityNews, about("alpha.one", owner="alpha.bob", authority="alpha.s2"))


async def test_what_waits_is_told_on_coming_in_and_when_an_entity_gets_another_master(world: Home) -> None:
    ada, bob = await world.player("alpha.ada"), await world.player("alpha.bob")
    eve = await world.player("alpha.eve")
    await world.entity("alpha.one", ada, "alpha.s1")
    async with visiting(world.api.url) as asking, visiting(world.api.url) as next_master:
        await asking.enter(bob)
        wish = {"transfer_id": "wish-0001", "requester": "alpha.bob", "proof": ""}
        await asking.do("POST", "/v1/entities/alpha.one/ownership", wish)
        async with visiting(world.api.url) as master:
            await master.enter(ada)
            assert (await master.hear(QuestionNews)).question["transfer_id"] == "wish-0001"
            await next_master.enter(eve)
            rights = {
                "by": "alpha.ada",
                "proof": '{"rule_rev": 1, "owner_rev": 1, "master_rev": 1}',
                "master": "alpha.eve",
            }
            await master.do("PATCH", "/v1/entities/alpha.one", rights)
            question = (await next_master.hear(QuestionNews)).question
            assert (question["transfer_id"], question["master_rev"]) == ("wish-0001", 2)


async def test_nothing_is_told_before_that_the_client_is_in(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.one", ada, "alpha.s1")
    async with visiting(world.api.url) as first, visiting(world.api.url) as second:
        await first.enter(ada)
        # The log is followed by now, so the second one is told at once how it stands.
        await first.hear(EntityNews, about("alpha.one"))
        await second.say(DoorHello(version=HOME_DOOR_VERSION, player=ada.name, proof=second.proof(ada)))
        assert [(await second.next()).type for _ in range(2)] == ["welcome", "entity"]


async def test_who_follows_an_entity_hears_of_it_until_it_is_gone_and_no_longer(world: Home) -> None:
    ada = await world.player("alpha.ada")
    for name in ("alpha.one", "alpha.two"):
        await world.entity(name, ada, "alpha.s1")
    async with visiting(world.api.url) as observer, visiting(world.api.url) as owner:
        await observer.enter()
        await owner.enter(ada)
        await observer.say(HomeFollow(entities=["alpha.one", "alpha.none"]))
        await observer.hear(EntityNews, about("alpha.one"))
        assert (await observer.hear(GoneNews)).entity == "alpha.none"
        await world.api.do("POST", "/v1/entities/alpha.one/transfers", {"to": "alpha.s2"})
        await observer.hear(TransferNews, about("alpha.one", phase="done"))
        await observer.hear(EntityNews, about("alpha.one", authority="alpha.s2"))
        delete = {"by": "alpha.ada", "master_rev": 1, "proof": ""}
        await owner.do("POST", "/v1/entities/alpha.one/delete", delete)
        assert (await observer.hear(GoneNews)).entity == "alpha.one"
        await observer.say(HomeFollow(entities=["alpha.two"]))
        await observer.hear(EntityNews, about("alpha.two"))
        await owner.hear(GoneNews)
