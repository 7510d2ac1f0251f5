"""No command and no read does more than it is counted for, whatever it asks for: counted in calls, not in seconds."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import MalformedCommand, TooMuch
from batonpass.tree.data.work_budget import MAX_STEPS, STEPS_PER_COMMAND, STEPS_PER_ROW, steps_of_data, values_in
from batonpass.tree.machine.commands import MAX_COMMAND_VALUES, Command, CommandAnswer, Machine, encode_command
from batonpass.tree.member.replica import Replica
from batonpass.tree.store import store
from batonpass.tree.store.conditions import AllOf, AnyOf, IfDataLike, IfHasData, IfNameMatches, IfNodeExists
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, pattern_to_data
from batonpass.tree.store.procedures import ReadOnly
from batonpass.tree.store.transaction import Transaction
from batonpass.tree.store.watch import TOLD_STEPS, History, Watcher, WatcherState
from tests.tree.instances import configs

# How many calls of Python and C a step may stand for, and a byte of the command, which is read before that is counted.
CALLS_PER_STEP: Final = 12
CALLS_PER_BYTE: Final = 6

EVERYTHING: Final = pattern_to_data((ANY_DEPTH,))
CHILDREN: Final = pattern_to_data(("g", ANY_NAME))
LEAVES: Final = pattern_to_data(("g", ANY_NAME, ANY_NAME))
EXPRESSIONS: Final = pattern_to_data((ANY_DEPTH, AnyOf([IfNameMatches(regex=f"[a-{letter}]$") for letter in "bcdef"])))
SHAPED: Final = pattern_to_data(("g", ANY_NAME, AllOf([IfDataLike([{"$bind": "x"}, {"$bind": "x"}]), IfHasData()])))


def max_steps_now() -> int:
    """As it stands, perhaps changed by the test."""
    return int(vars(store)["MAX_STEPS"])


def machine_with(parents: int, leaves: int, data: Any = 1, *, triggers: int = 0, kept: int = 0) -> Machine:
    machine = Machine({})
    with machine.store.transaction() as transaction:
        for parent in range(parents):
            for leaf in range(leaves):
                transaction.put(("g", f"p{parent}", f"n{leaf}"), data)
    for number in range(kept):
        keep = [((("g", ANY_NAME, f"n{number}")), IfNodeExists())]
        machine.store.put(("kept", str(number), "below"), number, keep_while=keep)
    for number in range(triggers):
        trigger = {"id": str(number), "pattern": EVERYTHING, "procedure_path": ["none"]}
        assert run(machine, "tree.register_trigger", trigger).ok
    return machine


_numbers = iter(range(10**9))


def run(machine: Machine, procedure: str, args: Any) -> CommandAnswer:
    encoded = encode_command(Command(procedure, args, "c", next(_numbers)))
    return CommandAnswer.from_encoded(machine.apply(encoded)[1])


def calls_of(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called for that."""
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def check_counted(machine: Machine, procedure: str, args: Any) -> CommandAnswer:
    """Carry it out; that took no more than was counted, and not more than a command may take."""
    command = encode_command(Command(procedure, args, "c", next(_numbers)))
    before = machine.store.steps_taken
    answers = []
    calls = calls_of(lambda: answers.append(machine.apply(command)[1]))
    steps = STEPS_PER_COMMAND + machine.store.steps_taken - before
    assert calls <= CALLS_PER_STEP * steps + CALLS_PER_BYTE * len(command)
    assert steps <= STEPS_PER_COMMAND + max_steps_now()
    return CommandAnswer.from_encoded(answers[0])


patterns = st.sampled_from(
    [EVERYTHING, CHILDREN, LEAVES, EXPRESSIONS, SHAPED, ["g"], ["g", "p0"], ["g", "p1", "n1"], ["kept"], []]
)
data = st.sampled_from([1, "x" * 300, [[]] * 50, {"a": [{}] * 30}])
keep_whiles = st.sampled_from(
    [
        None,
        [[LEAVES, ["if_node_exists", True]]],
        [[["g", f"p{number}"], ["if_node_exists", True]] for number in range(3)],
    ]
)


