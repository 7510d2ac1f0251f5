"""The machine: each command once, refusals and crashes leave the tree alone, and members agree to the last byte."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import Abort, BadData, MalformedCommand
from batonpass.tree.machine import commands, sessions
from batonpass.tree.machine.commands import (
    Command,
    CommandAnswer,
    Machine,
    decode_command_untrusted,
    encode_command,
    encode_entry,
)
from batonpass.tree.machine.sessions import ClientSession
from batonpass.tree.store import procedures
from batonpass.tree.store.changes import Written
from batonpass.tree.store.pattern import ANY_NAME
from batonpass.tree.store.transaction import Transaction
from tests.tree.strategies import close_paths, few_values


def add(transaction: Transaction, args: Any) -> int:
    total: int = transaction.get_or(("sum",), 0) + args
    transaction.put(("sum",), total)
    return total


def change_mind(transaction: Transaction, args: Any) -> None:
    transaction.put(("sum",), "half done")
    transaction.abort("not_today", "come back tomorrow", args)


def crash(transaction: Transaction, _args: Any) -> None:
    transaction.put(("sum",), "half done")
    raise ZeroDivisionError


def answer_the_unanswerable(transaction: Transaction, _args: Any) -> Any:
    transaction.put(("sum",), "half done")
    return object()


PROCEDURES = {"add": add, "change_mind": change_mind, "crash": crash, "unanswerable": answer_the_unanswerable}


def machine() -> Machine:
    return Machine(PROCEDURES)


def run(target: Machine, procedure: str, args: Any = None, *, client: str = "c", number: int = 1) -> CommandAnswer:
    _, answer = target.apply(encode_command(Command(procedure, args, client, number)))
    return CommandAnswer.from_encoded(answer)


def test_a_command_submitted_twice_applies_once_and_gets_the_same_answer() -> None:
    target = machine()
    assert run(target, "add", 5, number=1).value == 5
    assert run(target, "add", 5, number=1).value == 5
    assert run(target, "add", 5, number=2).value == 10
    assert run(target, "add", 5, number=1, client="another").value == 15


def test_numbers_of_one_client_may_arrive_out_of_order() -> None:
    target = machine()
    assert [run(target, "add", 1, number=number).value for number in (7, 3, 5, 3, 7)] == [1, 2, 3, 2, 1]


def test_an_abort_is_answered_and_leaves_the_tree_alone() -> None:
    target = machine()
    answer = run(target, "change_mind", {"when": "tomorrow"})
    assert answer == CommandAnswer(None, "not_today", "come back tomorrow", {"when": "tomorrow"})
    assert not target.store.exists(("sum",))


def test_a_crash_is_answered_and_leaves_the_tree_alone(caplog: pytest.LogCaptureFixture) -> None:
    target = machine()
    with caplog.at_level(logging.CRITICAL):
        assert run(target, "crash").code == "procedure_crashed"
    assert not target.store.exists(("sum",))
    assert run(target, "add", 1, number=2).value == 1


def test_an_answer_that_cannot_be_given_undoes_its_command() -> None:
    target = machine()
    assert run(target, "unanswerable").code == "bad_data"
    assert not target.store.exists(("sum",))


def test_refusals_of_the_tree_are_answers() -> None:
    target = machine()
    assert run(target, "tree.get", {"path": ["nowhere"]}).code == "node_not_found"
    assert run(target, "tree.put", {"path": [""], "data": 1}, number=2).code == "bad_path"
    assert run(target, "tree.put", {"path": ["a"]}, number=3).code == "bad_arguments"
    assert run(target, "tree.put", {"path": ["a"], "data": 1, "condition": ["nonsense"]}, number=4).code == "bad_data"
    assert run(target, "no such", number=5).code == "unknown_procedure"


def test_built_in_procedures_do_what_the_store_does() -> None:
    target = machine()
    put = {"path": ["a", "b"], "data": 1}
    assert run(target, "tree.create", put, number=1).value == {"existed": False, "previous": None, "payload_version": 1}
    assert run(target, "tree.create", put, number=2).code == "mismatching_node"
    assert run(target, "tree.update", {**put, "data": 2}, number=3).value["payload_version"] == 2
    swap = {"path": ["a", "b"], "expected": 2, "data": 3}
    assert run(target, "tree.compare_and_swap", swap, number=4).value["previous"] == 2
    guarded = {**put, "condition": ["if_payload_version", 1]}
    assert run(target, "tree.put", guarded, number=5).code == "mismatching_node"
    assert run(target, "tree.get", {"path": ["a", "b"]}, number=6).value == 3
    assert run(target, "tree.clear_payload", {"path": ["a", "b"]}, number=7).value["previous"] == 3
    assert run(target, "tree.delete", {"path": ["a"]}, number=8).value == 2
    assert run(target, "tree.noop", number=9) == CommandAnswer()


def test_a_procedure_cannot_take_the_name_of_a_built_in_one() -> None:
    with pytest.raises(ValueError, match=r"tree\.put"):
        Machine({"tree.put": add})


def test_bytes_that_are_no_command_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    target = machine()
    with caplog.at_level(logging.CRITICAL):
        command_id, answer = target.apply(b"\xff\xff")
    assert command_id is None
    assert CommandAnswer.from_encoded(answer).code == "malformed_command"


@given(st.binary(max_size=64))
def test_any_bytes_are_a_command_or_malformed(encoded: bytes) -> None:
    try:
        command = decode_command_untrusted(encoded)
    except MalformedCommand:
        return
    assert decode_command_untrusted(encode_command(command)) == command


def test_a_command_of_an_older_log_raises_a_list_with_each_child_as_it_did_then() -> None:
    """The log is applied again after a restart: members have to come to the tree that was answered for."""
    target = machine()
    pattern = [ANY_NAME.to_data()]
    for number, name in enumerate("abc", 1):
        run(target, "tree.put", {"path": [name], "data": 1}, number=number)
    target.apply(encode_command(Command("tree.delete_many", {"path": pattern}, "c", 4, rules=1)))
    view = target.store.view(())
    assert view is not None
    assert view.child_list_version == 7
    for number, name in enumerate("abc", 5):
        run(target, "tree.put", {"path": [name], "data": 1}, number=number)
    run(target, "tree.delete_many", {"path": pattern}, number=8)
    view = target.store.view(())
    assert view is not None
    assert view.child_list_version == 11


def test_a_command_by_rules_that_nobody_knows_is_refused() -> None:
    for rules in (0, 3, True, "2"):
        with pytest.raises(MalformedCommand):
            decode_command_untrusted(encode(["p", None, "c", 1, rules]))


@pytest.mark.parametrize(
    "command",
    [
        Command("p", None, "", 1),
        Command("p", None, "c" * 256, 1),
        Command("p", None, "c", -1),
        Command("p", None, "c", True),
    ],
    ids=["no client", "long client", "negative number", "not a number"],
)
def test_a_command_without_a_proper_id_is_refused_at_the_sender(command: Command) -> None:
    with pytest.raises(MalformedCommand):
        encode_command(command)


def test_a_command_that_is_too_big_is_refused_at_the_sender() -> None:
    with pytest.raises(MalformedCommand, match="bytes"):
        encode_command(Command("p", b"x" * commands.MAX_COMMAND_BYTES, "c", 1))


def test_a_command_that_is_too_big_is_not_read_either() -> None:
    with pytest.raises(MalformedCommand, match="too many"):
        decode_command_untrusted(b"\x00" * (commands.MAX_COMMAND_BYTES + 1))


@pytest.mark.parametrize("encoded", [encode(7), encode([]), encode([1, "text", None]), encode(["code", "message"])])
def test_what_is_no_answer_is_not_taken_for_one(encoded: bytes) -> None:
    with pytest.raises(BadData, match="not an answer"):
        CommandAnswer.from_encoded(encoded)


def test_a_machine_knows_which_procedures_only_read() -> None:
    target = machine()
    known = [target.is_read_only(name) for name in ("tree.get", "tree.put", "add", "nobody declared this")]
    assert known == [True, False, False, False]


def test_a_forgotten_number_is_refused_and_not_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_ANSWERS", 3)
    target = machine()
    for number in range(5):
        run(target, "add", 1, number=number)
    assert run(target, "add", 1, number=1).code == "stale_command"
    assert run(target, "add", 1, number=2).value == 3
    assert target.store.get(("sum",)) == 5


def test_big_answers_are_remembered_for_fewer_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_ANSWER_BYTES", 3000)
    target = machine()
    run(target, "tree.put", {"path": ["big"], "data": "x" * 2000}, number=0)
    run(target, "tree.get", {"path": ["big"]}, number=1)
    run(target, "tree.get", {"path": ["big"]}, number=2)
    assert run(target, "tree.get", {"path": ["big"]}, number=1).code == "stale_command"
    assert run(target, "tree.get", {"path": ["big"]}, number=2).ok


def test_the_client_unused_for_the_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    target = machine()
    for client in ("a", "b", "a", "c"):
        run(target, "add", 1, client=client)
    assert target.answer_to("a", 1) is not None
    assert target.answer_to("b", 1) is None
    assert target.answer_to("c", 1) is not None


steps = st.tuples(st.sampled_from(["tree.put", "tree.delete", "add", "crash"]), close_paths, few_values)


@given(st.lists(st.tuples(steps, st.sampled_from("ab"), st.integers(0, 6)), max_size=30), st.integers(0, 30))
def test_a_member_restored_half_way_agrees_with_one_that_was_there_from_the_start(
    history: list[tuple[tuple[str, tuple[str, ...], Any], str, int]], cut: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "MAX_ANSWERS", 3)
        logging.disable(logging.CRITICAL)
        try:
            first, second = machine(), machine()
            for position, ((procedure, path, value), client, number) in enumerate(history):
                args = 1 if procedure == "add" else {"path": list(path), "data": value}
                encoded = encode_command(Command(procedure, args, client, number))
                if position == cut:
                    second = machine()
                    second.restore(decode(encode(first.to_data())))
                assert first.apply(encoded) == second.apply(encoded)
            assert first.digest() == second.digest()
        finally:
            logging.disable(logging.NOTSET)


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(BadData, match="format"):
        machine().restore({"format": 99})


def test_details_that_are_not_plain_do_not_stop_the_machine() -> None:
    def refuse(_transaction: Transaction, _args: Any) -> None:
        raise Abort("no", "because", object())

    answer = run(Machine({"refuse": refuse}), "refuse")
    assert (answer.code, answer.message) == ("no", "because")


@given(few_values, st.integers(0, 2**64 - 1))
def test_the_answer_of_a_write_has_the_bytes_of_its_data(previous: Any, version: int) -> None:
    written = Written(("a",), True, encode(previous), 1, encode("now"), version, 1, 0)
    assert encode(decode(written.to_bytes())) == encode(written.to_data())


def test_the_answer_of_a_first_write_says_that_there_was_nothing() -> None:
    answer = run(machine(), "tree.put", {"path": ["a"], "data": 1})
    assert answer.value == {"existed": False, "previous": None, "payload_version": 1}


@given(st.lists(st.integers(0, 30), max_size=40))
def test_of_one_client_the_lowest_numbers_are_forgotten_first_in_whatever_order_they_come(numbers: list[int]) -> None:
    session = ClientSession()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "MAX_ANSWERS", 4)
        model: set[int] = set()
        forgotten = -1
        for number in numbers:
            session.remember(number, b"%d" % number)
            if number > forgotten:
                model.add(number)
            while len(model) > 4:
                forgotten = max(forgotten, min(model))
                model.discard(min(model))
            assert [number for number in range(31) if session.remembered(number) is not None] == sorted(model)
            assert session.is_forgotten(forgotten) or forgotten == -1
            assert ClientSession.from_data(session.to_data()).to_data() == session.to_data()


def test_the_first_answer_to_a_number_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_ANSWERS", 2)
    monkeypatch.setattr(sessions, "MAX_ANSWER_BYTES", 12)
    session = ClientSession()
    session.remember(1, b"first ")
    session.remember(1, b"second")
    session.remember(2, b"second")
    assert (session.remembered(1), session.remembered(2)) == (b"first ", b"second"), "12 bytes, and 2 answers, fit"
    session.remember(3, b"third")
    session.remember(1, b"again")
    assert (session.remembered(1), session.is_forgotten(1), session.is_forgotten(2)) == (None, True, False)
    session.remember(4, b"more than 12 bytes")
    assert session.remembered(4) is not None, "the last one is always there"
    assert session.is_forgotten(3)


def test_a_state_has_no_more_sessions_than_a_machine_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    empty: Any = [-1, []]
    taken = sessions.ClientSessions()
    taken.add_untrusted([["a", empty], ["b", empty]])
    for row in (["b", empty], ["c", empty]):
        with pytest.raises(BadData, match="twice"):
            taken.add_untrusted([row])


def test_commands_of_one_entry_are_applied_in_order_and_what_is_none_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = machine()
    good = [encode_command(Command("add", number, "c", number)) for number in (1, 2, 3)]
    with caplog.at_level(logging.CRITICAL):
        answers = target.apply_entry(encode_entry([good[0], encode([1, 2]), good[1], good[0], good[2]]))
        assert target.apply_entry(b"\xff") == target.apply_entry(encode("text")) == []
    assert [(number, CommandAnswer.from_encoded(answer).value) for (_, number), answer in answers] == [
        (1, 1),
        (2, 3),
        (1, 1),
        (3, 6),
    ]
    assert target.apply_entry(good[0]) == answers[:1], "an entry of before there were several is its one command"


@given(st.integers(0, 70_000))
def test_an_entry_is_the_array_of_its_commands(count: int) -> None:
    assert decode(encode_entry([encode(None)] * count)) == [None] * count


def test_every_operation_of_the_store_is_a_command() -> None:
    target = machine()
    run(target, "tree.put", {"path": ["a", "b"], "data": 1, "full": True}, number=1)
    assert run(target, "tree.make", {"path": ["m"], "procedure": "p"}, number=2).ok
    assert run(target, "tree.view", {"path": ["m"]}, number=3).value["procedure"] == "p"
    assert run(target, "tree.view", {"path": ["missing"]}, number=4).value is None
    assert run(target, "tree.children", {"path": []}, number=5).value == ["a", "m"]
    assert run(target, "tree.has_data", {"path": ["a", "b"]}, number=6).value is True
    any_name = ["if_name_matches", None]
    (row,) = run(target, "tree.update_many", {"path": ["a", any_name], "data": 2}, number=7).value
    assert (row["path"], row["before"]["data"], row["after"]["data"]) == (["a", "b"], 1, 2)
    (row,) = run(target, "tree.clear_many_payloads", {"path": ["a", any_name]}, number=8).value
    assert row["after"]["payload_version"] == 3
    rows = run(target, "tree.delete_many", {"path": [any_name]}, number=9).value
    assert [row["reason"] for row in rows] == ["explicit"] * 3


def test_an_answer_that_tells_too_much_undoes_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    target = machine()
    for number in range(5):
        run(target, "tree.put", {"path": [str(number)], "data": "x" * 100}, number=number)
    everything = {"path": [["if_name_matches", None]]}
    monkeypatch.setattr(procedures, "MAX_RESULT_NODES", 4)
    assert run(target, "tree.delete_many", everything, number=10).code == "too_much"
    monkeypatch.setattr(procedures, "MAX_RESULT_NODES", 5)
    monkeypatch.setattr(procedures, "MAX_RESULT_BYTES", 400)
    assert run(target, "tree.get_many", everything, number=11).code == "too_much"
    assert target.store.count_below(()) == 5


@pytest.mark.parametrize(
    "args",
    [
        None,
        {"if": 1},
        {"if": [1]},
        {"if": [[["a"], ["if_node_exists", False]]] * 1025},
        {"then": 1},
        {"then": [1]},
        {"then": [{"path": ["a"]}]},
        {"then": [{"op": "transaction"}]},
        {"then": [{"op": ["put"]}]},
        {"then": [{"op": "get", "path": []}] * 1025},
        {"else": [], "if": [[["a"], ["if_node_exists", False]]], "then": [{"op": "put", "path": ["a"]}]},
    ],
)
def test_malformed_transactions_are_refused(args: Any) -> None:
    assert run(machine(), "tree.transaction", args).code == "bad_arguments"


def test_a_transaction_compares_every_node_that_matches() -> None:
    target = machine()
    run(target, "tree.put", {"path": ["a"], "data": 1}, number=1)
    run(target, "tree.put", {"path": ["b"], "data": 2}, number=2)
    any_name = ["if_name_matches", None]
    succeeded = [
        run(target, "tree.transaction", {"if": [[[any_name], condition]]}, number=3 + number).value["succeeded"]
        for number, condition in enumerate([["if_has_data", True], ["if_data_matches", 1], any_name])
    ]
    assert succeeded == [True, False, True]
    answer = run(target, "tree.transaction", {"then": [{"op": "put", "path": ["a"], "data": 5}]}, number=9)
    assert answer.value["results"] == [{"existed": True, "previous": 1, "payload_version": 2}]


def test_an_entry_that_is_no_list_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        assert machine().apply_entry(encode(5)) == []


def test_a_procedure_may_recurse_as_deep_on_every_member_however_deep_the_caller_is() -> None:
    def descend(transaction: Transaction, levels: int) -> int:
        return 0 if levels == 0 else 1 + descend(transaction, levels - 1)

    def deepest(padding: int) -> int:
        if padding:
            return deepest(padding - 1)
        target = Machine({"descend": descend})
        answers = target.apply_entry(
            encode_entry([encode_command(Command("descend", levels, "c", levels)) for levels in range(900, 1000)])
        )
        return max(number for (_, number), answer in answers if CommandAnswer.from_encoded(answer).ok)

    logging.disable(logging.CRITICAL)
    try:
        assert 900 < deepest(0) == deepest(1) == deepest(200) < 999
    finally:
        logging.disable(logging.NOTSET)


def test_a_member_without_memory_stops_instead_of_answering_for_the_others() -> None:
    def exhaust(_transaction: Transaction, _args: Any) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        Machine({"exhaust": exhaust}).apply_entry(encode_entry([encode_command(Command("exhaust", None, "c", 1))]))
