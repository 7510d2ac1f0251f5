"""Servers that are drained: nothing new comes to them, all that they hold goes, and then they may leave the directory.

That a server is drained is a row of the log, so it outlives the client that asked for it, and any leader. While it is
there, no entity is made on that server, none is delegated to it, and none is handed over to it (`draining`). So the set
of records that name it only shrinks, but for direct passes within delegations that were made before. An operator who
saw it empty under one drain may remove it under that same drain.

Whether entities are moved from hot to cool servers just now: an operator may hold that still for the whole instance.

It is a row of the log, so it outlives the client that asked for it, and any leader. Drains, and moves that an owner, a
master or the world asks for, continue.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import DirectoryRow, DrainRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.directory import check_simserver, is_simserver
from batonpass.authority.procedures.lease import disk_is_gone

__all__ = [
    "BALANCE_PAUSE",
    "DRAINS",
    "DRAIN_PROCEDURES",
    "PLACEMENT_PROCEDURES",
    "check_not_draining",
    "is_draining",
]

DRAINS: Final = "drains"


def is_draining(rows: Rows, server: str) -> bool:
    """Whether a server is drained."""
    return rows.get_or((DRAINS, server), None) is not None


def check_not_draining(rows: Rows, server: str) -> None:
    """Raise `Refused` (`draining`) if a server is drained."""
    if is_draining(rows, server):
        raise Refused(Reason.DRAINING, f"{server} is drained: it takes no entities", server=server)


def server_drain(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Drain a simulation server from now on; one that is drained already stays so, under the same drain."""
    server = args["server"]
    check_simserver(rows, server)
    data = rows.get_or((DRAINS, server), None)
    if data is None:
        data = DrainRecord(server=server, id=args["drain_id"], since_s=args["now_s"]).to_data()
        rows.put((DRAINS, server), data)
    return data


def server_open(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Let a server take entities again; nothing happens to one that is not drained."""
    server = args["server"]
    check_simserver(rows, server)
    data = rows.get_or((DRAINS, server), None)
    if data is not None:
        rows.delete((DRAINS, server))
    return data


def server_remove(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take a drained server out of the directory; the caller has seen it empty under the drain that it names.

    Its disk is not waited for any more (`authority.procedures.lease`). Repeating it answers with nothing. Its
    name can be registered again, by every server that knows the join token.
    """
    server = args["server"]
    registered = rows.get_or(("servers", server), None)
    if registered is None:
        return None
    if not is_simserver(rows, server):
        raise Refused(Reason.UNKNOWN_TARGET, f"{server} is no simulation server", server=server)
    data = rows.get_or((DRAINS, server), None)
    if data is None or DrainRecord.from_data(data).id != args["drain_id"]:
        text = f"{server} is not drained (any more, or anew): drain it before it is removed"
        raise Refused(Reason.NOT_DRAINED, text, server=server)
    rows.delete((DRAINS, server))
    rows.delete(("servers", server))
    # It may be a master still, and what it has signed may be about: no other server takes its name.
    # The revision outlives the row, so that it is not entered anew with what was once signed.
    rows.put(("departed", server), DirectoryRow.from_data(registered).revision)
    disk_is_gone(rows, server)
    return data


DRAIN_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "server.drain": server_drain,
    "server.open": server_open,
    "server.remove": server_remove,
}


BALANCE_PAUSE: Final = "balance_pause"
"""The row with the Unix time in seconds since which nothing is balanced; there is none while it is."""


def placement_pause(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Balance nothing from `now_s` on; a pause that there is already stays as it is. Answers since when it lasts."""
    since_s = rows.get_or((BALANCE_PAUSE,), None)
    if since_s is None:
        since_s = args["now_s"]
        rows.put((BALANCE_PAUSE,), since_s)
    return since_s


def placement_resume(rows: Rows, args: Mapping[str, Any]) -> Any:
    """End the pause, if there is one. Answers since when it lasted, None if there was none."""
    since_s = rows.get_or((BALANCE_PAUSE,), None)
    if since_s is not None:
        rows.delete((BALANCE_PAUSE,))
    return since_s


PLACEMENT_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "placement.pause": placement_pause,
    "placement.resume": placement_resume,
}
