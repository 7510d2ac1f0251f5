"""The policy empties drained servers and cools hot ones, settles, and never takes a move back (FAILURES 33)."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batonpass.authority.placement.policy import (
    Balance,
    Move,
    Resident,
    ServerLoad,
    Unit,
    View,
    coolest,
    emptied,
    relieve,
    units_of,
)

BALANCE = Balance()
SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1")


def load(name: str, fraction: float, *, draining: bool = False, entities: int = 0) -> ServerLoad:
    return ServerLoad(name, fraction, entities, draining=draining)


def view_of(residents: Sequence[Resident], draining: frozenset[str] = frozenset(), base: float = 0.0) -> View:
    """All servers with the load that their residents make, and `base`."""
    cost: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for resident in residents:
        cost[resident.server] += resident.cost
        count[resident.server] += 1
    servers = tuple(load(n, base + cost[n], draining=n in draining, entities=count[n]) for n in SERVERS)
    return View(servers, tuple(residents))


def after(residents: Sequence[Resident], moves: Sequence[Move]) -> list[Resident]:
    to = {move.entity: move.target for move in moves}
    return [replace(resident, server=to.get(resident.entity, resident.server)) for resident in residents]


def squares(view: View) -> float:
    return sum(server.tick_fraction**2 for server in view.servers)


@st.composite
def populations(draw: st.DrawFn) -> list[Resident]:
    """Up to 40 entities with costs from nothing to a third of a period, exact in binary; some grouped, or immovable."""
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(SERVERS),
                st.integers(0, 42),
                st.sampled_from(["", "", "", "g1", "g2"]),
                st.sampled_from([False, False, False, True]),
            ),
            max_size=40,
        )
    )
    return [Resident(f"alpha.e{n}", s, 1e9, c / 128, g, i) for n, (s, c, g, i) in enumerate(rows)]


DRAINING = st.frozensets(st.sampled_from(SERVERS), max_size=len(SERVERS))


@given(populations(), DRAINING)
def test_nothing_goes_to_a_drained_server_and_nothing_stays_on_one(
    residents: list[Resident], draining: frozenset[str]
) -> None:
    moves = relieve(view_of(residents, draining), BALANCE)
    assert all(move.target not in draining and move.target != move.source for move in moves)
    left = [resident for resident in after(residents, moves) if resident.server in draining]
    assert not left or draining == frozenset(SERVERS)


@given(populations())
def test_every_move_makes_the_sum_of_squared_loads_smaller(residents: list[Resident]) -> None:
    now = residents
    for unit_moves in by_unit(relieve(view_of(residents), BALANCE), residents):
        before, now = now, after(now, unit_moves)
        assert squares(view_of(now)) < squares(view_of(before))


def by_unit(moves: Sequence[Move], residents: Sequence[Resident]) -> list[list[Move]]:
    of = {resident.entity: (resident.server, resident.group or resident.entity) for resident in residents}
    parts: dict[tuple[str, str], list[Move]] = {}
    for move in moves:
        parts.setdefault(of[move.entity], []).append(move)
    return list(parts.values())


@given(populations())
def test_with_a_load_that_does_not_change_it_settles(residents: list[Resident]) -> None:
    rounds = 0
    while moves := relieve(view_of(residents), BALANCE):
        residents = after(residents, moves)
        rounds += 1
        assert rounds <= len(residents), "it should have settled"
    for server in view_of(residents).servers:
        if server.tick_fraction > BALANCE.hot:
            assert_nothing_fits_elsewhere(server.name, residents)


def assert_nothing_fits_elsewhere(hot: str, residents: list[Resident]) -> None:
    """Twin: tries every unit of the server that may go on every other server, with loads counted anew each time."""
    for unit in units_of(residents):
        if unit.server != hot or unit.cost == 0 or any(resident.immovable for resident in unit.residents):
            continue
        for target in SERVERS:
            if target != hot:
                moved = after(residents, [Move(r.entity, hot, target) for r in unit.residents])
                loads = {server.name: server.tick_fraction for server in view_of(moved).servers}
                fits = loads[target] <= BALANCE.cool or loads[target] + BALANCE.hot - BALANCE.cool <= loads[hot]
                assert not fits or near(loads[target], BALANCE.cool) or near(loads[target] + 0.15, loads[hot])


def near(one: float, other: float) -> bool:
    return abs(one - other) < 1e-9


@given(populations(), st.lists(st.floats(-0.07, 0.07), min_size=40, max_size=40))
def test_once_settled_a_load_that_wavers_less_than_the_hysteresis_moves_nothing(
    residents: list[Resident], wavering: list[float]
) -> None:
    """FAILURES 33: no oscillation. Servers that were relieved are below `settled`, and stay below `hot`."""
    costs = [replace(resident, cost=min(resident.cost, 0.01)) for resident in residents]
    while moves := relieve(view_of(costs, base=0.45), BALANCE):
        costs = after(costs, moves)
    view = view_of(costs, base=0.45)
    if any(server.tick_fraction > BALANCE.settled for server in view.servers):
        return
    for shift in range(0, 40, len(SERVERS)):
        servers = tuple(
            replace(server, tick_fraction=server.tick_fraction + wavering[shift + place])
            for place, server in enumerate(view.servers)
        )
        assert relieve(View(servers, view.residents), BALANCE) == []


@given(populations(), DRAINING)
def test_groups_stay_together(residents: list[Resident], draining: frozenset[str]) -> None:
    for moves in by_unit(relieve(view_of(residents, draining), BALANCE), residents):
        assert len({move.target for move in moves}) == 1
        moved = {move.entity for move in moves}
        (unit,) = [u for u in units_of(residents) if moved & {r.entity for r in u.residents}]
        assert moved == {resident.entity for resident in unit.residents}


def rooted(residents: Sequence[Resident]) -> set[str]:
    """Who is immovable, or has one of its group beside it who is; each compared with each."""
    return {
        one.entity
        for one in residents
        for other in residents
        if other.immovable
        and (other.entity == one.entity or (one.group and (one.group, one.server) == (other.group, other.server)))
    }


@given(populations(), DRAINING)
# All of a group would fit elsewhere, and one of it is immovable.
@example([Resident(f"alpha.e{n}", "alpha.s1", 1e9, 0.2, "g1" if n < 2 else "", n == 0) for n in range(5)], frozenset())
def test_off_a_hot_server_nobody_is_moved_who_is_immovable_nor_part_of_a_group_with_one(
    residents: list[Resident], draining: frozenset[str]
) -> None:
    moves = relieve(view_of(residents, draining), BALANCE)
    stay = rooted(residents)
    assert all(move.source in draining for move in moves if move.entity in stay)


def test_a_hot_server_gives_up_others_in_place_of_who_is_immovable() -> None:
    servers = (load("alpha.s1", 0.9), load("alpha.s2", 0.1), load("alpha.s3", 0.1))
    tower = Resident("alpha.tower", "alpha.s1", 1e9, 0.3, immovable=True)
    guard, guarded = (Resident(f"alpha.{name}", "alpha.s1", 1e9, 0.2, "gate") for name in ("guard", "guarded"))
    wagon = Resident("alpha.wagon", "alpha.s1", 1e9, 0.25)
    view = View(servers, (tower, guard, replace(guarded, immovable=True), wagon))
    assert [move.entity for move in relieve(view, BALANCE)] == ["alpha.wagon"]
    assert relieve(replace(view, residents=view.residents[:3]), BALANCE) == [], "it stays hot"
    drained = replace(view, servers=(replace(servers[0], draining=True), *servers[1:]))
    assert len(relieve(drained, BALANCE)) == 4


@given(populations(), DRAINING, st.randoms(use_true_random=False))
def test_the_order_in_which_servers_report_makes_no_difference(
    residents: list[Resident], draining: frozenset[str], dice: "object"
) -> None:
    view = view_of(residents, draining)
    servers, shuffled = list(view.servers), list(view.residents)
    dice.shuffle(servers)  # type: ignore[attr-defined]  # random.Random
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert relieve(View(tuple(servers), tuple(shuffled)), BALANCE) == relieve(view, BALANCE)


class Twin:
    """The rule as it is told: one move after another, with every load counted from scratch before each."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.moves: list[Move] = []

    def loads(self) -> dict[str, tuple[float, int]]:
        table = {server.name: (server.tick_fraction, server.entities) for server in self.view.servers}
        to = {move.entity: move for move in self.moves}
        for unit in units_of(self.view.residents):
            if move := to.get(unit.residents[0].entity):
                for name, sign in ((move.source, -1), (move.target, 1)):
                    fraction, entities = table[name]
                    table[name] = fraction + sign * unit.cost, entities + sign * len(unit.residents)
        return table

    def lowest(self, unit: Unit, each: float = 0.0) -> str | None:
        """The server with the lowest load, to which `each` of its entities adds."""
        closed = {server.name for server in self.view.servers if server.draining} | {unit.server}
        rows = [(row[0] + each * row[1], *row, name) for name, row in self.loads().items() if name not in closed]
        return min(rows)[3] if rows else None

    def move(self, unit: Unit, target: str) -> None:
        self.moves += [Move(resident.entity, unit.server, target) for resident in unit.residents]

    def empty(self, unit: Unit) -> None:
        target = self.lowest(unit, each=2e-5)
        if target is not None:
            self.move(unit, target)

    def cool(self, unit: Unit) -> None:
        if any(resident.immovable for resident in unit.residents):
            return
        target, here = self.lowest(unit), self.loads()[unit.server][0]
        if here > BALANCE.settled and unit.cost > 0 and target is not None:
            there = self.loads()[target][0] + unit.cost
            if there <= BALANCE.cool or there + (BALANCE.hot - BALANCE.cool) <= here - unit.cost:
                self.move(unit, target)


