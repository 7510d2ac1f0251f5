"""Which transfers are forgotten when there are too many, and what would become of the others if they were."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.procedures import transfer_table as transfer_rows
from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S, MAX_GROUP, MEMBERS_IN_A_SECOND
from batonpass.authority.procedures.transfer_table import LATE_S, check_room, save_transfer
from batonpass.authority.wire.sealing import LIFETIME_S
from batonpass.authority.wire.transfer import MAX_NOTICE_MS
from batonpass.homeserver.rest.access import MAX_PROOF_LIFETIME_S
from tests.authority.log import ADA, BALL, BOB, HOMESERVER, OTHER, S1, S2, S3, Log, new_log, passing
from tests.authority.rows import DictRows
from tests.budget import examples

SMALL, KEPT = 5, 12
NOW_S = 1_800_000_000.0


@pytest.fixture(autouse=True)
def small_table() -> Iterator[None]:
    with mock.patch.object(transfer_rows, "MAX_TRANSFERS", SMALL), mock.patch.object(transfer_rows, "MAX_KEPT", KEPT):
        yield


@pytest.fixture
def log() -> Log:
    return new_log("allow")


def many_others(log: Log, now_s: float = NOW_S, times: int = 20) -> None:
    """What a drain does, to and fro, in nobody's name."""
    for _ in range(times):
        record = log.rows.entity(OTHER)
        source, target = record.authority, S2 if record.authority == S1 else S1
        name = f"other-{record.epoch}"
        log.propose(name, target, entity=OTHER, now_s=now_s)
        log.commit(name, target, entity=OTHER, source=source, epoch=record.epoch, now_s=now_s)
        log.run("transfer.report", transfer_id=name, source=source, report={})


def wish(log: Log, **args: Any) -> Any:
    wanted: dict[str, Any] = {"requester": BOB, "now_s": NOW_S}
    return log.propose("wish", **wanted | args)


def own(log: Log, transfer_id: str, requester: str, now_s: float = NOW_S) -> Any:
    return log.propose(transfer_id, "", stay=True, requester=requester, now_s=now_s)


# --- what would happen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [BOB, ADA])
def test_failures_row_39_what_was_taken_back_is_not_carried_out_though_many_came_since(log: Log, by: str) -> None:
    wish(log)
    log.run("transfer.cancel", transfer_id="wish", by=by)
    many_others(log)
    assert log.commit("wish", now_s=NOW_S + 11)["outcome"] == "refused"
    record = log.rows.entity(BALL)
    assert (record.authority, record.owner) == (S1, ADA)


def test_failures_row_39_nor_is_what_the_operator_took_back(log: Log) -> None:
    log.propose("drained", now_s=NOW_S)
    log.run("transfer.cancel", transfer_id="drained", by="")
    many_others(log)
    assert log.commit("drained", now_s=NOW_S + 11)["outcome"] == "refused"


def test_failures_row_13_a_commit_is_known_until_somebody_goes_on_since_its_target_died(log: Log) -> None:
    """Who handed it over may be cut off, with what it stands still with, and ask again."""
    log.run("lease.take_office", by=HOMESERVER, after=0)
    log.run("lease.claim", server=S3, incarnation=1, nonce="n", previous_nonce="")
    log.swept(S3)
    log.commit("cut-off", S3, now_s=NOW_S)
    log.run("lease.expire", server=S3, incarnation=1, office=1)
    log.run("recovery.begin", server=S3, entities=[[BALL, 2, 0]])
    assert log.rows.entity(BALL).authority == ""
    many_others(log)
    assert log.commit("cut-off", S3)["outcome"] == "committed"


@pytest.mark.parametrize("guard", ["rule", "lock", "owner"])
def test_failures_row_5_what_was_permitted_must_still_hold_though_many_came_since(log: Log, guard: str) -> None:
    wish(log)
    many_others(log)
    match guard:
        case "rule":
            log.run("entity.change_rights", entity=BALL, by=ADA, rule="deny")
        case "lock":
            log.run("entity.lock", entity=BALL, by=ADA, name="dock")
        case _:
            log.run("entity.divest", entity=BALL, by=ADA)
    assert log.commit("wish", now_s=NOW_S + 11)["outcome"] == "refused"


