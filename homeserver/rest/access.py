"""Who may call what.

Reading is open to whoever reaches the address (loopback by default). Changing things takes the instance's client token
as a bearer token; what is done in a player's name takes that player's signature too. Changing the members of the
instance, and looking into actors, takes the operator token (`actors.operator`). Servers prove the join token.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from actors.web import ApiError
from crypto import jose
from crypto.errors import CryptoError
from homeserver.directory import Directory

__all__ = ["MAX_PROOF_LIFETIME_S", "check_player_proof", "client_access"]

# A statement that a player signed can be used once or many times until it expires; none may live longer than this.
MAX_PROOF_LIFETIME_S: Final = 300.0

_bearer = HTTPBearer(auto_error=False, description="the instance's client token")


def client_access(token: bytes) -> Callable[..., Awaitable[None]]:
    """A dependency that lets only holders of the client token through.

    It awaits nothing, but a plain function would be run in a worker thread, and there are no threads here.
    """

    async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
        if given is None:
            raise ApiError(401, "no_token", "this needs the client token: send 'Authorization: Bearer TOKEN'")
        if not secrets.compare_digest(given.credentials.encode("utf-8", "replace"), token):
            raise ApiError(403, "wrong_token", "this is not the client token of this instance")

    return check


async def check_player_proof(
    directory: Directory, player: str, proof: str, expected: dict[str, Any], now_s: float
) -> None:
    """Check that `player` signed exactly the statement `expected`, with an expiry that has not passed.

    Raises:
        ApiError: it did not; the code says what is wrong.
    """
    keys = await directory.keys_of(player)
    if keys is None:
        raise ApiError(404, "unknown_player", f"no keys are registered for {player}", player)
    try:
        if jose.peek_sender_untrusted(proof) != player:
            raise ApiError(403, "wrong_signer", f"the proof is not signed by {player}", player)
        statement = jose.verify_untrusted(proof, sender=keys)
    except CryptoError as error:
        raise ApiError(403, "bad_proof", f"the proof of {player} does not verify: {error}") from error
    expires_at_s = statement.pop("expires_at_s", None)
    if not isinstance(expires_at_s, int | float) or not now_s < expires_at_s <= now_s + MAX_PROOF_LIFETIME_S:
        text = f"the proof must carry expires_at_s within the next {MAX_PROOF_LIFETIME_S:.0f} s"
        raise ApiError(403, "proof_expired", text, expires_at_s)
    if statement != expected:
        different = sorted(k for k in statement.keys() | expected.keys() if statement.get(k) != expected.get(k))
        raise ApiError(403, "proof_mismatch", "the proof is about something else", ", ".join(different))
