"""Who may come in at the players' door, by the directory of the home instance (`authority.wire.door_entry`)."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.model.records import DirectoryRow
from batonpass.authority.wire.door_entry import DoorEntry, Known
from batonpass.crypto.keys import PublicIdentity
from batonpass.simserver.net.home_client import HomeRefused, HomeUnreachable

__all__ = ["door_entry"]

# Whose keys are asked for at a time: strangers that name anybody must not keep the home instance busy.
_LOOK_UPS: Final = 8


def door_entry(
    row: Callable[[str], Awaitable[DirectoryRow | None]],
    keys: Callable[[str], Awaitable[PublicIdentity | None]],
    unix_s: Callable[[], float],
    *,
    observers: bool,
) -> DoorEntry:
    """Lets clients in at a simulation server.

    Args:
        row: who bears a name, by the directory; None if nobody does.
        keys: the keys of a name that are good now; None if there are none.
        unix_s: by which proofs and sessions end.
        observers: whether those may come in that are nobody.
    """
    look_ups: Final = trio.Semaphore(_LOOK_UPS)

    async def known(name: str) -> Known:
        try:
            async with look_ups:
                found = await row(name)
                return found, None if found is None else await keys(name)
        except (HomeUnreachable, HomeRefused) as error:
            raise DoorRefused("home_unreachable", f"the keys of {name} cannot be asked for now: {error}") from error

    return DoorEntry(known, unix_s, observers=observers)
