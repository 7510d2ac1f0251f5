"""Which keys this server has seen for which name, and what it takes for it to believe in others.

The first row that is shown for a name is believed and pinned. A later one is believed when it follows from the pin
(`crypto.continuity`). Either each version of the keys is signed with those of the version before. Or they were reset,
with the reason, by a homeserver of its own instance that is pinned here too, with a key that is good now. Anything else
is refused, and the pinned keys stay in use. So neither a relay nor a directory can put other keys under a name that has
been used once, nor bring back earlier ones.

Which keys of that homeserver are good now its pin does not tell: it may be old. So a server that is shown a reset looks
the homeserver's own row up first, has it believed, and names it in `current` (`Pins.believed`).

A name has one role for ever; the roles of others are what certificates and orders are judged by.

Proofs by a shared secret: that a server belongs to an instance, and that a directory answer comes from one.

Both sides write what is proved as the same bytes (JSON with sorted keys), so the proofs stand in one place for both.
"""

import hmac
import json
import logging
from collections import Counter
from collections.abc import Collection
from itertools import chain
from typing import Any, Final

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.names import BadName, check_name, instance_of
from batonpass.crypto import mac
from batonpass.crypto.bounded_tables import LruTable
from batonpass.crypto.continuity import Pin, Published, first_pin, follow_untrusted, newest_reset_untrusted
from batonpass.crypto.errors import CryptoError, KeyConflict, KeyFileError
from batonpass.crypto.keys import PublicIdentity
from batonpass.crypto.pin_file import PinFile, PinRecord

__all__ = [
    "CLOCK",
    "DIRECTORY",
    "MAX_INSTANCES",
    "MAX_PINNED_PLAYERS",
    "MAX_PINNED_SERVERS",
    "Pins",
    "address_claims",
    "federation_clock_purpose",
    "federation_purpose",
    "is_proof",
    "published",
    "registration_proof",
    "rows_proof",
]

_log = logging.getLogger("batonpass.authority.trust.key_pinning")

# Each instance fills, and forgets, only its own share: with names that it makes up it can push out its own alone.
MAX_PINNED_SERVERS: Final = 10_000
MAX_PINNED_PLAYERS: Final = 100_000
MAX_INSTANCES: Final = 64
# Of the latest names whose keys were refused, for people to look at.
MAX_CONFLICTS: Final = 100


def published(row: DirectoryRow) -> Published:
    """What a row says about keys. Raises CryptoError when it holds none that can be read."""
    return Published(row.version, PublicIdentity.from_jwks_untrusted(row.keys), row.statements)


