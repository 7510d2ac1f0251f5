"""Patterns: which nodes are meant. A path whose components may be conditions and steps besides names.

A component is a name, a `Condition` (met by each child for which it holds), or a `PatternStep`. `PatternStep.THIS`
stays, `PatternStep.PARENT` takes back the component before it, `PatternStep.ROOT` begins again at the root. Steps are
resolved by form alone, before the tree is looked at. A tuple of names is a pattern that means one path.

`ANY_NAME` (`*`) is any child; `ANY_DEPTH` (`**`) any node one or more levels below. As data, a pattern is a list of
names, conditions as data, and `["this"]`, `["parent"]`, `["root"]`.

As text, components stand between slashes. `*` and `**` are as above, `foo*` and `a*z` match names, `.` is this and `..`
the parent. A backslash takes the meaning from the character after it, also from a slash. Only in this written form of
*patterns* do dots and stars mean something; in tuples, lists and `parse_path` they are names like all others.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final, TypeGuard

from batonpass.tree.data.errors import BadData, BadPath, BadPattern, PossiblyManyNodes
from batonpass.tree.data.path import MAX_DEPTH, Path, check_path
from batonpass.tree.store.condition_reader import ConditionReader
from batonpass.tree.store.conditions import Condition, IfNameMatches, IfPathMatches, Name, only_name

__all__ = [
    "ANY_DEPTH",
    "ANY_NAME",
    "Component",
    "Pattern",
    "PatternStep",
    "Resolved",
    "could_match_many",
    "is_path",
    "one_node",
    "parse_pattern",
    "pattern_from_data_untrusted",
    "pattern_to_data",
    "resolve",
    "steps_to_make",
]


class PatternStep(Enum):
    """A component that moves instead of naming."""

    THIS = "this"
    PARENT = "parent"
    ROOT = "root"


Component = str | Condition | PatternStep
Pattern = tuple[Component, ...]
# Without steps, checked: what matching works on.
Resolved = tuple[str | Condition, ...]

ANY_NAME: Final = IfNameMatches()
ANY_DEPTH: Final = IfPathMatches()

_STEPS: Final = {step.value: step for step in PatternStep}
MAX_COMPONENTS: Final = 4 * MAX_DEPTH


def is_path(pattern: Pattern) -> TypeGuard[Path]:
    """Whether the pattern is a plain path: names only."""
    for component in pattern:  # noqa: SIM110  # on every path of every write; a generator takes twice as long
        if not isinstance(component, str):
            return False
    return True


def resolve(pattern: Any, base: Path = ()) -> Resolved:
    """The pattern without steps, names checked; raises `BadPath` or `BadPattern`.

    With a `base`, a pattern that begins with `PatternStep.THIS` or `PatternStep.PARENT` is relative to it.
    """
    if not isinstance(pattern, tuple | list):
        raise BadPath(f"a path or pattern is a list of components, not {type(pattern).__name__}")
    if len(pattern) > MAX_COMPONENTS:
        raise BadPath(f"the pattern has {len(pattern)} components; at most {MAX_COMPONENTS} are allowed")
    resolved: list[str | Condition] = (
        list(base) if pattern and pattern[0] in (PatternStep.THIS, PatternStep.PARENT) else []
    )
    for component in pattern:
        if component is PatternStep.ROOT:
            resolved.clear()
        elif component is PatternStep.PARENT:
            del resolved[-1:]
        elif isinstance(component, Name):
            resolved.append(component.name)
        elif component is not PatternStep.THIS:
            resolved.append(component)
    check_path([component for component in resolved if not isinstance(component, Condition)])
    if len(resolved) > MAX_DEPTH:
        raise BadPath(f"the pattern is {len(resolved)} levels deep; at most {MAX_DEPTH} are allowed")
    return tuple(resolved)


def steps_to_make(pattern: Iterable[Component]) -> int:
    """What it takes to read a pattern from data, or more conditions with it; see `tree.data.work_budget`."""
    return sum(component.steps_to_make for component in pattern if isinstance(component, Condition))


def could_match_many(pattern: Pattern) -> bool:
    """Whether the form of the pattern allows several nodes, whatever the tree holds."""
    return any(not isinstance(component, str) and only_name(component) is None for component in resolve(pattern))


def one_node(pattern: Pattern) -> tuple[Path, tuple[Condition | None, ...]]:
    """The path of the one node that can be meant, and the condition on each level.

    Raises `PossiblyManyNodes`, `BadPath` or `BadPattern`.
    """
    if type(pattern) is tuple and is_path(pattern):
        return check_path(pattern), (None,) * len(pattern)
    names: list[str] = []
    conditions: list[Condition | None] = []
    for component in resolve(pattern):
        if isinstance(component, str):
            names.append(component)
            conditions.append(None)
            continue
        name = only_name(component)
        if name is None:
            raise PossiblyManyNodes(
                "this is for one node, and the pattern could match several; use the form for many",
                {"pattern": pattern_to_data(pattern)},
            )
        names.append(name)
        conditions.append(component)
    return tuple(names), tuple(conditions)


# --- as data ------------------------------------------------------------------------------------------------------


def pattern_to_data(pattern: Pattern) -> list[Any]:
    """As plain data, the inverse of `pattern_from_data_untrusted`."""
    return [_component_to_data(component) for component in pattern]


def pattern_from_data_untrusted(data: Any) -> Pattern:
    """Read a pattern from plain data; raises `BadPath` (`BadPattern` is one) when it is malformed or too large."""
    if type(data) is list and len(data) <= MAX_DEPTH:
        for name in data:
            # 63 characters have at most 252 bytes, so these names need no closer look.
            if type(name) is not str or not 0 < len(name) < 64:
                break
        else:
            return tuple(data)
    if not isinstance(data, list | tuple):
        raise BadPath(f"a path or pattern is a list, not {type(data).__name__}")
    if len(data) > MAX_COMPONENTS:
        raise BadPath(f"the pattern has {len(data)} components; at most {MAX_COMPONENTS} are allowed")
    reader = ConditionReader()
    pattern = tuple(_component_from_data(component, reader) for component in data)
    resolve(pattern)
    return pattern


def _component_to_data(component: Component) -> Any:
    if isinstance(component, PatternStep):
        return [component.value]
    return component if isinstance(component, str) else component.to_data()


def _component_from_data(data: Any, reader: ConditionReader) -> Component:
    if isinstance(data, str):
        return data
    match data:
        case [str(step)] if step in _STEPS:
            return _STEPS[step]
        case [*_]:
            try:
                return reader.read(data)
            except BadData as error:
                raise BadPattern(error.message) from error
        case _:
            raise BadPath(f"a component is a name, a condition or a step, not {data!r:.100}")


# --- as text ------------------------------------------------------------------------------------------------------

# A character and whether a backslash stood before it.
_Characters = list[tuple[str, bool]]


def parse_pattern(text: str) -> Pattern:
    """Read the written form of a pattern; one leading slash is allowed. Raises `BadPath` or `BadPattern`."""
    trimmed = text.removeprefix("/")
    components = list(_split(trimmed)) if trimmed else []
    return pattern_from_data_untrusted([_component_to_data(_parse_component(part)) for part in components])


def _split(text: str) -> Iterator[_Characters]:
    part: _Characters = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise BadPattern("the pattern ends with a backslash; write two for a backslash in a name")
            part.append((escaped, True))
        elif character == "/":
            yield part
            part = []
        else:
            part.append((character, False))
    yield part


def _parse_component(part: _Characters) -> Component:
    plain = "".join(character for character, _ in part)
    stars = [position for position, character in enumerate(part) if character == ("*", False)]
    if not any(escaped for _, escaped in part):
        match plain:
            case ".":
                return PatternStep.THIS
            case "..":
                return PatternStep.PARENT
            case "*":
                return ANY_NAME
            case "**":
                return ANY_DEPTH
            case _:
                pass
    if not stars:
        return plain
    if stars == [len(part) - 1]:
        return IfNameMatches(prefix=plain[:-1])
    return IfNameMatches(regex="(?s)^" + "".join(_as_regex(*character) for character in part) + "$")


def _as_regex(character: str, escaped: bool) -> str:
    if character == "*" and not escaped:
        return ".*"
    # RE2 takes any ASCII punctuation after a backslash as itself, and letters as classes.
    return "\\" + character if character.isascii() and not character.isalnum() and character != "_" else character
