"""The key directory: which public keys belong to which name, here and in other instances.

Rows of this instance are in the log; rows of others come through the federation, proved and pinned.
"""

from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import BadName, instance_of
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import Federation

__all__ = ["Directory", "MemberHandshakeKeys", "check_speaks_for"]

MAX_PARSED: Final = 100_000


class MemberHandshakeKeys:
    """The directory as the link asks it: what is so now, if it was not asked a moment ago."""

    def __init__(self, directory: "Directory") -> None:
        self._directory: Final = directory

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """As `Directory.keys_of`."""
        return await self._directory.keys_of(name, fresh=True)


class Directory:
    """Looks names up: in the local copy first, across the federation otherwise."""

    def __init__(self, instance: str, store: InstanceStore, federation: Federation, clock: Clock) -> None:
        self._instance = instance
        self._store = store
        self._federation = federation
        self._clock = clock
        self._parsed: LruTable[str, tuple[dict[str, Any], PublicIdentity]] = LruTable(MAX_PARSED)
        self.handshakes: Final = MemberHandshakeKeys(self)

    async def row(self, name: str, *, fresh: bool = False) -> DirectoryRow | None:
        """The row of a server or player; None when there is none, or no way to its instance is configured.

        Raises:
            NoQuorum: it is not known here, and no majority of this instance can say whether there is one.
            PeerUnreachable: its instance cannot be asked now.
        """
        try:
            instance = instance_of(name)
        except BadName:
            return None
        if instance == self._instance:
            return await self._store.find_row(name)
        if self._federation.hops_to(instance) is None:
            return None
        return await self._federation.row(name, fresh=fresh)

    async def role_of(self, name: str) -> Role | None:
        """The role of a server or player, or None; raises what `row` raises."""
        row = await self.row(name)
        return None if row is None else row.role

    async def keys_of(self, name: str, kid: str = "", *, fresh: bool = False) -> PublicIdentity | None:
        """The public keys of a server or player that are good now, or None when it has none; raises what `row` raises.

        With a `kid` that is not among the keys known, or if they shall be `fresh`, newer ones are asked for.
        """
        row = await self.row(name, fresh=fresh)
        keys = None if row is None else self.parse(row)
        if keys is not None and kid and not keys.knows(kid) and not fresh:
            row = await self._newer(name)
            keys = None if row is None else self.parse(row)
        return None if keys is None else keys.valid_at(self._clock.unix_s())

    async def signer(self, name: str, kid: str) -> tuple[DirectoryRow | None, PublicIdentity | None]:
        """The row and the keys of the signer with the key `kid`, newer ones if that is not known here yet.

        Keys whose time is over are among them. Raises what `row` raises.
        """
        row = await self.row(name)
        keys = None if row is None else self.parse(row)
        if keys is not None and kid and not keys.knows(kid):
            row = await self._newer(name)
            keys = None if row is None else self.parse(row)
        return row, keys

    async def _newer(self, name: str) -> DirectoryRow | None:
        if instance_of(name) == self._instance:
            return await self._store.newer_row(name)
        return await self.row(name, fresh=True)

    def parse(self, row: DirectoryRow) -> PublicIdentity | None:
        """The keys in a row; parsing costs checks of points, so the last result for a name is kept."""
        known = self._parsed.get(row.name)
        if known is not None and known[0] == row.keys:
            return known[1]
        try:
            keys = PublicIdentity.from_jwks_untrusted(row.keys)
        except CryptoError:
            return None
        self._parsed[row.name] = (row.keys, keys)
        return keys


async def check_speaks_for(directory: Directory, sender: str, server: str) -> None:
    """What a server asks is asked by itself, or by a homeserver of its instance.

    Raises:
        MessageError: it is asked by another server.
        NoQuorum, PeerUnreachable: as `Directory.row`.
    """
    if sender == server:
        return
    row = await directory.row(sender)
    if row is None or row.role is not Role.HOMESERVER or instance_of(sender) != instance_of(server):
        raise MessageError(f"{sender} does not speak for {server}")
