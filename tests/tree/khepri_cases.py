"""Khepri's conformance cases, for any backend that runs procedures on a tree.

Each case is a function of a `Backend` that starts with an empty tree; `CASES` names them all. A test of another
backend makes one of its own and runs the same cases.
"""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.store.conditions import (
    AllOf,
    Compare,
    Condition,
    IfChildListLength,
    IfDataMatches,
    IfHasData,
    IfNodeExists,
    IfPathMatches,
    Name,
)
from batonpass.tree.store.keep_while import keep_while_to_data
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, Pattern, PatternStep, pattern_to_data


class Refused(Exception):
    """The backend answered with an error."""

    def __init__(self, code: str, details: Any) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


class Backend(Protocol):
    """What a case needs of a tree."""

    def run(self, procedure: str, args: Any) -> Any:
        """The answer of a procedure; raises `Refused`."""

    def view(self, path: Path) -> NodeView | None:
        """The node at this path as everybody sees it now."""


def put(backend: Backend, pattern: Pattern, data: Any, **options: Any) -> Any:
    return backend.run("tree.put", {"path": pattern_to_data(pattern), "data": data, "full": True, **options})


def make(backend: Backend, path: Path) -> None:
    backend.run("tree.make", {"path": list(path)})


def state(backend: Backend, path: Path) -> tuple[Any, int, int] | None:
    view = backend.view(path)
    return None if view is None else (view.data, view.payload_version, view.child_list_version)


def everything(backend: Backend) -> set[Path]:
    rows = backend.run("tree.get_many", {"path": pattern_to_data((ANY_DEPTH,))})
    return {tuple(row["path"]) for row in rows}


def touched(rows: list[dict[str, Any]]) -> dict[Path, str]:
    return {tuple(row["path"]): row["reason"] for row in rows}


def kept_while(*pairs: tuple[Pattern, Condition]) -> list[Any]:
    return keep_while_to_data(pairs)


def putting_makes_missing_parents(backend: Backend) -> None:
    """[1]"""
    answer = put(backend, ("foo", "bar", "baz", "qux"), "v")
    assert state(backend, ("foo",)) == (None, 1, 1)
    assert state(backend, ("foo", "bar")) == (None, 1, 1)
    assert state(backend, ("foo", "bar", "baz")) == (None, 1, 1)
    assert state(backend, ("foo", "bar", "baz", "qux")) == ("v", 1, 1)
    assert state(backend, ()) == (None, 1, 2)
    assert touched(answer["touched"]) == {("foo", "bar", "baz", "qux"): "written"}


def changing_a_payload_raises_its_version(backend: Backend) -> None:
    """[2]"""
    put(backend, ("foo",), "value1")
    answer = put(backend, ("foo",), "value2")
    assert state(backend, ("foo",)) == ("value2", 2, 1)
    assert state(backend, ()) == (None, 1, 2)
    assert (answer["previous"], answer["payload_version"]) == ("value1", 2)
    (row,) = answer["touched"]
    assert (row["path"], row["before"]["data"], row["after"]["payload_version"]) == (["foo"], "value1", 2)


def an_identical_put_changes_nothing(backend: Backend) -> None:
    put(backend, ("foo",), "value1")
    answer = put(backend, ("foo",), "value1")
    assert state(backend, ("foo",)) == ("value1", 1, 1)
    assert (answer["previous"], answer["payload_version"]) == ("value1", 1)


def steps_are_resolved_by_form(backend: Backend) -> None:
    """[3]"""
    put(backend, ("foo", PatternStep.PARENT, "foo", "bar", PatternStep.THIS), "v")
    assert everything(backend) == {("foo",), ("foo", "bar")}
    assert state(backend, ("foo", "bar")) == ("v", 1, 1)


def a_condition_on_the_target_that_fails(backend: Backend) -> None:
    """[4]"""
    put(backend, ("foo",), "value1")
    with pytest.raises(Refused) as refused:
        put(backend, (AllOf((Name("foo"), IfDataMatches("value2"))),), "value3")
    assert refused.value.code == "mismatching_node"
    details = refused.value.details
    assert (details["node_name"], details["node_path"], details["node_is_target"]) == ("foo", ["foo"], True)
    assert details["condition"] == ["all_of", ["foo", ["if_data_matches", "value2"]]]
    assert (details["node_props"]["data"], details["node_props"]["payload_version"]) == ("value1", 1)
    assert state(backend, ("foo",)) == ("value1", 1, 1)


