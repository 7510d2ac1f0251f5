"""A small cluster of servers that anything may happen to, step by step, with the safety sentences as invariants.

For a hypothesis state machine, which chooses the steps and shrinks what fails. The servers, homes, players and the log
are those of the simulated clusters: real machines on virtual time, with leases, take-overs, copies and disks that lose
what was not synced. All that is random here comes from one seed that never changes.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.names import instance_of
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.homeserver import SimulatedHomeserver
from batonpass.scenarios.simulation.servers.mixes import ServerMix
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.simserver import SimulationServer

__all__ = ["FATES", "MIX", "PromiseBroken", "Walk"]

MIX: Final = ServerMix(
    name="walk",
    purpose="nothing happens but what is chosen",
    servers=("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1"),
    entities=2,
    inputs_per_s=5.0,
)
FATES: Final = ("arrives", "is lost", "comes twice", "is kept back")
HEAL_S: Final = 120.0
"""Leases, elections, the patience of those who wait for others: a few of each, some 45 s. And what players give again:
as many as 256 inputs that nobody took for a minute. Where messages overtake one another, so that half of what is given
at once has to be given again, that is five a second."""
_MAX_KEPT_BACK: Final = 64


class PromiseBroken(AssertionError):
    """Something happened that must not."""


class Walk:
    """The cluster, and everything that may happen to it."""

    def __init__(self, parts: ServersParts | None = None) -> None:
        self.cluster: Final = ServersCluster(MIX, random.Random("walk"), parts)
        self.entities: Final = tuple(self.cluster.entities)
        self.servers: Final = tuple(self.cluster.servers)
        self.homes: Final = tuple(self.cluster.homes)
        self.everybody: Final = (*self.servers, *self.homes, *(player.name for player in self.cluster.players))
        self._fates: Final[list[str]] = []
        self._kept_back: Final[list[Callable[[], None]]] = []
        self._fences: Final[dict[str, Fence]] = {}
        self._transfers = 0
        self.cluster.mail.bring = self._bring

    # --- messages --------------------------------------------------------------------------------------------------

    def _bring(self, deliver: Callable[[], None]) -> None:
        match self._fates.pop(0) if self._fates else "arrives":
            case "comes twice":
                deliver()
                deliver()
            case "is kept back" if len(self._kept_back) < _MAX_KEPT_BACK:
                self._kept_back.append(deliver)
            case "is lost":
                pass
            case _:
                deliver()

    def decide_fates(self, fates: list[str]) -> None:
        """What becomes of the next messages that come, whomever they are for."""
        self._fates[:] = fates

    def let_come(self, place: int) -> None:
        """One that was kept back comes after all, whatever has come since."""
        if self._kept_back:
            self._kept_back.pop(place % len(self._kept_back))()

    # --- time, people, and what goes wrong ---------------------------------------------------------------------------

    def time_passes(self, seconds: float) -> None:
        """Nothing else happens for so long."""
        schedule = self.cluster.schedule
        schedule.run_until(schedule.now_s + seconds, lambda: bool(self.cluster.judge.violations))
        self.check()

    def order(self, entity: str, target: str, *, direct: bool, staged: bool, home: int) -> None:
        """Somebody has an entity moved."""
        asked = self.cluster.homes_of(instance_of(entity))[home % 2]
        if asked.process.is_running:
            self._transfers += 1
            how: dict[str, Any] = {"direct": direct, "mode": "staged" if staged else "eager"}
            how |= {"transport": "link", "requester": ""}
            asked.process.start_soon(asked.move, f"transfer-{self._transfers:06d}", entity, target, how)

    def delegate(self, entity: str, other: str) -> None:
        """The entity may be passed directly between where it is and another server of its instance."""
        record = self.cluster.record(entity)
        home = self.cluster.homes_of(instance_of(entity))[0]
        if record is None or not record.authority or not home.process.is_running:
            return
        if other != record.authority and {instance_of(other), instance_of(record.authority)} == {instance_of(entity)}:
            home.process.start_soon(home.delegate, entity, (record.authority, other))

    def give(self, entity: str) -> None:
        """Its player gives an input."""
        for player in self.cluster.players:
            player.give(entity)

    def crash(self, server: str, *, alone: bool) -> None:
        """It is killed: what was in its memory is gone, and what was not synced is as its disk likes.

        If it dies `alone`, only when none of the others is dead: with two of them, entities may be lost, and then there
        is little left to go wrong.
        """
        if not alone or all(self.cluster.servers[one].process.is_running for one in self.servers):
            self.cluster.crash(server)

    def restart(self, server: str) -> None:
        """It is started again, if it does not run."""
        if not self.cluster.servers[server].process.is_running:
            self.cluster.servers[server].start()

    def pause(self, server: str) -> None:
        """It stands still; what comes for it waits."""
        self.cluster.servers[server].process.stand_still()

    def resume(self, server: str) -> None:
        """It goes on as if nothing had happened."""
        self.cluster.servers[server].process.go_on()

    def part(self, one: str, other: str) -> None:
        """Neither hears the other."""
        self.cluster.mail.cut(one, other)
        self.cluster.mail.cut(other, one)

    def isolate(self, one: str) -> None:
        """It hears nobody, and nobody hears it."""
        for other in self.everybody:
            if other != one:
                self.part(one, other)

    def depose(self, home: str) -> None:
        """A homeserver hears nothing of the other ones: another one leads, and it does not know."""
        self.cluster.logs[instance_of(home)].cut_off(home)

    def crash_home(self, home: str) -> None:
        """A homeserver is killed; the other ones go on."""
        self.cluster.homes[home].process.end()
        self.cluster.logs[instance_of(home)].cut_off(home)

    def mend(self) -> None:
        """Everybody hears everybody again, runs, and goes on; what was kept back comes."""
        cluster = self.cluster
        self._fates.clear()
        cluster.mail.heal()
        for log in cluster.logs.values():
            log.heal()
        everybody: list[SimulationServer | SimulatedHomeserver] = [*cluster.servers.values(), *cluster.homes.values()]
        for one in everybody:
            one.process.go_on()
            if not one.process.is_running:
                one.start()
        while self._kept_back:
            self.let_come(0)

    # --- the promises ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold at every moment."""
        cluster = self.cluster
        for violation in cluster.judge.violations:
            raise PromiseBroken(f"{violation.kind}: {violation.sentence}")
        for entity in self.entities:
            simulating = [name for name in self.servers if self._simulates(name, entity)]
            if len(simulating) > 1:
                raise PromiseBroken(f"two authorities of {entity}: {simulating}")
            record = cluster.record(entity)
            if record is not None:
                before = self._fences.setdefault(entity, record.fence)
                if record.fence < before:
                    raise PromiseBroken(f"the log went back from {before} to {record.fence} of {entity}")
                self._fences[entity] = record.fence

    def _simulates(self, server: str, entity: str) -> bool:
        one = self.cluster.servers[server]
        return one.process.is_running and one.may_simulate(entity)

    def settle(self) -> None:
        """When everything is mended, every entity is somewhere and every input applied once, or it is declared lost.

        Lost is only what was nowhere else: of that the judge has a say.
        """
        self.mend()
        for player in self.cluster.players:
            player.resting = True
        schedule = self.cluster.schedule
        schedule.run_until(schedule.now_s + HEAL_S, self._is_over)
        self.check()
        if why := self.cluster.unsettled():
            raise PromiseBroken(f"{HEAL_S:g} s after everything was mended, {why}")

    def _is_over(self) -> bool:
        happened = self.cluster.schedule.happened
        return bool(self.cluster.judge.violations) or (happened % 64 == 0 and not self.cluster.unsettled())
