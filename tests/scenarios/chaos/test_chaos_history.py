"""The judgement on what clients were told: it accepts what may happen, and nothing else."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.chaos.history import Addition, CounterLedger, RegisterLedger, counter_problems
from batonpass.scenarios.simulation.tree.linearizability import Operation
from batonpass.scenarios.simulation.tree.registers import Action, Append, CompareAndSwap, Get, RegisterPut


@st.composite
def honest_additions(draw: st.DrawFn) -> list[Addition]:
    """Additions that really took effect one by one, each between its call and its answer."""
    additions = []
    for total in range(1, draw(st.integers(1, 20)) + 1):
        effect_at = float(total)
        called_at = effect_at - draw(st.floats(0, 5))
        additions.append(Addition(f"c{total}", called_at, effect_at + draw(st.floats(0, 5)), total))
    return draw(st.permutations(additions))


@given(honest_additions())
def test_additions_that_took_effect_one_by_one_are_in_order(additions: list[Addition]) -> None:
    assert counter_problems("c", additions) == []


@given(honest_additions(), st.data())
def test_a_lost_addition_is_found(additions: list[Addition], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(additions))
    told = [replace(a, total=a.total - (a.total > lost.total)) if a is not lost else a for a in additions]

    if lost.total < len(additions):
        (problem, *_) = counter_problems("c", told)
        assert "twice: one addition was lost" in problem


@given(honest_additions(), st.data())
def test_an_addition_applied_twice_is_found(additions: list[Addition], data: st.DataObject) -> None:
    doubled = data.draw(st.sampled_from(additions))
    told = [replace(a, total=a.total + (a.total >= doubled.total)) for a in additions]

    (problem, *_) = counter_problems("c", told)
    assert "without the one before it" in problem


def test_a_sum_that_goes_back_in_time_is_found() -> None:
    later, earlier = Addition("late", 3.0, 4.0, 1), Addition("early", 1.0, 2.0, 2)

    assert counter_problems("c", [later, earlier]) == [
        "c: late was told 1 although a higher sum was told before it asked"
    ]


def test_a_counter_must_hold_what_was_acknowledged_round_after_round() -> None:
    ledger = CounterLedger()
    ledger.add("c", Addition("a", 0.0, 1.0, 1))
    assert ledger.judge({"c": 1}) == []
    assert ledger.judge({"c": 1}) == []
    ledger.add("c", Addition("a", 2.0, 3.0, 2))
    assert ledger.judge({"c": 1}) == ["c holds 1 after 2 additions, all of them acknowledged"]


def test_a_counter_that_vanished_is_found() -> None:
    ledger = CounterLedger()
    ledger.add("c", Addition("a", 0.0, 1.0, 1))

    assert ledger.judge({}) == ["c holds 0 after 1 additions, all of them acknowledged"]


# ---- registers ----


def operation(action: Action, answer: object, called_at: float, returned_at: float | None) -> Operation:
    return Operation("client", "r", action, answer, called_at, returned_at)


def test_an_acknowledged_write_must_be_there_when_the_round_ends() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(RegisterPut("x"), None, 0.0, 1.0))

    assert ledger.judge({"r": "x"}, 2.0, "m1") == {}
    assert ledger.settled == {"r": "x"}


def test_an_acknowledged_write_that_is_not_there_is_found() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(RegisterPut("x"), None, 0.0, 1.0))

    problems = ledger.judge({}, 2.0, "m1")
    assert "not linearizable" in problems["r"]
    assert [str(known) for known in ledger.history_of("r")] == [
        "[0, 1] client: RegisterPut(value='x') on r -> None",
        "[2, 2] m1: Get() on r -> None",
    ]


def test_what_a_round_left_must_still_be_there_many_rounds_later() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(RegisterPut("x"), None, 0.0, 1.0))
    assert ledger.judge({"r": "x"}, 2.0, "m1") == {}
    assert ledger.judge({"r": "x"}, 3.0, "m2") == {}

    assert "not linearizable" in ledger.judge({"r": "y"}, 4.0, "m1")["r"]


def test_a_write_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(RegisterPut("x"), None, 0.0, 1.0))
    ledger.add(operation(RegisterPut("late"), None, 0.5, None))

    assert ledger.judge({"r": "x"}, 2.0, "m1") == {}
    assert ledger.judge({"r": "late"}, 3.0, "m1") == {}
    assert "not linearizable" in ledger.judge({"r": "x"}, 4.0, "m1")["r"], "it took effect once already"


def test_an_appended_token_that_is_there_twice_is_found() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(Append("+a"), "+a", 0.0, 1.0))

    assert "not linearizable" in ledger.judge({"r": "+a+a"}, 2.0, "m1")["r"]


def test_a_stale_read_is_found() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(RegisterPut("x"), None, 0.0, 1.0))
    ledger.add(operation(Get(), None, 2.0, 3.0))

    assert "not linearizable" in ledger.judge({"r": "x"}, 4.0, "m1")["r"]


def test_a_swap_that_succeeded_against_another_value_is_found() -> None:
    ledger = RegisterLedger()
    ledger.add(operation(RegisterPut("x"), None, 0.0, 1.0))
    ledger.add(operation(CompareAndSwap("y", "z"), True, 2.0, 3.0))

    assert "not linearizable" in ledger.judge({"r": "z"}, 4.0, "m1")["r"]
