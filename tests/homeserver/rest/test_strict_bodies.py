"""Nothing in a request is taken for what it is not: `"1"`, `1.0` and `true` for 1, a line break for a name."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from pydantic import BaseModel, ValidationError

from batonpass.actors.http.app import RequestBody
from batonpass.homeserver.rest import api
from batonpass.simserver.server import http_status
from tests.homeserver.served import Home

# With these, the bodies of all routes are imported.
MODULES: Final = (api, http_status)

# Which JSON type a field is documented as, and what is not of it.
NOT_OF: Final[dict[str, tuple[Any, ...]]] = {
    "integer": ("1", "", 1.0, True, [1], {"1": 1}),
    "number": ("1", "1e3", True, [1]),
    "boolean": ("true", "yes", "", 1, 0, 1.0),
    "string": (1, 1.5, True, [], {}),
    "array": ({}, "ab", 1, True),
    "object": ([], "{}", 1, True),
}
# Read as what they are: secrets, signatures, digests, patterns of the tree, the reason in a signed statement.
OPAQUE: Final = {"proof", "nonce", "kid", "path", "reason"}


def bodies(base: type[RequestBody] = RequestBody) -> Iterator[type[RequestBody]]:
    for found in base.__subclasses__():
        yield found
        yield from bodies(found)


ALL: Final = sorted(bodies(), key=lambda body: f"{body.__module__}.{body.__name__}")


def fields(body: type[BaseModel]) -> Iterator[tuple[str, dict[str, Any], set[str]]]:
    """Name, schema and JSON types of each field; fields that take anything are left out."""
    document = body.model_json_schema()
    # A body of one of several kinds says of each kind what it takes.
    kinds = document.get("oneOf", [document])
    for name, schema in {name: schema for kind in kinds for name, schema in kind["properties"].items()}.items():
        options = [
            document["$defs"][option["$ref"].rpartition("/")[2]] if "$ref" in option else option
            for option in schema.get("anyOf", [schema])
        ]
        # A choice of words has no type of its own where it is one word.
        types = {option.get("type", "string" if "const" in option else "") for option in options}
        if "" not in types:
            yield name, {} if len(options) > 2 else options[0], types


def is_refused(body: type[BaseModel], name: str, value: Any) -> bool:
    """Whether this field is refused for this value; the others are missing, which does not matter here."""
    try:
        body.model_validate({name: value})
    except ValidationError as error:
        return any(problem["loc"][0] == name for problem in error.errors())
    return False


@pytest.mark.parametrize("body", ALL, ids=lambda body: f"{body.__module__}.{body.__name__}")
def test_a_field_takes_no_other_type(body: type[RequestBody]) -> None:
    for name, _, types in fields(body):
        for kind, values in NOT_OF.items():
            # What is no integer may well be a number.
            if kind not in types and not (kind == "integer" and "number" in types):
                continue
            for value in values:
                fits = {
                    "string": isinstance(value, str),
                    "array": isinstance(value, list),
                    "number": isinstance(value, int | float) and not isinstance(value, bool),
                }
                if not any(fits.get(other, False) for other in types - {kind}):
                    assert is_refused(body, name, value), (body.__name__, name, value)


@pytest.mark.parametrize("body", ALL, ids=lambda body: f"{body.__module__}.{body.__name__}")
def test_no_text_that_people_read_has_control_characters(body: type[RequestBody]) -> None:
    for name, schema, types in fields(body):
        if "string" not in types or "enum" in schema or "const" in schema or name in OPAQUE:
            continue
        for text in ("\0", "a\nb", "alpha.ada\n", "\x1b[2J", "\x7f", "a\u2028b"):
            assert is_refused(body, name, text), (body.__name__, name, text)


async def test_every_body_and_every_number_in_a_query_is_strict(alpha: Home) -> None:
    strict = {body.__name__ for body in ALL}
    for path, methods in alpha.api.contract.paths.items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            for media in content.values():
                if "$ref" in media["schema"]:
                    assert media["schema"]["$ref"].rpartition("/")[2] in strict, (method, path)
    strange = {"id": "alpha.b", "kind": "\0", "spawner": "alpha.ada", "server": "alpha.s1"}
    assert await alpha.api.refused(422, "invalid_field", "POST", "/v1/entities", strange) == "\0"
    for text in ("1.0", "true", "%201", "1_0", "+1", "", "0x1", "\u0661", "1e0", "9" * 30):
        for route in ("/v1/players/alpha.ada/asks?limit=", "/v1/actors?after=", "/v1/tree?limit="):
            await alpha.api.refused(422, "invalid_field", "GET", route + text)
    for text in ("1_0", "%201", "inf", "nan", "+1", "", "0x1", ".5", "5.", "\u0661", "1e400"):
        for route in ("/v1/players/alpha.ada/asks?wait_s=", "/v1/watch?pattern=a&heartbeat_s="):
            await alpha.api.refused(422, "invalid_field", "GET", route + text)
