"""Ownership as a mutex on an entity's state: whose inputs the authority takes, decided from what it knows alone.

The log gives every change of owner a new revision, and an input carries the revision under which its sender believes to
be the owner. There is one authority, one owner that it knows, and one revision. So of two players who both "fire the
gun", however close together they were made owners, one input is taken. The other is refused, in the order of the log. A
sender who owned the entity, lost it and owns it again cannot have an input of the first time taken in the second
either.
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

__all__ = ["UNTOLD", "InputVerdict", "Ownership", "judge_input"]


class Ownership(NamedTuple):
    """Who owns an entity, by the log's revision `rev` of that right; the higher revision is the later word.

    An entity without an owner may be suspended, because its owner left: `suspended` says so, or is None where that was
    not told. It is the same for as long as the revision is; an entity that has an owner is not suspended.
    """

    owner: str
    rev: int
    suspended: bool | None = None

    def succeeds(self, other: "Ownership") -> bool:
        """Whether this is a later word of the log than `other`, or the same one and says more."""
        if self.rev == other.rev:
            return other.suspended is None and self.suspended is not None
        return self.rev > other.rev

    @property
    def is_half_told(self) -> bool:
        """Whether no player owns the entity, and it is not known whether it is suspended."""
        return self.suspended is None and not self.owner and self.rev > 0

    def to_data(self) -> list[Any]:
        """As plain data, for a snapshot."""
        return [self.owner, self.rev] if self.suspended is None else list(self)

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read what `to_data` wrote; raises `ValueError`."""
        owner, rev, *rest = data
        if not isinstance(owner, str) or not isinstance(rev, int):
            raise ValueError(f"{owner!r}, {rev!r} is no owner with a revision")
        if len(rest) > 1 or (rest and (owner or not isinstance(rest[0], bool))):
            raise ValueError(f"{rest!r} does not say whether it is suspended")
        return cls(owner, rev, *rest)


UNTOLD: Final = Ownership("", 0)
"""What an authority knows that has been told nothing; no player's inputs are taken under it."""


class InputVerdict(StrEnum):
    """What the mutex says to an input; all but `admitted` are reason codes of its refusal."""

    ADMITTED = "admitted"
    NOT_OWNER = "not_owner"
    """Another player owns the entity."""
    STALE_OWNERSHIP = "stale_ownership"
    """The sender owns the entity, but gave the input under an ownership of before."""
    UNHEARD_OWNERSHIP = "unheard_ownership"
    """The sender names a revision that this authority has not heard of; it asks the home instance."""


def judge_input(known: Ownership, source: str, owner_rev: int) -> InputVerdict:
    """Whether an input that `source` gave under revision `owner_rev` may be taken."""
    if owner_rev > known.rev:
        return InputVerdict.UNHEARD_OWNERSHIP
    if source != known.owner:
        return InputVerdict.NOT_OWNER
    return InputVerdict.ADMITTED if owner_rev == known.rev else InputVerdict.STALE_OWNERSHIP