def test_what_was_permitted_is_committed_in_the_name_of_who_asked_though_many_came_since(log: Log) -> None:
    wish(log)
    many_others(log)
    assert log.commit("wish", now_s=NOW_S + 11)["outcome"] == "committed"
    assert log.rows.entity(BALL).owner == BOB


def test_a_question_waits_for_its_hour_however_many_come_since(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="ask")
    wish(log)
    many_others(log, NOW_S + 3600)
    assert (
        log.run("transfer.answer", transfer_id="wish", by=ADA, allow=True, now_s=NOW_S + 3600)["phase"] == "permitted"
    )


def test_failures_row_2_a_signed_request_counts_once_while_its_proof_is_good_however_many_come_since(log: Log) -> None:
    first = own(log, "bobs", BOB)
    own(log, "adas", ADA)
    for passed_s in (0, 150, 300):
        many_others(log, NOW_S + passed_s)
        assert own(log, "bobs", BOB, NOW_S + passed_s) == first
        assert log.rows.entity(BALL).owner == ADA


def test_after_that_it_is_forgotten_like_any_other(log: Log) -> None:
    own(log, "bobs", BOB)
    many_others(log)
    many_others(log, NOW_S + LATE_S)
    assert log.rows.transfer("bobs") is not None
    many_others(log, NOW_S + LATE_S + 1)
    assert log.rows.transfer("bobs") is None
    assert len(log.rows.transfers()) == log.rows.count_children(("transfer_order",)) == SMALL


def test_what_is_refused_of_a_group_at_once_pushes_nothing_open_out(log: Log) -> None:
    wish(log)
    names = [f"alpha.no-{number}" for number in range(50)]
    for number in range(5):
        log.run("group.propose", group=f"flood-{number}", entities=names, target=S2, apart=True, now_s=NOW_S)
    assert log.transfer("wish").phase is Phase.PERMITTED
    assert len(log.rows.transfers()) == SMALL + 1


def test_what_was_signed_or_ordered_is_over_before_it_is_forgotten() -> None:
    group_s = GROUP_LIFETIME_S + MAX_GROUP // MEMBERS_IN_A_SECOND
    assert MAX_PROOF_LIFETIME_S + MAX_NOTICE_MS / 1000 + group_s + 2 * LIFETIME_S <= LATE_S


def test_what_nobody_begins_with_is_refused_in_the_end(log: Log) -> None:
    """Its entity may be lost, or who ordered it is gone. Requests that come to nothing would fill the table."""
    wish(log)
    many_others(log)
    many_others(log, NOW_S + LATE_S)
    assert log.transfer("wish").phase is Phase.PERMITTED
    many_others(log, NOW_S + LATE_S + 1)
    assert (log.transfer("wish").phase, log.transfer("wish").reason) == (Phase.REFUSED, "expired")
    assert log.commit("wish", now_s=NOW_S + LATE_S + 2)["outcome"] == "refused", "an order that came late all the same"
    many_others(log, NOW_S + 2 * LATE_S + 2)
    assert log.rows.transfer("wish") is None


def test_what_was_permitted_a_moment_ago_is_not_refused_for_how_long_the_question_was_open(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="ask")
    wish(log)
    many_others(log)
    log.run("transfer.answer", transfer_id="wish", by=ADA, allow=True, now_s=NOW_S + LATE_S)
    many_others(log, NOW_S + LATE_S + 1)
    assert log.transfer("wish").phase is Phase.PERMITTED
    many_others(log, NOW_S + 2 * LATE_S + 2)
    assert log.transfer("wish").reason == "expired"


def test_what_was_passed_directly_is_its_requesters_however_late_the_log_learns_of_it(log: Log) -> None:
    entity = log.rows.get_or(("entities", BALL), None) | {"delegation": [S1, S2]}
    log.rows.put(("entities", BALL), entity)
    wish(log, direct=True)
    many_others(log)
    many_others(log, NOW_S + LATE_S + 1)
    log.run("transfer.passed", entity=BALL, passes=[passing(1, S1, S2, transfer_id="wish")])
    assert (log.rows.entity(BALL).authority, log.rows.entity(BALL).owner) == (S2, BOB)


