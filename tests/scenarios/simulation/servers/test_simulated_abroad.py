"""Servers that die with entities of another instance: in a cluster of two instances in which nothing else happens."""

from collections.abc import Callable
from random import Random
from typing import Any

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Phase
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES

ENTITY, NEAR, FAR, FAR_TOO = "alpha.e0", "alpha.s1", "beta.s1", "beta.s2"
HOW = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}
FINE_S = 0.0005
"""Below the shortest way of a message, so that nothing arrives between a decision and what is done about it."""


class World:
    """A calm cluster, and what is done to it."""

    def __init__(self) -> None:
        self.cluster = ServersCluster(MIXES["calm"], Random("abroad"))
        self.moves = 0

    def until(self, fits: Callable[[], bool], *, step_s: float = 0.05, at_most_s: float = 60.0) -> None:
        """Let it go on until it is so."""
        until_s = self.cluster.schedule.now_s + at_most_s
        while not fits():
            assert self.cluster.schedule.now_s < until_s, self.cluster.unsettled()
            self.passing(step_s)

    def passing(self, seconds: float) -> None:
        self.cluster.schedule.run_until(self.cluster.schedule.now_s + seconds)

    @property
    def authority(self) -> str:
        record = self.cluster.record(ENTITY)
        assert record is not None
        return record.authority

    def is_simulated_by(self, server: str) -> bool:
        holding = self.cluster.servers[server].holding(ENTITY)
        return self.authority == server and holding is not None and not holding.life.frozen

    def is_simulated(self, entity: str) -> bool:
        """By whoever has it by the log."""
        record = self.cluster.record(entity)
        holding = self.cluster.servers[record.authority].holding(entity) if record and record.authority else None
        return holding is not None and not holding.life.frozen

    def order(self, target: str) -> None:
        self.moves += 1
        home = self.cluster.homes["alpha.h1"]
        home.process.start_soon(home.move, f"transfer-{self.moves:06d}", ENTITY, target, HOW)

    def move(self, target: str) -> None:
        """Have it moved, and copied there."""
        self.order(target)
        self.until(lambda: self.is_simulated_by(target))
        self.passing(2.0)

    def commit(self, target: str) -> None:
        """Have it moved until the log has given it to the target, which does not know yet."""
        self.order(target)
        self.until(lambda: self.authority == target, step_s=FINE_S)
        assert self.cluster.servers[target].holding(ENTITY) is None

    def kill(self, server: str) -> None:
        self.cluster.crash(server)
        self.cluster.gone[server] = None

    def restart(self, server: str) -> None:
        self.cluster.crash(server)
        self.cluster.servers[server].start()

    def part_homes(self) -> None:
        """Have the homes of both instances hear nothing of each other."""
        for home, other in ((home, other) for home in ("alpha.h1", "alpha.h2") for other in ("beta.h1", "beta.h2")):
            self.cluster.mail.cut(home, other)
            self.cluster.mail.cut(other, home)

    def refused(self) -> dict[str, str]:
        """Why which transfers were refused, by the log of the entities' home."""
        store = self.cluster.homes["alpha.h1"].store
        transfers = {name: store.transfer(name) for name in store.transfer_ids()}
        return {name: one.reason for name, one in transfers.items() if one is not None and one.phase is Phase.REFUSED}

    def comes_to_rest(self) -> None:
        """Everything is somewhere and goes on, nothing that was promised is broken, and no input is missing."""
        for player in self.cluster.players:
            player.resting = True
        self.passing(3.0)
        self.until(lambda: not self.cluster.unsettled())
        assert (self.cluster.judge.violations, self.cluster.left_out(ENTITY)) == ([], "")

    def seen_abroad(self) -> list[dict[str, Any]]:
        """What operators of the entity's home see."""
        (home,) = (home for home in self.cluster.homes_of("alpha") if home.parts.leases.granter.office)
        return home.parts.abroad.to_data()


def test_failures_row_8_a_server_abroad_dies_and_its_follower_there_goes_on() -> None:
    world = World()
    world.move(FAR)
    assert world.seen_abroad() == [{"instance": "beta", "entities": {FAR: 1}, "reason": "", "silent_since_s": None}]
    world.kill(FAR)
    world.until(lambda: world.is_simulated_by(FAR_TOO))
    world.comes_to_rest()


