"""The table of regions in the log: changed as a whole, by its revision, and only for servers that may have cells."""

from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.regions import RegionTable, divided
from batonpass.authority.procedures.regions import REGIONS, region_table
from tests.authority.log import ADA, HOMESERVER, S1, S2, S3, Log

TABLE = RegionTable(1, 2, divided([S1, S2], (0, 0), (10, 4)), margin=0.5).to_data()


def table_of(log: Log) -> RegionTable | None:
    return region_table(log.rows.get_or((REGIONS,), None))


def servers_of(log: Log) -> dict[str, str]:
    table = table_of(log)
    return {} if table is None else {cell.name: cell.server for cell in table.cells}


@pytest.fixture
def begun(log: Log) -> Log:
    """Two servers of three have half of space each."""
    log.run("regions.set", table=TABLE, revision=0)
    return log


def test_a_table_begins_once_and_is_replaced_by_its_revision(begun: Log) -> None:
    assert servers_of(begun) == {"c0": S1, "c1": S2}
    other = RegionTable(1, 1, S3).to_data()
    refused = begun.refuses(Reason.STALE_REVISION, "regions.set", table=other, revision=0)
    assert refused.details == {"revision": 1}
    assert begun.run("regions.set", table=other, revision=1)["revision"] == 2
    assert servers_of(begun) == {"c": S3}


def test_the_next_table_has_a_higher_revision_than_the_one_that_was_ended(begun: Log) -> None:
    assert begun.run("regions.end")["revision"] == 1
    assert table_of(begun) is None
    assert begun.run("regions.end") is None
    begun.refuses(Reason.STALE_REVISION, "regions.set", table=TABLE, revision=2)
    assert begun.run("regions.set", table=TABLE, revision=0)["revision"] == 3


def test_cells_are_split_merged_and_moved_each_in_one_revision(begun: Log) -> None:
    begun.run("region.split", cell="c1", axis=1, at=2.0, low_server=None, high_server=S3, revision=1)
    assert servers_of(begun) == {"c0": S1, "c10": S2, "c11": S3}
    begun.run("region.move", moves={"c0": S2, "c11": S2}, revision=None)
    assert servers_of(begun) == {"c0": S2, "c10": S2, "c11": S2}
    begun.run("region.merge", cell="c1", server=None, revision=3)
    begun.run("region.merge", cell="c", server=S1, revision=4)
    assert servers_of(begun) == {"c": S1}
    table = table_of(begun)
    assert table is not None
    assert (table.revision, table.margin) == (5, 0.5)


def test_to_give_a_cell_to_who_has_it_is_no_change(begun: Log) -> None:
    assert begun.run("region.move", moves={"c0": S1}, revision=None)["revision"] == 1


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("region.split", {"cell": "c0", "axis": 0, "at": 1.0, "low_server": None, "high_server": None}),
    ("region.merge", {"cell": "c", "server": None}),
    ("region.move", {"moves": {"c0": S3}}),
]


@pytest.mark.parametrize(("procedure", "args"), CHANGES)
def test_a_change_names_the_present_revision_or_none(begun: Log, procedure: str, args: dict[str, Any]) -> None:
    for stale in (0, 2):
        begun.refuses(Reason.STALE_REVISION, procedure, **args, revision=stale)
    begun.run(procedure, **args, revision=1)


@pytest.mark.parametrize(("procedure", "args"), CHANGES)
def test_without_a_table_nothing_is_changed(log: Log, procedure: str, args: dict[str, Any]) -> None:
    log.refuses(Reason.NOT_FOUND, procedure, **args, revision=None)


def test_cells_go_only_to_simulation_servers_that_are_not_drained(begun: Log) -> None:
    begun.run("server.drain", server=S3, drain_id="drain-1", now_s=0.0)
    halves = {"cell": "c0", "axis": 0, "at": 1.0, "revision": None}
    for server, reason in {
        S3: Reason.DRAINING,
        HOMESERVER: Reason.UNKNOWN_TARGET,
        ADA: Reason.UNKNOWN_TARGET,
        "alpha.nobody": Reason.UNKNOWN_TARGET,
    }.items():
        begun.refuses(reason, "region.move", moves={"c0": server}, revision=None)
        begun.refuses(reason, "region.merge", cell="c", server=server, revision=None)
        begun.refuses(reason, "region.split", **halves, low_server=server, high_server=None)
        begun.refuses(reason, "region.split", **halves, low_server=None, high_server=server)
        begun.refuses(reason, "regions.set", table=RegionTable(1, 1, server).to_data(), revision=1)


def test_the_cells_of_a_drained_server_can_be_given_away_one_by_one(begun: Log) -> None:
    begun.run("region.split", cell="c1", axis=1, at=2.0, low_server=None, high_server=None, revision=1)
    begun.run("server.drain", server=S2, drain_id="drain-1", now_s=0.0)
    begun.run("region.move", moves={"c10": S3}, revision=None)
    assert servers_of(begun) == {"c0": S1, "c10": S3, "c11": S2}


def test_cells_that_are_not_there_and_borders_outside_are_refused(begun: Log) -> None:
    nobody = {"low_server": None, "high_server": None, "revision": None}
    begun.refuses(Reason.NOT_FOUND, "region.split", cell="c", axis=0, at=1.0, **nobody)
    begun.refuses(Reason.NOT_FOUND, "region.merge", cell="c0", server=None, revision=None)
    begun.refuses(Reason.NOT_FOUND, "region.move", moves={"c0": S3, "c2": S3}, revision=None)
    for axis, at in ((0, 5.0), (0, 7.0), (2, 1.0)):
        begun.refuses(Reason.OUTSIDE_CELL, "region.split", cell="c0", axis=axis, at=at, **nobody)
    begun.refuses(Reason.OUTSIDE_CELL, "regions.set", table={**TABLE, "nodes": []}, revision=1)
