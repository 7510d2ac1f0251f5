"""The rows that homeservers replicate: what is written is what is read, and nothing else can be read."""

import json
import math

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from batonpass.authority.errors import MessageError, Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.records import (
    MAX_UNKNOWN_CHARS,
    DirectoryRow,
    EntityRecord,
    Lock,
    Phase,
    Role,
    Rule,
    TransferRecord,
    Want,
)
from batonpass.authority.model.standing import OrphanPolicy, Standing

TEXTS = st.text(max_size=8)
NUMBERS = st.integers(0, 2**63 - 1)
ENTITIES = st.builds(
    EntityRecord,
    id=TEXTS,
    kind=TEXTS,
    master=TEXTS,
    owner=TEXTS,
    rule=st.sampled_from(Rule),
    authority=TEXTS,
    epoch=NUMBERS,
    sub=NUMBERS,
    delegation=st.lists(TEXTS, max_size=3).map(tuple),
)
TRANSFERS = st.builds(
    TransferRecord, id=TEXTS, entity=TEXTS, target=TEXTS, phase=st.sampled_from(Phase), epoch=NUMBERS, sub=NUMBERS
)
ROWS = st.builds(DirectoryRow, name=TEXTS, role=st.sampled_from(Role), keys=st.dictionaries(TEXTS, TEXTS))


@given(st.one_of(ENTITIES, TRANSFERS, ROWS))
def test_a_row_survives_the_log(row: EntityRecord | TransferRecord | DirectoryRow) -> None:
    assert type(row).from_data(json.loads(json.dumps(row.to_data()))) == row


FULL_ENTITIES = st.builds(
    EntityRecord,
    id=TEXTS,
    kind=TEXTS,
    master=TEXTS,
    master_rev=st.integers(1, 3),
    owner=TEXTS,
    rule=st.sampled_from(Rule),
    authority=TEXTS,
    incarnation=st.integers(0, 2),
    came_by=TEXTS,
    came_from=TEXTS,
    came_epoch=NUMBERS,
    epoch=st.integers(1, 3),
    delegation=st.lists(TEXTS, max_size=3).map(tuple),
    locks=st.dictionaries(TEXTS, st.builds(Lock, by=TEXTS, count=st.integers(1, 3)), max_size=2),
    orphans=st.sampled_from(OrphanPolicy),
    standing=st.sampled_from(Standing),
    on_leave=st.sampled_from(LeavePolicy),
    children=st.lists(TEXTS, max_size=3).map(tuple),
)
FULL_TRANSFERS = st.builds(
    TransferRecord,
    id=TEXTS,
    entity=TEXTS,
    target=TEXTS,
    source=TEXTS,
    phase=st.sampled_from(Phase),
    want=st.sampled_from(Want),
    stay=st.booleans(),
    mode=st.sampled_from(["eager", "staged"]),
    direct=st.booleans(),
    tick=st.integers(0, 2),
    came_from=TEXTS,
    came_epoch=NUMBERS,
    report=TEXTS,
)


@given(FULL_ENTITIES | FULL_TRANSFERS)
def test_a_row_is_read_and_written_as_by_pydantic_but_faster(record: EntityRecord | TransferRecord) -> None:
    kind, row = type(record), record.model_dump(mode="json", exclude_defaults=True)
    assert list(record.to_row().items()) == list(row.items())
    assert cbor2.dumps(record.to_row()) == cbor2.dumps(row), "no subclasses of plain types either"
    for data in (row, record.model_dump(mode="json")):
        read = kind.from_data(data)
        assert read == kind.model_validate(data) == record
        assert repr(read) == repr(record), "down to the types of its fields"
        assert read.changed(epoch=7) == record.model_copy(update={"epoch": 7})
        assert read.changed(epoch=7).model_copy().fence == Fence(7, record.sub)


def test_a_report_of_before_is_read_as_a_text() -> None:
    row = {"id": "t", "entity": "alpha.e", "target": "alpha.s1", "phase": "done", "report": {"counters": {}}}
    assert TransferRecord.from_data(row) == TransferRecord.model_validate(row)


@pytest.mark.parametrize("kind", [EntityRecord, TransferRecord])
def test_a_row_without_what_it_must_have_is_none(kind: type[EntityRecord | TransferRecord]) -> None:
    with pytest.raises(ValidationError, match="missing"):
        kind.from_data({"id": "alpha.e"})


@given(st.one_of(ENTITIES, TRANSFERS))
def test_a_row_knows_its_fence(row: EntityRecord | TransferRecord) -> None:
    assert row.fence == Fence(row.epoch, row.sub)


def test_a_row_is_changed_by_copying() -> None:
    row = EntityRecord(id="alpha.e", kind="ball", master="alpha.ada", owner="alpha.ada", authority="alpha.s1")
    assert row.changed(epoch=2).epoch == 2
    assert row.epoch == 1
    with pytest.raises(ValidationError):
        row.epoch = 2


def test_a_field_that_is_not_known_is_not_dropped_silently() -> None:
    with pytest.raises(ValidationError, match="extra"):
        EntityRecord.from_data({"id": "alpha.e", "kind": "b", "master": "alpha.a", "owner": "alpha.a", "colour": "red"})


LATER = {"name": "alpha.s1", "role": "simserver", "keys": {}, "colour": "red", "more": {"a": [1, None]}}


def test_what_a_later_version_says_in_a_directory_row_is_kept_and_passed_on() -> None:
    row = DirectoryRow.from_data(LATER)
    assert row.to_data().items() >= LATER.items()
    assert row.changed(link_port=9).to_data().items() >= LATER.items()
    assert row != DirectoryRow.from_data(LATER | {"colour": "blue"})


@pytest.mark.parametrize(
    "more", ["x" * MAX_UNKNOWN_CHARS, math.nan, {"deep": math.inf}, b"bytes", ["é" * (MAX_UNKNOWN_CHARS // 6)]]
)
def test_what_a_later_version_says_in_a_directory_row_is_json_of_bounded_size(more: object) -> None:
    with pytest.raises(ValidationError):
        DirectoryRow.from_data(LATER | {"more": more})


def test_a_refusal_carries_its_reason_its_sentence_and_the_offender() -> None:
    refused = Refused(Reason.FULL, "no room", limit=3)
    assert (refused.reason, refused.sentence, refused.details) == (Reason.FULL, "no room", {"limit": 3})
    assert str(refused) == "no room"


def test_reasons_are_told_by_codes_that_never_change() -> None:
    assert all(reason.value == reason.name.lower() for reason in Reason)
    assert issubclass(MessageError, ValueError)
