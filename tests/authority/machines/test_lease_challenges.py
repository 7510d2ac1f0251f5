"""By what a renewal of a lease is known to be new, whatever time the clocks of the two servers show (row 25)."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.machines.lease import Challenges, LeaseTerms

TERMS = LeaseTerms(6_000_000_000)
SECRET, OTHER = b"s" * 32, b"o" * 32


@given(st.integers(0, 10**18), st.integers(0, 10 * TERMS.granter_ns))
def test_failures_row_25_a_challenge_is_good_for_a_term_and_for_no_more_than_two(given_ns: int, later_ns: int) -> None:
    challenges = Challenges(SECRET, TERMS)
    challenge, now_ns = challenges.now(given_ns), given_ns + later_ns
    if later_ns <= TERMS.granter_ns:
        assert challenges.is_recent(challenge, now_ns)
    if later_ns >= 2 * TERMS.granter_ns:
        assert not challenges.is_recent(challenge, now_ns)


@given(st.integers(0, 10**18), st.text(max_size=40))
def test_failures_row_25_nor_is_one_of_another_granter_or_of_another_life_of_it(now_ns: int, made_up: str) -> None:
    challenges = Challenges(SECRET, TERMS)
    assert not challenges.is_recent(Challenges(OTHER, TERMS).now(now_ns), now_ns)
    assert not challenges.is_recent(made_up, now_ns)


def test_a_challenge_tells_nothing_of_when_it_was_given() -> None:
    challenges = Challenges(SECRET, TERMS)
    assert len({challenges.now(number * TERMS.granter_ns) for number in range(100)}) == 100
    assert len(challenges.now(0)) == 32
