"""Effort: a small command or read cannot become long work, whichever way it asks for it."""

from collections.abc import Mapping
from typing import Any

import pytest

from batonpass.tree.data import work_budget as effort
from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import TooMuch
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.work_budget import MAX_STEPS, STEPS_PER_ROW, WorkBudget
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.store.conditions import (
    AllOf,
    AnyOf,
    Condition,
    IfDataLike,
    IfDataMatches,
    IfHasData,
    IfNameMatches,
    IfNodeExists,
    NotOf,
)
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, pattern_to_data
from batonpass.tree.store.projections import Projection
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import Transaction

WIDE = 2000
EVERYTHING = pattern_to_data((ANY_DEPTH,))
CHILDREN = pattern_to_data(("dos", ANY_NAME))
MANY_EXPRESSIONS = AnyOf([IfNameMatches(regex=f"z{number}.q") for number in range(120)])
EMPTY_SHAPE: Mapping[str, Any] = {}


def machine_with(children: int = WIDE, data: Any = 1, projections: Mapping[str, Projection] | None = None) -> Machine:
    machine = Machine({}, projections or {})
    with machine.store.transaction() as transaction:
        for number in range(children):
            transaction.put(("dos", str(number)), data)
    return machine


def run(machine: Machine, procedure: str, args: Any, number: int = 1) -> CommandAnswer:
    return CommandAnswer.from_encoded(machine.apply(encode_command(Command(procedure, args, "c", number)))[1])


def query(machine: Machine, procedure: str, args: Any) -> CommandAnswer:
    return CommandAnswer.from_encoded(machine.read(procedure, args))


def refused(answer: CommandAnswer) -> bool:
    return answer.code == "too_much" and answer.details == {"steps": MAX_STEPS} and str(MAX_STEPS) in answer.message


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "count", "path": EVERYTHING},
        {"op": "exists", "path": pattern_to_data(("dos", IfNameMatches(prefix="none")))},
        {"op": "has_data", "path": CHILDREN},
        {"op": "get_many", "path": CHILDREN},
        {"op": "children", "path": ["dos"]},
        {"op": "put_many", "path": CHILDREN, "data": 2},
        {"op": "update_many", "path": CHILDREN, "data": 2},
        {"op": "clear_many_payloads", "path": pattern_to_data(("dos", IfNameMatches(prefix="none")))},
        {"op": "delete_many", "path": pattern_to_data(("dos", IfNameMatches(prefix="none")))},
    ],
    ids=lambda operation: operation["op"],
)
def test_many_small_operations_are_bounded_together(operation: Any) -> None:
    machine = machine_with()
    before = machine.store.digest()
    assert run(machine, "tree.transaction", {"then": [operation]}, 1).ok or operation["op"] == "delete_many"
    machine = machine_with()
    assert refused(run(machine, "tree.transaction", {"then": [operation] * 1024}, 2))
    assert machine.store.digest() == before


def test_what_a_command_is_refused_for_does_not_count_for_the_next() -> None:
    machine = machine_with()
    assert refused(run(machine, "tree.transaction", {"then": [{"op": "count", "path": EVERYTHING}] * 1024}, 1))
    assert run(machine, "tree.count", {"path": EVERYTHING}, 2).value == WIDE + 1
    assert machine.store.count((ANY_DEPTH, AnyOf([IfHasData(), *([IfNodeExists()] * 300)]))) == WIDE


def test_a_pattern_pays_for_each_of_its_parts() -> None:
    machine = machine_with()
    args = {"path": pattern_to_data(("dos", MANY_EXPRESSIONS))}
    assert refused(query(machine, "tree.get_many", args))
    assert refused(run(machine, "tree.get_many", args))
    with machine.store.reading() as reading, pytest.raises(TooMuch):
        list(reading.matches(("dos", MANY_EXPRESSIONS)))
    assert list(machine.store.matches(("dos", MANY_EXPRESSIONS))) == []


def test_comparisons_pay_as_operations_do() -> None:
    machine = machine_with()
    comparison = [CHILDREN, ["any_of", [["if_data_matches", 2], ["if_node_exists", True]]]]
    assert run(machine, "tree.transaction", {"if": [comparison]}, 1).value["succeeded"] is True
    assert refused(run(machine, "tree.transaction", {"if": [comparison] * 1024}, 2))
    assert refused(query(machine, "tree.query", {"if": [comparison] * 1024}))


def test_data_pays_by_its_size() -> None:
    machine = machine_with(100, "x" * 100_000)
    reads = [{"op": "get", "path": ["dos", str(number % 100)]} for number in range(1000)]
    assert query(machine, "tree.query", {"then": reads[:100]}).ok
    assert refused(query(machine, "tree.query", {"then": reads}))
    like = pattern_to_data(("dos", IfDataLike({"$any": True})))
    assert query(machine, "tree.count", {"path": like}).value == 100
    bound = pattern_to_data(("dos", AllOf([IfDataLike([{"$bind": "x"}, {"$bind": "x"}])] * 2)))
    assert refused(query(machine, "tree.count", {"path": bound}))
    large = pattern_to_data(("dos", IfDataLike({"$value": "x" * 200_000})))
    assert refused(query(machine, "tree.count", {"path": large}))
    overwrite = [{"op": "put", "path": ["dos", str(number)], "data": "y" * 1} for number in range(100)]
    assert run(machine, "tree.transaction", {"then": overwrite}).ok


