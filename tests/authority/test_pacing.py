"""A requester may ask for an entity so many times at once, and so often after that; nobody else pays for it."""

from hypothesis import given
from hypothesis import strategies as st

from authority.errors import Reason, Refused
from authority.pacing import BURST, MAX_PACED, REQUESTS_PER_S, Paces, spent
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
