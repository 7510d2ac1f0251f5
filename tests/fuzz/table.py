"""Every target by name, and every function of the project that reads hostile bytes."""

import ast
from pathlib import Path

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    for_actors,
    for_authority,
    for_crypto,
    for_door,
    for_etcd,
    for_events,
    for_followers,
    for_home_door,
    for_homeserver,
    for_lockstep,
    for_scenarios,
    for_scene,
    for_simserver,
    for_timeline,
    for_tokens,
    for_tree,
)

PACKAGES = ("actors", "authority", "batonpass/client", "crypto", "homeserver", "scenarios", "simserver", "tree")
ROOT = Path(__file__).parent.parent.parent
CORPUS = Path(__file__).parent / "corpus"

_MODULES = (
    for_crypto,
    for_actors,
    for_authority,
    for_tree,
    for_etcd,
    for_homeserver,
    for_simserver,
    for_door,
    for_home_door,
    for_events,
    for_followers,
    for_lockstep,
    for_scene,
    for_timeline,
    for_tokens,
    for_scenarios,
)
TARGETS: dict[str, Target] = {target.name: target for module in _MODULES for target in module.TARGETS}


def hostile_functions() -> set[str]:
    """`module:qualified name` of every function in the packages whose name ends in `_untrusted`."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "_untrusted(" in text:  # to parse all the others takes seconds
                parts = path.relative_to(ROOT).with_suffix("").parts
                module = ".".join(("batonpass", *(parts[1:] if parts[0] == "batonpass" else parts)))
                module = module.removesuffix(".__init__")
                _collect(ast.parse(text), f"{module}:", found)
    return found


def _collect(node: ast.AST, prefix: str, found: set[str]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.endswith("_untrusted"):
                found.add(prefix + child.name)
            _collect(child, f"{prefix}{child.name}.<locals>.", found)
        else:
            _collect(child, prefix, found)


def load_corpus(name: str) -> list[bytes]:
    """What the fuzzer has kept for a target: one input a line, in hexadecimal; lines that begin with # are remarks."""
    path = CORPUS / f"{name}.hex"
    if not path.exists():
        return []
    lines = path.read_text(encoding="ascii").splitlines()
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]
