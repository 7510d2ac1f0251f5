"""Who may come in at the players' door: players that prove their keys, and observers where an instance permits them.

A proof is a JWS (RFC 7515, ES256) by the player's own key over the challenge of this very connection and the name of
this server (`authority.wire.door.proof_statement`), so it is worth nothing anywhere else. After that a token, which
this process alone knows, spares a player that comes back the signature and its verification.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import trio

from batonpass.authority.model.records import Role
from batonpass.authority.wire.door import DOOR_VERSION, DoorChallenge, DoorHello, proof_statement
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.simserver.net.home_client import HomeRefused, HomeUnreachable
from batonpass.simserver.players.connection import DoorRefused

__all__ = ["Entrance"]

TOKEN_S: Final = 300.0
MAX_TOKENS: Final = 8192
MAX_PROOF_LIFETIME_S: Final = 300.0
_TOKEN_BYTES: Final = 32
# Whose keys are asked for at a time: strangers that name anybody must not keep the home instance busy.
_LOOK_UPS: Final = 8


class _Row(Protocol):
    @property
    def role(self) -> Role: ...


class _Token(NamedTuple):
    player: str
    until_ns: int


class Entrance:
    """Lets clients in, or not.

    Args:
        row: who bears a name, by the directory; None if nobody does.
        keys: the keys of a name that are good now; None if there are none.
        monotonic_ns: by which tokens end.
        unix_s: by which proofs end.
        observers: whether those may come in that are nobody.
    """

    def __init__(
        self,
        row: Callable[[str], Awaitable[_Row | None]],
        keys: Callable[[str], Awaitable[PublicIdentity | None]],
        monotonic_ns: Callable[[], int],
        unix_s: Callable[[], float],
        *,
        observers: bool,
    ) -> None:
        self._row: Final = row
        self._keys: Final = keys
        self._monotonic_ns: Final = monotonic_ns
        self._unix_s: Final = unix_s
        self._observers: Final = observers
        self._look_ups: Final = trio.Semaphore(_LOOK_UPS)
        self._tokens: Final[LruTable[bytes, _Token]] = LruTable(MAX_TOKENS)

    @property
    def token_s(self) -> float:
        """For how long a token is good."""
        return TOKEN_S

    async def enter(self, hello: DoorHello, challenge: DoorChallenge) -> tuple[str, bytes]:
        """Let a client in: its name, empty for an observer, and a token for the next time.

        Raises:
            DoorRefused: `other_version`, `no_observers`, `bad_token`, `unknown_player`, `bad_proof`, `proof_expired`,
                `home_unreachable`.
        """
        if hello.version != DOOR_VERSION:
            raise DoorRefused("other_version", f"this door speaks version {DOOR_VERSION}, not {hello.version}")
        if hello.token:
            player = self._of_token(hello)
        elif hello.player:
            await self._prove(hello, challenge)
            player = hello.player
        elif self._observers:
            return "", b""
        else:
            raise DoorRefused("no_observers", "this server lets nobody look on: enter as a player (player_observers)")
        token = secrets.token_bytes(_TOKEN_BYTES)
        self._tokens[token] = _Token(player, self._monotonic_ns() + round(TOKEN_S * 1e9))
        return player, token

    def _of_token(self, hello: DoorHello) -> str:
        # Once: who finds it later, on a disk say, has nothing.
        found = self._tokens.pop(hello.token, None)
        if found is None or found.player != hello.player or self._monotonic_ns() > found.until_ns:
            raise DoorRefused("bad_token", "this token is not good any more: prove your key")
        return found.player

    async def _prove(self, hello: DoorHello, challenge: DoorChallenge) -> None:
        player = hello.player
        try:
            async with self._look_ups:
                row = await self._row(player)
                keys = None if row is None or row.role is not Role.PLAYER else await self._keys(player)
        except (HomeUnreachable, HomeRefused) as error:
            raise DoorRefused("home_unreachable", f"the keys of {player} cannot be asked for now: {error}") from error
        if keys is None:
            raise DoorRefused("unknown_player", f"no keys are registered for a player {player}")
        statement = _verified(hello.proof, player, keys)
        expires_at_s, now_s = statement.pop("expires_at_s", None), self._unix_s()
        if not isinstance(expires_at_s, int | float) or not now_s < expires_at_s <= now_s + MAX_PROOF_LIFETIME_S:
            text = f"a proof has expires_at_s within {MAX_PROOF_LIFETIME_S:.0f} s, and it is {now_s:.0f} here"
            raise DoorRefused("proof_expired", text)
        if statement != proof_statement(challenge):
            raise DoorRefused("bad_proof", f"the proof of {player} is not about this challenge of this server")


def _verified(proof: str, player: str, keys: PublicIdentity) -> dict[str, Any]:
    try:
        if jose.peek_sender_untrusted(proof) != player:
            raise DoorRefused("bad_proof", f"the proof is not signed by {player}")
        return jose.verify_untrusted(proof, sender=keys)
    except CryptoError as error:
        raise DoorRefused("bad_proof", f"the proof of {player} does not verify: {error}") from error
