"""Whether an answer is exactly what the OpenAPI document says: the status, the type, every field, and no field more.

Covers the part of JSON Schema that pydantic writes; a keyword that is not known here fails loudly.
"""

import re
from typing import Any, Final

import httpx

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_STREAMS: Final = {"text/event-stream", "application/x-ndjson", "application/openmetrics-text"}
_TEXT: Final = {"type": "string"}
_WORDS: Final = {"title", "description", "default", "deprecated", "propertyNames"}


class Undocumented(AssertionError):
    """An answer that the document does not allow; the text says where and why."""


class Contract:
    """The OpenAPI document of a server, as a judge of its answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.paths: dict[str, dict[str, Any]] = document["paths"]
        self._routes = [(re.compile(_expression(path)), path) for path in self.paths]

    def check(self, answer: httpx.Response) -> None:
        """Raise `Undocumented` unless the answer is as documented."""
        request = answer.request
        path = request.url.raw_path.decode().partition("?")[0]
        operation = self._operation(path, request.method)
        media = answer.headers.get("content-type", "").partition(";")[0]
        if operation is None:
            schema: dict[str, Any] | None = {"$ref": "#/components/schemas/ErrorBody"}
            if answer.is_success:
                raise Undocumented(f"{request.method} {path} is not documented and answers {answer.status_code}")
        else:
            schema = _schema_of(operation, answer.status_code, media)
        where = f"{request.method} {path} → {answer.status_code}"
        if schema is None:
            if answer.content:
                raise Undocumented(f"{where}: a body where none is documented")
            return
        if request.method == "HEAD":
            return
        if media in _STREAMS or (schema == _TEXT and media != "application/json"):
            return  # its lines or events are the business of those who read them
        if answer.headers.get("content-type") != "application/json":
            raise Undocumented(f"{where}: content type {answer.headers.get('content-type')}")
        self._match(answer.json(), schema, where)

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema itself, or what it refers to."""
        if "$ref" in schema:
            found: dict[str, Any] = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            return found
        return schema

    def _operation(self, path: str, method: str) -> dict[str, Any] | None:
        for pattern, template in self._routes:
            if pattern.fullmatch(path):
                found: dict[str, Any] | None = self.paths[template].get("get" if method == "HEAD" else method.lower())
                if found is not None:
                    return found
        return None

    def _match(self, value: Any, schema: dict[str, Any], where: str) -> None:
        schema = self.resolve(schema)
        if "anyOf" in schema:
            problems = []
            for option in schema["anyOf"]:
                try:
                    self._match(value, option, where)
                except Undocumented as problem:
                    problems.append(str(problem))
                else:
                    return
            raise Undocumented("; ".join(problems))
        # The type first: what the other keywords say only makes sense of a value of that type.
        for word, expected in sorted(schema.items(), key=lambda item: item[0] != "type"):
            if word not in _WORDS and not self._holds(word, expected, value, schema, where):
                raise Undocumented(f"{where}: {value!r:.200} is not {word} {expected!r:.200}")

    def _holds(self, word: str, expected: Any, value: Any, schema: dict[str, Any], where: str) -> bool:
        match word:
            case "type":
                wrong_bool = isinstance(value, bool) and expected in ("integer", "number")
                return isinstance(value, _TYPES[expected]) and not wrong_bool
            case "enum":
                return value in expected
            case "const":
                return bool(value == expected)
            case "pattern":
                return re.search(expected, value) is not None
            case "items":
                for number, item in enumerate(value):
                    self._match(item, expected, f"{where}[{number}]")
                return True
            case "properties" | "additionalProperties" | "required":
                return self._object(word, expected, value, schema, where)
            case _:
                raise AssertionError(f"teach tests.homeserver.openapi the keyword {word!r}")

    def _object(self, word: str, expected: Any, value: Any, schema: dict[str, Any], where: str) -> bool:
        properties = schema.get("properties", {})
        match word:
            case "properties":
                for name, inner in expected.items():
                    if name not in value:
                        # Answers are whole: also what has a default is always there.
                        raise Undocumented(f"{where}: {name} is missing")
                    self._match(value[name], inner, f"{where}.{name}")
                return "additionalProperties" in schema or set(value) <= set(properties)
            case "required":
                return set(expected) <= set(value)
            case _ if isinstance(expected, dict):
                for name in set(value) - set(properties):
                    self._match(value[name], expected, f"{where}.{name}")
                return True
            case _:
                return bool(expected) or set(value) <= set(properties)


def _expression(path: str) -> str:
    """The paths of a route. In the tree, a path is any number of names with slashes between them."""
    return re.sub(r"\{\w+\}", "[^/]+", path.replace("{path}", r".*"))


def _schema_of(operation: dict[str, Any], status: int, media: str) -> dict[str, Any] | None:
    responses = operation["responses"]
    documented = responses.get(str(status))
    if documented is None:
        if 200 <= status < 400:
            raise Undocumented(f"{operation['operationId']} answers {status}, which is not documented")
        documented = responses["default"]
    content = documented.get("content")
    if not content:
        return None
    if media not in content and "application/json" not in content:
        raise Undocumented(f"{operation['operationId']} answers {media}, which is not documented")
    schema: dict[str, Any] = content.get(media, content.get("application/json"))["schema"]
    return schema
