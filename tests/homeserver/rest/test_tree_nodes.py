"""The tree over HTTP: nodes, conditions, entity tags, pages; and that authority's rows are nobody's to write."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from batonpass import authority
from batonpass.authority.model.reserved_paths import RESERVED_ROOTS
from tests.budget import DEEP
from tests.homeserver.served import Home


async def put(home: Home, path: str, data: Any, **more: Any) -> Any:
    return await home.api.do("PUT", f"/v1/tree/{path}", {"data": data} | more)


async def test_what_is_put_is_read_with_its_versions(alpha: Home) -> None:
    made = await put(alpha, "jobs/7", {"n": 1})
    assert made == {"path": ["jobs", "7"], "existed": False, "previous": None, "payload_version": 1, "touched": None}
    again = await put(alpha, "jobs/7", {"n": 2})
    assert (again["existed"], again["previous"], again["payload_version"]) == (True, {"n": 1}, 2)
    for consistency in ("linearizable", "low_latency"):
        node = await alpha.api.get(f"/v1/tree/jobs/7?consistency={consistency}")
        assert (node["data"], node["payload_version"], node["child_list_length"]) == ({"n": 2}, 2, 0)
    parent = await alpha.api.get("/v1/tree/jobs")
    assert (parent["has_data"], parent["children"], parent["keep_while"]) == (False, ["7"], [])
    root = await alpha.api.get("/v1/tree")
    assert root["path"] == []
    assert set(root["children"]) == {"jobs", "lease_office", "office_marks", "servers"}


async def test_data_comes_back_as_it_was(alpha: Home) -> None:
    map_with_bytes = {"$map": [[{"$bytes": "AA=="}, 1]]}
    for data in (None, "x", 2**63 - 1, {"$bytes": "AP8="}, {"$float": "-inf"}, map_with_bytes, [{"$any": True}], 1.5):
        await put(alpha, "jobs/7", data)
        assert (await alpha.api.get("/v1/tree/jobs/7"))["data"] == data
    for wrong in ({"$map": [[1, 2]]}, {"$bytes": "no base64"}, 2**64):
        await alpha.api.refused(422, "bad_data", "PUT", "/v1/tree/jobs/7", {"data": wrong})


async def test_a_name_may_be_anything(alpha: Home) -> None:
    for name in ("a%2Fb", "a%0Ab", "%2A%2A", "%C3%A4", "%5Bx%5D", "%2E%2E%2E", "a%20b", "%00"):
        made = await put(alpha, f"jobs/{name}", 1)
        node = await alpha.api.get(f"/v1/tree/jobs/{name}")
        assert node["path"] == made["path"] == ["jobs", unquote(name)]


async def test_a_path_that_names_nothing_is_an_error(alpha: Home) -> None:
    for path in ("a//b", "a/", "x" * 256, "/".join("abcdefgh" * 5), "%FF"):
        await alpha.api.refused(422, "bad_path", "GET", f"/v1/tree/{path}")
        await alpha.api.refused(422, "bad_path", "PUT", f"/v1/tree/{path}", {"data": 1})


async def test_a_missing_node_is_named(alpha: Home) -> None:
    assert await alpha.api.refused(404, "node_not_found", "GET", "/v1/tree/jobs/7/x") == "jobs"
    answer = await alpha.api.call("GET", "/v1/tree/jobs/7/x")
    assert answer.json()["details"] == {"node_name": "jobs", "node_path": ["jobs"], "node_is_target": False}


async def test_the_tree_takes_the_client_token_for_reading_too(alpha: Home) -> None:
    for method, path in (("GET", "/v1/tree"), ("GET", "/v1/tree/servers"), ("GET", "/v1/watch?pattern=*")):
        await alpha.api.refused(401, "no_token", method, path, token=False)
    await alpha.api.refused(401, "no_token", "GET", "/v1/export", token=False)


async def test_a_query_that_is_misspelt_or_given_twice_changes_nothing(alpha: Home) -> None:
    await put(alpha, "jobs/7", 1)
    condition = '[["if_data_matches",2]]'
    for method, path, wrong in (
        ("DELETE", f"/v1/tree/jobs/7?condition={condition}", "condition"),
        ("DELETE", f"/v1/tree/jobs/7?conditions={condition}&conditions=[]", "conditions"),
        ("GET", "/v1/tree/jobs/7?consistancy=low_latency", "consistancy"),
        ("GET", "/v1/tree?limits=3", "limits"),
        ("GET", "/v1/cluster?x", "x"),
    ):
        assert await alpha.api.refused(422, "invalid_field", method, path) == wrong
    answer = await alpha.api.call("DELETE", f"/v1/tree/jobs/7?condition={condition}")
    assert answer.json()["message"].endswith("DELETE here takes conditions, full")
    assert (await alpha.api.get("/v1/tree/jobs/7"))["data"] == 1


async def test_all_that_requests_for_nodes_may_say_is_documented(alpha: Home) -> None:
    declared = {
        (method, path): {(parameter["in"], parameter["name"].lower()) for parameter in operation.get("parameters", [])}
        for path, operations in alpha.api.contract.paths.items()
        for method, operation in operations.items()
    }
    for (method, path), parameters in declared.items():
        assert {("path", name) for name in re.findall(r"{(\w+)}", path)} == {p for p in parameters if p[0] == "path"}, (
            method,
            path,
        )
    match, none_match = ("header", "if-match"), ("header", "if-none-match")
    node = "/v1/tree/{path}"
    assert {match, none_match} <= declared["put", node] & declared["delete", node]
    assert none_match in declared["get", node] & declared["get", "/v1/tree"]
    for path in (node, "/v1/tree"):
        responses = alpha.api.contract.paths[path]["get"]["responses"]
        assert all("ETag" in responses[status]["headers"] for status in ("200", "304"))
        assert set(responses["200"]["content"]) == {"application/json"}


# ---- conditions and entity tags ----


async def test_a_condition_that_fails_names_itself_and_the_node(alpha: Home) -> None:
    await put(alpha, "jobs/7", {"n": 1})
    body = {"data": 2, "conditions": [["if_data_matches", {"n": {"$bind": "x"}}, [["gt", {"$bind": "x"}, 3]]]]}
    answer = await alpha.api.call("PUT", "/v1/tree/jobs/7", body)
    error = answer.json()
    assert (answer.status_code, error["code"], error["value"]) == (409, "mismatching_node", "jobs/7")
    assert error["details"]["node_props"]["data"] == {"n": 1}
    assert error["details"]["condition"] == body["conditions"][0]  # type: ignore[index]  # a list, as said above
    body["conditions"][0][2][0][2] = 0  # type: ignore[index]  # as above
    assert (await alpha.api.do("PUT", "/v1/tree/jobs/7", body))["payload_version"] == 2
    await alpha.api.refused(422, "bad_data", "PUT", "/v1/tree/jobs/7", {"data": 1, "conditions": [["if_moon_full"]]})


async def test_an_entity_tag_lets_one_of_two_writers_through(alpha: Home) -> None:
    await put(alpha, "jobs/7", 1)
    tag = (await alpha.api.call("GET", "/v1/tree/jobs/7")).headers["etag"]
    assert (await alpha.api.call("GET", "/v1/tree/jobs/7", headers={"if-none-match": tag})).status_code == 304
    assert (await alpha.api.call("PUT", "/v1/tree/jobs/7", {"data": 2}, headers={"if-match": tag})).is_success
    await alpha.api.refused(
        412, "precondition_failed", "PUT", "/v1/tree/jobs/7", {"data": 3}, headers={"if-match": tag}
    )
    await alpha.api.refused(412, "precondition_failed", "DELETE", "/v1/tree/jobs/7", headers={"if-match": '"1"'})
    assert (await alpha.api.call("GET", "/v1/tree/jobs/7", headers={"if-none-match": tag})).status_code == 200
    assert (await alpha.api.call("DELETE", "/v1/tree/jobs/7", headers={"if-match": '"9", "2"'})).is_success


async def test_preconditions_are_those_of_http(alpha: Home) -> None:
    for headers, present, absent in (
        ({"if-match": "*"}, 200, 412),
        ({"if-none-match": "*"}, 412, 201),
        ({"if-match": 'W/"1"'}, 412, 412),
        ({"if-match": '"nonsense"'}, 412, 412),
        ({"if-none-match": '"1"'}, 412, 201),
        ({"if-none-match": '"2"'}, 200, 201),
    ):
        await alpha.api.do("DELETE", "/v1/tree/jobs")
        await put(alpha, "jobs/7", 1)
        for name, status in (("7", present), ("8", absent)):
            answer = await alpha.api.call("PUT", f"/v1/tree/jobs/{name}", {"data": 2}, headers=dict(headers))
            assert answer.status_code == status, headers


async def test_a_tag_of_an_earlier_life_is_not_taken_for_the_present_one(alpha: Home) -> None:
    await put(alpha, "jobs/7", "first")
    tag = (await alpha.api.call("GET", "/v1/tree/jobs/7")).headers["etag"]
    await alpha.api.do("DELETE", "/v1/tree/jobs/7")
    await put(alpha, "jobs/7", "second")
    answer = await alpha.api.call("GET", "/v1/tree/jobs/7", headers={"if-none-match": tag})
    assert (answer.status_code, answer.json()["data"]) == (200, "second")


async def test_creating_twice_is_refused_and_deleting_twice_is_not(alpha: Home) -> None:
    assert (await alpha.api.call("POST", "/v1/tree/jobs/7", {"data": 1})).status_code == 201
    await alpha.api.refused(409, "mismatching_node", "POST", "/v1/tree/jobs/7", {"data": 1})
    conditions = '[["if_data_matches", 2]]'
    await alpha.api.refused(409, "mismatching_node", "DELETE", f"/v1/tree/jobs/7?conditions={conditions}")
    assert await alpha.api.do("DELETE", "/v1/tree/jobs/7") == {"removed": 2, "touched": None}
    assert await alpha.api.do("DELETE", "/v1/tree/jobs/7") == {"removed": 0, "touched": None}
    await alpha.api.refused(422, "bad_data", "DELETE", "/v1/tree/jobs/7?conditions=x")


async def test_a_refused_deletion_tells_as_much_as_a_refused_put(alpha: Home) -> None:
    await put(alpha, "jobs/7", {"n": 1})
    condition = ["if_data_matches", 2]
    for name, status, code in (("7", 409, "mismatching_node"), ("8", 404, "node_not_found")):
        path = f"/v1/tree/jobs/{name}"
        for headers in ({}, {"if-match": '"9"'}):
            query = {"conditions": json.dumps([condition])}
            deleting = await alpha.api.call("DELETE", path, params=query, headers=dict(headers))
            putting = await alpha.api.call(
                "PUT", path, {"data": 3, "conditions": [condition, condition]}, headers=dict(headers)
            )
            expected = (412, "precondition_failed") if headers else (status, code)
            for answer in (deleting, putting):
                assert (answer.status_code, answer.json()["code"]) == expected
            for error in (first := deleting.json(), second := putting.json()):
                assert error["details"].pop("condition")[0] == "all_of"
            assert first == second


async def test_a_node_goes_with_what_it_is_kept_while(alpha: Home) -> None:
    exists = ["if_node_exists", True]
    body = {"data": 1, "keep_while": [["workers/w1", exists]]}
    await alpha.api.refused(409, "keep_while_conditions_not_met", "PUT", "/v1/tree/jobs/7", body)
    await put(alpha, "workers/w1", "here")
    await alpha.api.do("PUT", "/v1/tree/jobs/7", body)
    assert (await alpha.api.get("/v1/tree/jobs/7"))["keep_while"] == [[["workers", "w1"], exists]]
    gone = await alpha.api.do("DELETE", "/v1/tree/workers/w1?full=true")
    reasons = {"/".join(row["path"]): (row["reason"], row["after"]) for row in gone["touched"]}
    assert reasons["jobs/7"] == ("keep_while", None)
    await alpha.api.refused(404, "node_not_found", "GET", "/v1/tree/jobs/7")


# ---- many ----


async def test_a_subtree_of_any_size_can_be_deleted_unless_all_of_it_is_to_be_told(alpha: Home) -> None:
    for first in range(0, 10_001, 1000):
        puts = [{"op": "put", "path": ["jobs", str(n)], "data": n} for n in range(first, min(first + 1000, 10_001))]
        await alpha.api.do("POST", "/v1/tx", {"then": puts})
    await alpha.api.refused(422, "too_much", "DELETE", "/v1/tree/jobs?full=true")
    assert (await alpha.api.do("DELETE", "/v1/tree/jobs"))["removed"] == 10_002


async def test_pages_put_together_are_all_that_matches(alpha: Home) -> None:
    body = {"then": [{"op": "put", "path": f"jobs/{n:02}", "data": n} for n in range(25)]}
    await alpha.api.do("POST", "/v1/tx", body)
    found, after = [], "[]"
    while after != "null":
        answer = await alpha.api.call("GET", "/v1/tree", params={"pattern": "jobs/*", "limit": 7, "after": after})
        page = answer.json()
        found += [row["data"] for row in page["nodes"]]
        after = "null" if page["next"] is None else str(page["next"]).replace("'", '"')
    assert found == list(range(25))
    children: list[str] = []
    more: str | None = ""
    while more is not None:
        node = await alpha.api.get(f"/v1/tree/jobs?limit=7&children_after={more}")
        children += node["children"]
        more = node["next_child"]
    assert children == [f"{n:02}" for n in range(25)]
    assert (await alpha.api.get("/v1/tree/jobs?limit=0"))["children"] == []
    assert await alpha.api.refused(422, "invalid_field", "GET", "/v1/tree?pattern=jobs/*&limit=0") == 0


async def test_a_pattern_is_text_or_a_list_and_relative_to_the_path(alpha: Home) -> None:
    await put(alpha, "jobs/a", 1)
    await put(alpha, "jobs/b/c", 2)
    listed = '["b", ["all_of", [["if_has_data", true], "c"]]]'
    for pattern, expected in (("*", 2), ("**", 3), ("a*", 1), (listed, 1), ("nothing", 0)):
        answer = await alpha.api.call("GET", "/v1/tree/jobs", params={"pattern": pattern})
        assert len(answer.json()["nodes"]) == expected, pattern
    for pattern in ("[", '["x", 7]', "a\\", '[["if_name_matches", "regex", "("]]'):
        answer = await alpha.api.call("GET", "/v1/tree/jobs", params={"pattern": pattern})
        assert answer.status_code == 422, answer.text


# ---- authority's rows ----

OPERATIONS = ("put", "delete", "delete_many", "make", "clear_payload", "clear_many_payloads")


def test_the_reserved_roots_are_those_that_procedures_use() -> None:
    source = "".join(path.read_text() for path in sorted(Path(str(authority.__file__)).parent.rglob("*.py")))
    used = set(re.findall(r'(?:_or|put|delete|path =|_(?:QUEUE|ORDER): Final =) ?\(*"(\w+)",', source))
    named = set(re.findall(r"(?:_or|put|delete)\(\(([A-Z_]+),", source))
    used |= {root for name in named for root in re.findall(rf'^{name}: Final = "(\w+)"', source, re.MULTILINE)}
    assert used | {"players", "servers"} == RESERVED_ROOTS  # these are chosen by a variable
    assert '("players", MAX_PLAYERS) if' in source


async def test_rows_of_authority_are_read_and_never_written(alpha: Home) -> None:
    before = alpha.node.replica.store.digest()
    for number, root in enumerate(sorted(RESERVED_ROOTS)):
        await check_reserved(alpha, root, OPERATIONS if DEEP else OPERATIONS[number % 3 :: 3])
        await alpha.api.call("GET", f"/v1/tree/{root}")
    assert alpha.node.replica.store.digest() == before


async def check_reserved(home: Home, root: str, operations: tuple[str, ...]) -> None:
    async def refused(method: str, path: str, body: Any = None, **more: Any) -> Any:
        return await home.api.refused(403, "reserved_path", method, path, body, **more)

    assert await refused("PUT", f"/v1/tree/{root}/x", {"data": 1}) == root
    await refused("PUT", f"/v1/tree/{root}", {"data": 1})
    await refused("POST", f"/v1/tree/{root}/x", {"data": 1})
    await refused("DELETE", f"/v1/tree/{root}")
    absent = ["if_node_exists", False]
    for pattern in (
        [root],
        ["jobs", ["parent"], root],
        [["parent"], ["parent"], root, "x"],
        [["if_path_matches", None]],
    ):
        await refused("PUT", "/v1/tree/jobs/7", {"data": 1, "keep_while": [[pattern, absent]]})
    deep = {"op": "put_many", "path": "jobs/**", "data": 1}
    await refused("POST", "/v1/tx", {"then": [deep | {"keep_while": [[[["parent"]] * 9 + [root], absent]]}]})
    for path in ([root], ["jobs", ["root"], root, "x"], [["if_name_matches", None]], [["all_of", [root]]], []):
        for op in operations:
            operation = {"op": op, "path": path} | ({"data": 1} if op == "put" else {})
            await refused("POST", "/v1/tx", {"else": [operation]})
    head, end = '{"format":"batonpass tree","version":1,"pattern":[%s]}\n', '\n{"end":true,"nodes":%d}'
    row = '{"path":["%s"],"data":1}'
    await refused("POST", "/v1/import", content=head % '"x"' + row % root + end % 1)
    for wanted in (f'"{root}"', '["if_path_matches",null]'):
        await refused("POST", "/v1/import?mode=replace", content=head % wanted + end % 0)
