"""States that go ahead: whatever changes meanwhile, what is put together is the frozen state, or nothing."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.machines import precopy
from batonpass.authority.machines.precopy import (
    ENTRY_BYTES,
    MAX_CHUNK_BYTES,
    MAX_ROUNDS,
    MIN_CHUNK_BYTES,
    ChunkTable,
    CopyAhead,
    cut,
    parse_recipe_untrusted,
    split_untrusted,
)
from tests.budget import examples

HERE = "alpha.s1"
TRANSFER = "transfer-1"
KIB = 1024


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 to 64 bytes, so that small states have many."""
    monkeypatch.setattr(precopy, "MIN_CHUNK_BYTES", 16)
    monkeypatch.setattr(precopy, "MAX_CHUNK_BYTES", 64)
    monkeypatch.setattr(precopy, "ENOUGH_BYTES", 64)
    monkeypatch.setattr(precopy, "_MARK", b"\x07")


def changed(state: bytes, dice: random.Random, how: str) -> bytes:
    """The state a while later."""
    place = dice.randrange(len(state) + 1)
    match how:
        case "same":
            return state
        case "longer":
            return state[:place] + dice.randbytes(dice.randrange(9)) + state[place:]
        case "shorter":
            return state[:place] + state[place + 9 :]
        case _:
            return dice.randbytes(len(state))


CHANGES = st.lists(st.sampled_from(["same", "longer", "shorter", "all of it"]), min_size=1, max_size=8)


def copied(
    states: Iterable[bytes], table: ChunkTable, lost: set[int] | frozenset[int] = frozenset()
) -> tuple[CopyAhead, bytes]:
    """Rounds until it is time to freeze the state, which is the second; what comes in the rounds `lost` is lost."""
    ahead, state = CopyAhead(), b""
    for state in states:
        chunks = ahead.next_round(state)
        if chunks is None:
            return ahead, state
        if ahead.round not in lost:
            table.keep(TRANSFER, HERE, chunks)
    return ahead, state


@settings(max_examples=examples(300))
@given(st.integers(0, 2000), CHANGES, st.integers(0, 2**32), st.sets(st.integers(1, MAX_ROUNDS), max_size=2))
def test_failures_row_26_what_is_put_together_is_the_frozen_state_or_nothing(
    size_bytes: int, changes: list[str], seed: int, lost: set[int]
) -> None:
    dice, table = random.Random(seed), ChunkTable()
    states = [dice.randbytes(size_bytes)]
    for how in changes:
        states.append(changed(states[-1], dice, how))
    ahead, _ = copied(states, table, lost)
    frozen = states[-1]
    recipe, beside = ahead.recipe(frozen)
    pieces = parse_recipe_untrusted(recipe)
    assert [piece.length for piece in pieces] == [end - start for start, end in cut(frozen)]
    whole = table.whole(TRANSFER, HERE, pieces, beside)
    assert whole == frozen or (lost and whole is None)
    assert ahead.round <= MAX_ROUNDS
    # Whoever has nothing takes the recipe of somebody who sent nothing.
    assert (
        ChunkTable().whole(TRANSFER, HERE, parse_recipe_untrusted(CopyAhead().recipe(frozen)[0]), _all(frozen))
        == frozen
    )


def _all(state: bytes) -> bytes:
    return CopyAhead().recipe(state)[1]


def test_what_has_not_changed_is_not_sent_again_and_then_there_is_nothing_left_to_send() -> None:
    state = random.Random(1).randbytes(10_000)
    ahead, frozen = copied([state] * 9, ChunkTable())
    assert (ahead.round, ahead.sent_bytes, frozen) == (1, len(state), state)
    assert ahead.recipe(state)[1] == b""


def test_a_byte_more_in_front_changes_a_chunk_or_two() -> None:
    state = random.Random(1).randbytes(100_000)
    ahead, _ = copied([state, b"\x01" + state], ChunkTable())
    assert len(ahead.recipe(b"\x01" + state)[1]) <= 3 * 64


