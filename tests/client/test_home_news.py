"""A reader of what happens at home: all of it in order, or an error."""

import anyio
import pytest
import trio

from batonpass.authority.wire.home_door import GoneNews
from batonpass.authority.wire.player import ImminentLoss
from batonpass.client.client import PlayerClient
from batonpass.client.home import MAX_NEWS, HomeDirectory, HomeNews, NewsLost
from batonpass.client.player_key import PlayerKey


def gone(number: int) -> GoneNews:
    return GoneNews(revision=number, entity="alpha.one")


async def revision(reader: HomeNews) -> int:
    news = await anext(reader)
    assert isinstance(news, GoneNews)
    return news.revision


async def test_each_reader_hears_all_from_its_beginning_in_order() -> None:
    home = HomeDirectory("ws://127.0.0.1:1")
    first = home.news()
    home.told(gone(1))
    second = home.news()
    home.told(gone(2))
    assert [await revision(first) for _ in range(2)] == [1, 2]
    assert await revision(second) == 2
    with trio.move_on_after(0):
        await anext(second)
    home.told(gone(3))
    assert [await revision(reader) for reader in (first, second)] == [3, 3]


async def test_a_reader_that_takes_none_is_told_that_some_are_lost_and_the_others_go_on() -> None:
    home = HomeDirectory("ws://127.0.0.1:1")
    slow = home.news()
    for number in range(MAX_NEWS + 1):
        home.told(gone(number))
    assert [await revision(slow) for _ in range(MAX_NEWS)] == list(range(MAX_NEWS))
    with pytest.raises(NewsLost):
        await anext(slow)
    other = home.news()
    home.told(gone(7))
    assert await revision(other) == 7


async def test_that_an_entity_is_about_to_leave_is_read_as_news_and_it_is_let_go_where_it_is_steered_only() -> None:
    home = HomeDirectory("ws://127.0.0.1:1")
    news = home.news()
    leaving = ImminentLoss(entity="alpha.one", target="alpha.s2", within_ms=200, epoch=1, sub=0)
    async with anyio.create_task_group() as tasks:
        client = PlayerClient(home, PlayerKey(), tasks)
        client._answered("alpha.s1", leaving)
        assert not client.let_go("alpha.one")
    assert await anext(news) == leaving
