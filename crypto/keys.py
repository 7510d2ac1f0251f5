"""Who a server is: keys that sign, keys that agree on secrets, and their public halves.

Two keys, because the same key should not both sign and decrypt (NIST SP 800-57 part 1, section 5.2). A trick against
one use must not break the other. They are replaced together, from time to time or because they may be known. The new
ones sign from then on, the old ones are accepted until an overlap ends, revoked ones never again. How keys are written
down is in `key_forms`, and where they are kept in `key_store`. What others know of them is in `public_keys`, and how
others come to believe in new ones in `continuity`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto.errors import Expired, Revoked, WrongReceiver
from batonpass.crypto.key_forms import decode_point_untrusted, encode_point, thumbprint
from batonpass.crypto.public_keys import MAX_RETIRING, MAX_REVOKED, PublicIdentity, Retiring

__all__ = [
    "Identity",
    "PublicIdentity",
    "Retiring",
    "RetiringIdentity",
    "decode_point_untrusted",
    "encode_point",
    "thumbprint",
]


@dataclass(frozen=True)
class RetiringIdentity:
    """Private keys that have been replaced, and still open what is sealed for them until `expires_at_s` (Unix)."""

    keys: "Identity"
    expires_at_s: int


class Identity:
    """The private keys of this server. Never printed: its repr shows only the names of the public halves.

    Immutable; `rotated` and `without` say what becomes of it, and `crypto.key_store` keeps the result.
    """

    def __init__(
        self,
        signing: ec.EllipticCurvePrivateKey,
        agreement: ec.EllipticCurvePrivateKey,
        retiring: tuple[RetiringIdentity, ...] = (),
        revoked: Mapping[str, int] | None = None,
    ) -> None:
        """Raises ValueError as `PublicIdentity` does, and for one key in both roles."""
        self.signing: Final = signing
        self.agreement: Final = agreement
        self.retiring: Final[tuple[RetiringIdentity, ...]] = retiring
        self.public: Final[PublicIdentity] = PublicIdentity(
            signing.public_key(),
            agreement.public_key(),
            tuple(Retiring(old.keys.public, old.expires_at_s) for old in retiring),
            revoked or {},
        ).require_two_keys()

    @classmethod
    def generate(cls) -> Self:
        """New keys from the operating system's random generator."""
        return cls(ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1()))

    @cached_property
    def generations(self) -> "tuple[Identity, ...]":
        """Each generation by itself, the current one first."""
        current = Identity(self.signing, self.agreement) if self.retiring or self.public.revoked else self
        return (current, *(old.keys for old in self.retiring))

    def agreement_key(self, kid: str, now_s: float) -> ec.EllipticCurvePrivateKey:
        """The key with this id, to open with at `now_s` (Unix time in seconds) what was sealed for it.

        Raises Revoked, Expired when the key was replaced and its overlap is over, or WrongReceiver.
        """
        if kid == self.public.agreement_kid:
            return self.agreement
        if kid in self.public.revoked:
            raise Revoked(f"sealed for key {kid}, which is revoked; {self.public.agreement_kid} is in force")
        for old in self.retiring:
            if kid == old.keys.public.agreement_kid:
                if now_s >= old.expires_at_s:
                    raise Expired(
                        f"sealed for key {kid}, which was replaced by {self.public.agreement_kid} and ended "
                        f"{now_s - old.expires_at_s:.0f} s ago"
                    )
                return old.keys.agreement
        raise WrongReceiver(f"sealed for key {kid!s:.64}, not for {self.public.agreement_kid}: fetch the new key")

    def valid_at(self, now_s: float) -> "Identity":
        """Without the keys whose overlap is over at `now_s`; this very object when that is all of it."""
        kept = tuple(old for old in self.retiring if now_s < old.expires_at_s)
        if len(kept) == len(self.retiring):
            return self
        return Identity(self.signing, self.agreement, kept, self.public.revoked)

    def rotated(self, fresh: "Identity", *, now_s: float, overlap_s: float) -> "Identity":
        """Signs with the keys of `fresh` from now on; those in force until now retire when the overlap ends.

        Times are Unix seconds, and are rounded to whole ones. Raises ValueError when more generations would overlap
        than can be published.
        """
        if overlap_s < 0:
            raise ValueError(f"an overlap of {overlap_s} s is in the past")
        old = self.valid_at(now_s)
        if len(old.retiring) >= MAX_RETIRING:
            soonest_s = min(one.expires_at_s for one in old.retiring)
            raise ValueError(
                f"{MAX_RETIRING} earlier generations are still good; rotate again in {soonest_s - now_s:.0f} s, or "
                "revoke one of them"
            )
        retiring = (RetiringIdentity(old.generations[0], round(now_s + overlap_s)), *old.retiring)
        return Identity(fresh.signing, fresh.agreement, retiring, self.public.revoked)

    def without(self, kid: str, *, now_s: float, fresh: "Identity | None" = None) -> "Identity":
        """Both keys of the generation that `kid` belongs to are revoked. There is no way back.

        When that is the current generation, the keys of `fresh` take its place. Raises KeyError for a key that is
        neither current nor retiring, ValueError when `fresh` is missing or no more revoked keys can be remembered.
        """
        at = next(
            (n for n, one in enumerate(self.generations) if kid in (one.public.signing_kid, one.public.agreement_kid)),
            None,
        )
        if at is None:
            raise KeyError(kid)
        gone = self.generations[at].public
        revoked = {**self.public.revoked, gone.signing_kid: round(now_s), gone.agreement_kid: round(now_s)}
        if len(revoked) > MAX_REVOKED:
            raise ValueError(
                f"{len(self.public.revoked)} keys are revoked, and no more can be named: stop this server, make new"
                " keys, and have the operator of the home instance set them with `baton keys reset`"
            )
        if at > 0:
            kept = tuple(old for old in self.retiring if old.keys.public.signing_kid != gone.signing_kid)
            return Identity(self.signing, self.agreement, kept, revoked)
        if fresh is None:
            raise ValueError("the current keys can only be revoked with new ones in their place")
        return Identity(fresh.signing, fresh.agreement, self.retiring, revoked)

    def led_by(self, signing_kid: str, *, expires_at_s: int) -> "Identity":
        """The same keys, with another generation as the current one: new keys open messages before they sign any.

        What is current here retires at `expires_at_s`. Raises KeyError for a generation that is not here.
        """
        for old in self.retiring:
            if old.keys.public.signing_kid == signing_kid:
                rest = tuple(one for one in self.retiring if one is not old)
                retiring = (RetiringIdentity(self.generations[0], expires_at_s), *rest)
                return Identity(old.keys.signing, old.keys.agreement, retiring, self.public.revoked)
        raise KeyError(signing_kid)

    def __repr__(self) -> str:
        return f"Identity(public={self.public!r})"

    def __reduce__(self) -> str:
        raise TypeError("an Identity is not copied or serialised: its private keys stay where they are")
