"""Identities are those of TimeSteward, vector by vector; what an event makes has one of its own (T1)."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.ids import (
    GENESIS_ID,
    MAX_ID,
    child_id,
    fiat_id,
    generator_of,
    id_of,
    random_id,
    siphash24,
    words_of,
)

# Made with the SipHasher of Rust's standard library and TimeSteward's two pairs of keys: bytes, word 0, word 1.
VECTORS: Final[Any] = json.loads((Path(__file__).parent / "vectors" / "siphash_ids.json").read_text(encoding="utf-8"))

ids = st.integers(0, MAX_ID)


@pytest.mark.parametrize("row", VECTORS["rows"], ids=lambda row: f"{len(row[0]) // 2} bytes")
def test_t1_an_identity_is_the_one_that_the_original_gives(row: list[str]) -> None:
    data, word0, word1 = row
    assert words_of(random_id(bytes.fromhex(data))) == (int(word0, 16), int(word1, 16))


def test_siphash_gives_what_its_authors_give() -> None:
    # Appendix A of the paper: key 00..0f, message 00..0e.
    key0, key1 = 0x0706050403020100, 0x0F0E0D0C0B0A0908
    assert siphash24(key0, key1, bytes(range(15))) == 0xA129CA6149BE45E5


def test_parts_are_written_as_bincode_writes_a_tuple() -> None:
    assert id_of(1, "ab", b"\xff") == random_id(
        b"\1" + bytes(7) + b"\2" + bytes(7) + b"ab" + b"\1" + bytes(7) + b"\xff"
    )
    assert id_of(-1) == random_id(b"\xff" * 8)
    assert id_of(2 << 64 | 3) == random_id(b"\2" + bytes(7) + b"\3" + bytes(7))


@given(ids)
def test_a_fiat_event_never_has_the_identity_that_its_sender_hashed(id: int) -> None:
    assert fiat_id(id) != id
    assert 0 <= fiat_id(id) <= MAX_ID


def test_the_words_of_a_fiat_identity_wrap_each_by_itself() -> None:
    assert words_of(fiat_id(MAX_ID)) == (0xC1D40DAAEE67461C, 0xB23CE1F459EDEFFE)


def test_what_is_made_has_other_identities_over_many_generations_and_siblings() -> None:
    seen, parents = {GENESIS_ID}, [GENESIS_ID]
    for _ in range(12):
        children = [child_id(parent, number) for parent in parents for number in range(8)]
        seen.update(children)
        parents = children[::4]
    assert len(seen) == 1 + sum(8 * 2**generation for generation in range(12))


def test_half_of_all_children_come_before_their_parents() -> None:
    """Else, events that predict for their own time would always, or never, count an iteration up."""
    parent, before = int(GENESIS_ID), 0
    for _ in range(2_000):
        child = child_id(parent, 0)
        before += child < parent
        parent = child
    assert 900 < before < 1_100


def test_the_dice_of_an_event_begin_with_the_low_half_of_word_0() -> None:
    assert generator_of(0x11111111_22222222_33333333_44444444).state == (0x22222222, 0x11111111, 0x44444444, 0x33333333)
    assert any(generator_of(0).state)
