"""A page of a REST API from its OpenAPI document: each operation, and the forms of what is sent and answered."""

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["rest_page"]


def rest_page(title: str, document: dict[str, Any]) -> str:
    """The whole page, in Markdown."""
    lines = [f"# {title}", "", "Made from the server's own `/openapi.json`. In words: [the REST API](rest.md).", ""]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", *_operation(operation), ""]
    lines += ["## Forms", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += [f"### {name}", "", *_form(schema), ""]
    return "\n".join(lines)


def _operation(operation: dict[str, Any]) -> Iterator[str]:
    yield operation.get("description", operation["summary"])
    yield ""
    for parameter in operation.get("parameters", ()):
        said = parameter.get("description", "")
        needed = ", required" if parameter.get("required") else ""
        kind = _kind(parameter["schema"])
        yield f"- `{parameter['name']}` in {parameter['in']} ({kind}{needed}){': ' if said else ''}{said}"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"- body, `{media}`: {_kind(content.get('schema', {}))}"
    for status, answer in operation["responses"].items():
        if status == "default":
            continue
        forms = [_kind(content.get("schema", {})) for content in answer.get("content", {}).values()]
        yield f"- {status}: {answer['description'].rstrip('.')}{', ' if forms else ''}{' or '.join(forms)}"


def _form(schema: dict[str, Any]) -> Iterator[str]:
    yield schema.get("description", "")
    yield ""
    if "properties" not in schema:
        yield _kind(schema)
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        said = field.get("description", "")
        needed = ", required" if name in required else ""
        yield f"- `{name}` ({_kind(field)}{needed}){': ' if said else ''}{said}"


def _kind(schema: dict[str, Any]) -> str:
    """A short word for a schema; a link for one that has a name."""
    match schema:
        case {"$ref": str(ref)}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{re.sub(r'[^a-z0-9_-]', '', name.lower())})"
        case {"anyOf": options} | {"oneOf": options} | {"allOf": options}:
            return " or ".join(dict.fromkeys(map(_kind, options)))
        case {"enum": words}:
            return ", ".join(f"`{word}`" for word in words)
        case {"const": word}:
            return f"`{word}`"
        case {"type": "array", "items": items}:
            return f"list of {_kind(items)}"
        case {"type": str(kind)}:
            return kind
        case _:
            return "anything"
