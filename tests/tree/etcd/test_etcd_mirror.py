"""The mirror: whatever races, gets lost or starts again, all processes have the tree of one machine, applied once."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from batonpass.tree import Abort, BadData
from batonpass.tree.data.data import encode
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.etcd.keys import EtcdKeys
from batonpass.tree.etcd.mirror import FORMAT, Damaged, EtcdPlan, Limits, Loading, Mirror
from batonpass.tree.etcd.mirrored_store import MirroredStore
from batonpass.tree.etcd.wire import Delete, EtcdPut, KeyValue, cost_bytes
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.store.changes import Commit
from batonpass.tree.store.conditions import Condition, IfChildListLength, IfNodeExists
from batonpass.tree.store.keep_while import keep_while_to_data
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, Pattern, pattern_to_data
from batonpass.tree.store.procedures import Procedure
from batonpass.tree.store.transaction import Transaction
from tests.budget import examples
from tests.tree.fake_etcd import FakeEtcd
from tests.tree.strategies import close_names, few_values

KEYS = EtcdKeys("/batonpass", "homeserver", "alpha")
LIMITS = Limits(128, 1_572_864)


def count(transaction: Transaction, args: Any) -> int:
    number: int = transaction.get_or(("count",), 0) + 1
    transaction.put(("count",), number)
    return number


def crash(transaction: Transaction, args: Any) -> None:
    transaction.put(("crashed",), 1)
    raise ZeroDivisionError


def refuse(transaction: Transaction, args: Any) -> None:
    transaction.delete(())
    raise Abort("refused")


PROCEDURES: Mapping[str, Procedure] = {"count": count, "crash": crash, "refuse": refuse}


def mirror(limits: Limits = LIMITS) -> Mirror:
    return Mirror(KEYS, PROCEDURES, limits, {"payloads": payloads})


def commands(*procedures: tuple[str, Any], client: str = "c") -> list[Command]:
    return [Command(procedure, args, client, number) for number, (procedure, args) in enumerate(procedures)]


def put(path: Path, data: Any, **more: Any) -> tuple[str, Any]:
    return "tree.put", {"path": list(path), "data": data, **more}


def carry_out(etcd: FakeEtcd, mirror: Mirror, todo: list[Command]) -> list[CommandAnswer]:
    """All of them, as few transactions as that takes; their answers in order."""
    answers: dict[tuple[str, int], bytes] = {}
    while len(answers) < len(todo):
        plan = mirror.rehearse(command for command in todo if (command.client, command.number) not in answers)
        if plan.operations:
            revision = etcd.txn(plan)
            assert revision is not None
            mirror.accepted(plan, revision)
        answers |= {(client, number): answer for client, number, answer in (*plan.settled, *plan.answered)}
    return [CommandAnswer.from_encoded(answers[command.client, command.number]) for command in todo]


# --- the specification, by a machine that is obviously right ------------------------------------------------------

_paths = st.lists(close_names, min_size=1, max_size=3)
_patterns = st.sampled_from([(ANY_NAME,), (ANY_DEPTH,), ("a", ANY_NAME), (ANY_NAME, "b")]).map(pattern_to_data)
_pairs: list[list[tuple[Pattern, Condition]]] = [
    [],
    [(("a",), IfNodeExists(True))],
    [(("b", "c"), IfNodeExists(False))],
    [(("a", ANY_NAME), IfNodeExists(True)), (("c",), IfChildListLength(0))],
]
_keep_while = st.sampled_from(_pairs).map(keep_while_to_data)


def register_trigger(name: str, pattern: list[Any]) -> tuple[str, Any]:
    return "tree.register_trigger", {"id": name, "pattern": pattern, "procedure_path": [name]}


_procedures = st.one_of(
    st.builds(lambda path, data: put(tuple(path), data), _paths, few_values),
    st.builds(lambda path, data, kept: put(tuple(path), data, keep_while=kept), _paths, few_values, _keep_while),
    st.builds(lambda path, data: ("tree.create", {"path": path, "data": data}), _paths, few_values),
    st.builds(lambda path, data: ("tree.update", {"path": path, "data": data}), _paths, few_values),
    st.builds(lambda path: ("tree.delete", {"path": path}), _paths),
    st.builds(lambda path: ("tree.clear_payload", {"path": path}), _paths),
    st.builds(lambda pattern, data: ("tree.put_many", {"path": pattern, "data": data}), _patterns, few_values),
    st.builds(lambda pattern: ("tree.delete_many", {"path": pattern}), _patterns),
    st.sampled_from([("tree.delete", {"path": []}), ("count", None), ("crash", None), ("refuse", None)]),
    st.builds(register_trigger, close_names, _patterns),
    st.builds(lambda name: ("tree.unregister_trigger", {"id": name}), close_names),
    st.builds(lambda numbers: ("tree.trigger_done", {"numbers": numbers}), st.lists(st.integers(1, 9), max_size=5)),
    st.builds(lambda pattern: ("tree.register_projection", {"name": "payloads", "pattern": pattern}), _patterns),
    st.builds(lambda path: ("tree.make", {"path": path, "procedure": "notify"}), _paths),
    st.just(("tree.unregister_projection", {"name": "payloads"})),
)


def payloads(table: dict[Any, Any], path: Path, _before: NodeView | None, after: NodeView | None) -> None:
    """A projection: what every node holds."""
    table[path] = None if after is None else after.encoded
    if after is None:
        del table[path]


class Processes(RuleBasedStateMachine):
    """Three processes on one etcd. Commands are handed to any of them; answers of transactions get lost."""

    plans = Bundle("plans")

    def __init__(self) -> None:
        super().__init__()
        self.etcd = FakeEtcd(KEYS)
        self.mirrors = [mirror(Limits(32, 1_572_864)) for _ in range(3)]
        self.twin = Machine(PROCEDURES, {"payloads": payloads})
        self.answers: dict[tuple[str, int], bytes] = {}
        self.waiting: list[list[Command]] = [[], [], []]
        self.next_number = 0

    @rule(who=st.integers(0, 2), todo=st.lists(_procedures, min_size=1, max_size=8))
    def submit(self, who: int, todo: list[tuple[str, Any]]) -> None:
        for procedure, args in todo:
            self.next_number += 1
            self.waiting[who].append(Command(procedure, args, f"p{who}", self.next_number))

    @rule(who=st.integers(0, 2), to=st.integers(0, 2))
    def submit_to_another_too(self, who: int, to: int) -> None:
        known = {command.number for command in self.waiting[to]}
        self.waiting[to] += [command for command in self.waiting[who] if command.number not in known]

    @rule(target=plans, who=st.integers(0, 2))
    def rehearse(self, who: int) -> tuple[int, EtcdPlan]:
        plan = self.mirrors[who].rehearse(self.waiting[who])
        for client, number, answer in plan.settled:
            self.learn(who, client, number, answer)
        return who, plan

    @rule(planned=plans, answer_is_lost=st.booleans())
    def offer(self, planned: tuple[int, EtcdPlan], answer_is_lost: bool) -> None:
        """Plans may be offered again, late, or by two processes for the same commands."""
        who, plan = planned
        if not plan.operations:
            return
        revision = self.etcd.txn(plan)
        if revision is None:
            return
        by_id = {(command.client, command.number): command for todo in self.waiting for command in todo}
        for client, number, answer in plan.answered:
            _, expected = self.twin.apply(encode_command(by_id[client, number]))
            # What fires is one for each commit, and the twin makes one of each command.
            if by_id[client, number].procedure != "tree.trigger_done":
                assert CommandAnswer.from_encoded(answer) == CommandAnswer.from_encoded(expected)
            self.answers[client, number] = answer
        if not answer_is_lost:
            self.mirrors[who].accepted(plan, revision)

    @rule(who=st.integers(0, 2))
    def watch(self, who: int) -> None:
        self.etcd.tell(self.mirrors[who])

    @rule(who=st.integers(0, 2))
    def start_again(self, who: int) -> None:
        self.mirrors[who] = mirror(Limits(32, 1_572_864))
        self.mirrors[who].become(self.etcd.loading())

    def learn(self, who: int, client: str, number: int, answer: bytes) -> None:
        assert self.answers[client, number] == answer
        self.waiting[who] = [command for command in self.waiting[who] if command.number != number]

    @invariant()
    def no_transaction_is_too_big(self) -> None:
        assert self.etcd.operations_of_largest <= 32

    @invariant()
    def up_to_date_mirrors_have_the_tree_of_the_twin(self) -> None:
        for mirror in self.mirrors:
            guard = self.etcd.rows.get(KEYS.guard)
            if guard is not None and mirror.guard_revision == guard.mod_revision:
                assert mirror.store.to_data() == self.twin.store.to_data()
                assert [status.name for status in mirror.machine.projections()] == [
                    status.name for status in self.twin.projections()
                ]
                if mirror.machine.projections():
                    assert mirror.machine.projection("payloads") == self.twin.projection("payloads")

    def teardown(self) -> None:
        for one in self.mirrors:
            self.etcd.tell(one)
        fresh = mirror()
        fresh.become(self.etcd.loading())
        assert {one.digest() for one in (*self.mirrors, fresh)} == {fresh.digest()}
        assert fresh.store.to_data() == self.twin.store.to_data()
        for client_and_number, answer in self.answers.items():
            assert fresh.answer_to(*client_and_number) == answer


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


@given(st.lists(_procedures, max_size=40))
def test_a_rehearsal_leaves_no_trace(todo: list[tuple[str, Any]]) -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    carry_out(etcd, one, commands(*todo[:20]))
    before, seen = one.digest(), list[Commit]()
    one.store.on_commit = seen.append
    one.rehearse(commands(*todo[20:], client="d"))
    assert one.digest() == before
    assert seen == []


@given(st.lists(_procedures, min_size=1, max_size=20))
def test_writers_and_watchers_see_the_same_commits(todo: list[tuple[str, Any]]) -> None:
    etcd, writer, reader = FakeEtcd(KEYS), mirror(), mirror()
    written, read = list[Commit](), list[Commit]()
    writer.store.on_commit, reader.store.on_commit = written.append, read.append
    carry_out(etcd, writer, commands(*todo))
    etcd.tell(reader)
    assert written == read
    assert [commit.revision for commit in read] == list(range(1, reader.store.revision + 1))


# --- transactions -------------------------------------------------------------------------------------------------


def test_many_commands_are_one_transaction_and_one_revision() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    answers = carry_out(etcd, one, commands(*[("count", None)] * 50))
    assert [answer.value for answer in answers] == list(range(1, 51))
    assert len(etcd.events) == 1
    assert one.store.revision == 1


def test_a_transaction_never_exceeds_the_limits_of_etcd() -> None:
    etcd, one = FakeEtcd(KEYS), mirror(Limits(40, 200_000))
    todo = commands(*(put(("n", str(number)), "x" * 9000) for number in range(100)))
    assert all(answer.ok for answer in carry_out(etcd, one, todo))
    assert etcd.operations_of_largest <= 40
    assert len(etcd.events) >= 5
    for _, events in etcd.events:
        assert sum(cost_bytes(EtcdPut(event.key, event.value or b"")) for event in events) <= 200_000


def test_a_subtree_of_any_size_is_deleted_by_one_operation() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    carry_out(etcd, one, commands(*(put(("top", str(number), "leaf"), number) for number in range(300))))
    plan = one.rehearse(commands(("tree.delete", {"path": ["top"]}), client="d"))
    assert [type(operation) for operation in plan.operations].count(Delete) == 1
    assert len(plan.operations) == 4  # and the guard, the root's row and the answer
    revision = etcd.txn(plan)
    assert revision is not None
    one.accepted(plan, revision)
    assert one.store.to_data() == [[0, "", None, 1, 3, False]]
    assert len(etcd.rows) < 40


def test_a_command_that_no_transaction_can_hold_is_refused_and_changes_nothing() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    carry_out(etcd, one, commands(*(put(("n", str(number)), 0) for number in range(200))))
    before = one.digest()
    (answer,) = carry_out(
        etcd, one, commands(("tree.put_many", {"path": pattern_to_data(("n", ANY_NAME)), "data": 1}), client="d")
    )
    assert answer.code == "too_much_for_etcd"
    assert "--max-txn-ops" in answer.message
    assert one.digest() == before
    # What comes after it is not held up.
    assert carry_out(etcd, one, commands(("count", None), client="e"))[0].value == 1


def test_a_big_command_does_not_drag_small_ones_down_with_it() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    carry_out(etcd, one, commands(*(put(("n", str(number)), 0) for number in range(200))))
    too_much = ("tree.put_many", {"path": pattern_to_data(("n", ANY_NAME)), "data": 1})
    answers = carry_out(etcd, one, commands(("count", None), too_much, ("count", None), client="d"))
    assert [answer.code for answer in answers] == [None, "too_much_for_etcd", None]
    assert answers[2].value == 2


def test_a_refused_command_is_remembered_but_is_no_revision_of_the_tree() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    (answer,) = carry_out(etcd, one, commands(("refuse", None)))
    assert answer.code == "refused"
    assert one.store.revision == 0
    assert one.answer_to("c", 0) is not None


def test_the_loser_of_a_race_decides_again() -> None:
    etcd, one, other = FakeEtcd(KEYS), mirror(), mirror()
    late = other.rehearse(commands(("count", None), client="late"))
    carry_out(etcd, one, commands(("count", None)))
    assert etcd.txn(late) is None
    etcd.tell(other)
    assert carry_out(etcd, other, commands(("count", None), client="late"))[0].value == 2


def test_a_number_whose_answer_may_be_forgotten_is_refused() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    for start in range(0, 1200, 100):
        carry_out(etcd, one, [Command("count", None, "c", number) for number in range(start, start + 100)])
    (answer,) = carry_out(etcd, one, [Command("count", None, "c", 0)])
    assert answer.code == "stale_command"
    assert one.store.get(("count",)) == 1200


# --- triggers and projections -------------------------------------------------------------------------------------


def with_a_trigger(etcd: FakeEtcd, one: Mirror) -> None:
    """Changes of the nodes below `x` fire `notify`."""
    pattern = pattern_to_data(("x", ANY_NAME))
    todo = commands(
        ("tree.put", {"path": ["procedure"], "procedure": "notify"}),
        ("tree.register_trigger", {"id": "t", "pattern": pattern, "procedure_path": ["procedure"]}),
        ("tree.register_projection", {"name": "payloads", "pattern": pattern}),
        client="setup",
    )
    assert all(answer.ok for answer in carry_out(etcd, one, todo))


def test_what_fires_is_kept_in_etcd_until_it_is_done() -> None:
    etcd, one, other, late = FakeEtcd(KEYS), mirror(), mirror(), mirror()
    with_a_trigger(etcd, one)
    carry_out(etcd, one, commands(put(("x", "a"), 1), put(("y",), 1)))
    etcd.tell(other)
    late.become(etcd.loading())
    (fired,) = one.machine.pending_triggers()
    for process in (one, other, late):
        assert process.machine.pending_triggers() == (fired,)
        assert (fired.trigger, fired.procedure, fired.path) == ("t", "notify", ("x", "a"))
        assert process.machine.projection("payloads") == {("x", "a"): b"\x01"}
    (answer,) = carry_out(etcd, late, commands(("tree.trigger_done", {"numbers": [fired.number]}), client="late"))
    assert answer.value == 1
    for process in (one, other):
        etcd.tell(process)
        assert process.machine.pending_triggers() == ()
    assert len({process.digest() for process in (one, other, late)}) == 1


def test_a_rehearsal_fires_nothing_and_registers_nothing() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    with_a_trigger(etcd, one)
    before = one.machine.registrations()
    for todo in (
        put(("x", "a"), 1),
        ("tree.unregister_trigger", {"id": "t"}),
        ("tree.unregister_projection", {"name": "payloads"}),
    ):
        assert one.rehearse(commands(todo)).changes.registrations is not None
        assert one.machine.registrations() == before
    assert one.machine.projection("payloads") == {}


def test_a_stored_procedure_that_registers_is_no_way_around() -> None:
    etcd, one, other = FakeEtcd(KEYS), mirror(), mirror()
    args = {"id": "t", "pattern": ["x"], "procedure_path": ["p"]}
    todo = commands(
        ("tree.put", {"path": ["p"], "procedure": "tree.register_trigger"}),
        ("tree.run", {"path": ["p"], "args": args}),
        put(("x",), 1),
    )
    assert all(answer.ok for answer in carry_out(etcd, one, todo))
    etcd.tell(other)
    assert len(one.machine.pending_triggers()) == len(other.machine.pending_triggers()) == 1


def test_a_queue_that_no_transaction_holds_is_divided_or_refused() -> None:
    etcd, one = FakeEtcd(KEYS), mirror(Limits(128, 65_536))
    with_a_trigger(etcd, one)
    long = [put(("x", f"{number:03}" + "n" * 240), 1) for number in range(120)]
    answers = carry_out(etcd, one, commands(*long))
    assert {answer.code for answer in answers} <= {None, "too_much_for_etcd"}
    done = [fired.number for fired in one.machine.pending_triggers()]
    assert carry_out(etcd, one, commands(("tree.trigger_done", {"numbers": done}), client="d"))[0].value == len(done)
    assert carry_out(etcd, one, commands(*long, client="again"))[0].ok


def test_registrations_that_cannot_be_read_are_refused_with_their_key() -> None:
    with pytest.raises(Damaged, match="alpha/registrations"):
        loaded(GUARD, (KEYS.registrations, encode("mine")))


# --- what somebody else has written -------------------------------------------------------------------------------


def loaded(*found: tuple[bytes, bytes]) -> None:
    loading = Loading(KEYS)
    loading.add_untrusted(KeyValue(key, value, 5) for key, value in found)
    mirror().become(loading)


ROW = encode([b"\x01", 1, 1, False])
GUARD = (KEYS.guard, encode([FORMAT, 1]))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([(KEYS.node(()), ROW)], "no guard"),
        ([(KEYS.guard, encode([FORMAT + 1, 1]))], "this version knows"),
        ([(KEYS.guard, b"\xff")], "guard"),
        ([(KEYS.guard, encode("x"))], "not a guard"),
        ([GUARD, (KEYS.node(("a",)), b"")], "row of the node"),
        ([GUARD, (KEYS.node(("a",)), encode([b"\x01", 0, 1, False]))], "not the row"),
        ([GUARD, (KEYS.node(("a",)), encode([b"\x01", 1, 1, False, [], []]))], "not the row"),
        ([GUARD, (KEYS.node(("a",)), encode([b"\xff", 1, 1, False]))], "row of the node"),
        ([GUARD, (KEYS.node(("a",)), encode([None, 1, 1, False, [7]]))], "keep_while|pair"),
        ([GUARD, (KEYS.node(("a", "b")), ROW)], "does not follow its parent"),
        ([GUARD, (KEYS.node(("a",))[:-1], ROW)], "end in a slash"),
        ([GUARD, (KEYS.prefix + b"mine", b"")], "no key of ours"),
        ([GUARD, (KEYS.answers("c", 1), b"")], "answer"),
    ],
)
def test_what_is_not_ours_is_refused_with_its_key(found: list[tuple[bytes, bytes]], sentence: str) -> None:
    with pytest.raises(Damaged, match=sentence) as damaged:
        loaded(*found)
    assert "batonpass" in str(damaged.value) or "node" in str(damaged.value)


def test_a_change_without_the_guard_is_somebody_elses() -> None:
    with pytest.raises(Damaged, match="somebody else"):
        mirror().take_untrusted([KeyValue(KEYS.node(("a",)), ROW, 7)], 7)
    with pytest.raises(Damaged, match="somebody else"):
        mirror().take_untrusted([KeyValue(KEYS.guard, None, 7)], 7)


def test_a_change_that_cannot_be_taken_changes_nothing() -> None:
    etcd, one = FakeEtcd(KEYS), mirror()
    carry_out(etcd, one, commands(put(("a",), 1)))
    before = one.digest()
    guard = KeyValue(KEYS.guard, encode([FORMAT, 2]), 9)
    for events in ([KeyValue(KEYS.node(("b", "c")), ROW, 9)], [KeyValue(KEYS.node(()), None, 9)]):
        with pytest.raises(Damaged):
            one.take_untrusted([guard, KeyValue(KEYS.node(("a",)), ROW, 9), *events], 9)
        assert one.digest() == before


def test_a_mirrored_store_is_not_written_directly() -> None:
    store = MirroredStore()
    with pytest.raises(RuntimeError, match="elsewhere"):
        store.transaction()
    with pytest.raises(RuntimeError, match="elsewhere"):
        store.transact(count, None, lambda value: value)
    with store.rehearsal(), pytest.raises(RuntimeError, match="open already"), store.rehearsal():
        pass
    with pytest.raises(BadData):
        store.add_row_untrusted(("a",), b"x")
