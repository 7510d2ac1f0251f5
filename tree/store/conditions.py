"""Conditions: what must hold of a node for an operation to go ahead, or for a pattern to match it.

A condition is evaluated on a node and its name, or on None when there is no such node. Of a missing node only its
absence and its name are known, so everything said about its contents is false. Names are Khepri's; their data forms,
which `tree.store.condition_reader` reads:

    "foo"                                          the node has this name
    ["if_name_matches", null]                      any name (`*`)
    ["if_name_matches", "prefix", "fo"]            the name begins so (`fo*`)
    ["if_name_matches", "regex", "o+"]             the name contains a match of this RE2 expression
    ["if_path_matches", ...]                       as if_name_matches, at any depth (`**`)
    ["if_has_payload", true]                       has a payload (data or a stored procedure), or not
    ["if_has_data", true]                          has data, or not
    ["if_data_matches", value]                     the data equals the value exactly
    ["if_data_matches", shape, guards]             the data looks so; see `tree.data.shapes`
    ["if_node_exists", true]                       there is such a node, or not
    ["if_payload_version", 3]                      or ["if_payload_version", ["ge", 3]]
    ["if_child_list_version", 3]                   the same
    ["if_child_list_length", 3]                    the same
    ["not_of", c] ["all_of", [c, ...]] ["any_of", [c, ...]]

Regular expressions are RE2's (https://github.com/google/re2), because they come from the network and run on every
member: matching takes time linear in the name, whatever the expression.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, Protocol

import re2

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.path import check_path
from batonpass.tree.data.payload import has_data
from batonpass.tree.data.shapes import COMPARISONS, check_shape, meets
from batonpass.tree.data.work_budget import steps_of_bytes, steps_of_data

__all__ = [
    "AllOf",
    "AnyOf",
    "Compare",
    "Condition",
    "IfChildListLength",
    "IfChildListVersion",
    "IfDataLike",
    "IfDataMatches",
    "IfHasData",
    "IfHasPayload",
    "IfNameMatches",
    "IfNodeExists",
    "IfPathMatches",
    "IfPayloadVersion",
    "Judged",
    "Name",
    "NotOf",
    "check_condition",
    "only_name",
]

MAX_REGEX_CHARACTERS: Final = 512
# What one compiled expression may occupy; RE2 refuses those that need more.
_MAX_REGEX_BYTES: Final = 1 << 20
_REGEXES_KEPT: Final = 256
_STEPS_OF_REGEX: Final = 4
_STEPS_OF_HOLE: Final = 4


class Judged(Protocol):
    """What a condition may look at."""

    @property
    def encoded(self) -> bytes | None:
        """The payload's canonical bytes, or None if the node has no payload."""

    @property
    def payload_version(self) -> int:
        """How often the payload changed, counting from 1."""

    @property
    def child_list_version(self) -> int:
        """How often a child was added or removed, counting from 1."""

    @property
    def child_count(self) -> int:
        """How many children there are now."""


class Condition:
    """Base of all conditions; the cases below are the whole set.

    `recursive`: in a pattern, the condition is tried on nodes at any depth and not only on children.
    """

    @property
    def recursive(self) -> bool:
        """Whether this, or a part of it, matches at any depth."""
        return False

    @property
    def names_only(self) -> bool:
        """Whether the answer depends on the name alone, and so is the same before and after a change."""
        return False

    @property
    def steps(self) -> int:
        """What one trial takes, besides reading data; see `tree.data.work_budget`."""
        return 1

    @property
    def readings(self) -> int:
        """How often a trial reads the node's data, at most."""
        return 0

    @property
    def steps_to_make(self) -> int:
        """What it takes to read this from data, however often it is tried then."""
        return self.steps

    def steps_on(self, node: Judged | None) -> int:
        """What a trial on this node takes, at most."""
        readings = self.readings
        if not readings or node is None or node.encoded is None:
            return self.steps
        return self.steps + readings * steps_of_data(node.encoded)

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """Whether the condition holds of this node (None: there is no node) of this name."""
        raise NotImplementedError

    def to_data(self) -> Any:
        """As plain data, the inverse of `condition_from_data_untrusted`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Name(Condition):
    """The node has exactly this name. With other conditions in an `AllOf`: this node, if they hold."""

    name: str

    def __post_init__(self) -> None:
        check_path((self.name,))

    @property
    def names_only(self) -> bool:
        """Yes."""
        return True

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True for this name, whether the node exists or not."""
        return name == self.name

    def to_data(self) -> Any:
        """As plain data: the name itself."""
        return self.name


