"""Bells: who waits hears what rang before, and does not wait for ever."""

import trio
import trio.testing

from batonpass.actors.base.clock import Clock


async def test_a_bell_wakes_who_waits_and_rings_once(autojump_clock: trio.testing.MockClock) -> None:
    bell = Clock().bell()
    heard = []

    async def listen() -> None:
        heard.append(await bell.wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        assert not heard
        bell.ring()
    assert heard == [True]
    assert not await bell.wait(1.0)


async def test_a_ring_before_anybody_waits_is_heard(autojump_clock: trio.testing.MockClock) -> None:
    bell = Clock().bell()
    bell.ring()
    bell.ring()
    began_s = trio.current_time()
    assert await bell.wait(10.0)
    assert trio.current_time() == began_s
    assert not await bell.wait(10.0)
    assert trio.current_time() == began_s + 10.0
