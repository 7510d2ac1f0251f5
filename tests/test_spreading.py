"""In which order several workers run the tests."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.spreading import LONG, in_slices

ROOT = Path(__file__).parents[1]
LISTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=80)


def module(item: tuple[int, int]) -> str:
    return f"m{item[0]}"


def test_every_long_module_is_one() -> None:
    assert [name for name in LONG if not (ROOT / name).is_file()] == []


@given(LISTS, st.integers(1, 8), st.dictionaries(st.integers(0, 9).map(lambda n: f"m{n}"), st.integers(1, 100)))
def test_all_are_run_once_and_those_of_a_module_in_their_order(
    found: list[tuple[int, int]], slices: int, long: dict[str, int]
) -> None:
    items = sorted(found)
    ordered = in_slices(items, module, slices, long)
    assert sorted(ordered) == items
    for name in {module(item) for item in items}:
        assert [item for item in ordered if module(item) == name] == [item for item in items if module(item) == name]
    for name in long:
        places = [place for place, item in enumerate(ordered) if module(item) == name]
        assert places == list(range(places[0], places[0] + len(places))) if places else True


def test_each_slice_begins_with_long_modules_and_each_has_about_as_much_of_them() -> None:
    items = [(number, count) for number in range(9) for count in range(10)]
    ordered = in_slices(items, module, 3, {"m0": 30, "m1": 20, "m4": 10, "m8": 10})
    assert [module(ordered[0]), module(ordered[30]), module(ordered[60])] == ["m0", "m1", "m4"]
    assert [module(item) for item in ordered[60:80:10]] == ["m4", "m8"]


def test_without_long_modules_nothing_changes() -> None:
    items = [(number, 0) for number in range(10)]
    assert in_slices(items, module, 4, {}) == items
