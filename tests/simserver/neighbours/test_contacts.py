"""Contacts of two servers: whatever is lost or late, one has the entity, it moves within bounds, and comes to rest."""

from collections import Counter
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batonpass.authority.fence import Fence
from batonpass.simserver.neighbours.contact_policy import CARRIED, DRIVEN, MeetingEntity, default_policy
from batonpass.simserver.neighbours.contacts import (
    AGAIN_ROUNDS,
    BUDGET,
    BUDGET_ROUNDS,
    HOLD_ROUNDS,
    REST_ROUNDS,
    Claim,
    Contacts,
)
from tests.budget import examples

HERE, THERE = "alpha.s1", "alpha.s2"
ROBOT, BOX = "alpha.robot", "alpha.box"


class Sights:
    """What one server sees; all of it under the test's hand."""

    def __init__(self) -> None:
        self.own: dict[str, tuple[Fence, int]] = {}
        self.ghosts: dict[str, tuple[MeetingEntity, Fence]] = {}
        self.driven: set[str] = set()
        self.moved: dict[str, int] = {}

    def here(self, entity: str) -> tuple[Fence, int] | None:
        return self.own.get(entity)

    def ghost(self, entity: str) -> tuple[MeetingEntity, Fence] | None:
        return self.ghosts.get(entity)

    def is_driven(self, entity: str) -> bool:
        return entity in self.driven

    def moved_in(self, entity: str) -> int:
        return self.moved.get(entity, 0)


class Side:
    """One server's contacts, and what it did."""

    def __init__(self, server: str) -> None:
        self.sights = Sights()
        self.gave: list[tuple[str, str, str]] = []
        self.sent_back: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.contacts = Contacts(
            server, default_policy, self.sights, self._give, self._send_back, lambda what: self.counts.update([what])
        )

    def _give(self, entity: str, server: str, contact: str) -> None:
        self.gave.append((entity, server, contact))

    def _send_back(self, entity: str, server: str) -> None:
        self.sent_back.append((entity, server))

    def rounds(self, upto: int, *, settled: bool = False) -> None:
        self.contacts.round_is_over(upto, lambda entity: settled)


def pushing() -> Side:
    """A robot that a player drives is here, and the ghost of a box."""
    side = Side(HERE)
    side.sights.own[ROBOT] = Fence(3), 0
    side.sights.driven.add(ROBOT)
    side.sights.ghosts[BOX] = MeetingEntity(BOX, 0, 0, THERE), Fence(7)
    side.rounds(100)
    return side


def pushed() -> Side:
    """The box is here, and the ghost of the robot."""
    side = Side(THERE)
    side.sights.own[BOX] = Fence(7), 0
    side.sights.ghosts[ROBOT] = MeetingEntity(ROBOT, DRIVEN, 0, HERE), Fence(3)
    side.rounds(100)
    return side


def test_a_driven_robot_claims_the_box_that_it_touches_and_gets_it() -> None:
    (claim,) = pushing().contacts.touched(ROBOT, [BOX])
    assert claim == Claim(ROBOT, Fence(3), BOX, Fence(7), THERE)
    there = pushed()
    there.contacts.claimed(claim, HERE)
    assert there.gave == [(BOX, HERE, ROBOT)]


def test_the_box_says_so_itself_if_its_world_notices_first() -> None:
    there = pushed()
    assert there.contacts.touched(BOX, [ROBOT]) == []
    assert there.gave == [(BOX, HERE, ROBOT)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ghost_fence": Fence(6)}, "contact_stale"),
        ({"ghost": "alpha.elsewhere"}, "contact_stale"),
        ({"fence": Fence(2)}, "contact_unseen"),
        ({"entity": "alpha.nobody"}, "contact_unseen"),
    ],
)
def test_a_claim_that_this_server_cannot_see_counts_for_nothing(changes: dict[str, Any], why: str) -> None:
    there = pushed()
    fields = {"entity": ROBOT, "fence": Fence(3), "ghost": BOX, "ghost_fence": Fence(7), "server": THERE} | changes
    there.contacts.claimed(Claim(**fields), HERE)
    assert (there.gave, there.counts[why]) == ([], 1)