class Pins:
    """The pins of one server; kept in `file`, when there is one.

    Raises KeyFileError when the file cannot be used.
    """

    def __init__(self, file: PinFile | None = None) -> None:
        self._file: Final = file
        self._shares: dict[tuple[str, bool], LruTable[str, PinRecord]] = {}
        self.counts: Final[Counter[str]] = Counter()
        """`keys_pinned`, `keys_followed`, `keys_reset`, `keys_revoked`, `keys_refused`: how often each has happened.
        `pins_not_written`: how often a pin was kept in memory alone, because the disk did not take it."""
        self.conflicts: Final[LruTable[str, str]] = LruTable(MAX_CONFLICTS)
        """Names whose keys were refused lately, and why."""
        for record in () if file is None else file.load().values():
            self._share(record.name, Role(record.role))[record.name] = record

    def __len__(self) -> int:
        return sum(len(share) for share in self._shares.values())

    def pin_of(self, name: str) -> Pin | None:
        """What is pinned of a name, or None."""
        record = self._record(name)
        return None if record is None else record.pin

    def role_of(self, name: str) -> Role | None:
        """In which role a name is pinned, or None; it is believed in no other."""
        record = self._record(name)
        return None if record is None else Role(record.role)

    def resetter_of(self, row: DirectoryRow) -> str | None:
        """The pinned homeserver whose word the row asks us to take: look up its own row before this one is believed."""
        known = self._record(row.name)
        if known is None:
            return None
        found = newest_reset_untrusted(row.statements, known.pin.version)
        return found.signer if found is not None and self._may_reset(found.signer, row.name) else None

    def believed(self, row: DirectoryRow, *, now_s: float, current: Collection[str] = ()) -> DirectoryRow:
        """The row with the keys to use for its name: those it shows if they are believed, else those that are pinned.

        `now_s` is Unix time; `current` are homeservers whose own rows have been believed just now (`resetter_of`).

        Raises KeyConflict when nothing of it can be used. Its keys are refused and none are pinned, or it shows a name
        in another role than before.
        """
        try:
            self.accept(row, now_s=now_s, current=current)
        except KeyConflict as error:
            self.counts["keys_refused"] += 1
            if self.conflicts.get(row.name) != str(error):
                _log.error("%s", error)
            self.conflicts[row.name] = str(error)
            record = self._record(row.name)
            if record is None or record.role != row.role:
                raise
            pin = record.pin
            return row.changed(keys=pin.keys.to_jwks(), version=pin.version, statements=pin.statements)
        return row

    def accept(self, row: DirectoryRow, *, now_s: float, current: Collection[str] = ()) -> PublicIdentity:
        """The keys that a row shows, pinned from now on. Raises KeyConflict when they are not to be believed.

        Arguments are those of `believed`.
        """
        try:
            check_name(row.name)
            shown = published(row)
        except (BadName, CryptoError) as error:
            raise KeyConflict(f"the directory row of {row.name} holds no usable keys: {error}") from error
        known = self._record(row.name)
        if known is None:
            self._keep(PinRecord(row.name, row.role, first_pin(row.name, shown)), durable=False)
            self.counts["keys_pinned"] += 1
            return shown.keys
        if known.role != row.role:
            raise KeyConflict(f"{row.name} is known here as a {known.role}, and now shown as a {row.role}: refused")
        pin = follow_untrusted(
            row.name,
            shown,
            known.pin,
            resetter=lambda signer: self._resetter(signer, row.name, current),
            now_s=now_s,
        )
        if pin != known.pin:
            self._tell(row.name, known.pin, shown)
            self._keep(PinRecord(row.name, row.role, pin), durable=True)
        return pin.keys

    def forget(self, name: str) -> bool:
        """Take a pin back: an operator says that other keys are right. Whether there was one.

        Raises KeyFileError, and the pin stays, when that cannot be written down.
        """
        record = self._record(name)
        if record is None:
            return False
        if self._file is not None:
            self._file.forget(name)
        del self._share(name, Role(record.role))[name]
        self.conflicts.pop(name, None)
        return True

    def _tell(self, name: str, old: Pin, shown: Published) -> None:
        self.conflicts.pop(name, None)
        self.counts["keys_followed"] += 1
        found = newest_reset_untrusted(shown.statements, old.version)
        if found is not None:
            self.counts["keys_reset"] += 1
            _log.warning("%s has reset the keys of %s: %s", found.signer, name, found.statement.reset)
        _log.info("%s has new keys: version %d, key %s", name, shown.version, shown.keys.signing_kid)
        if old.keys.signing_kid in shown.keys.revoked:
            self.counts["keys_revoked"] += 1
            _log.warning("%s has revoked key %s", name, old.keys.signing_kid)

    def _resetter(self, signer: str, name: str, current: Collection[str]) -> PublicIdentity | None:
        """The keys of a homeserver that may say that `name` has lost its own."""
        if not self._may_reset(signer, name):
            return None
        if signer not in current:
            raise KeyConflict(
                f"{signer} has reset it, and what keys {signer} itself has today is not known: they could not be looked"
                " up, or do not follow on those that are known here"
            )
        pin = self.pin_of(signer)
        return None if pin is None else pin.keys

    def _may_reset(self, signer: str, name: str) -> bool:
        record = self._record(signer)
        if record is None or record.role != Role.HOMESERVER or signer == name:
            return False
        return instance_of(signer) == instance_of(name)

    def _record(self, name: str) -> PinRecord | None:
        try:
            instance = instance_of(name)
        except BadName:
            return None
        for is_player in (False, True):
            share = self._shares.get((instance, is_player))
            if share is not None and name in share:
                return share[name]
        return None

    def _share(self, name: str, role: Role) -> LruTable[str, PinRecord]:
        key = (instance_of(name), role is Role.PLAYER)
        share = self._shares.get(key)
        if share is None:
            if len({instance for instance, _ in self._shares} | {key[0]}) > MAX_INSTANCES:
                raise KeyConflict(f"{name} is of one more instance than the {MAX_INSTANCES} whose keys are kept here")
            share = LruTable(MAX_PINNED_PLAYERS if role is Role.PLAYER else MAX_PINNED_SERVERS)
            self._shares[key] = share
        return share

    def _keep(self, record: PinRecord, *, durable: bool) -> None:
        self._share(record.name, Role(record.role))[record.name] = record
        if self._file is not None:
            everything = chain.from_iterable(share.values() for share in self._shares.values())
            try:
                self._file.write(record, all_records=everything, count=len(self), durable=durable)
            except KeyFileError as error:
                # To forget it, or to refuse it, for a full disk would be the greater harm.
                self.counts["pins_not_written"] += 1
                _log.error("the keys of %s are kept in memory alone until the next are written: %s", record.name, error)


DIRECTORY = "directory"
"""The purpose of proofs of directory rows for the servers of an instance, made with its join token."""


CLOCK = "clock"
"""The purpose of proofs of what time it is, made with the join token of an instance."""


def federation_purpose(instance: str) -> str:
    """The purpose of proofs of directory rows that `instance` answers to others, made with the federation secret."""
    return f"federation:{instance}"


def federation_clock_purpose(instance: str) -> str:
    """The purpose of proofs of what time it is in `instance`, for others, made with the federation secret."""
    return f"{CLOCK}:{instance}"


def registration_proof(join_token: bytes, name: str, fields: dict[str, Any]) -> str:
    """The proof with which a server registers: over its name and everything that it registers."""
    return mac.tag(join_token, "register", name.encode(), _canonical(fields))


def address_claims(name: str, rest_url: str, link_host: str, link_port: int, *, revision: int) -> dict[str, Any]:
    """What a server signs with its own key when it registers: where it is, and the `revision` its row gets by that.

    All servers of an instance know the join token, so that proves no address. As `revision` follows on that of the row
    as it stands, a statement counts once: one that was recorded moves nothing back.
    """
    where = {"rest_url": rest_url, "link_host": link_host, "link_port": link_port}
    return {"action": "register", "server": name, "revision": revision, **where}


def rows_proof(secret: bytes, purpose: str, nonce: str, rows: Any) -> str:
    """The proof that the server that answers with these directory rows knows the secret; `nonce` makes it fresh."""
    return mac.tag(secret, purpose, nonce.encode(), _canonical(rows))


def is_proof(given: object, expected: str) -> bool:
    """Whether `given`, from a peer, is the expected proof; takes the same time however much of it is right."""
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
