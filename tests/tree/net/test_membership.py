"""Who the members are: the rules of changing it, and where it is remembered."""

import itertools
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.disk.journal import Journal
from batonpass.tree.machine.commands import Machine
from batonpass.tree.net.membership import (
    CAUGHT_UP_WITHIN,
    MAX_MEMBERS,
    MAX_VOTERS,
    Admit,
    Change,
    ChangeRefused,
    Configuration,
    Dismiss,
    Member,
    MemberRole,
    Progress,
    Seat,
    best_successor,
    change_from_data_untrusted,
    decode_seats_untrusted,
    encode_seats,
    next_step,
    proposed_seats,
)
from tests.tree.strategies import plain_data

OWNER = "homeserver/alpha/h1"


def test_a_recorded_commit_survives_a_crash_and_a_compaction_once_it_is_synced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", OWNER)
    for index in range(1, 6):
        journal.append((b"\0a", index, 1))
    journal.record_commit(4)
    journal.sync()
    journal.record_commit(5)
    journal.record_commit(2)
    journal.abandon()
    recovered = Journal(tmp_path / "journal", OWNER)
    assert recovered.recorded_commit == 4
    recovered.begin_part(4)
    recovered.end_part(4)
    recovered.close()
    again = Journal(tmp_path / "journal", OWNER)
    assert (again.recorded_commit, again.first_index) == (4, 4)
    again.close()


def test_the_members_are_part_of_the_state_once_they_were_changed() -> None:
    never_changed, changed = Machine({}), Machine({})
    changed.configuration = {"index": 7, "members": [["h1", "127.0.0.1", 7101, "voter", None]]}
    assert never_changed.digest() != changed.digest()
    restored = Machine({})
    restored.restore(decode(encode(changed.to_data())))
    assert restored.configuration == changed.configuration
    assert restored.digest() == changed.digest()
    restored.restore(never_changed.to_data())
    assert restored.configuration is None


NAMES = [f"h{number}" for number in range(6)]


def member(name: str) -> Member:
    return Member(name, "127.0.0.1", 7000 + NAMES.index(name))


def founded(*names: str) -> Configuration:
    return Configuration.initial(member(name) for name in names)


def after(configuration: Configuration, change: Change, leader: str = "h0") -> Configuration:
    others = [seat.name for seat in configuration.seats if seat.name != leader]
    return Configuration(configuration.index + 1, proposed_seats(configuration, change, leader, others))


def caught_up(configuration: Configuration, connected: Collection[str] = NAMES) -> dict[str, Progress]:
    return {seat.name: Progress(10**6, seat.name in connected, recent=True) for seat in configuration.seats}


def refusal_of(configuration: Configuration, change: Change, reachable: Collection[str] = NAMES) -> str:
    with pytest.raises(ChangeRefused) as refused:
        proposed_seats(configuration, change, "h0", reachable)
    return refused.value.code