def test_a_claim_of_another_server_than_the_ghosts_counts_for_nothing() -> None:
    there = pushed()
    there.contacts.claimed(Claim(ROBOT, Fence(3), BOX, Fence(7), THERE), "alpha.s3")
    assert (there.gave, there.counts["contact_unseen"]) == ([], 1)


def test_a_claim_of_what_ranks_lower_is_not_followed() -> None:
    there = pushed()
    there.sights.driven.add(BOX)
    there.contacts.claimed(Claim(ROBOT, Fence(3), BOX, Fence(7), THERE), HERE)
    assert (there.gave, there.counts["contact_outranked"]) == ([], 1)


def test_a_ghost_is_claimed_once_in_a_while_however_often_it_is_touched() -> None:
    side = pushing()
    claims = []
    for number in range(100, 100 + 2 * AGAIN_ROUNDS):
        side.rounds(number)
        claims += side.contacts.touched(ROBOT, [BOX, BOX])
    assert len(claims) == 2


def test_what_came_a_moment_ago_stays() -> None:
    there = pushed()
    there.contacts.came(BOX)
    there.rounds(99 + HOLD_ROUNDS)
    there.contacts.touched(BOX, [ROBOT])
    assert (there.gave, there.counts["contact_held"]) == ([], 1)
    there.rounds(100 + HOLD_ROUNDS)
    there.contacts.touched(BOX, [ROBOT])
    assert len(there.gave) == 1


def test_no_more_go_in_a_second_than_the_budget_has() -> None:
    there = pushed()
    many = [f"alpha.box-{number}" for number in range(BUDGET + 5)]
    for name in many:
        there.sights.own[name] = Fence(1), 0
        there.contacts.touched(name, [ROBOT])
    assert (len(there.gave), there.counts["contact_over_budget"]) == (BUDGET, 5)
    there.rounds(100 + BUDGET_ROUNDS)
    there.contacts.touched(many[-1], [ROBOT])
    assert len(there.gave) == BUDGET + 1


def taken() -> Side:
    """The box has come to the robot."""
    side = pushing()
    side.contacts.touched(ROBOT, [BOX])
    del side.sights.ghosts[BOX]
    side.sights.own[BOX] = Fence(8), 0
    side.sights.moved[BOX] = 101
    side.rounds(101)
    side.contacts.came(BOX)
    return side


def test_what_was_taken_is_carried_and_held_until_it_is_at_rest_and_then_goes_back() -> None:
    side = taken()
    assert side.contacts.rank(BOX) == CARRIED
    assert side.contacts.holds(BOX)
    assert BOX in side.contacts.reranked
    side.rounds(100 + REST_ROUNDS)
    assert side.contacts.rank(BOX) == 0
    assert side.contacts.holds(BOX)
    side.rounds(101 + REST_ROUNDS)
    assert not side.contacts.holds(BOX)
    assert side.sent_back == [(BOX, THERE)]


def test_how_long_a_contact_took_is_counted_from_its_first_claim() -> None:
    side = pushing()
    for number in range(100, 100 + AGAIN_ROUNDS + 3):
        side.rounds(number)
        side.contacts.touched(ROBOT, [BOX])
    side.sights.own[BOX] = Fence(8), 0
    side.contacts.came(BOX)
    assert list(side.contacts.waits) == [AGAIN_ROUNDS + 3]


def test_what_is_touched_or_moves_is_not_at_rest() -> None:
    side = taken()
    side.rounds(150)
    side.contacts.touched(ROBOT, [BOX])
    side.rounds(149 + REST_ROUNDS)
    assert side.contacts.holds(BOX)
    side.sights.moved[BOX] = 160
    side.rounds(159 + REST_ROUNDS)
    assert side.contacts.holds(BOX)


def test_where_the_world_has_a_place_for_it_it_is_let_go_and_not_sent_back() -> None:
    side = taken()
    side.rounds(101 + REST_ROUNDS, settled=True)
    assert not side.contacts.holds(BOX)
    assert side.sent_back == []


