"""The virtual network: order within a connection, blocks, breaks, and what comes late."""

import random
from collections.abc import Callable

import pytest

from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.tree.network import Frame, TreeNetwork, Weather


class Endpoints:
    """Writes down what the network reports."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, str, Frame]] = []
        self.connections: list[tuple[str, str]] = []
        self.losses: list[tuple[str, str]] = []
        self.down: set[str] = set()

    def may_connect(self, one: str, other: str) -> bool:
        return not {one, other} & self.down

    def frames_arrived(self, name: str, sender: str, frames: list[Frame]) -> None:
        self.frames += [(name, sender, frame) for frame in frames]

    def peer_connected(self, name: str, other: str) -> None:
        self.connections.append((name, other))

    def peer_lost(self, name: str, other: str) -> None:
        self.losses.append((name, other))


class Lan:
    """Two members and their network, connected."""

    def __init__(self, weather: Weather = Weather()) -> None:  # noqa: B008 - frozen
        self.schedule = Schedule()
        self.endpoints = Endpoints()
        self.network = TreeNetwork(["a", "b"], self.schedule, random.Random(1), weather, self.endpoints)
        self.until(lambda: len(self.endpoints.connections) == 2)

    def until(self, condition: Callable[[], bool]) -> None:
        assert self.schedule.run_until(self.schedule.now_s + 30, condition)

    def rest(self, seconds: float = 10.0) -> None:
        self.schedule.run_until(self.schedule.now_s + seconds)

    def received(self, name: str) -> list[Frame]:
        return [frame for receiver, _, frame in self.endpoints.frames if receiver == name]


def test_members_are_connected_from_both_sides() -> None:
    lan = Lan()
    assert sorted(lan.endpoints.connections) == [("a", "b"), ("b", "a")]
    assert lan.network.is_connected("a", "b")
    assert lan.network.is_connected("b", "a")


@pytest.mark.parametrize("weather", [Weather(), Weather(latency_s=(0.0, 2.0), spike_share=0.5, spike_s=3.0)])
def test_frames_arrive_in_order_whatever_their_delays(weather: Weather) -> None:
    lan = Lan(weather)
    for number in range(50):
        assert lan.network.send("a", "b", number)
    lan.rest(300)
    assert lan.received("b") == list(range(50))


def test_a_block_holds_frames_back_in_one_direction() -> None:
    lan = Lan()
    lan.network.block("a", "b")
    lan.network.send("a", "b", "waits")
    lan.network.send("b", "a", "passes")
    lan.rest()
    assert lan.received("b") == []
    assert lan.received("a") == ["passes"]
    lan.network.unblock("a", "b")
    lan.network.send("a", "b", "follows")
    lan.rest()
    assert lan.received("b") == ["waits", "follows"]


def test_blocks_add_up() -> None:
    lan = Lan()
    lan.network.block("a", "b")
    lan.network.block("a", "b")
    lan.network.unblock("a", "b")
    lan.network.send("a", "b", "waits")
    lan.rest()
    assert lan.received("b") == []
    lan.network.heal()
    lan.rest()
    assert lan.received("b") == ["waits"]


def test_a_broken_connection_loses_what_is_under_way_and_is_replaced() -> None:
    lan = Lan()
    lan.network.send("a", "b", "lost")
    lan.network.break_connection("a", "b")
    assert not lan.network.send("a", "b", "not sent")
    lan.until(lambda: len(lan.endpoints.connections) == 4)
    assert sorted(lan.endpoints.losses) == [("a", "b"), ("b", "a")]
    lan.network.send("a", "b", "new")
    lan.rest()
    assert lan.received("b") == ["new"]


def test_what_comes_late_may_come_after_what_the_next_connection_brought() -> None:
    lan = Lan(Weather(late_share=1.0))
    orders = set()
    for _ in range(40):
        lan.endpoints.frames.clear()
        lan.network.send("a", "b", "old")
        lan.network.break_connection("a", "b")
        lan.until(lambda: lan.network.is_connected("a", "b") and lan.network.is_connected("b", "a"))
        lan.network.send("a", "b", "new")
        lan.rest()
        orders.add(tuple(lan.received("b")))
    assert ("new", "old") in orders


def test_a_slow_direction_is_slow_in_that_direction_only() -> None:
    lan = Lan()
    lan.network.slow_down("a", "b", 5.0)
    lan.network.send("a", "b", "slow")
    lan.network.send("b", "a", "quick")
    lan.rest(1.0)
    assert (lan.received("a"), lan.received("b")) == (["quick"], [])
    lan.rest()
    assert lan.received("b") == ["slow"]


def test_a_process_that_ends_is_noticed_after_what_it_sent() -> None:
    lan = Lan()
    lan.network.send("a", "b", "last words")
    lan.endpoints.down.add("a")
    lan.network.process_ended("a", silently=False)
    lan.rest()
    assert lan.received("b") == ["last words"]
    assert lan.endpoints.losses == [("b", "a")]
    lan.endpoints.down.clear()
    lan.rest()
    assert lan.network.is_connected("a", "b")


def test_a_machine_that_vanishes_is_noticed_when_it_is_back() -> None:
    lan = Lan()
    lan.endpoints.down.add("a")
    lan.network.process_ended("a", silently=True)
    lan.rest()
    assert lan.endpoints.losses == []
    assert lan.network.is_connected("b", "a")
    lan.endpoints.down.clear()
    lan.rest()
    assert lan.endpoints.losses == [("b", "a")]
    assert lan.network.is_connected("a", "b")


def test_nobody_is_dialled_across_a_block() -> None:
    lan = Lan()
    lan.network.block("b", "a")
    lan.network.break_connection("a", "b")
    lan.rest()
    assert not lan.network.is_connected("a", "b")
    lan.network.unblock("b", "a")
    lan.rest()
    assert lan.network.is_connected("a", "b")
