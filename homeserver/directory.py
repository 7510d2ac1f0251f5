"""The key directory: whose public keys belong to which name, here and in other instances.

Rows of this instance are in the log; rows of others come through the federation, proved and pinned.
"""

from authority.names import BadName, instance_of
from authority.records import DirectoryRow
from crypto.errors import CryptoError
from crypto.keys import PublicIdentity
from homeserver.federation import Federation
from homeserver.store import Store

__all__ = ["Directory"]


class Directory:
    """Looks names up: in the local copy first, across the federation otherwise."""

    def __init__(self, instance: str, store: Store, federation: Federation) -> None:
        self._instance = instance
        self._store = store
        self._federation = federation
        self._parsed: dict[str, tuple[str, PublicIdentity]] = {}

    async def row(self, name: str) -> DirectoryRow | None:
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
        return await self._federation.row(name)

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """The public keys of a server or player, or None when it has none; raises what `row` raises."""
        row = await self.row(name)
        return None if row is None else self.parse(row)

    def parse(self, row: DirectoryRow) -> PublicIdentity | None:
        """The keys in a row; parsing costs two point decompressions, so the last result for a name is kept."""
        kids = "|".join(str(key.get("x")) for key in row.keys.get("keys", ()))
        known = self._parsed.get(row.name)
        if known is not None and known[0] == kids:
            return known[1]
        try:
            keys = PublicIdentity.from_jwks_untrusted(row.keys)
        except CryptoError:
            return None
        if len(self._parsed) >= 100_000:
            self._parsed.clear()
        self._parsed[row.name] = (kids, keys)
        return keys
