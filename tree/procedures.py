"""The built-in procedures: the operations on single nodes, as replicated commands.

A procedure is a function of (transaction, args) that every member runs on the same tree in the same order, so it must
be a function of its two arguments alone: no clock, no dice, no files, no iteration over sets. Procedures are found by
name among those the program declared; code never travels.

Arguments are maps: `path` is a list of names, `data` plain data, and `condition` (optional) a condition as data.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tree.conditions import Condition, condition_from_data_untrusted
from tree.errors import Abort
from tree.path import Path, check_path
from tree.store import Written
from tree.transaction import Transaction

__all__ = ["BUILT_IN", "Procedure"]

Procedure = Callable[[Transaction, Any], Any]


def _argument(args: Any, name: str) -> Any:
    if not isinstance(args, Mapping) or name not in args:
        raise Abort("bad_arguments", f"the argument {name!r} is missing", {"argument": name})
    return args[name]


def _path(args: Any) -> Path:
    return check_path(_argument(args, "path"))


def _condition(args: Any) -> Condition | None:
    data = args.get("condition")
    return None if data is None else condition_from_data_untrusted(data)


def _as_data(written: Written) -> dict[str, Any]:
    return {
        "existed": written.existed,
        "previous": written.previous,
        "payload_version": written.payload_version,
    }


def _noop(_transaction: Transaction, _args: Any) -> None:
    """Change nothing; the answer proves that everything submitted before has been applied."""


def _get(transaction: Transaction, args: Any) -> Any:
    return transaction.get(_path(args))


def _put(transaction: Transaction, args: Any) -> Any:
    return _as_data(transaction.put(_path(args), _argument(args, "data"), _condition(args)))


def _create(transaction: Transaction, args: Any) -> Any:
    return _as_data(transaction.create(_path(args), _argument(args, "data")))


def _update(transaction: Transaction, args: Any) -> Any:
    return _as_data(transaction.update(_path(args), _argument(args, "data")))


def _compare_and_swap(transaction: Transaction, args: Any) -> Any:
    return _as_data(transaction.compare_and_swap(_path(args), _argument(args, "expected"), _argument(args, "data")))


def _clear_payload(transaction: Transaction, args: Any) -> Any:
    return _as_data(transaction.clear_payload(_path(args)))


def _delete(transaction: Transaction, args: Any) -> int:
    return transaction.delete(_path(args), _condition(args))


BUILT_IN: Final[Mapping[str, Procedure]] = {
    "tree.noop": _noop,
    "tree.get": _get,
    "tree.put": _put,
    "tree.create": _create,
    "tree.update": _update,
    "tree.compare_and_swap": _compare_and_swap,
    "tree.clear_payload": _clear_payload,
    "tree.delete": _delete,
}
