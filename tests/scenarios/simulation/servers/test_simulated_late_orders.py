"""Orders that come once more when the server that followed them has been restarted, and the entity is back on it."""

from random import Random
from typing import Any

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Phase
from batonpass.authority.wire.transfer import Order
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.entity.table import Holding

ENTITY, HERE, THERE, HOME = "alpha.e0", "alpha.s1", "alpha.s2", "alpha.h1"
DIRECT = {"direct": True, "transport": "link", "mode": "eager", "requester": ""}


class World:
    """A calm cluster with an entity that two servers may pass to each other, and what it was ordered to do."""

    def __init__(self, renew_after: int) -> None:
        self.cluster = ServersCluster(MIXES["calm"], Random("late orders"), ServersParts(renew_after=renew_after))
        self.orders: list[Order] = []
        self._send, self.cluster.mail.send = self.cluster.mail.send, self._sent  # type: ignore[method-assign]
        self.passing(1.0)
        home = self.cluster.homes[HOME]
        home.process.start_soon(home.delegate, ENTITY, (HERE, THERE))
        assert self.cluster.schedule.run_until(self.cluster.schedule.now_s + 5.0, lambda: bool(self.held(HERE).group))

    def _sent(self, sender: str, to: str, message: Any) -> None:
        if isinstance(message, Order):
            self.orders.append(message)
        self._send(sender, to, message)

    def passing(self, seconds: float) -> None:
        self.cluster.schedule.run_until(self.cluster.schedule.now_s + seconds)

    def held(self, server: str) -> Holding:
        holding = self.cluster.servers[server].holding(ENTITY)
        assert holding is not None
        return holding

    def move(self, transfer_id: str, target: str) -> None:
        """Have it moved directly; it is simulated there."""
        home, server = self.cluster.homes[HOME], self.cluster.servers[target]
        home.process.start_soon(home.move, transfer_id, ENTITY, target, DIRECT)
        done = self.cluster.schedule.run_until(
            self.cluster.schedule.now_s + 5.0, lambda: server.holding(ENTITY) is not None
        )
        assert done

    def restart(self, server: str) -> None:
        """Kill it, start it again, and wait until it can be given entities."""
        self.cluster.crash(server)
        self.cluster.servers[server].start()
        lease = self.cluster.servers[server].node.lease
        assert self.cluster.schedule.run_until(self.cluster.schedule.now_s + 30.0, lambda: lease.is_alive)
        self.passing(1.0)

    def comes_to_rest(self) -> None:
        for player in self.cluster.players:
            player.resting = True
        self.passing(3.0)
        assert (self.cluster.unsettled(), self.cluster.judge.violations) == ("", [])


@pytest.mark.parametrize("renew_after", [1, 4])
@pytest.mark.parametrize("restarts", [HERE, THERE, ""])
def test_failures_row_2_a_late_order_moves_nothing_again_after_a_restart(renew_after: int, restarts: str) -> None:
    """A chain that came back with the entity tells of the pass; if its grant was renewed since, the log does."""
    world = World(renew_after)
    world.move("transfer-1", THERE)
    (order,) = world.orders
    world.passing(1.0)
    if restarts == HERE:
        world.restart(HERE)
    world.move("transfer-2", HERE)
    if restarts == THERE:
        world.restart(THERE)
    world.passing(1.0)
    before = world.held(HERE).fence
    assert before == Fence(1, 2), "it was passed back directly"
    world.cluster.mail.send(HOME, HERE, order)
    world.passing(2.0)
    counts = world.cluster.servers[HERE].counts
    is_through_log = restarts == HERE and renew_after == 1
    assert world.held(HERE).fence == (before.raised() if is_through_log else before)
    assert (counts["order_repeated"], counts["refused_too_late"]) == ((0, 1) if is_through_log else (1, 0))
    transfer = world.cluster.homes[HOME].store.transfer("transfer-1")
    assert transfer is not None
    assert (transfer.phase, transfer.fence) == (Phase.DONE, Fence(1, 1)), "as it was the first time"
    world.comes_to_rest()


def test_what_the_log_has_not_decided_goes_directly_also_after_a_restart() -> None:
    """Nobody has to remember anything for that: whoever orders says that it was never passed."""
    world = World(4)
    world.move("transfer-1", THERE)
    world.passing(1.0)
    world.restart(HERE)
    world.move("transfer-2", HERE)
    world.passing(1.0)
    world.move("transfer-3", THERE)
    assert world.held(THERE).fence == Fence(1, 3)
    world.comes_to_rest()
