"""Whatever comes from the network: the documented error, within bounds of time and memory, and nothing else."""

import logging
import random
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.fuzz import plain
from tests.fuzz.inside import PACKAGES, modules_entered
from tests.fuzz.run import MIN_SECONDS_EACH, chosen
from tests.fuzz.table import CORPUS, ROOT, TARGETS, hostile_functions, load_corpus
from tests.fuzz.target import Failed, Target, run, run_bounded

MAX_CORPUS_BYTES = 300_000

NASTY = {
    "nothing": b"",
    "deep JSON lists": b"[" * 60_000,
    "deep JSON objects": b'{"a":' * 10_000,
    "deep CBOR": b"\x81" * 60_000,
    "a CBOR list of four billion": b"\x9a\xff\xff\xff\xff",
    "CBOR bytes of a terabyte": b"\x5b\x00\x00\x01\x00\x00\x00\x00\x00",
    "an integer of 65,280 bytes": b"\xc2\x59\xff\x00" + b"\xff" * 65_280,
    "an integer of 60,000 digits": b"9" * 60_000,
    "numbers that are none": b"[1e999, -1e999, NaN]",
    "zeros": bytes(65_536),
    "ones": b"\xff" * 65_536,
    "dots": b"a." * 30_000,
    "lines": b"\n" * 60_000,
}


@pytest.fixture(autouse=True)
def _no_logs() -> Iterator[None]:
    """What is dropped may be logged, once per input; not here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_function_that_reads_hostile_bytes_has_a_target() -> None:
    covered = {function for target in TARGETS.values() for function in target.covers}
    there = hostile_functions()
    missing, gone = sorted(there - covered), sorted(covered - there)
    assert not missing, f"give these a target in tests/fuzz/targets: {missing}"
    assert not gone, f"these are no longer there; take them out of tests/fuzz/targets: {gone}"


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_seeds_and_the_corpus_enter_every_function_that_the_target_names(target: Target) -> None:
    entered: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name.endswith("_untrusted") and code.co_filename.startswith(str(ROOT)):
            module = code.co_filename.removeprefix(f"{ROOT}/").removesuffix(".py").replace("/", ".")
            entered.add(f"{module.removesuffix('.__init__')}:{code.co_qualname}")

    seeds = [*target.seeds(), *load_corpus(target.name)]
    sys.setprofile(profile)
    try:
        for seed in seeds:
            run(target, seed)
    finally:
        sys.setprofile(None)
    assert set(target.covers) <= entered


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_the_fuzzer_has_kept_stays_within_bounds(target: Target) -> None:
    for data in [*target.seeds(), *load_corpus(target.name), *NASTY.values()]:
        run_bounded(target, data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_bytes_and_changed_good_inputs_raise_the_documented_error_only(target: Target) -> None:
    good = [*target.seeds(), *load_corpus(target.name)]

    @settings(
        max_examples=5 if target.slow else examples(25),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @example(data=good[0])
    @given(data=st.one_of(st.binary(max_size=400), changed(good, target.plain)))
    def check(data: bytes) -> None:
        run(target, data)

    check()


@st.composite
def changed(draw: st.DrawFn, good: list[bytes], form: str) -> bytes:
    """A good input with a few changes: of its parts where it is plain data, of its bytes otherwise."""
    data = draw(st.sampled_from(good))
    rng = random.Random(draw(st.integers(0, 2**32)))
    if form and draw(st.booleans()):
        return plain.mutate(data, form, rng, 65_536) or data
    spoilt = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(spoilt) + 1)
        spoilt[at : at + rng.randint(0, 4)] = rng.randbytes(rng.randint(0, 4))
    return bytes(spoilt)


def test_the_corpus_is_small_and_all_of_it_belongs_to_a_target() -> None:
    files = sorted(CORPUS.glob("*"))
    assert sum(file.stat().st_size for file in files) < MAX_CORPUS_BYTES
    assert {file.stem for file in files if file.suffix == ".hex"} == set(TARGETS)


# --- the fuzzer keeps its time ------------------------------------------------------------------------------------


def test_a_budget_too_small_for_all_targets_goes_to_some_drawn_from_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    names = list(TARGETS)
    assert chosen(names, MIN_SECONDS_EACH * len(names), 1) == names
    assert capsys.readouterr().out == ""
    some = chosen(names, 30, 1)
    assert len(set(some)) == 30 // MIN_SECONDS_EACH
    assert set(some) <= set(names)
    assert "drawn with --seed 1\n" in capsys.readouterr().out
    assert chosen(names, 30, 1) == some != chosen(names, 30, 2)
    assert len(chosen(names, 0.1, 1)) == 1
    drawn = {name for seed in range(200) for name in chosen(names, 30, seed)}
    assert drawn == set(names), "every target has its turn"


def test_the_modules_that_a_target_enters_are_instrumented_whatever_its_inputs_raise() -> None:
    target = TARGETS["sector-map"]
    entered = modules_entered(target, target.seeds())
    assert {function.split(":")[0] for function in target.covers} <= entered
    assert all(name.startswith(PACKAGES) for name in entered)
    assert modules_entered(_target(lambda _: 1 / 0), [b""]) == set()


# --- the fuzzer notices what it should ----------------------------------------------------------------------------


def _target(call: Any, *allowed: type[Exception]) -> Target:
    return Target("made up", call, [], lambda: [b""], allowed)


def test_another_error_than_the_documented_one_is_a_failure() -> None:
    def misread(data: bytes) -> None:
        raise KeyError(data)

    run(_target(misread, KeyError), b"x")
    with pytest.raises(Failed, match=r"let KeyError escape(?s:.*)--replay 'made up' 78"):
        run(_target(misread, ValueError), b"x")


def test_memory_beyond_the_bound_is_a_failure() -> None:
    with pytest.raises(Failed, match="allocated"):
        run_bounded(_target(lambda _: bytes(100_000_000)), b"x")


def test_work_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.target.MAX_CPU_S", 0.1)

    def spin(_: bytes) -> None:
        while True:
            pass

    with pytest.raises(TimeoutError, match="took more than"):
        run_bounded(_target(spin), b"x")
