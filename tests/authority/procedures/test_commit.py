"""Transfers in the log: the rule, the commit point, refusals that stay refusals, and what is forgotten."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Phase
from batonpass.authority.procedures import master_question as asks
from batonpass.authority.procedures import transfer_table as transfer_rows
from tests.authority.log import (
    ADA,
    BALL,
    BOB,
    FAR,
    HOMESERVER,
    OTHER,
    S1,
    S2,
    S3,
    Log,
    new_log,
    passing,
    request,
)
from tests.authority.rows import directory_row
from tests.budget import examples

EVE = "alpha.eve"


# --- proposing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["ask", "deny", "allow"])
@pytest.mark.parametrize("requester", ["", ADA], ids=["the system", "the owner"])
def test_the_system_and_the_owner_need_nobodys_leave(rule: str, requester: str) -> None:
    log = new_log(rule)
    assert log.propose(requester=requester)["phase"] == "permitted"


def test_under_allow_anybody_is_permitted_at_once() -> None:
    assert new_log("allow").propose(requester=BOB)["phase"] == "permitted"


def test_under_deny_strangers_are_refused_and_nothing_is_recorded() -> None:
    log = new_log("deny")
    log.refuses(Reason.DENIED, "transfer.propose", transfer_id="transfer-1", entity=BALL, target=S2, requester=BOB)
    assert log.rows.transfers() == []


def test_under_ask_the_master_is_asked(log: Log) -> None:
    assert log.propose(requester=BOB)["phase"] == "asked"


def test_a_repetition_gets_the_transfer_as_it_is(log: Log) -> None:
    log.propose()
    log.commit()
    assert log.propose()["phase"] == "committed"
    assert log.rows.transfers() == ["transfer-1"]


@pytest.mark.parametrize("changes", [{"entity": OTHER}, {"target": S3}], ids=str)
def test_a_transfer_id_means_one_transfer(log: Log, changes: dict[str, str]) -> None:
    log.propose()
    args = {"transfer_id": "transfer-1", "entity": BALL, "target": S2} | changes
    log.refuses(Reason.TRANSFER_ID_TAKEN, "transfer.propose", **args)


OTHERS_REQUESTS = [{"requester": EVE}, {"requester": ""}, {"requester": ADA, "want": "forced"}]


@pytest.mark.parametrize("changes", OTHERS_REQUESTS, ids=str)
def test_a_transfer_id_means_one_request_of_one_player(log: Log, changes: dict[str, str]) -> None:
    """Who is told of a request that somebody else has made takes it for an answer to its own."""
    log.propose(requester=BOB)
    args = {"transfer_id": "transfer-1", "entity": BALL, "target": S2} | changes
    log.refuses(Reason.TRANSFER_ID_TAKEN, "transfer.propose", **args, now_s=0.0)
    assert log.propose(requester=BOB)["phase"] == "asked", "the same request, again"


def test_an_entity_cannot_be_moved_to_where_it_is(log: Log) -> None:
    log.refuses(Reason.SAME_SERVER, "transfer.propose", transfer_id="transfer-1", entity=BALL, target=S1)


def test_what_does_not_exist_cannot_be_moved(log: Log) -> None:
    log.refuses(Reason.NOT_FOUND, "transfer.propose", transfer_id="transfer-1", entity="alpha.none", target=S2)


# --- asking the master ------------------------------------------------------------------------------------------------


def answer(log: Log, *, allow: bool, by: str = ADA, now_s: float = 0.0, transfer_id: str = "transfer-1") -> Any:
    return log.run("transfer.answer", transfer_id=transfer_id, by=by, allow=allow, now_s=now_s)


def test_the_master_says_yes_or_no(log: Log) -> None:
    log.propose("transfer-1", requester=BOB)
    log.propose("transfer-2", requester=BOB)
    assert answer(log, allow=True)["phase"] == "permitted"
    refused = answer(log, allow=False, transfer_id="transfer-2")
    assert (refused["phase"], refused["reason"]) == ("refused", "denied")


@pytest.mark.parametrize("allow", [True, False])
def test_the_master_may_say_the_same_again_and_nothing_else(log: Log, allow: bool) -> None:
    log.propose(requester=BOB)
    assert answer(log, allow=allow) == answer(log, allow=allow)
    log.refuses(Reason.TOO_LATE, "transfer.answer", transfer_id="transfer-1", by=ADA, allow=not allow)


def test_nobody_else_may_answer(log: Log) -> None:
    log.propose(requester=BOB)
    log.refuses(Reason.NOT_MASTER, "transfer.answer", transfer_id="transfer-1", by=BOB, allow=True)


def test_there_must_be_a_question(log: Log) -> None:
    log.propose()
    log.refuses(Reason.TOO_LATE, "transfer.answer", transfer_id="transfer-1", by=ADA, allow=True)
    log.refuses(Reason.NOT_FOUND, "transfer.answer", transfer_id="transfer-9", by=ADA, allow=True)


def test_the_masters_yes_holds_under_the_rights_of_that_moment(log: Log) -> None:
    log.propose(requester=BOB)
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="deny")
    answer(log, allow=True)
    assert log.commit()["outcome"] == "committed"


@given(asked_s=st.floats(1e9, 2e9), timeout_s=st.integers(1, asks.ASK_LIFETIME_S))
def test_a_question_waits_no_shorter_than_its_requester_would_and_a_second_longer_at_most(
    asked_s: float, timeout_s: int
) -> None:
    log = new_log()
    log.propose(requester=BOB, now_s=asked_s, ask_timeout_s=timeout_s)
    assert asked_s + timeout_s <= log.transfer("transfer-1").ask_expires_at_s < asked_s + timeout_s + 1.0


def test_a_question_that_waits_too_long_is_refused() -> None:
    late_s = asks.ASK_LIFETIME_S + 1.0
    by_answer, by_repetition, by_expiry = new_log(), new_log(), new_log()
    for log in (by_answer, by_repetition, by_expiry):
        log.propose(requester=BOB, now_s=0.0)
    answer(by_answer, allow=True, now_s=late_s)
    by_repetition.propose(requester=BOB, now_s=late_s)
    by_expiry.run("transfer.expire", transfer_id="transfer-1", now_s=late_s)
    for log in (by_answer, by_repetition, by_expiry):
        transfer = log.transfer("transfer-1")
        assert (transfer.phase, transfer.reason) == (Phase.REFUSED, "ask_expired")


def test_what_is_not_too_old_does_not_expire(log: Log) -> None:
    log.propose(requester=BOB, now_s=0.0)
    log.run("transfer.expire", transfer_id="transfer-1", now_s=float(asks.ASK_LIFETIME_S))
    assert log.transfer("transfer-1").phase is Phase.ASKED
    log.refuses(Reason.NOT_FOUND, "transfer.expire", transfer_id="transfer-9", now_s=0.0)


def test_questions_about_one_entity_are_bounded_until_they_are_answered_or_too_old(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asks, "MAX_ASKS", 2)
    log.propose("transfer-1", requester=BOB)
    log.propose("transfer-2", requester=EVE)
    third = {"transfer_id": "transfer-3", "entity": BALL, "target": S2, "requester": EVE}
    log.refuses(Reason.FULL, "transfer.propose", **third, now_s=1.0)
    answer(log, allow=False)
    assert log.run("transfer.propose", **third, now_s=1.0)["phase"] == "asked"
    fourth = third | {"transfer_id": "transfer-4"}
    log.refuses(Reason.FULL, "transfer.propose", **fourth, now_s=1.0)
    assert log.run("transfer.propose", **fourth, now_s=asks.ASK_LIFETIME_S + 0.5)["phase"] == "asked"


# --- the commit point -------------------------------------------------------------------------------------------------


def test_the_commit_moves_authority_one_epoch_on(log: Log) -> None:
    answer = log.commit()
    assert (answer["outcome"], answer["authority"], answer["epoch"], answer["sub"]) == ("committed", S2, 2, 0)
    transfer = log.transfer("transfer-1")
    assert (transfer.source, transfer.target, transfer.fence, transfer.tick) == (S1, S2, Fence(2), 7)
    assert log.rows.entity(BALL).fence == Fence(2)


def test_the_commit_ends_a_delegation(log: Log) -> None:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    log.commit()
    assert log.rows.entity(BALL).delegation == ()


def test_passes_that_the_log_had_not_heard_of_come_first(log: Log) -> None:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    answer = log.commit(target=S3, source=S2, epoch=1, sub=1, passes=[passing(1, S1, S2)])
    assert (answer["outcome"], answer["authority"], answer["epoch"]) == ("committed", S3, 2)


def test_a_requester_who_was_permitted_becomes_owner() -> None:
    log = new_log("allow")
    log.propose(requester=BOB)
    log.commit()
    assert (log.rows.entity(BALL).owner, log.rows.entity(BALL).owner_rev) == (BOB, 2)
    assert log.rows.entity(BALL).master == ADA


@pytest.mark.parametrize("requester", ["", ADA])
def test_otherwise_ownership_stays_untouched(log: Log, requester: str) -> None:
    log.propose(requester=requester)
    log.commit()
    assert (log.rows.entity(BALL).owner, log.rows.entity(BALL).owner_rev) == (ADA, 1)


def test_a_target_in_another_instance_is_its_own_homes_to_check(log: Log) -> None:
    assert log.commit(target=FAR, check_target=False)["outcome"] == "committed"


# --- refusals ---------------------------------------------------------------------------------------------------------


def rule_changed(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="deny")


def owner_changed(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=EVE)


@pytest.mark.parametrize(
    ("meanwhile", "reason"), [(rule_changed, Reason.RULE_CHANGED), (owner_changed, Reason.OWNER_CHANGED)]
)
def test_what_was_permitted_must_still_hold_at_the_commit(meanwhile: Callable[[Log], None], reason: Reason) -> None:
    log = new_log("allow")
    log.propose(requester=BOB)
    meanwhile(log)
    answer = log.commit()
    assert (answer["outcome"], answer["transfer"]["reason"]) == ("refused", reason)
    assert log.rows.entity(BALL).owner != BOB


def test_a_master_who_has_not_answered_has_not_said_yes(log: Log) -> None:
    log.propose(requester=BOB)
    assert log.commit()["transfer"]["reason"] == Reason.DENIED


@pytest.mark.parametrize(
    ("target", "reason"),
    [(S1, Reason.SAME_SERVER), ("alpha.s9", Reason.UNKNOWN_TARGET), (HOMESERVER, Reason.UNKNOWN_TARGET)],
)
def test_an_impossible_target_is_refused(log: Log, target: str, reason: Reason) -> None:
    assert log.commit(target=target)["transfer"]["reason"] == reason


def test_a_refusal_raises_the_epoch_and_leaves_authority_where_it_was(log: Log) -> None:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    answer = log.commit(target="alpha.s9")
    assert (answer["outcome"], answer["authority"], answer["epoch"], answer["sub"]) == ("refused", S1, 2, 0)
    assert log.rows.entity(BALL).delegation == ()


def test_no_duplicate_of_a_refused_request_can_succeed_later(log: Log) -> None:
    first = log.commit(target="alpha.s9")
    log.run("directory.register", row=directory_row("alpha.s9").to_data())
    assert log.commit(target="alpha.s9") == first


def test_the_targets_home_may_refuse(log: Log) -> None:
    answer = log.run("transfer.refuse", **request(target=FAR), reason="unknown_target")
    assert (answer["outcome"], answer["authority"], answer["epoch"]) == ("refused", S1, 2)
    assert answer["transfer"]["reason"] == "unknown_target"


def test_a_reason_of_another_version_is_a_denial(log: Log) -> None:
    answer = log.run("transfer.refuse", **request(target=FAR), reason="the moon is full")
    assert answer["transfer"]["reason"] == "denied"


def test_a_refusal_that_comes_after_the_commit_is_answered_with_the_commit(log: Log) -> None:
    log.commit()
    assert log.run("transfer.refuse", **request(), reason="denied")["outcome"] == "committed"


# --- repetitions, however late ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [S2, "alpha.s9"], ids=["committed", "refused"])
def test_a_repeated_request_gets_the_same_answer_and_changes_nothing(log: Log, target: str) -> None:
    first = log.commit(target=target)
    before = copy.copy(log.rows.data)
    assert [log.commit(target=target) for _ in range(3)] == [first] * 3
    assert log.rows.data == before


def test_the_answer_to_a_late_repetition_names_who_has_authority_now(log: Log) -> None:
    log.commit()
    log.commit("transfer-2", S3, source=S2, epoch=2)
    answer = log.commit()
    assert (answer["outcome"], answer["authority"], answer["epoch"]) == ("committed", S3, 3)
    assert answer["transfer"]["epoch"] == 2


def test_after_the_report_too(log: Log) -> None:
    log.commit()
    log.run("transfer.report", transfer_id="transfer-1", source=S1, report={"trace": {}})
    assert log.commit()["outcome"] == "committed"


# --- who does not hold the entity -------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"source": S3}, {"epoch": 2}, {"sub": 1}, {"epoch": 0}], ids=str)
@pytest.mark.parametrize("procedure", ["transfer.commit", "transfer.refuse"])
def test_who_is_not_the_holder_changes_nothing(log: Log, procedure: str, changes: dict[str, Any]) -> None:
    before = copy.copy(log.rows.data)
    answer = log.run(procedure, **request(**changes), reason="denied")
    assert (answer["outcome"], answer["transfer"]["reason"]) == ("refused", Reason.NOT_HOLDER)
    assert (answer["authority"], answer["epoch"], answer["sub"]) == (S1, 1, 0)
    assert log.rows.data == before


def test_nobody_can_use_up_the_permission_of_the_holder(log: Log) -> None:
    log.propose()
    log.commit(source=S3)
    assert log.commit()["outcome"] == "committed"


def test_a_request_cannot_use_the_id_of_another_entitys_transfer(log: Log) -> None:
    """Else the certificate for that id would give the other entity away, at this one's fence."""
    log.propose("transfer-1", entity=OTHER)
    before = log.transfer("transfer-1")
    answer = log.commit()
    assert (answer["outcome"], answer["transfer"]["reason"]) == ("refused", Reason.TRANSFER_ID_TAKEN)
    assert (answer["authority"], answer["epoch"]) == (S1, 2), "the holder may go on"
    assert log.transfer("transfer-1") == before
    assert log.rows.entity(OTHER).fence == Fence(1)


