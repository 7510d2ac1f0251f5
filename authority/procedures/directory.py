"""The directory of names: which keys are pinned to each server and player, and where it listens."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.model.rows import Rows

__all__ = ["DIRECTORY_PROCEDURES", "MAX_PLAYERS", "MAX_SERVERS", "check_simserver", "is_server", "is_simserver"]

MAX_SERVERS: Final = 10_000
MAX_PLAYERS: Final = 1_000_000


def directory_register(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Pin a server's or player's public keys to its name; the same keys again only update its addresses.

    The addresses of a simulation server are those of the incarnation that has its lease, once that has said which they
    are (`lease.claim`). What registers is another process perhaps, which will never have the lease.

    A name belongs to its first registrant. Other keys are a later version of them. `follows` is the version from which
    the caller has seen that they follow (`crypto.continuity`), which must still be the one that stands here. Anything
    else is refused.

    `after` is the revision on which a simulation server has signed that these addresses follow. If the row has another
    one, which may be that of a server of this name that was removed, nothing changes. Signatures are not checked here:
    what the log decides must not depend on a library.
    """
    row = DirectoryRow.from_data(args["row"])
    table, limit = ("players", MAX_PLAYERS) if row.role is Role.PLAYER else ("servers", MAX_SERVERS)
    existing, after = rows.get_or((table, row.name), None), args.get("after")
    if rows.get_or(("servers" if table == "players" else "players", row.name), None) is not None:
        # One name, one key: a signature by a name must never be that of two.
        raise Refused(Reason.KEY_CONFLICT, f"{row.name} is registered as something else", name=row.name)
    if existing is None:
        if rows.get_or(("entities", row.name), None) is not None:
            # Messages name both, and people would take the one for the other.
            raise Refused(Reason.KEY_CONFLICT, f"{row.name} is the name of an entity", name=row.name)
        departed = rows.get_or(("departed", row.name), None)
        if departed is not None and row.role is Role.PLAYER:
            raise Refused(
                Reason.KEY_CONFLICT, f"{row.name} is the name of a server or player that was removed", name=row.name
            )
        # A log of before has `True` of what was removed.
        last = departed if type(departed) is int else 0
        _check_after(row, last, after)
        if rows.count_children((table,)) >= limit:
            raise Refused(Reason.FULL, f"the directory holds {limit} {table} already", limit=limit)
        if departed is not None:
            rows.delete(("departed", row.name))
            row = row.changed(revision=last + 1)
    else:
        old = DirectoryRow.from_data(existing)
        if (old.keys, old.role) != (row.keys, row.role) and not _follows(old, row, args.get("follows")):
            text = f"other keys are registered for {row.name}: version {old.version}"
            raise Refused(Reason.KEY_CONFLICT, text, name=row.name)
        lease = rows.get_or(("leases", row.name), None)
        if lease is not None and lease.get("addressed"):
            row = row.changed(rest_url=old.rest_url, link_host=old.link_host, link_port=old.link_port)
        changed = row.address != old.address or old.keys != row.keys
        if changed:
            _check_after(row, old.revision, after)
        row = row.changed(revision=old.revision + 1 if changed else old.revision)
        if old.keys == row.keys:
            row = row.changed(version=old.version, statements=old.statements)
    rows.put((table, row.name), row.to_data())
    return row.to_data()


def player_remove(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Take a player out of the directory; the caller has seen that no entity has it as owner or master.

    As with a server that was removed, no player takes its name again: what it has signed may be about. A server may.
    Repeating it answers with nothing.
    """
    data = rows.get_or(("players", args["player"]), None)
    if data is None:
        return None
    rows.delete(("players", args["player"]))
    rows.put(("departed", args["player"]), DirectoryRow.from_data(data).revision)
    return data


def _check_after(row: DirectoryRow, revision: int, after: int | None) -> None:
    """Refuse what follows on another revision than the present one: it is older than that, or was never signed."""
    if after is not None and after != revision:
        text = f"what {row.name} has signed follows on revision {after} of its row, which has {revision}: sign anew"
        raise Refused(Reason.STALE_REVISION, text, revision=revision)


def _follows(old: DirectoryRow, row: DirectoryRow, follows: Any) -> bool:
    return old.role is row.role and follows == old.version and row.version > old.version


def is_server(rows: Rows, name: str) -> bool:
    """Whether a server of this name is registered, of whatever kind."""
    return rows.get_or(("servers", name), None) is not None


def is_simserver(rows: Rows, name: str) -> bool:
    """Whether a simulation server of this name is registered."""
    data = rows.get_or(("servers", name), None)
    # Not read as a whole: every hand-over asks, and the keys in a row are most of it.
    return data is not None and data["role"] == Role.SIMSERVER.value


def check_simserver(rows: Rows, name: str) -> None:
    """Raise `Refused` (`unknown_target`) unless a simulation server of this name is registered."""
    if not is_simserver(rows, name):
        raise Refused(Reason.UNKNOWN_TARGET, f"no simulation server {name} is registered here", server=name)


DIRECTORY_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "directory.register": directory_register,
    "player.remove": player_remove,
}
