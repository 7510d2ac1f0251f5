"""Who a client is: a player's name and its keys; without them an observer. And the session that spares it proofs."""

import math
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.names import check_name
from batonpass.authority.wire.door import DoorChallenge, DoorHello, proof_statement, version_for
from batonpass.authority.wire.home_door import DoorEnrol
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity

__all__ = ["PlayerKey", "PlayerSession"]

PROOF_LIFETIME_S: Final = 60
SESSION_SHARE: Final = 0.9
"""Of its time, after which a session is not shown any more: it has to be good when it arrives."""
_CLOCK: Final = Clock()


class PlayerSession:
    """The session that home gave last, which every door takes in place of a proof (docs/reference/players-door.md)."""

    def __init__(self) -> None:
        self._token = b""
        self._until_s = 0.0

    def given(self, token: bytes, token_s: float, now_s: float) -> None:
        """Home has given a session, which is good for `token_s`; an empty one says that the key is to be proved."""
        self._token, self._until_s = token, now_s + SESSION_SHARE * token_s

    def at(self, now_s: float) -> bytes:
        """What may be shown at a door now; empty if there is nothing."""
        return self._token if now_s < self._until_s else b""

    def forget(self) -> None:
        """It is not good any more."""
        self._token = b""


class PlayerKey:
    """A player's name and keys; neither of an observer. Raises ValueError: it is no name, or one without the other."""

    def __init__(self, name: str = "", identity: Identity | None = None) -> None:
        if bool(name) != (identity is not None):
            raise ValueError("a player has a name and keys; an observer has neither")
        self.name: Final = check_name(name) if name else ""
        self._identity: Final = identity

    def prove(self, challenge: DoorChallenge, session: bytes = b"") -> DoorHello:
        """What is answered to a challenge: a proof of the key, unless there is a session."""
        version = version_for(challenge)
        if self._identity is None:
            return DoorHello(version=version)
        if session:
            return DoorHello(version=version, player=self.name, token=session)
        return DoorHello(version=version, player=self.name, proof=_proof(challenge, self.name, self._identity))

    def enrol(self, challenge: DoorChallenge, invitation: str) -> DoorEnrol:
        """What is answered to a challenge by a player that wants to be known. Raises ValueError: it is an observer."""
        if self._identity is None:
            raise ValueError("an observer is not enrolled: give a name and keys")
        keys = self._identity.public.to_jwks()["keys"][:2]
        proof = _proof(challenge, self.name, self._identity)
        return DoorEnrol(
            version=version_for(challenge), player=self.name, keys=keys, invitation=invitation, proof=proof
        )


def _proof(challenge: DoorChallenge, name: str, identity: Identity) -> str:
    statement = {**proof_statement(challenge), "expires_at_s": math.floor(_CLOCK.unix_s()) + PROOF_LIFETIME_S}
    return jose.sign(statement, sender=identity, sender_id=name)
