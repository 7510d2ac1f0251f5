"""The rules of the store one by one; `test_store_against_twin` looks for what these do not say."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.errors import (
    BadData,
    BadPath,
    KeepWhileConditionsNotMet,
    MismatchingNode,
    NodeNotFound,
    ReadOnlyTransaction,
)
from batonpass.tree.data.payload import NO_PAYLOAD, StoredProcedure
from batonpass.tree.store.changes import Commit
from batonpass.tree.store.conditions import AllOf, IfChildListLength, IfDataMatches, IfNodeExists, IfPayloadVersion
from batonpass.tree.store.keep_while import keep_while_from_data_untrusted, keep_while_to_data
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, PatternStep
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import Transaction, TransactionEnded

Path = tuple[str, ...]


def versions(store: Store, path: Path) -> tuple[Any, int, int]:
    view = store.view(path)
    assert view is not None
    return (view.data, view.payload_version, view.child_list_version)


def test_putting_makes_missing_parents_without_payload() -> None:
    """[1]"""
    store = Store()
    store.put(("foo", "bar", "baz", "qux"), "v")
    assert versions(store, ("foo",)) == (None, 1, 1)
    assert versions(store, ("foo", "bar", "baz")) == (None, 1, 1)
    assert versions(store, ("foo", "bar", "baz", "qux")) == ("v", 1, 1)
    assert versions(store, ()) == (None, 1, 2)


def test_changing_a_payload_raises_its_version_and_tells_the_old_data() -> None:
    """[2]"""
    store = Store()
    store.put(("foo",), "value1")
    written = store.put(("foo",), "value2")
    assert versions(store, ("foo",)) == ("value2", 2, 1)
    assert versions(store, ()) == (None, 1, 2)
    assert (written.previous, written.payload_version) == ("value1", 2)


def test_an_identical_put_changes_nothing() -> None:
    store = Store()
    store.put(("foo",), {"a": 1, "b": 2})
    digest = store.digest()
    assert store.put(("foo",), {"b": 2, "a": 1}).payload_version == 1
    assert store.digest() == digest


def test_a_condition_that_does_not_hold_names_the_node_and_changes_nothing() -> None:
    """[4]"""
    store = Store()
    store.put(("foo",), "value1")
    with pytest.raises(MismatchingNode) as refused:
        store.put(("foo",), "new", IfDataMatches("value2"))
    assert refused.value.details["node_path"] == ["foo"]
    assert refused.value.details["node_props"]["data"] == "value1"
    assert versions(store, ("foo",)) == ("value1", 1, 1)


def test_clearing_a_payload_keeps_the_node_and_tells_the_old_data() -> None:
    """[8]"""
    store = Store()
    store.put(("foo",), "value")
    written = store.clear_payload(("foo",))
    assert (written.previous, written.payload_version) == ("value", 2)
    assert versions(store, ("foo",)) == (None, 2, 1)


def test_clearing_a_missing_node_creates_nothing() -> None:
    store = Store()
    assert not store.clear_payload(("foo",)).existed
    assert not store.exists(("foo",))


def test_parents_made_on_the_way_go_with_their_last_child() -> None:
    """[10]"""
    store = Store()
    store.put(("foo", "bar", "baz", "qux"), "v")
    assert store.delete(("foo", "bar", "baz")).removed_count == 4
    assert store.children(()) == ()
    assert versions(store, ()) == (None, 1, 3)


def test_parents_with_a_payload_stay() -> None:
    store = Store()
    store.put(("foo", "bar"), 1)
    store.put(("foo",), "kept")
    assert store.delete(("foo", "bar")).removed_count == 1
    assert store.get(("foo",)) == "kept"


def test_deleting_the_root_empties_it_and_keeps_its_versions() -> None:
    store = Store()
    store.put((), "data")
    store.put(("foo", "bar"), 1)
    assert store.delete(()).removed_count == 2
    assert versions(store, ()) == (None, 3, 3)


def test_deleted_and_made_again_starts_over() -> None:
    store = Store()
    store.put(("foo",), 1)
    store.put(("foo",), 2)
    store.delete(("foo",))
    assert store.put(("foo",), 3).payload_version == 1


def test_deleting_what_is_missing_or_different_is_no_error() -> None:
    store = Store()
    store.put(("foo",), 1)
    assert store.delete(("bar", "baz")).removed_count == 0
    assert store.delete(("foo",), IfPayloadVersion(7)).removed_count == 0
    assert store.get(("foo",)) == 1


def test_deleting_what_is_as_described_takes_it_away_with_all_below_it() -> None:
    store = Store()
    store.put(("foo",), 1)
    store.put(("foo", "bar"), 2)
    assert store.delete(("foo",), IfPayloadVersion(1)).removed_count == 2
    assert not store.exists(("foo",))
    store.put((), "at the root")
    assert store.delete((), IfPayloadVersion(2)).removed_count == 0
    assert not store.has_data(())


def test_create_update_and_compare_and_swap() -> None:
    store = Store()
    with pytest.raises(NodeNotFound):
        store.update(("foo",), 1)
    store.create(("foo",), 1)
    with pytest.raises(MismatchingNode):
        store.create(("foo",), 2)
    with pytest.raises(MismatchingNode):
        store.compare_and_swap(("foo",), 0, 2)
    assert store.compare_and_swap(("foo",), 1, 2).payload_version == 2
    with pytest.raises(NodeNotFound):
        store.compare_and_swap(("bar",), 1, 2)


def test_get_tells_a_missing_node_from_one_without_payload() -> None:
    store = Store()
    store.put(("foo", "bar"), 1)
    assert store.get(("foo",)) is None
    assert store.get_or(("foo",), "default") == "default"
    with pytest.raises(NodeNotFound):
        store.get(("bar",))
    assert store.count_children(("bar",)) == 0
    assert store.count_children(("foo",)) == 1


def test_what_a_reader_gets_is_its_own() -> None:
    store = Store()
    given_data = {"list": [1]}
    store.put(("foo",), given_data)
    given_data["list"].append(2)
    store.get(("foo",))["list"].append(3)
    assert store.get(("foo",)) == {"list": [1]}


@pytest.mark.parametrize("path", [("",), ("a",) * 33, ("x" * 256,)])
def test_a_bad_path_changes_nothing(path: Path) -> None:
    store = Store()
    with pytest.raises(BadPath):
        store.put(path, 1)
    assert store.count_below(()) == 0


def test_an_exception_in_a_transaction_reaches_the_caller_and_nothing_is_applied() -> None:
    store = Store()
    store.put(("kept",), 1)
    digest = store.digest()

    def write_and_crash() -> None:
        with store.transaction() as transaction:
            transaction.put(("new", "child"), 1)
            transaction.delete(("kept",))
            assert transaction.exists(("new", "child"))
            assert not transaction.exists(("kept",))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_crash()
    assert store.digest() == digest


def test_a_transaction_cannot_be_used_after_its_end() -> None:
    store = Store()
    with store.transaction() as transaction:
        transaction.put(("foo",), 1)
    with pytest.raises(TransactionEnded):
        transaction.get(("foo",))


def test_transactions_do_not_nest() -> None:
    store = Store()
    with store.transaction(), pytest.raises(RuntimeError, match="nest"), store.transaction():
        pass


def test_a_procedure_is_no_transaction_within_another() -> None:
    store = Store()

    def within(_transaction: Transaction, _args: Any) -> None:
        store.transact(lambda inner, _: inner.put(("b",), 2), None, lambda result: result)

    with pytest.raises(RuntimeError, match="nest"):
        store.transact(within, None, lambda result: result)
    with store.transaction(), pytest.raises(RuntimeError, match="nest"):
        store.transact(lambda transaction, _: transaction.put(("a",), 1), None, lambda result: result)
    assert (store.count_below(()), store.revision) == (0, 0)


def test_the_end_of_a_procedure_belongs_to_its_transaction() -> None:
    """What `finish` raises, as when an answer cannot be encoded, undoes it."""
    store = Store()

    def refuse(_result: Any) -> None:
        raise BadData("this cannot be told")

    with pytest.raises(BadData):
        store.transact(lambda transaction, _: transaction.put(("a",), 1), None, refuse)
    assert (store.count_below(()), store.revision) == (0, 0)


def test_a_transaction_sees_what_was_made_on_the_way_and_what_keeps_it() -> None:
    store = Store()
    store.put(("a", "b"), 1, keep_while=[((PatternStep.THIS,), IfChildListLength(0))])
    with store.transaction() as transaction:
        assert (transaction.made_on_the_way(("a",)), transaction.made_on_the_way(("a", "b"))) == (True, False)
        transaction.put(("a",), NO_PAYLOAD)
        assert not transaction.made_on_the_way(("a",))
        assert not transaction.made_on_the_way(("missing",))
        assert transaction.keep_while(("a", "b")) == store.keep_while(("a", "b"))
    assert store.count_below(("missing",)) == 0


def test_a_condition_on_a_missing_node_is_evaluated_like_any_other() -> None:
    store = Store()
    store.put(("foo",), 1, AllOf((IfNodeExists(False),)))
    assert store.get(("foo",)) == 1


@given(st.recursive(st.none() | st.integers() | st.text(max_size=2), lambda x: st.lists(x, max_size=6), max_leaves=30))
def test_restoring_anything_else_than_a_tree_is_refused_and_changes_nothing(data: Any) -> None:
    store = Store()
    store.put(("foo",), 1)
    digest = store.digest()
    with pytest.raises(BadData):
        store.restore(data)
    assert store.digest() == digest


def test_reading_many_nodes() -> None:
    store = Store()
    store.put(("a", "b"), 1)
    store.put(("a", "c"), StoredProcedure("p"))
    assert store.get_many((ANY_DEPTH,)) == {("a",): None, ("a", "b"): 1, ("a", "c"): None}
    assert store.fold((ANY_DEPTH,), lambda path, node, total: total + len(path) + node.child_count, 0) == 7
    seen: list[Path] = []
    store.for_each(("a", ANY_NAME), lambda path, _node: seen.append(path))
    assert seen == [("a", "b"), ("a", "c")]
    assert store.fold_below(("missing",), lambda _path, _node, total: total + 1, 0) == 0
    assert [store.has_data(pattern) for pattern in [("a", "b"), ("a", "c"), ("a",), ("a", ANY_NAME), ("x",)]] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert store.get(("a", "c")) is None
    assert store.get_or(("a", "c"), "default") == "default"


def test_get_or_and_view_of_a_node_that_is_not_as_described() -> None:
    store = Store()
    store.put(("a",), 1)
    described = (AllOf(("a", IfDataMatches(2))),)
    assert store.get_or(described, "default") == "default"
    assert store.view(described) is None
    assert store.count_children(described) == 0
    with pytest.raises(MismatchingNode):
        store.clear_payload(described)
    assert store.delete(described).is_empty
    assert store.delete(("a",), IfDataMatches(2)).is_empty


def test_a_missing_parent_is_named_by_the_error() -> None:
    store = Store()
    store.put(("a",), 1)
    with pytest.raises(NodeNotFound) as missing:
        store.get(("a", "b", "c"))
    assert missing.value.details == {"node_name": "b", "node_path": ["a", "b"], "node_is_target": False}
    with pytest.raises(NodeNotFound) as missing:
        store.children(("a", "b"))
    assert missing.value.details["node_is_target"] is True


@pytest.mark.parametrize("path", ["ab", 5, None, {"a": 1}])
def test_what_is_no_path_is_refused_even_where_it_would_lead_somewhere(path: Any) -> None:
    store = Store()
    store.put(("a", "b"), 1)
    for operation in (store.get, store.view, store.exists, store.count, store.delete):
        with pytest.raises(BadPath):
            operation(path)
    with pytest.raises(BadPath):
        store.put(path, 2)


def test_a_list_is_as_good_as_a_tuple() -> None:
    store = Store()
    store.put(["a", "b"], 1)  # type: ignore[arg-type]  # lists come from CBOR
    assert store.get(["a", "b"]) == 1  # type: ignore[arg-type]  # lists come from CBOR


def test_a_revision_is_one_operation_or_transaction_that_changed_something() -> None:
    store = Store()
    store.put(("a",), 1)
    store.put(("a",), 1)
    store.delete(("missing",))
    assert store.revision == 1
    with store.transaction() as transaction:
        transaction.put(("b",), 1)
        transaction.put(("c",), 1)
    assert store.revision == 2
    with pytest.raises(BadData), store.transaction() as transaction:
        transaction.put_many((ANY_NAME,), object())
    assert store.revision == 2


def test_a_refused_operation_inside_a_transaction_leaves_the_rest_of_it() -> None:
    store = Store()
    with store.transaction() as transaction:
        transaction.put(("a",), 1)
        with pytest.raises(KeepWhileConditionsNotMet):
            transaction.put_many((ANY_NAME, "b"), 1, keep_while=[(("missing",), IfNodeExists())])
    assert store.count((ANY_DEPTH,)) == 1
    assert store.children(("a",)) == ()


def test_read_only_transactions_read_only() -> None:
    store = Store()
    store.put(("a", "b"), 1)
    with store.reading() as reading:
        assert reading.get(("a", "b")) == 1
        assert reading.get_many(("a", ANY_NAME)) == {("a", "b"): 1}
        assert (reading.count((ANY_DEPTH,)), reading.count_below(()), reading.count_children(("a",))) == (2, 2, 1)
        assert reading.children(("a",)) == ("b",)
        assert reading.has_data(("a", "b"))
        assert reading.keep_while(("a",)) == ()
        assert reading.fold(("a",), lambda _path, _node, total: total + 1, 0) == 1
        assert reading.fold_below(("a",), lambda _path, _node, total: total + 1, 0) == 2
        for write in (reading.delete, reading.delete_many, reading.clear_payload, reading.clear_many_payloads):
            with pytest.raises(ReadOnlyTransaction):
                write(("a",))
    with pytest.raises(TransactionEnded):
        reading.get(("a",))


def test_the_root_cannot_be_kept_while_something() -> None:
    with pytest.raises(BadPath, match="root"):
        Store().put((), 1, keep_while=[(("a",), IfNodeExists(False))])


def test_keep_while_can_be_replaced_and_taken_back() -> None:
    store = Store()
    store.put(("a",), 1)
    store.put(("b",), 1, keep_while={("a",): IfNodeExists()})
    assert store.keep_while(("b",)) == ((("a",), IfNodeExists()),)
    store.put(("b",), 2)
    assert store.keep_while(("b",)), "a put without keep_while leaves it as it was"
    store.put(("b",), 2, keep_while={})
    store.delete(("a",))
    assert store.get(("b",)) == 2


def test_a_node_kept_while_another_is_absent() -> None:
    store = Store()
    store.put(("placeholder",), 1, keep_while={("real",): IfNodeExists(False)})
    store.put(("real",), 2)
    assert store.children(()) == ("real",)


def test_keep_while_has_a_stated_limit() -> None:
    pairs = [(("a",), IfNodeExists(False))] * 65
    with pytest.raises(BadData, match="64"):
        Store().put(("b",), 1, keep_while=pairs)
    assert not Store().put(("b",), 1, keep_while=pairs[:64]).existed
    data = keep_while_to_data(pairs)
    with pytest.raises(BadData, match="64"):
        keep_while_from_data_untrusted(data)
    assert len(keep_while_from_data_untrusted(data[:64])) == 64


def test_a_node_without_payload_that_was_asked_for_stays() -> None:
    store = Store()
    store.put(("a", "b"), 1)
    store.put(("a",), NO_PAYLOAD)
    store.delete(("a", "b"))
    assert store.exists(("a",))


def test_the_root_has_no_stored_row_above_it_and_malformed_rows_are_refused() -> None:
    store = Store()
    store.put(("a",), 1)
    digest = store.digest()
    row = store.row(("a",))
    assert row is not None
    assert store.row(("missing",)) is None
    for rows in ([(("x", "y"), row)], [(("b",), [1])], [(("b",), row), (("c",), [b"", 1, 1, False, 5])]):
        with pytest.raises(BadData):
            store.adopt(rows, 9)
    assert (store.digest(), store.revision) == (digest, 1)
    with store.transaction(), pytest.raises(RuntimeError, match="transaction"):
        store.adopt([], 9)


def test_rows_are_adopted_all_or_none() -> None:
    """Also when they change nodes that are there, take some away, and bring others: the last one lacks its parent."""
    store = Store()
    store.put(("a", "b"), 1)
    store.put(("x",), 1, keep_while=[(("a", "b"), IfNodeExists())])
    store.put(("x",), 2)
    digest, revision = store.digest(), store.revision
    x, root = store.row(("x",)), store.row(())
    for first in ([(("a",), x)], [(("a",), None)], [(("a", "b"), None)], [(("n",), x)], [((), x)], [(("x",), root)]):
        with pytest.raises(BadData, match="parent"):
            store.adopt([*first, (("z", "z"), x)], 9)
        assert (store.digest(), store.revision) == (digest, revision), first


@pytest.mark.parametrize(
    "change",
    [
        lambda to: to.put(("a",), NO_PAYLOAD),
        lambda to: to.put(("a",), NO_PAYLOAD, keep_while=[(("x",), IfNodeExists(True))]),
        lambda to: to.put(("x",), 9, keep_while=[(("a",), IfNodeExists(True))]),
        lambda to: to.put(("k",), 1, keep_while=[]),
        lambda to: to.put(("new", "path"), 1),
        lambda to: to.put((), 1),
        lambda to: to.clear_payload(("x",)),
        lambda to: to.delete(("a", "b")),
        lambda to: to.delete(("x",)),
        lambda to: to.delete(()),
        lambda to: to.put_many((ANY_NAME, "end"), 1),
        lambda to: to.update_many((ANY_DEPTH,), 1),
        lambda to: to.clear_many_payloads((ANY_DEPTH,)),
        lambda to: to.delete_many((ANY_NAME,)),
    ],
)
def test_nothing_is_left_of_an_operation_that_is_undone(change: Callable[[Transaction], object]) -> None:
    """Every field of every node, what keeps nodes, and who watches whom: later operations do what they would have."""
    store, untouched = Store(), Store()
    for each in (store, untouched):
        each.put(("a", "b"), 1)
        each.put(("x",), 1)
        each.put(("k",), 1, keep_while=[(("x",), IfDataMatches(1))])

    def change_and_fail(transaction: Transaction, _args: Any) -> None:
        change(transaction)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transact(change_and_fail, None, lambda result: result)
    assert (store.to_data(), store.revision) == (untouched.to_data(), untouched.revision)
    for each in (store, untouched):
        each.delete(("a", "b"))
        each.put(("x",), 2)
    assert store.to_data() == untouched.to_data()
    assert [store.exists((name,)) for name in ("a", "x", "k")] == [False, True, False]


def test_whoever_mirrors_tells_watchers_too() -> None:
    source, mirror, commits = Store(), Store(), list[Commit]()
    mirror.on_commit = commits.append
    source.put(("a",), 1)
    mirror.adopt([((), source.row(())), (("a",), source.row(("a",)))], source.revision)
    mirror.adopt([((), source.row(())), (("a",), None)], 2)
    assert [[str(change.kind) for change in commit.changes] for commit in commits] == [
        ["children", "created"],
        ["children", "deleted"],
    ]
    mirror.adopt([], 3)
    assert (len(commits), mirror.revision) == (2, 3)


def test_what_goes_away_is_told_of_as_it_was_before_the_operation() -> None:
    store = Store()
    store.put(("a", "b", "c"), 1)
    as_it_was = dict(store.matches((ANY_DEPTH,)))
    effects = store.delete(("a", "b", "c"))
    assert {path: touched.before for path, touched in effects.touched.items()} == as_it_was


def test_what_keep_while_takes_away_is_told_of_as_it_was_before_the_operation() -> None:
    store = Store()
    store.put(("a",), 1, keep_while=[((PatternStep.THIS,), IfChildListLength(0))])
    store.put(("w", "x"), 1)
    store.put(("w", "y"), 1, keep_while=[(("w", "x"), IfNodeExists())])
    as_it_was = dict(store.matches((ANY_DEPTH,)))
    written = store.put(("a", "child"), 1)
    assert written.touched[("a",)].before == as_it_was[("a",)]
    effects = store.delete(("w", "x"))
    del as_it_was[("a",)]
    assert {path: touched.before for path, touched in effects.touched.items()} == as_it_was
