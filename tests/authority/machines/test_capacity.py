"""Places on other servers: never more than there are, never for longer than said, one question for many."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import Reason
from batonpass.authority.machines.capacity import (
    FIRST_PLACES,
    MAX_PLACES,
    PLACES_TTL_NS,
    REFUSED_TTL_NS,
    Need,
    Places,
    Vacancies,
)

NEED = Need("ball", 1, 1024)
TARGET = "alpha.s2"


def test_needs_are_told_in_powers_of_two() -> None:
    sizes = {1: 1024, 1024: 1024, 1025: 2048, 100_000: 131_072, 2**20: 2**20, 2**20 + 1: 2**21}
    assert {size: Need.of("ball", 1, size).state_bytes for size in sizes} == sizes


ASKS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, MAX_PLACES), st.integers(0, 60), st.integers(0, 3)), max_size=30
)


@given(st.integers(0, 50), ASKS)
def test_failures_row_27_no_more_places_are_promised_than_there_are(
    room: int, asks: list[tuple[str, int, int, int]]
) -> None:
    vacancies, now_ns = Vacancies(room), 0
    promised: list[tuple[int, int]] = []
    for asker, wanted, living, seconds in asks:
        now_ns += seconds * 10**9
        granted = vacancies.promise(asker, wanted, living, now_ns)
        promised.append((granted, now_ns + PLACES_TTL_NS))
        assert 0 <= granted <= wanted
        kept = sum(count for count, until_ns in promised if until_ns > now_ns)
        assert granted == 0 or living + kept <= room


def test_a_place_that_is_used_is_not_counted_twice() -> None:
    vacancies = Vacancies(3)
    assert vacancies.promise("a", 2, 0, 0) == 2
    assert vacancies.promise("b", 2, 0, 0) == 1
    vacancies.arrived("a")
    vacancies.arrived("nobody")
    assert vacancies.promise("b", 2, 1, 0) == 0
    for _ in range(3):
        vacancies.arrived("a")
    assert vacancies.promise("c", 9, 2, 0) == 0
    assert vacancies.promise("c", 9, 2, PLACES_TTL_NS) == 1


def test_one_answer_serves_as_often_as_it_says_and_while_it_counts() -> None:
    places = Places()
    assert places.take(TARGET, NEED, 0) is None
    assert places.are_few(TARGET, NEED)
    assert places.wanted(TARGET, NEED, 0) == FIRST_PLACES
    places.answered(TARGET, NEED, 16, "", 0)
    assert [places.take(TARGET, NEED, 1) for _ in range(12)] == [""] * 12
    assert not places.are_few(TARGET, NEED)
    assert [places.take(TARGET, NEED, 1) for _ in range(5)] == [""] * 4 + [None]
    assert places.are_few(TARGET, NEED)
    assert places.wanted(TARGET, NEED, 1) == 32
    places.answered(TARGET, NEED, 5, "", 10)
    places.answered(TARGET, NEED, 900, "", PLACES_TTL_NS)
    assert places.wanted(TARGET, NEED, 11) == MAX_PLACES
    assert places.take(TARGET, NEED, 9 + PLACES_TTL_NS) == ""
    assert places.take(TARGET, NEED, 10 + PLACES_TTL_NS) is None
    assert places.wanted(TARGET, NEED, 10 + PLACES_TTL_NS) == FIRST_PLACES
    assert places.take("alpha.s3", NEED, 11) is None
    assert places.take(TARGET, Need("ball", 2, 1024), 11) is None


def test_a_refusal_is_believed_for_a_while() -> None:
    places = Places()
    places.answered(TARGET, NEED, 7, Reason.INCOMPATIBLE, 0)
    assert places.take(TARGET, NEED, REFUSED_TTL_NS - 1) == "incompatible"
    assert places.take(TARGET, NEED, REFUSED_TTL_NS) is None
    places.silent(TARGET, NEED, 0)
    assert places.take(TARGET, NEED, 1) == "target_failed"


def test_what_is_known_of_targets_is_bounded() -> None:
    places = Places()
    for number in range(10_001):
        places.answered(f"alpha.s{number}", NEED, 1, "", 0)
    assert places.take("alpha.s0", NEED, 1) is None
    assert places.take("alpha.s1", NEED, 1) == ""
