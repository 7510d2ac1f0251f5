"""The hash that is the same everywhere."""

import subprocess
import sys
from collections import Counter
from enum import Enum, IntEnum, StrEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.stable_hash import _encode, stable_hash

atoms = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.uuids()
keys = st.recursive(atoms, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    RED = "red"


@given(keys, keys)
def test_equal_keys_and_only_those_are_encoded_alike(one: object, other: object) -> None:
    assert (_encode(one) == _encode(other)) == (one == other)


@given(st.text(), st.text(), st.text())
def test_where_a_part_ends_matters(one: str, other: str, rest: str) -> None:
    assert (_encode((one, other + rest)) == _encode((one + other, rest))) == (not other)


def test_members_of_enums_that_equal_their_values_have_their_hashes() -> None:
    assert stable_hash(Number.ONE) == stable_hash(1) == stable_hash(True)
    assert stable_hash(Word.RED) == stable_hash("red")
    assert stable_hash(Colour.RED) != stable_hash(1)


@pytest.mark.parametrize("key", [1.5, object(), ["a"], ("a", 1.5)])
def test_what_cannot_be_a_key_is_refused(key: object) -> None:
    with pytest.raises(TypeError, match="use int, str"):
        stable_hash(key)


def test_it_is_the_same_in_every_process() -> None:
    program = (
        "from batonpass.actors.base.stable_hash import stable_hash;print(stable_hash(('rooms', 'café', b'x', None, 7)))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"{stable_hash(('rooms', 'café', b'x', None, 7))}\n"}
    assert stable_hash(UUID(int=7)) == 3348186849, (
        "nor in another version: whoever stored by it would not find it again"
    )


@pytest.mark.parametrize("partitions", [2, 3, 8, 64])
def test_it_spreads(partitions: int) -> None:
    sizes = Counter(stable_hash(f"player-{number}") % partitions for number in range(10_000))
    assert len(sizes) == partitions
    assert max(sizes.values()) < 1.5 * min(sizes.values())
