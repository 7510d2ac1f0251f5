"""The judge of histories: known-good and known-bad ones, and agreement with an obviously correct twin."""

from collections.abc import Iterable
from itertools import permutations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from batonpass.scenarios.simulation.tree.linearizability import (
    NotLinearizable,
    Operation,
    Undecided,
    check_linearizable,
)
from batonpass.scenarios.simulation.tree.registers import (
    Action,
    Append,
    CompareAndSwap,
    Get,
    RegisterPut,
    Value,
    apply_action,
)
from tests.budget import examples


def operation(
    client: str, called_at: float, returned_at: float | None, action: Action, answer: Value | bool = None
) -> Operation:
    return Operation(client, "k", action, answer, called_at, returned_at)


def is_linearizable(history: Iterable[Operation]) -> bool:
    try:
        check_linearizable(history, apply_action, None)
    except NotLinearizable:
        return False
    return True


GOOD = {
    "nothing happened": [],
    "one after the other": [operation("a", 0, 1, RegisterPut("1")), operation("b", 2, 3, Get(), "1")],
    "a read beside a write may see the old value": [
        operation("a", 0, 5, RegisterPut("1")),
        operation("b", 1, 2, Get(), None),
    ],
    "a read beside a write may see the new value": [
        operation("a", 0, 5, RegisterPut("1")),
        operation("b", 1, 2, Get(), "1"),
    ],
    "two reads beside a write, old then new": [
        operation("a", 0, 9, RegisterPut("1")),
        operation("b", 1, 2, Get(), None),
        operation("b", 3, 4, Get(), "1"),
    ],
    "a write of unknown outcome that never happened": [
        operation("a", 0, None, RegisterPut("1")),
        operation("b", 1, 2, Get(), None),
        operation("b", 3, 4, Get(), None),
    ],
    "a write of unknown outcome that happened much later": [
        operation("a", 0, None, RegisterPut("1")),
        operation("b", 1, 2, RegisterPut("2")),
        operation("b", 3, 4, Get(), "2"),
        operation("b", 5, 6, Get(), "1"),
    ],
    "a write of unknown outcome explains why a swap failed": [
        operation("a", 0, None, RegisterPut("1")),
        operation("b", 1, 2, CompareAndSwap(None, "2"), False),
        operation("b", 3, 4, RegisterPut("3")),
        operation("b", 5, 6, Get(), "3"),
    ],
    "of two swaps at a time one wins": [
        operation("a", 0, 5, CompareAndSwap(None, "1"), True),
        operation("b", 0, 5, CompareAndSwap(None, "2"), False),
        operation("c", 6, 7, Get(), "1"),
    ],
    "what touches in time is simultaneous": [operation("a", 0, 1, RegisterPut("1")), operation("b", 1, 2, Get(), None)],
    "appends in an order that real time allows": [
        operation("a", 0, 5, Append("x"), "yx"),
        operation("b", 1, 4, Append("y"), "y"),
    ],
}