def a_condition_on_a_parent_that_fails(backend: Backend) -> None:
    """[5]"""
    put(backend, ("foo",), "value1")
    with pytest.raises(Refused) as refused:
        put(backend, (AllOf((Name("foo"), IfDataMatches("value2"))), "bar"), "v")
    assert refused.value.code == "mismatching_node"
    details = refused.value.details
    assert (details["node_name"], details["node_path"], details["node_is_target"]) == ("foo", ["foo"], False)
    assert state(backend, ("foo", "bar")) is None
    assert state(backend, ("foo",)) == ("value1", 1, 1)


def a_parent_that_must_not_exist(backend: Backend) -> None:
    """[6]"""
    put(backend, (AllOf((Name("baz"), IfNodeExists(False))), "bar"), "v")
    assert state(backend, ("baz",)) == (None, 1, 1)
    assert state(backend, ("baz", "bar")) == ("v", 1, 1)
    put(backend, ("foo",), "value1")
    with pytest.raises(Refused) as refused:
        put(backend, (AllOf((Name("foo"), IfNodeExists(False))), "bar"), "v")
    assert (refused.value.code, refused.value.details["node_is_target"]) == ("mismatching_node", False)
    assert state(backend, ("foo", "bar")) is None


def one_node_operations_refuse_patterns_for_many(backend: Backend) -> None:
    """[7]"""
    put(backend, ("foo",), "value1")
    put(backend, ("bar",), "value1")
    star = pattern_to_data((ANY_NAME,))
    for procedure in ("put", "create", "update", "compare_and_swap", "get", "delete", "clear_payload"):
        with pytest.raises(Refused) as refused:
            backend.run(f"tree.{procedure}", {"path": star, "data": "v", "expected": "value1"})
        assert refused.value.code == "possibly_matching_many_nodes"
    assert state(backend, ("foo",)) == state(backend, ("bar",)) == ("value1", 1, 1)


def clearing_a_payload_keeps_the_node(backend: Backend) -> None:
    """[8]"""
    put(backend, ("foo",), "value")
    answer = backend.run("tree.clear_payload", {"path": ["foo"]})
    assert (answer["previous"], answer["payload_version"]) == ("value", 2)
    assert state(backend, ("foo",)) == (None, 2, 1)


def clearing_the_payload_of_a_missing_node_makes_nothing(backend: Backend) -> None:
    answer = backend.run("tree.clear_payload", {"path": ["foo"], "full": True})
    assert answer["touched"] == []
    assert state(backend, ("foo",)) is None


def a_regex_on_paths_descends(backend: Backend) -> None:
    """[9]"""
    for path in (("foo", "bar"), ("foo", "youpi"), ("baz",), ("baz", "pouet")):
        put(backend, path, "v")
    rows = backend.run("tree.get_many", {"path": pattern_to_data((IfPathMatches(regex="o"),))})
    assert [tuple(row["path"]) for row in rows] == [("baz", "pouet"), ("foo",), ("foo", "youpi")]


def deleting_reclaims_useless_parents(backend: Backend) -> None:
    """[10]"""
    put(backend, ("foo", "bar", "baz", "qux"), "v")
    rows = backend.run("tree.delete", {"path": ["foo", "bar", "baz"], "full": True})
    assert touched(rows) == {
        ("foo",): "keep_while",
        ("foo", "bar"): "keep_while",
        ("foo", "bar", "baz"): "explicit",
        ("foo", "bar", "baz", "qux"): "explicit",
    }
    assert everything(backend) == set()
    assert state(backend, ()) == (None, 1, 3)


def keep_while_must_hold_at_first(backend: Backend) -> None:
    """[11]"""
    with pytest.raises(Refused) as refused:
        put(backend, ("baz",), "v", keep_while=kept_while((("foo", "bar"), IfNodeExists())))
    assert refused.value.code == "keep_while_conditions_not_met"
    assert (refused.value.details["node_name"], refused.value.details["node_path"]) == ("baz", ["baz"])
    assert refused.value.details["reason"]["pattern"] == ["foo", "bar"]
    assert state(backend, ("baz",)) is None
    put(backend, ("foo",), "v", keep_while=kept_while(((PatternStep.THIS,), IfChildListLength(1))))
    assert state(backend, ("foo",)) == ("v", 1, 1)


def keep_while_of_others_does_not_look_at_a_new_node_too_early(backend: Backend) -> None:
    """[11], in a tree where something else is kept"""
    put(backend, ("other",), 1)
    put(backend, ("kept",), 1, keep_while=kept_while((("other",), IfNodeExists())))
    put(backend, ("foo",), "v", keep_while=kept_while(((PatternStep.THIS,), IfChildListLength(1))))
    assert state(backend, ("foo",)) == ("v", 1, 1)


