"""Where a server keeps its keys: PEM files of mode 0600 in a directory of mode 0700, a ring that says which is what.

    signing.pem, agreement.pem        the first generation, PKCS #8
    signing-2.pem, agreement-2.pem    those of version 2 of this server's keys, and so on
    ring.json                         which of them is current, which retire when, which ids are revoked; the version,
                                      and the statements by which others believe in it (`crypto.continuity`)

A directory without a ring holds the first generation. The ring is replaced as a whole after the key files it names were
written. Key files are removed after it stopped naming them, so that a crash leaves a state that was meant.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto import key_files
from batonpass.crypto.continuity import MAX_STATEMENTS, Published, first_pin, read_statement_untrusted, sign_successor
from batonpass.crypto.errors import CryptoError, KeyFileError, Malformed
from batonpass.crypto.key_forms import private_key_from_pem_untrusted, private_pem
from batonpass.crypto.keys import Identity, RetiringIdentity

__all__ = ["AGREEMENT_FILE", "RING_FILE", "SIGNING_FILE", "KeyRing", "KeyStore"]

SIGNING_FILE: Final = "signing.pem"
AGREEMENT_FILE: Final = "agreement.pem"
RING_FILE: Final = "ring.json"


@dataclass(frozen=True)
class KeyRing:
    """This server's keys, and which version of them they are; `statements` show how they came to be, oldest first."""

    identity: Identity
    version: int = 1
    statements: tuple[str, ...] = ()
    name: str = ""
    """Whose they are: empty until a server has used them, or a change of them was signed, which names it."""

    @property
    def published(self) -> Published:
        """What others may know of it."""
        return Published(self.version, self.identity.public, self.statements)