def test_moves_back_are_counted() -> None:
    side = taken()
    side.sights.driven.clear()
    side.sights.ghosts["alpha.other"] = MeetingEntity("alpha.other", DRIVEN, 0, THERE), Fence(1)
    side.rounds(101 + HOLD_ROUNDS + 5)
    side.contacts.touched(BOX, ["alpha.other"])
    assert side.gave == [(BOX, THERE, "alpha.other")]
    del side.sights.own[BOX]
    side.contacts.left(BOX)
    side.sights.ghosts[BOX] = MeetingEntity(BOX, 0, 0, THERE), Fence(9)
    side.sights.driven.add(ROBOT)
    assert side.contacts.touched(ROBOT, [BOX])
    side.sights.own[BOX] = Fence(10), 0
    side.contacts.came(BOX)
    assert side.counts["contact_moved_back"] == 1


class ContactsOfTwo(RuleBasedStateMachine):
    """Two servers whose entities meet at random; hand-overs and claims arrive late, or never."""

    NAMES: Final = ("alpha.a", "alpha.b", "alpha.c", "alpha.d")

    def __init__(self) -> None:
        super().__init__()
        self.sides = {HERE: Side(HERE), THERE: Side(THERE)}
        self.at = {name: (HERE if number % 2 else THERE, Fence(1)) for number, name in enumerate(self.NAMES)}
        self.claims: list[Claim] = []
        self.number = 0
        self.moves: dict[str, list[int]] = {name: [] for name in self.NAMES}
        self.look()

    def look(self) -> None:
        for server, side in self.sides.items():
            sights = side.sights
            sights.own = {name: (fence, 0) for name, (at, fence) in self.at.items() if at == server}
            sights.ghosts = {}
            for name, (at, fence) in self.at.items():
                if at != server:
                    rank = self.sides[at].contacts.rank(name)
                    sights.ghosts[name] = MeetingEntity(name, rank, 0, at), fence

    @rule(one=st.sampled_from(NAMES), others=st.lists(st.sampled_from(NAMES), max_size=3))
    def touches(self, one: str, others: list[str]) -> None:
        claims = self.sides[self.at[one][0]].contacts.touched(one, [other for other in others if other != one])
        self.claims += claims

    @rule(name=st.sampled_from(NAMES), is_driven=st.booleans())
    def is_driven(self, name: str, is_driven: bool) -> None:
        for side in self.sides.values():
            side.sights.driven.discard(name)
        if is_driven:
            self.sides[self.at[name][0]].sights.driven.add(name)
        self.look()

    @rule(is_lost=st.booleans())
    def claim_arrives(self, is_lost: bool) -> None:
        if self.claims:
            claim = self.claims.pop(0)
            if not is_lost:
                other = HERE if claim.server == THERE else THERE
                self.sides[claim.server].contacts.claimed(claim, other)

    @rule(is_refused=st.booleans())
    def hand_over(self, is_refused: bool) -> None:
        for server, side in self.sides.items():
            for name, to, _ in side.gave:
                assert self.at[name][0] == server
                assert to != server
            gave, side.gave = side.gave, []
            for name, to, _ in [] if is_refused else gave:
                if self.at[name][0] == server:
                    self.moves[name].append(self.number)
                    self.move(name, to)

    @rule()
    def goes_back(self) -> None:
        for side in self.sides.values():
            sent, side.sent_back = side.sent_back, []
            for name, to in sent:
                self.move(name, to)

    def move(self, name: str, to: str) -> None:
        before, fence = self.at[name]
        if before == to:
            return
        self.at[name] = to, fence.raised()
        for side in self.sides.values():
            side.sights.driven.discard(name)
        self.look()
        self.sides[before].contacts.left(name)
        self.sides[to].contacts.came(name)
        self.look()

    @rule(rounds=st.integers(1, REST_ROUNDS))
    def time_passes(self, rounds: int) -> None:
        self.number += rounds
        for side in self.sides.values():
            side.rounds(self.number)
        self.look()

    @invariant()
    def nothing_moves_back_and_forth(self) -> None:
        for moves in self.moves.values():
            assert all(later - earlier >= HOLD_ROUNDS for earlier, later in pairwise(moves))

    @invariant()
    def only_what_is_here_is_held(self) -> None:
        for server, side in self.sides.items():
            assert all(self.at[name][0] == server for name, _ in side.contacts)


TestContactsOfTwo = ContactsOfTwo.TestCase
TestContactsOfTwo.settings = settings(max_examples=examples(120, 30), stateful_step_count=40, deadline=None)
