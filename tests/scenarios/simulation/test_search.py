"""The search itself, on puzzles whose answers are known."""

from collections.abc import Iterator
from typing import Any

import pytest

from batonpass.scenarios.simulation.search.search import Search, SearchStep, TooManyStates


class Jugs:
    """Two jugs of three and five litres; the promise to be broken is that nobody ever measures four."""

    def __init__(self, forbidden: int = 4) -> None:
        self.forbidden = forbidden

    def initial(self) -> tuple[int, int]:
        return (0, 0)

    def steps(self, state: tuple[int, int]) -> Iterator[SearchStep]:
        small, big = state
        poured, back = min(small, 5 - big), min(big, 3 - small)
        after = {
            "fill small": (3, big), "fill big": (small, 5), "empty small": (0, big), "empty big": (small, 0),
            "small to big": (small - poured, big + poured), "big to small": (small + back, big - back),
        }  # fmt: skip
        for name, jugs in after.items():
            yield SearchStep((name,), jugs, name != "empty big", "measured" if jugs[1] == self.forbidden else "")

    def is_settled(self, state: tuple[int, int]) -> bool:
        return state == (0, 0)

    def must_recover(self, state: tuple[int, int]) -> bool:
        return True

    def tell(self, state: tuple[int, int], action: tuple[Any, ...]) -> str:
        return str(action[0])

    def describe(self, state: tuple[int, int]) -> list[str]:
        return [f"{state[0]} and {state[1]} litres"]


def test_a_counterexample_is_a_shortest_one() -> None:
    violation = Search(Jugs()).run()
    assert violation is not None
    assert (violation.kind, violation.sentence) == ("safety", "measured")
    ways = [line.strip() for line in violation.transcript]
    assert ways == [
        "1  fill big", "2  big to small", "3  empty small", "4  big to small", "5  fill big", "6  big to small",
        "3 and 4 litres",
    ]  # fmt: skip


def test_every_reachable_state_is_visited_once() -> None:
    search = Search(Jugs(forbidden=99))
    assert search.run() is None
    assert (search.states, search.transitions) == (16, 16 * 6)


class Valley(Jugs):
    """A way down that is somebody's fault, and none up."""

    def initial(self) -> tuple[int, int]:
        return (0, 0)

    def steps(self, state: tuple[int, int]) -> Iterator[SearchStep]:
        if state[0] < 3:
            yield SearchStep((f"fall to {state[0] + 1}",), (state[0] + 1, 0), state[0] != 1, "")
        if state[0] == 1:
            yield SearchStep(("climb",), (0, 0), True, "")


def test_a_state_without_a_way_back_is_found_and_the_nearest_is_named() -> None:
    search = Search(Valley())
    violation = search.run()
    assert violation is not None
    assert violation.kind == "recovery"
    assert [line.strip() for line in violation.transcript] == ["1  fall to 1", "2  fall to 2", "2 and 0 litres"]
    assert search.settled == 1


def test_a_model_that_is_too_large_is_given_up() -> None:
    with pytest.raises(TooManyStates, match="more than 10 states"):
        Search(Jugs(forbidden=99), max_states=10).run()
