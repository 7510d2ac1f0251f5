"""Tables with a bound, against a model that is a list of pairs, oldest first."""

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto.bounded_tables import FifoTable, LruTable

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "authority", "crypto", "homeserver", "scenarios", "simserver", "tree")
# They take out the first entry, and not for a bound of entries alone.
NOT_TABLES = {
    "crypto/bounded_tables.py",
    "authority/placement/rejections.py",  # what is too old
    "simserver/durability/creation_barrier.py",  # a queue
    "simserver/transfer/source/concurrency.py",  # a queue
    "tree/machine/sessions.py",  # the lowest number, bounded by bytes as well
}
KEYS = st.integers(0, 7)
VALUES = st.integers(0, 99)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, VALUES),
        st.tuples(st.just("setdefault"), KEYS, VALUES),
        st.tuples(st.just("update"), KEYS, VALUES),
        st.tuples(st.just("get"), KEYS, VALUES),
        st.tuples(st.just("pop"), KEYS, VALUES),
        st.tuples(st.just("use"), KEYS, VALUES),
        st.tuples(st.just("clear"), KEYS, VALUES),
    ),
    max_size=60,
)


class Model:
    """Rows of a table, oldest first, and what was displaced."""

    def __init__(self, max_entries: int, *, is_lru: bool) -> None:
        self.rows: list[tuple[int, int]] = []
        self.displaced: list[tuple[int, int]] = []
        self._max_entries = max_entries
        self._is_lru = is_lru

    def value(self, key: int) -> int | None:
        return next((value for known, value in self.rows if known == key), None)

    def set(self, key: int, value: int) -> None:
        if self.value(key) is None or self._is_lru:
            self.remove(key)
            self.rows.append((key, value))
        else:
            self.rows = [(known, value if known == key else old) for known, old in self.rows]
        if len(self.rows) > self._max_entries:
            self.displaced.append(self.rows.pop(0))

    def remove(self, key: int) -> None:
        self.rows = [row for row in self.rows if row[0] != key]


def step(table: FifoTable[int, int], model: Model, what: str, key: int, value: int) -> None:
    match what:
        case "set":
            table[key] = value
            model.set(key, value)
        case "update":
            table.update({key: value})
            model.set(key, value)
        case "setdefault":
            if (known := model.value(key)) is None:
                model.set(key, value)
            assert table.setdefault(key, value) == (value if known is None else known)
        case "get":
            assert table.get(key) == model.value(key)
            assert (key in table) == (model.value(key) is not None)
        case "pop":
            assert table.pop(key, None) == model.value(key)
            model.remove(key)
        case "use" if (known := model.value(key)) is not None:
            table.move_to_end(key)
            model.remove(key)
            model.rows.append((key, known))
        case "clear":
            table.clear()
            model.rows.clear()
        case _:
            pass


@pytest.mark.parametrize("kind", [FifoTable, LruTable])
@given(max_entries=st.integers(0, 6), steps=STEPS)
def test_a_table_holds_what_a_naive_list_holds_in_the_same_order_and_displaces_the_same(
    kind: type[FifoTable[int, int]], max_entries: int, steps: list[tuple[str, int, int]]
) -> None:
    displaced: list[tuple[int, int]] = []
    table = kind(max_entries, lambda key, value: displaced.append((key, value)))
    model = Model(max_entries, is_lru=kind is LruTable)
    for what, key, value in steps:
        if what == "setdefault" and not max_entries:
            continue  # a mapping that keeps nothing has no default to give back
        step(table, model, what, key, value)
        assert list(table.items()) == model.rows
        assert displaced == model.displaced
        assert len(table) <= max_entries


def test_the_first_that_came_goes_first_however_often_it_is_assigned_again() -> None:
    table: FifoTable[str, int] = FifoTable(2)
    table["a"] = 1
    table["b"] = 2
    table["a"] = 3
    table["c"] = 4
    assert dict(table) == {"b": 2, "c": 4}


def test_the_longest_unassigned_goes_first() -> None:
    table: LruTable[str, int] = LruTable(2)
    table["a"] = 1
    table["b"] = 2
    table["a"] = 3
    table["c"] = 4
    assert dict(table) == {"a": 3, "c": 4}


def test_what_is_displaced_has_gone_when_that_is_told() -> None:
    seen: list[Any] = []
    table: LruTable[str, int] = LruTable(1, lambda key, value: seen.append((key, value, dict(table))))
    table["a"] = 1
    table["b"] = 2
    assert seen == [("a", 1, {"b": 2})]


def test_a_full_table_loses_one_entry_for_each_new_one() -> None:
    table: LruTable[int, None] = LruTable(1000)
    for number in range(3000):
        table[number] = None
        assert len(table) == min(number + 1, 1000)
    assert list(table) == list(range(2000, 3000))


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 entries"):
        LruTable(-1)


def bounds_by_hand(text: str) -> Iterator[int]:
    """Lines that take out the oldest entry of a mapping, or empty a container because it is full."""
    if ".popitem" not in text and ".clear" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        # Its name first: to write out every call of the project takes seconds.
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "popitem"
            and ast.unparse(node).endswith(".popitem(last=False)")
        ):
            yield node.lineno
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Call):
            counted = ast.unparse(node.test.left)
            emptied = (ast.unparse(line) for line in node.body)
            if any(line.endswith(".clear()") and counted == f"len({line[:-8]})" for line in emptied):
                yield node.lineno


def test_a_table_that_is_bounded_by_hand_is_found() -> None:
    assert list(bounds_by_hand("seen[key] = value\nself.seen.popitem(last=False)\nseen.popitem()")) == [2]
    assert list(
        bounds_by_hand("if len(self.seen) > 7:\n    self.seen.clear()\nif len(seen) > 7:\n    kept.clear()")
    ) == [1]
    assert list(bounds_by_hand("seen[key] = value")) == []


def test_no_module_bounds_a_table_by_hand() -> None:
    by_hand = {
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if str(path.relative_to(ROOT)) not in NOT_TABLES
        for line in bounds_by_hand(path.read_text())
    }
    assert by_hand == set()


@pytest.mark.parametrize("kind", [FifoTable, LruTable])
def test_a_copy_has_the_same_entries_in_the_same_order_and_the_same_bound(kind: type[FifoTable[int, int]]) -> None:
    table = kind(3)
    table.update({1: 1, 2: 2, 3: 3})
    for made in (copy.copy(table), copy.deepcopy(table)):
        assert (type(made), list(made.items())) == (kind, [(1, 1), (2, 2), (3, 3)])
        made[4] = 4
        assert list(made) == [2, 3, 4]
    assert list(table) == [1, 2, 3]
