"""The generator is xoshiro128**, and its draws are those of docs/reference/lockstep.md."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.lockstep.turns import ONE, cosine, sine

VECTORS: Final = json.loads((Path(__file__).parent / "vectors" / "generator.json").read_text())

# Of xoshiro128starstar.c (https://prng.di.unimi.it), compiled with gcc, from the state 1, 2, 3, 4.
REFERENCE_FIRST: Final = [
    *(11520, 0, 5927040, 70819200, 2031721883),
    *(1637235492, 1287239034, 3734860849, 3729100597, 4258142804),
]
REFERENCE_AT_10_000: Final = ((145629756, 2391309144, 4216761373, 3537116978), 4275519364)


def test_it_draws_what_the_reference_in_c_draws() -> None:
    drawn = Xoshiro128((1, 2, 3, 4))
    first = [drawn.next() for _ in range(10)]
    assert first == REFERENCE_FIRST
    for _ in range(9_989):
        drawn.next()
    assert (drawn.state, drawn.next()) == REFERENCE_AT_10_000


def test_it_draws_what_another_project_recorded_of_the_reference() -> None:
    # edorfaus/xoshiro-6502, test-rom/testdata.asm.
    drawn = Xoshiro128((0x964D4A0C, 0xD40AB895, 0xAD7FDECB, 0x3006F0F0))
    assert [drawn.next() for _ in range(4)] == [0xF1391922, 0x6FE53806, 0xA5BE2840, 0xF510EE70]
    assert drawn.state == (0xFC65379C, 0x52006D70, 0x87487639, 0xF1908343)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: repr(case["seed"]))
def test_its_draws_from_a_seed_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    drawn = Xoshiro128.seeded(case["seed"])
    assert list(drawn.state) == case["state"]
    assert [drawn.next() for _ in case["next"]] == case["next"]
    for n, values in case["below"]:
        assert [drawn.below(n) for _ in values] == values
    for low, high, values in case["between"]:
        assert [drawn.between(low, high) for _ in values] == values
    for numerator, denominator, values in case["chance"]:
        assert [drawn.chance(numerator, denominator) for _ in values] == values
    assert [drawn.uniform() for _ in case["uniform"]] == case["uniform"]
    items = list(range(len(case["shuffle"])))
    drawn.shuffle(items)
    assert items == case["shuffle"]
    assert list(drawn.state) == case["after"]


def test_the_table_of_sines_is_that_of_the_vectors() -> None:
    assert [sine(angle) for angle in range(1024)] == VECTORS["sine"]
    assert [(sine(angle), cosine(angle)) for angle in (0, 256, -256, 512)] == [(0, ONE), (ONE, 0), (-ONE, 0), (0, -ONE)]


@given(st.integers(0, 2**64), st.integers(1, 2**32))
def test_a_bounded_draw_redraws_what_would_favour_small_numbers(seed: int, n: int) -> None:
    raw, bounded = Xoshiro128.seeded(str(seed)), Xoshiro128.seeded(str(seed))
    fair = 2**32 // n * n
    expected = next(x for x in iter(raw.next, None) if x < fair) % n
    assert (bounded.below(n), bounded.state) == (expected, raw.state)


@pytest.mark.parametrize("n", [0, -1, 2**32 + 1, 1.0, True])
def test_a_bound_is_an_integer_from_1_to_2_to_the_32(n: Any) -> None:
    with pytest.raises(ValueError, match="give an integer from 1"):
        Xoshiro128.seeded("").below(n)
    with pytest.raises(ValueError, match="two integers in order"):
        Xoshiro128.seeded("").between(3, 2)


@pytest.mark.parametrize("state", [(0, 0, 0, 0), (1, 2, 3), (1, 2, 3, 2**32), (1, 2, 3, -1), (1, 2, 3, 4.0)])
def test_a_state_is_four_words_that_are_not_all_0(state: Any) -> None:
    with pytest.raises(ValueError, match="four integers of 32 bits"):
        Xoshiro128(state)