@st.composite
def operations(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(
        st.sampled_from(
            [
                "get",
                "view",
                "get_many",
                "exists",
                "has_data",
                "count",
                "children",
                "put",
                "create",
                "make",
                "clear_payload",
                "delete",
                "put_many",
                "update_many",
                "clear_many_payloads",
                "delete_many",
            ]
        )
    )
    operation = {"op": op, "path": draw(patterns)}
    if op in ("put", "create", "put_many", "update_many"):
        operation["data"] = draw(data)
    if op in ("put", "create", "put_many", "make"):
        operation["keep_while"] = draw(keep_whiles)
    if op in ("put", "create", "clear_payload", "delete"):
        operation["full"] = draw(st.booleans())
    return operation


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(operations(), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 6),
    st.integers(50, 5000),
)
def test_what_a_command_does_is_counted_whatever_it_does(
    transactions: list[list[dict[str, Any]]], triggers: int, kept: int, max_steps: int
) -> None:
    machine = machine_with(6, 12, {"a": [1, 2]}, triggers=triggers, kept=kept)
    History().attach(machine.store)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(store, "MAX_STEPS", max_steps)
        for chosen in transactions:
            before = machine.store.digest()
            answer = check_counted(machine, "tree.transaction", {"then": chosen})
            if not answer.ok:
                assert machine.store.digest() == before


