"""Which part of a server has which other one, or calls it: what its composition root wires."""

from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from batonpass.homeserver.node.composition import Parts
from batonpass.simserver.server.dispatch import SimserverNode

SIMSERVER, HOMESERVER, PLAYED = "batonpass.simserver.", "batonpass.homeserver.", "batonpass.scenarios."
Wires = set[tuple[str, str]]


def wires_of(node: SimserverNode) -> Wires:
    """Those of a simulation server: by attributes, from the whole on.

    What is behind a port, and on disk, is another thing in each; of it counts what of the server it calls.
    """
    outside = {**vars(node.ports), **vars(node.durable), "config": node.config, "world": node.environment.world}
    outside |= {"ports": node.ports, "durable": node.durable}
    wires, seen = _walked(node, outside, SIMSERVER)
    for name, port in outside.items():
        for _, one in attributes(port):
            if isinstance(one, MethodType) and id(one.__self__) in seen:
                wires.add((f"port {name}", called(one, outside, SIMSERVER)))
    return wires


def wires_of_home(parts: Parts, outside: Mapping[str, Any]) -> Wires:
    """Those of a homeserver, and what each group of its loops does; `outside` is what it was given."""
    wires, _ = _walked(parts, outside, HOMESERVER)
    for group, loops in parts.loops().items():
        wires |= {(f"loops {group}", called(loop, outside, HOMESERVER) or "a part by itself") for loop in loops}
        wires.add((f"loops {group}", f"{len(loops)} in all"))
    return wires


def _walked(whole: Any, outside: Mapping[str, Any], ours: str) -> tuple[Wires, set[int]]:
    names = {id(one): name for name, one in outside.items()}
    wires, seen, waiting = Wires(), set[int](), [whole]
    while waiting:
        part = waiting.pop()
        for name, value in attributes(part):
            for key, one in several(value):
                at = f"{type(part).__qualname__}.{name}{key}"
                if id(one) in names:
                    wires.add((at, f"port {names[id(one)]}"))
                elif what := called(one, outside, ours):
                    wires.add((at, what))
                elif type(one).__module__.startswith(ours):
                    wires.add((at, type(one).__qualname__))
                    if id(one) not in seen:
                        seen.add(id(one))
                        waiting.append(one)
    return wires, seen


def attributes(part: Any) -> Iterator[tuple[str, Any]]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    found = dict(getattr(part, "__dict__", {})) | {name: getattr(part, name) for name in slots if hasattr(part, name)}
    yield from found.items()


def several(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key.__name__}]" if isinstance(key, type) else "", one) for key, one in value.items()]
    return [("", one) for one in (value if isinstance(value, list) else [value])]


def called(value: Any, outside: Mapping[str, Any], ours: str) -> str:
    """What a callback calls; empty if the value is none, or only the simulation is told."""
    if isinstance(value, partial):
        return called(value.func, outside, ours)
    if isinstance(value, MethodType):
        if (port := next((name for name, one in outside.items() if one == value), "")) != "":
            return f"calls port {port}"
        of, does = value.__self__, value.__func__.__name__
        if (port := next((name for name, one in outside.items() if one is of), "")) != "":
            return f"calls port {port}.{does}"
        return "" if type(of).__module__.startswith(PLAYED) else f"calls {type(of).__qualname__}.{does}"
    is_ours = isinstance(value, FunctionType) and value.__module__.startswith(ours)
    return f"calls {value.__qualname__}" if is_ours else ""
