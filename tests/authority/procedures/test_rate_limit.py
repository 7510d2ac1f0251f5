"""A requester may ask for an entity so many times at once, and so often after that; nobody else pays for it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.procedures.rate_limit import BURST, MAX_PACED, PATIENCE_S, REQUESTS_PER_S, Paces, spent
from tests.authority.log import BALL, BOB, S2, Log, new_log

EVE = "alpha.eve"


class Bucket:
    """The paces of one entity."""

    def __init__(self) -> None:
        self.paces: Paces = {}

    def took(self, who: str, now_s: float) -> bool:
        try:
            self.paces = spent(self.paces, who, now_s)
        except Refused:
            return False
        return True


@given(st.lists(st.floats(0, 5), max_size=60))
def test_never_more_than_the_burst_and_the_rate_allow(pauses: list[float]) -> None:
    bucket, now_s, taken = Bucket(), 1000.0, 0
    for pause in pauses:
        now_s += pause
        taken += bucket.took(BOB, now_s)
        assert taken <= BURST + (now_s - 1000.0) * REQUESTS_PER_S + 1e-6


def test_after_a_burst_tokens_come_back_at_the_rate() -> None:
    bucket = Bucket()
    assert [bucket.took(BOB, 0.0) for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert bucket.took(EVE, 0.0), "each has a bucket of its own"
    assert [bucket.took(BOB, 1 / REQUESTS_PER_S) for _ in range(2)] == [True, False]


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket = Bucket()
    for _ in range(BURST):
        assert bucket.took(BOB, 100.0)
    assert not bucket.took(BOB, 50.0)
    assert not bucket.took(BOB, 100.0)
    assert bucket.took(BOB, 101.0)


def test_a_clock_that_is_a_little_behind_says_when_there_is_a_token_by_it() -> None:
    paces: Paces = {}
    for _ in range(BURST):
        paces = spent(paces, BOB, 100.0)
    with pytest.raises(Refused) as refused:
        spent(paces, BOB, 90.0)
    after_s = refused.value.details["retry_after_s"]
    assert after_s == 10.0 + 1 / REQUESTS_PER_S
    assert spent(paces, BOB, 90.0 + after_s)


@pytest.mark.parametrize("ahead_s", [1.0, PATIENCE_S, PATIENCE_S + 1.0, 3600.0, 1e9])
@pytest.mark.parametrize("requests", [1, BURST])
def test_a_clock_that_is_ahead_keeps_nobody_waiting_for_long_at_the_others(ahead_s: float, requests: int) -> None:
    bucket = Bucket()
    assert all(bucket.took(BOB, 1000.0 + ahead_s) for _ in range(requests))
    while bucket.took(BOB, 1000.0):
        pass
    pause_s = 1 / REQUESTS_PER_S
    took = [bucket.took(BOB, 1000.0 + number * pause_s) for number in range(200)]
    assert all(took[math.ceil(PATIENCE_S / pause_s) + 1 :]), "by the rate, as if there were one clock"


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=200), st.sampled_from([0.5, 30.0, 61.0, 3600.0]))
def test_whoever_asks_by_two_clocks_in_turn_has_no_time_twice(asks: list[tuple[float, bool]], ahead_s: float) -> None:
    bucket, passed_s, taken = Bucket(), 0.0, 0
    for pause, is_ahead in asks:
        passed_s += pause
        taken += bucket.took(BOB, 1000.0 + passed_s + ahead_s * is_ahead)
        # What it looked like when the clock that is ahead was heard first, and the one token where it was not any more.
        assert taken <= BURST + min(BURST, ahead_s * REQUESTS_PER_S) + 1 + passed_s * REQUESTS_PER_S + 1e-6


def test_so_many_requesters_are_remembered_and_no_more() -> None:
    bucket = Bucket()
    for number in range(MAX_PACED + 10):
        assert bucket.took(f"alpha.p{number}", float(number))
    assert len(bucket.paces) == MAX_PACED


def request(log: Log, number: int) -> None:
    log.run(
        "transfer.propose",
        transfer_id=f"transfer-{number}",
        entity=BALL,
        target=S2,
        requester=BOB,
        stay=True,
        now_s=0.0,
    )


def test_the_log_counts_what_it_takes_and_a_repetition_costs_nothing() -> None:
    log = new_log("allow")
    for number in range(BURST):
        request(log, number)
        request(log, number)
    args = {"transfer_id": "transfer-x", "entity": BALL, "target": S2, "requester": BOB, "stay": True, "now_s": 0.0}
    log.refuses(Reason.TOO_OFTEN, "transfer.propose", **args)
    assert log.propose("of-the-system")["phase"] == "permitted", "moves for the system's own reasons are not paced"