def costing(of: dict[str, list[int]]) -> list[Resident]:
    """Entities on these servers with these costs, in 128ths of a period."""
    flat = [(server, cost) for server, costs in of.items() for cost in costs]
    return [Resident(f"alpha.e{n}", server, 1e9, cost / 128, "") for n, (server, cost) in enumerate(flat)]


@given(populations(), DRAINING)
# A server that has given some away itself is the coolest in the end.
@example(costing({"alpha.s1": [9, 26, 26, 26, 26, 26, 29], "alpha.s2": [13, 42, 42]}), frozenset())
def test_the_policy_is_its_plain_twin(residents: list[Resident], draining: frozenset[str]) -> None:
    twin, hot = Twin(view_of(residents, draining)), set()
    for unit in units_of(residents):
        if unit.server in draining:
            twin.empty(unit)
    for unit in units_of(residents):
        if unit.server not in draining and twin.loads()[unit.server][0] > BALANCE.hot:
            hot.add(unit.server)
        if unit.server in hot:
            twin.cool(unit)
    assert relieve(twin.view, BALANCE) == twin.moves


def test_a_part_of_a_group_that_was_left_behind_goes_where_the_rest_went() -> None:
    servers = (load("alpha.s1", 0.2, draining=True), load("alpha.s2", 0.7), load("alpha.s3", 0.1))
    late = (Resident("alpha.late", "alpha.s1", group="crew"), Resident("alpha.lone", "alpha.s1"))
    moves = relieve(View(servers, late, {"crew": "alpha.s2"}), BALANCE)
    assert {move.entity: move.target for move in moves} == {"alpha.late": "alpha.s2", "alpha.lone": "alpha.s3"}
    gone = View(servers[:1] + servers[2:], late, {"crew": "alpha.s2"})
    assert {move.target for move in relieve(gone, BALANCE)} == {"alpha.s3"}


