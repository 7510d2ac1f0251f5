"""What :global was recorded to do with names, and what names do that a tree decides: a name never means two."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.node.tree_names import NameHolder, NameTaken, TreeNames
from batonpass.tree.member.backend import Backend
from batonpass.tree.raft.submissions import NoQuorum
from tests.actors.oracle.lines import Transcript
from tests.authority.node.test_tree_names import Life, Log

RECORDED = Path(__file__).with_name("otp_global.txt")

HERE = {
    # A node asks for what it has already after a restart of its program, or an answer that was lost.
    "the holder registers it once more": ":yes",
    # A name is a right, so it is let go or taken over, and never falls to the first to ask.
    "the holder ends: whereis": ":b",
    "the holder ends: register by another": ":no",
    "the node of the holder ends: whereis, and register by another": "{:b, :no}",
    # A node has as many as it likes.
    "a second name for it": ":yes",
    # Without a majority nothing is known and nothing decided.
    "a cut: whereis where the holder is, and on the other side": "{true, :no_quorum}",
    "a cut: register on the other side": ":no_quorum",
    "a cut: how many hold the name": "1",
    # So there is nobody to be ended.
    "the cut is over: how the other one ended": ":none",
}


class Side:
    """A tree as one node sees it, which may be cut off from the majority."""

    def __init__(self, log: Log, node: str) -> None:
        self._log = log
        self.is_cut = False
        self.names = TreeNames(cast("Backend", self), Life(node))

    async def read(self, procedure: str, args: Any) -> Any:
        return await self._log.read(procedure, args) if self._reaches() else None

    async def submit(self, procedure: str, args: Any) -> Any:
        return await self._log.submit(procedure, args) if self._reaches() else None

    def _reaches(self) -> bool:
        if self.is_cut:
            raise NoQuorum("the others are not heard")
        return True


async def answer(claim: Awaitable[NameHolder]) -> str:
    """What :global would say."""
    try:
        await claim
    except NameTaken:
        return "no"
    except NoQuorum:
        return "no_quorum"
    return "yes"


async def where(names: TreeNames) -> str:
    try:
        holder = await names.whereis("ledger")
    except NoQuorum:
        return "no_quorum"
    return "undefined" if holder is None else holder.node


async def test_names_are_what_global_has_but_never_mean_two(autojump_clock: MockClock) -> None:
    recorded, log = Transcript(RECORDED, "", HERE), Log()
    sides = [Side(log, node) for node in "abc"]
    a, b, c = [side.names for side in sides]
    say = recorded.say
    say("whereis of a name that nobody has", await where(a))
    say("register of a free name", await answer(a.claim("ledger")))
    say("register of a name that another node has", await answer(b.claim("ledger")))
    say("whereis on every node is the holder", [await where(names) == "a" for names in (a, b, c)])
    say("the holder registers it once more", await answer(a.claim("ledger")))
    first = await b.whereis("ledger")
    say("another takes it without asking", await answer(b.claim("ledger", over=first)))
    say("whereis on every node is who has taken it", [await where(names) == "b" for names in (a, b, c)])
    second = await c.whereis("ledger")
    assert first is not None
    assert second is not None
    assert second.fence > first.fence
    assert await c.release(second)
    say("one that is not the holder unregisters it", await where(a))
    say("register after that", await answer(b.claim("ledger")))
    say("the holder ends: whereis", await where(c))
    say("the holder ends: register by another", await answer(c.claim("ledger")))
    say("a second name for it", await answer(b.claim("second")))
    race: list[str] = []
    async with trio.open_nursery() as nursery:

        async def run(names: TreeNames) -> None:
            race.append(await answer(names.claim("race")))

        nursery.start_soon(run, a)
        nursery.start_soon(run, c)
    say("two register a free name at once: how many have it", race.count("yes"))
    sides[2].is_cut, decided = True, len(log.rows)
    say("a cut: whereis where the holder is, and on the other side", (await where(a) == "b", await where(c)))
    say("a cut: register on the other side", await answer(c.claim("ledger")))
    holders = {await where(a), await where(b), await where(c)} - {"no_quorum"}
    say("a cut: how many hold the name", len(holders))
    sides[2].is_cut = False
    holders = {await where(names) for names in (a, b, c)}
    say("the cut is over: how many hold the name", len(holders))
    say("the cut is over: how many of the two holders live", len(holders))
    others = {row["node"] for row in log.rows[decided:]} - {"b"}
    say("the cut is over: how the other one ended", "killed" if others else "none")
    held = await a.whereis("ledger")
    say(
        "the node of the holder ends: whereis, and register by another",
        (await where(a), await answer(c.claim("ledger"))),
    )
    assert held is not None
    taken = await c.claim("ledger", over=held)
    assert taken.fence > held.fence, "who is told of the loss takes it over from this holder"
    with pytest.raises(NameTaken):
        await a.claim("ledger", over=held)
    assert recorded.all_said()