def test_nor_that_of_one_to_another_target(log: Log) -> None:
    log.propose("transfer-1", target=S3)
    assert log.commit()["transfer"]["reason"] == Reason.TOO_LATE
    assert log.transfer("transfer-1").phase is Phase.PERMITTED


def test_a_transfer_that_is_over_cannot_be_begun_again(log: Log) -> None:
    """A late order reached a holder to which the entity has come back: it must hear that, under a fence to resume."""
    log.commit()
    log.commit("transfer-2", S1, source=S2, epoch=2)
    before = log.transfer("transfer-1")
    answer = log.commit(epoch=3)
    assert (answer["outcome"], answer["transfer"]["reason"]) == ("refused", Reason.TOO_LATE)
    assert (answer["authority"], answer["epoch"]) == (S1, 4)
    assert log.transfer("transfer-1") == before
    again = log.commit(epoch=3)
    assert (again["outcome"], again["authority"], again["epoch"]) == ("refused", S1, 4), "and hear it again"


def test_what_the_master_denied_cannot_be_begun(log: Log) -> None:
    log.propose(requester=BOB)
    log.run("transfer.answer", transfer_id="transfer-1", by=ADA, allow=False)
    answer = log.commit()
    assert (answer["outcome"], answer["authority"], answer["epoch"]) == ("refused", S1, 2)


