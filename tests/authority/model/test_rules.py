"""Ask, deny, allow, locks, and kinds of request: what becomes of it when somebody asks for ownership."""

import pytest

from batonpass.authority.model.records import EntityRecord, Lock, Rule, Want
from batonpass.authority.model.rules import Decision, decide

OWNER, MASTER, BOB = "alpha.owner", "alpha.master", "alpha.bob"
LOCKS = {"dock": Lock(by=OWNER, count=1)}


def record(rule: Rule, owner: str = OWNER, locks: dict[str, Lock] | None = None) -> EntityRecord:
    return EntityRecord(
        id="alpha.e", kind="ball", master=MASTER, owner=owner, rule=rule, authority="alpha.s1", locks=locks or {}
    )


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("who", [OWNER, MASTER])
def test_owner_and_master_need_nobodys_leave(rule: Rule, who: str) -> None:
    assert decide(record(rule), who) is Decision.GRANTED


@pytest.mark.parametrize(
    ("rule", "decision"),
    [(Rule.ALLOW, Decision.GRANTED), (Rule.DENY, Decision.DENIED), (Rule.ASK, Decision.ASKED)],
)
def test_for_everybody_else_the_rule_decides(rule: Rule, decision: Decision) -> None:
    assert decide(record(rule), BOB) is decision


@pytest.mark.parametrize("rule", Rule)
def test_what_somebody_owns_is_not_available_and_the_master_is_not_asked(rule: Rule) -> None:
    expected = Decision.DENIED if rule is Rule.DENY else Decision.NOT_AVAILABLE
    assert decide(record(rule), BOB, Want.IF_AVAILABLE) is expected


@pytest.mark.parametrize("rule", Rule)
def test_what_nobody_owns_is_available_unless_the_rule_is_deny(rule: Rule) -> None:
    expected = Decision.DENIED if rule is Rule.DENY else Decision.GRANTED
    assert decide(record(rule, owner=""), BOB, Want.IF_AVAILABLE) is expected


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("want", [Want.BY_RULE, Want.IF_AVAILABLE])
def test_a_lock_stops_everybody_but_the_owner(rule: Rule, want: Want) -> None:
    locked = record(rule, locks=LOCKS)
    assert [decide(locked, who, want) for who in (OWNER, MASTER, BOB)] == [
        Decision.GRANTED,
        Decision.LOCKED,
        Decision.LOCKED,
    ]


@pytest.mark.parametrize("rule", Rule)
def test_what_nobody_owns_and_whose_master_is_gone_is_available_whatever_that_one_wanted(rule: Rule) -> None:
    def wanted(want: Want, owner: str = "", *, by: str = MASTER) -> Decision:
        locked = record(rule, owner=owner, locks={"dock": Lock(by=MASTER, count=1), "bay": Lock(by=by, count=1)})
        return decide(locked, BOB, want, is_master_gone=True)

    assert wanted(Want.IF_AVAILABLE) is Decision.GRANTED
    assert wanted(Want.IF_AVAILABLE, by="alpha.eve") is Decision.LOCKED, "whoever else has a lock can give it back"
    assert wanted(Want.IF_AVAILABLE, owner=OWNER) is Decision.LOCKED
    assert wanted(Want.BY_RULE) is Decision.LOCKED
    assert decide(record(rule, owner=OWNER), BOB, Want.IF_AVAILABLE, is_master_gone=True) is not Decision.GRANTED


@pytest.mark.parametrize("rule", Rule)
def test_the_master_and_nobody_else_forces_its_way(rule: Rule) -> None:
    locked = record(rule, locks=LOCKS)
    assert decide(locked, MASTER, Want.FORCED) is Decision.GRANTED
    assert decide(locked, BOB, Want.FORCED) is Decision.NOT_MASTER
    assert decide(locked, OWNER, Want.FORCED) is Decision.NOT_MASTER
