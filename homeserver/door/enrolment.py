"""Players who come to the door with an invitation, or where the instance is open: what is looked at before the log is.

The log counts the uses (`authority.procedures.enrolment`). So that strangers cost it nothing, this member looks first
whether it knows an invitation of this secret, and how often an address has come without one.
"""

import secrets
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.enrolment import DoorGrant, Enrolled
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.rate_limit import Pace, Rate, spent_of
from batonpass.authority.wire.door import DoorChallenge
from batonpass.authority.wire.door_entry import check_entering_proof_untrusted, check_version
from batonpass.authority.wire.home_door import DoorEnrol
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.config import OpenEnrolment
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.rest.enrolments import invitation_untrusted
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["OPEN_RATE", "Enrolment"]

OPEN_RATE: Final = Rate(burst=16, per_s=0.2)
"""How many players of one address may come to this member without an invitation."""
MAX_PLACES: Final = 4096


class Enrolment:
    """One member's part.

    Args:
        instance: whose players may be enrolled.
        open_to: who may come without an invitation; None for no player.
    """

    def __init__(self, instance: str, store: InstanceStore, clock: Clock, open_to: OpenEnrolment | None) -> None:
        self._instance: Final = instance
        self._store: Final = store
        self._clock: Final = clock
        self._open_to: Final = open_to
        self._paces: Final[LruTable[str, Pace]] = LruTable(MAX_PLACES)

    async def enrol(self, asked: DoorEnrol, challenge: DoorChallenge, place: str) -> tuple[Enrolled, str]:
        """Have a player's keys registered, and what it may do; that, and which key it has proved.

        Raises:
            DoorRefused: `other_version`, `wrong_home`, `bad_keys`, `bad_proof`, `proof_expired`, `bad_invitation`,
                `not_invited`, `too_often`, `key_conflict`, `full`, `home_unreachable`.
        """
        check_version(asked.version, challenge)
        if instance_of(asked.player) != self._instance:
            raise DoorRefused("wrong_home", f"{asked.player} is enrolled at a homeserver of its own instance")
        keys = _keys_untrusted(asked)
        now_s = self._clock.unix_s()
        check_entering_proof_untrusted(asked.proof, asked.player, keys, challenge, now_s)
        row = DirectoryRow(name=asked.player, role=Role.PLAYER, keys=keys.to_jwks())
        try:
            name, digest, grant = "", "", None
            if asked.invitation:
                name, digest = invitation_untrusted(asked.invitation)
                await self._check_known(name, digest)
            else:
                grant = self._open(asked.player, place).to_data()
            data = await self._store.submit(
                "player.enrol", row=row.to_data(), invitation=name, digest=digest, grant=grant, now_s=now_s
            )
        except Refused as refused:
            raise DoorRefused(refused.reason.value, refused.sentence) from refused
        except (NoQuorum, OutcomeUnknown) as error:
            raise DoorRefused("home_unreachable", f"{error}: enrol again, which takes no other use") from error
        return Enrolled.from_data(data), keys.signing_kid

    async def _check_known(self, name: str, digest: str) -> None:
        """Raises DoorRefused unless there is, or was, an invitation with this secret."""
        invitation = self._store.invitation(name)
        if invitation is None:
            await self._store.confirmed()
            invitation = self._store.invitation(name)
        if invitation is None or not secrets.compare_digest(invitation.digest, digest):
            raise DoorRefused(Reason.BAD_INVITATION, "this invitation is not good: there is no such invitation")

    def _open(self, player: str, place: str) -> DoorGrant:
        """What one may do that comes without an invitation. Raises DoorRefused, Refused."""
        if self._open_to is None:
            raise DoorRefused("not_invited", "players come here by invitation only")
        if not self._open_to.takes_player(player):
            text = f"without an invitation players come here under names like {self._open_to.players}"
            raise DoorRefused("not_invited", text)
        if self._store.row(player) is None:
            now_s = self._clock.monotonic_ns() / 1e9
            self._paces[place] = spent_of(self._paces.get(place), place, now_s, OPEN_RATE)
        return self._open_to.grant()


def _keys_untrusted(asked: DoorEnrol) -> PublicIdentity:
    try:
        return PublicIdentity.from_jwks_untrusted({"keys": asked.keys})
    except CryptoError as error:
        raise DoorRefused("bad_keys", str(error)) from error
