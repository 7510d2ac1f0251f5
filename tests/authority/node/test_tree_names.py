"""Names that the tree decides: whatever is lost, repeated or late, one name has one holder, and fences rise."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.authority.node.tree_names import NameFence, NameHolder, NameTaken, TreeNames
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.member.backend import Backend
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown, value_of
from tests.budget import examples
from tests.tree.instances import running_instance


@dataclass(frozen=True)
class Life:
    node: str
    creation: int = 1


class Log:
    """A tree in this process. Commands take time, and some are lost before they are applied, or their answers after."""

    def __init__(self, seed: int = 0, lost: float = 0.0) -> None:
        self.machine = Machine({})
        self.rows: list[dict[str, Any]] = []
        self._number = 0
        self._dice = random.Random(seed)
        self._lost = lost

    async def read(self, procedure: str, args: Any) -> Any:
        await trio.sleep(self._dice.random())
        return self._apply(procedure, args)

    async def submit(self, procedure: str, args: Any) -> Any:
        await trio.sleep(self._dice.random())
        if self._dice.random() < self._lost:
            raise NoQuorum("lost on the way there")
        value = self._apply(procedure, args)
        self.rows.append(args["data"])
        await trio.sleep(self._dice.random())
        if self._dice.random() < self._lost:
            raise OutcomeUnknown("lost on the way back", ("names", self._number))
        return value

    def _apply(self, procedure: str, args: Any) -> Any:
        self._number += 1
        _, encoded = self.machine.apply(encode_command(Command(procedure, args, "names", self._number)))
        return value_of(CommandAnswer.from_encoded(encoded))

    def names(self, life: Life) -> TreeNames:
        return TreeNames(cast("Backend", self), life)


ALPHA, BETA = Life("alpha"), Life("beta")


async def test_a_name_has_one_holder_until_that_lets_it_go(autojump_clock: MockClock) -> None:
    log = Log()
    alpha, beta = log.names(ALPHA), log.names(BETA)
    assert await beta.whereis("ledger") is None
    mine = await alpha.claim("ledger")
    assert mine == await alpha.claim("ledger") == await beta.whereis("ledger") == NameHolder("ledger", "alpha", 1, 1)
    with pytest.raises(NameTaken, match="alpha holds the name 'ledger', under fence 1") as caught:
        await beta.claim("ledger")
    assert caught.value.holder == mine
    assert (await beta.claim("another")).fence == 1
    assert await alpha.release(mine)
    assert not await alpha.release(mine)
    assert await beta.whereis("ledger") is None
    assert await beta.claim("ledger") == NameHolder("ledger", "beta", 1, 2), "the fence is kept"


async def test_a_name_is_taken_over_from_the_holder_that_is_meant_and_no_other(autojump_clock: MockClock) -> None:
    log = Log()
    alpha, beta, gamma = (log.names(Life(node)) for node in ("alpha", "beta", "gamma"))
    lost = await alpha.claim("ledger")
    taken = await beta.claim("ledger", over=lost)
    assert taken.fence == 2
    with pytest.raises(NameTaken):
        await gamma.claim("ledger", over=lost)
    assert not await alpha.release(lost)
    assert await alpha.whereis("ledger") == taken


async def test_an_earlier_life_of_a_node_is_another_holder(autojump_clock: MockClock) -> None:
    log = Log()
    before = await log.names(ALPHA).claim("ledger")
    names = log.names(Life("alpha", 2))
    with pytest.raises(NameTaken) as caught:
        await names.claim("ledger")
    assert (await names.claim("ledger", over=caught.value.holder)).fence == before.fence + 1


def test_what_comes_under_a_lower_fence_is_refused() -> None:
    fence = NameFence()
    assert [fence.admits(number) for number in (1, 1, 3, 2, 3, 4)] == [True, True, True, False, True, True]


async def test_members_of_a_real_tree_agree_on_who_holds_a_name(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 3) as instance:
        await instance.leader()
        members = [TreeNames(replica, Life(f"h{number}")) for number, replica in enumerate(instance.replicas())]
        outcomes: list[NameHolder | NameTaken] = []

        async def claim(names: TreeNames) -> None:
            try:
                outcomes.append(await names.claim("ledger"))
            except NameTaken as taken:
                outcomes.append(taken)

        async with trio.open_nursery() as nursery:
            for names in members:
                nursery.start_soon(claim, names)
        (holder,) = [outcome for outcome in outcomes if isinstance(outcome, NameHolder)]
        assert [outcome.holder for outcome in outcomes if isinstance(outcome, NameTaken)] == [holder, holder]
        assert [await names.whereis("ledger") for names in members] == [holder] * 3


@settings(max_examples=examples(80))
@given(seed=st.integers(0, 2**32), lost=st.sampled_from([0.0, 0.2, 0.5]), nodes=st.integers(2, 4))
def test_fences_rise_and_no_two_hold_one_whatever_is_lost(seed: int, lost: float, nodes: int) -> None:
    log, dice = Log(seed, lost), random.Random(seed)
    claimed: list[NameHolder] = []

    async def live(node: int) -> None:
        names = log.names(Life(f"n{node}"))
        seen: NameHolder | None = None
        for _ in range(6):
            await trio.sleep(dice.random())
            try:
                if seen is not None and seen.node == f"n{node}" and dice.random() < 0.3:
                    await names.release(seen)
                    seen = None
                else:
                    seen = await names.claim("ledger", over=seen)
                    claimed.append(seen)
            except NameTaken as taken:
                seen = taken.holder if dice.random() < 0.5 else None
            except (NoQuorum, OutcomeUnknown):
                seen = await names.whereis("ledger")

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for node in range(nodes):
                nursery.start_soon(live, node)

    trio.run(run, clock=MockClock(autojump_threshold=0))
    holders = [(row["fence"], row["node"]) for row in log.rows if row["node"] is not None]
    assert [fence for fence, _ in holders] == sorted({fence for fence, _ in holders}), "each under a higher one"
    assert {(holder.fence, holder.node) for holder in claimed} <= set(holders), "what was answered is what was decided"