def test_a_condition_on_one_node_pays_too() -> None:
    machine = machine_with(1, "x" * 100_000)
    like = ["if_data_matches", {"$any": True}, []]
    for op in ("put", "delete"):
        operations = [{"op": op, "path": ["dos", "0"], "data": "x" * 1, "condition": ["not_of", like]}] * 2
        answer = run(machine, "tree.transaction", {"then": operations}, 1 if op == "put" else 2)
        assert answer.code in (None, "mismatching_node")
    delete = {"op": "delete", "path": ["dos", "0"], "condition": ["not_of", like]}
    assert refused(run(machine, "tree.transaction", {"then": [delete] * 1000}, 3))


def test_what_keeps_nodes_pays_for_the_command_that_changes_something() -> None:
    machine = machine_with()
    keep = [[EVERYTHING, ["if_node_exists", True]]]
    for number in range(5):
        args = {"path": ["watcher", str(number)], "data": 1, "keep_while": keep}
        assert run(machine, "tree.put", args, number).ok
    assert run(machine, "tree.put", {"path": ["dos", "0"], "data": 2}, 10).ok
    puts = [{"op": "put", "path": ["dos", str(number)], "data": 2} for number in range(1000)]
    assert refused(run(machine, "tree.transaction", {"then": puts}, 11))


def test_a_procedure_of_the_program_pays_as_well() -> None:
    def walks(transaction: Transaction, _args: Any) -> int:
        return sum(transaction.fold_below((), lambda _path, _view, count: count + 1, 0) for _ in range(1000))

    def counts(transaction: Transaction, _args: Any) -> int:
        return sum(transaction.count_below(("dos",)) for _ in range(1000))

    def reads(transaction: Transaction, _args: Any) -> int:
        return sum(len(transaction.get_or(("dos", "0"), "")) for _ in range(10_000))

    def works(transaction: Transaction, _args: Any) -> None:
        transaction.spend(MAX_STEPS + 1)

    def goes_on(transaction: Transaction, _args: Any) -> None:
        with pytest.raises(TooMuch):
            works(transaction, None)
        transaction.spend(1)

    procedures = {f.__name__: f for f in (walks, counts, reads, works, goes_on)}
    machine = Machine(procedures)
    machine.store.put(("dos", "0"), "x" * 2000)
    for number in range(300):
        machine.store.put(("dos", "more", str(number)), 0)
    assert [refused(run(machine, name, None, number)) for number, name in enumerate(procedures)] == [True] * 5


def test_a_projection_sees_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(table: dict[Any, Any], path: Any, _before: NodeView | None, after: NodeView | None) -> None:
        table[path] = after

    machine = machine_with(projections={"everything": follow})
    monkeypatch.setattr("batonpass.tree.store.store.MAX_STEPS", 10)
    assert refused(run(machine, "tree.count", {"path": EVERYTHING}, 1))
    assert run(machine, "tree.register_projection", {"name": "everything", "pattern": EVERYTHING}, 2).ok
    assert len(machine.projection("everything")) == WIDE + 1


def test_a_plain_path_takes_what_is_written_and_nothing_for_being_found() -> None:
    store = Store()

    def plain(transaction: Transaction, _args: Any) -> int:
        transaction.put(("a", "b"), 1)  # two nodes
        transaction.get(("a", "b"))
        transaction.put(("a", "b"), 2)
        transaction.delete(("a", "b"))  # and with it the one that was made on the way
        return store._tree.effort.left

    assert store.transact(plain, None, lambda left: left) == MAX_STEPS - 5 * STEPS_PER_ROW


@pytest.mark.parametrize(
    "path", [(), ("a",), ("a", "b"), ("a", "b", "c"), ("x",), ("a", "x"), ("a", "x", "y")], ids=str
)
def test_to_ask_for_a_plain_path_takes_what_the_search_for_it_takes(path: tuple[str, ...]) -> None:
    store = Store()
    store.put(("a", "b", "c"), 1)

    def asked(transaction: Transaction, pattern: Any) -> tuple[bool, int]:
        return transaction.exists(pattern), store._tree.effort.left

    def searched(transaction: Transaction, pattern: Any) -> tuple[bool, int]:
        return transaction.count(pattern) > 0, store._tree.effort.left

    assert store.transact(asked, path, tuple) == store.transact(searched, path, tuple)


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (IfHasData(), 1),
        (IfNameMatches(prefix="a"), 1),
        (IfNameMatches(regex="a"), 4),
        (NotOf("a"), 2),
        (AllOf(["a", IfHasData()]), 3),
        (IfDataMatches({"a": 1}), 1),
        (IfDataLike({"a": {"$any": True}}), 1 + 11),
        (IfDataLike({"a": {"$bind": "x"}}, [["gt", {"$bind": "x"}, 1]]), 1 + 8 + 3 * 11),
        (NotOf(AnyOf([IfDataLike(EMPTY_SHAPE), "a"])), 4 + 11),
    ],
    ids=str,
)
def test_the_steps_of_conditions(condition: Condition, steps: int) -> None:
    text = encode("x" * 637)
    assert condition.steps_on(NodeView(text, 1, 1, 0)) == steps


def test_steps_are_taken_until_there_are_no_more() -> None:
    left = WorkBudget(3)
    left.take(3)
    left.take_sorting(3)
    with pytest.raises(TooMuch):
        left.take(1)
    with pytest.raises(TooMuch):
        left.take(0)
    assert WorkBudget().left == effort.UNBOUNDED
