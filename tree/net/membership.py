"""Who the members of an instance are, and how that may change while it runs. Pure.

The rules are those of etcd/raft (see "Membership changes" in its documentation). They differ from the Raft thesis (4.1)
in when a change takes effect:

* A change is an entry of the log and holds the whole new *configuration*. It takes effect on each member when that
  member *applies* it, so a configuration in use is always committed and never taken back.
* A change adds or removes one voter, so that any two majorities, of the configuration before and after, share a member.
* The log holds at most one change that its leader has not applied. A new leader cannot know how many its log holds, so
  it proposes none before it has applied an entry of its own term, and with it everything before.
* A member that knows of a committed change applies it before it stands for election. It also *remembers* that it is
  committed: when its journal gets change n + 1, it records in the same sync that change n is committed.

Why the last one matters: the voters are A, B and C; change 1 adds D and is committed by A and B; change 2 adds E and is
committed by A, B and D. B restarts and has forgotten what is committed. Both changes are in its log, none is applied,
so it stands among A, B and C, and wins with the vote of C, which has neither change. In the same term D stands among
all five and wins with A and E: two leaders. But the message that brought change 2 to B had told it that change 1 is
committed. Had B not forgotten it, it would stand among A, B, C and D and need three of them; and any three of those
share a member with any three of all five.

New members enter as *learners*: they get the log and count for nothing. The leader promotes a learner when it is within
`CAUGHT_UP_WITHIN` entries of the end of the log and answered lately. What has to be done next, until a newcomer votes
and the one that it replaces is gone, follows from the configuration alone (`next_step`), so any later leader continues.

A replaced member that is out of reach goes *before* its successor gets a vote: then no step needs more members to be
alive than the one before. One that is alive goes after it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData

__all__ = [
    "CAUGHT_UP_WITHIN",
    "MAX_MEMBERS",
    "MAX_VOTERS",
    "NO_CONFIGURATION",
    "Admit",
    "Change",
    "ChangeRefused",
    "Configuration",
    "Dismiss",
    "Member",
    "MemberRole",
    "MembershipStep",
    "Progress",
    "Seat",
    "best_successor",
    "change_from_data_untrusted",
    "decode_seats_untrusted",
    "encode_seats",
    "next_step",
    "proposed_seats",
]

# More voters make writes slower and nothing safer; etcd's documentation advises against more than seven.
MAX_VOTERS: Final = 9
MAX_MEMBERS: Final = 12
CAUGHT_UP_WITHIN: Final = 1024
MAX_NAME_CHARACTERS: Final = 255
MAX_HOST_CHARACTERS: Final = 255


class ChangeRefused(Exception):
    """The members cannot be changed, or the leadership not be transferred, like this now; nothing was changed.

    `code` is stable: `not_leader`, `change_pending` and `transfer_pending` (each worth another attempt soon);
    `already_member`, `address_in_use`, `bad_member`, `is_leader`, `last_voter`, `no_majority`, `not_a_voter`,
    `not_connected`, `too_many_members`, `unknown_member` (which need another request, or other circumstances).
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{sentence} ({code})")
        self.code: Final = code
        self.sentence: Final = sentence


@dataclass(frozen=True)
class Member:
    """A member of an instance and where it listens."""

    name: str
    host: str
    port: int


class MemberRole(StrEnum):
    """What a member counts for: a voter in elections and commits, a learner in nothing."""

    VOTER = "voter"
    LEARNER = "learner"


@dataclass(frozen=True, slots=True)
class Seat:
    """A member's place in a configuration. `replaces` names the member that goes when this one votes."""

    member: Member
    role: MemberRole = MemberRole.VOTER
    replaces: str | None = None

    @property
    def name(self) -> str:
        """The member's name."""
        return self.member.name


@dataclass(frozen=True)
class Configuration:
    """Who is a member since the entry `index` of the log; 0 for the configuration that the instance began with."""

    index: int
    seats: tuple[Seat, ...]

    @staticmethod
    def initial(members: Iterable[Member]) -> "Configuration":
        """The configuration of a new instance: all of them vote."""
        return Configuration(0, _ordered(Seat(member) for member in members))

    def seat(self, name: str) -> Seat | None:
        """The seat of this member, or None."""
        return next((seat for seat in self.seats if seat.name == name), None)

    @cached_property
    def voters(self) -> tuple[str, ...]:
        """The names of those that count, in order."""
        return tuple(seat.name for seat in self.seats if seat.role is MemberRole.VOTER)

    @property
    def learners(self) -> tuple[str, ...]:
        """The names of those that do not count yet, in order."""
        return tuple(seat.name for seat in self.seats if seat.role is MemberRole.LEARNER)

    def to_data(self) -> dict[str, Any]:
        """As plain data, for a snapshot."""
        return {"index": self.index, "members": _seats_to_data(self.seats)}

    @staticmethod
    def from_data_untrusted(data: Any) -> "Configuration":
        """Read what `to_data` wrote; raises `BadData`."""
        match data:
            case {"index": int(index), "members": seats} if type(index) is int and index >= 0:
                return Configuration(index, _seats_from_data(seats))
            case _:
                raise BadData("not a configuration of members")


