"""Whether this instance's log is the one that its simulation servers know; see `authority.trust.signed_positions`.

A log that was restored from an older copy gives fences and incarnations again that were given before. That cannot be
seen in the log itself. What shows it is a position that a homeserver of this instance has signed and that the log has
never been at. A mere statement proves nothing: a server that lies can stop only itself.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import instance_of
from batonpass.authority.trust.signed_positions import (
    OFFICE_MARKS,
    LogPlace,
    LogPosition,
    has_been_at,
    is_in_log,
    place_of,
)
from batonpass.authority.wire.queries import place_in_untrusted
from batonpass.authority.wire.sealing import Sealer
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import PublicIdentity
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["LogPositions", "new_mark"]

T = TypeVar("T")

_log = logging.getLogger("batonpass.homeserver.log.log_positions")

# A signature takes some 60 us; all servers may have the same.
SIGN_EVERY_NS: Final = 500_000_000
# Positions that were verified: servers name the last or the last but one, of the present office or one before.
MAX_READ: Final = 1024


def new_mark() -> str:
    """A random mark for an office of granting leases that is about to begin."""
    return secrets.token_hex(16)


class LogPositions:
    """One member's signed positions, and its look at those that servers come with."""

    def __init__(
        self, sealer: Sealer, store: InstanceStore, parse: Callable[[DirectoryRow], PublicIdentity | None], clock: Clock
    ) -> None:
        self._sealer: Final = sealer
        self._store: Final = store
        self._parse: Final = parse
        self._clock: Final = clock
        self._instance: Final = instance_of(sealer.name)
        self._signed = (0, "", "")
        self._signed_ns = 0
        # For servers of other instances, and the place that it says.
        self._shown: tuple[LogPlace | None, str, str] = (None, "", "")
        self._read: FifoTable[tuple[str, str], LogPosition] = FifoTable(MAX_READ)
        self._witnessed: FifoTable[tuple[str, str], LogPlace] = FifoTable(MAX_READ)

    def now(self, office: int) -> str:
        """Where the log is, under an office that is this member's; signed at most so long ago as `SIGN_EVERY_NS`.

        Empty if the office has no mark: it was taken before there were any.
        """
        kid, now_ns = self._sealer.identity.public.signing_kid, self._clock.monotonic_ns()
        if self._signed[:2] == (office, kid) and now_ns - self._signed_ns < SIGN_EVERY_NS:
            return self._signed[2]
        if self._store.lease_office().number != office or (position := self._position(office)) is None:
            return ""
        token = self._signed_word(position)
        self._read[token, kid] = position
        self._signed, self._signed_ns = (office, kid, token), now_ns
        return token

    def _position(self, office: int) -> LogPosition | None:
        """Where this member's copy is, under the office of this number, the last one; None if that has no mark."""
        tree = self._store.tree
        marked = tree.get_or((OFFICE_MARKS, str(office)), None)
        if marked is None:
            return None
        return LogPosition(instance=self._instance, office=office, mark=marked["mark"], revision=tree.revision)

    def _signed_word(self, position: LogPosition) -> str:
        return jose.sign(position.to_claims(), sender=self._sealer.identity, sender_id=self._sealer.name)

    def shown_to(self, receiver: str) -> str:
        """Where the log stands by this member's copy, signed, for a server of another instance; else empty.

        What such a server was told last is proved by it to this instance's homes alone, by what they have signed: so
        it is signed anew with every change, at some 60 us.
        """
        if instance_of(receiver) == self._instance:
            return ""
        place, kid = place_of(self._store.tree), self._sealer.identity.public.signing_kid
        if place is None:
            return ""
        if self._shown[:2] != (place, kid):
            position = self._position(place.office)
            self._shown = (place, kid, "" if position is None else self._signed_word(position))
        return self._shown[2]

    def place_for(self, receiver: str) -> str:
        """Where the log stands by this member's copy, for what is sealed for a server of this instance; else empty.

        A server that is told of a decision is told with it where the log stands, which is behind the decision by then.
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

    def has_been_at_untrusted(self, token: str) -> bool:
        """Whether this copy of the log has been at the position in `token`; false of what proves nothing, too.

        Asked after the store was `confirmed`. What was accepted as lost was not there all the same.
        """
        try:
            return has_been_at(self._store.tree, self.read_untrusted(token))
        except MessageError:
            return False

    def is_of_another_history(self, token: str) -> bool:
        """Whether the position in `token` is proved, and this copy of the log has not been there, accepted or not."""
        try:
            return not has_been_at(self._store.tree, self.read_untrusted(token))
        except MessageError:
            return False

    async def missing_of(self, tokens: Sequence[str]) -> LogPlace | None:
        """A place that one of these proves, where the log has never been; None if there is none, or nothing is proved.

        Raises:
            NoQuorum: whether the log has been there is not known.
        """
        places = []
        for token in tokens:
            try:
                places.append(self.witnessed_untrusted(token))
            except MessageError as error:
                # Its keys may have been replaced, or it is made up; others may say something.
                _log.info("a witness of where the log was says nothing: %s", error)
        if not all(is_in_log(self._store.tree, place) for place in places):
            await self._store.confirmed()
        return next((place for place in places if not is_in_log(self._store.tree, place)), None)

    def witnessed_untrusted(self, token: str) -> LogPlace:
        """Where the log was by what a homeserver of this instance has signed: a position, or a commit's certificate.

        Raises:
            MessageError: as `read_untrusted`.
        """
        known, key, claims = self._read_untrusted(token, self._witnessed)
        if known is not None:
            return known
        instance, place = place_in_untrusted(claims)
        self._check_ours(instance)
        self._witnessed[key] = place
        return place

    def read_untrusted(self, token: str) -> LogPosition:
        """What a homeserver of this instance has signed.

        Raises:
            MessageError: it is no position, of another instance, or not signed by a key that is good now.
        """
        known, key, claims = self._read_untrusted(token, self._read)
        if known is not None:
            return known
        position = LogPosition.from_claims_untrusted(claims)
        self._check_ours(position.instance)
        self._read[key] = position
        return position

    def _read_untrusted(self, token: str, table: Mapping[tuple[str, str], T]) -> tuple[T | None, tuple[str, str], Any]:
        """What is in the table of this token, or else its verified claims; and under which key it is kept there."""
        try:
            signer, kid = jose.peek_untrusted(token)
            if (known := table.get((token, kid))) is not None:
                return known, (token, kid), None
            keys = self._keys_of(signer)
            return None, (token, kid), jose.verify_untrusted(token, sender=keys, now_s=self._clock.unix_s())
        except CryptoError as error:
            raise MessageError(f"a position of the log does not verify: {error}") from error

    def _check_ours(self, instance: str) -> None:
        if instance != self._instance:
            raise MessageError(f"a position of the log of {instance}, not of {self._instance}")

    def _keys_of(self, signer: str) -> PublicIdentity:
        if signer == self._sealer.name:
            return self._sealer.identity.public
        row = self._store.row(signer)
        if row is None or row.role is not Role.HOMESERVER:
            raise MessageError(f"a position of the log by {signer}, which is no homeserver of {self._instance}")
        keys = self._parse(row)
        if keys is None:
            raise MessageError(f"a position of the log by {signer}, whose keys cannot be read")
        return keys
