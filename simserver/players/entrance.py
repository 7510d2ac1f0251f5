"""Who may come in at the players' door, by the directory of the home instance (`authority.wire.door_entry`)."""

from collections.abc import Callable
from typing import Final, Protocol

import trio

from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.model.records import Role
from batonpass.authority.wire.door_entry import DoorEntry, Known
from batonpass.crypto.keys import PublicIdentity
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable

__all__ = ["door_entry"]

# Whose keys are asked for at a time: strangers that name any player must not keep the home instance busy.
_LOOK_UPS: Final = 8


class KnownNames(Protocol):
    """What is known of the directory; as `HomeClient` has it."""

    def role_at_hand(self, name: str) -> Role | None:
        """What a name stands for, if it is known here."""

    def keys_at_hand(self, name: str) -> PublicIdentity | None:
        """Its keys that are good now, if they are known here."""

    async def role_of(self, name: str) -> Role | None:
        """The same, and home is asked. Raises HomeUnreachable, HomeRefused."""

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """The same, and home is asked."""


def door_entry(names: KnownNames, unix_s: Callable[[], float], *, observers: bool) -> DoorEntry:
    """Lets clients in at a simulation server; those that are known here also while home does not answer.

    Args:
        names: the directory.
        unix_s: by which proofs and sessions end.
        observers: whether those may come in that are no players.
    """
    look_ups: Final = trio.Semaphore(_LOOK_UPS)

    async def known(name: str) -> Known:
        at_hand = names.role_at_hand(name), names.keys_at_hand(name)
        if None not in at_hand:
            return at_hand
        try:
            async with look_ups:
                role = await names.role_of(name)
                return role, None if role is None else await names.keys_of(name)
        except (HomeUnreachable, HomeRefused) as error:
            raise DoorRefused("home_unreachable", f"the keys of {name} cannot be asked for now: {error}") from error

    return DoorEntry(known, unix_s, observers=observers)