class KeyStore:
    """The keys in one directory. Whatever reads or changes them raises KeyFileError when they cannot be used."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory

    def load_or_create(self) -> Identity:
        """The identity kept here, made on first use.

        Two processes that start at once end up with the same one; an interrupted creation is continued.
        """
        return self.load_or_create_ring().identity

    def load_or_create_ring(self) -> KeyRing:
        """As `load_or_create`, with version and statements."""
        key_files.private_directory(self.directory)
        with key_files.locked(self.directory):
            for pattern in (RING_FILE, "signing*.pem", "agreement*.pem"):
                key_files.remove_drafts(self.directory, pattern)
            return self._ring()

    def claim(self, name: str) -> KeyRing:
        """As `load_or_create_ring`, for the server called `name`; from then on no process changes them in another name.

        Raises KeyFileError also when they are another's.
        """
        self.load_or_create_ring()
        with key_files.locked(self.directory):
            ring = self._ring()
            self._require_name(ring, name)
            if not ring.name:
                names = self._names(ring)
                ring = replace(ring, name=name)
                self._write_ring(ring, names)
            return ring

    def _require_name(self, ring: KeyRing, name: str) -> None:
        if ring.name not in ("", name):
            raise KeyFileError(f"{self.directory} holds the keys of {ring.name}, not of {name}: nothing was changed")

    def _ring(self) -> KeyRing:
        """What is here, or new keys. The directory is private, and no other process changes it meanwhile."""
        if key_files.exists(self.directory / RING_FILE):
            return self._load_ring()
        stray = next(self.directory.glob("signing-*.pem"), None)
        if stray is not None:
            raise KeyFileError(
                f"{self.directory / RING_FILE} is missing but {stray} is there: restore it from a backup, or remove "
                "the keys to give this server a new identity (its peers must then learn the new keys)"
            )
        signing, agreement = self.directory / SIGNING_FILE, self.directory / AGREEMENT_FILE
        if key_files.exists(signing) and not key_files.exists(agreement):
            raise KeyFileError(
                f"{agreement} is missing but {signing} is there: restore it from a backup, or remove "
                f"{signing} to give this server a new identity (its peers must then learn the new keys)"
            )
        # The signing key last: it is what makes the identity complete, so an interrupted creation is simply continued.
        for path in (agreement, signing):
            if not key_files.exists(path):
                key_files.create_once(path, private_pem(ec.generate_private_key(ec.SECP256R1())))
        return KeyRing(Identity(_read_key(signing), _read_key(agreement)))

    def load_ring(self) -> KeyRing:
        """The ring kept here. Raises KeyFileError also when there is none."""
        self._require_keys()
        return self.load_or_create_ring()

    def _require_keys(self) -> None:
        if not key_files.exists(self.directory / SIGNING_FILE) and not key_files.exists(self.directory / RING_FILE):
            raise KeyFileError(f"{self.directory} holds no keys: make them with `baton keys new`, or name another one")
        key_files.private_directory(self.directory)

    def rotate(self, name: str, *, now_s: float, overlap_s: float) -> KeyRing:
        """New keys for the server called `name`, in force from now on; the old ones are good until the overlap ends.

        `now_s` is Unix time. Raises ValueError when too many generations overlap already.
        """
        fresh = Identity.generate()
        return self._change(name, now_s, lambda old: old.rotated(fresh, now_s=now_s, overlap_s=overlap_s))

    def revoke(self, name: str, kid: str, *, now_s: float) -> KeyRing:
        """Revoke the generation that the key `kid` belongs to, for ever; new keys take the place of current ones.

        Raises KeyError for a key that is neither current nor retiring.
        """
        fresh = Identity.generate()
        return self._change(name, now_s, lambda old: old.without(kid, now_s=now_s, fresh=fresh))

    def made_at_s(self, ring: KeyRing) -> float:
        """When the keys of `ring` came into force, in Unix seconds: of a first version, when its file was written."""
        try:
            if ring.statements:
                return read_statement_untrusted(ring.statements[-1])[1].issued_at_s
            return (self.directory / SIGNING_FILE).stat().st_mtime
        except (OSError, Malformed) as error:
            raise KeyFileError(f"{self.directory} does not tell how old its keys are: {error}") from error

    def adopt(self, published: Published) -> KeyRing:
        """Continue from what the directory shows for these keys: it was set there by the operator (a reset).

        Raises ValueError when its current keys are not those kept here.
        """
        self._require_keys()
        with key_files.locked(self.directory):
            ring = self._ring()
            old = ring.identity
            kids = (published.keys.signing_kid, published.keys.agreement_kid)
            if kids != (old.public.signing_kid, old.public.agreement_kid):
                raise ValueError(f"the directory shows key {kids[0]}, and key {old.public.signing_kid} is kept here")
            wanted = {one.keys.signing_kid for one in published.keys.retiring}
            retiring = tuple(one for one in old.retiring if one.keys.public.signing_kid in wanted)
            identity = Identity(old.signing, old.agreement, retiring, published.keys.revoked)
            adopted = KeyRing(identity, published.version, published.statements, ring.name)
            self._save(adopted, ring)
            return adopted

    def _change(self, name: str, now_s: float, change: Callable[[Identity], Identity]) -> KeyRing:
        self._require_keys()
        with key_files.locked(self.directory):
            ring = self._ring()
            self._require_name(ring, name)
            identity = change(ring.identity)
            statement = sign_successor(
                name, ring.published, identity.public, signer=ring.identity.generations[0], now_s=now_s
            )
            statements = (*ring.statements, statement)[-MAX_STATEMENTS:]
            changed = KeyRing(identity, ring.version + 1, statements, name)
            self._save(changed, ring)
            return changed

    # Files

    def _load_ring(self) -> KeyRing:
        path = self.directory / RING_FILE
        try:
            ring = json.loads(key_files.read_private(path))
            version, statements = int(ring["version"]), tuple(str(token) for token in ring["statements"])
            current, *retiring = [self._generation(entry) for entry in ring["generations"]]
            old = tuple(
                RetiringIdentity(identity, int(entry["exp"]))
                for identity, entry in zip(retiring, ring["generations"][1:], strict=True)
            )
            revoked = {str(kid): int(at_s) for kid, at_s in ring["revoked"].items()}
            identity = Identity(current.signing, current.agreement, old, revoked)
            name = read_statement_untrusted(statements[-1])[1].name if statements else str(ring.get("name", ""))
            # What others would not believe is damage too.
            first_pin(name, Published(version, identity.public, statements))
            for token in statements:
                read_statement_untrusted(token)
            return KeyRing(identity, version, statements, name)
        except KeyFileError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, CryptoError) as error:
            raise KeyFileError(f"{path} is damaged ({type(error).__name__}): restore it from a backup") from error

    def _generation(self, entry: dict[str, Any]) -> Identity:
        return Identity(
            _read_key(self.directory / Path(entry["signing"]).name),
            _read_key(self.directory / Path(entry["agreement"]).name),
        )

    def _save(self, ring: KeyRing, old: KeyRing) -> None:
        names = self._names(old)
        if not key_files.exists(self.directory / RING_FILE):
            # Or a crash would leave key files and nothing that says which of them count.
            self._write_ring(old, names)
        for identity in ring.identity.generations:
            kid = identity.public.signing_kid
            if kid not in names:
                names[kid] = (f"signing-{ring.version}.pem", f"agreement-{ring.version}.pem")
                for name, key in zip(names[kid], (identity.signing, identity.agreement), strict=True):
                    key_files.replace(self.directory / name, private_pem(key))
        self._remove_unnamed(self._write_ring(ring, names))

    def _write_ring(self, ring: KeyRing, names: Mapping[str, tuple[str, str]]) -> set[str]:
        """The key files that it names."""
        generations: list[dict[str, Any]] = []
        ends = [None, *(one.expires_at_s for one in ring.identity.retiring)]
        for identity, exp in zip(ring.identity.generations, ends, strict=True):
            signing, agreement = names[identity.public.signing_kid]
            generations.append({"signing": signing, "agreement": agreement} | ({} if exp is None else {"exp": exp}))
        contents = {
            "name": ring.name,
            "version": ring.version,
            "generations": generations,
            "revoked": dict(ring.identity.public.revoked),
            "statements": list(ring.statements),
        }
        key_files.replace(self.directory / RING_FILE, json.dumps(contents, indent=2).encode("ascii"))
        return {file for entry in generations for file in (entry["signing"], entry["agreement"])}

    def _names(self, ring: KeyRing) -> dict[str, tuple[str, str]]:
        """The files of each generation by its signing key, as they are on the disk."""
        if not key_files.exists(self.directory / RING_FILE):
            return {ring.identity.public.signing_kid: (SIGNING_FILE, AGREEMENT_FILE)}
        entries = json.loads(key_files.read_private(self.directory / RING_FILE))["generations"]
        pairs = zip(ring.identity.generations, entries, strict=True)
        return {one.public.signing_kid: (entry["signing"], entry["agreement"]) for one, entry in pairs}

    def _remove_unnamed(self, named: set[str]) -> None:
        """Old private keys, which nothing should be able to open any more, and what an interrupted change left."""
        for path in [*self.directory.glob("signing*.pem"), *self.directory.glob("agreement*.pem")]:
            if path.name not in named:
                path.unlink(missing_ok=True)
        key_files.sync(self.directory)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        return private_key_from_pem_untrusted(key_files.read_private(path))
    except FileNotFoundError as error:
        raise KeyFileError(f"{path} is missing: restore it from a backup") from error
    except Malformed as error:
        raise KeyFileError(
            f"{path}: {error}; restore it from a backup, or remove it and its neighbours to give this server a new "
            "identity (its peers must then learn the new keys)"
        ) from error
