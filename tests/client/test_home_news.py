"""A reader of what happens at home: all of it in order, or an error; and an end where it is closed."""

import pytest
import trio

from batonpass.authority.wire.home_door import GoneNews
from batonpass.client.home import MAX_NEWS, HomeDirectory, NewsLost


def gone(number: int) -> GoneNews:
    return GoneNews(revision=number, entity="alpha.one")


async def test_each_reader_hears_all_from_its_beginning_in_order_until_it_is_closed() -> None:
    home = HomeDirectory("ws://127.0.0.1:1")
    first = home.news()
    home._told(gone(1))
    second = home.news()
    heard: list[tuple[str, int]] = []

    async def read(name: str, reader: object) -> None:
        async for news in reader:  # type: ignore[attr-defined] # one of the two
            heard.append((name, news.revision))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, "first", first)
        nursery.start_soon(read, "second", second)
        await trio.testing.wait_all_tasks_blocked()
        home._told(gone(2))
        await trio.testing.wait_all_tasks_blocked()
        first.close()
        first.close()
        home._told(gone(3))
        await trio.testing.wait_all_tasks_blocked()
        second.close()
    assert sorted(heard) == [("first", 1), ("first", 2), ("second", 2), ("second", 3)]


async def test_a_reader_that_takes_none_is_told_that_some_are_lost_and_the_others_go_on() -> None:
    home = HomeDirectory("ws://127.0.0.1:1")
    slow = home.news()
    for number in range(MAX_NEWS + 1):
        home._told(gone(number))
    assert [(await anext(slow)).revision for _ in range(MAX_NEWS)] == list(range(MAX_NEWS))
    with pytest.raises(NewsLost):
        await anext(slow)
    other = home.news()
    home._told(gone(7))
    assert (await anext(other)).revision == 7
