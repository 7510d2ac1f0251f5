"""Invitations, and players who come by them: each use is counted here, so it counts once whatever becomes of members.

That a player has the keys which it shows, and an invitation its secret, is seen before (`homeserver.door.enrolment`).
What the log decides must not depend on a library that checks signatures.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.enrolment import DoorGrant, Enrolled, Invitation
from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.directory import directory_register

__all__ = ["ENROLMENT_PROCEDURES", "INVITATIONS", "INVITATION_ORDER", "MAX_INVITATIONS", "enrolled_path"]

ENROLLED: Final = "enrolled"
INVITATIONS: Final = "invitations"
INVITATION_ORDER: Final = ("invitation_order",)
MAX_INVITATIONS: Final = 1024


def enrolled_path(player: str) -> tuple[str, str]:
    """Where it stands what a player may do."""
    return (ENROLLED, player)


def invitation_make(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Make an invitation; those whose time is over at `now_s` are forgotten. The row; the same again changes nothing.

    Raises `ALREADY_EXISTS` if the id is that of another one, `FULL` if there are too many.
    """
    wanted = Invitation.from_data(args["invitation"])
    existing = rows.get_or((INVITATIONS, wanted.id), None)
    if existing is not None:
        if Invitation.from_data(existing).digest != wanted.digest:
            raise Refused(Reason.ALREADY_EXISTS, f"there is an invitation {wanted.id} already", invitation=wanted.id)
        return existing
    order = _forgotten_until(rows, args["now_s"])
    if len(order) >= MAX_INVITATIONS:
        raise Refused(
            Reason.FULL, f"there are {MAX_INVITATIONS} invitations: revoke some, or wait", limit=MAX_INVITATIONS
        )
    rows.put(INVITATION_ORDER, [*order, [wanted.id, wanted.expires_at_s]])
    rows.put((INVITATIONS, wanted.id), wanted.to_data())
    return wanted.to_data()


def _forgotten_until(rows: Rows, now_s: float) -> list[list[Any]]:
    """The order of those that are left when all are forgotten whose time is over."""
    order = rows.get_or(INVITATION_ORDER, [])
    for name, expires_at_s in order:
        if expires_at_s < now_s:
            rows.delete((INVITATIONS, name))
    return [one for one in order if one[1] >= now_s]


def invitation_revoke(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Forget an invitation; who came by it stays. Raises `NOT_FOUND`."""
    name = args["id"]
    existing = rows.get_or((INVITATIONS, name), None)
    if existing is None:
        raise Refused(Reason.NOT_FOUND, f"there is no invitation {name}", invitation=name)
    rows.delete((INVITATIONS, name))
    rows.put(INVITATION_ORDER, [one for one in rows.get_or(INVITATION_ORDER, []) if one[0] != name])
    return existing


def player_enrol(rows: Rows, args: Mapping[str, Any]) -> Any:
    """Register a player's keys and what it may do, by one use of `invitation`; or of none, with `grant`.

    Keys that are registered already have to be the same. Who came by this invitation before is enrolled as it is and
    takes no use, so this may be repeated. Where a trusted service has said what a player may do, that stays.

    Without an invitation only a name is taken that is free, or that came so before.

    Raises `KEY_CONFLICT`, `FULL`, and `BAD_INVITATION` whatever is wrong with the invitation.
    """
    row, name = DirectoryRow.from_data(args["row"]), args["invitation"]
    known, data = rows.get_or(("players", row.name), None), rows.get_or((ENROLLED, row.name), None)
    if known is not None and _current(DirectoryRow.from_data(known)) != _current(row):
        raise Refused(Reason.KEY_CONFLICT, f"other keys are registered for {row.name}", name=row.name)
    before = None if data is None else Enrolled.from_data(data)
    if known is not None and before is not None and (before.fixed or before.invitation == name):
        return data
    invitation = _good(rows, row.name, args) if name else None
    if invitation is None and known is not None:
        raise Refused(Reason.KEY_CONFLICT, f"{row.name} is registered already: it needs an invitation", name=row.name)
    if known is None:
        directory_register(rows, {"row": row.to_data()})
    if invitation is not None:
        left = invitation.model_copy(update={"uses": invitation.uses - 1})
        rows.put((INVITATIONS, invitation.id), left.to_data())
    grant = DoorGrant.from_data(args["grant"]) if invitation is None else invitation.grant
    enrolled = Enrolled(player=row.name, grant=grant, invitation=name).to_data()
    rows.put((ENROLLED, row.name), enrolled)
    return enrolled


def _current(row: DirectoryRow) -> Any:
    """Its present keys: one for signing, one for agreement."""
    return row.keys["keys"][:2]


def _good(rows: Rows, player: str, args: Mapping[str, Any]) -> Invitation:
    """An invitation that this player may come by now."""
    data = rows.get_or((INVITATIONS, args["invitation"]), None)
    if data is None:
        _refuse(args, "there is no such invitation any more")
    invitation = Invitation.from_data(data)
    if args["digest"] != invitation.digest:
        _refuse(args, "there is no such invitation any more")
    if args["now_s"] > invitation.expires_at_s:
        _refuse(args, "its time is over")
    if not invitation.takes_player(player):
        _refuse(args, f"it is for {invitation.players}, not for {player}")
    if not invitation.uses:
        _refuse(args, "it is used up")
    return invitation


def _refuse(args: Mapping[str, Any], why: str) -> NoReturn:
    raise Refused(Reason.BAD_INVITATION, f"this invitation is not good: {why}", invitation=args["invitation"])


def player_grant(rows: Rows, args: Mapping[str, Any]) -> Any:
    """What a trusted service says a player may do, from now on. Raises `NOT_FOUND`: there is no such player."""
    player = args["player"]
    if rows.get_or(("players", player), None) is None:
        raise Refused(Reason.NOT_FOUND, f"no keys are registered for {player}", name=player)
    enrolled = Enrolled(player=player, grant=DoorGrant.from_data(args["grant"]), fixed=True).to_data()
    rows.put((ENROLLED, player), enrolled)
    return enrolled


ENROLMENT_PROCEDURES: Final[Mapping[str, Callable[[Rows, Mapping[str, Any]], Any]]] = {
    "invitation.make": invitation_make,
    "invitation.revoke": invitation_revoke,
    "player.enrol": player_enrol,
    "player.grant": player_grant,
}
