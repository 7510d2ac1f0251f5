"""Whatever a policy proposes: the hold, the budget and the groups are kept, and oscillations counted (FAILURES 33)."""

import random
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.placement.limits import PlacementLimits
from batonpass.authority.placement.policy import Balance, Move, Resident, ServerLoad, View, units_of

SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
BALANCE = Balance(min_hold_s=5.0, moves_per_s=3.0, drain_moves_per_s=8.0, oscillation_s=60.0)


class Place:
    """A few servers with entities, on a clock of their own; moves happen at once."""

    def __init__(self, entities: int, draining: frozenset[str] = frozenset(), groups: int = 0) -> None:
        self.now_s = 1000.0
        self.draining = draining
        self.where = {f"alpha.e{n}": SERVERS[n % len(SERVERS)] for n in range(entities)}
        self.group = {f"alpha.e{n}": f"g{n % groups}" if groups and n % 2 else "" for n in range(entities)}
        self.since_s = dict.fromkeys(self.where, 0.0)
        self.immovable = self.untaken = frozenset[str]()
        self.placement_limits = PlacementLimits(BALANCE)

    def view(self) -> View:
        residents = [
            Resident(
                entity,
                server,
                self.now_s - self.since_s[entity],
                0.01,
                self.group[entity],
                entity in self.immovable,
                entity in self.untaken,
            )
            for entity, server in self.where.items()
        ]
        return View(tuple(ServerLoad(n, 0.9, draining=n in self.draining) for n in SERVERS), tuple(residents))

    def round(self, proposed: list[Move]) -> list[Move]:
        admitted = self.placement_limits.admit(proposed, self.view(), self.now_s)
        for move in admitted:
            assert self.where[move.entity] == move.source
            self.where[move.entity] = move.target
            self.since_s[move.entity] = self.now_s
        return admitted


def restless(view: View, dice: random.Random) -> list[Move]:
    """A policy as bad as can be: everything goes anywhere, always, also what is not there."""
    moves = [
        Move(resident.entity, dice.choice(SERVERS), dice.choice((*SERVERS, "alpha.nowhere")))
        for resident in view.residents
        for _ in range(3)
    ]
    moves.append(Move("alpha.nobody", SERVERS[0], SERVERS[1]))
    dice.shuffle(moves)
    return moves


@given(st.integers(0, 2**32), st.lists(st.floats(0.05, 3.0), min_size=5, max_size=40), st.integers(0, 3))
def test_failures_33_the_worst_policy_is_held_to_hold_and_budget(seed: int, pauses: list[float], groups: int) -> None:
    dice, place = random.Random(seed), Place(12, groups=groups)
    began_s: list[float] = []
    last: dict[str, float] = {}
    for pause in pauses:
        place.now_s += pause
        for move in place.round(restless(place.view(), dice)):
            assert move.target in SERVERS
            assert place.now_s - last.get(move.entity, -1e9) >= BALANCE.min_hold_s, "moved again within the hold"
            last[move.entity] = place.now_s
            began_s.append(place.now_s)
    for first in began_s:
        within = [at for at in began_s if first <= at <= first + 10.0]
        # A group is as many as its members: it may overdraw the bucket by what it is larger than the bucket.
        assert len(within) <= BALANCE.moves_per_s * 11.0 + 6


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_a_group_is_moved_whole_or_not_at_all(seed: int, groups: int) -> None:
    dice, place = random.Random(seed), Place(18, groups=groups)
    for _ in range(30):
        place.now_s += 2.0
        whole = {resident.entity: unit for unit in units_of(place.view().residents) for resident in unit.residents}
        moved: dict[int, set[str]] = defaultdict(set)
        target = dice.choice(SERVERS)
        proposed = [Move(e, s, target if dice.random() < 0.9 else dice.choice(SERVERS)) for e, s in place.where.items()]
        for move in place.round(proposed):
            moved[id(whole[move.entity])].add(move.entity)
        for unit in whole.values():
            assert moved[id(unit)] in (set(), {resident.entity for resident in unit.residents})


ENTITIES = [f"alpha.e{n}" for n in range(18)]


@given(st.integers(0, 2**32), st.integers(0, 3), st.frozensets(st.sampled_from(ENTITIES)), st.booleans())
def test_the_worst_policy_moves_nobody_who_is_immovable_unless_the_server_is_drained(
    seed: int, groups: int, immovable: frozenset[str], drains: bool
) -> None:
    dice = random.Random(seed)
    place = Place(len(ENTITIES), frozenset(SERVERS[:1] if drains else ()), groups)
    place.immovable = immovable
    for _ in range(30):
        place.now_s += 2.0
        rooted = {
            resident.entity
            for unit in units_of(place.view().residents)
            for resident in unit.residents
            if immovable & {one.entity for one in unit.residents}
        }
        for move in place.round(restless(place.view(), dice)):
            assert move.entity not in rooted or move.source in place.draining


def test_who_is_immovable_is_counted_and_costs_the_others_no_budget() -> None:
    place = Place(9)
    place.immovable = frozenset({"alpha.e0", "alpha.e3", "alpha.e6"})
    proposed = [Move(entity, server, SERVERS[1]) for entity, server in place.where.items() if server == SERVERS[0]]
    assert place.round(proposed) == []
    assert place.placement_limits.counts == Counter(immovable=3)
    assert len(place.round([Move("alpha.e2", SERVERS[2], SERVERS[1]), Move("alpha.e5", SERVERS[2], SERVERS[1])])) == 2


