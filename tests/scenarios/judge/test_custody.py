"""Judging custody: a clean chain gives zeros, and each way to break it is found."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.judge.custody import Custody, FinalAuthority, gaps_ms, judge
from batonpass.simserver.entity.custody_log import CustodyLog, Stint

BALL = "alpha.ball"
PERIOD_NS = 50_000_000
HANDOVER_NS = 1_000_000
FINAL = FinalAuthority("alpha.s1", 3, 0)


def stint(server: str, epoch: int, begin: int, end: int | None, *, at_ns: int, sub: int = 0) -> Stint:
    """From tick `begin` to tick `end` (None: it lasts), ticking at whole periods; `at_ns` is when it began."""
    first_ns = (at_ns // PERIOD_NS + 1) * PERIOD_NS
    count = 3 if end is None else end - begin
    last_ns = first_ns + (count - 1) * PERIOD_NS
    made = Stint(BALL, server, epoch, sub, begin, f"hash {begin}", at_ns)
    if count:
        made.first_tick_ns, made.last_tick_ns = first_ns, last_ns
    if end is not None:
        made.ended_tick, made.ended_hash = end, f"hash {end}"
        made.ended_ns = (last_ns if count else at_ns) + HANDOVER_NS
    return made


def clean() -> list[Stint]:
    """s1 → s2 → s1, four ticks each, every hand-over between two ticks."""
    first = stint("alpha.s1", 1, 0, 4, at_ns=0)
    second = stint("alpha.s2", 2, 4, 8, at_ns=first.ended_ns + HANDOVER_NS)
    return [first, second, stint("alpha.s1", 3, 8, None, at_ns=second.ended_ns + HANDOVER_NS)]


def judged(stints: list[Stint], final: FinalAuthority = FINAL) -> Custody:
    logs = {server: CustodyLog(server) for server in ("alpha.s1", "alpha.s2", "alpha.s3")}
    for one in stints:
        logs[one.server].start(one)
    return judge([row for log in logs.values() for row in log.to_data()], {BALL: final}, PERIOD_NS)


def counts(custody: Custody) -> tuple[int, int, int]:
    return custody.two_authorities, custody.no_authority, custody.state_regressions


def test_a_clean_chain_gives_zeros_in_whatever_order_the_logs_come() -> None:
    for stints in (clean(), clean()[::-1]):
        custody = judged(stints)
        assert counts(custody) == (0, 0, 0)
        assert custody.findings == []


@pytest.mark.parametrize(("last_tick_late_ns", "found"), [(-1, 0), (1, 1)])
def test_whoever_lost_its_lease_had_authority_until_its_last_tick(last_tick_late_ns: int, found: int) -> None:
    first, second, third = clean()
    first.ended_ns = second.started_ns + 1
    first.last_tick_ns = second.started_ns + last_tick_late_ns
    rows = [one.row() for one in (first, second, third)]
    assert judge(rows, {BALL: FINAL}, PERIOD_NS, {"alpha.s1": 1}).two_authorities == found
    assert judge(rows, {BALL: FINAL}, PERIOD_NS, {"alpha.s2": 1}).two_authorities == 1


def test_a_resumption_after_a_refusal_is_a_link_like_any_other() -> None:
    first = stint("alpha.s1", 1, 0, 4, at_ns=0)
    again = stint("alpha.s1", 2, 4, None, at_ns=first.ended_ns + HANDOVER_NS)
    assert counts(judged([first, again], FinalAuthority("alpha.s1", 2, 0))) == (0, 0, 0)


def test_direct_passes_are_ordered_by_their_sub_epochs() -> None:
    chain = [stint("alpha.s1", 1, 0, 1, at_ns=0)]
    for sub in range(1, 12):
        server, end = ("alpha.s2", "alpha.s1")[sub % 2 == 0], None if sub == 11 else sub + 1
        chain.append(stint(server, 1, sub, end, at_ns=chain[-1].ended_ns + HANDOVER_NS, sub=sub))
    assert counts(judged(chain, FinalAuthority("alpha.s2", 1, 11))) == (0, 0, 0)


# --- each violation is found ------------------------------------------------------------------------------------------


def test_two_that_simulate_at_one_time() -> None:
    stints = clean()
    stints[1].started_ns = stints[0].ended_ns - 1
    custody = judged(stints)
    assert counts(custody) == (1, 0, 0)
    assert "alpha.s1 (1, 0) → alpha.s2 (2, 0): the first had not ended when the second began" in custody.findings[0]


def test_one_that_never_ended_although_the_next_began() -> None:
    stints = clean()
    stints[0].ended_ns = 0
    assert counts(judged(stints)) == (1, 0, 0)


def test_one_fence_under_which_two_simulated() -> None:
    stints = clean()
    stints[1].epoch, stints[2].epoch = 1, 2
    custody = judged(stints, FinalAuthority("alpha.s1", 2, 0))
    assert counts(custody) == (1, 0, 0)
    assert "the same fence twice" in custody.findings[0]


def test_an_overlap_of_stints_that_do_not_follow_each_other() -> None:
    stints = clean()
    stints[0].ended_ns = stints[2].started_ns + 1
    assert judged(stints).two_authorities == 1


def test_a_state_that_went_back() -> None:
    stints = clean()
    stints[1].started_tick, stints[1].started_hash = 2, "hash 2"
    custody = judged(stints)
    assert counts(custody) == (0, 0, 1)
    assert "ended at tick 4, went on at 2" in custody.findings[0]


def test_a_state_that_is_another_at_the_same_tick() -> None:
    stints = clean()
    stints[1].started_hash = "another"
    assert counts(judged(stints)) == (0, 0, 1)


def test_an_entity_that_nobody_simulates_at_the_end() -> None:
    stints = clean()
    stints[2] = stint("alpha.s1", 3, 8, 9, at_ns=stints[2].started_ns)
    custody = judged(stints)
    assert counts(custody) == (0, 1, 0)
    assert "alpha.s1 was the last" in custody.findings[0]


def test_an_entity_that_nobody_ever_simulated() -> None:
    custody = judge([], {BALL: FINAL}, PERIOD_NS)
    assert counts(custody) == (0, 1, 0)
    assert custody.findings == [f"no_authority: no server ever simulated {BALL}"]


@pytest.mark.parametrize(
    "final", [replace(FINAL, server="alpha.s2"), replace(FINAL, epoch=4), replace(FINAL, sub=1)], ids=str
)
def test_a_log_that_names_somebody_else(final: FinalAuthority) -> None:
    custody = judged(clean(), final)
    assert counts(custody) == (0, 1, 0)
    assert f"the log names {final.server} at ({final.epoch}, {final.sub}), but alpha.s1" in custody.findings[0]


def test_entities_that_the_run_is_not_about_are_not_judged() -> None:
    stints = [replace(one, entity="alpha.other", ended_ns=0) for one in clean()]
    custody = judged([*clean(), *stints])
    assert counts(custody) == (0, 0, 0)


def test_everything_is_counted_and_the_first_twenty_are_told() -> None:
    chain = [stint("alpha.s1", epoch, 0, 1, at_ns=epoch) for epoch in range(1, 31)]
    custody = judged(chain, FinalAuthority("alpha.s1", 30, 0))
    assert custody.state_regressions == 29
    assert len(custody.findings) == 20


def test_who_ticks_on_after_its_end_is_a_second_authority_whatever_it_says_of_itself() -> None:
    stints = clean()
    stints[0].last_tick_ns = stints[0].ended_ns + 1
    custody = judged(stints)
    assert counts(custody) == (1, 0, 0)
    assert "still ticked" in custody.findings[0]


def test_a_fence_that_nobody_held_is_a_hole_and_says_nothing_of_the_state() -> None:
    first, _, third = clean()
    custody = judged([first, third])
    assert counts(custody) == (0, 1, 0)
    assert "in between" in custody.findings[0]
    assert custody.gaps_ticks == {}


# --- gaps -------------------------------------------------------------------------------------------------------------


def test_a_hole_that_a_lost_lease_explains_says_so() -> None:
    first = stint("alpha.s1", 1, 0, 4, at_ns=0)
    # The log raised the fence to 2, asked for copies, and gave the entity away under 3.
    second = stint("alpha.s1", 3, 3, None, at_ns=first.ended_ns + 50 * PERIOD_NS)
    for lost, told in (({"alpha.s1": 2}, "is over of alpha.s1 (2 times)"), ({"alpha.s9": 1}, "in between")):
        custody = judge([one.row() for one in (first, second)], {BALL: FINAL}, PERIOD_NS, lost)
        assert custody.no_authority == 1
        assert custody.findings[0].endswith(told)


def test_a_hand_over_between_two_ticks_costs_none() -> None:
    assert judged(clean()).gaps_ticks == {(BALL, 2, 0): 0, (BALL, 3, 0): 0}


@pytest.mark.parametrize("missed", [1, 2, 7])
def test_ticks_that_nobody_simulated_are_counted(missed: int) -> None:
    stints = clean()
    for one in stints[1:]:
        for name in ("started_ns", "first_tick_ns", "last_tick_ns"):
            setattr(one, name, getattr(one, name) + missed * PERIOD_NS)
        one.ended_ns += missed * PERIOD_NS if one.ended_ns else 0
    assert judged(stints).gaps_ticks[(BALL, 2, 0)] == missed


def test_a_freeze_that_spans_one_tick_misses_one_however_short_it_is() -> None:
    stints = clean()
    stints[0].ended_ns, stints[1].started_ns = 4 * PERIOD_NS - 1, 4 * PERIOD_NS + 1
    assert judged(stints).gaps_ticks[(BALL, 2, 0)] == 1


def test_a_stint_shorter_than_a_tick_has_a_gap_of_its_own() -> None:
    first, last = clean()[0], clean()[2]
    between = stint("alpha.s2", 2, 4, 4, at_ns=first.ended_ns + HANDOVER_NS)
    last = stint("alpha.s1", 3, 4, None, at_ns=between.ended_ns + 2 * PERIOD_NS)
    custody = judged([first, between, last])
    assert counts(custody) == (0, 0, 0)
    assert custody.gaps_ticks == {(BALL, 2, 0): 0, (BALL, 3, 0): 2}


def test_an_end_that_never_came_is_two_authorities_and_no_gap() -> None:
    first, second, _ = clean()
    first.ended_ns = 0
    custody = judged([first, second], FinalAuthority("alpha.s2", 2, 0))
    assert custody.two_authorities == 1
    assert custody.gaps_ticks == {}


# --- any chain --------------------------------------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> list[Stint]:
    """Clean chains: any servers, any lengths, any pauses."""
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    chain: list[Stint] = []
    for number, length in enumerate(lengths, start=1):
        begin = chain[-1].ended_tick if chain else 0
        at_ns = chain[-1].ended_ns + draw(st.integers(0, 5 * PERIOD_NS)) if chain else 0
        server = draw(st.sampled_from(["alpha.s1", "alpha.s2", "alpha.s3"]))
        end = None if number == len(lengths) else begin + length
        chain.append(stint(server, number, begin, end, at_ns=at_ns))
    return chain


def final_of(chain: list[Stint]) -> FinalAuthority:
    return FinalAuthority(chain[-1].server, chain[-1].epoch, chain[-1].sub)


@given(chains())
def test_every_clean_chain_is_clean_and_its_gaps_are_the_ticks_between(chain: list[Stint]) -> None:
    custody = judged(chain, final_of(chain))
    assert counts(custody) == (0, 0, 0)
    expected = {
        (BALL, after.epoch, 0): sum(
            1
            for tick in range(after.started_ns // PERIOD_NS + 1)
            if before.ended_ns < tick * PERIOD_NS <= after.started_ns
        )
        for before, after in pairwise(chain)
    }
    assert custody.gaps_ticks == expected


@given(chains(), st.data())
def test_one_broken_link_anywhere_is_found(chain: list[Stint], data: st.DataObject) -> None:
    if len(chain) == 1:
        return
    broken: Any = data.draw(st.sampled_from(chain[1:]))
    what = data.draw(st.sampled_from(["started_tick", "started_hash", "started_ns", "epoch"]))
    before = chain[chain.index(broken) - 1]
    changed = {
        "started_tick": broken.started_tick + 1,
        "started_hash": "another",
        "started_ns": before.ended_ns - 1,
        "epoch": before.epoch,
    }
    setattr(broken, what, changed[what])
    assert sum(counts(judged(chain, final_of(chain)))) > 0


def test_gaps_lie_between_the_stints_of_one_entity() -> None:
    def stint(entity: str, epoch: int, started_ns: int, ended_ns: int) -> dict[str, Any]:
        return {"entity": entity, "epoch": epoch, "sub": 0, "started_ns": started_ns, "ended_ns": ended_ns}

    stints = [stint("b", 1, 0, 0), stint("a", 2, 7_000_000, 9_000_000), stint("a", 1, 0, 5_000_000)]
    assert gaps_ms(stints) == [2.0]
