"""Regions over REST: what an operator sees and changes, and what is refused."""

from typing import Any

from tests.homeserver.rest.test_placement import Operator
from tests.homeserver.served import Home


def servers_of(view: dict[str, Any]) -> dict[str, str]:
    return {cell["cell"]: cell["server"] for cell in view["cells"]}


async def test_an_operator_begins_changes_and_ends_the_table(world: Home) -> None:
    operator, path = Operator(world), "/v1/regions"
    nothing = {"revision": 0, "axes": 0, "margin": 0.0, "hold_s": 0.0, "cells": []}
    assert await world.api.get(path) == {**nothing, "leads": True, "balancing": False, "counts": {}}
    body = {"axes": 2, "servers": ["alpha.s1", "alpha.s2"], "low": [0, 0], "high": [10, 4], "margin": 0.5}
    begun = await operator.do("PUT", path, body)
    assert (begun["revision"], begun["margin"], begun["hold_s"]) == (1, 0.5, 1.0)
    silent = {"entities": None, "tick_fraction": None}
    assert begun["cells"] == [
        {"cell": "c0", "server": "alpha.s1", "low": [None, None], "high": [5.0, None], **silent},
        {"cell": "c1", "server": "alpha.s2", "low": [5.0, None], "high": [None, None], **silent},
    ]
    await operator.refused(409, "stale_revision", "PUT", path, body)
    await operator.refused(409, "stale_revision", "POST", f"{path}/c1/split", {"axis": 1, "at": 2, "revision": 7})
    view = await operator.do("POST", f"{path}/c1/split", {"axis": 1, "at": 2, "high": "alpha.s1", "revision": 1})
    assert servers_of(view) == {"c0": "alpha.s1", "c10": "alpha.s2", "c11": "alpha.s1"}
    view = await operator.do("POST", f"{path}/c10/move", {"server": "alpha.s1"})
    view = await operator.do("POST", f"{path}/c1/merge", {})
    assert servers_of(view) == {"c0": "alpha.s1", "c1": "alpha.s1"}
    assert await world.api.get(path) == view
    for _ in range(2):
        assert (await operator.do("DELETE", path))["cells"] == []


async def test_what_makes_no_sense_is_refused(world: Home) -> None:
    operator, path = Operator(world), "/v1/regions"
    two = {"axes": 2, "servers": ["alpha.s1", "alpha.s2"]}
    for wrong in (
        two,
        {**two, "low": [0], "high": [1]},
        {**two, "low": [1, 1], "high": [1, 1]},
        {**two, "axes": 4},
        {"axes": 1, "servers": []},
        {"axes": 1, "servers": ["alpha.s1"], "margin": -1},
    ):
        await operator.refused(422, "invalid_field", "PUT", path, wrong)
    await operator.refused(422, "unknown_target", "PUT", path, {"axes": 1, "servers": ["alpha.nobody"]})
    await operator.refused(404, "not_found", "POST", f"{path}/c/move", {"server": "alpha.s1"})
    await operator.do("PUT", path, {"axes": 1, "servers": ["alpha.s1"]})
    await operator.refused(422, "outside_cell", "POST", f"{path}/c/split", {"axis": 1, "at": 0})
    await operator.refused(404, "not_found", "POST", f"{path}/c0/merge", {})
    await operator.refused(422, "invalid_field", "POST", f"{path}/d/move", {"server": "alpha.s1"})
    await world.api.refused(401, "no_token", "PUT", path, two, token=False)
    await operator.do("DELETE", path)