def test_with_an_immovable_one_its_group_stays_on_that_server_and_its_other_part_may_go() -> None:
    place = Place(6)
    place.group = dict.fromkeys(place.where, "crew")
    place.immovable = frozenset({"alpha.e0"})
    proposed = [Move(entity, server, SERVERS[2]) for entity, server in place.where.items() if server != SERVERS[2]]
    assert {move.entity for move in place.round(proposed)} == {"alpha.e1", "alpha.e4"}
    place.draining = frozenset({SERVERS[0]})
    place.now_s += 1.0
    assert {move.entity for move in place.round(proposed[:1] + proposed[2:3])} == {"alpha.e0", "alpha.e3"}


@given(st.lists(st.floats(0.05, 1.0), min_size=20, max_size=60))
def test_a_drained_server_is_emptied_within_its_budget_whatever_the_hold(pauses: list[float]) -> None:
    place = Place(30, draining=frozenset({SERVERS[0]}))
    place.immovable = frozenset(list(place.where)[::2])
    place.since_s = dict.fromkeys(place.where, place.now_s)
    start_s, moved = place.now_s, 0
    for pause in pauses:
        proposed = [Move(e, s, SERVERS[1]) for e, s in place.where.items() if s == SERVERS[0]]
        moved += len(place.round(proposed))
        assert moved <= BALANCE.drain_moves_per_s * (1.0 + place.now_s - start_s) + 1e-6
        place.now_s += pause
    assert SERVERS[0] not in place.where.values()


def test_failures_row_28_what_its_server_does_not_take_is_passed_on_whatever_the_hold() -> None:
    place = Place(6)
    place.immovable = place.untaken = frozenset({"alpha.e0"})
    place.since_s = dict.fromkeys(place.where, place.now_s)
    proposed = [Move(entity, server, SERVERS[1]) for entity, server in place.where.items() if server == SERVERS[0]]
    assert [move.entity for move in place.round(proposed)] == ["alpha.e0"]
    assert place.placement_limits.counts == Counter(passed_on=1, held=1)


def test_nothing_is_let_through_to_a_drained_server() -> None:
    place = Place(6, draining=frozenset({SERVERS[1]}))
    assert place.round([Move(e, s, SERVERS[1]) for e, s in place.where.items() if s != SERVERS[1]]) == []
    assert place.placement_limits.counts == Counter(nonsense=4)


def test_failures_33_moves_back_are_counted_as_oscillations_whoever_asked_for_them() -> None:
    placement_limits = PlacementLimits(BALANCE)
    placement_limits.noted("alpha.e1", "alpha.s1", "alpha.s2", 100.0)
    placement_limits.noted("alpha.e2", "alpha.s1", "alpha.s2", 100.0)
    assert placement_limits.counts["oscillations"] == 0
    placement_limits.noted("alpha.e1", "alpha.s2", "alpha.s1", 100.0 + BALANCE.oscillation_s - 1)
    assert placement_limits.counts["oscillations"] == 1
    placement_limits.noted("alpha.e2", "alpha.s2", "alpha.s1", 100.0 + BALANCE.oscillation_s + 1)
    assert placement_limits.counts["oscillations"] == 1


def test_failures_33_an_owner_who_moves_an_entity_overrides_the_hold_and_starts_it_anew() -> None:
    place = Place(3)
    back = Move("alpha.e0", SERVERS[1], SERVERS[2])
    place.where["alpha.e0"] = SERVERS[1]
    place.placement_limits.noted("alpha.e0", SERVERS[0], SERVERS[1], place.now_s)
    assert place.round([back]) == []
    assert place.placement_limits.counts["held"] == 1
    place.now_s += BALANCE.min_hold_s
    assert place.round([back]) == [back]


def test_a_group_larger_than_the_budget_goes_when_the_bucket_is_full_and_is_paid_for() -> None:
    place = Place(0)
    place.where = {f"alpha.e{n}": SERVERS[0] for n in range(9)}
    place.group, place.since_s = dict.fromkeys(place.where, "crew"), dict.fromkeys(place.where, 0.0)
    place.where["alpha.lone"], place.group["alpha.lone"], place.since_s["alpha.lone"] = SERVERS[0], "", 0.0
    crew = [Move(e, SERVERS[0], SERVERS[1]) for e in place.where if e != "alpha.lone"]
    lone = Move("alpha.lone", SERVERS[0], SERVERS[1])
    assert place.round(crew) == crew
    assert place.round([lone]) == []
    place.now_s += 1.0
    assert place.round([lone]) == [], "nine moves are three seconds' worth"
    place.now_s += 2.0
    assert place.round([lone]) == [lone]


def test_where_a_group_went_is_remembered_for_those_that_come_later() -> None:
    place = Place(0)
    place.where, place.group, place.since_s = {"alpha.e1": SERVERS[0]}, {"alpha.e1": "crew"}, {"alpha.e1": 0.0}
    place.round([Move("alpha.e1", SERVERS[0], SERVERS[2])])
    assert place.placement_limits.anchors == {"crew": SERVERS[2]}