BAD = {
    "stale read": [operation("a", 0, 1, RegisterPut("1")), operation("b", 2, 3, Get(), None)],
    "stale read of an earlier value": [
        operation("a", 0, 1, RegisterPut("1")),
        operation("a", 2, 3, RegisterPut("2")),
        operation("b", 4, 5, Get(), "1"),
    ],
    "a read of what nobody wrote": [operation("b", 4, 5, Get(), "1")],
    "a read from the future": [operation("b", 0, 1, Get(), "1"), operation("a", 2, 3, RegisterPut("1"))],
    "a read that goes back": [
        operation("a", 0, 9, RegisterPut("1")),
        operation("b", 1, 2, Get(), "1"),
        operation("c", 3, 4, Get(), None),
    ],
    "a read that goes back over an unknown write": [
        operation("a", 0, None, RegisterPut("1")),
        operation("b", 1, 2, Get(), "1"),
        operation("c", 3, 4, Get(), None),
    ],
    "lost update": [
        operation("a", 0, 5, CompareAndSwap(None, "1"), True),
        operation("b", 0, 5, CompareAndSwap(None, "2"), True),
    ],
    "lost append": [
        operation("a", 0, 1, Append("x"), "x"),
        operation("b", 2, 3, Append("y"), "y"),
    ],
    "an acknowledged write is lost": [
        operation("a", 0, 1, RegisterPut("1")),
        operation("a", 2, 3, RegisterPut("2")),
        operation("b", 4, 5, RegisterPut("3")),
        operation("c", 6, 7, Get(), "2"),
    ],
    "applied twice": [
        operation("a", 0, 1, Append("x"), "x"),
        operation("b", 2, 3, Get(), "xx"),
    ],
    "an unknown append applied twice": [
        operation("a", 0, None, Append("x")),
        operation("b", 2, 3, Get(), "x"),
        operation("b", 4, 5, Append("y"), "xy"),
        operation("b", 6, 7, Get(), "xyx"),
    ],
    "a swap that failed for no reason": [
        operation("a", 0, 1, RegisterPut("1")),
        operation("a", 2, 3, CompareAndSwap("1", "2"), False),
    ],
    "two observers disagree about the order": [
        operation("a", 0, 9, RegisterPut("1")),
        operation("b", 0, 9, RegisterPut("2")),
        operation("c", 1, 2, Get(), "1"),
        operation("c", 3, 4, Get(), "2"),
        operation("d", 1, 2, Get(), "2"),
        operation("d", 3, 4, Get(), "1"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_an_order_explains_is_accepted(name: str) -> None:
    assert is_linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_order_explains_is_refused(name: str) -> None:
    assert not is_linearizable(BAD[name])


def test_the_refusal_names_the_answer_that_does_not_fit() -> None:
    with pytest.raises(NotLinearizable, match="b: Get") as refusal:
        check_linearizable(BAD["stale read of an earlier value"], apply_action, None)
    assert refusal.value.key == "k"
    assert len(refusal.value.operations) == 3
    assert refusal.value.state == "2"


def test_keys_are_judged_apart() -> None:
    history = [
        Operation("a", "one", RegisterPut("1"), None, 0, 1),
        Operation("b", "two", Get(), None, 2, 3),
        Operation("b", "one", Get(), "1", 4, 5),
    ]
    assert is_linearizable(history)
    with pytest.raises(NotLinearizable, match="'two'"):
        check_linearizable([*history, Operation("b", "two", Get(), "1", 6, 7)], apply_action, None)


def test_a_search_that_leads_nowhere_is_given_up() -> None:
    history = [operation(f"c{number}", 0, None, Append(chr(97 + number))) for number in range(9)]
    history.append(operation("r", 1, 2, Get(), "never"))
    with pytest.raises(Undecided, match="9 of them of unknown outcome"):
        check_linearizable(history, apply_action, None, max_configurations=1000)


def test_hundreds_of_operations_by_a_dozen_clients_are_judged_at_once() -> None:
    history = []
    value = ""
    for number in range(600):
        value += f"{number},"
        # Each spans the dozen before it, and takes effect at its end.
        history.append(operation(f"c{number % 12}", number - 11.5, number, Append(f"{number},"), value))
    check_linearizable(history, apply_action, None, max_configurations=20_000)


actions = st.one_of(
    st.sampled_from("123").map(RegisterPut),
    st.just(Get()),
    st.builds(CompareAndSwap, st.sampled_from([None, "1", "2"]), st.sampled_from("123")),
    st.sampled_from("xy").map(Append),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Short ones in which operations overlap, and answers that are right at some instant more often than not."""
    count = draw(st.integers(1, 6))
    instants = draw(st.permutations(range(count)))
    value: Value = None
    history = []
    for instant in sorted(instants):
        action = draw(actions)
        value, answer = apply_action(value, action)
        if draw(st.integers(0, 5)) == 0:
            answer = draw(st.sampled_from([None, "1", "2", "x", True, False]))
        returned = draw(st.one_of(st.integers(instant, instant + 3), st.just(None)))
        called = draw(st.integers(instant - 3, instant))
        history.append(operation(f"c{instant}", called, returned, action, answer))
    return draw(st.permutations(history))


def twin(history: list[Operation]) -> bool:
    """Try every order of every subset that has all operations that returned."""
    known = [op for op in history if op.returned_at is not None]
    unknown = [op for op in history if op.returned_at is None]
    for chosen in range(1 << len(unknown)):
        some = known + [op for place, op in enumerate(unknown) if chosen >> place & 1]
        if any(explains(order) for order in permutations(some)):
            return True
    return False


def explains(order: tuple[Operation, ...]) -> bool:
    value: Value = None
    for place, op in enumerate(order):
        if any(later.returned_at is not None and later.returned_at < op.called_at for later in order[place + 1 :]):
            return False
        value, answer = apply_action(value, op.action)
        if op.returned_at is not None and answer != op.answer:
            return False
    return True


@given(histories())
@settings(max_examples=examples(300))
def test_it_agrees_with_trying_every_order(history: list[Operation]) -> None:
    expected = twin(history)
    event(f"linearizable: {expected}")
    assert is_linearizable(history) == expected
