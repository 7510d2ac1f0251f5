"""Invitations in the log: each use counts once, however often it is asked for, and none counts that was not good."""

from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.enrolment import DoorGrant, Enrolled, Invitation, Right
from batonpass.authority.model.records import Role
from batonpass.authority.procedures import enrolment
from batonpass.authority.procedures.enrolment import (
    ENROLMENT_PROCEDURES,
    INVITATION_ORDER,
    INVITATIONS,
    MAX_INVITATIONS,
    enrolled_path,
)
from tests.authority.log import Log
from tests.authority.rows import DictRows, directory_row
from tests.budget import examples

NOW_S = 1000.0


def invitation(name: str = "a", **changed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": name,
        "digest": f"digest of {name}",
        "players": "alpha.guest-*",
        "grant": DoorGrant(),
        "uses": 1,
        "expires_at_s": NOW_S + 60,
    }
    return Invitation(**fields | changed).to_data()


def enrolling(player: str, name: str = "a", **changed: Any) -> dict[str, Any]:
    row = directory_row(player, Role.PLAYER, keys={"keys": [player, player]}).to_data()
    digest = f"digest of {name}" if name else ""
    return {"row": row, "invitation": name, "digest": digest, "grant": None, "now_s": NOW_S} | changed


def uses_of(rows: DictRows, name: str = "a") -> int:
    return Invitation.from_data(rows.get_or((INVITATIONS, name), None)).uses


@pytest.fixture
def invited(log: Log) -> Log:
    log.run("invitation.make", invitation=invitation(uses=2), now_s=NOW_S)
    return log


def test_a_player_comes_with_its_keys_and_what_the_invitation_gives_and_takes_one_use(invited: Log) -> None:
    enrolled = invited.run("player.enrol", **enrolling("alpha.guest-1"))
    assert Enrolled.from_data(enrolled) == Enrolled(player="alpha.guest-1", grant=DoorGrant(), invitation="a")
    assert invited.rows.get_or(("players", "alpha.guest-1"), {})["role"] == "player"
    assert uses_of(invited.rows) == 1


def test_the_same_again_takes_no_other_use_also_when_the_invitation_is_used_up_or_over_or_revoked(
    invited: Log,
) -> None:
    for _ in range(3):
        invited.run("player.enrol", **enrolling("alpha.guest-1"))
    assert uses_of(invited.rows) == 1
    invited.run("player.enrol", **enrolling("alpha.guest-2"))
    assert uses_of(invited.rows) == 0
    invited.refuses(Reason.BAD_INVITATION, "player.enrol", **enrolling("alpha.guest-3"))
    invited.run("player.enrol", **enrolling("alpha.guest-1", now_s=NOW_S + 100))
    invited.run("invitation.revoke", id="a")
    invited.run("player.enrol", **enrolling("alpha.guest-1"))


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "another"},
        {"now_s": NOW_S + 60.5},
        {"invitation": "b"},
        {"row": directory_row("alpha.ada", Role.PLAYER).to_data()},
    ],
    ids=["another secret", "its time is over", "no such invitation", "another name"],
)
def test_an_invitation_that_is_not_good_changes_nothing(invited: Log, changed: dict[str, Any]) -> None:
    before = dict(invited.rows.data)
    invited.refuses(Reason.BAD_INVITATION, "player.enrol", **enrolling("alpha.guest-1", **changed))
    assert invited.rows.data == before


def test_nobody_comes_with_other_keys_than_those_of_the_name(invited: Log) -> None:
    invited.run("player.enrol", **enrolling("alpha.guest-1"))
    other = directory_row("alpha.guest-1", Role.PLAYER, keys={"keys": ["x", "y"]}).to_data()
    invited.refuses(Reason.KEY_CONFLICT, "player.enrol", **enrolling("alpha.guest-1", row=other))
    server = directory_row("alpha.guest-7").to_data()
    invited.run("directory.register", row=server)
    invited.refuses(Reason.KEY_CONFLICT, "player.enrol", **enrolling("alpha.guest-7"))
    assert uses_of(invited.rows) == 1


def test_without_an_invitation_only_a_name_is_taken_that_nobody_bears_or_that_came_so(log: Log) -> None:
    grant = DoorGrant(rights=(Right.OWN,)).to_data()
    for _ in range(2):
        enrolled = log.run("player.enrol", **enrolling("alpha.guest-1", "", grant=grant))
        assert Enrolled.from_data(enrolled).grant.rights == (Right.OWN,)
    log.run(
        "directory.register", row=directory_row("alpha.ada", Role.PLAYER, keys={"keys": ["alpha.ada"] * 2}).to_data()
    )
    log.refuses(Reason.KEY_CONFLICT, "player.enrol", **enrolling("alpha.ada", "", grant=grant))
    assert log.rows.get_or(enrolled_path("alpha.ada"), None) is None


