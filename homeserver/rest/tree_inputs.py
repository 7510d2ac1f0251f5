"""What requests say about the tree: paths in URLs, patterns, conditions and entity tags, read into the tree's own form.

Every function here raises the tree's errors (`BadPath`, `BadPattern`, `BadData`) or `PathReserved`.
"""

import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.authority.model.reserved_paths import check_keep_while, check_write
from batonpass.tree.data.errors import BadData, BadPath, BadPattern
from batonpass.tree.data.json_form import from_json_untrusted
from batonpass.tree.data.path import Path, check_path
from batonpass.tree.store.condition_reader import condition_from_data_untrusted
from batonpass.tree.store.conditions import AllOf, AnyOf, Condition, IfNodeExists, IfPayloadVersion, NotOf
from batonpass.tree.store.keep_while import keep_while_from_data_untrusted, keep_while_to_data
from batonpass.tree.store.pattern import Pattern, parse_pattern, pattern_from_data_untrusted

__all__ = [
    "MAX_PATTERN_CHARACTERS",
    "all_of",
    "conditions_untrusted",
    "keep_while_untrusted",
    "path_from_json_untrusted",
    "path_of_url_untrusted",
    "pattern_untrusted",
    "preconditions_untrusted",
]

# As much as fits the head of a request.
MAX_PATTERN_CHARACTERS: Final = 8192
_PREFIX: Final = ("", "v1", "tree")
_TAG: Final = re.compile(r'"(\d{1,18})(?:\.[0-9a-f]*)?"')
_MAX_TAGS: Final = 16


class _RestOfPath(Convertor[str]):
    """The rest of a URL's path, whatever is in it: starlette's own `path` does not take line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("names", _RestOfPath())


def path_of_url_untrusted(request: Request) -> Path:
    """The names after /v1/tree/, each percent-encoded for itself, so that a name may hold a slash (`%2F`)."""
    parts = request.scope["raw_path"].split(b"/")
    try:
        names = [unquote_to_bytes(part).decode("utf-8") for part in parts]
    except UnicodeDecodeError as error:
        raise BadPath(f"the path in the URL is not UTF-8: {error}") from error
    if tuple(names[: len(_PREFIX)]) != _PREFIX:
        raise BadPath("write /v1/tree/ in the URL as it is, and encode a slash in a name as %2F")
    rest = names[len(_PREFIX) :]
    return check_path([] if rest == [""] else rest)


def path_from_json_untrusted(text: str) -> Path:
    """A path as a JSON list of names, as `next` of an earlier page."""
    return check_path(_json(text, "a path"))


def pattern_untrusted(pattern: Any) -> Pattern:
    """A pattern in its written form, or as a list; text that begins with `[` is such a list in JSON."""
    if isinstance(pattern, str):
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise BadPattern(f"a pattern has at most {MAX_PATTERN_CHARACTERS} characters")
        if not pattern.startswith("["):
            return parse_pattern(pattern)
        pattern = _json(pattern, "a pattern that begins with [")
    return pattern_from_data_untrusted(from_json_untrusted(pattern))


def _json(text: str, what: str) -> Any:
    try:
        return read_json_untrusted(text)
    except ValueError as error:
        raise BadPath(f"{what} is not the JSON of a list: {error}") from error


def conditions_untrusted(conditions: list[Any]) -> list[Condition]:
    """Conditions as JSON."""
    return [condition_from_data_untrusted(from_json_untrusted(condition)) for condition in conditions]


def keep_while_untrusted(target: Pattern, pairs: list[Any]) -> list[Any]:
    """Pairs of a pattern and a condition, checked for what `target` may be kept while, as data for a command."""
    read: list[tuple[Pattern, Condition]] = []
    for pair in pairs:
        match pair:
            case [pattern, condition]:
                read.append((pattern_untrusted(pattern), conditions_untrusted([condition])[0]))
            case _:
                raise BadData(f"keep_while is a list of [pattern, condition], not of {pair!r:.80}")
    check_write(target)
    check_keep_while(target, read)
    written = keep_while_to_data(read)
    keep_while_from_data_untrusted(written)  # not too many of them
    return written


def preconditions_untrusted(request: Request) -> list[Condition]:
    """What If-Match and If-None-Match ask for: of a tag, the payload's version counts (RFC 9110, section 13.1)."""
    conditions: list[Condition] = []
    given = _header(request, "if-match")
    if given is not None:
        conditions.append(IfNodeExists(True) if given == "*" else _any_version(given))
    given = _header(request, "if-none-match")
    if given is not None:
        conditions.append(IfNodeExists(False) if given == "*" else NotOf(_any_version(given)))
    return conditions


def _any_version(tags: str) -> Condition:
    """One of these versions. What is no tag of ours, or a weak one, is the tag of nothing here."""
    found = [_TAG.fullmatch(tag.strip()) for tag in tags.split(",", _MAX_TAGS)]
    if len(found) > _MAX_TAGS:
        raise BadData(f"at most {_MAX_TAGS} entity tags can be listed")
    return AnyOf([IfPayloadVersion(int(tag[1])) for tag in found if tag])


def _header(request: Request, name: str) -> str | None:
    values = request.headers.getlist(name)
    return ", ".join(values).strip() if values else None


def all_of(conditions: list[Condition]) -> Any:
    """The conditions as one, as data; None if there are none."""
    match conditions:
        case []:
            return None
        case [only]:
            return only.to_data()
        case _:
            return AllOf(list(conditions)).to_data()
