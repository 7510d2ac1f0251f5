"""How others come to believe in the new keys of a server they know: each version is vouched for by the one before.

The keys of a server have versions, counted from 1. Version 1 is believed on first sight, and pinned. Every later one
comes with a statement, a JWS (ES256) that the current key of the version before has signed:

    {"kind": "keys", "name": ..., "version": n, "digest": SHA-256 of the JWK Set, "signing": the new signing key,
     "parent": SHA-256 of the statement before, "issued_at_s": Unix seconds, "reset": ""}

So a server that has pinned a version and is shown a newer one can follow the statements from one to the other. A relay
or a directory in between can neither put in keys of its own, nor go back to earlier ones. Nor can it show two different
versions with one number to a server that has seen one of them. `parent` ties the versions into one chain.

A server that has lost its keys cannot sign. Then a homeserver of its home instance signs the statement, told to by the
operator, who gives the reason in `reset`. Every reader sees that this is no ordinary change. It counts for those who
had pinned that homeserver's own keys before, and while the key it is signed with is good. A reset begins a new lineage.
What came before it is not looked at, and what was revoked there is not carried on, because none of those keys counts
any longer. So whatever has been done with the lost keys, or with stolen ones, cannot stand in its way.

Only keys that a server has had can be revoked. A reader that follows it from version to version knows their ids. One
that was away for some versions knows the signing keys of those, which stand in their statements, and how many agreement
keys there can have been.

Pure: times are arguments. (The idea is that of CONIKS, USENIX Security 2015, and of the hash chains of Certificate
Transparency, RFC 9162. Here it is for one server at a time and without a global log.)
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto import base64url, jose, jws
from batonpass.crypto.errors import CryptoError, KeyConflict, Malformed
from batonpass.crypto.key_forms import encode_point, public_jwk, public_key_from_jwk_untrusted, thumbprint
from batonpass.crypto.keys import Identity
from batonpass.crypto.names import is_name
from batonpass.crypto.public_keys import MAX_RETIRING, MAX_UNIX_S, PublicIdentity

__all__ = [
    "MAX_OWN_VERSION",
    "MAX_STATEMENTS",
    "MAX_STATEMENT_CHARS",
    "MAX_VERSION",
    "MIN_ROTATION_S",
    "Pin",
    "Published",
    "Reset",
    "Statement",
    "first_pin",
    "follow_untrusted",
    "newest_reset_untrusted",
    "read_statement_untrusted",
    "sign_again",
    "sign_reset",
    "sign_successor",
]

MAX_STATEMENTS: Final = 16
"""Carried with the keys. Who has seen nothing of a server for sixteen changes of its keys has to be told by people."""

MAX_STATEMENT_CHARS: Final = 2048
"""One has about 900."""

MAX_VERSION: Final = 2**31 - 1
MAX_OWN_VERSION: Final = 2**30
"""The last version that a server can give itself. Those above are for resets, which it so cannot use up."""

MAX_REASON_CHARS: Final = 200

MIN_ROTATION_S: Final = 3600.0
"""The shortest time between two rotations that a server makes by itself. Each is an entry in the log, and one of the
sixteen statements by which others follow.
"""

NO_PARENT: Final = "0" * 64
"""What a reset names that comes after keys about which nothing sound is said."""

_KIND: Final = "keys"
_FIELDS: Final = frozenset({"kind", "name", "version", "digest", "signing", "parent", "issued_at_s", "reset"})


@dataclass(frozen=True)
class Published:
    """The keys of a server as the directory shows them: which version they are, and the statements that lead to it."""

    version: int
    keys: PublicIdentity
    statements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """What is signed about one version of a server's keys."""

    name: str
    version: int
    digest: str
    signing: ec.EllipticCurvePublicKey
    parent: str
    issued_at_s: int
    reset: str = ""

    def to_data(self) -> dict[str, Any]:
        """As the JSON object to be signed."""
        return {
            "kind": _KIND,
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "signing": public_jwk(self.signing),
            "parent": self.parent,
            "issued_at_s": self.issued_at_s,
            "reset": self.reset,
        }

    @cached_property
    def head(self) -> str:
        """SHA-256 in hex of what is signed: the next statement names it as its `parent`.

        Not of the token: any relay can give an ECDSA signature a second form.
        """
        text = json.dumps(self.to_data(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    @classmethod
    def from_data_untrusted(cls, data: object) -> "Statement":
        """Read what `to_data` wrote. Raises Malformed."""
        if not isinstance(data, dict) or data.keys() != _FIELDS or data["kind"] != _KIND:
            raise Malformed("this is no statement about keys")
        version, issued_at_s, signing, reset = data["version"], data["issued_at_s"], data["signing"], data["reset"]
        if type(version) is not int or type(issued_at_s) is not int or not is_name(data["name"]):
            raise Malformed("a statement about keys has a name, a version and a time in whole seconds")
        if not 1 < version <= MAX_VERSION or not 0 <= issued_at_s <= MAX_UNIX_S or not isinstance(signing, dict):
            raise Malformed("a statement about keys is about a version from 2 on, and carries its signing key")
        if version > MAX_OWN_VERSION and not reset:
            raise Malformed(f"versions above {MAX_OWN_VERSION} are for resets")
        if not _is_hash(data["digest"]) or not _is_hash(data["parent"]):
            raise Malformed("`digest` and `parent` of a statement about keys are SHA-256 in hex")
        if not isinstance(reset, str) or len(reset) > MAX_REASON_CHARS or not reset.isprintable():
            raise Malformed(f"the reason for a reset has at most {MAX_REASON_CHARS} printable characters")
        key = public_key_from_jwk_untrusted(signing)
        if signing != public_jwk(key):
            raise Malformed("the signing key in a statement has the members crv, kty, x and y")
        return cls(data["name"], version, data["digest"], key, data["parent"], issued_at_s, reset)


@dataclass(frozen=True)
class Pin:
    """What is known of a server's keys, and held against whatever is shown for it later."""

    version: int
    head: str
    keys: PublicIdentity
    statements: tuple[str, ...] = field(default=(), compare=False)
    """What led to it, for those who have seen less."""


def first_head(name: str, keys: PublicIdentity) -> str:
    """What stands for version 1, of which no statement is made."""
    return Statement(name, 1, keys.digest, keys.signing, "", 0).head


def sign_successor(name: str, old: Published, new: PublicIdentity, *, signer: Identity, now_s: float) -> str:
    """The statement that `new` are the keys that follow on `old`; `signer` holds the current signing key of `old`.

    `now_s` is Unix time. Raises ValueError when an operator has to reset the keys, because their versions are used up.
    """
    if old.version >= MAX_OWN_VERSION:
        raise ValueError(f"{name} has had {old.version} versions of its keys: an operator has to reset them")
    parent = _head_untrusted(name, old)
    return _sign(Statement(name, old.version + 1, new.digest, new.signing, parent, round(now_s)), signer, name)


def sign_reset(
    name: str, old: Published, new: PublicIdentity, *, signer: Identity, signer_id: str, now_s: float, reason: str
) -> str:
    """The statement of a homeserver (`signer_id`) that its operator has given `name` new keys, for this reason.

    What `old` says about itself need not be sound. Raises ValueError without a reason of 1 to 200 printable characters,
    and when there are no versions left.
    """
    if not reason or len(reason) > MAX_REASON_CHARS or not reason.isprintable():
        raise ValueError(f"a reset needs a reason of 1 to {MAX_REASON_CHARS} printable characters")
    if old.version >= MAX_VERSION:
        raise ValueError(f"{name} has had {old.version} versions of its keys, which are all there are")
    try:
        parent = _head_untrusted(name, old)
    except KeyConflict:
        parent = NO_PARENT
    statement = Statement(name, old.version + 1, new.digest, new.signing, parent, round(now_s), reason)
    return _sign(statement, signer, signer_id)


def sign_again(statement: Statement, *, signer: Identity, signer_id: str) -> str:
    """The same statement, vouched for by another, or with another key; later ones follow on it as before."""
    return _sign(statement, signer, signer_id)


def first_pin(name: str, shown: Published) -> Pin:
    """Believe in what is shown, for want of anything to hold it against. Raises KeyConflict when it is not sound."""
    return Pin(shown.version, _head_untrusted(name, shown), shown.keys, shown.statements)


def follow_untrusted(
    name: str,
    shown: Published,
    pin: Pin,
    *,
    resetter: Callable[[str], PublicIdentity | None],
    now_s: float,
) -> Pin:
    """The pin that takes the place of `pin`, when what is shown follows from it.

    `resetter` gives the keys of a server that may reset the keys of `name`, as they are at `now_s` (Unix time), and
    None for every other. It may also raise KeyConflict to say why there are none. Raises KeyConflict when what is shown
    does not follow; then nothing of it may be used, and `pin` stays.
    """
    head = _head_untrusted(name, shown)
    if shown.version < pin.version:
        raise _conflict(name, shown, pin, f"version {shown.version} is older than the known version {pin.version}")
    if shown.version == pin.version:
        if head != pin.head:
            raise _conflict(name, shown, pin, f"there are two different versions {pin.version}")
        return pin
    try:
        path = _path_untrusted(name, shown, pin, resetter, now_s)
        _check_revocations(shown.keys, pin.keys, path)
    except CryptoError as error:
        raise _conflict(name, shown, pin, str(error)) from error
    return Pin(shown.version, head, shown.keys, shown.statements)


@dataclass(frozen=True)
class Reset:
    """A statement that says it is a reset: at which place among others, and whom it says it is from."""

    at: int
    signer: str
    statement: Statement


def newest_reset_untrusted(statements: Sequence[str], after_version: int = 0) -> Reset | None:
    """The last reset among statements about versions after `after_version`; nothing is proved.

    None when there is none that can be read.
    """
    for at in reversed(range(len(statements))):
        try:
            signer, statement = read_statement_untrusted(statements[at])
        except Malformed:
            return None
        if statement.version <= after_version:
            return None
        if statement.reset:
            return Reset(at, signer, statement)
    return None


def read_statement_untrusted(token: str) -> tuple[str, Statement]:
    """Whom a statement says it is from, and what it says, before anything is proved. Raises Malformed."""
    signer = jose.peek_sender_untrusted(token)
    parts = jws.read_untrusted(token, max_header_chars=jose.MAX_HEADER_CHARS, max_chars=MAX_STATEMENT_CHARS)
    data = jws.json_object_untrusted(base64url.decode_untrusted(parts.encoded_payload))
    return signer, Statement.from_data_untrusted(data)


def _sign(statement: Statement, signer: Identity, signer_id: str) -> str:
    return jose.sign(statement.to_data(), sender=signer, sender_id=signer_id)


def _path_untrusted(
    name: str, shown: Published, pin: Pin, resetter: Callable[[str], PublicIdentity | None], now_s: float
) -> list[Statement]:
    """The proved statements from the pinned version to the one that is shown, or from the last reset between them."""
    signing, parent, version = pin.keys.signing, pin.head, pin.version
    found = newest_reset_untrusted(shown.statements, pin.version)
    if found is not None:
        # It stands for itself: the homeserver could as well have signed whatever came before.
        version, parent = found.statement.version - 1, found.statement.parent
    steps = shown.version - version
    if not 0 < steps <= len(shown.statements):
        raise KeyConflict(
            f"the statements do not reach back from version {shown.version} to the known version {pin.version}"
        )
    path: list[Statement] = []
    for token in shown.statements[-steps:]:
        version += 1
        try:
            statement = _verified_untrusted(name, token, signing, resetter, now_s)
        except CryptoError as error:
            raise KeyConflict(f"version {version} is not vouched for: {error}") from error
        if found is not None and not path and not statement.reset:
            raise KeyConflict(f"what is shown as the reset of version {version} is none")
        if (statement.name, statement.version, statement.parent) != (name, version, parent):
            raise KeyConflict(f"version {version} does not follow on version {version - 1}")
        signing, parent = statement.signing, statement.head
        path.append(statement)
    return path


def _check_revocations(shown: PublicIdentity, pinned: PublicIdentity, path: Sequence[Statement]) -> None:
    """What was revoked stays so, and a server revokes keys that it has had. Raises KeyConflict."""
    revoked_now, revoked_before = shown.revoked.keys(), pinned.revoked.keys()
    is_reset = bool(path[0].reset)
    if any(not revoked_before.isdisjoint(keys.kids) for keys in shown.generations):
        raise KeyConflict("a key is there again that was revoked")
    if not is_reset and not revoked_before <= revoked_now:
        raise KeyConflict("a revocation was taken back")
    between = path[:-1]
    had = {kid for keys in pinned.generations for kid in keys.kids} | {thumbprint(one.signing) for one in between}
    # Of the versions between, the agreement keys are not known; nor, with a reset, what it has put out of force.
    unknown = len(between) + (2 * (1 + MAX_RETIRING) if is_reset else 0)
    if len(revoked_now - revoked_before - had) > unknown:
        raise KeyConflict("keys are revoked that were never there")


def _head_untrusted(name: str, shown: Published) -> str:
    """The head of the version that is shown, when its newest statement is about these very keys."""
    if shown.version == 1 and not shown.statements:
        return first_head(name, shown.keys)
    if not 1 < shown.version <= MAX_VERSION or not 0 < len(shown.statements) <= MAX_STATEMENTS:
        text = f"version {shown.version} of the keys of {name} comes with {len(shown.statements)} statements"
        raise KeyConflict(f"{text}: from version 2 on it takes 1 to {MAX_STATEMENTS}")
    try:
        _, newest = read_statement_untrusted(shown.statements[-1])
    except Malformed as error:
        raise KeyConflict(f"the newest statement about the keys of {name} cannot be read: {error}") from error
    about = (newest.name, newest.version, newest.digest, encode_point(newest.signing))
    if about != (name, shown.version, shown.keys.digest, encode_point(shown.keys.signing)):
        raise KeyConflict(f"the newest statement about the keys of {name} is about other keys than are shown with it")
    return newest.head


def _verified_untrusted(
    name: str,
    token: str,
    signing: ec.EllipticCurvePublicKey,
    resetter: Callable[[str], PublicIdentity | None],
    now_s: float,
) -> Statement:
    signer, statement = read_statement_untrusted(token)
    if statement.reset:
        keys = resetter(signer)
        if keys is None:
            raise KeyConflict(f"{signer} has reset it ({statement.reset}), whose own keys are not known here")
    elif signer == name:
        # Only the signing key of a version in between is known, and only it is used.
        keys = PublicIdentity(signing, signing)
    else:
        raise KeyConflict(f"{signer} has signed it, and it is no reset")
    return Statement.from_data_untrusted(jose.verify_untrusted(token, sender=keys, now_s=now_s))


def _conflict(name: str, shown: Published, pin: Pin, why: str) -> KeyConflict:
    return KeyConflict(
        f"{name} is known here by key {pin.keys.signing_kid} (version {pin.version}) and shows key "
        f"{shown.keys.signing_kid} (version {shown.version}): refused, because {why}. If its operator confirms the new "
        f"key, run `baton keys forget {name}` for this server"
    )


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and all(digit in "0123456789abcdef" for digit in value)
