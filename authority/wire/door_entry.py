"""Who may come in at a door of a server: players that prove their keys, and observers where an instance permits them.

A proof is a JWS (RFC 7515, ES256) by the player's own key over the challenge of this very connection and the name of
this server (`authority.wire.door.proof_statement`). So it is worth nothing anywhere else.

After that a *session* spares a player the proof at any door for a while. It is a statement of a homeserver of the
player's home: that this player has proved the key `kid` at a time. So it is as good as that server's word about who
bears a name, on which everything rests that the player signs. Simulation servers give none, since a stolen one could
make itself any player. It ends with its time, and with the key.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.model.records import Role
from batonpass.authority.names import instance_of
from batonpass.authority.wire.door import DoorChallenge, DoorHello, proof_statement
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import Identity, PublicIdentity

__all__ = [
    "MAX_PROVED_S",
    "SESSION_S",
    "DoorEntry",
    "Entered",
    "check_entering_proof_untrusted",
    "check_version",
    "sign_session",
]

SESSION_S: Final = 300.0
"""How long a session is good."""
MAX_PROVED_S: Final = 12 * 3600.0
"""How long after the key was proved there are sessions."""
MAX_PROOF_LIFETIME_S: Final = 300.0


Known = tuple[Role | None, PublicIdentity | None]
"""What bears a name, by the directory, and its keys that are good now; None for what there is not."""


class Entered(NamedTuple):
    """Who came in: empty for an observer. With which key, and when that was proved (Unix time)."""

    player: str = ""
    kid: str = ""
    proved_at_s: float = 0.0


class DoorEntry:
    """Lets clients in at one door, or not.

    Args:
        known: looks a name up. Raises DoorRefused (`home_unreachable`) where that is not possible now.
        unix_s: by which proofs and sessions end.
        observers: whether those may come in that have no name.
    """

    def __init__(
        self, known: Callable[[str], Awaitable[Known]], unix_s: Callable[[], float], *, observers: bool
    ) -> None:
        self._known: Final = known
        self._unix_s: Final = unix_s
        self._observers: Final = observers

    async def enter(self, hello: DoorHello, challenge: DoorChallenge) -> Entered:
        """Let a client in.

        Raises:
            DoorRefused: `other_version`, `bad_message`, `no_observers`, `bad_token`, `unknown_player`, `bad_proof`,
                `proof_expired`, `home_unreachable`.
        """
        check_version(hello.version, challenge)
        if (hello.token and hello.proof) or ((hello.token or hello.proof) and not hello.player):
            # Who says half of it would come in under another name than it thinks.
            raise DoorRefused("bad_message", "a hello has a player with a proof or a session, or none of the three")
        if hello.token:
            return await self._by_session(hello)
        if hello.player:
            keys = await self._keys_of(hello.player)
            check_entering_proof_untrusted(hello.proof, hello.player, keys, challenge, self._unix_s())
            return Entered(hello.player, jose.peek_key_untrusted(hello.proof), self._unix_s())
        if self._observers:
            return Entered()
        raise DoorRefused("no_observers", "this server lets no observers in: enter as a player (player_observers)")

    async def _keys_of(self, player: str) -> PublicIdentity:
        role, keys = await self._known(player)
        if role is not Role.PLAYER or keys is None:
            raise DoorRefused("unknown_player", f"no keys are registered for a player {player}")
        return keys

    async def _by_session(self, hello: DoorHello) -> Entered:
        player, token = hello.player, hello.token.decode("ascii", "replace")
        signer = _signer_untrusted(token, player)
        keys = await self._keys_of(player)
        role, signer_keys = await self._known(signer)
        if role is not Role.HOMESERVER or signer_keys is None:
            raise _no_session(f"{signer} is no homeserver that is known here")
        return _session_untrusted(token, player, keys, signer_keys, self._unix_s())


def check_version(version: int, challenge: DoorChallenge) -> None:
    """Raise DoorRefused (`other_version`) unless the challenge has offered this version of the protocol."""
    if version not in challenge.versions:
        spoken = " or ".join(map(str, challenge.versions))
        raise DoorRefused("other_version", f"this door speaks version {spoken}, not {version}")


def check_entering_proof_untrusted(
    proof: str, player: str, keys: PublicIdentity, challenge: DoorChallenge, now_s: float
) -> None:
    """Check that a player has signed the challenge of this connection.

    Raises:
        DoorRefused: `bad_proof`, `proof_expired`.
    """
    try:
        if jose.peek_sender_untrusted(proof) != player:
            raise DoorRefused("bad_proof", f"the proof is not signed by {player}")
        statement = jose.verify_untrusted(proof, sender=keys)
    except CryptoError as error:
        raise DoorRefused("bad_proof", f"the proof of {player} does not verify: {error}") from error
    expires_at_s = statement.pop("expires_at_s", None)
    if not _is_number(expires_at_s) or not now_s < expires_at_s <= now_s + MAX_PROOF_LIFETIME_S:
        text = f"a proof has expires_at_s within {MAX_PROOF_LIFETIME_S:.0f} s, and it is {now_s:.0f} here"
        raise DoorRefused("proof_expired", text)
    if statement != proof_statement(challenge):
        raise DoorRefused("bad_proof", f"the proof of {player} is not about this challenge of this server")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- sessions -----------------------------------------------------------------------------------------------------


def sign_session(entered: Entered, *, signer: Identity, signer_id: str, now_s: float) -> bytes:
    """A session of a player that came in, from now on; empty if its key was proved too long ago, or in the future."""
    if not entered.player or not now_s - MAX_PROVED_S < entered.proved_at_s <= now_s:
        return b""
    statement = {
        "action": "session",
        "player": entered.player,
        "kid": entered.kid,
        "proved_at_s": entered.proved_at_s,
        "expires_at_s": now_s + SESSION_S,
    }
    return jose.sign(statement, sender=signer, sender_id=signer_id).encode("ascii")


def _signer_untrusted(token: str, player: str) -> str:
    """Who says to have signed a session, which has to be of the player's home; nothing is proved by that."""
    try:
        signer = jose.peek_sender_untrusted(token)
        if instance_of(signer) != instance_of(player):
            raise _no_session(f"{signer} is not of the home of {player}")
    except (CryptoError, ValueError) as error:
        raise _no_session("this is no session") from error
    return signer


def _session_untrusted(
    token: str, player: str, keys: PublicIdentity, signer_keys: PublicIdentity, now_s: float
) -> Entered:
    try:
        statement = jose.verify_untrusted(token, sender=signer_keys)
    except CryptoError as error:
        raise _no_session(f"it does not verify: {error}") from error
    match statement:
        case {"action": "session", "player": said, "kid": str(kid), "proved_at_s": proved, "expires_at_s": expires}:
            pass
        case _:
            raise _no_session("this is another statement")
    if said != player or not (_is_number(proved) and _is_number(expires)):
        raise _no_session(f"it is not that of {player}")
    _check_times(proved, expires, now_s)
    if kid in keys.revoked or not keys.knows(kid):
        raise _no_session(f"the key with which {player} came in then is not good any more")
    return Entered(player, kid, proved)


def _check_times(proved_at_s: float, expires_at_s: float, now_s: float) -> None:
    is_proved = now_s - MAX_PROVED_S < proved_at_s <= expires_at_s
    if not is_proved or not now_s < expires_at_s <= now_s + 2 * SESSION_S:
        raise _no_session("its time is over")


def _no_session(why: str) -> DoorRefused:
    return DoorRefused("bad_token", f"this session is not good: {why}; prove your key")