def test_what_was_looked_for_before_stays_were_noted_holds_nobody_up(log: Log) -> None:
    log.commit("unreported", now_s=NOW_S)
    log.rows.put(("recoveries", BALL), {"entity": BALL, "last": S2, "epoch": 3})
    log.rows.put(("entities", BALL), log.rows.get_or(("entities", BALL), None) | {"epoch": 3, "authority": ""})
    many_others(log)
    assert log.transfer("unreported").phase is Phase.COMMITTED


def test_a_clock_that_was_a_day_ahead_does_not_refuse_requests_for_a_day(log: Log) -> None:
    for number in range(SMALL + KEPT):
        own(log, f"ahead-{number}", BOB, NOW_S + 86_400 + number)
    for number in range(100):
        own(log, f"right-{number}", ADA, NOW_S + number * LATE_S)


def test_what_is_frozen_for_a_group_is_not_refused_behind_its_back(log: Log) -> None:
    group = log.run("group.propose", group="g", entities=[BALL, OTHER], target=S2, now_s=NOW_S)
    (name,) = [name for name, entity in group["members"].items() if entity == BALL]
    log.commit(name, now_s=NOW_S)
    for number in range(40):
        log.run("entity.create", entity=f"alpha.e{number}", kind="ball", spawner=ADA, server=S1)
        log.propose(f"move-{number}", entity=f"alpha.e{number}", now_s=NOW_S + number * LATE_S)
    assert log.transfer(name).phase is Phase.PREPARED
    assert log.commit(name, now_s=NOW_S + 40 * LATE_S)["outcome"] == "refused"
    assert log.rows.entity(BALL).epoch == 2, "and goes on under the next"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_when_too_many_are_kept_new_requests_are_refused_until_some_are_over(log: Log) -> None:
    def request(number: int, now_s: float) -> None:
        log.propose(f"move-{number}", entity=f"alpha.e{number}", requester=ADA, now_s=now_s)

    for number in range(30):
        log.run("entity.create", entity=f"alpha.e{number}", kind="ball", spawner=ADA, server=S1)
    for number in range(SMALL + KEPT):
        request(number, NOW_S)
    late = SMALL + KEPT
    refused = log.refuses(
        Reason.FULL, "transfer.propose", entity="alpha.e20", target=S2, transfer_id="x", requester=ADA, now_s=NOW_S
    )
    assert refused.details["retry_after_s"] > 0
    group = {"group": "more", "entities": [BALL], "target": S2, "now_s": NOW_S}
    log.refuses(Reason.FULL, "group.propose", **group)
    assert log.propose("move-0", entity="alpha.e0", requester=ADA, now_s=NOW_S)["phase"] == "permitted", "it is known"
    # What is decided already always finds room.
    assert log.commit("unannounced")["outcome"] == "committed"
    for number in range(late):
        log.run("transfer.cancel", transfer_id=f"move-{number}", by=ADA)
    log.refuses(Reason.FULL, "group.propose", **group)
    request(late, NOW_S + LATE_S + 2)
    for passed_s in (LATE_S + 2, 2 * LATE_S + 4):
        many_others(log, NOW_S + passed_s)
    assert {f"move-{late}", "unannounced"} <= set(log.rows.transfers()), "they are open"
    assert len(log.rows.transfers()) <= SMALL + 2


class Counting(DictRows):
    """Rows that count how often they are looked at or changed."""

    count = 0

    def get_or(self, path: tuple[str, ...], default: Any) -> Any:
        self.count += 1
        return super().get_or(path, default)

    def put(self, path: tuple[str, ...], data: Any) -> None:
        self.count += 1
        super().put(path, data)

    def delete(self, path: tuple[str, ...]) -> None:
        self.count += 1
        self.data.pop(path, None)


def one_of(number: int, requester: str = "", phase: Phase = Phase.DONE, entity: str = "alpha.e") -> TransferRecord:
    return TransferRecord(id=f"t{number}", entity=entity, target=S2, requester=requester, phase=phase)


def test_a_new_one_takes_a_few_steps_however_many_are_kept() -> None:
    rows = Counting()
    rows.put(("entities", "alpha.e"), {})
    steps = []
    for number in range(1000):
        phase = (Phase.PERMITTED, Phase.REFUSED, Phase.DONE)[number % 3]
        rows.count = 0
        save_transfer(rows, one_of(number, BOB, phase), is_new=True, now_s=NOW_S)
        steps.append(rows.count)
    assert max(steps) < 50
    rows = Counting()
    for number in range(1000):
        rows.count = 0
        save_transfer(rows, one_of(number), is_new=True, now_s=NOW_S)
    assert rows.count == 8, "in nobody's name: two rows are written, and two forgotten"


