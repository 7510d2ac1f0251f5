"""Triggers queue what fired until it is acknowledged; projections are tables that follow the tree."""

import logging
from typing import Any

import pytest

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.path import Path
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.store import triggers as triggers_module
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, pattern_to_data
from batonpass.tree.store.procedures import read_only
from batonpass.tree.store.projections import MAX_PROJECTIONS
from batonpass.tree.store.transaction import Transaction
from batonpass.tree.store.triggers import MAX_TRIGGERS, Fired, Trigger, Triggers


def names_to_data(table: dict[Any, Any], path: Path, before: NodeView | None, after: NodeView | None) -> None:
    if after is None:
        del table[path[-1]]
    else:
        table[path[-1]] = after.data
    assert before is not None or after is not None


def crash_at_three(table: dict[Any, Any], path: Path, _before: NodeView | None, after: NodeView | None) -> None:
    if after is not None and after.data == 3:
        raise ZeroDivisionError("three")
    table[path] = True


@read_only
def double(transaction: Transaction, args: Any) -> Any:
    return 2 * transaction.get_or(("n",), 0) + (args or 0)


def add(transaction: Transaction, args: Any) -> Any:
    return transaction.put(("n",), transaction.get_or(("n",), 0) + args)


class Driver:
    """A machine given commands as the log would."""

    def __init__(self) -> None:
        self.machine = Machine({"double": double, "add": add}, {"names": names_to_data, "crashing": crash_at_three})
        self._number = 0

    def run(self, command: str, /, **args: Any) -> CommandAnswer:
        self._number += 1
        _, answer = self.machine.apply(encode_command(Command(command, args, "test", self._number)))
        return CommandAnswer.from_encoded(answer)

    def put(self, *path: str, data: Any) -> CommandAnswer:
        return self.run("tree.put", path=list(path), data=data)

    def store_procedure(self, *path: str, name: str = "notify") -> None:
        assert self.run("tree.put", path=list(path), procedure=name).ok

    def trigger(self, trigger_id: str, *pattern: Any, **options: Any) -> CommandAnswer:
        return self.run(
            "tree.register_trigger",
            id=trigger_id,
            pattern=pattern_to_data(pattern),
            procedure_path=["procedures", "p"],
            **options,
        )

    def fired(self) -> list[tuple[str, str, str]]:
        return [(fired.trigger, str(fired.kind), "/".join(fired.path)) for fired in self.machine.pending_triggers()]

    def restarted(self) -> "Driver":
        """Another machine from this one's snapshot."""
        other = Driver()
        other.machine.restore(decode(encode(self.machine.to_data())))
        other._number = self._number
        assert other.machine.digest() == self.machine.digest()
        return other


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.store_procedure("procedures", "p")
    return driver


# --- triggers -----------------------------------------------------------------------------------------------------


def test_what_fires_waits_until_it_is_acknowledged(driver: Driver) -> None:
    assert driver.trigger("t", "jobs", ANY_NAME).ok
    driver.put("jobs", "a", data=1)
    driver.put("jobs", "a", data=2)
    driver.run("tree.delete", path=["jobs", "a"])
    assert driver.fired() == [("t", "created", "jobs/a"), ("t", "updated", "jobs/a"), ("t", "deleted", "jobs/a")]
    first, second, third = driver.machine.pending_triggers()
    assert (first.procedure, first.revision, first.payload_version) == ("notify", 2, 1)
    assert driver.run("tree.trigger_done", numbers=[first.number, third.number]).value == 2
    assert driver.run("tree.trigger_done", numbers=[first.number]).value == 0
    assert driver.machine.pending_triggers() == (second,)


def test_only_the_kinds_asked_for_fire(driver: Driver) -> None:
    driver.trigger("t", "a", kinds=["deleted"])
    driver.put("a", data=1)
    driver.run("tree.delete", path=["a"])
    assert driver.fired() == [("t", "deleted", "a")]


def test_higher_priorities_come_first_then_the_lower_id(driver: Driver) -> None:
    driver.trigger("b", "x")
    driver.trigger("a", "x")
    driver.trigger("urgent", "x", priority=5)
    driver.put("x", data=1)
    assert [trigger for trigger, _, _ in driver.fired()] == ["urgent", "a", "b"]


