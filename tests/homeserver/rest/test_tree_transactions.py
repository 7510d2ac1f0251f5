"""Several operations as one, and parts of the tree out and in."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from batonpass.homeserver.rest import transport
from tests.homeserver.served import Home

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"op": "put", "path": "a"}, "bad_data"),
    ({"op": "delete", "path": "a", "data": 1}, "bad_data"),
    ({"op": "compare_and_swap", "path": "a", "data": 1}, "bad_data"),
    ({"op": "put", "path": "a/*", "data": 1}, "possibly_matching_many_nodes"),
    ({"op": "put", "path": "a//b", "data": 1}, "bad_path"),
    ({"op": "put", "path": "a\\", "data": 1}, "bad_pattern"),
    ({"op": "put", "path": [["if_name_matches", "regex", "x" * 600]], "data": 1}, "bad_pattern"),
    ({"op": "put", "path": "a", "data": 1, "keep_while": [["b"]]}, "bad_data"),
    ({"op": "put", "path": "a", "data": 1, "keep_while": [["b", ["if_node_exists", False]]] * 65}, "bad_data"),
    ({"op": "put", "path": "a", "data": 2**70}, "bad_data"),
    ({"op": "run", "path": "a"}, "invalid_field"),
    ({"op": "put", "path": "a", "data": 1, "procedure": "x"}, "invalid_field"),
]
HALVES = [
    "",
    "nonsense",
    '{"format":"batonpass tree","version":1,"pattern":[]}',
    '{"format":"batonpass tree","version":2,"pattern":[]}\n{"end":true,"nodes":0}',
    '{"format":"batonpass tree","version":1,"pattern":[]}\n{"end":true,"nodes":1}',
    '{"format":"batonpass tree","version":1,"pattern":[]}\n{"path":["a"],"procedure":"p"}\n{"end":true,"nodes":1}',
    '{"format":"batonpass tree","version":1,"pattern":[]}\n{"path":[""],"data":1}\n{"end":true,"nodes":1}',
]


async def tx(home: Home, **branches: Any) -> Any:
    return await home.api.do("POST", "/v1/tx", branches)


async def test_one_branch_is_applied_as_a_whole(alpha: Home) -> None:
    missing = {"path": "jobs/7", "condition": ["if_node_exists", False]}
    then = [{"op": "put", "path": "jobs/7", "data": 1}, {"op": "count", "path": "jobs/**"}]
    body = {"if": [missing], "then": then, "else": [{"op": "get", "path": "jobs/7"}]}
    first = await alpha.api.do("POST", "/v1/tx", body)
    assert first == {"succeeded": True, "results": [{"existed": False, "previous": None, "payload_version": 1}, 1]}
    assert await alpha.api.do("POST", "/v1/tx", body) == {"succeeded": False, "results": [1]}
    failing = {"then": [{"op": "put", "path": "jobs/8", "data": 1}, {"op": "create", "path": "jobs/7", "data": 1}]}
    await alpha.api.refused(409, "mismatching_node", "POST", "/v1/tx", failing)
    await alpha.api.refused(404, "node_not_found", "GET", "/v1/tree/jobs/8")


async def test_what_only_reads_takes_no_place_in_the_log(alpha: Home) -> None:
    await tx(alpha, then=[{"op": "put", "path": "jobs/7", "data": 1}])
    before = alpha.node.replica.applied_index
    reading = [{"op": op, "path": "jobs/7"} for op in ("get", "view", "exists", "has_data", "count", "children")]
    found = await tx(alpha, **{"if": [{"path": "jobs", "condition": ["if_node_exists", True]}], "then": reading})
    assert found["results"][0] == 1
    assert (await tx(alpha, **{"if": [{"path": "no", "condition": ["if_node_exists", True]}]}))["succeeded"] is False
    await alpha.api.refused(404, "node_not_found", "POST", "/v1/tx", {"then": [{"op": "get", "path": "no"}]})
    assert alpha.node.replica.applied_index == before
    await tx(alpha, then=reading, **{"else": [{"op": "delete", "path": "jobs"}]})
    assert alpha.node.replica.applied_index == before + 1


async def test_every_operation_has_its_result(alpha: Home) -> None:
    keep = [[[["this"]], ["if_node_exists", True]]]
    results = await tx(
        alpha,
        then=[
            {"op": "put", "path": "a/x", "data": {"$bytes": "AA=="}, "full": True, "keep_while": keep},
            {"op": "compare_and_swap", "path": "a/x", "expected": {"$bytes": "AA=="}, "data": 2},
            {"op": "update", "path": "a/x", "data": 3},
            {"op": "make", "path": "a/y"},
            {"op": "put_many", "path": "a/*/z", "data": 0},
            {"op": "update_many", "path": "a/*/z", "data": 1},
            {"op": "get_many", "path": "a/**"},
            {"op": "children", "path": "a"},
            {"op": "exists", "path": "a/*"},
            {"op": "has_data", "path": "a/*"},
            {"op": "view", "path": "a/nothing"},
            {"op": "clear_payload", "path": "a/x"},
            {"op": "clear_many_payloads", "path": "a/*/z"},
            {"op": "delete_many", "path": "a/*/z"},
            {"op": "delete", "path": "a", "condition": ["if_node_exists", True]},
        ],
    )
    found = results["results"]
    assert results["succeeded"] is True
    assert found[0]["touched"][0]["after"]["data"] == {"$bytes": "AA=="}
    assert (found[1]["previous"], found[2]["previous"]) == ({"$bytes": "AA=="}, 2)
    assert [row["path"] for row in found[6]] == [["a", "x"], ["a", "x", "z"], ["a", "y"], ["a", "y", "z"]]
    assert found[7:11] == [["x", "y"], True, False, None]
    assert found[14] >= 1


async def test_an_operation_that_means_nothing_is_refused(alpha: Home) -> None:
    for operation, code in WRONG:
        await alpha.api.refused(422, code, "POST", "/v1/tx", {"then": [operation]})


async def test_what_is_no_json_is_not_taken_for_any(alpha: Home) -> None:
    headers = {"content-type": "application/json"}
    for data in ("NaN", "Infinity", "[-Infinity]", '{"a": 1, "b": 2, "a": 3}', "{"):
        body = f'{{"data": {data}}}'
        await alpha.api.refused(400, "bad_json", "PUT", "/v1/tree/json", content=body, headers=headers)
        path = "/v1/tree/json?conditions=" + quote(f'[["if_data_matches", {data}]]')
        await alpha.api.refused(422, "bad_data", "DELETE", path)
        head = '{"format":"batonpass tree","version":1,"pattern":["json"]}'
        lines = f'{head}\n{{"path":["json"],"data":{data}}}\n{{"end":true,"nodes":1}}'
        await alpha.api.refused(422, "bad_data", "POST", "/v1/import", content=lines)
    twice = '{"then": [], "then": [{"op": "put", "path": "json", "data": 1}]}'
    answer = await alpha.api.call("POST", "/v1/tx", content=twice, headers=headers)
    assert "the key 'then' twice" in answer.json()["message"]
    await alpha.api.refused(404, "node_not_found", "GET", "/v1/tree/json")


async def test_more_than_the_log_takes_is_refused(alpha: Home) -> None:
    await alpha.api.refused(422, "unfit_data", "PUT", "/v1/tree/a", {"data": "x" * 1_100_000})
    await alpha.api.refused(413, "body_too_long", "PUT", "/v1/tree/a", {"data": "x" * 2_100_000})
    operations = [{"op": "put", "path": "a", "data": 1}] * 1025
    await alpha.api.refused(422, "invalid_field", "POST", "/v1/tx", {"then": operations})


# ---- out and in ----


async def test_what_is_exported_can_be_imported_elsewhere_and_is_the_same(alpha: Home) -> None:
    exists = ["if_node_exists", True]
    await alpha.api.do("PUT", "/v1/tree/jobs/b", {"data": {"$bytes": "AA=="}})
    await alpha.api.do("PUT", "/v1/tree/jobs/a", {"data": "ä\n", "keep_while": [["jobs/b", exists]]})
    exported = (await alpha.api.call("GET", "/v1/export?pattern=jobs/**")).content
    head, *rows, end = map(json.loads, exported.splitlines())
    assert (head["format"], head["version"]) == ("batonpass tree", 1)
    assert rows == [
        {"path": ["jobs", "a"], "data": "ä\n", "keep_while": [[["jobs", "b"], exists]]},
        {"path": ["jobs", "b"], "data": {"$bytes": "AA=="}},
    ]
    assert end == {"end": True, "nodes": 2}
    before = await alpha.api.get("/v1/tree/jobs?pattern=**")
    await alpha.api.do("DELETE", "/v1/tree/jobs")
    assert await alpha.api.do("POST", "/v1/import", content=exported) == {"nodes": 2, "removed": 0}
    assert (await alpha.api.get("/v1/tree/jobs?pattern=**"))["nodes"] == before["nodes"]
    await alpha.api.do("PUT", "/v1/tree/jobs/c", {"data": 1})
    assert await alpha.api.do("POST", "/v1/import?mode=replace", content=exported) == {"nodes": 2, "removed": 1}


async def test_all_is_exported_but_the_rows_of_authority(alpha: Home) -> None:
    await alpha.api.do("PUT", "/v1/tree/jobs/a", {"data": 1})

    async def roots(query: str) -> set[str]:
        lines = (await alpha.api.call("GET", f"/v1/export{query}")).text.splitlines()
        return {json.loads(line)["path"][0] for line in lines[1:-1]}

    assert await roots("") == {"jobs"}
    assert await roots("?reserved=true") == {"jobs", "lease_office", "office_marks", "servers"}


async def test_half_an_export_is_not_imported(alpha: Home) -> None:
    for lines in HALVES:
        await alpha.api.refused(422, "bad_data", "POST", "/v1/import", content=lines)


async def test_exports_are_bounded(alpha: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_EXPORTED_NODES", 1)
    await tx(alpha, then=[{"op": "put", "path": f"jobs/{n}", "data": n} for n in range(3)])
    await alpha.api.refused(422, "too_much", "GET", "/v1/export")
    monkeypatch.setattr(transport, "MAX_EXPORTS", 0)
    await alpha.api.refused(503, "too_many_exports", "GET", "/v1/export?pattern=none")
