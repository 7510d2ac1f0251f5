"""The built-in procedures: every operation of the store, as replicated commands.

A procedure is a function of (transaction, args) that every member runs on the same tree in the same order. So it must
depend on its two arguments alone: no clock, no dice, no files, no iteration over sets. Procedures are found by name
among those the program declared; code never travels. One that only reads may be declared with `read_only`, and can then
be run on one member after a read barrier, without a place in the log.

Arguments are maps:

    path         a pattern as data (a list of names is a path), see `tree.store.pattern`
    data         plain data; or `procedure`, the name to store; or neither (only where stated: no payload)
    condition    a condition as data, on the target (optional)
    keep_while   a list of [pattern, condition] (optional)
    full         true: the answer of a write tells every touched node too

A write of one node answers {existed, previous, payload_version}; `tree.delete` how many nodes went away; writes of many
nodes a list of touched nodes. Touched nodes are rows {path, reason, before, after}.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from batonpass.tree.data.errors import Abort, TooMuch
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.payload import NO_PAYLOAD, StoredProcedure
from batonpass.tree.data.work_budget import STEPS_PER_ROW, steps_of_data
from batonpass.tree.store.changes import Effects, Written
from batonpass.tree.store.condition_reader import condition_from_data_untrusted
from batonpass.tree.store.conditions import Condition
from batonpass.tree.store.export import import_rows
from batonpass.tree.store.keep_while import KeepWhile, keep_while_from_data_untrusted
from batonpass.tree.store.pattern import Pattern, pattern_from_data_untrusted, steps_to_make
from batonpass.tree.store.transaction import Transaction

__all__ = ["BUILT_IN", "MAX_RESULT_NODES", "Procedure", "ReadOnly", "read_only"]

Procedure = Callable[[Transaction, Any], Any]
T = TypeVar("T")

# How many nodes one answer may tell of; answers are remembered by every member, so they must stay small.
MAX_RESULT_NODES: Final = 10_000
# And how much payload in bytes.
MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
MAX_OPERATIONS: Final = 1024


@dataclass(frozen=True)
class ReadOnly:
    """A procedure that promises to read only; it is given a transaction that refuses writes."""

    function: Procedure

    def __call__(self, transaction: Transaction, args: Any) -> Any:
        """Run it."""
        return self.function(transaction, args)


def read_only(function: Procedure) -> ReadOnly:
    """Declare that a procedure only reads (a decorator)."""
    return ReadOnly(function)


# --- arguments ----------------------------------------------------------------------------------------------------


def _argument(args: Any, name: str) -> Any:
    if not isinstance(args, dict) or name not in args:
        raise Abort("bad_arguments", f"the argument {name!r} is missing", {"argument": name})
    return args[name]


def _pattern(transaction: Transaction, args: Any) -> Pattern:
    pattern = pattern_from_data_untrusted(_argument(args, "path"))
    transaction.spend(steps_to_make(pattern))
    return pattern


def _payload(args: Any) -> Any:
    if isinstance(args, dict) and "data" not in args and "procedure" in args:
        return StoredProcedure(args["procedure"])
    return _argument(args, "data")


def _payload_or_none(args: Any) -> Any:
    has_payload = isinstance(args, dict) and ("data" in args or "procedure" in args)
    return _payload(args) if has_payload else NO_PAYLOAD


def _condition(transaction: Transaction, args: Any) -> Condition | None:
    data = args.get("condition")
    if data is None:
        return None
    condition = condition_from_data_untrusted(data)
    transaction.spend(condition.steps_to_make)
    return condition


def _keep_while(transaction: Transaction, args: Any) -> KeepWhile | None:
    data = args.get("keep_while")
    if data is None:
        return None
    pairs = keep_while_from_data_untrusted(data)
    transaction.spend(sum(steps_to_make((*pattern, condition)) for pattern, condition in pairs))
    return pairs


# --- answers ------------------------------------------------------------------------------------------------------


def _bounded(
    transaction: Transaction,
    things: Iterable[T],
    payloads: Callable[[T], Iterable[bytes | None]],
    row: Callable[[T], Any],
) -> list[Any]:
    """A row for each thing, if there are not too many and their payloads not too big.

    Raises `TooMuch`, which undoes it all, before the row is made that is too much.
    """
    answer: list[Any] = []
    size = 0
    for thing in things:
        steps = STEPS_PER_ROW
        for encoded in payloads(thing):
            if encoded is not None:
                size += len(encoded)
                steps += steps_of_data(encoded)
        _check_rows(len(answer) + 1, size)
        transaction.spend(steps)
        answer.append(row(thing))
    return answer


def _check_rows(rows: int, size_bytes: int = 0) -> None:
    if rows > MAX_RESULT_NODES or size_bytes > MAX_RESULT_BYTES:
        raise TooMuch(
            f"the answer would tell of more than {MAX_RESULT_NODES} nodes or {MAX_RESULT_BYTES} bytes; "
            "use a narrower pattern",
            {"nodes": MAX_RESULT_NODES, "bytes": MAX_RESULT_BYTES},
        )


def touched_to_data(transaction: Transaction, effects: Effects | Written) -> list[dict[str, Any]]:
    """Rows {path, reason, before, after}; raises `TooMuch`."""
    _check_rows(effects.touched_at_least)
    return _bounded(
        transaction,
        effects.touched.items(),
        lambda item: (None if view is None else view.encoded for view in (item[1].before, item[1].after)),
        lambda item: {"path": list(item[0]), **item[1].to_data()},
    )


def _written(transaction: Transaction, written: Written, args: Any) -> Written | dict[str, Any]:
    """The answer of a write; `Written` itself, which knows its byte form, when nothing more was asked for."""
    if args.get("full") is True:
        return {**written.to_data(), "touched": touched_to_data(transaction, written)}
    return written


def _effects(transaction: Transaction, effects: Effects) -> list[dict[str, Any]]:
    return touched_to_data(transaction, effects)


# --- the procedures -----------------------------------------------------------------------------------------------


def _noop(_transaction: Transaction, _args: Any) -> None:
    """Change nothing; the answer proves that everything submitted before has been applied."""


def _get(transaction: Transaction, args: Any) -> Any:
    pattern = _pattern(transaction, args)
    view = transaction.view(pattern)
    if view is None or not view.has_data:
        return transaction.get(pattern)  # nothing, or what is wrong
    _spend_on(transaction, view)
    return view.data


def _view(transaction: Transaction, args: Any) -> Any:
    view = transaction.view(_pattern(transaction, args))
    _spend_on(transaction, view)
    return None if view is None else view.to_data()


def _spend_on(transaction: Transaction, view: NodeView | None) -> None:
    if view is not None:
        transaction.spend(steps_of_data(view.encoded))


def _get_many(transaction: Transaction, args: Any) -> Any:
    """Rows {path, data, payload_version, ...} in the order of paths."""
    found = transaction.matches(_pattern(transaction, args))
    return _bounded(
        transaction,
        found,
        lambda item: (item[1].encoded,),
        lambda item: {"path": list(item[0]), **item[1].to_data()},
    )


def _exists(transaction: Transaction, args: Any) -> bool:
    return transaction.exists(_pattern(transaction, args))


def _has_data(transaction: Transaction, args: Any) -> bool:
    return transaction.has_data(_pattern(transaction, args))


def _count(transaction: Transaction, args: Any) -> int:
    return transaction.count(_pattern(transaction, args))


def _children(transaction: Transaction, args: Any) -> list[str]:
    pattern = _pattern(transaction, args)
    _check_rows(transaction.count_children(pattern))
    return _bounded(transaction, transaction.children(pattern), lambda _: (), lambda name: name)


def _put(transaction: Transaction, args: Any) -> Any:
    pattern, payload = _pattern(transaction, args), _payload(args)
    return _written(
        transaction,
        transaction.put(pattern, payload, _condition(transaction, args), keep_while=_keep_while(transaction, args)),
        args,
    )


def _create(transaction: Transaction, args: Any) -> Any:
    return _written(
        transaction,
        transaction.create(_pattern(transaction, args), _payload(args), keep_while=_keep_while(transaction, args)),
        args,
    )


def _update(transaction: Transaction, args: Any) -> Any:
    return _written(
        transaction,
        transaction.update(_pattern(transaction, args), _payload(args), keep_while=_keep_while(transaction, args)),
        args,
    )


def _compare_and_swap(transaction: Transaction, args: Any) -> Any:
    pattern, expected, payload = _pattern(transaction, args), _argument(args, "expected"), _payload(args)
    return _written(
        transaction,
        transaction.compare_and_swap(pattern, expected, payload, keep_while=_keep_while(transaction, args)),
        args,
    )


def _make(transaction: Transaction, args: Any) -> Any:
    """As `tree.put`, but with neither data nor procedure: the node has no payload and stays all the same."""
    pattern, payload = _pattern(transaction, args), _payload_or_none(args)
    return _written(
        transaction,
        transaction.put(pattern, payload, _condition(transaction, args), keep_while=_keep_while(transaction, args)),
        args,
    )


def _clear_payload(transaction: Transaction, args: Any) -> Any:
    return _written(transaction, transaction.clear_payload(_pattern(transaction, args)), args)


def _delete(transaction: Transaction, args: Any) -> Any:
    effects = transaction.delete(_pattern(transaction, args), _condition(transaction, args))
    return _effects(transaction, effects) if args.get("full") is True else effects.removed_count


def _put_many(transaction: Transaction, args: Any) -> Any:
    return _effects(
        transaction,
        transaction.put_many(_pattern(transaction, args), _payload(args), keep_while=_keep_while(transaction, args)),
    )


def _update_many(transaction: Transaction, args: Any) -> Any:
    return _effects(
        transaction,
        transaction.update_many(_pattern(transaction, args), _payload(args), keep_while=_keep_while(transaction, args)),
    )


def _clear_many_payloads(transaction: Transaction, args: Any) -> Any:
    return _effects(transaction, transaction.clear_many_payloads(_pattern(transaction, args)))


def _delete_many(transaction: Transaction, args: Any) -> Any:
    return _effects(transaction, transaction.delete_many(_pattern(transaction, args)))


_OPERATIONS: Final[Mapping[str, Procedure]] = {
    "get": _get,
    "view": _view,
    "get_many": _get_many,
    "exists": _exists,
    "has_data": _has_data,
    "count": _count,
    "children": _children,
    "put": _put,
    "create": _create,
    "update": _update,
    "compare_and_swap": _compare_and_swap,
    "make": _make,
    "clear_payload": _clear_payload,
    "delete": _delete,
    "put_many": _put_many,
    "update_many": _update_many,
    "clear_many_payloads": _clear_many_payloads,
    "delete_many": _delete_many,
}
_READING: Final = frozenset({"get", "view", "get_many", "exists", "has_data", "count", "children"})


def _transaction(transaction: Transaction, args: Any) -> Any:
    """Several operations as one, as etcd's Txn: {if: [[pattern, condition]...], then: [...], else: [...]}.

    If every condition holds of every node that its pattern matches (of a missing node, if it matches none), the
    operations under `then` are applied. Otherwise those under `else` are. Each is a map with `op` (the name of a
    procedure without `tree.`) and its arguments. Any that is refused undoes all. The answer: {succeeded, results}.
    """
    comparisons, chosen = args.get("if", []) if isinstance(args, dict) else None, None
    if not isinstance(comparisons, list) or len(comparisons) > MAX_OPERATIONS:
        raise Abort("bad_arguments", f"`if` is a list of at most {MAX_OPERATIONS} [pattern, condition]")
    succeeded = all(_holds(transaction, comparison) for comparison in comparisons)
    chosen = args.get("then" if succeeded else "else", [])
    if not isinstance(chosen, list) or len(chosen) > MAX_OPERATIONS:
        raise Abort("bad_arguments", f"`then` and `else` are lists of at most {MAX_OPERATIONS} operations")
    return {"succeeded": succeeded, "results": [_operate(transaction, operation) for operation in chosen]}


def _holds(transaction: Transaction, comparison: Any) -> bool:
    match comparison:
        case [pattern_data, condition_data]:
            pattern = pattern_from_data_untrusted(pattern_data)
            condition = condition_from_data_untrusted(condition_data)
            transaction.spend(steps_to_make((*pattern, condition)))
        case _:
            raise Abort("bad_arguments", f"a comparison is [pattern, condition], not {comparison!r:.100}")
    found = False
    transaction.spend(condition.steps)
    for path, view in transaction.matches(pattern):
        found = True
        transaction.spend(condition.steps_on(view))
        if not condition.holds(view, path[-1] if path else ""):
            return False
    last = pattern[-1] if pattern else ""
    return found or condition.holds(None, last if isinstance(last, str) else "")


def _operate(transaction: Transaction, operation: Any) -> Any:
    name = _argument(operation, "op")
    procedure = _OPERATIONS.get(name) if isinstance(name, str) else None
    if procedure is None:
        raise Abort("bad_arguments", f"{name!r:.40} is no operation; there are {', '.join(sorted(_OPERATIONS))}")
    answer = procedure(transaction, operation)
    if type(answer) is not Written:
        return answer
    transaction.spend(steps_of_data(answer.previous_encoded))
    return answer.to_data()


BUILT_IN: Final[Mapping[str, Procedure]] = {
    "tree.noop": ReadOnly(_noop),
    "tree.transaction": _transaction,
    # The same for operations that only read: for `Backend.read`, which needs no place in the log.
    "tree.query": ReadOnly(_transaction),
    "tree.import": import_rows,
    **{
        f"tree.{name}": ReadOnly(procedure) if name in _READING else procedure
        for name, procedure in _OPERATIONS.items()
    },
}
