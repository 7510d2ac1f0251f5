"""One connection for all: a client that sees something has requests and events go over the door that shows it."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trio

from batonpass.authority.wire.door import HOME_SINCE, HomeOver, HomeWord, version_for
from batonpass.authority.wire.home_door import EntityNews, QuestionNews
from batonpass.client.client import PlayerClient, connect
from batonpass.client.door_link import PlayerKey
from batonpass.client.home_channel import HomeChannel
from batonpass.client.socket import DoorClosed
from batonpass.simserver.players import home_words
from tests.client.test_door import Raw, raw, server
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served, until

ONE = "alpha.one"


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            yield home


def connections_home(home: Home) -> int:
    """How many WebSockets there are at the homeserver."""
    assert home.node.door_traffic is not None
    return home.node.door_traffic().connected


async def goes_over_a_door(home: Home, client: PlayerClient) -> None:
    """Wait until the client has no connection but that to a door, which talks to the homeserver for it."""
    await until(lambda: client.home.link.way is not None and connections_home(home) == 1)


async def one_of(home: Home, player: Player) -> None:
    await home.entity(ONE, player, "alpha.s1", kind="robot", params={"owner": player.name})


async def test_states_inputs_requests_and_events_go_over_one_connection(alpha: Home) -> None:
    node, ada, bob = await server(alpha), await alpha.player("alpha.ada"), await alpha.player("alpha.bob")
    await one_of(alpha, ada)
    async with connect(alpha.api.url, player=ada.name, identity=ada.identity) as client:
        news = client.home.news()
        watch, steering = await client.watch(entity=ONE), await client.steer(ONE)
        await goes_over_a_door(alpha, client)
        assert len(node.players) == 1
        # From here on the client has a connection to the door, and no other.
        await steering.applied(await steering.give(bytes((1, 0))))
        async for change in watch:
            if change.entity.state["inputs"] == 1:
                break
        wish = "the-wish-1"
        proof = bob.proof(action="ownership", entity=ONE, transfer_id=wish, want="by_rule", owner_rev=None)
        body = {"requester": "alpha.bob", "proof": proof, "transfer_id": wish}
        await alpha.api.do("POST", f"/v1/entities/{ONE}/ownership", body)
        async for each in news:
            if isinstance(each, QuestionNews):
                await client.home.answer(each.question, allow=True)
            if isinstance(each, EntityNews) and each.entity["owner"] == "alpha.bob":
                break
        assert (client.home.link.way is None, client.home.link.reconnections) == (False, 0)
        assert (len(node.players), connections_home(alpha)) == (1, 1)
    await until(lambda: len(node.players) == 0)


async def test_no_event_is_lost_or_comes_late_where_the_way_changes(alpha: Home) -> None:
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    await one_of(alpha, ada)
    async with connect(alpha.api.url, player=ada.name, identity=ada.identity) as client:
        news, last = client.home.news(), 0
        async with trio.open_nursery() as nursery:

            async def change() -> None:
                nonlocal last
                while client.home.link.way is None:
                    seen = await client.home.entity(ONE)
                    rule = "deny" if seen["rule"] == "allow" else "allow"
                    last = int((await client.home.change_rights(ONE, seen, rule=rule))["rule_rev"])

            nursery.start_soon(change)
            await client.watch(entity=ONE)
        assert last > 3
        seen: list[int] = []
        async for each in news:
            if isinstance(each, EntityNews):
                seen.append(int(each.entity["rule_rev"]))
                if seen[-1] == last:
                    break
        assert seen == sorted(seen)
        assert set(seen) == set(range(seen[0], last + 1))


async def test_a_door_that_is_lost_leads_home_again_and_what_was_asked_meanwhile_is_answered(alpha: Home) -> None:
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    await one_of(alpha, ada)
    async with connect(alpha.api.url, player=ada.name, identity=ada.identity) as client:
        watch = await client.watch(entity=ONE)
        for _ in range(3):
            await goes_over_a_door(alpha, client)
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(client.home.entity, ONE)
                await client.break_off()
        watch.close()


async def test_where_a_door_leads_to_no_homeserver_the_client_has_a_connection_of_its_own(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_words, "MAX_CONVERSATIONS", 0)
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    await one_of(alpha, ada)
    async with raw(node) as stranger:
        await stranger.enter()
        await stranger.say(HomeWord())
        assert (await stranger.hear(HomeOver)).code == "too_many_connections"
    async with connect(alpha.api.url, player=ada.name, identity=ada.identity) as client:
        async for _ in await client.watch(entity=ONE):
            break
        assert (await client.home.entity(ONE))["owner"] == "alpha.ada"
        assert (client.home.link.way, client.home.link.reconnections) == (None, 0)


async def begun(stranger: Raw) -> None:
    await stranger.say(HomeWord())
    while (await stranger.hear(HomeWord)).data:
        pass


async def test_a_client_proves_to_the_homeserver_who_it_is_and_says_no_more_than_that_takes(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await server(alpha)
    async with raw(node) as stranger:
        assert version_for(stranger.challenge) >= HOME_SINCE
        await stranger.enter()
        for last_word, code in ((b"nonsense", "bad_message"), (bytes(65_536), "home_unreachable")):
            await begun(stranger)
            await stranger.say(HomeWord(data=last_word))
            over = await stranger.hear(HomeOver)
            assert over.code == code
        # What is said while there is no conversation is said to nobody.
        await stranger.say(HomeWord(data=b"hello?"))
        await stranger.say(HomeOver())
        await begun(stranger)
        await stranger.say(HomeOver())
        assert connections_home(alpha) <= 1
        monkeypatch.setattr(home_words, "MAX_WAITING_BYTES", 100)
        await begun(stranger)
        await stranger.say(HomeWord(data=bytes(101)))
        assert await stranger.closed() == "too_many"
    await until(lambda: len(node.players) == 0)


async def test_a_client_of_the_first_version_is_let_in_as_before(alpha: Home) -> None:
    node, ada = await server(alpha), await alpha.player("alpha.ada")
    async with raw(node) as former:
        former.challenge = former.challenge.model_copy(update={"versions": [1]})
        hello = PlayerKey(ada.name, ada.identity).prove(former.challenge)
        assert hello.version == 1
        assert (await former.enter(ada)).player == "alpha.ada"


async def test_words_of_a_conversation_of_before_are_passed_over() -> None:
    said: list[HomeWord | HomeOver] = []

    def say(message: HomeWord | HomeOver) -> bool:
        said.append(message)
        return True

    channel = HomeChannel(say)
    channel.take(HomeWord(data=b"of before"))
    channel.take(HomeWord())
    channel.take(HomeWord(data=b"one"))
    channel.take(HomeWord(data=b"two"))
    channel.take(HomeOver(code="too_slow", message="why"))
    assert (channel.waiting, await channel.receive(), await channel.receive()) == (2, b"one", b"two")
    for act in (channel.receive, partial(channel.send, b"late")):
        with pytest.raises(DoorClosed) as ended:
            await act()
        assert ended.value.reason == "too_slow"
    await channel.aclose()
    assert said == [HomeWord()]