def test_a_missing_procedure_is_ignored(driver: Driver) -> None:
    driver.trigger("t", "a")
    driver.run("tree.delete", path=["procedures"])
    driver.put("a", data=1)
    driver.put("procedures", "p", data="data is no procedure")
    driver.put("a", data=2)
    assert driver.fired() == []
    driver.store_procedure("procedures", "p")
    driver.put("a", data=3)
    assert driver.fired() == [("t", "updated", "a")]


def test_a_refused_command_fires_nothing(driver: Driver) -> None:
    driver.trigger("t", ANY_DEPTH)
    operations = [{"op": "put", "path": ["a"], "data": 1}, {"op": "get", "path": ["missing"]}]
    assert not driver.run("tree.transaction", then=operations).ok
    assert driver.fired() == []


def test_what_waits_survives_a_snapshot_and_goes_on(driver: Driver) -> None:
    driver.trigger("t", "a")
    driver.put("a", data=1)
    other = driver.restarted()
    assert other.machine.pending_triggers() == driver.machine.pending_triggers()
    for one in (driver, other):
        one.put("a", data=2)
    assert other.fired() == driver.fired()
    assert other.machine.digest() == driver.machine.digest()
    assert other.machine.store.revision == driver.machine.store.revision


def test_unregistering_drops_what_waits(driver: Driver) -> None:
    driver.trigger("t", "a")
    driver.put("a", data=1)
    assert driver.run("tree.unregister_trigger", id="t").value is True
    assert driver.run("tree.unregister_trigger", id="t").value is False
    driver.put("a", data=2)
    assert driver.fired() == []
    assert driver.machine.store.observers == [], "commits are not collected for nobody"


def test_registering_again_replaces(driver: Driver) -> None:
    driver.trigger("t", "a")
    driver.trigger("t", "b", priority=-3)
    driver.put("a", data=1)
    driver.put("b", data=1)
    assert driver.fired() == [("t", "created", "b")]
    (row,) = driver.run("tree.triggers").value
    assert (row["id"], row["pattern"], row["priority"]) == ("t", ["b"], -3)


def test_a_full_queue_counts_what_it_cannot_take(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers_module, "MAX_PENDING", 2)
    driver.trigger("t", "a")
    for value in range(5):
        driver.put("a", data=value)
    pending = driver.machine.pending_triggers()
    assert [fired.missed for fired in pending] == [0, 0]
    driver.run("tree.trigger_done", numbers=[fired.number for fired in pending])
    other = driver.restarted()
    other.put("a", data="next")
    assert [fired.missed for fired in other.machine.pending_triggers()] == [3]


def test_there_is_room_for_so_many_triggers_only() -> None:
    triggers = Triggers()
    for number in range(MAX_TRIGGERS):
        triggers.register(Trigger(f"t{number}", ("a",), ("p",)))
    triggers.register(Trigger("t0", ("b",), ("p",)))
    with pytest.raises(Exception, match="already"):
        triggers.register(Trigger("one too many", ("a",), ("p",)))


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"id": ""},
        {"id": "t", "pattern": ["a"]},
        {"id": "t", "pattern": [1], "procedure_path": ["p"]},
        {"id": "t", "pattern": ["a"], "procedure_path": [["if_name_matches", None]]},
        {"id": "t", "pattern": ["a"], "procedure_path": ["p"], "kinds": []},
        {"id": "t", "pattern": ["a"], "procedure_path": ["p"], "kinds": ["children"]},
        {"id": "t", "pattern": ["a"], "procedure_path": ["p"], "priority": True},
        {"id": "t", "pattern": ["a"], "procedure_path": ["p"], "priority": 2**31},
        {"id": "t", "pattern": [["if_has_data", True], "a"], "procedure_path": ["p"]},
    ],
)
def test_malformed_triggers_are_refused(driver: Driver, args: dict[str, Any]) -> None:
    assert driver.run("tree.register_trigger", **args).code == "bad_data"


@pytest.mark.parametrize("numbers", [None, "1", [True], [1.0], list(range(5000))])
def test_malformed_acknowledgements_are_refused(driver: Driver, numbers: Any) -> None:
    assert driver.run("tree.trigger_done", numbers=numbers).code == "bad_arguments"


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"triggers": [], "pending": [[]], "missed": {}, "next_number": 1},
        [1, "id", "procedure", 1, "no kind of event", ["a"], 1, 0],
    ],
)
def test_what_is_no_state_of_triggers_is_refused(data: Any) -> None:
    with pytest.raises(BadData):
        Triggers.from_data_untrusted(data)
    with pytest.raises(BadData):
        Fired.from_data_untrusted(data)


