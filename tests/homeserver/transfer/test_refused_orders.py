"""What servers do not take is ordered elsewhere, a drain goes on whatever the policy is, and the immovable stay."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import DirectoryRow, DrainRecord, EntityRecord, Phase, Role, TransferRecord
from batonpass.authority.placement.policy import Balance, Move, Policy, View, relieve
from batonpass.authority.placement.predicted_load import SHOWN_AFTER_S
from batonpass.authority.placement.rejections import REFUSED_S
from batonpass.authority.procedures.drain import BALANCE_PAUSE
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import Census, CensusRequest, CensusRow, Load, MoveItem, Moves
from batonpass.authority.wire.transfer import Message
from batonpass.crypto.keys import Identity
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.placement.balancer import Balancer
from batonpass.tree.store.store import Store as TreeStore
from tests.collected import ROOT
from tests.homeserver.stepped_clock import Enough, Stepped

SOURCE, COOL, ROOMY = "alpha.s1", "alpha.s2", "alpha.s3"
SERVERS = (SOURCE, COOL, ROOMY)


class Instance:
    """Three servers, of which COOL has the least to do, and the balancer that gives them orders."""

    def __init__(
        self, policy: Policy = relieve, *, drained: Collection[str] = (SOURCE,), balancing: bool = True
    ) -> None:
        self.rows, self.clock = TreeStore(), Stepped(100.0)
        backend: Any = SimpleNamespace(store=self.rows)
        keys = Identity.generate().public.to_jwks()
        for name in SERVERS:
            self.rows.put(("servers", name), DirectoryRow(name=name, role=Role.SIMSERVER, keys=keys).to_data())
        for name in drained:
            self.rows.put(("drains", name), DrainRecord(server=name, id=f"drain-{name}", since_s=0.0).to_data())
        self.tick_ppm = {SOURCE: 500_000, COOL: 1_000, ROOMY: 300_000}
        self.held: dict[str, list[str]] = {name: [] for name in SERVERS}
        self.kinds: dict[str, str] = {}
        self.immovable: set[str] = set()
        self.untaken: dict[str, set[str]] = {}
        """Of servers what their worlds do not take."""
        self.groups: dict[str, str] = {}
        self.why_not: Callable[[str, str], str] = lambda entity, target: ""
        """Why a target would not take an entity."""
        self.writes_reasons = False
        self.orders: list[tuple[float, str, str]] = []
        self.silent: set[str] = set()
        self.silent_homes: set[str] = set()
        self.handed_back: set[str] = set()
        self.clock.in_between = self.report
        self.balancer = Balancer(
            InstanceStore(lambda: backend),
            self.post,
            self.clock,
            leads=lambda: True,
            balance=Balance(),
            policy=policy,
            balancing=balancing,
            is_silent=lambda instance: instance in self.silent_homes,
            is_handed_back=lambda entity: entity in self.handed_back,
            follows_regions=lambda _: False,
        )

    def put(self, entity: str, server: str = SOURCE, kind: str = "ball", parent: str = "") -> None:
        record = EntityRecord(
            id=entity, kind=kind, master="alpha.ada", owner="alpha.ada", authority=server, parent=parent
        )
        self.rows.put(("entities", entity), record.to_row())
        self.held[server].append(entity)
        self.kinds[entity] = kind

    def load(self, name: str) -> Load:
        return Load(
            tick_ppm=self.tick_ppm[name],
            entities=len(self.held[name]),
            leaving=0,
            inputs_per_s=0,
            bytes_per_s=0,
            untaken=len(self.untaken.get(name, set()).intersection(self.held[name])),
        )

    def report(self) -> None:
        for name in SERVERS:
            if name not in self.silent:
                self.balancer.reported(name, self.load(name))

    async def post(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        match message:
            case CensusRequest():
                cost_ppm = self.tick_ppm[to] // max(1, len(self.held[to]))
                fixed: dict[str, Any] = {"here_ms": 10**9, "cost_ppm": cost_ppm}
                rows = [
                    CensusRow(
                        entity=e,
                        group=self.groups.get(e, ""),
                        immovable=e in self.immovable,
                        untaken=e in self.untaken.get(to, ()),
                        **fixed,
                    )
                    for e in sorted(self.held[to], key=lambda e: e not in self.untaken.get(to, ()))
                ]
                census = Census(number=message.number, load=self.load(to), rows=rows[: message.limit])
                self.balancer.took_census(to, census)
            case Moves():
                for move in message.moves:
                    self.orders.append((self.clock.now_s, move.entity, move.target))
                    self.carry_out(move, to)
            case _:
                pytest.fail(f"{message} is not expected")

    def carry_out(self, move: MoveItem, source: str) -> None:
        reason = self.why_not(move.entity, move.target)
        if not reason:
            self.held[source].remove(move.entity)
            self.held[move.target].append(move.entity)
            self.balancer.moved(move.entity, source, move.target)
        elif self.writes_reasons:
            transfer = TransferRecord(
                id=move.transfer_id,
                entity=move.entity,
                source=source,
                target=move.target,
                phase=Phase.REFUSED,
                reason=reason,
            )
            self.rows.put(("transfers", move.transfer_id), transfer.to_row())

    def has_been_hot(self) -> None:
        """All have reported before what they report now, for long enough."""
        self.report()
        self.clock.now_s += Balance().hot_for_s

    async def runs(self, seconds: float) -> None:
        self.report()
        self.clock.end_s = self.clock.now_s + seconds
        with pytest.raises(Enough):
            await self.balancer.serve()

    def ordered_to(self, target: str) -> Counter[str]:
        return Counter(entity for _, entity, to in self.orders if to == target)


@pytest.mark.parametrize("writes_reasons", [False, True])
async def test_a_drain_ends_though_the_coolest_server_is_full(writes_reasons: bool) -> None:
    instance = Instance()
    instance.writes_reasons = writes_reasons
    for number in range(40):
        instance.put(f"alpha.e{number}", kind=f"kind-{number % 4}")
    instance.why_not = lambda entity, target: (
        Reason.CAPACITY if target == COOL and len(instance.held[COOL]) >= 3 else ""
    )
    await instance.runs(2.0)
    assert {name: len(held) for name, held in instance.held.items()} == {SOURCE: 0, COOL: 3, ROOMY: 37}
    assert max(instance.ordered_to(COOL).values()) == 1


async def test_a_drain_ends_though_the_coolest_server_does_not_know_the_kind_which_costs_one_batch() -> None:
    """A rolling upgrade: those of the other kind go there meanwhile."""
    instance = Instance()
    for number in range(1600):
        instance.put(f"alpha.e{number}", kind="old" if number % 4 else "new")
    instance.why_not = lambda entity, target: (
        Reason.INCOMPATIBLE if target == COOL and instance.kinds[entity] == "old" else ""
    )
    await instance.runs(3.0)
    assert not instance.held[SOURCE]
    assert sorted(instance.held[COOL]) == sorted(name for name, kind in instance.kinds.items() if kind == "new")
    refused = [entity for _, entity, target in instance.orders if target == COOL and instance.kinds[entity] == "old"]
    assert 0 < len(refused) <= 512


async def test_where_nobody_takes_it_all_are_tried_in_turn_and_no_faster_than_before() -> None:
    instance = Instance()
    instance.put("alpha.crate")
    instance.why_not = lambda entity, target: Reason.CAPACITY
    await instance.runs(3.0)
    targets = [target for _, _, target in instance.orders]
    assert targets == [COOL, ROOMY] * (len(targets) // 2) + [COOL] * (len(targets) % 2)
    times = [at_s for at_s, _, _ in instance.orders]
    assert len(times) > 20
    assert min(later - at_s for at_s, later in pairwise(times)) > 0.09


async def test_a_target_that_has_room_again_is_used_again() -> None:
    instance = Instance()
    instance.put("alpha.e0")
    instance.why_not = lambda entity, target: Reason.CAPACITY if target == COOL else ""
    await instance.runs(1.0)
    assert instance.held[ROOMY] == ["alpha.e0"]
    instance.why_not = lambda entity, target: ""
    instance.put("alpha.e1")
    await instance.runs(REFUSED_S / 2)
    assert instance.held[ROOMY] == ["alpha.e0", "alpha.e1"], "of this kind nobody was taken"
    await instance.runs(REFUSED_S / 2)
    instance.put("alpha.e2")
    await instance.runs(1.5)
    assert instance.held[COOL] == ["alpha.e2"]


async def test_a_target_whose_drain_was_ended_is_used_again_at_once() -> None:
    """It may have been drained when what had been ordered there a moment before came."""
    instance = Instance()
    instance.put("alpha.e0")
    instance.why_not = lambda entity, target: Reason.DRAINING if target == COOL else ""
    await instance.runs(1.0)
    assert instance.held[ROOMY] == ["alpha.e0"]
    instance.rows.put(("drains", COOL), DrainRecord(server=COOL, id="drain", since_s=0.0).to_data())
    await instance.runs(1.5)
    instance.rows.delete(("drains", COOL))
    instance.why_not = lambda entity, target: ""
    instance.put("alpha.e1")
    await instance.runs(1.5)
    assert instance.held[COOL] == ["alpha.e1"]


async def test_one_that_is_refused_for_a_reason_of_its_own_keeps_nobody_else_from_the_target() -> None:
    instance = Instance()
    instance.writes_reasons = True
    instance.why_not = lambda entity, target: Reason.ATTACHED if (entity, target) == ("alpha.child", COOL) else ""
    instance.put("alpha.child")
    await instance.runs(1.0)
    assert instance.held[ROOMY] == ["alpha.child"]
    instance.put("alpha.ball")
    await instance.runs(1.5)
    assert instance.held[COOL] == ["alpha.ball"]


async def test_a_hot_server_is_relieved_though_the_coolest_takes_nothing() -> None:
    instance = Instance(drained=())
    instance.tick_ppm = {SOURCE: 900_000, COOL: 1_000, ROOMY: 450_000}
    for number in range(9):
        instance.put(f"alpha.e{number}")
    instance.why_not = lambda entity, target: Reason.CAPACITY if target == COOL else ""
    instance.has_been_hot()
    # What was ordered counts as done until a report could say that it was not.
    await instance.runs(SHOWN_AFTER_S + 1.0)
    assert not instance.held[COOL]
    assert instance.held[ROOMY]


async def test_who_is_refused_by_all_is_offered_to_each_no_more_often_than_the_hold_allows() -> None:
    instance = Instance(drained=())
    instance.tick_ppm = {SOURCE: 900_000, COOL: 1_000, ROOMY: 300_000}
    for number in range(9):
        instance.put(f"alpha.e{number}")
    instance.why_not = lambda entity, target: Reason.CAPACITY
    await instance.runs(2 * Balance().min_hold_s)
    by_pair: dict[tuple[str, str], list[float]] = {}
    for at_s, entity, target in instance.orders:
        by_pair.setdefault((entity, target), []).append(at_s)
    assert {target for _, target in by_pair} == {COOL, ROOMY}
    for times in by_pair.values():
        assert all(later - at_s >= Balance().min_hold_s for at_s, later in pairwise(times))


# --- policies of one's own -------------------------------------------------------------------------------------------


def raises(view: View, balance: Balance) -> list[Move]:
    raise RuntimeError("broken")


def goes_on_for_ever_until_it_raises(view: View, balance: Balance) -> Iterator[Move]:
    yield Move(view.residents[0].entity, SOURCE, COOL)
    raise RuntimeError("broken")


def no_moves(view: View, balance: Balance) -> list[Move]:
    return []


def all_to_the_roomy(view: View, balance: Balance) -> list[Move]:
    return [Move(resident.entity, resident.server, ROOMY) for resident in view.residents]


def all_to_the_cool(view: View, balance: Balance) -> list[Move]:
    return [Move(resident.entity, resident.server, COOL) for resident in view.residents]


def rubbish(view: View, balance: Balance) -> Any:
    return [1, "x", Move(view.residents[0].entity, SOURCE, COOL)]


def moves_of_rubbish(view: View, balance: Balance) -> Any:
    return [Move(["alpha.e0"], None, 3)]  # type: ignore[arg-type] # what a user may do


POLICIES: list[Any] = [
    raises,
    goes_on_for_ever_until_it_raises,
    lambda view, balance: None,
    rubbish,
    moves_of_rubbish,
    no_moves,
    all_to_the_roomy,
    all_to_the_cool,
]


@pytest.mark.parametrize("policy", POLICIES, ids=range(len(POLICIES)))
@pytest.mark.parametrize("drained", [(SOURCE,), (SOURCE, COOL), (SOURCE, ROOMY)])
async def test_a_drain_ends_whatever_the_policy_is(policy: Policy, drained: tuple[str, ...]) -> None:
    instance = Instance(policy, drained=drained)
    for number in range(20):
        instance.put(f"alpha.e{number}")
    instance.why_not = lambda entity, target: Reason.CAPACITY if entity == "alpha.e7" and target == ROOMY else ""
    await instance.runs(2.0)
    stays = 1 if COOL in drained else 0
    assert len(instance.held[SOURCE]) == stays, "the only server that is left does not take that one"
    if policy is all_to_the_roomy and drained == (SOURCE,):
        assert instance.held[COOL] == ["alpha.e7"], "the policy chooses, as long as it can be done"


class Panic(BaseException):
    """As code in Rust raises, which is no `Exception`."""


async def test_a_policy_that_fails_is_counted_and_logged_once_for_each_type_of_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = Counter[str]()

    def failing(view: View, balance: Balance) -> list[Move]:
        calls["all"] += 1
        raise KeyError(calls["all"]) if calls["all"] % 2 else Panic("broken")

    instance = Instance(failing)
    instance.put("alpha.e0")
    instance.why_not = lambda entity, target: Reason.CAPACITY
    await instance.runs(2.0)
    assert instance.balancer.placement_limits.counts["policy_failed"] == calls["all"] > 10
    said = [record.getMessage() for record in caplog.records if "policy failed" in record.getMessage()]
    assert [text.partition("\n")[0].rpartition(";")[2] for text in said] == [
        " each further KeyError is only counted",
        " each further Panic is only counted",
    ]


async def test_a_policy_that_takes_long_is_logged_but_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    instance = Instance(no_moves)
    takes_s = 0.05

    def slow(view: View, balance: Balance) -> list[Move]:
        instance.clock.now_s += takes_s
        return []

    instance.balancer._policy = slow
    instance.put("alpha.e0")
    instance.why_not = lambda entity, target: Reason.CAPACITY
    await instance.runs(1.0)
    assert instance.balancer.placement_limits.counts["policy_slow"] == 0
    takes_s = 0.25
    await instance.runs(15.0)
    assert instance.balancer.placement_limits.counts["policy_slow"] > 20
    said = [record.getMessage() for record in caplog.records if "took" in record.getMessage()]
    assert said == ["the placement policy took 0.250 s; the homeserver did nothing else meanwhile"] * 2


async def test_a_policy_that_blocks_is_left_alone_so_that_drains_end(caplog: pytest.LogCaptureFixture) -> None:
    instance, calls = Instance(no_moves), []

    def blocks(view: View, balance: Balance) -> list[Move]:
        calls.append(instance.clock.now_s)
        instance.clock.now_s += 20.0
        return []

    instance.balancer._policy = blocks
    instance.put("alpha.e0")
    instance.why_not = lambda entity, target: Reason.CAPACITY
    await instance.runs(250.0)
    assert [round(at_s - 100.0) for at_s in calls] == [0, 220]
    assert 1500 < len(instance.orders) < 2500, "ten rounds a second while it rests"
    assert "took 20.000 s; the homeserver did nothing else meanwhile, and does not ask it for 200 s" in caplog.text


def example() -> Policy:
    """The policy in the documentation."""
    text = (ROOT / "docs" / "reference" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("### A policy of your own")[2]
    source = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(source, "operations.md", "exec"), names)  # noqa: S102 — the example from our own page
    policy: Policy = names["away_from_the_first"]
    return policy


@pytest.mark.parametrize("drained", SERVERS)
async def test_any_server_is_drained_with_the_policy_in_the_documentation(drained: str) -> None:
    instance = Instance(example(), drained=(drained,))
    for number in range(30):
        instance.put(f"alpha.e{number}", SERVERS[number % 3])
    await instance.runs(2.0)
    assert not instance.held[drained]
    assert not instance.balancer.placement_limits.counts["policy_failed"]
    assert drained != SOURCE or len(instance.held[COOL]) == 20, "the policy chooses where they go"


async def test_the_policy_in_the_documentation_does_not_fail_where_one_server_reports() -> None:
    instance = Instance(example())
    instance.put("alpha.e0")
    instance.silent = {COOL, ROOMY}
    await instance.runs(2.0)
    assert instance.balancer.placement_limits.counts["policy_failed"] == 0
    assert (instance.held[SOURCE], instance.orders) == (["alpha.e0"], [])


# --- who is immovable ------------------------------------------------------------------------------------------------


def hot(policy: Policy = relieve) -> Instance:
    instance = Instance(policy, drained=())
    instance.tick_ppm = {SOURCE: 900_000, COOL: 1_000, ROOMY: 450_000}
    instance.has_been_hot()
    return instance


@pytest.mark.parametrize("policy", [relieve, all_to_the_roomy])
async def test_balance_leaves_who_is_immovable_where_it_is_whatever_the_policy(policy: Policy) -> None:
    instance = hot(policy)
    for number in range(9):
        instance.put(f"alpha.e{number}")
    instance.immovable = {f"alpha.e{number}" for number in range(0, 9, 2)}
    await instance.runs(4.0)
    assert instance.orders
    assert not instance.immovable & {entity for _, entity, _ in instance.orders}


async def test_a_policy_sees_who_is_immovable_and_what_it_proposes_of_them_is_counted() -> None:
    seen: dict[str, bool] = {}

    def looks(view: View, balance: Balance) -> list[Move]:
        seen.update((resident.entity, resident.immovable) for resident in view.residents)
        return all_to_the_roomy(view, balance)

    instance = hot(looks)
    instance.put("alpha.tower")
    instance.put("alpha.wagon")
    instance.immovable = {"alpha.tower"}
    await instance.runs(0.5)
    assert seen == {"alpha.tower": True, "alpha.wagon": False}
    assert instance.balancer.placement_limits.counts == Counter(immovable=1, moves=1)


async def test_nor_is_anybody_moved_who_would_take_an_immovable_one_along() -> None:
    instance = hot(all_to_the_roomy)
    family = {"fleet": "", "ship": "fleet", "cook": "ship", "mate": "ship", "raft": "", "boat": "", "rower": "boat"}
    for entity, parent in family.items():
        instance.put(f"alpha.{entity}", parent=f"alpha.{parent}" if parent else "")
    instance.put("alpha.guard")
    instance.groups = dict.fromkeys(("alpha.rower", "alpha.guard"), "watch")
    instance.immovable = {"alpha.cook", "alpha.guard"}
    await instance.runs(0.5)
    assert {entity for _, entity, _ in instance.orders} == {"alpha.mate", "alpha.raft"}


async def test_whoever_is_above_an_immovable_one_that_is_drained_may_go_as_that_goes_anyway() -> None:
    instance = Instance(all_to_the_cool, drained=(ROOMY,))
    instance.tick_ppm = {SOURCE: 900_000, COOL: 1_000, ROOMY: 300_000}
    instance.put("alpha.ship")
    instance.put("alpha.cook", ROOMY, parent="alpha.ship")
    instance.immovable = {"alpha.cook"}
    instance.has_been_hot()
    await instance.runs(0.5)
    first_s = instance.orders[0][0]
    assert {entity for at_s, entity, _ in instance.orders if at_s == first_s} == {"alpha.ship", "alpha.cook"}


async def test_a_drain_takes_the_immovable_along_too() -> None:
    instance = Instance()
    for number in range(9):
        instance.put(f"alpha.e{number}", parent="alpha.e0" if number else "")
    instance.immovable = set(instance.held[SOURCE])
    await instance.runs(1.0)
    assert not instance.held[SOURCE]
    assert instance.balancer.placement_limits.counts == Counter(drain_moves=9)


@pytest.mark.parametrize("drained", [(SOURCE,), ()], ids=["drained", "hot"])
async def test_entities_whose_home_does_not_answer_go_on_where_they_are_until_it_does(drained: tuple[str, ...]) -> None:
    """They would stand still until it decides; and so would whoever stays together with one of them."""
    instance = Instance(drained=drained)
    instance.tick_ppm[SOURCE] = 900_000
    for number in range(20):
        instance.put(f"alpha.e{number}")
        instance.put(f"beta.e{number}")
    instance.groups = {"alpha.e0": "alpha.pair", "beta.e0": "alpha.pair"}
    instance.silent_homes = {"beta"}
    await instance.runs(60.0)
    moved = {entity for _, entity, _ in instance.orders}
    assert moved
    assert {entity for entity in moved if entity.startswith("beta.")} | (moved & {"alpha.e0"}) == set()
    assert instance.balancer.placement_limits.counts["home_silent"] > 0
    if drained:
        assert len(moved) == 19
        # Once a second, as nobody else is left to be moved: not ten times, as a drain that gets on.
        before = instance.balancer.placement_limits.counts["home_silent"]
        await instance.runs(10.0)
        assert instance.balancer.placement_limits.counts["home_silent"] - before <= 11 * 21
        instance.silent_homes = set()
        await instance.runs(60.0)
        assert not instance.held[SOURCE]


# --- what a server's world does not take ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["hot", "not balancing", "paused"])
async def test_failures_row_28_what_is_not_taken_is_passed_on_to_who_takes_it_and_nothing_else_is_moved(
    how: str,
) -> None:
    """In the midst of a rolling upgrade: the coolest one is of before, too."""
    instance = Instance(drained=(), balancing=how != "not balancing")
    # It has not been hot for long enough yet.
    instance.tick_ppm[SOURCE] = 900_000
    if how == "paused":
        instance.rows.put((BALANCE_PAUSE,), 0.0)
    for number in range(40):
        instance.put(f"alpha.e{number}")
    instance.untaken = {name: set(instance.held[SOURCE][::4]) for name in (SOURCE, COOL)}
    instance.why_not = lambda entity, target: Reason.INCOMPATIBLE if entity in instance.untaken.get(target, ()) else ""
    await instance.runs(1.4)
    assert set(instance.held[ROOMY]) == instance.untaken[SOURCE]
    assert len(instance.held[SOURCE]) == 30
    assert not instance.held[COOL]
    assert instance.balancer.placement_limits.counts == Counter(passed_on=2 * 10)


async def test_what_is_being_handed_back_is_left_to_that() -> None:
    instance = Instance(drained=())
    instance.put("alpha.e0")
    instance.untaken = {SOURCE: {"alpha.e0"}}
    instance.handed_back = {"alpha.e0"}
    await instance.runs(5.0)
    assert instance.orders == []
    instance.handed_back = set()
    await instance.runs(1.5)
    assert instance.held[COOL] == ["alpha.e0"]


@pytest.mark.parametrize("policy", [relieve, all_to_the_cool])
async def test_failures_row_28_what_no_server_takes_stays_and_is_offered_seldom(policy: Policy) -> None:
    instance = Instance(policy, drained=())
    instance.put("alpha.wreck")
    instance.put("alpha.ball")
    instance.untaken = {name: {"alpha.wreck"} for name in SERVERS}
    instance.why_not = lambda entity, target: Reason.INCOMPATIBLE
    await instance.runs(60.0)
    assert {entity for _, entity, _ in instance.orders} == {"alpha.wreck"}
    for target in (COOL, ROOMY):
        times = [at_s for at_s, _, to in instance.orders if to == target]
        assert 3 < len(times) <= 60.0 / REFUSED_S + 1
        assert min(later - at_s for at_s, later in pairwise(times)) >= REFUSED_S
    instance.why_not = lambda entity, target: ""
    await instance.runs(REFUSED_S + 1.0)
    assert instance.held[SOURCE] == ["alpha.ball"]
