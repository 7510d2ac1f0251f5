"""Whether a log has been where a signed position says, also long after it was restored from an older copy."""

import copy
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import LeaseOffice
from batonpass.authority.trust.signed_positions import (
    MAX_HEARD_OFFICES,
    MAX_OFFICES,
    OFFICE_MARKS,
    PLACES_PATTERN,
    LogPlace,
    LogPosition,
    has_been_at,
    is_in_log,
    place_of,
)
from tests.authority.log import Log


class Life:
    """A log as its homeservers write it, which can be copied, and the positions that they sign."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.log = Log()
        self.revision = 0
        self.office = 0

    def copied(self) -> "Life":
        other = Life(self._dice)
        other.log, other.revision, other.office = copy.deepcopy(self.log), self.revision, self.office
        return other

    def take_office(self) -> None:
        self.log.rows.revisions = self.revision
        self.log.run("lease.take_office", by="alpha.h1", after=self.office, mark=f"{self._dice.getrandbits(128):032x}")
        self.office += 1
        self.write()

    def write(self) -> None:
        self.revision += 1
        self.log.rows.revisions = self.revision

    def position(self) -> LogPosition:
        mark = self.log.rows.get_or((OFFICE_MARKS, str(self.office)), None)["mark"]
        return LogPosition(instance="alpha", office=self.office, mark=mark, revision=self.revision)

    def place(self) -> LogPlace:
        self.log.rows.revisions = self.revision
        found = place_of(self.log.rows)
        assert found is not None
        return found

    def knows(self, position: LogPosition | LogPlace) -> bool:
        return is_in_log(self.log.rows, position)

    def go_on(self, steps: list[bool]) -> list[LogPosition]:
        """Write, or take the office (True), one after the other; the positions after each."""
        found = []
        for takes in steps:
            if takes:
                self.take_office()
            else:
                self.write()
            found.append(self.position())
        return found


STEPS = st.lists(st.booleans(), max_size=12)


@given(STEPS, STEPS, STEPS, st.integers(0, 2**32))
def test_failures_row_42_a_restored_older_log_has_been_nowhere_where_the_lost_one_was(
    before: list[bool], lost: list[bool], since: list[bool], seed: int
) -> None:
    """However far it has gone on since: a homeserver that starts takes the office before it does anything else."""
    one = Life(random.Random(seed))
    one.take_office()
    common = [one.position(), *one.go_on(before)]
    other = one.copied()
    gone = one.go_on(lost)
    other.take_office()
    kept = [other.position(), *other.go_on(since)]
    assert all(one.knows(position) for position in common + gone)
    assert all(other.knows(position) for position in common + kept)
    assert not any(other.knows(position) for position in gone)
    assert not any(one.knows(position) for position in kept)


@given(STEPS, STEPS, STEPS, st.integers(0, 2**32))
def test_failures_row_42_what_was_accepted_as_lost_counts_as_known_and_was_not_there_all_the_same(
    before: list[bool], lost: list[bool], since: list[bool], seed: int
) -> None:
    """Also when the copy was made within an office, and the log went on under that for a while before it was lost."""
    one = Life(random.Random(seed))
    one.take_office()
    one.go_on(before)
    other = one.copied()
    one.write()
    gone = [one.position(), *one.go_on(lost)]
    other.take_office()
    assert not any(other.knows(position) for position in gone)
    args = {"by": "alpha.h1", "office": other.office, "lost": gone[-1].office, "why": "shown"}
    assert other.log.run("log.alarm", **args)
    assert other.log.run("log.accept")
    other.office = LeaseOffice.from_data(other.log.rows.get_or(("lease_office",), None)).number
    other.take_office()
    kept = [other.position(), *other.go_on(since)]
    assert all(other.knows(position) for position in gone + kept)
    assert not any(has_been_at(other.log.rows, position) for position in gone)
    assert all(has_been_at(other.log.rows, position) for position in kept)
    # And that it is restored once more is noticed, whatever the numbers of the offices were.
    again = other.copied()
    other.write()
    lost_again = [other.position(), *other.go_on(lost)]
    again.take_office()
    assert not any(again.knows(position) for position in lost_again)
    assert all(again.knows(position) for position in gone + kept)


def test_of_an_office_that_is_forgotten_nothing_is_said() -> None:
    life = Life(random.Random(1))
    life.take_office()
    old = life.position()
    for _ in range(MAX_OFFICES - 1):
        life.take_office()
    forged = old.model_copy(update={"mark": "0" * 32})
    assert life.knows(old)
    assert not life.knows(forged)
    life.take_office()
    assert life.knows(old)
    assert life.knows(forged)
    assert life.log.rows.count_children((OFFICE_MARKS,)) == MAX_OFFICES


def test_a_log_of_before_there_were_marks_is_no_older_one() -> None:
    log = Log()
    log.run("lease.take_office", by="alpha.h1", after=0)
    assert log.rows.count_children((OFFICE_MARKS,)) == 0
    assert is_in_log(log.rows, LogPosition(instance="alpha", office=1, mark="0" * 32, revision=7))
    assert not is_in_log(log.rows, LogPosition(instance="alpha", office=2, mark="0" * 32, revision=7))


@pytest.mark.parametrize(
    "wrong", [{"office": 0}, {"mark": "x"}, {"revision": -1}, {"kind": "commit"}, {"instance": ""}]
)
def test_what_is_no_position_is_refused(wrong: dict[str, object]) -> None:
    claims = LogPosition(instance="alpha", office=1, mark="0" * 32, revision=7).to_claims()
    assert LogPosition.from_claims_untrusted(claims).revision == 7
    with pytest.raises(MessageError):
        LogPosition.from_claims_untrusted(claims | wrong)


@given(STEPS, STEPS, STEPS, st.integers(0, 2**32))
def test_failures_row_42_a_restored_older_log_has_not_been_where_the_lost_one_was_said_to_be(
    before: list[bool], lost: list[bool], since: list[bool], seed: int
) -> None:
    one = Life(random.Random(seed))
    one.take_office()
    one.go_on(before)
    common, other = one.place(), one.copied()
    one.go_on([*lost, False])
    gone = one.place()
    other.take_office()
    other.go_on(since)
    assert one.knows(gone)
    assert one.knows(common)
    assert other.knows(common)
    assert not other.knows(gone)


@given(st.integers(1, 2**62), st.integers(0, 2**62), st.integers(0, 2**32 - 1))
def test_a_place_is_read_as_it_was_written_and_nothing_else_is_one(office: int, revision: int, mark: int) -> None:
    place = LogPlace(office, revision, f"{mark:08x}")
    assert LogPlace.read(str(place)) == place
    assert re.fullmatch(PLACES_PATTERN, " ".join([str(place)] * MAX_HEARD_OFFICES))
    assert not re.fullmatch(PLACES_PATTERN, " ".join([str(place)] * (MAX_HEARD_OFFICES + 1)))
    for other in ("", f"0.{mark:08x}.1", f"{place} ", f"{place}.", "1.0f.2", "\u0661.00000000.2"):
        assert LogPlace.read(other) is None


def test_a_log_stands_nowhere_before_there_was_an_office() -> None:
    assert place_of(Log().rows) is None
