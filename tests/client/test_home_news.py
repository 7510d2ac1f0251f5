"""A reader of what happens at home: all of it in order, or an error."""

import pytest
import trio

from batonpass.authority.wire.home_door import GoneNews
from batonpass.client.home import MAX_NEWS, HomeDirectory, NewsLost


def gone(number: int) -> GoneNews:
    return GoneNews(revision=number, entity="alpha.one")


async def test_each_reader_hears_all_from_its_beginning_in_order() -> None:
    home = HomeDirectory("ws://127.0.0.1:1")
    first = home.news()
    home._told(gone(1))
    second = home.news()
    home._told(gone(2))
    assert [(await anext(first)).revision for _ in range(2)] == [1, 2]
    assert (await anext(second)).revision == 2
    with trio.move_on_after(0):
        await anext(second)
    home._told(gone(3))
    assert [(await anext(reader)).revision for reader in (first, second)] == [3, 3]


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