def test_an_entity_that_is_gone_cannot_be_handed_over(log: Log) -> None:
    log.refuses(Reason.NOT_FOUND, "transfer.commit", **request(entity="alpha.none"))


# --- reports ----------------------------------------------------------------------------------------------------------


def test_the_report_ends_the_transfer_and_the_first_one_counts(log: Log) -> None:
    log.commit()
    for number in (1, 2):
        log.run("transfer.report", transfer_id="transfer-1", source=S1, report={"number": number})
    transfer = log.transfer("transfer-1")
    assert (transfer.phase, transfer.report) == (Phase.DONE, '{"number":1}')


def test_only_the_old_authority_reports_and_only_what_was_committed(log: Log) -> None:
    report = {"transfer_id": "transfer-1", "report": {}}
    log.refuses(Reason.NOT_FOUND, "transfer.report", source=S1, **report)
    log.propose()
    log.refuses(Reason.TOO_LATE, "transfer.report", source=S1, **report)
    log.commit()
    log.refuses(Reason.NOT_HOLDER, "transfer.report", source=S2, **report)


# --- what is forgotten ------------------------------------------------------------------------------------------------


def there_and_back(log: Log, times: int, entity: str = OTHER, *, reported: bool = True) -> None:
    """Many transfers of an entity between two servers."""
    for _ in range(times):
        record = log.rows.entity(entity)
        target = S2 if record.authority == S1 else S1
        name = f"{entity}-{record.epoch}".replace(".", "-")
        log.commit(name, target, entity=entity, source=record.authority, epoch=record.epoch)
        if reported:
            log.run("transfer.report", transfer_id=name, source=record.authority, report={})


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(transfer_rows, "MAX_TRANSFERS", 5)
    return 5


