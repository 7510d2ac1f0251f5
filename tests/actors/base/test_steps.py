"""Work that waits only if it has to."""

from collections.abc import Awaitable
from functools import partial
from inspect import iscoroutine

import pytest
import trio
import trio.testing

from batonpass.actors.base.steps import SLICE_ITEMS, Steps, at_once, in_slices, in_task


def adding(waits: list[float]) -> Steps[float]:
    """Wait for each in turn; their sum."""
    total = 0.0
    for wait_s in waits:
        if wait_s:
            yield partial(trio.sleep, wait_s)
        total += wait_s
    return total


def test_what_need_not_wait_is_done_at_once() -> None:
    assert at_once(adding([0, 0])) == 0


async def test_what_has_to_wait_is_left_as_a_coroutine(autojump_clock: trio.testing.MockClock) -> None:
    rest = at_once(adding([0, 2.0, 0, 3.0]))
    began_s = trio.current_time()
    assert isinstance(rest, Awaitable)
    assert await rest == 5.0
    assert trio.current_time() - began_s == 5.0


@pytest.mark.parametrize("waits", [[], [0.0], [2.0], [0, 1.0, 1.0]])
async def test_in_a_task_it_is_simply_awaited(waits: list[float], autojump_clock: trio.testing.MockClock) -> None:
    assert await in_task(adding(waits)) == sum(waits)


async def test_a_wait_that_raises_raises_inside_the_steps() -> None:
    async def fail() -> None:
        raise ValueError("boom")

    def steps() -> Steps[str]:
        try:
            yield fail
        except ValueError as error:
            return f"caught {error}"
        return "not reached"

    assert await in_task(steps()) == "caught boom"


async def test_steps_may_raise_before_and_after_a_wait() -> None:
    def steps(wait: bool) -> Steps[None]:
        if wait:
            yield trio.lowlevel.checkpoint
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        at_once(steps(wait=False))
    with pytest.raises(ValueError, match="boom"):
        await in_task(steps(wait=True))


async def test_a_cancelled_wait_is_cancelled_inside_the_steps() -> None:
    cleaned: list[str] = []

    def steps() -> Steps[None]:
        try:
            yield trio.sleep_forever
        finally:
            cleaned.append("cleaned")

    with trio.CancelScope() as scope:
        scope.cancel()
        await in_task(steps())
    assert cleaned == ["cleaned"]


def test_steps_that_nobody_goes_on_with_leave_nothing_behind() -> None:
    rest = at_once(adding([2.0]))
    assert iscoroutine(rest)
    rest.close()


async def test_slices_let_others_run() -> None:
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await in_task(in_slices(range(3 * SLICE_ITEMS), str)) == list(map(str, range(3 * SLICE_ITEMS)))
        nursery.cancel_scope.cancel()
    assert others >= 2
    assert at_once(in_slices(range(SLICE_ITEMS - 1), str)) is not None
