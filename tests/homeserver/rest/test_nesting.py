"""However deep what is sent is nested, the answer is documented: Python gives up reading JSON at about 990 levels, and
what it has read less deep could break whoever walks, writes or prints it from further up the stack.
"""

import json
from typing import Any, Final

from batonpass.actors.http.strict_json import MAX_JSON_LEVELS
from batonpass.crypto import jws
from batonpass.tree.data.payload import MAX_PAYLOAD_DEPTH
from tests.homeserver.rest.test_actors import operator
from tests.homeserver.served import Home, Player, of_one_server

# What is let in; what could still be walked, read but not walked, or neither read nor walked without the bound.
DEPTHS: Final = (MAX_JSON_LEVELS, 600, 886, 940, 20_000)
SHAPES: Final = (("[", "]"), ('{"a":', "}"), ('{"$map":[["a",', "]]}"), ('["not_of",', "]"))
TOO_DEEP: Final = ("bad_json", "body_too_long", "too_many_values")
JSON: Final = {"content-type": "application/json"}
LINES: Final = {"content-type": "application/x-ndjson"}
CLIENT_ERRORS: Final = range(400, 500)
_PLAIN: Final = str.maketrans("", "", "{}")


def nested(levels: int, shape: tuple[str, str] = SHAPES[0]) -> str:
    """JSON that is nested just so deep, more or less."""
    times = levels // sum(part in "[{" for part in shape[0])
    return shape[0] * times + "1" + shape[1] * times


def bodies(schema: dict[str, Any], deep: str) -> list[str]:
    """Something deep instead of a body of this schema, and instead of each of its members."""
    return [deep, *(f"{{{json.dumps(name)}:{deep}}}" for name in schema.get("properties", {}))]


def deep_proof(player: Player, levels: int) -> str:
    """A statement that only its depth is wrong with: our own writer would not make it."""
    header = {"alg": "ES256", "typ": "batonpass-statement", "kid": player.identity.public.signing_kid}
    payload = f'{{"action":"ownership","deep":{nested(levels)}}}'.encode()
    return jws.sign(header | {"iss": player.name}, payload, player.identity.signing)


@of_one_server([(levels,) for levels in DEPTHS])
async def test_deep_bodies_are_refused_by_every_route(alpha: Home, levels: int) -> None:
    contract, shape = alpha.api.contract, SHAPES[DEPTHS.index(levels) % len(SHAPES)]
    for path, methods in contract.paths.items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            as_whom = JSON | (operator(alpha) if {"Operator": []} in operation.get("security", []) else {})
            schema = contract.resolve(next(iter(operation["requestBody"]["content"].values()))["schema"])
            for body in bodies(schema, nested(levels, shape)):
                answer = await alpha.api.call(method, path.translate(_PLAIN), content=body.encode(), headers=as_whom)
                assert answer.status_code in CLIENT_ERRORS, (method, path, body[:80])
                # Other members may be wrong as well, but nobody looks at any: an import, at none but its lines.
                too_deep = levels > MAX_JSON_LEVELS and path != "/v1/import"
                assert not too_deep or answer.json()["code"] in TOO_DEEP, (method, path, body[:80])


async def test_deep_conditions_patterns_and_lines_are_refused(alpha: Home) -> None:
    for levels in DEPTHS:
        for shape in SHAPES:
            deep = nested(min(levels, 2_000), shape)
            for query in ({"pattern": f"[{deep}]"}, {"after": deep, "pattern": "*"}):
                answer = await alpha.api.call("GET", "/v1/tree", params=query)
                assert answer.status_code in CLIENT_ERRORS, query
            answer = await alpha.api.call("DELETE", "/v1/tree/a", params={"conditions": deep})
            assert answer.status_code in CLIENT_ERRORS
            answer = await alpha.api.call("POST", "/v1/import", content=nested(levels, shape).encode(), headers=LINES)
            assert answer.status_code in CLIENT_ERRORS


async def test_a_deep_proof_is_refused(world: Home) -> None:
    ada = await world.player("alpha.ada")
    await world.entity("alpha.ball-1", ada, "alpha.s1")
    for levels in DEPTHS:
        body = {"requester": ada.name, "transfer_id": "transfer-1", "proof": deep_proof(ada, min(levels, 2_000))}
        await world.api.refused(403, "bad_proof", "POST", "/v1/entities/alpha.ball-1/ownership", body)


async def test_the_deepest_data_that_a_node_can_have_is_told_by_every_route(alpha: Home) -> None:
    data = json.loads(nested(3 * (MAX_PAYLOAD_DEPTH - 1), ('{"$map":[["$map",', "]]}")))
    await alpha.api.do("PUT", "/v1/tree/deep", {"data": data})
    assert (await alpha.api.get("/v1/tree/deep"))["data"] == data
    assert (await alpha.api.get("/v1/tree", params={"pattern": "deep"}))["nodes"][0]["data"] == data
    export = (await alpha.api.call("GET", "/v1/export")).content
    assert (await alpha.api.call("POST", "/v1/import", content=export, headers=LINES)).is_success
    operations = [{"op": "put", "path": "deep", "data": data, "full": True}, {"op": "get", "path": "deep"}]
    answer = await alpha.api.do("POST", "/v1/tx", {"then": operations})
    assert answer["results"][1] == data
    assert (await alpha.api.do("PUT", "/v1/tree/deep", {"data": data}, params={"full": "true"}))["previous"] == data


async def test_an_integer_that_is_too_long_is_named(alpha: Home) -> None:
    body = b'{"kind":' + b"1" * 5_000 + b"}"
    answer = await alpha.api.call("post", "/v1/entities", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_json")
    assert "an integer has more than 4,300 digits" in answer.json()["message"]