def test_a_log_of_before_is_gone_on_with() -> None:
    rows = DictRows()
    for number in range(20):
        rows.put(("transfers", f"t{number}"), one_of(number, BOB if number == 3 else "").to_data())
        rows.put(("transfer_order", str(number)), f"t{number}")
    rows.put(("transfer_order",), [0, 20])
    for number in range(20, 40):
        save_transfer(rows, one_of(number), is_new=True)
    assert set(rows.transfers()) == {"t3", *(f"t{number}" for number in range(35, 40))}
    # From when the time is known.
    for now_s in (NOW_S, NOW_S + LATE_S):
        save_transfer(rows, one_of(int(now_s)), now_s=now_s)
        assert "t3" in rows.transfers()
    save_transfer(rows, one_of(100), now_s=NOW_S + LATE_S + 1)
    assert "t3" not in rows.transfers()


def test_a_clock_that_is_behind_changes_nothing_and_one_far_ahead_holds_nothing_for_ever() -> None:
    rows, day_s = DictRows(), 86_400
    for number in range(6):
        save_transfer(rows, one_of(number, BOB), now_s=NOW_S + day_s)
    for number in range(10, 20):
        save_transfer(rows, one_of(number), now_s=NOW_S)
    assert "t0" in rows.transfers()
    for number in range(20, 30):
        save_transfer(rows, one_of(number), now_s=NOW_S + LATE_S + 1)
    assert "t0" not in rows.transfers()
    save_transfer(rows, one_of(30, BOB), now_s=NOW_S + 1000)
    for number in range(31, 60):
        save_transfer(rows, one_of(number), now_s=NOW_S + 1000 - 200)
    assert "t30" in rows.transfers()


# --- whatever comes ---------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("new"), st.sampled_from(["", BOB]), st.sampled_from(["asked", "permitted", "done", "refused"])
        ),
        st.tuples(st.just("settle"), st.integers(0, 100), st.sampled_from(["done", "refused", "committed"])),
        st.tuples(st.just("pass"), st.integers(1, 400), st.just("")),
    ),
    max_size=80,
)


@settings(max_examples=examples(200))
@given(STEPS)
def test_whatever_comes_what_is_open_or_was_lately_is_there_and_the_table_is_bounded(steps: list[Any]) -> None:
    with mock.patch.object(transfer_rows, "MAX_TRANSFERS", SMALL), mock.patch.object(transfer_rows, "MAX_KEPT", KEPT):
        rows, now_s = DictRows(), NOW_S
        rows.put(("entities", "alpha.e"), {"id": "alpha.e", "kind": "", "master": "", "owner": "", "authority": S1})
        known = dict[str, TransferRecord]()
        over_s = dict[str, float]()

        def is_open(one: TransferRecord) -> bool:
            in_time = one.phase is not Phase.ASKED or now_s <= one.ask_expires_at_s
            return one.phase in (Phase.ASKED, Phase.PERMITTED) and in_time

        for kind, what, phase in steps:
            if kind == "pass":
                now_s += what
                continue
            if kind == "new":
                before = dict(rows.data)
                try:
                    check_room(rows, now_s)
                except Refused:
                    assert rows.data == before
                    continue
                one = one_of(len(known), what, Phase(phase))
                one = one.changed(permit_rule_rev=1, ask_expires_at_s=int(now_s) + 900)
            else:
                at = [one for one in known.values() if is_open(one)]
                if not at:
                    continue
                one = at[what % len(at)].changed(phase=Phase(phase))
            known[one.id] = one
            if not is_open(one):
                over_s[one.id] = now_s
            save_transfer(rows, one, is_new=kind == "new", now_s=now_s)
            there = set(rows.transfers())
            assert {one.id for one in known.values() if is_open(one)} <= there
            signed = {name for name, one in known.items() if one.requester or one.phase is Phase.REFUSED}
            assert {name for name in signed if now_s <= over_s.get(name, 0.0) + LATE_S} <= there
            assert len(there) == rows.count_children(("transfer_order",)) <= SMALL + KEPT + 1