# Of a member that waits to be admitted, or follows the log towards its admission.
NO_CONFIGURATION: Final = Configuration(-1, ())


def encode_seats(seats: Iterable[Seat]) -> bytes:
    """What an entry of the log that changes the members holds."""
    return encode(_seats_to_data(seats))


def decode_seats_untrusted(encoded: bytes) -> tuple[Seat, ...]:
    """Read what `encode_seats` wrote; raises `BadData`."""
    return _seats_from_data(decode_untrusted(encoded))


def _ordered(seats: Iterable[Seat]) -> tuple[Seat, ...]:
    return tuple(sorted(seats, key=lambda seat: seat.name))


def _seats_to_data(seats: Iterable[Seat]) -> list[Any]:
    return [[seat.name, seat.member.host, seat.member.port, str(seat.role), seat.replaces] for seat in seats]


def _seats_from_data(data: Any) -> tuple[Seat, ...]:
    if not isinstance(data, list):
        raise BadData("not a list of members")
    seats = []
    for row in data:
        match row:
            case [str(name), str(host), int(port), ("voter" | "learner") as role, None | str() as replaces]:
                seats.append(Seat(Member(name, host, port), MemberRole(role), replaces))
            case _:
                raise BadData("not a member of a configuration")
    if len({seat.name for seat in seats}) != len(seats):
        raise BadData("a configuration names a member twice")
    return _ordered(seats)


# --- changes that a caller asks for -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admit:
    """Let a new member in as a learner, to vote when it has caught up, in the place of `replaces` if that is given."""

    member: Member
    replaces: str | None = None

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["admit", self.member.name, self.member.host, self.member.port, self.replaces]


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Let a member go."""

    name: str

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["dismiss", self.name]


Change = Admit | Dismiss


def change_from_data_untrusted(data: Any) -> Change:
    """Read what `to_data` of a change wrote; raises `BadData`."""
    match data:
        case ["admit", str(name), str(host), int(port), None | str() as replaces] if type(port) is int:
            return Admit(Member(name, host, port), replaces)
        case ["dismiss", str(name)]:
            return Dismiss(name)
        case _:
            raise BadData("not a change of the members")


def proposed_seats(
    configuration: Configuration, change: Change, leader: str, reachable: Collection[str]
) -> tuple[Seat, ...]:
    """The members after a change, as the leader proposes it; raises `ChangeRefused`.

    `reachable` names those that the leader is connected to.
    """
    match change:
        case Admit(member, replaces):
            return _with_learner(configuration, member, replaces)
        case Dismiss(name):
            return _after_dismissal(configuration, name, leader, reachable)


def _with_learner(configuration: Configuration, member: Member, replaces: str | None) -> tuple[Seat, ...]:
    _check_member(member)
    if configuration.seat(member.name) is not None:
        raise ChangeRefused("already_member", f"{member.name!r} is a member already")
    old = None if replaces is None else configuration.seat(replaces)
    if replaces is not None and old is None:
        raise ChangeRefused("unknown_member", f"{replaces!r} is not a member, so nobody can replace it")
    if old is not None and old.replaces is not None:
        # Otherwise no member would remember that the third one should go.
        raise ChangeRefused("change_pending", f"{replaces!r} itself is about to replace {old.replaces!r}")
    for seat in configuration.seats:
        if (seat.member.host, seat.member.port) == (member.host, member.port) and seat.name != replaces:
            raise ChangeRefused("address_in_use", f"{seat.name!r} listens at {member.host}:{member.port} already")
        if replaces is not None and seat.replaces == replaces:
            raise ChangeRefused("change_pending", f"{seat.name!r} is about to replace {replaces!r} already")
    future_voters = len(configuration.seats) + (replaces is None)
    if future_voters > MAX_VOTERS or len(configuration.seats) >= MAX_MEMBERS:
        raise ChangeRefused(
            "too_many_members", f"an instance has at most {MAX_VOTERS} voters and {MAX_MEMBERS} members; remove one"
        )
    return _ordered([*configuration.seats, Seat(member, MemberRole.LEARNER, replaces)])


def _check_member(member: Member) -> None:
    if not 0 < len(member.name) <= MAX_NAME_CHARACTERS:
        raise ChangeRefused("bad_member", f"a member's name has 1 to {MAX_NAME_CHARACTERS} characters")
    if not 0 < len(member.host) <= MAX_HOST_CHARACTERS or not 0 < member.port < 1 << 16:
        raise ChangeRefused("bad_member", f"{member.host[:64]!r}:{member.port} is not an address")


def _after_dismissal(
    configuration: Configuration, name: str, leader: str, reachable: Collection[str]
) -> tuple[Seat, ...]:
    seat = configuration.seat(name)
    if seat is None:
        raise ChangeRefused("unknown_member", f"{name!r} is not a member")
    if configuration.voters == (name,):
        raise ChangeRefused("last_voter", f"{name!r} is the only voter; add another member before")
    if name == leader:
        raise ChangeRefused("is_leader", f"{name!r} leads; transfer the leadership before")
    seats = _without(configuration, name)
    if seat.role is MemberRole.VOTER and not _has_reachable_majority(seats, leader, reachable):
        raise ChangeRefused(
            "no_majority",
            f"without {name!r}, no majority of the voters could be reached now; bring members back first, or replace"
            " one that is gone for good",
        )
    return seats


def _without(configuration: Configuration, name: str) -> tuple[Seat, ...]:
    return tuple(
        replace(seat, replaces=None) if seat.replaces == name else seat
        for seat in configuration.seats
        if seat.name != name
    )


def _promoted(configuration: Configuration, name: str) -> tuple[Seat, ...]:
    return tuple(replace(seat, role=MemberRole.VOTER) if seat.name == name else seat for seat in configuration.seats)


def _has_reachable_majority(seats: Iterable[Seat], leader: str, reachable: Collection[str]) -> bool:
    voters = [seat.name for seat in seats if seat.role is MemberRole.VOTER]
    present = [name for name in voters if name == leader or name in reachable]
    return len(present) > len(voters) // 2


# --- what a leader does of itself ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a leader knows another member to be: it has the log up to `match_index`.

    `connected`: there is a connection, and it answered within the longest election timeout; `recent`: within the
    shortest.
    """

    match_index: int
    connected: bool
    recent: bool


