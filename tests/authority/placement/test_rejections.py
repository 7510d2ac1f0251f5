"""What was refused is ordered elsewhere for a while: a drain ends if anybody takes what is left."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import Reason
from batonpass.authority.placement.policy import Balance, Resident, ServerLoad, View, emptied, relieve
from batonpass.authority.placement.rejections import REFUSED_S, Refusals
from batonpass.authority.wire.placement import MoveItem
from tests.budget import examples

SOURCE, COOL, ROOMY = "alpha.s1", "alpha.s2", "alpha.s3"
KINDS = ("ball", "crate", "log")


def transfer(entity: str, turn: int = 0) -> str:
    """The id of an order."""
    return f"transfer-{entity.replace('.', '-')}-{turn}"


class Known:
    """Refusals, with what the log says."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.refusals = Refusals(lambda entity: entity.partition(".")[2].partition("-")[0], self.reasons.get)

    def order(self, *entities: str, target: str = COOL, at_s: float = 0.0, hold_s: float = 0.0) -> None:
        items = [MoveItem(transfer_id=transfer(entity), entity=entity, target=target) for entity in entities]
        self.refusals.ordered(SOURCE, items, at_s, hold_s)

    def still_there(self, *entities: str, asked_s: float = 1.0, server: str = SOURCE) -> None:
        self.refusals.still_there([Resident(entity, server) for entity in entities], asked_s, asked_s)

    def refused(self, entity: str, now_s: float = 1.0) -> set[str]:
        return set(self.refusals.of([Resident(entity, SOURCE)], now_s).get(entity, {}))


def test_if_none_of_a_kind_left_the_kind_is_not_ordered_there_and_if_one_did_others_are() -> None:
    known = Known()
    known.order("alpha.ball-1", "alpha.ball-2", "alpha.crate-1", "alpha.crate-2")
    known.still_there("alpha.ball-1", "alpha.crate-1", "alpha.crate-2")
    assert known.refused("alpha.ball-1") == {COOL}
    assert known.refused("alpha.ball-3") == set(), "alpha.ball-2 has left"
    assert known.refused("alpha.crate-3") == {COOL}
    known.still_there("alpha.ball-2")
    assert known.refused("alpha.ball-3") == {COOL}, "it had only waited"


def test_the_reason_in_the_log_says_for_whom_it_counts() -> None:
    for reason, others in (
        (Reason.CAPACITY, {"alpha.ball-2", "alpha.crate-2"}),
        (Reason.INCOMPATIBLE, {"alpha.ball-2"}),
        (Reason.TARGET_FAILED, set()),
        (Reason.ATTACHED, set()),
    ):
        known = Known()
        known.reasons[transfer("alpha.ball-1")] = reason
        known.order("alpha.ball-1")
        known.still_there("alpha.ball-1")
        assert known.refused("alpha.ball-1") == {COOL}
        assert {name for name in ("alpha.ball-2", "alpha.crate-2") if known.refused(name)} == others
        assert known.refused("alpha.ball-1", 1.0 + REFUSED_S) == set()
    committed = Known()
    committed.reasons[transfer("alpha.ball-1")] = ""
    committed.order("alpha.ball-1")
    committed.still_there("alpha.ball-1")
    assert committed.refused("alpha.ball-1") == set(), "it has been there, and is back"


def test_who_was_refused_is_told() -> None:
    known = Known()
    known.reasons[transfer("alpha.ball-1")] = ""
    known.order("alpha.ball-1", "alpha.ball-2", "alpha.ball-3")
    residents = [Resident(f"alpha.ball-{number}", SOURCE) for number in (1, 2, 4)]
    assert known.refusals.still_there(residents, 1.0, 1.0) == ["alpha.ball-2"]


def test_who_had_stood_still_for_it_may_have_been_refused_for_a_reason_of_its_own() -> None:
    known = Known()
    known.order("alpha.ball-1")
    known.still_there("alpha.ball-1", asked_s=2.5)
    assert known.refused("alpha.ball-1", 2.5) == {COOL}
    assert known.refused("alpha.ball-2", 2.5) == set()


def test_a_census_that_was_asked_for_before_the_order_or_of_another_server_says_nothing_of_it() -> None:
    known = Known()
    known.order("alpha.ball-1", at_s=1.0)
    known.still_there("alpha.ball-1", asked_s=1.0)
    known.still_there("alpha.ball-1", asked_s=2.0, server=ROOMY)
    assert known.refused("alpha.ball-1", 2.0) == set()
    known.order("alpha.ball-9", at_s=90.0)
    known.still_there("alpha.ball-1", asked_s=91.0)
    assert known.refused("alpha.ball-1", 91.0) == set(), "too long ago to be known"


def test_it_is_remembered_until_it_could_be_ordered_again_and_longer() -> None:
    """Balance leaves alone for the hold whom it has ordered away, also in vain."""
    known = Known()
    known.order("alpha.ball-1", hold_s=30.0)
    known.still_there("alpha.ball-1")
    assert known.refused("alpha.ball-1", 30.0 + REFUSED_S) == {COOL}
    assert known.refused("alpha.ball-2", 30.0 + REFUSED_S) == set()
    assert known.refused("alpha.ball-1", 31.5 + REFUSED_S) == set()