def test_the_table_of_transfers_is_bounded_and_the_oldest_go_first(log: Log, small_table: int) -> None:
    there_and_back(log, 20)
    assert sorted(log.rows.transfers()) == sorted(f"alpha-other-{n}" for n in range(16, 21))
    assert log.rows.count_children(("transfer_order",)) == small_table


def test_a_commit_that_nobody_reported_is_kept_while_authority_comes_from_it(log: Log, small_table: int) -> None:
    log.commit()
    there_and_back(log, 50)
    assert log.transfer("transfer-1").phase is Phase.COMMITTED
    assert log.commit()["outcome"] == "committed", "the old authority may ask again, however late"
    assert len(log.rows.transfers()) == small_table + 1


@pytest.mark.parametrize("end", ["reported", "moved on", "discarded"])
def test_and_no_longer(log: Log, small_table: int, end: str) -> None:
    log.commit()
    match end:
        case "reported":
            log.run("transfer.report", transfer_id="transfer-1", source=S1, report={})
        case "moved on":
            log.commit("transfer-2", S3, source=S2, epoch=2)
            log.run("transfer.report", transfer_id="transfer-2", source=S2, report={})
        case _:
            log.rows.delete(("entities", BALL))
    there_and_back(log, 50)
    assert log.rows.transfer("transfer-1") is None
    assert len(log.rows.transfers()) == small_table


