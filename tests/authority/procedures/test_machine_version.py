"""Members of one instance apply the same log, so they must do it by the same procedures: `MACHINE_VERSION` says which.

A number can be forgotten, and a digest of the sources differs for a comment. So both are recorded: whoever changes a
source of the procedures is asked here whether the number must rise, and the record is written anew by

    python -m tests.authority.procedures.test_machine_version
"""

import ast
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from batonpass.authority.procedures.table import MACHINE_VERSION
from tests.collected import ROOT

RECORD: Final = Path(__file__).with_name("machine_version.txt")
# What decides what an entry of the log does: these, and all that they import of ours.
ENTRANCES: Final = ("batonpass.authority.procedures.table", "batonpass.tree.machine.commands")
PACKAGES: Final = tuple(f"batonpass.{name}." for name in ("actors", "authority", "crypto", "tree"))


def module_file(name: str) -> Path | None:
    """The source of a module of ours; None for a package, and for what is no module."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return path if path.exists() else None


def imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{alias.name}" for alias in names)}
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case _:
                pass
    return {name for name in found if name.startswith(PACKAGES) and module_file(name)}


def without_words(tree: ast.Module) -> ast.Module:
    """Without docstrings; comments and layout are not in it anyway."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return tree


def spelt(node: Any) -> str:
    """As `ast.dump`, whose form changes with Python: what is empty is left out."""
    match node:
        case ast.AST():
            parts = (f"{name}={spelt(value)}" for name, value in ast.iter_fields(node) if value not in (None, []))
            return f"{type(node).__name__}({', '.join(parts)})"
        case list():
            return f"[{', '.join(map(spelt, node))}]"
        case _:
            return repr(node)


def digests() -> dict[str, str]:
    """Of the source of each module that decides what an entry of the log does."""
    found: dict[str, str] = {}
    todo = list(ENTRANCES)
    while todo:
        name = todo.pop()
        path = module_file(name)
        if name in found or path is None:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        todo += imported(tree)
        found[name] = sha256(spelt(without_words(tree)).encode()).hexdigest()[:16]
    return found


def recorded() -> tuple[int, dict[str, str]]:
    version, *rows = RECORD.read_text(encoding="utf-8").splitlines()
    return int(version.split()[1]), {name: digest for digest, name in (row.split() for row in rows)}


def test_no_procedure_changes_without_a_word_about_the_version() -> None:
    version, before = recorded()
    now = digests()
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    assert not changed, (
        f"{', '.join(changed)} changed. If a command in the log does anything else now than in the last release, raise"
        " MACHINE_VERSION in authority/procedures/table.py, unless that was done since; in any case, write the record"
        " anew: python -m tests.authority.procedures.test_machine_version"
    )
    assert version == MACHINE_VERSION, (
        "write the record anew: python -m tests.authority.procedures.test_machine_version"
    )


def test_a_changed_number_is_noticed_and_a_changed_word_is_not() -> None:
    def digest(text: str) -> str:
        return spelt(without_words(ast.parse(text)))

    source = 'def f(x: int) -> int:\n    """Words."""\n    return x + 1  # why\n'
    assert digest(source) == digest(source.replace("Words", "Other words").replace("why", "because"))
    assert digest(source) != digest(source.replace("x + 1", "x + 2"))


def test_everything_that_a_procedure_could_do_differently_is_looked_at() -> None:
    assert {
        "batonpass.authority.procedures.rights",
        "batonpass.authority.model.records",
        "batonpass.tree.store.store",
        "batonpass.tree.machine.sessions",
        "batonpass.tree.store.conditions",
    } <= set(digests())


if __name__ == "__main__":
    rows = [f"version {MACHINE_VERSION}", *(f"{digest} {name}" for name, digest in sorted(digests().items()))]
    RECORD.write_text("\n".join(rows) + "\n", encoding="utf-8")
