"""What becomes of an entity whose owner's player has gone, by its own word or by its authority's."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.leave_policy import LeavePolicy
from tests.authority.log import ADA, BALL, BOB, S1, S2, Log, new_log

EVE = "alpha.eve"
AVAILABLE: dict[str, Any] = {"want": "if_available", "stay": True}


def owned_by_bob(**policies: Any) -> Log:
    log = new_log("allow")
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB, **policies)
    return log


def leave(log: Log, by: str = BOB, owner_rev: int = 2) -> Any:
    return log.run("entity.owner_left", entity=BALL, by=by, owner_rev=owner_rev)


def silent(log: Log, silent_s: int, source: str = S1, owner_rev: int = 2) -> Any:
    return log.run("entity.owner_silent", entity=BALL, source=source, owner_rev=owner_rev, silent_s=silent_s)


@pytest.mark.parametrize(
    ("policies", "owner"),
    [
        ({}, BOB),
        ({"on_leave": "keep", "heir": EVE}, BOB),
        ({"on_leave": "divest", "heir": EVE}, ""),
        ({"on_leave": "freeze", "heir": EVE}, ""),
        ({"on_leave": "adopt"}, ADA),
        ({"on_leave": "adopt", "heir": EVE}, EVE),
        ({"on_leave": "adopt", "heir": BOB}, ""),
    ],
)
@pytest.mark.parametrize("how", ["leaves", "silent"])
def test_failures_row_40_who_owns_it_then_is_what_the_policy_says(
    policies: dict[str, Any], owner: str, how: str
) -> None:
    log = owned_by_bob(owner_timeout_s=30, **policies)
    answer = leave(log) if how == "leaves" else silent(log, 30)
    record = log.rows.entity(BALL)
    assert (record.owner, record.owner_rev) == (owner, 2 + (owner != BOB))
    assert (record.authority, record.epoch) == (S1, 1), "authority stays where it is"
    assert answer == {"record": record.to_data(), "grave": None}


def test_failures_row_40_a_master_who_leaves_without_an_heir_leaves_it_to_nobody() -> None:
    log = new_log()
    log.run("entity.change_rights", entity=BALL, by=ADA, on_leave="adopt")
    leave(log, ADA, 1)
    assert log.rows.entity(BALL).owner == ""


def test_failures_row_40_two_who_are_gone_do_not_own_it_by_turns() -> None:
    """Each turn would be a step of the log, and nobody who is there could ever have it."""
    log = new_log()
    log.run("entity.change_rights", entity=BALL, by=ADA, on_leave="adopt", heir=EVE, owner_timeout_s=1)
    for owner_rev, owner in ((1, EVE), (2, "")):
        silent(log, 2, owner_rev=owner_rev)
        assert log.rows.entity(BALL).owner == owner


def test_failures_row_40_what_nobody_owns_then_is_to_be_had_by_who_asks_for_what_is_available() -> None:
    log = new_log("ask")
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB, on_leave="divest")
    log.refuses(
        Reason.NOT_AVAILABLE, "transfer.propose", transfer_id="t", entity=BALL, target=S2, requester=EVE, **AVAILABLE
    )
    leave(log)
    assert log.propose(requester=EVE, **AVAILABLE)["phase"] == "done"
    assert (log.rows.entity(BALL).owner, log.rows.entity(BALL).authority) == (EVE, S1)


def test_failures_row_40_what_stands_still_does_until_it_has_an_owner_or_its_master_releases_it() -> None:
    for how in ("owner", "release", "request"):
        log = owned_by_bob(on_leave="freeze")
        leave(log)
        assert (log.rows.entity(BALL).owner, log.rows.entity(BALL).stands_still) == ("", True)
        log.refuses(Reason.NOT_MASTER, "entity.release", entity=BALL, by=BOB)
        if how == "owner":
            log.run("entity.change_rights", entity=BALL, by=ADA, owner=EVE)
        elif how == "request":
            log.propose(requester=EVE, **AVAILABLE)
        else:
            for _ in range(2):
                log.run("entity.release", entity=BALL, by=ADA, master_rev=1)
        record = log.rows.entity(BALL)
        assert (record.owner, record.owner_rev, record.stands_still) == ("" if how == "release" else EVE, 4, False)


def test_failures_row_2_a_release_of_before_does_not_release_it_the_next_time() -> None:
    log = owned_by_bob(on_leave="freeze")
    leave(log)
    once = {"entity": BALL, "by": ADA, "master_rev": 1, "release_rev": 1}
    assert log.run("entity.release", **once)["release_rev"] == 2
    log.propose(requester=EVE, **AVAILABLE)
    log.run("entity.owner_left", entity=BALL, by=EVE, owner_rev=log.rows.entity(BALL).owner_rev)
    log.refuses(Reason.STALE_REVISION, "entity.release", **once)
    assert log.rows.entity(BALL).stands_still
    # Nor when only its authority knows that it stands still.
    for rev in (2, 3):
        assert log.run("entity.release", **once | {"release_rev": rev})["release_rev"] == rev + 1
    log.refuses(Reason.STALE_REVISION, "entity.release", **once | {"release_rev": 3})


def test_failures_row_2_a_change_of_policies_counts_once() -> None:
    log = owned_by_bob()
    rev = log.rows.entity(BALL).policies_rev
    once = {"entity": BALL, "by": ADA, "policies_rev": rev, "orphans": "despawn"}
    assert log.run("entity.change_rights", **once)["policies_rev"] == rev + 1
    log.run("entity.change_rights", **once | {"policies_rev": rev + 1, "orphans": "adopt"})
    log.refuses(Reason.STALE_REVISION, "entity.change_rights", **once)


def test_failures_row_40_what_is_to_end_with_its_owner_ends() -> None:
    log = owned_by_bob(on_leave="despawn")
    assert leave(log)["grave"] == {"entity": BALL, "authority": S1, "epoch": 2, "master": ADA}
    log.refuses(Reason.NOT_FOUND, "entity.owner_left", entity=BALL, by=BOB, owner_rev=2)


def test_only_the_present_owner_leaves_it_and_only_its_authority_says_that_it_is_silent() -> None:
    log = owned_by_bob(on_leave="despawn", owner_timeout_s=30)
    log.refuses(Reason.NOT_OWNER, "entity.owner_left", entity=BALL, by=ADA, owner_rev=2)
    log.refuses(Reason.STALE_REVISION, "entity.owner_left", entity=BALL, by=BOB, owner_rev=1)
    args = {"entity": BALL, "silent_s": 99, "owner_rev": 2}
    log.refuses(Reason.NOT_HOLDER, "entity.owner_silent", **args, source=S2)
    for silent_s, owner_rev in ((29, 2), (99, 1)):
        assert silent(log, silent_s, owner_rev=owner_rev)["record"]["owner"] == BOB
    log.run("entity.change_rights", entity=BALL, by=ADA, owner_timeout_s=0)
    assert silent(log, 10**6)["record"]["owner"] == BOB, "it may be silent for ever"


def test_the_policies_may_be_given_at_the_creation() -> None:
    log = new_log()
    policies = {"on_leave": "adopt", "heir": EVE, "owner_timeout_s": 30}
    args = {"entity": "alpha.new", "kind": "ball", "spawner": ADA, "server": S1}
    record = log.run("entity.create", **args, **policies)
    assert {name: record[name] for name in policies} == policies


@given(
    st.lists(
        st.tuples(st.sampled_from(["leave", "silent", "set"]), st.sampled_from([ADA, BOB, EVE, ""]), st.integers(0, 3)),
        max_size=12,
    ),
    st.sampled_from(LeavePolicy),
)
def test_whatever_comes_nobody_loses_what_it_did_not_leave(
    steps: list[tuple[str, str, int]], policy: LeavePolicy
) -> None:
    log = owned_by_bob(on_leave=policy.value, heir=EVE, owner_timeout_s=2)
    for what, who, number in steps:
        data = log.rows.get_or(("entities", BALL), None)
        if data is None:
            assert policy is LeavePolicy.DESPAWN
            return
        before = log.rows.entity(BALL)
        with suppress(Refused):
            match what:
                case "leave":
                    leave(log, who, number)
                case "silent":
                    silent(log, number, owner_rev=before.owner_rev)
                case _:
                    log.run("entity.change_rights", entity=BALL, by=ADA, owner=who or None)
        data = log.rows.get_or(("entities", BALL), None)
        if data is not None and log.rows.entity(BALL).owner != before.owner:
            gave = (what, who, number) == ("leave", before.owner, before.owner_rev)
            assert gave or what == "set" or (what == "silent" and number >= 2)
            assert log.rows.entity(BALL).owner_rev == before.owner_rev + 1