@dataclass(frozen=True)
class IfNameMatches(Condition):
    """The name contains a match of `regex`, and begins with `prefix`; without either, any name."""

    regex: str | None = None
    prefix: str | None = None

    _TAG = "if_name_matches"

    def __post_init__(self) -> None:
        if self.regex is not None and self.prefix is not None:
            raise BadData("a name matches a regex or a prefix; for both, use AllOf")
        if self.regex is not None:
            _compiled(self.regex)
        if self.prefix is not None:
            check_path((self.prefix,))

    @property
    def names_only(self) -> bool:
        """Yes."""
        return True

    @property
    def steps(self) -> int:
        """An expression takes longer than a comparison."""
        return 1 if self.regex is None else _STEPS_OF_REGEX

    @property
    def steps_to_make(self) -> int:
        """An expression has to be compiled."""
        return 1 if self.regex is None else len(self.regex)

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node exists and its name matches."""
        if node is None:
            return False
        if self.regex is not None:
            return _compiled(self.regex).search(name) is not None
        return self.prefix is None or name.startswith(self.prefix)

    def to_data(self) -> Any:
        """As plain data."""
        if self.regex is not None:
            return [self._TAG, "regex", self.regex]
        return [self._TAG, None] if self.prefix is None else [self._TAG, "prefix", self.prefix]


@dataclass(frozen=True)
class IfPathMatches(IfNameMatches):
    """As `IfNameMatches`, but of the names of nodes at any depth below the place of the condition in a pattern."""

    _TAG = "if_path_matches"

    @property
    def recursive(self) -> bool:
        """Yes: this is what makes a pattern look below children."""
        return True


@dataclass(frozen=True)
class IfHasPayload(Condition):
    """The node has a payload, data or a stored procedure; or (`has_payload=False`) exists without one."""

    has_payload: bool = True

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node exists and its having a payload is as wanted."""
        return node is not None and (node.encoded is not None) is self.has_payload

    def to_data(self) -> Any:
        """As plain data."""
        return ["if_has_payload", self.has_payload]


@dataclass(frozen=True)
class IfHasData(Condition):
    """The node has data; or (`has_data=False`) exists with none, perhaps with a stored procedure."""

    has_data: bool = True

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node exists and its having data is as wanted."""
        return node is not None and has_data(node.encoded) is self.has_data

    def to_data(self) -> Any:
        """As plain data."""
        return ["if_has_data", self.has_data]


@dataclass(frozen=True)
class IfNodeExists(Condition):
    """The node exists, or (`exists=False`) does not."""

    exists: bool = True

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node's existence is as wanted."""
        return (node is not None) is self.exists

    def to_data(self) -> Any:
        """As plain data."""
        return ["if_node_exists", self.exists]


@dataclass(frozen=True)
class IfDataMatches(Condition):
    """The node has data equal to this value. 1, 1.0 and true are three different values."""

    value: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encoded", encode(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IfDataMatches) and bool(self.__dict__["_encoded"] == other.__dict__["_encoded"])

    def __hash__(self) -> int:
        return hash(self.__dict__["_encoded"])

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node exists with equal data."""
        expected: bytes = self.__dict__["_encoded"]
        return node is not None and node.encoded == expected

    def to_data(self) -> Any:
        """As plain data."""
        return ["if_data_matches", self.value]


@dataclass(frozen=True)
class IfDataLike(Condition):
    """The node has data of this shape, and the guards hold of what the shape binds; see `tree.data.shapes`."""

    shape: Any
    guards: Any = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_measured", check_shape(self.shape, self.guards))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IfDataLike) and encode(self.to_data()) == encode(other.to_data())

    def __hash__(self) -> int:
        return hash(encode(self.to_data()))

    @property
    def steps(self) -> int:
        """A large shape takes long even on small data: literals and what is bound are compared by their bytes."""
        measured = self.__dict__["_measured"]
        return 1 + steps_of_bytes(measured.size_bytes) + _STEPS_OF_HOLE * int(measured.holes)

    @property
    def readings(self) -> int:
        """Once, and again for everything that is bound or compared."""
        holes: int = self.__dict__["_measured"].holes
        return 1 + holes

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node exists with such data."""
        if node is None or node.encoded is None or not has_data(node.encoded):
            return False
        return meets(self.shape, self.guards, decode(node.encoded))

    def to_data(self) -> Any:
        """As plain data."""
        return ["if_data_matches", self.shape, list(self.guards)]


@dataclass(frozen=True)
class Compare:
    """A comparison with a number: `op` is eq, ne, lt, le, gt or ge."""

    op: str
    number: int

    def __post_init__(self) -> None:
        if type(self.number) is not int:
            raise BadData(f"a counter is compared with an integer, not {self.number!r:.40}")
        if self.op not in COMPARISONS:
            raise BadData(f"{self.op!r:.40} is no comparison; use one of {', '.join(COMPARISONS)}")

    def holds(self, actual: int) -> bool:
        """Whether `actual op number`."""
        return _COMPARE[self.op](actual, self.number)


_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}


