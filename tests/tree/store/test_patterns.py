"""Patterns: what they mean as tuples, as data and as text, and what is refused by form."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import BadPath, BadPattern, PossiblyManyNodes
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import MAX_DEPTH, Path
from batonpass.tree.store.conditions import AllOf, AnyOf, IfHasData, IfNameMatches, IfPathMatches, Name, NotOf
from batonpass.tree.store.matching import EventPattern
from batonpass.tree.store.pattern import (
    ANY_DEPTH,
    ANY_NAME,
    MAX_COMPONENTS,
    Pattern,
    PatternStep,
    could_match_many,
    is_path,
    one_node,
    parse_pattern,
    pattern_from_data_untrusted,
    pattern_to_data,
    resolve,
)
from batonpass.tree.store.store import Store
from tests.tree.strategies import close_paths, names, patterns, plain_data

SOME_NODE = NodeView(None, 1, 1, 0)


@given(patterns)
def test_a_pattern_means_the_same_after_the_way_through_bytes(pattern: Pattern) -> None:
    read = pattern_from_data_untrusted(decode(encode(pattern_to_data(pattern))))
    assert resolve(read) == resolve(pattern)
    assert could_match_many(read) is could_match_many(pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("", ()),
        ("/", ()),
        ("a/b", ("a", "b")),
        ("/a/b", ("a", "b")),
        ("*/b", (ANY_NAME, "b")),
        ("a/**", ("a", ANY_DEPTH)),
        ("a/fo*", ("a", IfNameMatches(prefix="fo"))),
        ("./b", (PatternStep.THIS, "b")),
        ("../b", (PatternStep.PARENT, "b")),
        (r"\.", (".",)),
        (r"\.\.", ("..",)),
        (r"\*", ("*",)),
        (r"a\/b", ("a/b",)),
        (r"a\\b", ("a\\b",)),
        ("...", ("...",)),
    ],
)
def test_the_written_form(text: str, pattern: Pattern) -> None:
    assert parse_pattern(text) == pattern


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("a*z", "az", True),
        ("a*z", "a/.\nz", True),
        ("a*z", "azz!", False),
        (r"a.*+*", "a.x+", True),
        (r"a.*+*", "abx+", False),
        (r"\**_é*", "*x_éy", True),
        ("*a", "ba", True),
        ("*a", "ab", False),
    ],
)
def test_a_star_inside_a_name_stands_for_anything(text: str, name: str, matches: bool) -> None:
    (component,) = parse_pattern(text)
    assert isinstance(component, IfNameMatches)
    assert component.holds(SOME_NODE, name) is matches


@pytest.mark.parametrize("text", ["a//b", "a/", "a\\", "/".join("a" * (MAX_DEPTH + 1)), "x" * 256])
def test_what_is_no_written_pattern(text: str) -> None:
    with pytest.raises(BadPath):
        parse_pattern(text)


@given(st.lists(names.filter(lambda name: "/" not in name), max_size=5).map(tuple))
def test_escaping_every_character_writes_any_path(path: Path) -> None:
    text = "/" + "/".join("".join("\\" + character for character in name) for name in path)
    assert parse_pattern(text) == path


@given(plain_data | st.lists(plain_data, max_size=3))
def test_any_data_is_a_pattern_or_a_bad_path(data: Any) -> None:
    try:
        pattern_from_data_untrusted(data)
    except BadPath:
        return


@pytest.mark.parametrize(
    "data",
    [
        "a/b",
        [1],
        [None],
        [["nonsense"]],
        [["if_name_matches", "regex", "("]],
        [["if_name_matches", "regex", "a" * 513]],
        [["if_name_matches", "regex", "(((a{100}){100}){100})"]],
        ["a"] * (MAX_COMPONENTS + 1),
        [["if_name_matches", None]] * (MAX_DEPTH + 1),
        [["all_of", [["if_name_matches", None]] * 300]],
        [{"if": 1}],
        [""],
    ],
)
def test_malformed_patterns_are_refused(data: Any) -> None:
    with pytest.raises(BadPath):
        pattern_from_data_untrusted(data)


def test_a_pattern_is_no_longer_in_code_than_as_data() -> None:
    assert resolve(["a"] * MAX_DEPTH)
    with pytest.raises(BadPath, match="components"):
        resolve([PatternStep.THIS, *["a", PatternStep.PARENT] * MAX_COMPONENTS])


def test_all_conditions_of_one_pattern_count_together() -> None:
    part = ["all_of", [["if_has_data", True]] * 30]
    assert pattern_from_data_untrusted([part] * 8)
    with pytest.raises(BadPattern, match="256"):
        pattern_from_data_untrusted([part] * 9)


def test_steps_are_resolved_by_form() -> None:
    assert resolve(("a", PatternStep.PARENT, "b", PatternStep.THIS, "c")) == ("b", "c")
    assert resolve((PatternStep.PARENT, PatternStep.PARENT, "a")) == ("a",)
    assert resolve(("a", PatternStep.ROOT, "b")) == ("b",)
    assert resolve((ANY_NAME, PatternStep.PARENT, "b")) == ("b",)
    assert resolve((PatternStep.PARENT, "x"), base=("a", "b")) == ("a", "x")
    assert resolve((PatternStep.THIS, "x"), base=("a", "b")) == ("a", "b", "x")
    assert resolve(("x",), base=("a", "b")) == ("x",)


def test_which_patterns_are_for_one_node() -> None:
    one: list[Pattern] = [
        (),
        ("a", "b"),
        (AllOf(("a", IfHasData())), "b"),
        (Name("a"),),
        (AnyOf(("a", "a")),),
        (ANY_NAME, PatternStep.PARENT, "a"),
    ]
    many: list[Pattern] = [
        (ANY_NAME,),
        ("a", ANY_DEPTH),
        (IfHasData(),),
        (NotOf("a"),),
        (AnyOf(("a", "b")),),
        (AnyOf(()),),
        (AllOf(()),),
        (AllOf(("a", ANY_DEPTH)),),
    ]
    for pattern in one:
        assert not could_match_many(pattern)
        one_node(pattern)
    for pattern in many:
        assert could_match_many(pattern)
        with pytest.raises(PossiblyManyNodes):
            one_node(pattern)


def test_dots_and_stars_in_tuples_are_names() -> None:
    store = Store()
    store.put(("..", "*"), 1)
    assert store.get(("..", "*")) == 1
    assert store.children(()) == ("..",)
    assert is_path(("..", "*"))


def test_any_depth_is_one_level_or_more_and_reports_each_node_once() -> None:
    store = Store()
    for path in itertools.product("ab", repeat=3):
        store.put(path, 1)
    assert store.count((ANY_DEPTH,)) == store.count((ANY_DEPTH, PatternStep.THIS)) == 14
    assert store.count((ANY_DEPTH, ANY_DEPTH)) == 12
    assert store.count(("a", ANY_DEPTH)) == 6
    assert store.count((ANY_DEPTH, "a")) == 6, "not a itself: `**` is at least one level"


@given(st.lists(close_paths, max_size=12), patterns, close_paths)
def test_continuing_after_a_path_gives_the_rest(paths: list[Path], pattern: Pattern, after: Path) -> None:
    store = Store()
    for path in paths:
        store.put(path, 1)
    everything = [path for path, _ in store.matches(pattern)]
    assert everything == sorted(set(everything))
    assert [path for path, _ in store.matches(pattern, after)] == [path for path in everything if path > after]


def test_continuing_does_not_visit_what_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    for number in range(1000):
        store.put((f"{number:04}", "x"), number)
    tried: list[str] = []

    def holds(_condition: IfPathMatches, _node: Any, name: str = "") -> bool:
        tried.append(name)
        return True

    monkeypatch.setattr(IfPathMatches, "holds", holds)
    next(store.matches((ANY_DEPTH,), after=("0990", "x")))
    assert tried.count("x") <= 10


@given(st.lists(close_paths, max_size=12), patterns)
def test_events_match_where_finding_does(paths: list[Path], pattern: Pattern) -> None:
    """On a tree at rest, whoever watches a pattern is told of exactly the nodes that it finds."""
    store = Store()
    for path in paths:
        store.put(path, 1)
    try:
        watched = EventPattern(pattern)
    except BadPattern:
        return
    everything = {path: store.view(path) for path in [(), *(path for path, _ in store.matches((ANY_DEPTH,)))]}
    told = [path for path, view in everything.items() if view is not None and watched.matches(path, view)]
    assert told == [path for path, _ in store.matches(pattern)]
    assert all(path[: len(watched.prefix)] == watched.prefix for path in told)


def test_conditions_on_contents_of_parents_cannot_be_watched() -> None:
    with pytest.raises(BadPattern):
        EventPattern((AllOf(("a", IfHasData())), "b"))
