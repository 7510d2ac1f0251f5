"""The old authority's machine: silence is never a refusal, and only the log and the target end the wait."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, Fence
from batonpass.authority.machines.source import (
    FIRST_RETRY_NS,
    MAX_ASK_NS,
    MAX_RETRY_NS,
    STAGE_PATIENCE_NS,
    TABLE,
    AskAbort,
    AskHome,
    Case,
    Effect,
    Event,
    ForwardJournal,
    Lost,
    Mode,
    Outgoing,
    OutgoingPhase,
    OverBudget,
    PeerActive,
    ReportTransfer,
    Resume,
    Retire,
    SendActivate,
    SendDirect,
    SendDiscard,
    SendStage,
    SendState,
    StageRefused,
    StateStaged,
    StepDown,
    Superseded,
    TimePassed,
    TransferCommitted,
    TransferRefused,
)

FROZEN = Fence(4, 2)
NEXT = {Case.DIFFERENT_HOMES: Fence(5), Case.SAME_HOME: Fence(5), Case.DIRECT: Fence(4, 3)}
HOME_CASES = (Case.DIFFERENT_HOMES, Case.SAME_HOME)
HOUR_NS = 3600 * 10**9


def started(case: Case, seed: str = "") -> Outgoing:
    machine = Outgoing(case, FROZEN, 0, seed=seed)
    machine.start(0)
    return machine


def ticks(machine: Outgoing, count: int) -> list[list[Effect]]:
    """The effects of the next `count` timers, each fired when it is due."""
    effects = []
    for _ in range(count):
        due_ns = machine.next_timer_ns
        assert due_ns is not None
        effects.append(machine.handle(TimePassed(), due_ns))
    return effects


# --- beginning, and repeating -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", HOME_CASES)
def test_through_the_home_the_request_leaves_first_and_the_state_beside_it(case: Case) -> None:
    assert Outgoing(case, FROZEN, 0).start(0) == [AskHome(1), SendState()]


def test_directly_state_and_certificate_go_in_one_message() -> None:
    assert Outgoing(Case.DIRECT, FROZEN, 0).start(0) == [SendDirect(1)]


@pytest.mark.parametrize("case", HOME_CASES)
def test_a_home_that_says_nothing_is_asked_again_for_ever(case: Case) -> None:
    assert ticks(started(case), 50) == [[AskHome(n), SendState()] for n in range(2, 52)]


def test_a_target_that_says_nothing_is_told_again_for_ever_and_the_log_is_told_of_the_pass() -> None:
    repeated = ticks(started(Case.DIRECT), 50)
    assert [effects[0] for effects in repeated] == [SendDirect(n) for n in range(2, 52)]
    asked = [effects[1:] for effects in repeated]
    assert asked == [[AskHome(n)] if n in (4, 8, 16, 32, 48) else [] for n in range(2, 52)]


def waits_ns(machine: Outgoing, count: int) -> list[int]:
    """How long it waits between the next attempts."""
    times = [0]
    for _ in range(count):
        due_ns = machine.next_timer_ns
        assert due_ns is not None
        times.append(due_ns)
        machine.handle(TimePassed(), due_ns)
    return [b - a for a, b in pairwise(times)]


def test_repetitions_to_the_target_back_off_to_a_second() -> None:
    doubled = [FIRST_RETRY_NS, 2 * FIRST_RETRY_NS, MAX_RETRY_NS]
    assert waits_ns(started(Case.DIRECT), 6) == [*doubled, MAX_RETRY_NS, MAX_RETRY_NS, MAX_RETRY_NS]


@pytest.mark.parametrize("case", HOME_CASES)
def test_the_less_home_answers_the_less_it_is_asked(case: Case) -> None:
    doubled = [FIRST_RETRY_NS << n for n in range(6)]
    assert doubled[-1] == MAX_ASK_NS
    assert waits_ns(started(case), 8) == [*doubled, MAX_ASK_NS, MAX_ASK_NS]


@given(st.sampled_from(HOME_CASES), st.text(min_size=1), st.integers(1, 40))
def test_servers_ask_at_different_times_and_each_together_for_all_that_it_hands_over(
    case: Case, seed: str, attempts: int
) -> None:
    waits, others, even = (waits_ns(started(case, seed), attempts) for seed in (seed, seed, ""))
    assert waits == others
    assert all(3 * even_ns <= 4 * ns <= 4 * even_ns for ns, even_ns in zip(waits, even, strict=True))


def test_the_first_repetition_is_not_moved_and_later_ones_are() -> None:
    waits = {seed: waits_ns(started(Case.SAME_HOME, seed), 4) for seed in ("alpha.s1", "alpha.s2")}
    assert {ns[0] for ns in waits.values()} == {FIRST_RETRY_NS}
    assert all(len({ns[n] for ns in waits.values()}) == 2 for n in range(1, 4))


@pytest.mark.parametrize("case", Case)
def test_what_home_is_being_asked_can_be_asked_at_once_when_it_is_back(case: Case) -> None:
    machine = started(case)
    ticks(machine, 5)
    due_ns = machine.next_timer_ns
    assert machine.asks() == ([] if case is Case.DIRECT else [AskHome(6)])
    assert machine.next_timer_ns == due_ns, "nothing is put off by that"
    machine.handle(TransferCommitted(NEXT[case], "token"), 1)
    assert machine.asks() == []


def test_who_gives_up_asks_home_for_that_when_it_is_back() -> None:
    machine = Outgoing(Case.SAME_HOME, FROZEN, 0, mode=Mode.STAGED)
    machine.start(0)
    assert machine.asks() == []
    machine.handle(StageRefused("capacity"), 1)
    assert machine.asks() == [AskAbort("capacity", 1)]


def test_a_home_that_is_gone_for_months_costs_no_more_than_one_that_is_gone_for_seconds() -> None:
    machine = started(Case.SAME_HOME)
    machine.attempt = 10**9
    assert machine.handle(TimePassed(), HOUR_NS) == [AskHome(10**9 + 1), SendState()]
    assert machine.next_timer_ns == HOUR_NS + MAX_ASK_NS


@pytest.mark.parametrize("case", Case)
def test_a_tick_before_its_time_does_nothing(case: Case) -> None:
    assert started(case).handle(TimePassed(), FIRST_RETRY_NS - 1) == []


# --- committed --------------------------------------------------------------------------------------------------------


def test_in_case_1_the_old_authority_takes_the_certificate_to_the_target() -> None:
    assert started(Case.DIFFERENT_HOMES).handle(TransferCommitted(Fence(5), "token"), 1) == [SendActivate("token", 1)]


def test_in_case_2_the_home_does_that_and_the_old_authority_steps_in_when_it_takes_long() -> None:
    machine = started(Case.SAME_HOME)
    assert machine.handle(TransferCommitted(Fence(5), "token"), 1) == []
    assert machine.next_timer_ns == 1 + FIRST_RETRY_NS
    assert ticks(machine, 1) == [[SendActivate("token", 1)]]


@pytest.mark.parametrize("case", HOME_CASES)
def test_a_repetition_brings_the_state_again_for_the_target_may_have_lost_it(case: Case) -> None:
    machine = started(case)
    first = 2 if machine.handle(TransferCommitted(Fence(5), "token"), 1) else 1
    repeated = ticks(machine, 4)[2 - first :]
    assert all(effects[0] == SendState() for effects in repeated[1:])
    assert all(any(isinstance(effect, SendActivate) for effect in effects) for effects in repeated)


@pytest.mark.parametrize("case", HOME_CASES)
def test_when_the_target_stays_silent_the_log_is_asked_whether_it_handed_the_entity_on(case: Case) -> None:
    machine = started(case)
    first = 2 if machine.handle(TransferCommitted(Fence(5), "token"), 1) else 1
    repeated = ticks(machine, 6)
    for attempt, effects in enumerate(repeated, first):
        # Seldom: of a target that is dead hundreds may wait.
        assert (AskHome(attempt) in effects) == (attempt in (4, 8))
    # The log is two fences on: the target was active, and needs this copy no more.
    assert Retire(Fence(5)) in machine.handle(PeerActive(Fence(6)), 1)


@pytest.mark.parametrize("case", HOME_CASES)
def test_the_frozen_copy_is_kept_until_the_target_is_active(case: Case) -> None:
    machine = started(case)
    for effects in (machine.handle(TransferCommitted(Fence(5), "token"), 1), *ticks(machine, 100)):
        assert not any(isinstance(effect, Retire | StepDown | Resume) for effect in effects)
    assert machine.phase is OutgoingPhase.COMMITTED


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", Case)
@pytest.mark.parametrize("heard", [0, 1, 7], ids=lambda n: f"{n} fences later")
def test_an_active_target_lets_the_old_authority_retire_under_this_transfers_fence(case: Case, heard: int) -> None:
    machine = started(case)
    reached = NEXT[case] if heard == 0 else Fence(NEXT[case].epoch + heard)
    assert machine.handle(PeerActive(reached), 1) == [ForwardJournal(), Retire(NEXT[case]), ReportTransfer()]
    assert machine.over


@pytest.mark.parametrize("case", HOME_CASES)
def test_failures_row_42_what_the_log_gives_after_another_history_leads_to_a_block_of_epochs_of_its_own(
    case: Case,
) -> None:
    machine, given = started(case), Fence(3 * EPOCHS_OF_A_HISTORY)
    assert not any(isinstance(one, Retire) for one in machine.handle(TransferCommitted(given, "token"), 1)), (
        "given, not begun"
    )
    assert machine.handle(PeerActive(Fence(5)), 2) == []
    assert machine.handle(Lost("alpha.s2", given), 3) == []
    assert machine.handle(PeerActive(given), 4) == [ForwardJournal(), Retire(given), ReportTransfer()]


@pytest.mark.parametrize("case", HOME_CASES)
def test_who_hears_from_the_target_first_retires_under_the_fence_that_this_has(case: Case) -> None:
    machine, given = started(case), Fence(3 * EPOCHS_OF_A_HISTORY)
    assert machine.handle(PeerActive(given), 1) == [ForwardJournal(), Retire(given), ReportTransfer()]


def test_a_pass_leads_to_no_other_block() -> None:
    machine = started(Case.DIRECT)
    assert Retire(NEXT[Case.DIRECT]) in machine.handle(PeerActive(Fence(3 * EPOCHS_OF_A_HISTORY)), 1)


def test_after_the_commit_too() -> None:
    machine = started(Case.DIFFERENT_HOMES)
    machine.handle(TransferCommitted(Fence(5), "token"), 1)
    assert machine.handle(PeerActive(Fence(5)), 2) == [ForwardJournal(), Retire(Fence(5)), ReportTransfer()]


@pytest.mark.parametrize("case", HOME_CASES)
def test_a_refusal_resumes_under_the_next_fence(case: Case) -> None:
    machine = started(case)
    assert machine.handle(TransferRefused("unknown_target", Fence(5)), 1) == [Resume(Fence(5), "unknown_target")]
    assert machine.over


@pytest.mark.parametrize("case", HOME_CASES)
def test_who_lost_authority_steps_down(case: Case) -> None:
    machine = started(case)
    assert machine.handle(Lost("alpha.s9", Fence(9)), 1) == [StepDown("alpha.s9", Fence(9))]
    assert machine.over


@pytest.mark.parametrize("case", HOME_CASES)
def test_what_was_committed_and_has_ended_since_is_not_asked_about_for_ever(case: Case) -> None:
    machine = started(case)
    machine.handle(TransferCommitted(NEXT[case], "token"), 1)
    assert machine.handle(Lost("alpha.s9", NEXT[case]), 1) == [], "the target, of which nothing has been heard yet"
    assert machine.handle(Lost("", Fence(6)), 1) == [StepDown("", Fence(6))]
    assert machine.over


@pytest.mark.parametrize("case", Case)
def test_what_is_over_stays_over_and_needs_no_timer(case: Case) -> None:
    machine = started(case)
    machine.handle(PeerActive(NEXT[case]), 1)
    events: list[Event] = [
        TimePassed(),
        PeerActive(Fence(9)),
        TransferRefused("", Fence(5)),
        Lost("alpha.s9", Fence(9)),
        TransferCommitted(Fence(5), ""),
    ]
    assert [machine.handle(event, HOUR_NS) for event in events] == [[]] * 5
    assert machine.next_timer_ns is None
    assert machine.phase is OutgoingPhase.RETIRED


# --- what is not believed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", Case)
@pytest.mark.parametrize("fence", [Fence(3), Fence(4), Fence(4, 2)])
def test_an_answer_under_a_fence_of_the_past_is_not_believed(case: Case, fence: Fence) -> None:
    machine = started(case)
    for event in (TransferCommitted(fence, ""), PeerActive(fence), TransferRefused("", fence)):
        assert machine.handle(event, 1) == []
    assert machine.phase is OutgoingPhase.REQUESTED


def test_a_refusal_under_a_fence_further_on_is_not_believed() -> None:
    """The entity has been elsewhere since and is on its way back: this copy must not go on."""
    machine = started(Case.SAME_HOME)
    assert machine.handle(TransferRefused("not_holder", Fence(6)), 1) == []
    assert not machine.over


def test_a_pass_that_was_signed_is_not_taken_back_and_the_state_is_kept_until_somebody_goes_on_with_it() -> None:
    machine = started(Case.DIRECT)
    assert machine.handle(TransferRefused("not_holder", Fence(5)), 1) == []
    assert machine.handle(Lost("alpha.s9", Fence(4, 3)), 1) == [], "the log has heard of the pass, not of a state"
    assert machine.handle(TransferCommitted(Fence(4, 3), "token"), 1) == []
    assert ticks(machine, 1) == [[SendDirect(1)]]
    assert machine.handle(TransferRefused("not_holder", Fence(5)), HOUR_NS) == []
    assert machine.handle(PeerActive(Fence(5)), HOUR_NS) == [ForwardJournal(), Retire(Fence(4, 3)), ReportTransfer()]


def test_a_pass_by_a_chain_by_which_nobody_can_have_begun_is_taken_back() -> None:
    """Under the very fence that its refusal raised: further on, the entity has been elsewhere."""
    machine = started(Case.DIRECT)
    for fence in (FROZEN, Fence(4, 3), Fence(6)):
        assert machine.handle(TransferRefused("no_delegation", fence), 1) == []
    assert machine.handle(TransferRefused("no_delegation", Fence(5)), 1) == [Resume(Fence(5), "no_delegation")]
    assert machine.over


def test_losing_authority_to_somebody_earlier_is_not_believed() -> None:
    assert started(Case.SAME_HOME).handle(Lost("alpha.s9", Fence(4, 1)), 1) == []


# --- the table --------------------------------------------------------------------------------------------------------

FENCES = st.builds(Fence, st.integers(3, 7), st.integers(0, 4))
EVENTS = st.one_of(
    st.builds(TransferCommitted, FENCES, st.just("token")),
    st.builds(TransferRefused, st.sampled_from(["denied", "no_delegation"]), FENCES),
    st.builds(Lost, st.just("alpha.s9"), FENCES),
    st.builds(PeerActive, FENCES),
    st.just(TimePassed()),
)
ENDS = (Retire, Resume, StepDown)


@given(
    st.sampled_from(Case), st.sampled_from([0, 10**8]), st.lists(st.tuples(EVENTS, st.integers(0, 10**9)), max_size=30)
)
def test_whatever_comes_the_machine_keeps_to_its_table_and_ends_once(
    case: Case, budget_ns: int, events: list[tuple[Event, int]]
) -> None:
    machine, now_ns, ends = Outgoing(case, FROZEN, 0, budget_ns=budget_ns), 0, 0
    machine.start(0)
    for event, waited_ns in events:
        now_ns += waited_ns
        before = machine.phase
        effects = machine.handle(event, now_ns)
        over = TABLE.get((before, OverBudget)) if isinstance(event, TimePassed) and budget_ns else None
        assert machine.phase in (before, TABLE.get((before, type(event))), over)
        ends += sum(isinstance(effect, ENDS) for effect in effects)
        assert machine.over is (ends > 0)
        assert all(effect.fence > FROZEN for effect in effects if isinstance(effect, Retire | Resume))
        assert (machine.next_timer_ns is None) is machine.over
    assert ends <= 1


def test_no_end_has_a_way_out() -> None:
    ends = {OutgoingPhase.RETIRED, OutgoingPhase.RESUMED, OutgoingPhase.LOST}
    assert not ends & {phase for phase, _ in TABLE}


def test_time_alone_ends_nothing() -> None:
    assert all(to is phase for (phase, event), to in TABLE.items() if event is TimePassed)
    assert {to for (_, event), to in TABLE.items() if event is OverBudget} == {OutgoingPhase.ABORTING}


def test_every_event_and_phase_occurs_in_the_table() -> None:
    assert {event for _, event in TABLE} == set(get_args(Event))
    assert {phase for phase, _ in TABLE} | set(TABLE.values()) == set(OutgoingPhase)


# --- staged mode ------------------------------------------------------------------------------------------------------


def staging(case: Case) -> Outgoing:
    machine = Outgoing(case, FROZEN, 0, mode=Mode.STAGED)
    assert machine.start(0) == [SendStage(1)]
    return machine


@pytest.mark.parametrize("case", Case)
def test_nobody_is_asked_before_the_state_is_on_the_targets_disk(case: Case) -> None:
    machine = staging(case)
    assert ticks(machine, 2) == [[SendStage(2)], [SendStage(3)]]
    asked = [SendDirect(1)] if case is Case.DIRECT else [AskHome(1)]
    assert machine.handle(StateStaged(), 10**9) == asked, "and the state does not travel again"
    again = [SendDirect(2)] if case is Case.DIRECT else [AskHome(2), SendState()]
    assert ticks(machine, 1) == [again]
    assert machine.handle(StateStaged(), 2 * 10**9) == []
    assert machine.handle(PeerActive(NEXT[case]), 2 * 10**9)[1] == Retire(NEXT[case])


@pytest.mark.parametrize("case", Case)
@pytest.mark.parametrize("reason", ["capacity", "incompatible"])
def test_failures_row_11_a_target_that_will_not_take_it_is_given_up_through_the_log(case: Case, reason: str) -> None:
    machine = staging(case)
    assert machine.handle(StageRefused(reason), 1) == [AskAbort(reason, 1)]
    assert ticks(machine, 2) == [[AskAbort(reason, 2)], [AskAbort(reason, 3)]]
    for too_late in (StateStaged(), PeerActive(NEXT[case]), TransferCommitted(NEXT[case], "token"), StageRefused("x")):
        assert machine.handle(too_late, 2) == []
    assert machine.handle(TransferRefused(reason, Fence(9)), 3) == []
    assert machine.handle(TransferRefused(reason, Fence(5)), 3) == [Resume(Fence(5), reason), SendDiscard()]
    assert machine.over


def test_failures_row_11_a_target_that_does_not_answer_in_time_is_given_up_through_the_log() -> None:
    machine = staging(Case.SAME_HOME)
    while (due_ns := machine.next_timer_ns) is not None and due_ns < STAGE_PATIENCE_NS:
        assert isinstance(machine.handle(TimePassed(), due_ns)[0], SendStage)
    assert due_ns == STAGE_PATIENCE_NS
    assert machine.handle(TimePassed(), due_ns) == [AskAbort("target_failed", 1)]


def test_what_nobody_can_have_given_ends_no_staging() -> None:
    machine = staging(Case.DIRECT)
    assert machine.handle(PeerActive(Fence(4, 3)), 1) == []
    assert machine.handle(Superseded(Fence(4, 2)), 1) == []
    assert machine.handle(Superseded(Fence(6)), 1) == [ForwardJournal(), Retire(Fence(4, 3)), ReportTransfer()]


def test_a_server_that_lost_the_entity_while_it_gave_up_steps_down() -> None:
    machine = staging(Case.SAME_HOME)
    machine.handle(StageRefused("capacity"), 1)
    assert machine.handle(Lost("alpha.s3", Fence(6)), 2) == [StepDown("alpha.s3", Fence(6))]


def test_failures_row_26_what_takes_longer_than_the_freeze_budget_is_given_up() -> None:
    budget_ns = 50_000_000
    machine = Outgoing(Case.SAME_HOME, FROZEN, 0, mode=Mode.STAGED, budget_ns=budget_ns)
    assert machine.start(0) == [SendStage(1)]
    assert machine.next_timer_ns == budget_ns
    assert machine.handle(TimePassed(), budget_ns - 1) == []
    assert machine.handle(TimePassed(), budget_ns) == [AskAbort("freeze_budget", 1)]
    assert machine.handle(TransferRefused("freeze_budget", Fence(5)), budget_ns + 1)[0] == Resume(
        Fence(5), "freeze_budget"
    )


BUDGET_NS = 50_000_000


@pytest.mark.parametrize("case", HOME_CASES)
@pytest.mark.parametrize("mode", Mode)
def test_failures_row_26_the_log_decides_whether_commit_or_budget_came_first(case: Case, mode: Mode) -> None:
    def over_budget() -> Outgoing:
        machine = Outgoing(case, FROZEN, 0, mode=mode, budget_ns=BUDGET_NS)
        machine.start(0)
        machine.handle(StateStaged(), 1)
        assert machine.next_timer_ns == BUDGET_NS
        assert machine.handle(TimePassed(), BUDGET_NS) == [AskAbort("freeze_budget", 1)]
        return machine

    machine = over_budget()
    assert machine.handle(TransferRefused("freeze_budget", Fence(5)), BUDGET_NS + 1)[0] == Resume(
        Fence(5), "freeze_budget"
    )
    machine = over_budget()
    machine.handle(TransferCommitted(Fence(5), "token"), BUDGET_NS + 1)
    assert machine.phase is OutgoingPhase.COMMITTED
    assert machine.handle(PeerActive(Fence(5)), BUDGET_NS + 2)[1] == Retire(Fence(5))
    machine = over_budget()
    assert machine.handle(PeerActive(Fence(5)), BUDGET_NS + 2)[1] == Retire(Fence(5))


def test_a_direct_pass_that_was_sent_cannot_be_taken_back_for_a_budget() -> None:
    machine = Outgoing(Case.DIRECT, FROZEN, 0, budget_ns=BUDGET_NS)
    machine.start(0)
    assert {type(effect) for effects in ticks(machine, 20) for effect in effects} == {SendDirect, AskHome}
    assert machine.handle(OverBudget(), HOUR_NS) == []
    staged = Outgoing(Case.DIRECT, FROZEN, 0, mode=Mode.STAGED, budget_ns=BUDGET_NS)
    staged.start(0)
    assert staged.handle(TimePassed(), BUDGET_NS) == [AskAbort("freeze_budget", 1)], "nothing was signed yet"


@pytest.mark.parametrize("case", Case)
@pytest.mark.parametrize("mode", Mode)
def test_failures_row_26_nothing_is_asked_for_or_sent_for_the_first_time_after_the_freeze_budget(
    case: Case, mode: Mode
) -> None:
    """Encoding took so long, or the word that the state is staged came with the last moment, before any timer."""
    machine = Outgoing(case, FROZEN, 0, mode=mode, budget_ns=BUDGET_NS)
    if mode is Mode.STAGED:
        assert machine.start(BUDGET_NS - 1) == [SendStage(1)]
        assert machine.handle(StateStaged(), BUDGET_NS) == [AskAbort("freeze_budget", 1)]
    else:
        assert machine.start(BUDGET_NS) == [AskAbort("freeze_budget", 1)]
    for nobody_can_say_so in (StateStaged(), PeerActive(NEXT[case]), TransferCommitted(NEXT[case], "token")):
        assert machine.handle(nobody_can_say_so, BUDGET_NS + 1) == []
    assert machine.handle(TransferRefused("freeze_budget", Fence(5)), BUDGET_NS + 2)[0] == Resume(
        Fence(5), "freeze_budget"
    )


@pytest.mark.parametrize("case", Case)
def test_who_is_within_its_budget_is_asked_for(case: Case) -> None:
    asked = [SendDirect(1)] if case is Case.DIRECT else [AskHome(1), SendState()]
    assert Outgoing(case, FROZEN, 0, budget_ns=BUDGET_NS).start(BUDGET_NS - 1) == asked
    staged = Outgoing(case, FROZEN, 0, mode=Mode.STAGED, budget_ns=BUDGET_NS)
    staged.start(0)
    assert staged.handle(StateStaged(), BUDGET_NS - 1) == asked[:1]
