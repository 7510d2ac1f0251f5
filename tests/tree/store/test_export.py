"""Export and import: what is exported makes an equal tree elsewhere; what is not whole is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import MAX_DATA_DEPTH, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.json_form import from_json_untrusted, to_json
from batonpass.tree.data.path import Path
from batonpass.tree.data.payload import NO_PAYLOAD, StoredProcedure
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.store.conditions import IfDataMatches, IfNodeExists
from batonpass.tree.store.export import export, read_rows_untrusted
from batonpass.tree.store.pattern import ANY_DEPTH, PatternStep
from batonpass.tree.store.store import Store
from tests.tree.strategies import close_paths, plain_data

payloads = plain_data | st.just(NO_PAYLOAD) | st.just(StoredProcedure("p"))


def load(machine: Machine, rows: Any, mode: str = "merge", number: int = 1) -> CommandAnswer:
    args = {"rows": rows, "mode": mode}
    return CommandAnswer.from_encoded(machine.apply(encode_command(Command("tree.import", args, "c", number)))[1])


def contents(store: Store) -> dict[Path, Any]:
    return {path: (view.data, view.procedure, store.keep_while(path)) for path, view in store.matches((ANY_DEPTH,))}


@given(st.lists(st.tuples(close_paths.filter(bool), payloads), max_size=10))
def test_an_export_read_as_json_makes_an_equal_tree(written: list[tuple[Path, Any]]) -> None:
    store, machine = Store(), Machine({})
    for path, payload in written:
        store.put(path, payload)
    lines = [json.dumps(to_json(row)) for row in export(store, (ANY_DEPTH,))]
    rows = [from_json_untrusted(json.loads(line)) for line in lines]
    answer = load(machine, rows)
    assert answer.value == {"nodes": store.count_below(()), "removed": 0}
    assert encode([list(contents(store).values())[n][:2] for n in range(store.count_below(()))]) == encode(
        [list(contents(machine.store).values())[n][:2] for n in range(store.count_below(()))]
    )
    assert contents(store).keys() == contents(machine.store).keys()


def test_keep_while_is_exported_whatever_the_order() -> None:
    store, machine = Store(), Machine({})
    store.put(("z",), 1)
    store.put(("a",), 2, keep_while=[(("z",), IfNodeExists())])
    assert load(machine, list(export(store, (ANY_DEPTH,)))).ok
    assert contents(machine.store) == contents(store)
    machine.store.delete(("z",))
    assert contents(machine.store) == {}


def test_merging_leaves_other_nodes_alone_and_replacing_does_not() -> None:
    store = Store()
    store.put(("a", "b"), 1)
    rows = list(export(store, ("a", ANY_DEPTH)))
    machine = Machine({})
    machine.store.put(("a", "other", "below"), 2)
    machine.store.put(("elsewhere",), 3)
    assert load(machine, rows).value == {"nodes": 1, "removed": 0}
    assert machine.store.exists(("a", "other"))
    assert load(machine, rows, "replace", number=2).value == {"nodes": 1, "removed": 2}
    assert set(contents(machine.store)) == {("a",), ("a", "b"), ("elsewhere",)}
    assert machine.store.get(("a", "b")) == 1


def tree_with_what_keeps_it(value: int) -> Machine:
    machine = Machine({})
    machine.store.put(("j", "b"), value)
    machine.store.put(("j", "a"), "A", keep_while=[(("j", "b"), IfDataMatches(value))])
    machine.store.put(("j", "a", "c"), "C")
    return machine


@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_what_kept_nodes_before_an_import_takes_none_of_them_away(mode: str) -> None:
    exported, machine = tree_with_what_keeps_it(2), tree_with_what_keeps_it(1)
    assert load(machine, list(export(exported.store, ("j", ANY_DEPTH))), mode).value == {"nodes": 3, "removed": 0}
    assert contents(machine.store) == contents(exported.store)
    machine.store.put(("j", "b"), 3)
    assert set(contents(machine.store)) == {("j",), ("j", "b")}


def test_what_is_not_met_after_an_import_goes_away_with_it() -> None:
    exported, machine = Store(), tree_with_what_keeps_it(1)
    exported.put(("j", "b"), 2)
    assert load(machine, list(export(exported, ("j", "b")))).value == {"nodes": 1, "removed": 2}
    assert set(contents(machine.store)) == {("j",), ("j", "b")}


def test_only_replacing_takes_back_what_a_node_was_kept_while() -> None:
    exported, machine = Store(), Machine({})
    exported.put(("k", "x"), 1)
    rows = list(export(exported, ("k", ANY_DEPTH)))
    machine.store.put(("g",), 1)
    machine.store.put(("k", "x"), 1, keep_while=[(("g",), IfNodeExists())])
    assert load(machine, rows).ok
    assert len(machine.store.keep_while(("k", "x"))) == 1
    assert load(machine, rows, "replace", number=2).ok
    assert machine.store.keep_while(("k", "x")) == ()
    machine.store.delete(("g",))
    assert machine.store.exists(("k", "x"))


def test_what_a_new_node_says_of_itself_may_come_true_later_also_when_it_is_imported_again() -> None:
    exported, machine = Store(), Machine({})
    exported.put(("a",), 1, keep_while=[((PatternStep.THIS, "child"), IfNodeExists())])
    rows = list(export(exported, (ANY_DEPTH,)))
    assert [load(machine, rows, mode, number).ok for number, mode in enumerate(("merge", "merge", "replace"))] == [
        True,
        True,
        True,
    ]
    assert contents(machine.store) == contents(exported)


def test_parents_made_on_the_way_are_so_again_and_others_are_not() -> None:
    exported, machine = Store(), Machine({})
    exported.put(("imp", "a", "b", "c"), 1)
    exported.put(("made",), NO_PAYLOAD)
    exported.put(("made", "below"), 1)
    rows = list(export(exported, (ANY_DEPTH,)))
    assert [row["path"] for row in rows if row.get("made_on_the_way")] == [["imp"], ["imp", "a"], ["imp", "a", "b"]]
    assert load(machine, rows).ok
    assert list(export(machine.store, (ANY_DEPTH,)))[1:] == rows[1:]
    assert machine.store.delete(("imp", "a", "b", "c")).removed_count == 4
    machine.store.delete(("made", "below"))
    assert set(contents(machine.store)) == {("made",)}


def test_a_parent_that_is_imported_without_its_children_stays() -> None:
    exported, machine = Store(), Machine({})
    exported.put(("imp", "a", "b"), 1)
    assert load(machine, list(export(exported, ("imp", "a")))).ok
    assert set(contents(machine.store)) == {("imp",), ("imp", "a")}
    machine.store.put(("imp", "a", "b"), 1)
    assert machine.store.delete(("imp", "a", "b")).removed_count == 1


def test_replacing_the_last_children_leaves_no_useless_parents() -> None:
    exported, machine = Store(), Machine({})
    exported.put(("x", "here"), 1)
    machine.store.put(("x", "gone", "far", "below"), 1)
    rows = list(export(exported, ("x", ANY_DEPTH)))
    rows[0]["pattern"] = ["x", "gone", "far", "below"]
    assert load(machine, rows, "replace").value == {"nodes": 1, "removed": 3}
    assert set(contents(machine.store)) == {("x",), ("x", "here")}


def test_an_import_that_is_refused_changes_nothing() -> None:
    machine = Machine({})
    machine.store.put(("a",), 1)
    rows = [
        {"format": "batonpass tree", "version": 1, "pattern": [["if_path_matches", None]]},
        {"path": ["b"], "data": 1},
        {"path": ["c"], "data": 1, "keep_while": [[["missing"], ["if_node_exists", True]]]},
        {"end": True, "nodes": 2},
    ]
    digest = machine.store.digest()
    assert load(machine, rows, "replace").code == "keep_while_conditions_not_met"
    assert machine.store.digest() == digest


HEAD = {"format": "batonpass tree", "version": 1, "pattern": []}
END = {"end": True, "nodes": 1}


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [],
        [HEAD],
        [HEAD, {"path": ["a"]}],
        [HEAD, {"end": True, "nodes": 1}],
        [{"format": "batonpass tree", "version": 2, "pattern": []}, {"end": True, "nodes": 0}],
        [{"format": "other", "version": 1, "pattern": []}, {"end": True, "nodes": 0}],
        [{"version": 1}, {"end": True, "nodes": 0}],
        [{**HEAD, "pattern": 5}, {"end": True, "nodes": 0}],
        [HEAD, {}, END],
        [HEAD, {"path": [""]}, END],
        [HEAD, {"path": ["a"], "procedure": 1}, END],
        [HEAD, {"path": ["a"], "keep_while": [[1]]}, END],
        [HEAD, {"path": ["a"], "made_on_the_way": 1}, END],
        [HEAD, {"path": ["a"], "made_on_the_way": True, "data": 1}, END],
        [HEAD, {"path": ["a"], "made_on_the_way": True, "keep_while": []}, END],
    ],
)
def test_what_is_not_a_whole_export_is_refused(rows: Any) -> None:
    with pytest.raises(BadData):
        read_rows_untrusted(rows)


def test_bad_arguments_of_an_import() -> None:
    assert load(Machine({}), [HEAD, {"end": True, "nodes": 0}], "sideways").code == "bad_arguments"


@given(plain_data)
def test_plain_data_survives_json(data: Any) -> None:
    assert encode(from_json_untrusted(json.loads(json.dumps(to_json(data), allow_nan=False)))) == encode(data)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"\x00\xff", {"$bytes": "AP8="}),
        (float("inf"), {"$float": "inf"}),
        ({b"k": 1}, {"$map": [[{"$bytes": "aw=="}, 1]]}),
        ({"$bytes": "x"}, {"$map": [["$bytes", "x"]]}),
        ({"$a": 1, "b": 2}, {"$a": 1, "b": 2}),
        ({"$any": True}, {"$any": True}),
        ((1, 2), [1, 2]),
    ],
)
def test_the_stated_forms(data: Any, form: Any) -> None:
    assert to_json(data) == form


@pytest.mark.parametrize(
    "value",
    [
        {"$bytes": "not base64!"},
        {"$bytes": 1},
        {"$float": "1.5"},
        {"$map": [[1, 2]]},
        {"$map": [1]},
        {"$map": {}},
    ],
)
def test_forms_that_mean_nothing_are_refused(value: Any) -> None:
    with pytest.raises(BadData):
        from_json_untrusted(value)


def test_json_that_is_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_DATA_DEPTH + 1):
        value = [value]
    with pytest.raises(BadData):
        from_json_untrusted(value)