def test_nor_does_a_part_of_a_group_wait_for_the_rest_to_be_let_in_there() -> None:
    servers = (load("alpha.s1", 0.2, draining=True), load("alpha.s2", 0.7), load("alpha.s3", 0.1))
    late = (Resident("alpha.late", "alpha.s1", group="crew"),)
    view = View(servers, late, {"crew": "alpha.s2"}, {"alpha.late": {"alpha.s2": 1.0}})
    assert {move.target for move in relieve(view, BALANCE)} == {"alpha.s3"}


REFUSED = st.dictionaries(
    st.sampled_from([f"alpha.e{n}" for n in range(40)]),
    st.dictionaries(st.sampled_from(SERVERS), st.floats(0.0, 9.0), max_size=len(SERVERS)),
    max_size=40,
)


def refused_by(unit: Unit, view: View) -> set[str]:
    return {name for resident in unit.residents for name in view.refused.get(resident.entity, {})}


@given(populations(), DRAINING, REFUSED)
def test_nothing_is_moved_to_who_refused_it_lately_while_another_takes_entities(
    residents: list[Resident], draining: frozenset[str], refused: dict[str, dict[str, float]]
) -> None:
    view = replace(view_of(residents, draining), refused=refused)
    targets = {move.entity: move.target for move in relieve(view, BALANCE)}
    for unit in units_of(residents):
        to = {targets[resident.entity] for resident in unit.residents if resident.entity in targets}
        others = set(SERVERS) - draining - {unit.server}
        if others - refused_by(unit, view) or unit.server not in draining:
            assert not to & refused_by(unit, view)
        assert unit.server not in draining or not others or len(to) == 1