def test_the_bound_grows_by_what_is_needed_at_most_one_for_each_entity(log: Log, small_table: int) -> None:
    for number in range(10):
        entity = f"alpha.e{number}"
        log.run("entity.create", entity=entity, kind="ball", spawner=ADA, server=S1)
        log.commit(f"transfer-{number}", entity=entity)
    there_and_back(log, 100, reported=False)
    kept = log.rows.transfers()
    assert {f"transfer-{number}" for number in range(10)} <= set(kept)
    assert len(kept) <= small_table + 11
    for number in range(10):
        log.run("transfer.report", transfer_id=f"transfer-{number}", source=S1, report={})
    there_and_back(log, 100)
    assert len(log.rows.transfers()) == small_table


# --- every procedure, whatever came before ----------------------------------------------------------------------------

SERVERS = st.sampled_from([S1, S2, S3, FAR, HOMESERVER])
PLAYERS = st.sampled_from([ADA, BOB])
IDS = st.sampled_from([f"transfer-{n}" for n in range(4)])
ENTITIES = st.sampled_from([BALL, OTHER])
REQUESTS = st.fixed_dictionaries(
    {
        "transfer_id": IDS,
        "entity": ENTITIES,
        "source": SERVERS,
        "target": SERVERS,
        "epoch": st.integers(1, 4),
        "sub": st.integers(0, 1),
        "tick": st.just(0),
        "state_hash": st.just("0" * 64),
        "check_target": st.booleans(),
    }
)


KindOfCall = tuple[str, st.SearchStrategy[dict[str, Any]]]


def _call(name: str, **fields: st.SearchStrategy[Any]) -> KindOfCall:
    return name, st.fixed_dictionaries(fields)


KINDS_OF_CALLS: list[KindOfCall] = [
    _call("entity.create", entity=ENTITIES, kind=st.just("ball"), spawner=PLAYERS, server=SERVERS),
    _call("entity.change_rights", entity=ENTITIES, by=PLAYERS, rule=st.sampled_from(["ask", "deny", "allow"])),
    _call("entity.change_rights", entity=ENTITIES, by=PLAYERS, owner=PLAYERS, master=PLAYERS),
    _call("entity.delegate", entity=ENTITIES, group=st.sampled_from([[S1, S2], [S2, S3]])),
    _call("transfer.propose", transfer_id=IDS, entity=ENTITIES, target=SERVERS, requester=st.just("") | PLAYERS),
    _call("transfer.answer", transfer_id=IDS, by=PLAYERS, allow=st.booleans()),
    _call("transfer.expire", transfer_id=IDS, now_s=st.sampled_from([0.0, 10_000.0])),
    _call("transfer.report", transfer_id=IDS, source=SERVERS, report=st.just({})),
    ("transfer.commit", REQUESTS),
    ("transfer.refuse", REQUESTS.map(lambda fields: fields | {"reason": "denied"})),
    (
        "transfer.passed",
        st.tuples(ENTITIES, st.integers(1, 2), SERVERS, SERVERS).map(
            lambda p: {"entity": p[0], "passes": [passing(p[1], p[2], p[3], entity=p[0])]}
        ),
    ),
]
CALLS = st.one_of([st.tuples(st.just(name), args) for name, args in KINDS_OF_CALLS])


