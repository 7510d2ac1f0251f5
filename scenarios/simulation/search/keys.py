"""Keys for a search: the same in every run, and signatures that are equal for equal texts."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.crypto.keys import Identity, PublicIdentity

__all__ = ["HOME", "SearchKeys", "homeserver_for", "identity_of"]

HOME: Final = "alpha.h1"


def homeserver_for(server: str) -> str:
    """The homeserver through which a server of another instance speaks with the entity's home; empty for one of it."""
    instance = instance_of(server)
    return "" if instance == instance_of(HOME) else f"{instance}.h1"


class _RepeatableKey:
    """A P-256 key that signs the same text with the same signature (RFC 6979), so that equal tokens are equal."""

    def __init__(self, number: int) -> None:
        self._key: Final = ec.derive_private_key(number, ec.SECP256R1())

    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._key.public_key()

    def sign(self, data: bytes, _: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        return self._key.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


@cache
def identity_of(name: str) -> Identity:
    """The keys of a server."""
    number = int.from_bytes(name.encode(), "big")
    return Identity(cast(Any, _RepeatableKey(number)), ec.derive_private_key(number + 1, ec.SECP256R1()))


class SearchKeys:
    """The key directory, as both kinds of server ask for it; `names` are all there are."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names: Final = names
        self._rows = {
            name: DirectoryRow(
                name=name,
                role=Role.SIMSERVER if name in names else Role.HOMESERVER,
                keys=identity_of(name).public.to_jwks(),
                link_port=1,
            )
            for name in (*names, HOME, *filter(None, map(homeserver_for, names)))
        }

    async def row(self, name: str) -> DirectoryRow | None:
        """The row of a server, or None."""
        return self._rows.get(name)

    async def role_of(self, name: str) -> Role | None:
        """The role of a server, or None."""
        return self.role_at_hand(name)

    def role_at_hand(self, name: str) -> Role | None:
        """As `role_of`."""
        row = self._rows.get(name)
        return None if row is None else row.role

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        """The keys of a server, or None."""
        return identity_of(name).public if name in self._rows else None

    async def signer(self, name: str, kid: str) -> tuple[DirectoryRow | None, PublicIdentity | None]:
        """As `homeserver.names.directory.Directory.signer`."""
        row = self._rows.get(name)
        return row, None if row is None else self.parse(row)

    def parse(self, row: DirectoryRow) -> PublicIdentity | None:
        """The keys in a row."""
        return identity_of(row.name).public

    def members(self) -> Iterator[DirectoryRow]:
        """The homeservers."""
        yield self._rows[HOME]

    def registrations(self) -> Iterator[DirectoryRow]:
        """The rows that are in the log of the entity's home."""
        return (row for row in self._rows.values() if instance_of(row.name) == instance_of(HOME))
