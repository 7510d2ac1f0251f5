"""Copies of earlier stays are no copies while those who had the entity last, and their followers, may return."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from batonpass.authority.machines.replica_choice import backup_replicas_of
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.names import instance_of
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.homeserver import LEASE_TERM_S
from batonpass.scenarios.simulation.servers.mixes import MIXES
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.simserver import CHECKPOINT_INTERVAL_S
from tests.mutants.servers.table import MUTANTS

HOW = {"direct": False, "transport": "link", "mode": "eager", "requester": ""}
PLACES = ("at home", "abroad")
ALPHA = ("alpha.s1", "alpha.s2", "alpha.s3")


class World:
    """A calm cluster in which an entity of alpha has come to `target`, and whoever followed it before has a copy."""

    def __init__(self, place: str, parts: ServersParts | None = None) -> None:
        self.cluster = cluster = ServersCluster(MIXES["calm"], Random(f"stays {place}"), parts)
        self.entity, self.target = next(self.journeys(place))
        near = cluster.servers_of(instance_of(self.target))
        self.stopped = (self.target, *backup_replicas_of(self.entity, self.target, near, 1))
        target = self.target
        self.passing(2.0)
        home = cluster.homes["alpha.h1"]
        home.process.start_soon(home.move, "transfer-1", self.entity, target, HOW)
        self.until(lambda: cluster.servers[target].holding(self.entity) is not None)
        # Longer than the last owner keeps what it has handed over.
        self.passing(21.0)
        (owner,) = [player for player in cluster.players if not player.streams[self.entity].owner]
        self.stream: InputStream = owner.streams[self.entity]
        self.player = owner.name

    def journeys(self, place: str) -> Iterator[tuple[str, str]]:
        """Entities, and where to: at home such that whoever has copies of before follows nobody there."""
        for source in ALPHA:
            for entity in sorted(self.cluster.servers[source].node.holdings.ids()):
                (keeper,) = backup_replicas_of(entity, source, ALPHA, 1)
                (target,) = {*ALPHA} - {source, keeper}
                if place == "abroad":
                    yield entity, "beta.s1"
                elif backup_replicas_of(entity, target, ALPHA, 1) == (source,):
                    yield entity, target

    def passing(self, seconds: float) -> None:
        self.cluster.schedule.run_until(self.cluster.schedule.now_s + seconds)

    def until(self, done: Callable[[], bool]) -> None:
        assert self.cluster.schedule.run_until(self.cluster.schedule.now_s + 60.0, done), "it does not come about"

    def stop(self, *, kill: bool) -> int:
        """Both stand still, or are dead, for far longer than their leases; what was durable by then."""
        for name in self.stopped:
            if kill:
                self.cluster.crash(name)
            else:
                self.cluster.servers[name].process.stand_still()
        durable = self.stream.durable
        self.passing(4 * LEASE_TERM_S)
        return durable

    def start(self, name: str) -> None:
        server = self.cluster.servers[name]
        if server.process.is_running:
            server.process.go_on()
        else:
            server.start()

    def recovery(self) -> RecoveryRow | None:
        return self.cluster.store_of("alpha").recovery(self.entity)

    def waits_for(self) -> list[str]:
        """Whom operators see to be waited for, on the member that grants leases."""
        homes = [self.cluster.homes[name] for name in ("alpha.h1", "alpha.h2")]
        rows = [row for home in homes for row in home.parts.takeovers.to_data()["waiting"]]
        return sorted({name for row in rows if row["entity"] == self.entity for name in row["waits_for"]})

    def applied(self) -> int:
        """How many inputs of its owner it has where it is."""
        record = self.cluster.record(self.entity)
        assert record is not None
        held = self.cluster.servers[record.authority].holding(self.entity)
        assert held is not None
        return held.life.inbox.cursors[self.player].applied

    def come_to_rest(self) -> None:
        for player in self.cluster.players:
            player.resting = True
        self.until(lambda: self.cluster.schedule.happened % 64 == 0 and not self.cluster.unsettled())


@pytest.mark.parametrize("kill", [False, True], ids=["paused", "killed"])
@pytest.mark.parametrize("place", PLACES)
def test_nobody_goes_on_from_an_earlier_stay_while_those_of_the_last_one_may_return(place: str, kill: bool) -> None:
    world = World(place)
    durable = world.stop(kill=kill)
    row = world.recovery()
    assert row is not None
    assert (row.last, row.target, row.stay_epoch) == (world.target, "", 2)
    assert world.waits_for() == sorted(world.stopped)
    for name in world.stopped:
        world.start(name)
    world.come_to_rest()
    assert world.cluster.judge.violations == []
    assert kill or world.applied() >= durable
    assert world.applied() > durable // 2, "what it gave before it came there is the smaller part"


@pytest.mark.parametrize("kill", [False, True], ids=["paused", "killed"])
@pytest.mark.parametrize("place", PLACES)
def test_whoever_goes_on_from_an_earlier_stay_is_seen(place: str, kill: bool) -> None:
    world = World(place, MUTANTS["earlier-stays"].parts)
    world.stop(kill=kill)
    assert [violation.kind for violation in world.cluster.judge.violations] == ["earlier-stay"]


@pytest.mark.parametrize("place", PLACES)
def test_who_returns_without_a_copy_is_not_waited_for_but_the_others_are(place: str) -> None:
    """The follower comes back first, with an empty memory; what its authority had is on that one's disk."""
    world = World(place)
    assert CHECKPOINT_INTERVAL_S < 21.0
    durable = world.stop(kill=True)
    world.start(world.stopped[1])
    world.until(lambda: world.waits_for() == [world.target])
    world.passing(5.0)
    assert (row := world.recovery()) is not None
    assert not row.target
    world.start(world.target)
    world.come_to_rest()
    assert world.cluster.judge.violations == []
    assert world.applied() > durable // 2, "its last checkpoint counts"


@pytest.mark.parametrize("place", PLACES)
def test_of_those_that_were_removed_nobody_waits_for_anything(place: str) -> None:
    world = World(place)
    world.stop(kill=True)
    log = world.cluster.logs[instance_of(world.target)]
    for name in world.stopped:
        assert name in world.waits_for()
        world.cluster.gone[name] = None
        drain = log.run("server.drain", {"server": name, "drain_id": "removed", "now_s": 0.0})
        log.run("server.remove", {"server": name, "drain_id": drain["id"]})
        world.passing(3.0)
    world.until(lambda: world.recovery() is None)
    assert world.cluster.judge.violations == []
    record = world.cluster.record(world.entity)
    assert record is not None
    assert record.authority not in ("", *world.stopped)
