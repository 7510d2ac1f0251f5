"""Mutants: single small changes of the code, made by Cosmic Ray, and two kinds that this has not.

Only the bodies of functions are changed, and no annotation in them: a number that a module or a model declares is a
choice, and a test that repeats it proves nothing.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names

from tests.guards.sampled import changed_lines

__all__ = ["Mutant", "mutants_of", "sampled"]

_KINDS: Final = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mul_FloorDiv",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "ZeroIterationForLoop",
)
"""Of Cosmic Ray's kinds those whose mutants mostly differ from the code: `is` for `==` hardly ever does."""

_Position = tuple[tuple[int, int], tuple[int, int]]


class NeverTaken(Operator):  # type: ignore[misc] # the library has no types
    """A condition that is never met: what it guards is never done, or never refused."""

    def mutation_positions(self, node: Any) -> Iterator[_Position]:
        """The conditions of an `if` and its `elif`s that are not that already."""
        if node.type == "if_stmt":
            for place in _conditions(node):
                condition = node.children[place]
                if condition.get_code().strip() != "False":
                    yield condition.start_pos, condition.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """`False` in the place of the condition."""
        place = _conditions(node)[index]
        node.children[place] = get_ast(" False")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One."""
        return (Example("if x: raise OSError", "if False: raise OSError"),)


def _conditions(node: Any) -> list[int]:
    return [place + 1 for place, child in enumerate(node.children) if getattr(child, "value", "") in ("if", "elif")]


class NotCalled(Operator):  # type: ignore[misc] # the library has no types
    """A statement that is a call, and is not made."""

    def mutation_positions(self, node: Any) -> Iterator[_Position]:
        """Calls whose answer nobody takes, but for lines of the log."""
        if (
            node.type == "simple_stmt"
            and _is_call(node.children[0])
            and not node.get_code().lstrip().startswith("_log.")
        ):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """`pass` in the place of the call."""
        node.children[0] = get_ast(node.children[0].get_first_leaf().prefix + "pass")
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One."""
        return (Example("check(x)\n", "pass\n"),)


def _is_call(node: Any) -> bool:
    if (node.type == "atom_expr" and node.children[0].type == "keyword") or node.type == "await_expr":
        node = node.children[-1]
    return bool(node.type in ("atom_expr", "power") and node.children[-1].get_code().startswith("("))


@cache
def _operators() -> Mapping[str, Any]:
    known = set(operator_names())
    found = {kind: get_operator(f"core/{kind}")() for kind in _KINDS if f"core/{kind}" in known}
    assert len(found) == len(_KINDS), set(_KINDS) - set(found)
    return found | {"NeverTaken": NeverTaken(), "NotCalled": NotCalled()}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the `occurrence`-th place at which an operator can make it."""

    file: str
    row: int
    column: int
    kind: str
    occurrence: int

    def of(self, text: str) -> str:
        """The file with the change."""
        changed = mutate_code(text, _operators()[self.kind], self.occurrence)
        assert changed is not None, self
        return str(changed)

    def shown(self, text: str) -> tuple[str, str]:
        """The first lines that differ, before and after."""
        before, after = text.splitlines(), self.of(text).splitlines()
        places = (pair for pair in zip(before, after, strict=False) if pair[0] != pair[1])
        was, is_now = next(places, ("", ""))
        return was.strip(), is_now.strip()


def _bodies(text: str) -> tuple[set[int], set[tuple[int, int]]]:
    """The rows that stand in the bodies of functions, and the places of all names in annotations."""
    rows, annotated = set[int](), set[tuple[int, int]]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                rows |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if annotation is not None:
            first, last = annotation.lineno, annotation.end_lineno or annotation.lineno
            for row in range(first, last + 1):
                begin = annotation.col_offset if row == first else 0
                end = (annotation.end_col_offset or 0) if row == last else 500
                annotated |= {(row, column) for column in range(begin, end + 1)}
    return rows, annotated


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All mutants of a file."""
    rows, annotated = _bodies(text)
    tree, found = get_ast(text), list[Mutant]()
    for kind, operator in _operators().items():
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for occurrence, ((row, column), _) in enumerate(places):
            if row in rows and (row, column) not in annotated:
                found.append(Mutant(file, row, column, kind, occurrence))
    return found


def sampled(root: Path, files: list[str], count: int, seed: str, since: str = "") -> list[Mutant]:
    """So many mutants of these files, of as many places: first a place is drawn, then what is changed there.

    With `since`, a commit, of lines that have changed since then only.
    """
    places: dict[tuple[str, int, int], list[Mutant]] = {}
    for file in sorted(files):
        lines = changed_lines(root, file, since) if since else None
        for mutant in mutants_of(file, (root / file).read_text(encoding="utf-8")):
            if lines is None or mutant.row in lines:
                places.setdefault((mutant.file, mutant.row, mutant.column), []).append(mutant)
    dice = Random(seed)
    drawn = dice.sample(sorted(places), min(count, len(places)))
    return [dice.choice(places[place]) for place in drawn]