@dataclass(frozen=True)
class _IfCounter(Condition):
    """A counter of the node is this number, or compares with it."""

    expected: int | Compare

    _TAG = ""

    def __post_init__(self) -> None:
        if type(self.expected) is not int and not isinstance(self.expected, Compare):
            raise BadData(f"a counter is compared with an integer or a Compare, not {self.expected!r:.40}")

    def _actual(self, node: Judged) -> int:
        raise NotImplementedError

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the node exists and its counter is as wanted."""
        if node is None:
            return False
        if isinstance(self.expected, Compare):
            return self.expected.holds(self._actual(node))
        return self._actual(node) == self.expected

    def to_data(self) -> Any:
        """As plain data."""
        if isinstance(self.expected, Compare):
            return [self._TAG, [self.expected.op, self.expected.number]]
        return [self._TAG, self.expected]


class IfPayloadVersion(_IfCounter):
    """The payload's version is exactly this one (it was not changed since it was read), or compares with it."""

    _TAG = "if_payload_version"

    def _actual(self, node: Judged) -> int:
        return node.payload_version


class IfChildListVersion(_IfCounter):
    """The version of the list of children is this one, or compares with it."""

    _TAG = "if_child_list_version"

    def _actual(self, node: Judged) -> int:
        return node.child_list_version


class IfChildListLength(_IfCounter):
    """The node has this number of children, or one that compares with it."""

    _TAG = "if_child_list_length"

    def _actual(self, node: Judged) -> int:
        return node.child_count


class _Combined(Condition):
    """What `AllOf` and `AnyOf` have in common. A plain name among the parts is a condition too."""

    parts: tuple[Condition, ...]

    def __init__(self, parts: "tuple[Condition | str, ...] | list[Condition | str]") -> None:
        self.parts = tuple(Name(part) if isinstance(part, str) else part for part in parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Combined):
            return NotImplemented
        return type(other) is type(self) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((type(self), self.parts))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parts!r})"

    @property
    def recursive(self) -> bool:
        """If a part is."""
        return any(part.recursive for part in self.parts)

    @property
    def names_only(self) -> bool:
        """If all parts are."""
        return all(part.names_only for part in self.parts)

    @property
    def steps(self) -> int:
        """All of its parts."""
        return 1 + sum(part.steps for part in self.parts)

    @property
    def readings(self) -> int:
        """All of its parts."""
        return sum(part.readings for part in self.parts)

    @property
    def steps_to_make(self) -> int:
        """All of its parts."""
        return 1 + sum(part.steps_to_make for part in self.parts)


class AllOf(_Combined):
    """Every part holds; with no parts, always."""

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if every part holds."""
        return all(part.holds(node, name) for part in self.parts)

    def to_data(self) -> Any:
        """As plain data."""
        return ["all_of", [part.to_data() for part in self.parts]]


class AnyOf(_Combined):
    """At least one part holds; with no parts, never."""

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if some part holds."""
        return any(part.holds(node, name) for part in self.parts)

    def to_data(self) -> Any:
        """As plain data."""
        return ["any_of", [part.to_data() for part in self.parts]]


class NotOf(Condition):
    """The part does not hold."""

    part: Condition

    def __init__(self, part: Condition | str) -> None:
        self.part = Name(part) if isinstance(part, str) else part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NotOf) and self.part == other.part

    def __hash__(self) -> int:
        return hash((NotOf, self.part))

    def __repr__(self) -> str:
        return f"NotOf({self.part!r})"

    @property
    def recursive(self) -> bool:
        """If the part is."""
        return self.part.recursive

    @property
    def names_only(self) -> bool:
        """If the part is."""
        return self.part.names_only

    @property
    def steps(self) -> int:
        """Those of the part, and one."""
        return 1 + self.part.steps

    @property
    def readings(self) -> int:
        """Those of the part."""
        return self.part.readings

    @property
    def steps_to_make(self) -> int:
        """Those of the part, and one."""
        return 1 + self.part.steps_to_make

    def holds(self, node: Judged | None, name: str = "") -> bool:
        """True if the part is false."""
        return not self.part.holds(node, name)

    def to_data(self) -> Any:
        """As plain data."""
        return ["not_of", self.part.to_data()]


def check_condition(condition: object) -> None:
    """Raises `BadData` unless this is a condition, and not its form as data."""
    if not isinstance(condition, Condition):
        raise BadData(f"not a Condition: {condition!r:.100}; `condition_from_data_untrusted` reads one from data")


def only_name(condition: Condition) -> str | None:
    """The one name that a node must have for the condition to hold, as far as its form says; None if it may be any."""
    if isinstance(condition, Name):
        return condition.name
    if condition.recursive:
        return None
    if isinstance(condition, AllOf):
        return next((name for name in map(only_name, condition.parts) if name is not None), None)
    if isinstance(condition, AnyOf):
        names = {only_name(part) for part in condition.parts}
        return names.pop() if len(names) == 1 else None
    return None


@lru_cache(maxsize=_REGEXES_KEPT)
def _compiled(regex: str) -> Any:
    if len(regex) > MAX_REGEX_CHARACTERS:
        raise BadData(f"a regular expression has at most {MAX_REGEX_CHARACTERS} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_REGEX_BYTES
    try:
        return re2.compile(regex, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise BadData(f"not an RE2 expression: {regex!r:.100} ({error})") from error