@given(populations(), DRAINING, REFUSED)
def test_what_a_policy_says_of_drained_servers_is_done_if_it_can_be_and_else_they_are_emptied_all_the_same(
    residents: list[Resident], draining: frozenset[str], refused: dict[str, dict[str, float]]
) -> None:
    view = replace(view_of(residents, draining), refused=refused)
    last = max(set(SERVERS) - draining, default="")
    proposed = [Move(resident.entity, resident.server, last) for resident in residents[::2] if last]
    moves = emptied(view, proposed)
    assert {move.source for move in moves} <= draining
    left = [resident for resident in after(residents, moves) if resident.server in draining]
    assert not left or draining == frozenset(SERVERS)
    for unit in units_of(residents):
        if unit.server in draining and last and last not in refused_by(unit, view):
            of_unit = {Move(resident.entity, unit.server, last) for resident in unit.residents}
            if of_unit <= set(proposed):
                assert of_unit <= set(moves)


@given(populations(), DRAINING, st.data())
def test_a_drain_empties_as_soon_as_all_have_been_tried_if_any_target_takes(
    residents: list[Resident], draining: frozenset[str], data: st.DataObject
) -> None:
    """Of each entity some take it, and some never do."""
    takers = {r.entity: data.draw(st.frozensets(st.sampled_from(SERVERS)), label=r.entity) for r in residents}
    refused_at: dict[str, dict[str, int]] = defaultdict(dict)
    staying = [resident for resident in residents if resident.server in draining]
    open_ones = set(SERVERS) - draining
    for turn in range(len(open_ones)):
        refused = {name: {to: float(turn - at) for to, at in row.items()} for name, row in refused_at.items()}
        moves = relieve(replace(view_of(staying, draining), refused=refused), BALANCE)
        for move in moves:
            if move.target not in takers[move.entity]:
                refused_at[move.entity][move.target] = turn
        targets = {move.entity: move.target for move in moves}
        staying = [one for one in staying if targets.get(one.entity) not in takers[one.entity]]
    assert all(not takers[resident.entity] & open_ones for resident in staying)


