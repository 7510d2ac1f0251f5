"""Signed positions of the log, by which a log that was restored from an older copy is told from the one of before.

    office_marks/<number>   {mark, after}: of each office of granting leases, at least of the last `MAX_OFFICES`
    log_accepted            {office, within, skipped}: what another history had up to this office was accepted as lost,
                            or as nothing; so was what it had further on under offices before `within`, that it shares.
                            This log had none of the offices `skipped` after the first and up to the second of each pair

Every office has a random `mark`, which is written when it is taken, with the revision `after` which that was: the last
one of the office before. So the log is a sequence of offices, each with a beginning and an end. A member that holds the
office signs where the log stands (`LogPosition`), and simulation servers keep the last such word. A log that comes from
an older copy lacks the position, or has continued from before it in another way. That is with an office of another
mark, or with the next office after an earlier revision. However far it has gone on since, that stays visible, as long
as the office is among the last `MAX_OFFICES`.

A homeserver signs that only now and then, and says in whatever it seals where the log stands (`LogPlace`). That is no
proof for others, since a server could say anything. But it is reason enough for the one that was told to be unleased.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import LeaseOffice
from batonpass.authority.model.rows import Rows
from batonpass.authority.names import INSTANCE_PATTERN

__all__ = [
    "ACCEPTED",
    "MAX_HEARD_OFFICES",
    "MAX_OFFICE",
    "MAX_OFFICES",
    "MAX_PLACES_CHARS",
    "OFFICE_MARKS",
    "PLACES_PATTERN",
    "LogPlace",
    "LogPosition",
    "ReadableTree",
    "has_been_at",
    "is_in_log",
    "mark_office",
    "place_of",
    "skip_offices",
]

OFFICE_MARKS: Final = "office_marks"
ACCEPTED: Final = "log_accepted"
MAX_OFFICES: Final = 256
"""Offices whose marks are kept. Of a position under an older one nothing can be said: it counts as known."""

MAX_OFFICE: Final = 2**62
"""The number of an office to which another history can lead this log: as many are left after it."""

MAX_ACCEPTED: Final = 8
"""Other histories of which it is remembered which offices were skipped for them."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class LogPosition(BaseModel):
    """A homeserver says: under the office of this number and mark, the log of `instance` had this revision."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    kind: Literal["log_position"] = "log_position"
    instance: Annotated[str, Field(pattern=INSTANCE_PATTERN)]
    office: Annotated[int, Field(ge=1, le=2**63 - 1)]
    mark: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    revision: Count

    def to_claims(self) -> dict[str, Any]:
        """As the JSON object to be signed."""
        return self.model_dump(mode="json")

    @classmethod
    def from_claims_untrusted(cls, claims: object) -> Self:
        """Read a signed JSON object.

        Raises:
            MessageError: it is no position.
        """
        try:
            return cls.model_validate(claims)
        except (ValidationError, TypeError, ValueError) as error:
            raise MessageError("not a position of a log") from error


_PLACE: Final = r"([1-9][0-9]{0,18})\.([0-9a-f]{8})\.(0|[1-9][0-9]{0,18})"
MAX_HEARD_OFFICES: Final = 4
"""Offices of which a server remembers what it heard since its lease was renewed; there is hardly ever more than one."""
PLACES_PATTERN: Final = f"^({_PLACE}( {_PLACE}){{0,{MAX_HEARD_OFFICES - 1}}})?$"
MAX_PLACES_CHARS: Final = MAX_HEARD_OFFICES * 49


class LogPlace(NamedTuple):
    """Where a log stands: the number of the office, the revision, and how the mark of the office begins."""

    office: int
    revision: int
    mark: str

    def __str__(self) -> str:
        return f"{self.office}.{self.mark}.{self.revision}"

    @classmethod
    def read(cls, text: str) -> "LogPlace | None":
        """What `str` gave; None of anything else."""
        match = re.fullmatch(_PLACE, text, re.ASCII)
        return None if match is None else cls(int(match[1]), int(match[3]), match[2])


class ReadableTree(Protocol):
    """A copy of the tree."""

    @property
    def revision(self) -> int:
        """Of the last change."""

    def get_or(self, path: tuple[str, ...], default: Any) -> Any:
        """The data at `path`, or `default`."""


def mark_office(rows: Rows, number: int, mark: str) -> None:
    """The office of this number is taken now; without a mark (a command of before there were any), nothing is kept."""
    if mark:
        rows.put((OFFICE_MARKS, str(number)), {"mark": mark, "after": rows.revision})
        rows.delete((OFFICE_MARKS, str(number - MAX_OFFICES)))


def skip_offices(rows: Rows, after: int, last: int) -> None:
    """This log has none of the offices after the first and up to the last of these numbers; if there are any."""
    if after >= last:
        return
    accepted: Mapping[str, Any] = rows.get_or((ACCEPTED,), {"office": 0, "within": 0})
    skipped = [*accepted.get("skipped", ()), [after, last]][-MAX_ACCEPTED:]
    rows.put((ACCEPTED,), {**accepted, "skipped": skipped})


def place_of(copy: ReadableTree) -> LogPlace | None:
    """Where the log stands by this copy of it; None before there was an office with a mark."""
    office = copy.get_or(("lease_office",), None)
    number = 0 if office is None else LeaseOffice.from_data(office).number
    marked: Mapping[str, Any] | None = copy.get_or((OFFICE_MARKS, str(number)), None)
    return None if marked is None else LogPlace(number, copy.revision, marked["mark"][:8])


def is_in_log(copy: ReadableTree, position: LogPosition | LogPlace) -> bool:
    """As `has_been_at`, but that another history counts as no place at all, up to the office up to which an operator
    has accepted that.
    """
    if has_been_at(copy, position):
        return True
    accepted: Mapping[str, Any] | None = copy.get_or((ACCEPTED,), None)
    if accepted is None:
        return False
    marked: Mapping[str, Any] | None = copy.get_or((OFFICE_MARKS, str(position.office)), None)
    if marked is None or not marked["mark"].startswith(position.mark):
        return bool(position.office <= accepted["office"])
    # What is further on under the office in which it was accepted, and later ones, is of this very history.
    return bool(position.office < accepted.get("within", 0))


def has_been_at(copy: ReadableTree, position: LogPosition | LogPlace) -> bool:
    """Whether the log has been where `position` says.

    False is only to be believed of a copy that has all that was committed before this is asked.
    """
    office = copy.get_or(("lease_office",), None)
    if position.office > (0 if office is None else LeaseOffice.from_data(office).number):
        return False
    marked: Mapping[str, Any] | None = copy.get_or((OFFICE_MARKS, str(position.office)), None)
    if marked is None:
        accepted: Mapping[str, Any] = copy.get_or((ACCEPTED,), {})
        return not any(first < position.office <= last for first, last in accepted.get("skipped", ()))
    if not marked["mark"].startswith(position.mark):
        return False
    following: Mapping[str, Any] | None = copy.get_or((OFFICE_MARKS, str(position.office + 1)), None)
    return bool(position.revision <= (copy.revision if following is None else following["after"]))