# --- projections --------------------------------------------------------------------------------------------------


def test_a_projection_is_filled_and_follows(driver: Driver) -> None:
    driver.put("players", "a", data=1)
    driver.put("players", "b", data=2)
    assert driver.run("tree.register_projection", name="names", pattern=pattern_to_data(("players", ANY_NAME))).ok
    table = driver.machine.projection("names")
    assert table == {"a": 1, "b": 2}
    driver.put("players", "c", data=3)
    driver.run("tree.delete", path=["players", "a"])
    driver.put("elsewhere", data=1)
    assert table == {"b": 2, "c": 3}
    (status,) = driver.machine.projections()
    assert (status.name, status.rows, status.broken) == ("names", 2, "")


def test_a_node_that_stops_matching_leaves_the_table(driver: Driver) -> None:
    pattern = [["all_of", [["if_name_matches", None], ["not_of", ["if_data_matches", "hidden"]]]]]
    driver.run("tree.register_projection", name="names", pattern=pattern)
    driver.run("tree.delete", path=["procedures"])
    driver.put("a", data=1)
    driver.put("a", data="hidden")
    driver.put("b", data="hidden")
    driver.put("b", data=2)
    assert driver.machine.projection("names") == {"b": 2}


def test_tables_are_made_anew_from_a_snapshot(driver: Driver) -> None:
    driver.run("tree.register_projection", name="names", pattern=["players", ["if_name_matches", None]])
    driver.put("players", "a", data=1)
    other = driver.restarted()
    other.put("players", "b", data=2)
    assert other.machine.projection("names") == {"a": 1, "b": 2}


