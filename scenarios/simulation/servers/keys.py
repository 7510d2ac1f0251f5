"""Keys that cost next to nothing, and the directory of all of them.

A run signs and verifies thousands of certificates; with ECDSA that would be most of its time. Here a signature is a
keyed hash, so that what was signed is recognised and nothing else is; all of `crypto` around it is the real one.
"""

import hashlib
from functools import cache
from typing import Any, Final, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from authority.names import instance_of
from authority.records import DirectoryRow, Role
from crypto.keys import Identity, PublicIdentity

__all__ = ["Keys", "homes_of", "identity_of"]

_HOMES: Final = 2


def homes_of(instance: str) -> tuple[str, ...]:
    """The homeservers of an instance."""
    return tuple(f"{instance}.h{number + 1}" for number in range(_HOMES))


def _hashed(number: int, data: bytes) -> bytes:
    keyed = hashlib.blake2b(data, key=number.to_bytes(64, "big"), digest_size=32).digest()
    return encode_dss_signature(int.from_bytes(keyed, "big"), 1)


class _Verifying:
    """The public half, with a point for whoever wants to name it."""

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
def identity_of(name: str) -> Identity:
    """The keys of the server of this name, the same ones in every run."""
    number = int.from_bytes(name.encode(), "big")
    return Identity(cast(Any, _Signing(number)), ec.derive_private_key(number + 1, ec.SECP256R1()))


class Keys:
    """The key directory, as both kinds of server ask for it; nobody waits for an answer."""

    def __init__(self, servers: tuple[str, ...]) -> None:
        homes = [name for instance in dict.fromkeys(map(instance_of, servers)) for name in homes_of(instance)]
        self._rows: Final = {
            name: DirectoryRow(
                name=name,
                role=Role.HOMESERVER if name in homes else Role.SIMSERVER,
                keys=identity_of(name).public.to_jwks(),
                link_port=1,
            )
            for name in (*servers, *homes)
        }

    async def row(self, name: str) -> DirectoryRow | None:
        """The row of a server, or None."""
        return self._rows.get(name)

    async def keys_of(self, name: str, kid: str = "") -> PublicIdentity | None:
        """The keys of a server, or None."""
        return identity_of(name).public if name in self._rows else None

    def parse(self, row: DirectoryRow) -> PublicIdentity | None:
        """The keys in a row."""
        return identity_of(row.name).public

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
