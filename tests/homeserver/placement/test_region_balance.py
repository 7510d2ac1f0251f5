"""By what servers report, the homeserver that leads changes the table of regions; and what goes with a server."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import trio

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.model.regions import RegionTable
from batonpass.authority.wire.placement import Load
from batonpass.authority.wire.regions import CellRow, RegionReport
from batonpass.crypto.keys import Identity
from batonpass.homeserver.config import PlacementSettings
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports, served, until

S1, S2 = "alpha.s1", "alpha.s2"


@pytest.fixture
async def balancing(tmp_path: Path) -> AsyncIterator[Home]:
    """An instance that balances, with two servers that are nothing but what the tests say in their names."""
    with new_ports() as ports:
        settings = PlacementSettings(balance=True, hot_for_s=0.0, min_hold_s=1.0)
        async with served(homeserver_config(tmp_path, ports).model_copy(update={"placement": settings})) as home:
            for name in (S1, S2):
                row = DirectoryRow(name=name, role=Role.SIMSERVER, keys=Identity.generate().public.to_jwks())
                await home.node.store.submit("directory.register", row=row.to_data())
            yield home


def say(home: Home, load_ppm: Mapping[str, int], *cells: CellRow) -> None:
    """Servers report: how much they have to do, and the first what its cells cost."""
    for name, tick_ppm in load_ppm.items():
        load = Load(tick_ppm=tick_ppm, entities=100, leaving=0, inputs_per_s=0, bytes_per_s=0)
        home.node.balancer.reported(name, load, [])
    table = home.node.store.regions()
    assert table is not None
    home.node.regions.reported(S1, RegionReport(knows=table.digest, cells=list(cells)))


async def reported_until_changed(home: Home, load_ppm: Mapping[str, int], *cells: CellRow) -> RegionTable:
    """The table after its next change, while the same is reported again and again."""
    before = home.node.store.regions()
    with trio.fail_after(DEADLINE_S):
        while (table := home.node.store.regions()) == before or table is None:
            say(home, load_ppm, *cells)
            await trio.sleep(0.02)
    return table


def servers_of(table: RegionTable) -> dict[str, str]:
    return {cell.name: cell.server for cell in table.cells}


async def test_a_hot_server_gives_up_half_of_its_space_to_a_cool_one(balancing: Home) -> None:
    await balancing.node.store.submit("regions.set", table=RegionTable(1, 1, S1).to_data(), revision=0)
    row = CellRow(cell="c", entities=100, cost_ppm=900_000, here_ms=60_000, axis=0, at=7.5, low_ppm=400_000)
    table = await reported_until_changed(balancing, {S1: 900_000, S2: 10_000}, row)
    assert servers_of(table) == {"c0": S1, "c1": S2}
    assert table.cell("c0").high == (7.5,)
    await until(lambda: balancing.node.region_balance.counts == {"cut": 1})
    # What has gone is counted where it goes, so the next rounds do nothing, however hot the first seems still.
    for _ in range(3):
        say(balancing, {S1: 900_000, S2: 10_000}, row)
        await balancing.node.region_balance.round()
    assert balancing.node.store.regions() == table


async def test_quiet_halves_are_joined_and_while_balance_is_held_still_nothing_happens(balancing: Home) -> None:
    store, rows = (
        balancing.node.store,
        [CellRow(cell=name, entities=1, cost_ppm=9, here_ms=60_000) for name in ("c0", "c1")],
    )
    await store.submit("regions.set", table=RegionTable(1, 1, S1).split("c", 0, 5.0).to_data(), revision=0)
    await store.submit("placement.pause", now_s=1.0)
    say(balancing, {S1: 900, S2: 10}, *rows)
    await balancing.node.region_balance.round()
    assert len(servers_of(store.regions() or RegionTable(1, 1, S1))) == 2
    await store.submit("placement.resume")
    assert servers_of(await reported_until_changed(balancing, {S1: 900, S2: 10}, *rows)) == {"c": S1}


async def test_cells_of_a_server_that_is_drained_or_removed_go_to_others_also_without_balance(balancing: Home) -> None:
    store = balancing.node.store
    await store.submit("placement.pause", now_s=1.0)
    table = RegionTable(1, 1, S1).split("c", 0, 5.0, None, S2)
    await store.submit("regions.set", table=table.to_data(), revision=0)
    await store.submit("server.drain", server=S2, drain_id="drain-1", now_s=1.0)
    assert servers_of(await reported_until_changed(balancing, {S1: 10, S2: 10})) == {"c0": S1, "c1": S1}