def test_failures_row_42_a_server_abroad_that_restarts_goes_on_under_a_raised_epoch() -> None:
    world = World()
    world.move(FAR)
    before = world.cluster.record(ENTITY)
    world.restart(FAR)
    world.until(lambda: world.authority == "")
    world.comes_to_rest()
    after = world.cluster.record(ENTITY)
    assert before is not None
    assert after is not None
    assert after.epoch == before.epoch + 2
    assert (before.incarnation, after.incarnation) in {(1, 1), (1, 2)}, after.authority


def test_failures_row_13_the_target_abroad_restarts_between_commit_and_activation() -> None:
    world = World()
    world.commit(FAR)
    world.restart(FAR)
    world.comes_to_rest()
    assert world.authority == NEAR, "it goes on from what the old authority stands still with"
    assert world.cluster.servers[FAR].counts["leave_of_another_life"] > 0, "this life was not given it"


def test_failures_row_13_a_target_at_home_of_a_source_abroad_dies_between_commit_and_activation() -> None:
    world = World()
    world.move(FAR)
    world.commit(NEAR)
    world.kill(NEAR)
    world.comes_to_rest()
    assert world.authority == FAR


def test_failures_row_10_the_source_dies_before_it_has_brought_the_word_of_the_log() -> None:
    """In case 1 nobody else brings it: the target has the state, and does not know that it may begin."""
    world = World()
    world.commit(FAR)
    world.kill(NEAR)
    world.comes_to_rest()
    assert world.authority not in ("", NEAR)


def test_failures_row_10_the_source_abroad_dies_before_it_has_brought_the_word_of_the_log() -> None:
    world = World()
    world.move(FAR)
    world.commit(NEAR)
    world.kill(FAR)
    world.comes_to_rest()
    assert world.authority not in ("", FAR)


def test_failures_row_21_nobody_takes_over_while_the_home_of_the_dead_server_cannot_be_asked() -> None:
    world = World()
    world.move(FAR)
    world.part_homes()
    world.kill(FAR)
    world.until(lambda: world.seen_abroad()[0]["reason"] == Reason.HOME_UNREACHABLE)
    world.passing(8.0)
    assert world.authority == FAR
    (seen,) = world.seen_abroad()
    assert (seen["instance"], seen["entities"], seen["reason"]) == ("beta", {FAR: 1}, "home_unreachable")
    world.cluster.mail.heal()
    world.until(lambda: world.is_simulated_by(FAR_TOO))
    world.comes_to_rest()
    assert not world.seen_abroad()[0]["reason"]


def test_failures_row_21_what_is_to_go_where_no_home_answers_goes_on_where_it_is() -> None:
    """Its own home is well, and has committed nothing without the word of the other."""
    world = World()
    world.move(NEAR)
    world.part_homes()
    before = world.cluster.record(ENTITY)
    world.order(FAR)
    world.until(lambda: not world.is_simulated_by(NEAR), step_s=FINE_S)
    world.until(lambda: world.is_simulated_by(NEAR), at_most_s=6.0)
    after = world.cluster.record(ENTITY)
    assert before is not None
    assert after is not None
    assert (after.authority, after.epoch) == (NEAR, before.epoch + 1)
    assert list(world.refused().values()) == ["home_unreachable"]
    world.cluster.mail.heal()
    world.move(FAR)
    world.comes_to_rest()
    assert world.authority == FAR


def test_failures_row_21_a_group_that_is_to_go_where_no_home_answers_goes_on_where_it_is() -> None:
    world, both = World(), (ENTITY, "alpha.e2")
    world.part_homes()
    home = world.cluster.homes["alpha.h1"]
    home.process.start_soon(home.move_together, "group-away", both, FAR, {"mode": "eager"})
    world.until(lambda: not any(world.is_simulated(one) for one in both), step_s=FINE_S)
    world.until(lambda: all(world.is_simulated(one) for one in both), at_most_s=9.0)
    assert list(world.refused().values()) == ["home_unreachable"] * 2
    world.cluster.mail.heal()
    world.comes_to_rest()


def test_a_group_moves_abroad_and_back_in_one_step() -> None:
    world = World()
    home, both = world.cluster.homes["alpha.h1"], (ENTITY, "alpha.e2")
    for target in (FAR, NEAR):
        home.process.start_soon(
            home.move_together, f"group-to-{target[-2:]}-{target[0]}", both, target, {"mode": "eager"}
        )
        world.until(lambda: all(world.cluster.record(one).authority == target for one in both))  # type: ignore[union-attr]  # noqa: B023 — waited for before the next
    world.comes_to_rest()
