"""A supervision tree as text: what is started, by whom, in which order, and what becomes of it when it ends. Pure."""

from collections.abc import Iterator
from typing import Final

from batonpass.actors.core.children import ChildSpec, ServiceSpec
from batonpass.actors.core.supervisor import SupervisorSpec
from batonpass.actors.supervision.dynamic_supervisor import DynamicSupervisorSpec

__all__ = ["Path", "draw", "outline"]

Path = tuple[str, ...]
"""The ids of a child and of those above it, from the top."""

_ARMS: Final = {False: ("├─ ", "│  "), True: ("└─ ", "   ")}


def outline(spec: ChildSpec, above: Path = ()) -> Iterator[tuple[Path, ChildSpec]]:
    """Everything that a specification starts, itself first, in the order of starting."""
    path = (*above, str(spec.id))
    yield path, spec
    for child in _children(spec):
        yield from outline(child, path)


def draw(spec: ChildSpec) -> str:
    """The tree, one line for each child: its id, what it is, and for supervisors how they treat their children."""
    return "\n".join(_lines(spec, "", ""))


def _lines(spec: ChildSpec, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{spec.id}  ({_what(spec)})"
    children = _children(spec)
    for number, child in enumerate(children):
        arm, side = _ARMS[number == len(children) - 1]
        yield from _lines(child, rest + arm, rest + side)


def _children(spec: ChildSpec) -> tuple[ChildSpec, ...]:
    return tuple(spec.children) if isinstance(spec, SupervisorSpec) else ()


def _what(spec: ChildSpec) -> str:
    match spec:
        case SupervisorSpec():
            return f"supervisor, {spec.strategy.value}, gives up beyond {spec.max_restarts} in {spec.window_s:g} s"
        case DynamicSupervisorSpec():
            return f"dynamic supervisor, gives up beyond {spec.max_restarts} in {spec.window_s:g} s"
        case ServiceSpec():
            return f"service, {spec.restart.value}"
        case _:
            return f"actor, {spec.restart.value}"