def test_a_crashing_projection_does_not_stop_the_machine(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.run("tree.register_projection", name="crashing", pattern=[["if_path_matches", None]])
    with caplog.at_level(logging.CRITICAL):
        for value in range(6):
            assert driver.put("a", data=value).ok
    (status,) = driver.machine.projections()
    assert "three" in status.broken
    assert driver.machine.store.get(("a",)) == 5
    driver.run("tree.register_projection", name="crashing", pattern=[["if_path_matches", None]])
    assert driver.machine.projections()[0].broken == "", "registered again, it gets another chance"


def test_a_program_without_the_projection_can_still_read_the_snapshot(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.run("tree.register_projection", name="names", pattern=["a"])
    other = Machine({})
    with caplog.at_level(logging.CRITICAL):
        other.restore(decode(encode(driver.machine.to_data())))
    assert "declare" in other.projections()[0].broken
    assert other.digest() == driver.machine.digest()


def test_projections_can_be_given_up(driver: Driver) -> None:
    driver.run("tree.register_projection", name="names", pattern=["a"])
    assert driver.run("tree.projections").value == [["names", ["a"]]]
    assert driver.run("tree.unregister_projection", name="names").value is True
    assert driver.run("tree.unregister_projection", name="names").value is False
    with pytest.raises(KeyError):
        driver.machine.projection("names")
    assert driver.machine.store.observers == []


def test_malformed_projections_are_refused(driver: Driver) -> None:
    assert driver.run("tree.register_projection", name="undeclared", pattern=["a"]).code == "unknown_projection"
    assert driver.run("tree.register_projection", name=1, pattern=["a"]).code == "bad_arguments"
    assert driver.run("tree.register_projection", name="names", pattern=[1]).code == "bad_path"
    assert driver.run("tree.register_projection", name="names").code == "bad_path"
    state = driver.machine.to_data()
    triggers, _ = state["registrations"]
    malformed: list[Any] = [None, [], [{}, []], [triggers, [["x", [1]]]], [triggers, [1]], [triggers, 1]]
    for registrations in malformed:
        with pytest.raises(BadData):
            driver.machine.restore({**state, "registrations": registrations})
    many = [[f"p{number}", ["a"]] for number in range(MAX_PROJECTIONS + 1)]
    with pytest.raises(BadData):
        driver.machine.restore({**state, "registrations": [triggers, many]})


def test_there_is_a_bounded_number_of_projections() -> None:
    machine = Machine({}, {f"p{number}": names_to_data for number in range(MAX_PROJECTIONS + 1)})
    answers = [
        machine.apply(
            encode_command(Command("tree.register_projection", {"name": f"p{number}", "pattern": ["a"]}, "c", at))
        )[1]
        # Registering one again needs no room; the last one would be one too many.
        for at, number in enumerate([*range(MAX_PROJECTIONS), 0, MAX_PROJECTIONS])
    ]
    assert {CommandAnswer.from_encoded(answer).code for answer in answers[:-1]} == {None}
    assert CommandAnswer.from_encoded(answers[-1]).code == "too_much"


# --- stored and read-only procedures ------------------------------------------------------------------------------


def test_a_stored_procedure_is_run_by_its_path(driver: Driver) -> None:
    driver.store_procedure("adder", name="add")
    assert driver.run("tree.run", path=["adder"], args=4).value["payload_version"] == 1
    assert driver.machine.store.get(("n",)) == 4
    driver.store_procedure("getter", name="tree.get")
    assert driver.run("tree.run", path=["getter"], args={"path": ["n"]}).value == 4


def test_what_cannot_be_run_says_why(driver: Driver) -> None:
    driver.put("data", data=1)
    driver.store_procedure("itself", name="tree.run")
    driver.store_procedure("unknown", name="nobody declared this")
    assert driver.run("tree.run", path=["missing"]).code == "node_not_found"
    assert driver.run("tree.run", path=["data"]).code == "no_stored_procedure"
    assert driver.run("tree.run", path=["itself"], args={"path": ["itself"]}).code == "unknown_procedure"
    assert driver.run("tree.run", path=["unknown"]).code == "unknown_procedure"
    assert driver.run("tree.put", path=["a"], procedure=5).code == "bad_data"
    _, answer = driver.machine.apply(encode_command(Command("tree.run", None, "other", 1)))
    assert CommandAnswer.from_encoded(answer).code == "bad_arguments"


def test_a_read_only_procedure_runs_outside_the_log_too(driver: Driver) -> None:
    driver.put("n", data=21)
    assert driver.run("double").value == 42
    assert CommandAnswer.from_encoded(driver.machine.read("double")).value == 42
    assert CommandAnswer.from_encoded(driver.machine.read("tree.get", {"path": ["n"]})).value == 21
    assert CommandAnswer.from_encoded(driver.machine.read("tree.get", {"path": ["m"]})).code == "node_not_found"
    assert (
        CommandAnswer.from_encoded(driver.machine.read("tree.put", {"path": ["n"], "data": 1})).code == "not_read_only"
    )
    assert CommandAnswer.from_encoded(driver.machine.read("nobody declared this")).code == "not_read_only"


def test_a_procedure_that_lied_about_only_reading_is_refused() -> None:
    @read_only
    def liar(transaction: Transaction, args: Any) -> None:
        getattr(transaction, args)(("a",), *([1] if args != "clear_payload" else []))

    machine = Machine({"liar": liar})
    for number, operation in enumerate(["put", "create", "update", "put_many", "update_many", "clear_payload"]):
        _, answer = machine.apply(encode_command(Command("liar", operation, "c", number)))
        assert CommandAnswer.from_encoded(answer).code == "read_only_transaction"
    assert machine.store.revision == 0


def test_a_pattern_of_many_parts_cannot_be_registered_and_one_that_is_stays(driver: Driver) -> None:
    many = [["any_of", [str(number) for number in range(8)]]]
    args = {"id": "t", "pattern": many, "procedure_path": ["p"]}
    assert driver.run("tree.register_trigger", **args).code == "bad_pattern"
    assert driver.run("tree.register_projection", name="names", pattern=many).code == "bad_pattern"
    registered = Triggers()
    registered.register(Trigger.from_data_untrusted(args))
    assert Triggers.from_data_untrusted(registered.to_data()).all() == registered.all()


@pytest.mark.parametrize("path", ["a", [1], [""], ["a"] * 40, {"a": 1}])
def test_what_fired_at_something_that_is_no_path_is_refused_as_bad_data(path: Any) -> None:
    with pytest.raises(BadData):
        Fired.from_data_untrusted([1, "t", "p", 3, "created", path, 1, 0])