def test_a_state_that_changes_faster_than_it_is_sent_is_frozen_after_few_rounds() -> None:
    dice = random.Random(1)
    ahead, _ = copied([dice.randbytes(10_000) for _ in range(9)], ChunkTable())
    assert ahead.round == 1, "no round brings it nearer"
    halves = [dice.randbytes(10_000)]
    for number in range(9):
        keep = len(halves[-1]) - (5000 >> number)
        halves.append(halves[-1][:keep] + dice.randbytes(5000 >> number))
    ahead, _ = copied(halves, ChunkTable())
    assert ahead.round == MAX_ROUNDS


@given(st.binary(max_size=3000))
def test_chunks_are_a_partition_within_their_bounds(state: bytes) -> None:
    places = list(cut(state))
    assert b"".join(state[start:end] for start, end in places) == state
    assert all(16 <= end - start <= 64 for start, end in places[:-1])
    assert all(1 <= end - start <= 64 for start, end in places[-1:])


def test_the_chunks_of_real_states_are_of_the_size_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    lengths = [end - start for start, end in cut(random.Random(1).randbytes(8 * KIB * KIB))]
    assert max(lengths) <= MAX_CHUNK_BYTES
    assert min(lengths[:-1]) >= MIN_CHUNK_BYTES
    assert 32 * KIB < sum(lengths) / len(lengths) < MAX_CHUNK_BYTES


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["s1", "s2"]),
            st.lists(st.binary(min_size=1, max_size=40)),
        )
    )
)
def test_what_is_kept_is_bounded_and_counted(steps: list[tuple[str, str, list[bytes]]]) -> None:
    table = ChunkTable(max_bytes=1500)
    for transfer_id, source, chunks in steps:
        table.keep(transfer_id, source, chunks)
        held = [chunk for kept in table._kept.values() for chunk in kept.chunks.values()]
        assert table.bytes == sum(len(chunk) + ENTRY_BYTES for chunk in held) <= 1500
    for transfer_id in "abc":
        table.drop(transfer_id)
    assert table.bytes == 0


def test_whoever_keeps_most_loses_first_and_nobody_uses_anothers_chunks() -> None:
    table = ChunkTable(max_bytes=100 + 3 * ENTRY_BYTES)
    table.keep("mine", "s1", [b"m" * 30])
    table.keep("theirs-1", "s2", [b"t" * 40])
    table.keep("theirs-2", "s2", [b"u" * 40])
    assert set(table._kept) == {"mine", "theirs-2"}
    pieces = parse_recipe_untrusted(precopy._PIECE.pack(precopy.chunk_hash(b"m" * 30), 30, False))
    assert table.whole("mine", "s1", pieces, b"") == b"m" * 30
    assert table.whole("mine", "s2", pieces, b"") is None


def test_what_is_no_recipe_is_refused() -> None:
    recipe, beside = CopyAhead().recipe(bytes(range(200)))
    for wrong in (
        recipe[:-1],
        precopy._PIECE.pack(bytes(32), 0, True),
        precopy._PIECE.pack(bytes(32), 2**32 - 1, True),
    ):
        with pytest.raises(MessageError):
            parse_recipe_untrusted(wrong)
    with pytest.raises(MessageError):
        parse_recipe_untrusted(recipe * 10**6)
    with pytest.raises(MessageError):
        ChunkTable().whole(TRANSFER, HERE, parse_recipe_untrusted(recipe), beside + b"x")
    with pytest.raises(MessageError):
        split_untrusted(b"abc", [1, 1])


def test_a_state_longer_than_any_transfer_carries_has_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, _ = CopyAhead().recipe(bytes(200))
    monkeypatch.setattr(precopy, "MAX_STATE_BYTES", 199)
    with pytest.raises(MessageError):
        parse_recipe_untrusted(recipe)
