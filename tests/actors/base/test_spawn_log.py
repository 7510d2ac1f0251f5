"""When actors were started, from a few samples: never later than true, and hardly earlier."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.spawn_log import MAX_SAMPLES, PRECISION, RESOLUTION_S, SpawnLog


@given(st.lists(st.floats(min_value=0, max_value=0.2), min_size=1, max_size=200))
def test_each_birth_is_known_to_the_resolution(pauses_s: list[float]) -> None:
    births, now_s, true_s = SpawnLog(), 0.0, {}
    for pid, pause_s in enumerate(pauses_s, start=1):
        now_s += pause_s
        true_s[pid] = now_s
        births.note(pid, now_s)
    for pid, at_s in true_s.items():
        assert at_s - RESOLUTION_S - 1e-9 <= births.of(pid) <= at_s


def test_after_very_many_births_each_is_known_to_a_fraction_of_its_age_and_the_memory_is_bounded() -> None:
    births, last = SpawnLog(), 200_000
    for pid in range(last + 1):
        births.note(pid, float(pid))
        assert len(births) <= MAX_SAMPLES
    for pid in range(0, last + 1, 97):
        assert 0 <= pid - births.of(pid) <= PRECISION * (last - pid)
    assert births.of(last) == last