def attempt(log: Log, name: str, args: dict[str, Any]) -> Any:
    try:
        return log.run(name, **args)
    except Refused as refused:
        return refused.reason


@settings(max_examples=examples(150))
@given(st.lists(CALLS, max_size=25))
def test_repeating_any_call_at_once_changes_nothing_more(calls: list[tuple[str, dict[str, Any]]]) -> None:
    log = new_log("allow")
    for name, args in calls:
        answer = attempt(log, name, args)
        after = copy.copy(log.rows.data)
        again = attempt(log, name, args)
        assert log.rows.data == after, name
        if name in ("transfer.commit", "transfer.refuse"):
            # The reason may be told shorter; whether, whose and under which fence never changes.
            assert {**answer, "transfer": 0} == {**again, "transfer": 0}
        elif name != "entity.change_rights":  # a master who gave that right away cannot do so twice
            assert again == answer, name


@settings(max_examples=examples(150))
@given(st.lists(CALLS, max_size=25))
def test_fences_only_rise_and_one_server_gets_each(calls: list[tuple[str, dict[str, Any]]]) -> None:
    log = new_log("allow")
    given_to = {(entity, Fence(1)): S1 for entity in (BALL, OTHER)}
    for name, args in calls:
        before = {entity: log.rows.entity(entity) for entity in (BALL, OTHER)}
        attempt(log, name, args)
        for entity, old in before.items():
            new = log.rows.entity(entity)
            assert new.fence >= old.fence
            assert given_to.setdefault((entity, new.fence), new.authority) == new.authority
            assert all(getattr(new, f"{r}_rev") >= getattr(old, f"{r}_rev") for r in ("rule", "owner", "master"))
            if new.authority == HOMESERVER != old.authority:
                assert args.get("check_target") is False, "only an instance that knows it can vouch for a target"


@settings(max_examples=examples(150))
@given(st.lists(CALLS, max_size=25))
def test_a_result_is_a_result_for_ever(calls: list[tuple[str, dict[str, Any]]]) -> None:
    log = new_log("allow")
    ends: dict[str, str] = {}
    for name, args in calls:
        attempt(log, name, args)
        for transfer_id in log.rows.transfers():
            transfer = log.transfer(transfer_id)
            if transfer.phase in (Phase.COMMITTED, Phase.DONE, Phase.REFUSED):
                outcome = "refused" if transfer.phase is Phase.REFUSED else "committed"
                assert ends.setdefault(transfer_id, f"{outcome} {transfer.fence}") == f"{outcome} {transfer.fence}"


# --- declined ---------------------------------------------------------------------------------------------------------


def declined(log: Log, transfer_id: str, reason: str = "capacity", **changes: Any) -> Any:
    return log.run("transfer.decline", **_decline(transfer_id, reason=reason, **changes))


@pytest.mark.parametrize(
    ("said", "kept"), [("capacity", "capacity"), ("incompatible", "incompatible"), ("?", "denied")]
)
def test_failures_rows_27_and_28_a_declined_transfer_is_refused_and_raises_no_fence(
    log: Log, said: str, kept: str
) -> None:
    log.run("transfer.propose", transfer_id="t1", entity=BALL, target=S2)
    before = log.rows.entity(BALL)
    assert (declined(log, "t1", said)["phase"], declined(log, "t1", "locked")["reason"]) == ("refused", kept)
    assert log.rows.entity(BALL) == before
    assert log.run("transfer.commit", **request("t1"))["outcome"] == "refused"


def test_what_is_decided_is_not_declined_any_more(log: Log) -> None:
    log.run("transfer.propose", transfer_id="t1", entity=BALL, target=S2)
    log.run("transfer.commit", **request("t1"))
    log.refuses(Reason.NOT_HOLDER, "transfer.decline", **_decline("t1"))
    assert declined(log, "t1", source=S2)["phase"] == "committed"


def _decline(transfer_id: str, **changes: Any) -> dict[str, Any]:
    return {"transfer_id": transfer_id, "entity": BALL, "source": S1, "target": S2, "reason": "capacity"} | changes


def test_only_the_authority_declines_and_only_what_it_was_told(log: Log) -> None:
    log.run("transfer.propose", transfer_id="t1", entity=BALL, target=S2)
    log.refuses(Reason.NOT_FOUND, "transfer.decline", **_decline("t2"))
    log.refuses(Reason.NOT_HOLDER, "transfer.decline", **_decline("t1", source=S2))
    log.refuses(Reason.TRANSFER_ID_TAKEN, "transfer.decline", **_decline("t1", target=S3))