def test_whoever_takes_one_takes_its_kind() -> None:
    known = Known()
    known.reasons[transfer("alpha.ball-1")] = Reason.CAPACITY
    known.order("alpha.ball-1", "alpha.crate-1")
    known.still_there("alpha.ball-1", "alpha.crate-1")
    known.refusals.arrived("alpha.crate-7", COOL)
    assert known.refused("alpha.crate-2") == known.refused("alpha.ball-2") == set()
    assert known.refused("alpha.crate-1") == known.refused("alpha.ball-1") == {COOL}
    known.refusals.arrived("alpha.ball-1", COOL)
    assert known.refused("alpha.ball-1") == set()


def test_a_target_that_is_drained_no_more_has_refused_nothing_also_if_that_shows_only_later() -> None:
    known = Known()
    known.reasons[transfer("alpha.ball-1")] = Reason.CAPACITY
    known.order("alpha.ball-1", "alpha.crate-1", "alpha.log-1")
    known.order("alpha.ball-2", target=ROOMY)
    known.still_there("alpha.ball-1", "alpha.crate-1")
    known.refusals.opened(COOL)
    known.still_there("alpha.log-1", "alpha.ball-2")
    for kind in KINDS:
        assert known.refused(f"alpha.{kind}-1") == ({ROOMY} if kind == "ball" else set())
        assert known.refused(f"alpha.{kind}-9") == ({ROOMY} if kind == "ball" else set())


def test_of_how_many_it_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.authority.placement.rejections.MAX_REMEMBERED", 100)
    known = Known()
    names = [f"alpha.e{number}-x" for number in range(150)]
    known.order(*names)
    known.still_there(*names)
    known.order(*names)
    for table in (known.refusals._orders, known.refusals._of_entities._rows, known.refusals._of_kinds._rows):
        assert len(table) == 100


@dataclass
class Target:
    """A server that takes entities of these kinds, and so many."""

    kinds: Collection[str]
    room: int
    held: list[str] = field(default_factory=list)

    def takes(self, entity: str) -> bool:
        return entity.partition(".")[2].partition("-")[0] in self.kinds and len(self.held) < self.room


TARGETS = st.builds(Target, st.frozensets(st.sampled_from(KINDS)), st.integers(0, 30))


@given(st.lists(TARGETS, min_size=1, max_size=4), st.lists(st.sampled_from(KINDS), max_size=30))
@settings(max_examples=examples(50))
def test_a_drain_goes_on_until_nobody_takes_anything_of_what_is_left(targets: list[Target], kinds: list[str]) -> None:
    """Rounds ten times a second; of those that take it, the first is always the coolest."""
    servers = {f"alpha.t{number}": target for number, target in enumerate(targets)}
    loads = [ServerLoad(SOURCE, 0.9, draining=True)]
    loads += [ServerLoad(name, number / 10) for number, name in enumerate(servers)]
    left = [f"alpha.{kind}-{number}" for number, kind in enumerate(kinds)]
    known, asked = Known(), Counter[tuple[str, str]]()
    rounds = 10 * len(targets)
    for turn in range(1, rounds + 1):
        now_s, residents = turn / 10, [Resident(entity, SOURCE) for entity in left]
        known.refusals.still_there(residents, now_s, now_s)
        moves = relieve(View(tuple(loads), tuple(residents), {}, known.refusals.of(residents, now_s)), Balance())
        items = [
            MoveItem(transfer_id=transfer(move.entity, turn), entity=move.entity, target=move.target) for move in moves
        ]
        known.refusals.ordered(SOURCE, items, now_s, 0.0)
        for move in moves:
            asked[move.entity, move.target] += 1
            if servers[move.target].takes(move.entity):
                servers[move.target].held.append(move.entity)
                left.remove(move.entity)
                known.refusals.arrived(move.entity, move.target)
    assert not [(entity, name) for entity in left for name, target in servers.items() if target.takes(entity)]
    for (entity, _), times in asked.items():
        assert times == 1 or entity in left


def test_failures_row_28_a_form_that_nobody_takes_does_not_end_the_balance_of_all_of_the_kind() -> None:
    """It is offered to s2 and s3 every ten seconds, and each refuses it (`incompatible`)."""
    later = Resident("alpha.later", "alpha.s1", 100.0, 0.0, untaken=True)
    residents = (later, *(Resident(f"alpha.b{number}", "alpha.s1", 100.0, 0.1) for number in range(9)))
    loads = (ServerLoad("alpha.s1", 0.9, 10, untaken=1), ServerLoad("alpha.s2", 0.1), ServerLoad("alpha.s3", 0.1))
    refusals = Refusals(lambda _entity: "ball", lambda _transfer: None)
    relieved = 0
    for tenth in range(600):
        now_s = 100.0 + tenth / 10
        refusals.still_there(residents, now_s - 0.01, now_s)
        view = View(loads, residents, {}, refusals.of(residents, now_s))
        for move in emptied(view, ()):
            assert move.entity == later.entity
            item = MoveItem(transfer_id="t-000001", entity=move.entity, target=move.target)
            refusals.ordered("alpha.s1", [item], now_s, 0.0)
        relieved += any(move.entity != later.entity for move in relieve(view, Balance()))
    assert relieved > 500