@pytest.mark.parametrize(
    ("procedure", "args"),
    [
        ("tree.delete_many", {"path": LEAVES}),
        ("tree.delete_many", {"path": CHILDREN}),
        ("tree.delete", {"path": ["g"]}),
        ("tree.delete", {"path": []}),
        ("tree.delete", {"path": ["g"], "full": True}),
        ("tree.put_many", {"path": LEAVES, "data": 2}),
        ("tree.put_many", {"path": pattern_to_data(("g", ANY_NAME, "new", "below")), "data": 2}),
        ("tree.clear_many_payloads", {"path": LEAVES}),
        ("tree.get_many", {"path": LEAVES}),
        ("tree.count", {"path": EXPRESSIONS}),
        ("tree.count", {"path": SHAPED}),
        ("tree.transaction", {"then": [{"op": "delete", "path": ["g", f"p{number}"]} for number in range(50)]}),
        ("tree.import", {"mode": "replace", "rows": [
            {"format": "batonpass tree", "version": 1, "revision": 1, "pattern": EVERYTHING},
            {"path": ["one"], "data": 1},
            {"end": True, "nodes": 1},
        ]}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_too_much_is_refused_before_it_is_done(
    procedure: str, args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_with(50, 60, [1, 1], triggers=1, kept=3)
    History().attach(machine.store)
    before = machine.store.digest()
    monkeypatch.setattr(store, "MAX_STEPS", 2000)
    answer = check_counted(machine, procedure, args)
    assert answer.code == "too_much"
    assert machine.store.digest() == before


def test_the_largest_subtree_that_one_command_removes_goes_and_a_larger_one_in_parts() -> None:
    machine = machine_with(4, MAX_STEPS // STEPS_PER_ROW // 4 - 10)
    assert run(machine, "tree.delete", {"path": ["g"]}).ok
    machine = machine_with(5, MAX_STEPS // STEPS_PER_ROW // 4)
    assert run(machine, "tree.delete", {"path": ["g"]}).code == "too_much"
    for parent in range(5):
        assert run(machine, "tree.delete", {"path": ["g", f"p{parent}"]}).ok
    assert machine.store.node_count == 0


def test_what_a_command_lets_go_in_consequence_counts_for_it() -> None:
    machine = Machine({})
    for number in range(40):
        machine.store.put(("kept", str(number)), 1, keep_while=[(("lock",), IfNodeExists())] if number else None)
        if not number:
            machine.store.put(("lock",), 1)
        for below in range(20):
            machine.store.put(("kept", str(number), str(below)), 1)
    steps = machine.store.steps_taken
    assert run(machine, "tree.delete", {"path": ["lock"]}).value == 1 + 39 * 21
    assert machine.store.steps_taken - steps > 39 * 21 * STEPS_PER_ROW


def test_the_triggers_that_look_at_a_change_count_for_the_command_that_makes_it() -> None:
    def steps(triggers: int) -> int:
        machine = machine_with(2, 20, triggers=triggers)
        before = machine.store.steps_taken
        assert run(machine, "tree.put_many", {"path": LEAVES, "data": 2}).ok
        return machine.store.steps_taken - before

    assert steps(300) - steps(0) > 300 * 40
    machine = machine_with(20, 40, triggers=600)
    before = machine.store.digest()
    assert run(machine, "tree.put_many", {"path": LEAVES, "data": 2}).code == "too_much"
    assert machine.store.digest() == before
    assert machine.pending_triggers() == ()


plain_data = st.recursive(
    st.integers(-(2**64), 2**64 - 1) | st.text() | st.none() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(plain_data)
def test_the_values_of_data_are_counted_with_lists_maps_and_keys(value: Any) -> None:
    def values(value: Any) -> int:
        if isinstance(value, list):
            return 1 + sum(map(values, value))
        if isinstance(value, dict):
            return 1 + len(value) + sum(map(values, value.values()))
        return 1

    assert values_in(encode(value)) == values(value)


def test_data_of_many_small_values_is_paid_for_by_the_value() -> None:
    machine = machine_with(1, 10, [[]] * 60_000)
    assert steps_of_data(encode([[]] * 60_000)) > 60_000
    read = {"op": "get", "path": ["g", "p0", "n0"]}
    assert run(machine, "tree.transaction", {"then": [read] * 4}).ok
    assert run(machine, "tree.transaction", {"then": [read] * 5}).code == "too_much"
    assert run(machine, "tree.get_many", {"path": LEAVES}).code == "too_much"
    assert run(machine, "tree.count", {"path": SHAPED}).code == "too_much"


def test_a_command_has_a_bounded_number_of_values() -> None:
    many = [0] * (MAX_COMMAND_VALUES + 1)
    with pytest.raises(MalformedCommand, match=f"at most {MAX_COMMAND_VALUES} can be replicated"):
        encode_command(Command("tree.put", {"path": ["a"], "data": many}, "c", 1))
    assert encode_command(Command("tree.put", {"path": ["a"], "data": "x" * 900_000}, "c", 1))


def test_regular_expressions_pay_for_being_compiled() -> None:
    machine = machine_with(1, 1)
    expression = ["if_name_matches", "regex", "[^a]" * 120]
    comparisons = [[[["all_of", [expression] * 4]], ["if_node_exists", False]]] * 200
    assert run(machine, "tree.transaction", {"if": comparisons[:100]}).ok
    assert run(machine, "tree.transaction", {"if": comparisons}).code == "too_much"


# --- watchers: each member's own affair, and so never a reason to refuse -------------------------------------------


def slowly_told() -> tuple[Machine, History, list[int]]:
    machine, history, calls = Machine({}), History(), []
    history.attach(machine.store)
    history.on_untold = lambda: calls.append(machine.store.revision)
    return machine, history, calls


def write_many(machine: Machine, count: int, name: str = "n") -> None:
    with machine.store.transaction() as transaction:
        for number in range(count):
            transaction.put(("g", f"{name}{number}"), machine.store.revision)


def test_many_watchers_are_told_of_a_large_commit_in_slices_and_of_whole_commits() -> None:
    machine, history, calls = slowly_told()
    watchers = [history.watch(("g", AnyOf([IfNameMatches(prefix="n"), "x"]))) for _ in range(100)]
    write_many(machine, 1000)
    assert calls == [1]
    assert history.told_revision == 0
    assert [watcher.take() for watcher in watchers] == [[]] * 100, "a commit is taken as a whole"
    assert {watcher.last_revision for watcher in watchers} == {0}
    slices = 0
    while history.tell():
        slices += 1
    assert slices * TOLD_STEPS > 100 * 1000
    assert history.told_revision == machine.store.revision
    # The root is not below g, and g itself was made with the first.
    assert {len(watcher.take(5000)) for watcher in watchers} == {1000}


def test_one_slice_of_telling_is_bounded() -> None:
    machine, history, _ = slowly_told()
    for _ in range(100):
        history.watch(("g", AnyOf([IfNameMatches(prefix="n"), "x"])))
    write_many(machine, 500)
    calls = calls_of(history.tell)
    assert calls < CALLS_PER_STEP * TOLD_STEPS + 100 * 100


@given(
    st.lists(st.sampled_from(["write", "write", "tell", "take", "watch"]), max_size=25),
    st.integers(1, 40),
)
def test_who_is_told_in_slices_is_told_the_same(what: list[str], allowance: int) -> None:
    machine, slow, _ = slowly_told()
    told: list[tuple[Watcher, list[int], int]] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("batonpass.tree.store.watch.TOLD_STEPS", allowance)
        for action in [*what, "write", "tell"]:
            if action == "write":
                write_many(machine, 1 + machine.store.revision % 5)
            elif action == "tell":
                slow.tell()
            elif action == "watch" and len(told) < 5:
                since = max(0, machine.store.revision - len(told))
                told.append((slow.watch(("g", ANY_NAME), since), [], since))
            else:
                for watcher, taken, _ in told:
                    taken.extend(event.revision for event in watcher.take(3))
        while slow.tell():
            pass
    everything = [event.revision for event in slow._events if event.path[1:]]
    for watcher, taken, since in told:
        taken.extend(event.revision for event in watcher.take(10_000))
        assert taken == [revision for revision in everything if revision > since]


def test_a_watcher_is_woken_when_the_commit_that_it_was_told_of_is_whole() -> None:
    machine, history, _ = slowly_told()
    woken: list[int] = []
    early = history.watch(("g", "n0"))
    early.on_events = lambda: woken.append(history.told_revision)
    for _ in range(100):
        history.watch(("g", AnyOf([IfNameMatches(prefix="n"), "x"])))
    write_many(machine, 1000)
    while history.tell():
        pass
    assert woken[-1] == machine.store.revision
    assert [event.path for event in early.take()] == [("g", "n0")]


def test_who_would_be_told_much_too_late_is_cut() -> None:
    machine, history = Machine({}), History(max_events=100)
    history.attach(machine.store)
    history.on_untold = lambda: None
    watchers = [history.watch(("g", IfNameMatches(prefix=f"n{number}"))) for number in range(200)]
    for number in range(10):
        write_many(machine, 200, f"m{number}-")
    assert {watcher.state for watcher in watchers} == {WatcherState.CUT}
    assert len(history._events) <= 100


def test_to_resume_long_ago_with_a_pattern_of_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, history, _ = slowly_told()
    write_many(machine, 500)
    monkeypatch.setattr("batonpass.tree.store.watch.MAX_STEPS", 1000)
    with pytest.raises(TooMuch):
        history.watch((ANY_DEPTH,), 0)
    assert history.watcher_count == 0
    history.watch((ANY_DEPTH,))


def test_a_quiet_watcher_knows_how_far_the_tree_has_come_without_taking() -> None:
    machine, history, _ = slowly_told()
    watcher = history.watch(("quiet",))
    assert watcher.take() == []
    write_many(machine, 5)
    write_many(machine, 7, "m")
    assert watcher.last_revision == machine.store.revision == 2


# --- many at once --------------------------------------------------------------------------------------------------


async def test_everybody_has_a_turn_between_two_long_reads(tmp_path: Path) -> None:
    order: list[str] = []

    def long_read(_transaction: Transaction, args: Any) -> None:
        order.append(f"read {args}")

    async def others() -> None:
        while True:
            order.append("others")
            await trio.lowlevel.checkpoint()

    (config,) = configs(tmp_path, 1)
    replica = Replica(config, {"long": ReadOnly(long_read)})
    async with trio.open_nursery() as nursery:
        await nursery.start(replica.serve)
        await replica.submit("tree.noop")
        nursery.start_soon(others)
        async with trio.open_nursery() as readers:
            for number in range(30):
                readers.start_soon(partial(replica.read, "long", number, timeout_s=60.0))
        nursery.cancel_scope.cancel()
    reads = [position for position, what in enumerate(order) if what.startswith("read")]
    assert len(reads) == 30
    # One in each round of trio's, in which others come before it or after it.
    assert order[reads[0] : reads[-1]].count("others") >= 28
