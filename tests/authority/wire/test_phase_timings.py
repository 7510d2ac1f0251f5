"""How long the phases of a transfer took, from what its trace says."""

import pytest

from batonpass.authority.wire.hops import REPEATED, Trace
from batonpass.authority.wire.phase_timings import PHASES, timings_ms

MS = 1_000_000


def through_home() -> Trace:
    """Frozen at 0, decided between 4 and 7, staged at 5, active at 9 ms."""
    trace = Trace("transfer-1").mark("alpha.s1", "frozen", 0)
    trace = trace.leave("alpha.s1", "handoff", 1 * MS).arrive("alpha.h1", 3 * MS)
    trace = trace.mark("alpha.h1", "ruling", 4 * MS).mark("alpha.h1", "deciding", 5 * MS)
    trace = trace.mark("alpha.h1", "committed", 7 * MS)
    return trace.mark("alpha.s2", "staged", 5 * MS).mark("alpha.s2", "activated", 9 * MS)


def test_each_phase_is_the_time_between_its_two_marks() -> None:
    assert timings_ms(through_home()) == {
        "request": 4.0,
        "rule": 1.0,
        "commit": 2.0,
        "state": 5.0,
        "activation": 2.0,
        "total": 9.0,
    }


def test_the_phases_of_the_path_add_up_to_the_total() -> None:
    timings = timings_ms(through_home())
    assert sum(timings[name] for name in ("request", "rule", "commit", "activation")) == timings["total"]


def test_in_a_direct_pass_nobody_rules_and_the_message_is_the_state() -> None:
    trace = Trace("transfer-1").mark("alpha.s1", "frozen", 0)
    trace = trace.leave("alpha.s1", "direct", 1 * MS).arrive("alpha.s2", 3 * MS)
    trace = trace.mark("alpha.s2", "staged", 4 * MS).mark("alpha.s2", "activated", 6 * MS)
    assert timings_ms(trace) == {"request": 3.0, "state": 4.0, "activation": 2.0, "total": 6.0}


def test_of_a_repeated_transfer_only_the_state_and_the_whole_are_known() -> None:
    """The decision was made earlier than its marks say: they are those of the answer to the repetition."""
    trace = through_home().mark("alpha.h1", REPEATED, 7 * MS)
    assert timings_ms(trace) == {"state": 5.0, "total": 9.0}


@pytest.mark.parametrize("trace", [Trace("transfer-1"), Trace("transfer-1").leave("alpha.s1", "handoff", 5)])
def test_what_was_not_noted_is_left_out(trace: Trace) -> None:
    assert timings_ms(trace) == {}


def test_every_phase_is_explained() -> None:
    assert timings_ms(through_home()).keys() == PHASES.keys()
