"""Who a client is: a player's name and its keys; without them an observer."""

import math
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.names import check_name
from batonpass.authority.wire.door import DOOR_VERSION, DoorChallenge, DoorHello, proof_statement
from batonpass.authority.wire.home_door import DoorEnrol
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity

__all__ = ["PlayerKey"]

PROOF_LIFETIME_S: Final = 60
_CLOCK: Final = Clock()


class PlayerKey:
    """A player's name and keys; neither of an observer. Raises ValueError: it is no name, or one without the other."""

    def __init__(self, name: str = "", identity: Identity | None = None) -> None:
        if bool(name) != (identity is not None):
            raise ValueError("a player has a name and keys; an observer has neither")
        self.name: Final = check_name(name) if name else ""
        self._identity: Final = identity

    def prove(self, challenge: DoorChallenge) -> DoorHello:
        """What is answered to a challenge."""
        if self._identity is None:
            return DoorHello(version=DOOR_VERSION)
        return DoorHello(version=DOOR_VERSION, player=self.name, proof=_proof(challenge, self.name, self._identity))

    def enrol(self, challenge: DoorChallenge, invitation: str) -> DoorEnrol:
        """What is answered to a challenge by a player that wants to be known. Raises ValueError: it is an observer."""
        if self._identity is None:
            raise ValueError("an observer is not enrolled: give a name and keys")
        keys = self._identity.public.to_jwks()["keys"][:2]
        proof = _proof(challenge, self.name, self._identity)
        return DoorEnrol(version=DOOR_VERSION, player=self.name, keys=keys, invitation=invitation, proof=proof)


def _proof(challenge: DoorChallenge, name: str, identity: Identity) -> str:
    statement = {**proof_statement(challenge), "expires_at_s": math.floor(_CLOCK.unix_s()) + PROOF_LIFETIME_S}
    return jose.sign(statement, sender=identity, sender_id=name)
