"""Entering rows into the directory of this instance: first keys, new addresses, and keys that follow on known ones."""

from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.trust.key_pinning import published
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto.continuity import (
    MAX_OWN_VERSION,
    MAX_STATEMENTS,
    Published,
    first_pin,
    follow_untrusted,
    sign_reset,
)
from batonpass.crypto.errors import CryptoError, KeyConflict
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["register", "reset_keys", "reset_row"]

# Between looking at the keys that stand here and changing them. A reset does not wait. So it is done before a server
# that changes its keys as fast as it can, over any number of connections, has changed them RESET_ATTEMPTS times.
CHANGE_PAUSE_S: Final = 0.05
RESET_ATTEMPTS: Final = 20


async def register(store: InstanceStore, row: DirectoryRow, *, after: int | None = None) -> DirectoryRow:
    """Enter `row`; the row as it stands then.

    `after` is the revision on which its addresses follow, as its server has signed; None of rows without an address.

    Keys that are there already, in a later version, stay. A server that registers an earlier version of its own current
    keys learns from the answer what has been set for it. Other keys must follow on those that are there.

    Raises:
        Refused: they do not follow, the row would change and has another revision than `after`, the name is another's,
            or the directory is full.
        NoQuorum, OutcomeUnknown: see `tree.raft.submissions`.
    """
    # This member's copy may be behind, as after a start from a snapshot. A conflict that comes from that is gone the
    # second time, whether it was found here or in the log.
    for is_last in (False, True):
        try:
            return await _registered(store, row, after)
        except Refused as error:
            if is_last or error.reason is not Reason.KEY_CONFLICT:
                raise
            await store.fresh()
    raise AssertionError("the second attempt answers or raises")


async def _registered(store: InstanceStore, row: DirectoryRow, after: int | None) -> DirectoryRow:
    """As `register`, as far as this member's copy of the directory knows."""
    existing = await store.find_row(row.name)
    wanted, follows = (_first(row), None) if existing is None else _following(existing, row)
    if follows is not None:
        await trio.sleep(CHANGE_PAUSE_S)
    data = await store.submit("directory.register", row=wanted.to_data(), follows=follows, after=after)
    return DirectoryRow.from_data(data)


async def reset_keys(
    store: InstanceStore, name: str, keys: PublicIdentity, *, signer: Sealer, reason: str, clock: Clock
) -> DirectoryRow | None:
    """Enter keys that an operator has set for `name`; None when there is no such row. See `reset_row`.

    Raises as `register` and `reset_row`.
    """
    for attempts_left in reversed(range(RESET_ATTEMPTS)):
        existing = await store.newer_row(name)
        if existing is None:
            return None
        row = reset_row(existing, keys, signer=signer, reason=reason, now_s=clock.unix_s())
        try:
            data = await store.submit("directory.register", row=row.to_data(), follows=existing.version)
        except Refused as error:
            if not attempts_left or error.reason is not Reason.KEY_CONFLICT:
                raise
        else:
            return DirectoryRow.from_data(data)
    raise AssertionError("the last attempt answers or raises")


def reset_row(
    existing: DirectoryRow, keys: PublicIdentity, *, signer: Sealer, reason: str, now_s: float
) -> DirectoryRow:
    """The row with `keys` in the place of those in `existing`; `signer` vouches for it, and begins a new lineage.

    Those that were good are revoked. What was revoked before is not carried on, so that a server which has filled the
    list cannot keep its operator out. Nothing of the old lineage is good any longer, named or not.

    Raises ValueError when one of `keys` is good now or was revoked before, or there is no reason.
    """
    old = published(existing)
    gone = {kid: round(now_s) for one in old.keys.generations for kid in one.kids}
    if not old.keys.revoked.keys().isdisjoint(keys.kids):
        raise ValueError(f"one of these keys of {existing.name} has been revoked before: make others")
    new = PublicIdentity(keys.signing, keys.agreement, (), gone)
    statement = sign_reset(
        existing.name, old, new, signer=signer.identity, signer_id=signer.name, now_s=now_s, reason=reason
    )
    statements = (*existing.statements, statement)[-MAX_STATEMENTS:]
    return existing.changed(keys=new.to_jwks(), version=existing.version + 1, statements=statements)


def _first(row: DirectoryRow) -> DirectoryRow:
    """A row for a name that is not there yet, if others can follow it from what it says of itself."""
    try:
        pin = first_pin(row.name, published(row))
    except CryptoError as error:
        raise Refused(Reason.KEY_CONFLICT, f"the keys of {row.name} are not sound: {error}", name=row.name) from error
    if pin.version > MAX_OWN_VERSION:
        raise Refused(Reason.KEY_CONFLICT, f"versions above {MAX_OWN_VERSION} are for resets", name=row.name)
    return row


def _following(existing: DirectoryRow, row: DirectoryRow) -> tuple[DirectoryRow, int | None]:
    """The row to enter, and the version from which its keys have been seen to follow, when they are others."""
    if existing.keys == row.keys or existing.role is not row.role:
        return row, None
    try:
        known, shown = published(existing), published(row)
    except CryptoError as error:
        raise Refused(Reason.KEY_CONFLICT, f"the keys of {row.name} cannot be read: {error}", name=row.name) from error
    if _is_earlier(shown, known):
        addresses = {"rest_url": row.rest_url, "link_host": row.link_host, "link_port": row.link_port}
        return existing.changed(**addresses), None
    try:
        follow_untrusted(row.name, shown, first_pin(row.name, known), resetter=lambda _: None, now_s=0.0)
    except KeyConflict as error:
        text = (
            f"{row.name} is registered with key {known.keys.signing_kid} (version {known.version}), and key "
            f"{shown.keys.signing_kid} does not follow: an operator can set it with `baton keys reset {row.name}`"
        )
        raise Refused(Reason.KEY_CONFLICT, text, name=row.name, why=str(error)) from error
    return row, existing.version


def _is_earlier(shown: Published, known: Published) -> bool:
    kids = (shown.keys.signing_kid, shown.keys.agreement_kid)
    return kids == (known.keys.signing_kid, known.keys.agreement_kid) and shown.version < known.version