def clearing_a_payload_takes_away_what_it_kept(backend: Backend) -> None:
    put(backend, ("a",), 1)
    put(backend, ("a", "child"), 1)
    put(backend, ("b",), 2, keep_while=kept_while((("a",), IfHasData())))
    backend.run("tree.clear_payload", {"path": ["a"]})
    assert everything(backend) == {("a",), ("a", "child")}


def keep_while_cascades(backend: Backend) -> None:
    put(backend, ("a",), 1)
    put(backend, ("b",), 2, keep_while=kept_while((("a",), IfDataMatches(1))))
    put(backend, ("c", "d"), 3, keep_while=kept_while(((PatternStep.PARENT, PatternStep.PARENT, "b"), IfNodeExists())))
    answer = put(backend, ("a",), 10)
    assert touched(answer["touched"]) == {
        ("a",): "written",
        ("b",): "keep_while",
        ("c",): "keep_while",
        ("c", "d"): "keep_while",
    }
    assert everything(backend) == {("a",)}


def a_node_goes_when_its_own_children_are_not_as_wanted_any_more(backend: Backend) -> None:
    put(backend, ("foo",), "v", keep_while=kept_while(((PatternStep.THIS,), IfChildListLength(Compare("le", 1)))))
    put(backend, ("foo", "one"), 1)
    assert everything(backend) == {("foo",), ("foo", "one")}
    put(backend, ("foo", "two"), 2)
    assert everything(backend) == set()


def put_many_makes_names_under_each_match(backend: Backend) -> None:
    """[12]"""
    make(backend, ("a",))
    make(backend, ("b",))
    rows = backend.run("tree.put_many", {"path": pattern_to_data((ANY_NAME, "foo")), "data": "x"})
    assert touched(rows) == {("a", "foo"): "written", ("b", "foo"): "written"}
    assert state(backend, ("a", "foo")) == state(backend, ("b", "foo")) == ("x", 1, 1)


def an_operation_raises_the_version_of_a_list_of_children_once(backend: Backend) -> None:
    """As `squash_version_bumps` does; in a transaction each operation counts."""
    for name in ("one", "two", "three", "four"):
        put(backend, ("foo", name), 1)
    assert state(backend, ("foo",)) == (None, 1, 4)
    backend.run("tree.delete_many", {"path": pattern_to_data(("foo", IfPathMatches(regex="^t")))})
    assert state(backend, ("foo",)) == (None, 1, 5)
    one, four = ({"op": "delete", "path": ["foo", name]} for name in ("one", "four"))
    put(backend, ("foo", "five"), 1)
    backend.run("tree.transaction", {"if": [], "then": [one, four], "else": []})
    assert state(backend, ("foo",)) == (None, 1, 8)


def operations_of_a_transaction_raise_a_list_each_for_itself(backend: Backend) -> None:
    """Also small ones after one that changed much, and the rest after one that was refused."""
    for name in ("one", "two"):
        put(backend, ("foo", name, "below"), 1)
    many = {"op": "delete_many", "path": pattern_to_data(("foo", IfPathMatches(regex="^t")))}
    whole = {"op": "delete", "path": ["foo", "one"]}
    small = [{"op": "put", "path": ["foo", name], "data": 1} for name in ("three", "four")]
    backend.run("tree.transaction", {"if": [], "then": [*small, whole, *small, many], "else": []})
    assert state(backend, ("foo",)) == (None, 1, 6)
    with pytest.raises(Refused):
        backend.run("tree.transaction", {"if": [], "then": [many, {"op": "update", "path": ["no"], "data": 1}]})
    put(backend, ("foo", "five"), 1)
    assert state(backend, ("foo",)) == (None, 1, 7)


def keep_while_and_the_root_raise_the_version_of_a_list_once_too(backend: Backend) -> None:
    put(backend, ("foo",), "v")
    kept = kept_while((("bar",), IfNodeExists()))
    put(backend, ("bar",), 1)
    for name in ("one", "two", "three"):
        put(backend, ("foo", name), 1, keep_while=kept)
    assert state(backend, ("foo",)) == ("v", 1, 4)
    root = backend.view(())
    assert root is not None
    told = backend.run("tree.delete", {"path": ["bar"], "full": True})
    assert everything(backend) == {("foo",)}
    assert state(backend, ("foo",)) == ("v", 1, 5)
    assert len(touched(told)) == 4
    put(backend, ("bar",), 1)
    version = state(backend, ())
    assert version is not None
    backend.run("tree.delete_many", {"path": pattern_to_data((ANY_NAME,))})
    assert everything(backend) == set()
    assert state(backend, ()) == (None, 1, version[2] + 1)