def majorities(configuration: Configuration) -> list[set[str]]:
    voters = configuration.voters
    return [set(some) for some in itertools.combinations(voters, len(voters) // 2 + 1)]


changes = st.one_of(
    st.builds(Admit, st.sampled_from(NAMES).map(member), st.none() | st.sampled_from(NAMES)),
    st.builds(Dismiss, st.sampled_from(NAMES)),
)


class Changing(RuleBasedStateMachine):
    """Whatever is asked for, whoever can be reached: two configurations in a row share a member of any majorities."""

    @initialize(names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    def found(self, names: list[str]) -> None:
        self.configuration = founded(*names)
        self.leader = self.configuration.voters[0]
        self.reachable = set(NAMES)

    def follow(self, seats: tuple[Seat, ...]) -> None:
        before, self.configuration = self.configuration, Configuration(self.configuration.index + 1, seats)
        for one, other in itertools.product(majorities(before), majorities(self.configuration)):
            assert one & other, f"{one} and {other} could elect two leaders"

    @rule(change=changes)
    def somebody_asks(self, change: Change) -> None:
        with suppress(ChangeRefused):
            self.follow(proposed_seats(self.configuration, change, self.leader, self.reachable))

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def some_can_be_reached(self, names: set[str]) -> None:
        self.reachable = names

    @rule()
    def the_leader_takes_a_step(self) -> None:
        step = next_step(self.configuration, self.leader, 10**6, caught_up(self.configuration, self.reachable))
        if step is not None and step.seats is not None:
            self.follow(step.seats)
            present = [name for name in self.configuration.voters if name == self.leader or name in self.reachable]
            assert len(present) > len(self.configuration.voters) // 2
        elif step is not None:
            progress = caught_up(self.configuration, self.reachable)
            self.leader = best_successor(self.configuration, self.leader, progress) or self.leader

    @rule(name=st.sampled_from(NAMES))
    def another_leads(self, name: str) -> None:
        if name in self.configuration.voters:
            self.leader = name

    @invariant()
    def somebody_votes_and_everything_is_bounded(self) -> None:
        assert self.configuration.voters
        assert self.leader in self.configuration.voters
        assert len(self.configuration.voters) <= MAX_VOTERS
        assert len(self.configuration.seats) <= MAX_MEMBERS

    @invariant()
    def with_everybody_there_newcomers_vote_and_the_replaced_go(self) -> None:
        configuration, leader = self.configuration, self.leader
        replaced = {seat.replaces for seat in configuration.seats} - {None}
        for _ in range(4 * len(NAMES)):
            step = next_step(configuration, leader, 10**6, caught_up(configuration))
            if step is None:
                break
            if step.seats is None:
                leader = best_successor(configuration, leader, caught_up(configuration)) or leader
            else:
                configuration = Configuration(configuration.index + 1, step.seats)
        assert not configuration.learners
        assert not replaced & set(configuration.voters)

    @invariant()
    def it_is_read_back(self) -> None:
        assert Configuration.from_data_untrusted(decode(encode(self.configuration.to_data()))) == self.configuration
        assert decode_seats_untrusted(encode_seats(self.configuration.seats)) == self.configuration.seats


TestChanging = Changing.TestCase


def test_a_dead_member_goes_before_its_successor_votes_and_a_living_one_after() -> None:
    replacing = after(founded("h0", "h1", "h2"), Admit(member("h3"), "h2"))
    dead = next_step(replacing, "h0", 10, caught_up(replacing, ["h1", "h3"]))
    assert dead is not None
    assert dead.seats is not None
    assert [(seat.name, seat.role) for seat in dead.seats] == [
        ("h0", MemberRole.VOTER),
        ("h1", MemberRole.VOTER),
        ("h3", MemberRole.LEARNER),
    ]
    alive = next_step(replacing, "h0", 10, caught_up(replacing))
    assert alive is not None
    assert alive.seats is not None
    assert [seat.role for seat in alive.seats] == [MemberRole.VOTER] * 4


@pytest.mark.parametrize(
    "progress",
    [
        None,
        Progress(5000, connected=False, recent=True),
        Progress(5000, connected=True, recent=False),
        Progress(5000 - CAUGHT_UP_WITHIN - 1, connected=True, recent=True),
        Progress(0, connected=True, recent=True),
    ],
    ids=["unknown", "not connected", "silent", "far behind", "empty"],
)
def test_a_learner_is_not_promoted_before_it_has_caught_up(progress: Progress | None) -> None:
    configuration = after(founded("h0"), Admit(member("h1")))
    known = {} if progress is None else {"h1": progress}
    assert next_step(configuration, "h0", 5000, known) is None


def test_a_learner_that_has_not_its_own_admission_is_not_promoted_however_short_the_log() -> None:
    configuration = Configuration(7, after(founded("h0"), Admit(member("h1"))).seats)
    assert next_step(configuration, "h0", 8, {"h1": Progress(6, connected=True, recent=True)}) is None
    assert next_step(configuration, "h0", 8, {"h1": Progress(7, connected=True, recent=True)}) is not None


def test_what_is_wrong_with_a_request_has_a_code() -> None:
    three = founded("h0", "h1", "h2")
    assert refusal_of(three, Dismiss("nobody")) == "unknown_member"
    assert refusal_of(three, Dismiss("h0")) == "is_leader"
    assert refusal_of(founded("h0"), Dismiss("h0")) == "last_voter"
    assert refusal_of(three, Dismiss("h1"), ["h1"]) == "no_majority"
    assert refusal_of(three, Admit(member("h1"))) == "already_member"
    assert refusal_of(three, Admit(member("h3"), "nobody")) == "unknown_member"
    assert refusal_of(three, Admit(Member("h3", "127.0.0.1", 7001))) == "address_in_use"
    assert proposed_seats(three, Admit(Member("h3", "127.0.0.1", 7001), "h1"), "h0", []), "but its own successor may"
    assert refusal_of(after(three, Admit(member("h3"), "h1")), Admit(member("h4"), "h1")) == "change_pending"
    for odd in (Member("", "h", 1), Member("x" * 256, "h", 1), Member("x", "", 1), Member("x", "h", 0)):
        assert refusal_of(three, Admit(odd)) == "bad_member"
    many = Configuration.initial(Member(f"m{number}", "h", 1 + number) for number in range(MAX_VOTERS))
    assert refusal_of(many, Admit(member("h3"))) == "too_many_members"
    assert proposed_seats(many, Admit(member("h3"), "m1"), "m0", []), "a replacement adds no voter"


def test_a_voter_goes_while_the_others_have_a_majority_and_a_learner_whoever_can_be_reached() -> None:
    four = after(founded("h0", "h1", "h2"), Admit(member("h3")))
    assert [seat.name for seat in proposed_seats(four, Dismiss("h1"), "h0", ["h2"])] == ["h0", "h2", "h3"]
    assert refusal_of(four, Dismiss("h1"), ["h1", "h3"]) == "no_majority"
    assert [seat.name for seat in proposed_seats(four, Dismiss("h3"), "h0", [])] == ["h0", "h1", "h2"]


def test_who_replaces_somebody_that_is_gone_replaces_nobody_and_others_still_do() -> None:
    replacing = after(after(founded("h0", "h1", "h2"), Admit(member("h3"), "h1")), Admit(member("h4"), "h2"))
    gone = proposed_seats(replacing, Dismiss("h1"), "h0", ["h2"])
    assert [(seat.name, seat.replaces) for seat in gone] == [("h0", None), ("h2", None), ("h3", None), ("h4", "h2")]


def test_the_bounds_of_an_instance_and_of_a_member_are_what_they_say() -> None:
    three = founded("h0", "h1", "h2")
    for odd in (Member("x" * 255, "h", 1), Member("x", "h" * 255, 1), Member("x", "h", 65_535)):
        assert proposed_seats(three, Admit(odd), "h0", [])
    for odd in (Member("x" * 256, "h", 1), Member("x", "h" * 256, 1), Member("x", "h", 65_536)):
        assert refusal_of(three, Admit(odd)) == "bad_member"
    full = Configuration.initial(Member(f"m{number}", "h", 1 + number) for number in range(MAX_VOTERS))
    replacing = after(full, Admit(Member("n1", "h", 101), "m1"))
    assert refusal_of(replacing, Admit(Member("n2", "h", 102), "m2")) == "too_many_members", "one after the other"


@pytest.mark.parametrize("index", [-1, True, 1.0, "1", None])
def test_the_index_of_a_configuration_is_a_number_from_zero(index: Any) -> None:
    assert Configuration.from_data_untrusted({"index": 0, "members": []}).index == 0
    with pytest.raises(BadData):
        Configuration.from_data_untrusted({"index": index, "members": []})


def test_the_best_successor_stays_is_connected_and_has_most_of_the_log() -> None:
    replacing = after(founded("h0", "h1", "h2"), Admit(member("h3"), "h2"))
    promoted = Configuration(9, tuple(replace(seat, role=MemberRole.VOTER) for seat in replacing.seats))
    progress = {
        "h1": Progress(10, connected=True, recent=True),
        "h2": Progress(99, connected=True, recent=True),
        "h3": Progress(20, connected=True, recent=True),
    }
    assert best_successor(promoted, "h0", progress) == "h3"
    assert best_successor(promoted, "h0", {**progress, "h3": Progress(20, connected=False, recent=True)}) == "h1"
    assert best_successor(promoted, "h0", {"h2": progress["h2"]}) == "h2", "one that leaves is better than none"
    assert best_successor(promoted, "h0", {}) is None


@given(plain_data)
def test_any_data_is_a_configuration_or_a_change_or_bad(data: Any) -> None:
    for read in (Configuration.from_data_untrusted, change_from_data_untrusted):
        try:
            read(data)
        except BadData:
            continue


@given(changes)
def test_a_change_is_read_back(change: Change) -> None:
    assert change_from_data_untrusted(decode(encode(change.to_data()))) == change


@pytest.mark.parametrize(
    "data", [7, [["h1", "h", 1, "king", None]], [["h1", "h", 1, "voter", None]] * 2, [["h1", "h"]], {"index": -1}]
)
def test_what_is_not_a_configuration_is_refused(data: Any) -> None:
    with pytest.raises(BadData):
        decode_seats_untrusted(encode(data))
    with pytest.raises(BadData):
        Configuration.from_data_untrusted({"index": 3, "members": data})


def test_who_is_about_to_replace_somebody_is_not_replaced_meanwhile() -> None:
    replacing = after(founded("h0", "h1"), Admit(member("h2"), "h1"))
    with pytest.raises(ChangeRefused, match="change_pending"):
        after(replacing, Admit(member("h3"), "h2"))
