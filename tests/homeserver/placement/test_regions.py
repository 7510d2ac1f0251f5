"""Entities go where the table of regions says, through a running homeserver and two simulation servers."""

import pytest

from tests.homeserver.drifters import DRIFTERS, Drifters
from tests.homeserver.rest.test_placement import Operator
from tests.homeserver.served import Home, until

S1, S2 = "alpha.s1", "alpha.s2"


@pytest.fixture
async def drifting(alpha: Home) -> Home:
    """Two servers of points that drift; what is passivated at once needs no second test."""
    for name in (S1, S2):
        await alpha.simserver(name, world=DRIFTERS, passivate_after_s=0.2)
    return alpha


async def put(home: Home, at: float, per_tick: float = 0.0) -> str:
    """An entity that is somewhere, and drifts; it is created on the first server."""
    count = home.node.store.entity_count()
    if not count:
        await home.player("alpha.ada")
    entity, params = f"alpha.drifter-{count}", {"at": at, "per_tick": per_tick}
    body = {"id": entity, "kind": "drifter", "spawner": "alpha.ada", "server": S1, "params": params}
    await home.api.do("POST", "/v1/entities", body)
    return entity


def servers_of(home: Home, *entities: str) -> list[str]:
    return [record.authority for record in map(home.node.store.entity, entities) if record is not None]


async def test_entities_follow_the_table_asleep_or_not(drifting: Home) -> None:
    operator = Operator(drifting)
    drifter, sleeper, nowhere = await put(drifting, 0.0, 0.1), await put(drifting, 7.0), await put(drifting, -1.0)
    await until(lambda: drifting.simservers[S1].holdings.passive == 2)
    # Without a table each stays where it was created.
    assert servers_of(drifting, drifter, sleeper, nowhere) == [S1] * 3
    body = {"axes": 1, "servers": [S1, S2], "low": [0], "high": [10], "hold_s": 0.1}
    await operator.do("PUT", "/v1/regions", body)
    await until(lambda: servers_of(drifting, drifter, sleeper, nowhere) == [S2, S2, S1])
    # The cell goes, and those that are in it follow; one that never was awake there, too.
    await operator.do("POST", "/v1/regions/c1/move", {"server": S1})
    await until(lambda: servers_of(drifting, drifter, sleeper, nowhere) == [S1, S1, S1])
    tables = {name: node.environment.regions.table for name, node in drifting.simservers.items()}
    assert tables == dict.fromkeys(tables, drifting.node.store.regions())
    await operator.do("DELETE", "/v1/regions")
    await until(lambda: all(node.environment.regions.table is None for node in drifting.simservers.values()))


async def test_servers_say_what_their_cells_cost_and_where_a_border_would_halve_it(drifting: Home) -> None:
    for at in (1.0, 2.0, 3.0, 4.0):
        await put(drifting, at, 1e-9)
    await Operator(drifting).do("PUT", "/v1/regions", {"axes": 1, "servers": [S1]})

    def is_told() -> bool:
        row = drifting.node.regions.cells().get("c")
        return row is not None and row.entities == 4 and row.low_ppm > 0

    await until(is_told)
    row = drifting.node.regions.cells()["c"]
    assert row.at is not None
    assert 1.0 < row.at < 4.0
    assert 0 < row.low_ppm < row.cost_ppm


async def test_a_world_sees_which_servers_take_entities(drifting: Home) -> None:
    worlds = [node.environment.world for node in drifting.simservers.values()]
    assert all(isinstance(world, Drifters) for world in worlds)
    await until(lambda: all(getattr(world, "takers") == (S1, S2) for world in worlds))  # noqa: B009 — of Drifters
    await Operator(drifting).do("POST", f"/v1/servers/{S2}/drain")
    await until(lambda: all(getattr(world, "takers") == (S1,) for world in worlds))  # noqa: B009 — of Drifters