@dataclass(frozen=True, slots=True)
class MembershipStep:
    """What a leader does next: propose these members, or, if there are none, transfer the leadership; and why."""

    reason: str
    seats: tuple[Seat, ...] | None


def next_step(
    configuration: Configuration, leader: str, last_index: int, progress: Mapping[str, Progress]
) -> MembershipStep | None:
    """The step that brings newcomers closer to their votes and replaced members closer to the door; None for now.

    To be asked by a leader that may propose a change. `progress` is that of all other members.
    """
    reachable = {name for name, member in progress.items() if member.connected}
    for seat in configuration.seats:
        step = _step_of(configuration, seat, leader, last_index, progress)
        if step is not None and (step.seats is None or _has_reachable_majority(step.seats, leader, reachable)):
            return step
    return None


def _step_of(
    configuration: Configuration, seat: Seat, leader: str, last_index: int, progress: Mapping[str, Progress]
) -> MembershipStep | None:
    old = None if seat.replaces is None else configuration.seat(seat.replaces)
    if seat.role is MemberRole.VOTER:
        if old is None:
            return None
        if old.name == leader:
            return MembershipStep(f"{seat.name} replaces {leader}, which leads", None)
        return MembershipStep(f"{seat.name} has replaced {old.name}", _without(configuration, old.name))
    if not _is_caught_up(configuration, last_index, progress.get(seat.name)):
        return None
    if old is not None and old.name != leader and not progress[old.name].connected:
        return MembershipStep(
            f"{old.name} is out of reach and {seat.name} replaces it", _without(configuration, old.name)
        )
    return MembershipStep(f"{seat.name} has caught up", _promoted(configuration, seat.name))


def _is_caught_up(configuration: Configuration, last_index: int, progress: Progress | None) -> bool:
    """Near the end of the log, and past its own admission, so that it knows itself to be a member."""
    return (
        progress is not None
        and progress.connected
        and progress.recent
        and progress.match_index >= max(configuration.index, last_index - CAUGHT_UP_WITHIN)
    )


def best_successor(configuration: Configuration, leader: str, progress: Mapping[str, Progress]) -> str | None:
    """The voter that the leadership is best transferred to: connected, not about to go, with the most of the log."""
    leaving = {seat.replaces for seat in configuration.seats if seat.role is MemberRole.VOTER}
    candidates = [
        (name not in leaving, progress[name].match_index, name)
        for name in configuration.voters
        if name != leader and name in progress and progress[name].connected
    ]
    return max(candidates)[2] if candidates else None
