"""The lines of a composition root that can be taken out: statements, arguments by name, and what else begins a line.

An argument, or an element of a list or table, that stands within a line belongs to that line.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["ROOTS", "Line", "Root", "lines_of"]


@dataclass(frozen=True)
class Root:
    """A module that wires a server, and the tests, all in one process, that notice when a line of it is gone."""

    file: str
    tests: tuple[tuple[str, ...], ...]
    """Run one after the other until one fails: first what is quick."""

    @property
    def module(self) -> str:
        return "batonpass." + self.file.removesuffix(".py").replace("/", ".")


_WIRING: Final = ("tests/wiring",)
ROOTS: Final = (
    Root("simserver/server/build.py", (_WIRING, ("tests/simserver/server/test_remember.py",))),
    Root("simserver/server/main.py", (_WIRING,)),
    Root("homeserver/node/composition.py", (_WIRING, ("tests/homeserver/node/test_composition.py",))),
    Root("homeserver/server/main.py", (_WIRING,)),
)


@dataclass(frozen=True)
class Line:
    """Some bytes of a module, and what stands there when they are gone."""

    row: int
    begin: int
    end: int
    instead: bytes
    shown: str

    def without(self, source: bytes) -> bytes:
        return source[: self.begin] + self.instead + source[self.end :]


def lines_of(source: bytes) -> list[Line]:
    """All that can be taken out so that Python still reads what is left, and reads it otherwise.

    Not among them: docstrings, lines of the log, imports, `__all__`, and the heads of functions and classes. What of
    these is missed is missed by ruff and mypy.
    """
    tree, starts = ast.parse(source), _starts(source)
    whole, found = ast.dump(tree), dict[tuple[int, int], Line]()
    for node, instead in _parts(tree):
        begin = starts[node.lineno - 1] + node.col_offset
        if not isinstance(node, ast.stmt | ast.keyword) and source[starts[node.lineno - 1] : begin].strip():
            continue
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        if not isinstance(node, ast.stmt):
            end = _past_comma(source, end)
        line = Line(node.lineno, begin, end, instead, source[begin:end].split(b"\n")[0].decode())
        if _is_other(line.without(source), whole):
            found[begin, end] = line
    return [found[place] for place in sorted(found)]


def _starts(source: bytes) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _past_comma(source: bytes, end: int) -> int:
    rest = source[end:]
    after = rest.lstrip()
    return len(source) - len(after) + 1 if after.startswith(b",") else end


def _is_other(source: bytes, whole: str) -> bool:
    try:
        return ast.dump(ast.parse(source)) != whole
    except SyntaxError:
        return False


_Part = ast.stmt | ast.expr | ast.keyword


def _parts(tree: ast.AST) -> Iterator[tuple[_Part, bytes]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            if not _is_left_alone(node):
                yield node, b"pass"
        elif isinstance(node, ast.Call):
            yield from ((one, b"") for one in node.args)
            yield from ((one, b"") for one in node.keywords)
        elif isinstance(node, ast.Tuple | ast.List | ast.Set) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            yield from ((one, b"") for one in node.elts)


def _is_left_alone(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Pass):
        return True
    text = ast.unparse(node)
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or text.startswith(("_log", "__all__"))