def test_what_a_trusted_service_says_stays_whatever_invitation_is_shown(invited: Log) -> None:
    invited.run("player.enrol", **enrolling("alpha.guest-1"))
    invited.run("player.grant", player="alpha.guest-1", grant=DoorGrant(rights=()).to_data())
    invited.run("invitation.make", invitation=invitation("b"), now_s=NOW_S)
    enrolled = invited.run("player.enrol", **enrolling("alpha.guest-1", "b"))
    assert enrolled["grant"]["rights"] == []
    assert enrolled["fixed"]
    assert uses_of(invited.rows, "b") == 1
    invited.refuses(Reason.NOT_FOUND, "player.grant", player="alpha.nobody", grant=DoorGrant().to_data())


def test_the_table_is_bounded_and_what_is_over_makes_room(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrolment, "MAX_INVITATIONS", 2)
    for name, life_s in (("a", 10), ("b", 100)):
        log.run("invitation.make", invitation=invitation(name, expires_at_s=NOW_S + life_s), now_s=NOW_S)
    log.refuses(Reason.FULL, "invitation.make", invitation=invitation("c"), now_s=NOW_S)
    log.run("invitation.make", invitation=invitation("c"), now_s=NOW_S + 11)
    assert [name for name, _ in log.rows.get_or(INVITATION_ORDER, [])] == ["b", "c"]
    assert log.rows.get_or((INVITATIONS, "a"), None) is None
    same = log.run("invitation.make", invitation=invitation("c"), now_s=NOW_S + 12)
    assert same == invitation("c")
    log.refuses(Reason.ALREADY_EXISTS, "invitation.make", invitation=invitation("c", digest="other"), now_s=NOW_S)
    log.run("invitation.revoke", id="b")
    log.refuses(Reason.NOT_FOUND, "invitation.revoke", id="b")
    assert MAX_INVITATIONS == 1024


@pytest.mark.parametrize(
    ("entity", "is_taken"),
    [("alpha.ada-1", True), ("alpha.ada-", True), ("alpha.adam", False), ("alpha.bob-1", False), ("beta.ada-1", False)],
)
def test_a_player_spawns_under_names_of_its_own(entity: str, is_taken: bool) -> None:
    assert DoorGrant().takes_entity("alpha.ada", entity) is is_taken


class Invitations(RuleBasedStateMachine):
    """Any mix of makers, players, repetitions and clocks: no invitation lets more in than it says."""

    names = st.sampled_from(["a", "b", "c"])
    players = st.sampled_from([f"alpha.guest-{number}" for number in range(6)])

    def __init__(self) -> None:
        super().__init__()
        self.rows = DictRows()
        self.now_s = NOW_S
        self.allowed: dict[str, int] = {}
        self.came: defaultdict[str, set[str]] = defaultdict(set)
        self.fixed: set[str] = set()

    def run(self, procedure: str, **args: Any) -> Any:
        before = dict(self.rows.data)
        try:
            return ENROLMENT_PROCEDURES[procedure](self.rows, args)
        except Refused:
            # As of the tree's transactions.
            self.rows.data = before
            return None

    @rule(name=names, uses=st.integers(1, 3), life_s=st.floats(1, 50))
    def make(self, name: str, uses: int, life_s: float) -> None:
        # An id is drawn anew for each invitation: none comes back.
        if name not in self.allowed:
            data = invitation(name, uses=uses, expires_at_s=self.now_s + life_s)
            if self.run("invitation.make", invitation=data, now_s=self.now_s) is not None:
                self.allowed[name] = uses

    @rule(name=names)
    def revoke(self, name: str) -> None:
        self.run("invitation.revoke", id=name)

    @rule(player=players, name=names, good=st.booleans(), behind_s=st.floats(0, 5))
    def enrol(self, player: str, name: str, good: bool, behind_s: float) -> None:
        changed = {} if good else {"digest": "guessed"}
        before = self.rows.get_or(enrolled_path(player), None)
        answer = self.run("player.enrol", **enrolling(player, name, now_s=self.now_s - behind_s, **changed))
        if answer is not None and answer["invitation"] == name and not answer["fixed"]:
            assert good or before == answer
            self.came[name].add(player)

    @rule(player=players)
    def grant(self, player: str) -> None:
        if self.run("player.grant", player=player, grant=DoorGrant(rights=()).to_data()) is not None:
            self.fixed.add(player)

    @rule(passed_s=st.floats(0, 30))
    def wait(self, passed_s: float) -> None:
        self.now_s += passed_s

    @invariant()
    def nobody_is_in_too_many(self) -> None:
        for name, players in self.came.items():
            assert len(players) <= self.allowed[name]

    @invariant()
    def what_was_said_stays(self) -> None:
        for player in self.fixed:
            assert Enrolled.from_data(self.rows.get_or(enrolled_path(player), None)).fixed

    @invariant()
    def who_may_do_something_has_keys(self) -> None:
        for path in self.rows.data:
            if path[0] == "enrolled":
                assert ("players", path[1]) in self.rows.data


TestInvitations = Invitations.TestCase
TestInvitations.settings = settings(max_examples=examples(100), stateful_step_count=30)