def many_forms_without_a_match_answer_nothing(backend: Backend) -> None:
    star = pattern_to_data((ANY_NAME, ANY_NAME))
    for procedure in ("put_many", "update_many", "clear_many_payloads", "delete_many", "get_many"):
        assert backend.run(f"tree.{procedure}", {"path": star, "data": "x"}) == []
    assert everything(backend) == set()


def counting_excludes_the_root_except_when_asked_for_it(backend: Backend) -> None:
    put(backend, ("a", "b"), 1)
    assert backend.run("tree.count", {"path": pattern_to_data((ANY_DEPTH,))}) == 2
    assert backend.run("tree.count", {"path": []}) == 1


def a_failing_condition_on_a_path_is_an_error_and_exists_is_false(backend: Backend) -> None:
    """Two bugs of Khepri's that are not to be copied."""
    put(backend, ("foo",), 1)
    wanted = {"path": pattern_to_data((AllOf((Name("foo"), IfDataMatches(2))),))}
    assert backend.run("tree.exists", wanted) is False
    with pytest.raises(Refused) as refused:
        backend.run("tree.get", wanted)
    assert refused.value.code == "mismatching_node"


def clearing_a_payload_that_reclaims_tells_the_old_data(backend: Backend) -> None:
    """Another bug not to be copied."""
    put(backend, ("a", "b"), 1)
    put(backend, ("a",), "old")
    backend.run("tree.delete", {"path": ["a", "b"]})
    answer = backend.run("tree.clear_payload", {"path": ["a"], "full": True})
    assert answer["previous"] == "old"
    assert [(row["path"], row["reason"], row["before"]["data"]) for row in answer["touched"]] == [
        (["a"], "keep_while", "old")
    ]
    assert everything(backend) == set()


def deleting_the_root_keeps_it_and_its_versions(backend: Backend) -> None:
    put(backend, (), "data")
    put(backend, ("foo",), 1)
    backend.run("tree.delete", {"path": []})
    assert state(backend, ()) == (None, 3, 3)


def a_refused_operation_undoes_its_transaction(backend: Backend) -> None:
    operations = [{"op": "put", "path": ["a"], "data": 1}, {"op": "update", "path": ["missing"], "data": 2}]
    with pytest.raises(Refused) as refused:
        backend.run("tree.transaction", {"then": operations})
    assert (refused.value.code, refused.value.details["node_path"]) == ("node_not_found", ["missing"])
    assert everything(backend) == set()


def each_put_in_a_transaction_raises_the_version(backend: Backend) -> None:
    operations = [{"op": "put", "path": ["a"], "data": number} for number in range(3)]
    backend.run("tree.transaction", {"then": operations})
    assert state(backend, ("a",)) == (2, 3, 1)


def a_transaction_chooses_by_its_comparisons(backend: Backend) -> None:
    def lock(owner: str) -> Any:
        return backend.run(
            "tree.transaction",
            {
                "if": [[["lock"], ["if_node_exists", False]]],
                "then": [{"op": "create", "path": ["lock"], "data": owner}],
                "else": [{"op": "get", "path": ["lock"]}],
            },
        )

    assert lock("me")["succeeded"] is True
    assert lock("you") == {"succeeded": False, "results": ["me"]}


CASES: tuple[Callable[[Backend], None], ...] = (
    putting_makes_missing_parents,
    changing_a_payload_raises_its_version,
    an_identical_put_changes_nothing,
    steps_are_resolved_by_form,
    a_condition_on_the_target_that_fails,
    a_condition_on_a_parent_that_fails,
    a_parent_that_must_not_exist,
    one_node_operations_refuse_patterns_for_many,
    clearing_a_payload_keeps_the_node,
    clearing_the_payload_of_a_missing_node_makes_nothing,
    a_regex_on_paths_descends,
    deleting_reclaims_useless_parents,
    keep_while_must_hold_at_first,
    keep_while_of_others_does_not_look_at_a_new_node_too_early,
    clearing_a_payload_takes_away_what_it_kept,
    keep_while_cascades,
    a_node_goes_when_its_own_children_are_not_as_wanted_any_more,
    put_many_makes_names_under_each_match,
    an_operation_raises_the_version_of_a_list_of_children_once,
    operations_of_a_transaction_raise_a_list_each_for_itself,
    keep_while_and_the_root_raise_the_version_of_a_list_once_too,
    many_forms_without_a_match_answer_nothing,
    counting_excludes_the_root_except_when_asked_for_it,
    a_failing_condition_on_a_path_is_an_error_and_exists_is_false,
    clearing_a_payload_that_reclaims_tells_the_old_data,
    deleting_the_root_keeps_it_and_its_versions,
    a_refused_operation_undoes_its_transaction,
    each_put_in_a_transaction_raises_the_version,
    a_transaction_chooses_by_its_comparisons,
)
