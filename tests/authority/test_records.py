"""The rows that homeservers replicate: what is written is what is read, and nothing else can be read."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from authority.epoch import Fence
from authority.errors import MessageError, Reason, Refused
from authority.records import MAX_UNKNOWN_CHARS, DirectoryRow, EntityRecord, Phase, Role, TransferRecord
from authority.rules import Rule

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
