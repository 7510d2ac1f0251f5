"""Whether this instance's log is the one that its simulation servers know; see `authority.log_positions`.

A log that was restored from an older copy gives fences and incarnations again that were given before. Nobody can see
that in the log itself. What shows it is a position that a homeserver of this instance has signed and that the log has
never been at. Who merely says so proves nothing: a server that lies can stop nobody but itself.
"""

from collections import OrderedDict
from typing import Final

from actors.clock import Clock
from authority.errors import MessageError
from authority.log_positions import OFFICE_MARKS, LogPlace, LogPosition, is_in_log, place_of
from authority.names import instance_of
from authority.records import Role
from authority.sealing import Sealer
from crypto import jose
from crypto.errors import CryptoError
from crypto.keys import PublicIdentity
from homeserver.store import Store

__all__ = ["LogPositions"]

# A signature takes some 60 us; all servers may have the same.
SIGN_EVERY_NS: Final = 500_000_000
# Positions that were verified: servers name the last or the last but one, of the present office or one before.
MAX_READ: Final = 1024


class LogPositions:
    """One member's signed positions, and its look at those that servers come with."""

    def __init__(self, sealer: Sealer, store: Store, clock: Clock) -> None:
        self._sealer: Final = sealer
        self._store: Final = store
        self._clock: Final = clock
        self._instance: Final = instance_of(sealer.name)
        self._signed = (0, "", "")
        self._signed_ns = 0
        self._read: OrderedDict[tuple[str, str], LogPosition] = OrderedDict()

    def now(self, office: int) -> str:
        """Where the log is, under an office that is this member's; signed at most so long ago as `SIGN_EVERY_NS`.

        Empty if the office has no mark: it was taken before there were any.
        """
        kid, now_ns = self._sealer.identity.public.signing_kid, self._clock.monotonic_ns()
        if self._signed[:2] == (office, kid) and now_ns - self._signed_ns < SIGN_EVERY_NS:
            return self._signed[2]
        tree = self._store.tree
        marked = tree.get_or((OFFICE_MARKS, str(office)), None)
        if marked is None or self._store.lease_office().number != office:
            return ""
        position = LogPosition(instance=self._instance, office=office, mark=marked["mark"], revision=tree.revision)
        token = jose.sign(position.to_claims(), sender=self._sealer.identity, sender_id=self._sealer.name)
        self._remember(token, kid, position)
        self._signed, self._signed_ns = (office, kid, token), now_ns
        return token

    def place_for(self, receiver: str) -> str:
        """Where the log stands by this member's copy, for what is sealed for a server of this instance; else empty.

        Whoever is told of a decision is told with it where the log stands, which is behind the decision by then.
        """
        if instance_of(receiver) != self._instance:
            return ""
        place = place_of(self._store.tree)
        return "" if place is None else str(place)

    async def lacking(self, said: str) -> str:
        """Those of these places where the log has never been; of texts of `LogPlace` with spaces between them.

        Raises:
            NoQuorum: that is not known.
        """
        places = [place for text in said.split() if (place := LogPlace.read(text)) is not None]
        if not all(is_in_log(self._store.tree, place) for place in places):
            # What this member's copy lacks may be in the log.
            await self._store.confirmed()
        return " ".join(str(place) for place in places if not is_in_log(self._store.tree, place))

    async def missing(self, token: str) -> LogPosition | None:
        """The position in `token` if it is proved, and the log has never been there; None if nothing is wrong.

        Raises:
            MessageError: it proves nothing.
            NoQuorum: whether the log has been there is not known.
        """
        position = self.read_untrusted(token)
        if not is_in_log(self._store.tree, position):
            # What this member's copy lacks may be in the log.
            await self._store.confirmed()
            if not is_in_log(self._store.tree, position):
                return position
        return None

    def read_untrusted(self, token: str) -> LogPosition:
        """What a homeserver of this instance has signed.

        Raises:
            MessageError: it is no position, of another instance, or not signed by a key that is good now.
        """
        try:
            signer, kid = jose.peek_untrusted(token)
            if (known := self._read.get((token, kid))) is not None:
                return known
            keys = self._keys_of(signer)
            claims = jose.verify_untrusted(token, sender=keys, now_s=self._clock.unix_s())
        except CryptoError as error:
            raise MessageError(f"a position of the log does not verify: {error}") from error
        position = LogPosition.from_claims_untrusted(claims)
        if position.instance != self._instance:
            raise MessageError(f"a position of the log of {position.instance}, not of {self._instance}")
        self._remember(token, kid, position)
        return position

    def _keys_of(self, signer: str) -> PublicIdentity:
        if signer == self._sealer.name:
            return self._sealer.identity.public
        row = self._store.row(signer)
        if row is None or row.role is not Role.HOMESERVER:
            raise MessageError(f"a position of the log by {signer}, which is no homeserver of {self._instance}")
        return PublicIdentity.from_jwks_untrusted(row.keys)

    def _remember(self, token: str, kid: str, position: LogPosition) -> None:
        self._read[token, kid] = position
        if len(self._read) > MAX_READ:
            self._read.popitem(last=False)
