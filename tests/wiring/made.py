"""What a composition root makes, and with what: each call of its own functions to something of ours is written down.

An argument is shown by what it is: a setting by its name, a part by its class, a callback by what it calls or looks at.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import pytest
from pydantic import BaseModel

OURS: Final = "batonpass."
Lines = set[str]


@contextmanager
def noted(root: ModuleType, config: BaseModel, directory: Path) -> Iterator[Lines]:
    """What is made in the block by the functions of `root`, a server of this configuration being put together."""
    lines, shown = Lines(), _Shown(settings_of(config), directory)
    with pytest.MonkeyPatch.context() as patch:
        functions, methods = _called(root)
        for name in functions:
            value = getattr(root, name, None)
            if callable(value) and getattr(value, "__module__", "").startswith(OURS):
                patch.setattr(root, name, _Noting(name, value, shown, lines))
        kinds = [value.does if isinstance(value, _Noting) else value for value in vars(root).values()]
        for kind in (one for one in kinds if isinstance(one, type) and one.__module__.startswith(OURS)):
            for name in methods:
                if isinstance(vars(kind).get(name), FunctionType):
                    patch.setattr(kind, name, _noting_method(kind, name, shown, lines))
        yield lines


def noted_types(types: Any, lines: Lines, config: BaseModel, directory: Path) -> Any:
    """The classes of which a server is made (`PartTypes`, `Kinds`), each of which writes down with what it is made."""
    shown = _Shown(settings_of(config), directory)
    return replace(
        types, **{one.name: _Noting(one.name, getattr(types, one.name), shown, lines) for one in fields(types)}
    )


def settings_of(config: BaseModel) -> dict[Any, str]:
    """The names of all values of a configuration that are something, and no truth value: no two are equal."""
    found: dict[Any, str] = {}
    for name, value in _flat(config, ""):
        if value and not isinstance(value, bool):
            assert value not in found, f"{name} and {found[value]} are equal"
            found[value] = name
    return found


def _flat(settings: BaseModel, before: str) -> Iterator[tuple[str, Any]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        yield f"{before}{name}", value if isinstance(value, str | int | float | Path | None) else repr(value)
        if isinstance(value, BaseModel):
            yield from _flat(value, f"{before}{name}.")


def _called(root: ModuleType) -> tuple[set[str], set[str]]:
    """The names that are called in a module, and the methods whose answer nobody takes."""
    functions, methods = set[str](), set[str]()
    for node in ast.walk(ast.parse(inspect.getsource(root))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            functions.add(node.func.id)
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        ):
            methods.add(node.value.func.attr)
    return functions, methods


class _Noting:
    """In the place of a class or function: makes the same, and writes down with what."""

    def __init__(self, name: str, does: Callable[..., Any], shown: "_Shown", lines: Lines) -> None:
        self.name, self.does, self._shown, self._lines = name, does, shown, lines

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._lines |= self._shown.call(self.name, args, named)
        return self.does(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.does, name)


def _noting_method(kind: type, name: str, shown: "_Shown", lines: Lines) -> Callable[..., Any]:
    does = vars(kind)[name]

    def note(self: Any, *args: Any, **named: Any) -> Any:
        lines.update(shown.call(f"{kind.__name__}.{name}", args, named))
        return does(self, *args, **named)

    return note


class _Shown:
    """Values as they are written down."""

    def __init__(self, settings: Mapping[Any, str], directory: Path) -> None:
        self._settings, self._directory = settings, directory

    def call(self, name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Lines:
        """A line for each argument."""
        # Children of supervisors are many: what a call is told by is its first text.
        if args and isinstance(args[0], str):
            name = f"{name} {self.value(args[0])}"
        given = {str(place): value for place, value in enumerate(args)} | dict(named)
        return {f"{name}, {key}: {self.value(value)}" for key, value in given.items()} or {f"{name} of nothing"}

    def value(self, value: Any) -> str:
        if isinstance(value, str | int | float | Path | None) or value is None:
            return self._plain(value)
        if isinstance(value, _Noting):
            return value.name
        if isinstance(value, partial):
            return f"partial of {', '.join(self.value(one) for one in (value.func, *value.args))}"
        if isinstance(value, MethodType | FunctionType):
            return _callback(value)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.value(key)}: {self.value(one)}' for key, one in value.items())}}}"
        if isinstance(value, tuple | list | set | frozenset) and not hasattr(value, "_fields"):
            each = [self.value(one) for one in value]
            return f"({', '.join(sorted(each) if isinstance(value, set | frozenset) else each)})"
        return _kind(value)

    def _plain(self, value: Any) -> str:
        if not isinstance(value, bool) and value in self._settings:
            return f"the setting {self._settings[value]}"
        if isinstance(value, Path):
            return str(value.relative_to(self._directory))
        return repr(value)


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, Enum):
        return str(value)
    # What a child is called tells it from others.
    return f"{type(value).__qualname__} {value.id}" if hasattr(value, "start_timeout_s") else type(value).__qualname__


def _callback(value: MethodType | FunctionType) -> str:
    if isinstance(value, MethodType):
        return f"{type(value.__self__).__qualname__}.{value.__func__.__name__}"
    return _looked_at(value) if "<" in value.__qualname__ else value.__qualname__


def _looked_at(function: FunctionType) -> str:
    """The names and the arguments by name that stand in a callback."""
    names = [*function.__code__.co_names, *function.__code__.co_freevars]
    names += [
        name for one in function.__code__.co_consts if isinstance(one, tuple) for name in one if isinstance(name, str)
    ]
    return f"{function.__qualname__} of {' '.join(sorted(set(names)))}"
