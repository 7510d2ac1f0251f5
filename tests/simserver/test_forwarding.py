"""Late inputs: forwarded towards who has the entity now, never back, and not for ever; and what was deleted ends."""

from collections import Counter
from typing import Any

import pytest

from actors import System
from authority.epoch import Fence
from authority.hops import Trace
from authority.messages import Despawn, ForwardInputs, InputItem, Message, NotHere
from authority.ownership import Ownership
from authority.sealing import Opened, Sealer
from simserver.arrivals import MAX_FORWARDS, Arrivals
from simserver.holdings import Holdings, Tombstone
from tests.simserver.stage import ADA, BALL, Stage
from tests.simserver.test_departures import HERE, IDENTITY, THERE, TrioClock
from tests.simserver.test_holdings import Written


class Here:
    """The arrivals of one server, and what they send."""

    def __init__(self, system: System) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.told: list[tuple[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.holdings = Holdings(Stage(system).environment, Written())
        me: Any = self
        nothing: Any = None
        self.arrivals = Arrivals(
            Sealer(HERE, IDENTITY), nothing, me, self.holdings, nothing, nothing, nothing, TrioClock(), self.counts
        )

    def send(self, message: Message, trace: Trace, to: str, **_: Any) -> bool:
        self.sent.append((to, message))
        return True

    def tell_player(self, player: str, message: Any) -> None:
        self.told.append((player, message))

    async def forwarded(self, epoch: int, forwards: int) -> list[tuple[str, Message]]:
        item = InputItem(source=ADA, owner_rev=1, seq=1, data=b"")
        message = ForwardInputs(
            transfer_id="transfer-1", entity=BALL, epoch=epoch, sub=0, inputs=[item], forwards=forwards
        )
        self.sent.clear()
        await self.arrivals.forwarded(message, Opened(message, THERE, Trace("transfer-1")))
        return list(self.sent)


@pytest.fixture
def here(system: System) -> Here:
    return Here(system)


async def test_failures_row_31_inputs_are_forwarded_only_towards_a_higher_fence_and_four_times(here: Here) -> None:
    here.holdings.remember(BALL, Tombstone(THERE, Fence(5)))
    for forwards in range(1, MAX_FORWARDS):
        ((to, onward),) = await here.forwarded(4, forwards)
        assert isinstance(onward, ForwardInputs)
        assert (to, onward.fence, onward.forwards) == (THERE, Fence(5), forwards + 1)
    assert await here.forwarded(4, MAX_FORWARDS) == []
    assert await here.forwarded(5, 1) == [], "who sends it knows as much"
    assert await here.forwarded(6, 1) == [], "or more"
    assert here.counts["forward_dropped"] == 3


async def test_inputs_for_what_was_never_here_are_dropped(here: Here) -> None:
    assert await here.forwarded(4, 1) == []
    assert here.counts["forward_dropped"] == 1


async def test_failures_row_36_what_was_deleted_ends_and_its_sources_are_told(here: Here) -> None:
    holding = here.holdings.spawn(BALL, "ball", {}, Fence(3), Ownership(ADA, 1))
    holding.life.take_input(ADA, 1, 1, b"")
    here.arrivals.despawn(Despawn(entity=BALL, epoch=3))
    assert not holding.life.over, "of an earlier life"
    here.arrivals.despawn(Despawn(entity=BALL, epoch=4))
    assert (holding.life.over, here.holdings.get(BALL)) == (True, None)
    ((player, notice),) = here.told
    assert (player, notice) == (ADA, NotHere(entity=BALL, epoch=4))
    here.arrivals.despawn(Despawn(entity=BALL, epoch=4))
    assert here.counts["despawn_not_here"] == 2
