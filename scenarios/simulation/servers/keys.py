"""Keys that cost next to nothing, and the directory of all of them.

A run signs and verifies thousands of certificates; with ECDSA that would be most of its time. Here a signature is a
keyed hash, so that what was signed is recognised and nothing else is. All of `crypto` around it is the real one.
"""

import hashlib
from functools import cache
from typing import Any, Final, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.crypto.keys import Identity, PublicIdentity

__all__ = ["HOST", "KeysKnown", "SimulatedKeys", "homes_of", "identity_of"]

_HOMES: Final = 2

HOST: Final = "simulated.invalid"
"""Where all servers are, as the directory has it; by their names they are reached."""


def homes_of(instance: str) -> tuple[str, ...]:
    """The homeservers of an instance."""
    return tuple(f"{instance}.h{number + 1}" for number in range(_HOMES))


def _hashed(number: int, data: bytes) -> bytes:
    keyed = hashlib.blake2b(data, key=number.to_bytes(64, "big"), digest_size=32).digest()
    return encode_dss_signature(int.from_bytes(keyed, "big"), 1)


class _Verifying:
    """The public half, with a point that can be asked for."""

    def __init__(self, number: int) -> None:
        self._number: Final = number
        self._point: Final = ec.derive_private_key(number, ec.SECP256R1()).public_key()

    def verify(self, signature: bytes, data: bytes, _: object) -> None:
        if signature != _hashed(self._number, data):
            raise InvalidSignature

    def __getattr__(self, name: str) -> Any:
        return getattr(self._point, name)


class _Signing:
    """The private half."""

    def __init__(self, number: int) -> None:
        self._number: Final = number

    def public_key(self) -> Any:
        return _Verifying(self._number)

    def sign(self, data: bytes, _: object) -> bytes:
        return _hashed(self._number, data)


@cache
def identity_of(name: str, generation: int = 0) -> Identity:
    """The keys of the server of this name, the same ones in every run; another generation after each change."""
    number = int.from_bytes(f"{name}/{generation}".encode() if generation else name.encode(), "big")
    return Identity(cast(Any, _Signing(number)), ec.derive_private_key(number + 1, ec.SECP256R1()))


class SimulatedKeys:
    """The key directory, as homeservers ask for it; its answers are at once."""

    def __init__(self, servers: tuple[str, ...]) -> None:
        homes = [name for instance in dict.fromkeys(map(instance_of, servers)) for name in homes_of(instance)]
        names = (*servers, *homes)
        self._identities: Final = {name: identity_of(name) for name in names}
        self._public: Final = {name: identity.public for name, identity in self._identities.items()}
        self._parsed: Final = {keys.signing_kid: keys for keys in self._public.values()}
        self._rows: Final = {
            name: DirectoryRow(
                name=name,
                role=Role.HOMESERVER if name in homes else Role.SIMSERVER,
                keys=self._public[name].to_jwks(),
                link_host=HOST,
                link_port=1,
            )
            for name in names
        }

    def identity(self, name: str) -> Identity:
        """With which a server signs now."""
        return self._identities[name]

    def revoke(self, name: str) -> Identity:
        """The keys of a server are revoked; those that take their place. There are thirty times in a run at most."""
        before = self._public[name]
        revoked = {**before.revoked, before.signing_kid: 0}
        fresh = self._identities[name] = identity_of(name, len(revoked))
        keys = PublicIdentity(fresh.public.signing, fresh.public.agreement, (), revoked)
        self._public[name] = self._parsed[keys.signing_kid] = keys
        self._rows[name] = self._rows[name].changed(keys=keys.to_jwks())
        return fresh

    def rotate(self, name: str, now_s: float, overlap_s: float) -> Identity:
        """The keys of a server are replaced; the new ones. Those of before are good for the overlap."""
        before = self._identities[name]
        # Every second one: of two numbers in a row, the agreement key of one is made as the signing key of the other.
        number = 2 * (len(before.generations) + len(before.public.revoked))
        fresh = self._identities[name] = before.rotated(identity_of(name, number), now_s=now_s, overlap_s=overlap_s)
        self._public[name] = self._parsed[fresh.public.signing_kid] = fresh.public
        self._rows[name] = self._rows[name].changed(keys=fresh.public.to_jwks())
        return fresh

    def row_at_hand(self, name: str) -> DirectoryRow | None:
        """The row of a server, or None."""
        return self._rows.get(name)

    async def row(self, name: str) -> DirectoryRow | None:
        """The row of a server, or None."""
        return self._rows.get(name)

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        """The keys of a server, or None."""
        return self._public.get(name)

    async def signer(self, name: str, kid: str) -> tuple[DirectoryRow | None, PublicIdentity | None]:
        """As `homeserver.names.directory.Directory.signer`."""
        return self._rows.get(name), self._public.get(name)

    def parse(self, row: DirectoryRow) -> PublicIdentity:
        """The keys in a row."""
        return self._parsed[row.keys["keys"][0]["kid"]]

    @property
    def instances(self) -> list[str]:
        """All there are."""
        return sorted({instance_of(name) for name in self._rows})

    def of_instance(self, instance: str) -> list[DirectoryRow]:
        """The rows that the instance's log keeps."""
        return [row for row in self._rows.values() if instance_of(row.name) == instance]

    def homes(self, instance: str) -> list[DirectoryRow]:
        """The rows of the instance's homeservers."""
        return [self._rows[name] for name in homes_of(instance)]


class KeysKnown:
    """What one simulation server knows of the directory: later keys when it is told, or sees a signature by them."""

    def __init__(self, keys: SimulatedKeys) -> None:
        self._keys: Final = keys
        self._rows: Final[dict[str, DirectoryRow]] = {}

    def look_again(self, name: str) -> None:
        """It asks what the keys of a server are now, as all do now and then."""
        self._rows.pop(name, None)

    async def row(self, name: str) -> DirectoryRow | None:
        """As `simserver.net.home_client.HomeClient.row`."""
        return self.row_at_hand(name)

    def row_at_hand(self, name: str) -> DirectoryRow | None:
        """As `row`: no server has to be asked here."""
        if name not in self._rows and (row := self._keys.row_at_hand(name)) is not None:
            self._rows[name] = row
        return self._rows.get(name)

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        """As `simserver.net.home_client.HomeClient.keys_of`."""
        row = await self.row(name)
        if row is not None and kid and not self._keys.parse(row).knows(kid):
            self.look_again(name)
            row = await self.row(name)
        return None if row is None else self._keys.parse(row)

    def keys_at_hand(self, name: str, kid: str = "") -> PublicIdentity | None:
        """As `simserver.net.home_client.HomeClient.keys_at_hand`."""
        row = self.row_at_hand(name)
        keys = None if row is None else self._keys.parse(row)
        return None if keys is None or (kid and not keys.knows(kid)) else keys

    def homes(self, instance: str) -> list[DirectoryRow]:
        """The rows of an instance's homeservers."""
        return self._keys.homes(instance)
