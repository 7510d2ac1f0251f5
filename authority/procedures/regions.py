"""Which simulation server has which part of space: the row `regions`, and its changes.

The row is changed as a whole, by one command, and counts its revisions. So every member, and every server that follows
it, has all cells of one revision. A command that names a revision is refused if the row has another one. A table that
is ended leaves its revision, so that the next one has a higher one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.regions import RegionTable
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.directory import check_simserver
from batonpass.authority.procedures.drain import check_not_draining

__all__ = ["REGIONS", "REGION_PROCEDURES", "region_table"]

REGIONS: Final = "regions"


def region_table(data: Mapping[str, Any] | None) -> RegionTable | None:
    """The table that the row has; None if there is no row, or the table was ended."""
    return None if data is None or "nodes" not in data else RegionTable.from_data(data)


def regions_set(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Have this table from now on, in place of the one of `revision`, which is 0 if there is none."""
    row = rows.get_or((REGIONS,), None)
    before = region_table(row)
    revision = 0 if before is None else before.revision
    if args["revision"] != revision:
        raise _stale(args["revision"], revision)
    last = 0 if row is None else row["revision"]
    try:
        table = RegionTable.from_data({**args["table"], "revision": last + 1})
    except ValueError as error:
        raise Refused(Reason.OUTSIDE_CELL, str(error)) from error
    _check_servers(rows, table.servers)
    return _put(rows, table)


def regions_end(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Have no table from now on. Repeating it answers with nothing."""
    table = region_table(rows.get_or((REGIONS,), None))
    if table is None:
        return None
    rows.put((REGIONS,), {"revision": table.revision + 1})
    return table.to_data()


def region_split(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Cut `cell` at `at` along `axis`; `low_server` and `high_server` get the halves, None keeps that of the cell."""
    table = _present(rows, args)
    named = [server for server in (args["low_server"], args["high_server"]) if server is not None]
    _check_servers(rows, named)
    return _put(rows, table.split(args["cell"], args["axis"], args["at"], args["low_server"], args["high_server"]))


def region_merge(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Make one cell of the two halves of `cell`, for `server`, or with None for that of the low one."""
    table = _present(rows, args)
    if args["server"] is not None:
        _check_servers(rows, [args["server"]])
    return _put(rows, table.merge(args["cell"], args["server"]))


def region_move(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Give cells to servers, as `moves` says by the names of the cells; those that have them already stay so."""
    table, moves = _present(rows, args), args["moves"]
    _check_servers(rows, moves.values())
    if all(table.cell(name).server == server for name, server in moves.items()):
        return table.to_data()
    return _put(rows, table.move(moves))


def _present(rows: Rows, args: Mapping[str, Any]) -> RegionTable:
    table = region_table(rows.get_or((REGIONS,), None))
    if table is None:
        raise Refused(Reason.NOT_FOUND, "there is no table of regions: begin one first")
    if args["revision"] not in (None, table.revision):
        raise _stale(args["revision"], table.revision)
    return table


def _stale(said: Any, revision: int) -> Refused:
    text = f"the table of regions has revision {revision}, not {said}: it was changed meanwhile"
    return Refused(Reason.STALE_REVISION, text, revision=revision)


def _check_servers(rows: Rows, servers: Iterable[str]) -> None:
    for server in sorted(set(servers)):
        check_simserver(rows, server)
        check_not_draining(rows, server)


def _put(rows: Rows, table: RegionTable) -> dict[str, Any]:
    data = table.to_data()
    rows.put((REGIONS,), data)
    return data


REGION_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "region.merge": region_merge,
    "region.move": region_move,
    "region.split": region_split,
    "regions.end": regions_end,
    "regions.set": regions_set,
}
