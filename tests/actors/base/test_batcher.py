"""What several tasks want at one moment is done in one go, and nobody is forgotten, whoever is cancelled."""

import math
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors.base.batcher import Batcher


class Doubler:
    """Doubles numbers; takes a second for it."""

    def __init__(self, most: int = 100, at_once: float = math.inf) -> None:
        self.rounds: list[list[int]] = []
        self.batcher = Batcher(self._perform, most=most, at_once=at_once)

    async def _perform(self, items: list[int]) -> Sequence[int | Exception]:
        self.rounds.append(items)
        await trio.sleep(1)
        if 99 in items:
            raise OSError("nobody gets anything")
        return [ValueError(f"{item} is odd") if item % 2 else 2 * item for item in items]


async def ask(doubler: Doubler, item: int, got: dict[int, object]) -> None:
    try:
        got[item] = await doubler.batcher.do(item)
    except (ValueError, OSError) as error:
        got[item] = str(error)


async def test_who_comes_at_the_same_moment_is_served_together(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(), dict[int, object]()
    async with trio.open_nursery() as nursery:
        for item in range(5):
            nursery.start_soon(ask, doubler, item, got)
    assert [sorted(items) for items in doubler.rounds] == [[0, 1, 2, 3, 4]]
    assert got == {0: 0, 1: "1 is odd", 2: 4, 3: "3 is odd", 4: 8}


async def test_who_comes_later_does_not_wait_for_those_before(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(), dict[int, object]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, doubler, 0, got)
        await trio.sleep(0.5)
        nursery.start_soon(ask, doubler, 2, got)
        await trio.sleep(0.6)
        assert got == {0: 0}
        assert doubler.rounds == [[0], [2]]


async def test_more_than_fit_go_in_several_rounds_at_once(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(most=3), dict[int, object]()
    async with trio.open_nursery() as nursery:
        for item in range(8):
            nursery.start_soon(ask, doubler, item, got)
    assert sorted(len(items) for items in doubler.rounds) == [2, 3, 3]
    assert trio.current_time() < 1.5
    assert len(got) == 8


async def test_an_error_of_the_whole_goes_to_all(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(), dict[int, object]()
    async with trio.open_nursery() as nursery:
        for item in (0, 99, 2):
            nursery.start_soon(ask, doubler, item, got)
    assert set(got.values()) == {"nobody gets anything"}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)), min_size=1, max_size=12),
    st.integers(1, 4),
)
def test_whoever_is_cancelled_the_others_get_their_answer(plan: list[tuple[int, int | None]], most: int) -> None:
    """Each comes at some tenth of a second, and some give up at a later one."""
    got: dict[int, object] = {}

    async def one(doubler: Doubler, item: int, come: int, give_up: int | None) -> None:
        await trio.sleep(come / 10)
        with trio.CancelScope(deadline=trio.current_time() + (1e9 if give_up is None else give_up / 10)):
            got[item] = await doubler.batcher.do(item)

    async def run() -> None:
        doubler = Doubler(most)
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                for number, (come, give_up) in enumerate(plan):
                    nursery.start_soon(one, doubler, 2 * number, come, give_up)
        assert doubler.batcher._waiting == []

    trio.run(run, clock=MockClock(autojump_threshold=0))
    patient = {2 * number for number, (_, give_up) in enumerate(plan) if give_up is None}
    assert patient <= set(got)
    assert all(value == 2 * item for item, value in got.items())


def test_the_combiner_says_when_answers_are_missing() -> None:
    async def nothing(items: list[int]) -> list[int]:
        return []

    async def run() -> None:
        batcher: Batcher[int, int] = Batcher(nothing, most=1)
        with pytest.raises(ValueError, match="zip"):
            await batcher.do(1)

    trio.run(run)


async def test_no_more_are_performed_at_once_than_may_be_and_who_waits_goes_together(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(at_once=2), dict[int, object]()
    async with trio.open_nursery() as nursery:
        for item in (0, 2, 4, 6, 8):
            nursery.start_soon(ask, doubler, item, got)
            await trio.sleep(0.1)
        assert doubler.rounds == [[0], [2]]
        await trio.sleep(0.55)
        assert doubler.rounds == [[0], [2], [4, 6, 8]]
    assert got == {item: 2 * item for item in (0, 2, 4, 6, 8)}


async def test_who_does_not_wait_any_more_when_it_is_its_turn_is_not_performed(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(at_once=1), dict[int, object]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, doubler, 0, got)
        await trio.sleep(0.1)
        with trio.move_on_after(0.5):
            await ask(doubler, 2, got)
        nursery.start_soon(ask, doubler, 4, got)
    assert doubler.rounds == [[0], [4]]


async def test_the_place_of_one_that_is_cancelled_while_it_is_performed_is_free(autojump_clock: MockClock) -> None:
    doubler, got = Doubler(at_once=1), dict[int, object]()
    with trio.move_on_after(0.5):
        await ask(doubler, 0, got)
    await ask(doubler, 2, got)
    assert got == {2: 4}
