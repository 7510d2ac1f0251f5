"""Whatever is sent to any route, the answer is one that the OpenAPI document allows, and never a fault of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batonpass.actors.http.client import trusted_authorities
from tests.budget import examples
from tests.homeserver.openapi import Contract
from tests.homeserver.process import log_file, server_process, wait_ready
from tests.homeserver.served import DEADLINE_S, SECRET_NAMES, Player, homeserver_config, new_ports

# What may go wrong that is not the caller's fault: no quorum, no peer, no confirmation.
SERVER_SIDE: Final = {502, 503, 504}
NAMES: Final = ("alpha.ada", "alpha.h1", "alpha.ball-1", "beta.bob", "transfer-1", "nonce-nonce-nonce")


class Target:
    """The server under fire."""

    def __init__(self, client: httpx.Client, contract: Contract, secrets: list[str]) -> None:
        self.client = client
        self.contract = contract
        self.secrets = secrets
        self.operations = [
            (path, method, operation)
            for path, methods in sorted(contract.paths.items())
            for method, operation in sorted(methods.items())
        ]

    def check(self, answer: httpx.Response) -> None:
        assert answer.status_code < 500 or answer.status_code in SERVER_SIDE, answer.text
        self.contract.check(answer)
        assert "Traceback" not in answer.text
        for secret in self.secrets:
            assert secret not in answer.text
        if answer.is_error and answer.request.method != "HEAD":
            error = answer.json()
            assert error["code"]
            assert error["code"] == error["code"].lower()
            assert error["message"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory: Path = tmp_path_factory.mktemp("fuzz")
    with new_ports() as ports:
        config = homeserver_config(directory, ports)
        with server_process(config) as process:
            wait_ready(process, config)
            secrets = [(directory / name).read_text() for name in SECRET_NAMES]
            headers = {"authorization": f"Bearer {(directory / 'client').read_text()}"}
            with httpx.Client(
                base_url=config.rest.url,
                trust_env=False,
                verify=trusted_authorities(),
                timeout=DEADLINE_S,
                headers=headers,
            ) as client:
                contract = Contract(client.get("/openapi.json").json())
                ada = Player("alpha.ada")
                assert client.put("/v1/players/alpha.ada/keys", json={"keys": ada.keys}).is_success
                yield Target(client, contract, secrets)
            assert process.poll() is None, "the server did not survive"
            assert "Traceback" not in log_file(config).read_text()


texts = st.text(max_size=20) | st.sampled_from(NAMES)
garbage: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def values(contract: Contract, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema, more or less: right in form mostly, and now and then anything else."""
    schema = contract.resolve(schema)
    right: st.SearchStrategy[Any]
    match schema:
        case {"anyOf": options} | {"oneOf": options}:
            right = st.one_of([values(contract, option) for option in options])
        case {"enum": words}:
            right = st.sampled_from(words)
        case {"const": word}:
            right = st.just(word)
        case {"type": "string", "pattern": pattern}:
            right = st.sampled_from(NAMES) | st.from_regex(pattern, fullmatch=True)
        case {"type": "string"}:
            right = st.sampled_from(NAMES) | st.text(max_size=schema.get("maxLength", 20) % 100)
        case {"type": "integer"}:
            right = st.integers(schema.get("minimum", 0), schema.get("maximum", 9))
        case {"type": "boolean"}:
            right = st.booleans()
        case {"type": "null"}:
            right = st.none()
        case {"type": "array"}:
            right = st.lists(values(contract, schema["items"]), max_size=3)
        case {"type": "object", "properties": properties}:
            fields = {name: values(contract, inner) for name, inner in properties.items()}
            required = {name: fields.pop(name) for name in schema.get("required", ())}
            right = st.fixed_dictionaries(required, optional=fields)
        case _:
            right = st.dictionaries(texts, garbage, max_size=3)
    return st.one_of(right, right, right, right, right, right, right, garbage)


@st.composite
def requests(draw: st.DrawFn, target: Target) -> dict[str, Any]:
    """The arguments of a request to some route."""
    path, method, operation = draw(st.sampled_from(target.operations))
    query: dict[str, str] = {}
    for parameter in operation.get("parameters", ()):
        value = draw(values(target.contract, parameter["schema"]))
        text = value if isinstance(value, str) else json.dumps(value)
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", quote(text, safe="") or "-")
        elif parameter["required"] or draw(st.booleans()):
            query[parameter["name"]] = text
    request: dict[str, Any] = {"method": method, "url": path, "params": query, "headers": {}}
    if "requestBody" in operation:
        schema = next(iter(operation["requestBody"]["content"].values()))["schema"]
        body = draw(values(target.contract, schema))
        request["content"] = draw(st.just(json.dumps(body).encode()) | st.binary(max_size=40))
        request["headers"]["content-type"] = draw(st.sampled_from(["application/json"] * 9 + ["text/plain"]))
    if not draw(st.integers(0, 9)):
        request["headers"]["authorization"] = draw(st.sampled_from(["Bearer x", "", "Basic eA=="]))
    return request


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(300))
@given(data=st.data())
def test_every_answer_is_one_that_is_documented(target: Target, data: st.DataObject) -> None:
    request = data.draw(requests(target))
    with target.client.stream(**request) as answer:
        # A stream of events has no end; that it begins is all that is asked of it here.
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            target.contract.check(answer)
            return
        answer.read()
        target.check(answer)


@given(
    path=st.text(st.characters(codec="utf-8", exclude_characters="?#"), max_size=60),
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "QUERY"]),
)
def test_every_path_has_an_answer(target: Target, path: str, method: str) -> None:
    answer = target.client.request(method, "/" + quote(path, safe="/"))
    assert answer.status_code < 500, answer.text
    if method != "HEAD" and answer.is_error:
        assert set(answer.json()) == {"code", "message", "value", "details", "retry_after_s"}


@given(
    path=st.text(st.characters(codec="utf-8"), max_size=40),
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    pattern=st.none() | st.text('a*/\\[]."', max_size=12),
    tag=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12),
)
def test_every_path_of_the_tree_has_an_answer(
    target: Target, path: str, method: str, pattern: str | None, tag: str | None
) -> None:
    request: dict[str, Any] = {"headers": {} if tag is None else {"if-match": tag, "if-none-match": tag}}
    if method in ("PUT", "POST"):
        request["json"] = {"data": path}
    if method == "GET" and pattern is not None:
        request["params"] = {"pattern": pattern}
    target.check(target.client.request(method, "/v1/tree/" + quote(path, safe="/"), **request))