def test_who_was_refused_by_all_is_offered_off_a_drained_server_to_whoever_refused_it_longest_ago() -> None:
    servers = (load("alpha.s1", 0.9, draining=True), load("alpha.s2", 0.1), load("alpha.s3", 0.7))
    lone = (Resident("alpha.lone", "alpha.s1", 1e9, 0.1),)
    view = View(servers, lone, refused={"alpha.lone": {"alpha.s2": 0.1, "alpha.s3": 0.2}})
    assert [move.target for move in relieve(view, BALANCE)] == ["alpha.s3"]
    hot = (replace(servers[0], draining=False), *servers[1:])
    assert relieve(replace(view, servers=hot), BALANCE) == []


@given(populations(), DRAINING, REFUSED, st.data())
def test_failures_row_28_what_its_server_does_not_take_goes_whatever_the_policy_says_to_whoever_has_not_refused_it(
    residents: list[Resident], draining: frozenset[str], refused: dict[str, dict[str, float]], data: st.DataObject
) -> None:
    untaken = data.draw(st.sets(st.sampled_from([one.entity for one in residents]))) if residents else set()
    residents = [replace(one, group="", untaken=True) if one.entity in untaken else one for one in residents]
    view = replace(view_of(residents, draining), refused=refused)
    last = max(set(SERVERS) - draining, default="")
    proposed = [Move(resident.entity, resident.server, last) for resident in residents[::2] if last]
    targets = {move.entity: move.target for move in emptied(view, proposed)}
    for one in residents:
        others = set(SERVERS) - draining - {one.server}
        takers = others - set(refused.get(one.entity, {}))
        if one.untaken and one.server not in draining:
            assert targets.get(one.entity, "") in (takers or {""})
            if Move(one.entity, one.server, last) in proposed and last in takers:
                assert targets[one.entity] == last
        else:
            assert (one.entity in targets) is (one.server in draining and bool(others))


@given(st.floats(0, 0.02), st.floats(0, 0.02), st.integers(100, 400).map(lambda tens: 10 * tens))
def test_what_sleeps_on_a_drained_server_is_shared_out_among_servers_that_have_as_little_to_do(
    one: float, other: float, sleepers: int
) -> None:
    """They cost nothing, so the load of neither changes: one had all but a few by a difference of nothing."""
    residents = tuple(Resident(f"alpha.e{n:04d}", "alpha.s1", 1e9, 0.0, "") for n in range(sleepers))
    servers = (load("alpha.s1", 0.0, draining=True, entities=sleepers), load("alpha.s2", one), load("alpha.s3", other))
    moves = relieve(View(servers, residents), BALANCE)
    shares = [sum(move.target == name for move in moves) for name in ("alpha.s2", "alpha.s3")]
    assert sum(shares) == sleepers
    # But for the rounding of floats.
    assert abs(shares[0] - shares[1]) <= abs(one - other) / 2e-5 + 1 + 1e-6


def test_a_server_that_did_not_report_gets_nothing_and_gives_nothing() -> None:
    residents = tuple(Resident(f"alpha.e{n}", "alpha.gone", 1e9, 0.2) for n in range(9))
    assert relieve(View((load("alpha.s1", 0.0),), residents), BALANCE) == []


def test_what_is_new_goes_to_the_coolest_server_that_is_not_drained() -> None:
    servers = [load("alpha.s1", 0.1, draining=True), load("alpha.s2", 0.5), load("alpha.s3", 0.5, entities=1)]
    assert coolest(servers) == "alpha.s2"
    assert coolest(servers[:1]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"hot": 0.5, "cool": 0.5},
        {"cool": 0.0},
        {"moves_per_s": 0.0},
        {"drain_moves_per_s": -1.0},
        {"min_hold_s": -1.0},
        {"hot_for_s": -0.1},
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"cool|budgets|times"):
        Balance(**wrong)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", [limit.name for limit in fields(Balance)])
def test_numbers_that_are_none_are_refused(name: str, number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Balance(**{name: number})
