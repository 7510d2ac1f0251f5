"""How many ticks are due at each lead (E9), and how long a server may be silent (E14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep.schedule import Connection, FaultWindow, frames_due

# The lead, how long a tick takes then in ms, and how many are due at once: SimClient's rule, worked out by hand for a
# tolerance of 8 ticks (its lead of 4, twice), and so for the seed's tolerance of 4, from which it is four less.
SCHEDULE = [
    *((lead, 50, 1) for lead in range(1, 9)),
    *(
        (9, 45, 1),
        (10, 40, 1),
        (11, 35, 1),
        (12, 30, 1),
        (13, 25, 1),
        (14, 20, 1),
        (15, 15, 1),
        (16, 10, 1),
        (17, 5, 1),
    ),
    *((lead, 0, 1) for lead in range(18, 29)),
    *((lead, 0, 2) for lead in range(29, 39)),
    *((lead, 0, 3) for lead in range(39, 41)),
]


@pytest.mark.parametrize(("lead", "length_ms", "at_once"), SCHEDULE)
def test_e9_the_schedule_of_catching_up_is_exact_at_each_lead(lead: int, length_ms: int, at_once: int) -> None:
    for tolerance, behind in ((8, lead), (4, lead - 4)):
        if behind > 0:
            assert frames_due(behind, length_ms, tolerance=tolerance) == min(at_once, behind)
            assert not length_ms or frames_due(behind, length_ms - 0.001, tolerance=tolerance) == 0


def test_the_leads_of_the_schedule_are_1_to_40() -> None:
    assert [lead for lead, *_ in SCHEDULE] == list(range(1, 41))


@given(st.integers(-5, 100_000), st.floats(0, 1e6), st.integers(0, 60))
def test_never_more_is_due_than_is_known(behind: int, elapsed_ms: float, tolerance: int) -> None:
    assert 0 <= frames_due(behind, elapsed_ms, tolerance=tolerance) <= max(0, behind)


def test_e8_a_client_that_is_within_its_tolerance_computes_a_tick_each_50_ms() -> None:
    assert [frames_due(behind, 50) for behind in range(6)] == [0, 1, 1, 1, 1, 1]
    assert [frames_due(behind, 49) for behind in range(6)] == [0, 0, 0, 0, 0, 1]


def test_e14_a_server_that_fails_for_15_s_is_lost_and_stays_so() -> None:
    window, seen = FaultWindow(), []
    for fault_at_ms in (1_000, 16_000, None, 20_000, 35_000, 35_001, None, 36_000):
        if fault_at_ms is None:
            window.heard()
        else:
            window.fault(fault_at_ms)
        seen.append(window.connection.value)
    assert seen == ["faulty", "faulty", "heard", "faulty", "faulty", "lost", "lost", "lost"]


def test_e14_a_refusal_that_no_repetition_can_mend_loses_the_server_at_once() -> None:
    window = FaultWindow()
    window.fault(1_000, for_good=True)
    assert window.connection is Connection.LOST
