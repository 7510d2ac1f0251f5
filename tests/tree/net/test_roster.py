"""Who is let in: whom the newest known configuration lists, and who knows a newer one; the removed are told so."""

import pytest

from batonpass.tree.net.frames import Greeting
from batonpass.tree.net.membership import Configuration, Member, MemberRole, Seat
from batonpass.tree.net.roster import NOT_ADMITTED, REMOVED, Roster


def member(name: str) -> Member:
    return Member(name, "127.0.0.1", 7000 + int(name[1:]))


def configuration(index: int, *names: str, learners: tuple[str, ...] = ()) -> Configuration:
    voters = [Seat(member(name)) for name in names]
    return Configuration(index, tuple(voters + [Seat(member(name), MemberRole.LEARNER) for name in learners]))


def greeting(name: str, since: int, *, joining: bool = False) -> Greeting:
    return Greeting("homeserver", "alpha", name, 2, since=since, joining=joining)


def roster(name: str = "h1", *, joining: bool = False) -> Roster:
    members = tuple(member(other) for other in ("h1", "h2", "h3"))
    return Roster(greeting(name, 0), members, joining=joining)


def member_of(known: Configuration) -> Roster:
    found = roster()
    found.adopt(known)
    return found


def test_members_of_the_same_configuration_let_each_other_in() -> None:
    mine = member_of(configuration(0, "h1", "h2", "h3"))
    assert mine.contacts == {"h2": member("h2"), "h3": member("h3")}
    assert mine.judge(greeting("h2", 0), "h2").code is None
    assert mine.judge_proven(greeting("h2", 0)).code is None
    assert mine.hint_for(greeting("h2", 0)) is None
    assert mine.greeting(probe=True) == Greeting("homeserver", "alpha", "h1", 2, probe=True, since=0, joining=False)


@pytest.mark.parametrize(
    ("code", "stranger"),
    [
        ("wrong_version", Greeting("homeserver", "alpha", "h2", 1)),
        ("wrong_kind", Greeting("simserver", "alpha", "h2", 2)),
        ("wrong_instance", Greeting("homeserver", "beta", "h2", 2)),
        ("wrong_machine", Greeting("homeserver", "alpha", "h2", 2, machine="2-0badcafe")),
        ("unknown_member", greeting("h9", 0)),
        ("not_admitted", greeting("h9", -1, joining=True)),
        ("lost_memory", greeting("h2", -1, joining=True)),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_proved(code: str, stranger: Greeting) -> None:
    assert member_of(configuration(0, "h1", "h2", "h3")).judge(stranger, None).code == code


def test_somebody_else_at_an_address_is_not_let_in() -> None:
    assert member_of(configuration(0, "h1", "h2", "h3")).judge(greeting("h3", 0), "h2").code == "unknown_member"


@pytest.mark.parametrize("removed", [greeting("h3", 0), greeting("h3", 4), greeting("h3", -1)])
def test_a_removed_member_is_told_so_only_when_it_has_proved_who_it_is(removed: Greeting) -> None:
    mine = member_of(configuration(5, "h1", "h2"))
    assert mine.judge(removed, None).code is None
    assert mine.judge_proven(removed).code == REMOVED
    assert not mine.admits("h3")


def test_a_member_that_was_away_for_long_lets_in_who_knows_more_and_learns_the_addresses() -> None:
    mine, theirs = member_of(configuration(0, "h1", "h2", "h3")), configuration(9, "h1", "h4", "h5")
    newer = greeting("h4", 9)
    assert mine.judge(newer, None).code is None
    assert mine.judge_proven(newer).code is None
    mine.adopt(theirs)
    assert set(mine.contacts) == {"h4", "h5"}
    mine.adopt(configuration(3, "h1", "h2"))
    assert set(mine.contacts) == {"h4", "h5"}, "the log catches up; what it says on the way is old"
    assert mine.hint_for(greeting("h4", 3)) == theirs


def test_a_newcomer_knocks_until_it_is_told_who_the_members_are() -> None:
    newcomer = Roster(greeting("h9", 0), (member("h1"), member("h9")), joining=True)
    assert newcomer.contacts == {"h1": member("h1")}
    assert newcomer.greeting(probe=False).since == -1
    assert newcomer.admits("anybody who proves itself")
    newcomer.adopt(configuration(4, "h1", "h2"))
    assert newcomer.greeting(probe=False).since == -1, "listed nowhere yet"
    newcomer.adopt(configuration(6, "h1", "h2", learners=("h9",)))
    assert newcomer.greeting(probe=False).since == 6
    assert set(newcomer.contacts) == {"h1", "h2"}


def test_a_learner_that_starts_empty_again_is_let_in_and_one_that_was_never_added_waits() -> None:
    mine = member_of(configuration(6, "h1", "h2", learners=("h9",)))
    assert mine.judge(greeting("h9", -1, joining=True), None).code is None
    assert mine.judge(greeting("h8", -1, joining=True), None).code == NOT_ADMITTED
