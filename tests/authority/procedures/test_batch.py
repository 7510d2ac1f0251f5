"""Many steps by one command come to what they come to one by one; who is refused keeps nobody else from counting."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.rows import Draft, Rows
from batonpass.authority.procedures.commit import TRANSFER_PROCEDURES
from batonpass.authority.procedures.table import MAX_STEPS, answer_of
from tests.authority.log import ADA, BALL, OTHER, S1, S2, S3, Log, new_log, request
from tests.authority.procedures.test_commit import CALLS, KINDS_OF_CALLS, attempt
from tests.authority.rows import DictRows
from tests.budget import examples

Call = tuple[str, dict[str, Any]]
STEPS = st.one_of([st.tuples(st.just(name), args) for name, args in KINDS_OF_CALLS if name in TRANSFER_PROCEDURES])


NEW = ("alpha.new", "alpha.newer", BALL)
BIRTHS = st.one_of(
    st.tuples(
        st.just("entity.create"),
        st.fixed_dictionaries(
            {
                "entity": st.sampled_from((*NEW, ADA, S1)),
                "kind": st.sampled_from(("ball", "cube")),
                "spawner": st.just(ADA),
                "server": st.sampled_from((S1, S2, "alpha.none")),
                "confirms": st.booleans(),
            }
        ),
    ),
    st.tuples(
        st.just("entity.confirm"),
        st.fixed_dictionaries({"entity": st.sampled_from(NEW), "born": st.integers(1, 3)}),
    ),
    st.tuples(
        st.just("entity.discard"),
        st.fixed_dictionaries(
            {"entity": st.sampled_from(NEW), "server": st.sampled_from((S1, S2)), "epoch": st.integers(1, 3)}
        ),
    ),
)


def each(log: Log, steps: list[Call], procedure: str = "transfer.each") -> list[Any]:
    """What became of every step: its answer, or why it was refused."""
    return [_outcome(verdict) for verdict in log.run(procedure, steps=steps)]


def _outcome(verdict: Mapping[str, Any]) -> Any:
    try:
        return answer_of(verdict)
    except Refused as refused:
        return refused.reason


@settings(max_examples=examples(40))
@given(st.lists(CALLS, max_size=15), st.lists(STEPS, max_size=15))
def test_together_they_come_to_what_they_come_to_one_by_one(before: list[Call], steps: list[Call]) -> None:
    together = new_log("allow")
    for name, args in before:
        attempt(together, name, args)
    apart = copy.deepcopy(together)
    assert each(together, steps) == [attempt(apart, name, args) for name, args in steps]
    assert together.rows.data == apart.rows.data


@settings(max_examples=examples(40))
@given(st.lists(BIRTHS, max_size=5), st.lists(BIRTHS, max_size=12))
def test_creations_together_come_to_what_they_come_to_one_by_one(before: list[Call], steps: list[Call]) -> None:
    together = new_log()
    for name, args in before:
        attempt(together, name, args)
    apart = copy.deepcopy(together)
    assert each(together, steps, "entity.each") == [attempt(apart, name, args) for name, args in steps]
    assert together.rows.data == apart.rows.data


def test_one_that_is_refused_leaves_nothing_and_keeps_no_other_from_counting() -> None:
    log = new_log()
    steps = [
        ("transfer.commit", request("t1")),
        ("transfer.commit", request("t2", entity="alpha.none")),
        ("transfer.commit", request("t3", target=S3, entity=OTHER)),
    ]
    first, second, third = each(log, steps)
    assert (first["outcome"], second, third["outcome"]) == ("committed", Reason.NOT_FOUND, "committed")
    assert (log.rows.entity(BALL).authority, log.rows.entity(OTHER).authority) == (S2, S3)
    assert log.rows.transfers() == ["t1", "t3"]


def test_a_refusal_says_to_whom_it_concerns_all_that_it_would_say_alone() -> None:
    log = new_log()
    verdicts = log.run("transfer.each", steps=[("transfer.report", {"transfer_id": "t1", "source": S1, "report": {}})])
    with pytest.raises(Refused) as together:
        answer_of(verdicts[0])
    alone = log.refuses(Reason.NOT_FOUND, "transfer.report", transfer_id="t1", source=S1, report={})
    assert (str(together.value), together.value.details) == (str(alone), alone.details)


def test_there_is_a_bound_and_only_steps_of_transfers_count() -> None:
    log = new_log()
    log.refuses(Reason.FULL, "transfer.each", steps=[("transfer.commit", request())] * (MAX_STEPS + 1))
    before = dict(log.rows.data)
    with pytest.raises(KeyError):
        log.run("transfer.each", steps=[("transfer.commit", request()), ("entity.delete", {})])
    with pytest.raises(KeyError):
        log.run("entity.each", steps=[("entity.delete", {"entity": BALL, "by": ADA, "master_rev": 1})])
    assert log.rows.data == before, "a crash leaves nothing of those before it"


def test_a_draft_shows_what_its_steps_wrote_and_not_what_was_undone() -> None:
    rows = DictRows()
    rows.put(("asks", "old"), 1)
    draft = Draft(rows)

    def change(rows: Rows, args: Mapping[str, Any]) -> Any:
        rows.put(("asks", "new"), args["data"])
        rows.delete(("asks", "old"))
        if args.get("fails"):
            raise Refused(Reason.FULL, "no")
        return rows.count_children(("asks",)), rows.get_or(("asks", "old"), None), rows.get_or(("asks", "new"), None)

    with pytest.raises(Refused):
        draft.run(change, {"data": 2, "fails": True})
    looks = draft.run(lambda rows, _: (rows.count_children(("asks",)), rows.get_or(("asks", "old"), None)), {})
    assert looks == (1, 1)
    assert draft.run(change, {"data": 3}) == (1, None, 3)
    assert rows.data == {("asks", "old"): "1"}
    draft.write()
    assert rows.data == {("asks", "new"): "3"}
