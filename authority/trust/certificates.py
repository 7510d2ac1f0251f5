"""Certificates: signed sentences about authority that any server with the key directory can check.

`CommitCertificate`  a homeserver says: the log gave this entity to `target` at this fence, with this state.
`DelegationGrant`    a homeserver says: from this fence on, this group may pass the entity on directly.
`PassCertificate`    the holder says: I pass the entity to `target` at the next sub-epoch, with this state.

A chain is a grant followed by passes, each naming the hash of the one before (`parent`), so that only the holder can
extend it. These are the models; signing and checking signatures is `crypto.jose`'s.

Renewed grants that came after the entity had gone on: they still make its chain shorter when it comes by again.

A chain of direct passes grows with every pass until the log has learned of them and renews the grant. An entity that
moves faster than that would outrun every grant. So a renewal names the pass that it reaches to, and takes the place of
the chain up to there wherever the chain is met with later.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import MAX_EPOCH, Fence, check_epoch
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.names import NAME_PATTERN
from batonpass.authority.trust.signed_positions import MAX_PLACES_CHARS
from batonpass.crypto.bounded_tables import LruTable

__all__ = [
    "MAX_CHAIN",
    "MAX_RENEWALS",
    "BrokenChain",
    "CommitCertificate",
    "DelegationGrant",
    "KeyNotGood",
    "Name",
    "PassCertificate",
    "Renewals",
    "TickNumber",
    "UnprovenChain",
    "check_chain",
    "shortened",
    "token_hash",
]

# A chain travels with every direct pass until the log has learned of it and issues a new grant (a few milliseconds
# behind, normally). 64 passes without an answer from the home instance are a reason to go through it.
MAX_CHAIN: Final = 64

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
# An entity may have no owner, the last one having given it up.
OwnerName = Annotated[str, Field(pattern=rf"^$|{NAME_PATTERN}")]
TransferId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Epoch = Annotated[int, Field(ge=0, le=MAX_EPOCH)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Bounded like everything from a peer: CBOR has integers of any size, and JSON cannot write those of a million digits.
TickNumber = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Certificate(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    entity: Name
    epoch: Epoch
    sub: Epoch

    @property
    def fence(self) -> Fence:
        """The fence that this certificate is about."""
        return Fence(self.epoch, self.sub)

    def to_claims(self) -> dict[str, Any]:
        """As the JSON object to be signed; every field is JSON as it stands."""
        return dict(self.__dict__)

    @classmethod
    def from_claims_untrusted(cls, claims: object) -> Self:
        """Read a signed JSON object.

        Raises:
            MessageError: it is not a certificate of this kind.
        """
        try:
            return cls.model_validate(cls._from_json(claims))
        except (ValidationError, TypeError, ValueError) as error:
            raise MessageError(f"not a {cls.__name__}") from error

    @classmethod
    def _from_json(cls, claims: object) -> object:
        return claims


class CommitCertificate(_Certificate):
    """The log gave `entity` to `target` at (epoch, sub), continuing from `tick` with the state of this hash.

    `owner` owned it then, under revision `owner_rev`: the new authority takes no other inputs. No other
    incarnation of the target than this one may begin with it: what this one had may be taken from it since.
    `log` says where the log stood by the copy of the signer (`authority.trust.signed_positions.LogPlace`), if that
    is known.
    """

    kind: Literal["commit"] = "commit"
    transfer_id: TransferId
    source: Name
    target: Name
    tick: TickNumber
    state_hash: Hash
    owner: OwnerName = ""
    owner_rev: Epoch = 0
    # Of the target, by its own home's log; 0 if it had no lease there.
    incarnation: Epoch = 0
    log: Annotated[str, Field(max_length=MAX_PLACES_CHARS)] = ""

    @property
    def ownership(self) -> Ownership:
        """Owner and revision together."""
        return Ownership(self.owner, self.owner_rev)


class DelegationGrant(_Certificate):
    """`holder` has authority at (epoch, sub) and `group` may pass the entity among themselves from there.

    `owner` and `owner_rev` are as in `CommitCertificate`. A grant that renews an earlier one, because the log has
    learned of the passes since, names the hash of the last of them (`replaces`). The next pass may follow that one, and
    the grant stands for all before it.
    """

    kind: Literal["delegation"] = "delegation"
    owner: OwnerName = ""
    owner_rev: Epoch = 0
    holder: Name
    group: tuple[Name, ...] = Field(min_length=2, max_length=16)
    replaces: Annotated[str, Field(pattern=r"^$|^[0-9a-f]{64}$")] = ""

    @classmethod
    def _from_json(cls, claims: object) -> object:
        """JSON has no tuples, and strict mode takes no list for one."""
        if not isinstance(claims, dict):
            return claims
        return {name: tuple(value) if isinstance(value, list) else value for name, value in claims.items()}

    @property
    def ownership(self) -> Ownership:
        """Owner and revision together."""
        return Ownership(self.owner, self.owner_rev)


class PassCertificate(_Certificate):
    """`source` passed `entity` directly to `target`, which holds it at (epoch, sub) from `tick` on.

    `incarnation` is as in `CommitCertificate`, as the target itself has told.
    """

    kind: Literal["pass"] = "pass"
    transfer_id: TransferId
    source: Name
    target: Name
    tick: TickNumber
    state_hash: Hash
    incarnation: Epoch = 0
    parent: Hash


class BrokenChain(MessageError):
    """Signed passes that do not follow from each other, or are outside their grant: no server begins by such a chain.

    That depends on nothing but the chain, so every reader comes to the same. `followed` are the passes before.
    """

    def __init__(self, text: str, followed: Sequence[PassCertificate]) -> None:
        super().__init__(text)
        self.followed = tuple(followed)


class KeyNotGood(MessageError):
    """A certificate was signed with a key that is not good (any more): it was revoked, has ended, or is unknown.

    Others may have verified it while the key was good.
    """


class UnprovenChain(MessageError):
    """Passes that would follow from their grant, of which one is by a key that is not good (any more).

    So no server can be shown that they happened, and they may have: the one that has the entity must be looked for.
    `last` is what the last of them says, of which nothing is proved.
    """

    def __init__(self, text: str, last: PassCertificate) -> None:
        super().__init__(text)
        self.last = last


# A chain comes again with every pass, one token longer; at 1.2 kB each.
@lru_cache(maxsize=4096)
def token_hash(token: str) -> str:
    """Hex SHA-256 of a signed token: what a pass names as its `parent`."""
    return hashlib.sha256(token.encode()).hexdigest()


def check_chain(
    grant: DelegationGrant,
    first: str,
    passes: Sequence[tuple[str, PassCertificate]],
    known: Sequence[PassCertificate] = (),
) -> Fence:
    """Check that signed `passes` (token and content, oldest first) follow from `grant`; return the fence they lead to.

    Signatures must have been checked before: the grant's by a homeserver of the entity's instance, each pass's by its
    `source`. `first` is the token of the grant, or of the last of those passes that are `known` to follow from it.

    Raises:
        BrokenChain: a link does not follow from the one before.
    """
    if known:
        last = known[-1]
        holder, epoch, sub, parents = last.target, last.epoch, last.sub, {token_hash(first)}
    else:
        holder, epoch, sub, parents = grant.holder, grant.epoch, grant.sub, {token_hash(first), grant.replaces}
    followed = list(known)
    for token, step in passes:
        if len(followed) == MAX_CHAIN:
            raise BrokenChain(f"a chain of {len(known) + len(passes)} passes is longer than {MAX_CHAIN}", followed)
        if step.entity != grant.entity or step.source != holder or step.parent not in parents:
            text = f"pass {step.fence} of {step.entity} by {step.source} does not follow {holder}'s {Fence(epoch, sub)}"
            raise BrokenChain(text, followed)
        sub = check_epoch(sub + 1)
        if step.sub != sub or step.epoch != epoch or step.target not in grant.group:
            text = f"pass {step.fence} of {step.entity} to {step.target} is outside its grant"
            raise BrokenChain(text, followed)
        followed.append(step)
        holder, parents = step.target, {token_hash(token)}
    return Fence(epoch, sub)


def shortened(chain: Sequence[str], renewal: str, replaces: str) -> tuple[str, ...]:
    """The chain with a renewed grant in place of what that replaces; as it is if it is about another chain."""
    for place, token in enumerate(chain):
        if token_hash(token) == replaces:
            return (renewal, *chain[place + 1 :])
    return tuple(chain)


MAX_RENEWALS: Final = 4096
"""What is forgotten leaves a chain longer, until the next renewal."""


class Renewals:
    """The latest renewal for each entity; the longest unused are forgotten first."""

    def __init__(self) -> None:
        self._kept: LruTable[str, tuple[str, DelegationGrant]] = LruTable(MAX_RENEWALS)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((entity, token) for entity, (token, _) in self._kept.items())

    def keep(self, entity: str, token: str, grant: DelegationGrant) -> None:
        """Keep a verified grant, if it renews one, and no later one is known."""
        known = self._kept.get(entity)
        if not grant.replaces or (known is not None and known[1].fence >= grant.fence):
            return
        self._kept[entity] = token, grant

    def applied(self, entity: str, chain: Sequence[str], group: Sequence[str]) -> tuple[str, ...]:
        """The chain with the renewal that fits it in its place; as it is if there is none for it and this group."""
        token, grant = self._kept.get(entity, ("", None))
        if grant is None or tuple(grant.group) != tuple(group):
            return tuple(chain)
        return shortened(chain, token, grant.replaces)
