"""Making it happen: draws from a mix what goes wrong and what people do, and ends each fault after a while."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from batonpass.authority.machines.replica_choice import backup_replicas_of
from batonpass.authority.names import instance_of
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.homeserver import SimulatedHomeserver
from batonpass.scenarios.simulation.servers.simserver import SimulationServer

__all__ = ["ServersFaults"]

_SOON_S: Final = (0.01, 4.0)
"""Between the deaths of a backup replica and of an authority: from before there is another copy until long after."""


class ServersFaults:
    """Lets things happen until it is told to stop."""

    def __init__(self, cluster: ServersCluster) -> None:
        self._cluster: Final = cluster
        self._mix: Final = cluster.mix
        self._dice: Final = cluster.dice
        self._rates: Final = dict(cluster.mix.rates())
        self._names: Final = sorted({*cluster.servers, *cluster.homes})
        self._total: Final = sum(self._rates.values())
        self._stopped = False
        self._next()

    def stop(self) -> None:
        """No more of it; what lasts ends now, but for servers that are dead for good."""
        self._stopped = True
        cluster = self._cluster
        cluster.mail.heal()
        cluster.shows.engines_are_late = False
        for log in cluster.logs.values():
            log.heal()
        stopped: list[SimulationServer | SimulatedHomeserver] = [*cluster.servers.values(), *cluster.homes.values()]
        for one in stopped:
            one.process.go_on()
            if not one.process.is_running and one.name not in cluster.gone:
                one.start()
        self._remove_the_dead()

    def _remove_the_dead(self) -> None:
        """Operators say that servers that are dead for good will not return: what only these had is not waited for."""
        self._cluster.schedule.after(1.0, self._remove_the_dead)
        for name in self._cluster.gone:
            log, store = self._cluster.logs[instance_of(name)], self._cluster.homes_of(instance_of(name))[0].store
            if store.row(name) is None:
                continue
            # Delegations to it end by that: what waits for its word waits until it is removed.
            drain = log.run("server.drain", {"server": name, "drain_id": "removed", "now_s": 0.0})
            if store.named_by(name) == (0, 0):
                log.run("server.remove", {"server": name, "drain_id": drain["id"]})
                self._cluster.judge.died(f"{name}, removed")

    def _next(self) -> None:
        self._cluster.schedule.after(self._dice.expovariate(self._total), self._happen)

    def _happen(self) -> None:
        if self._stopped:
            return
        (kind,) = self._dice.choices(list(self._rates), list(self._rates.values()))
        self._cluster.schedule.note(kind)
        subject = self._cluster.people if hasattr(self._cluster.people, kind) else self
        make: Callable[[], None] = getattr(subject, kind if subject is not self else f"_{kind}")
        make()
        self._next()

    def _later(self, seconds: tuple[float, float], action: Callable[[], None]) -> None:
        def end() -> None:
            if not self._stopped:
                action()

        self._cluster.schedule.after(self._dice.uniform(*seconds), end)

    # --- the network ------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        one, other = self._dice.sample(self._names, 2)
        self._block([(one, other), (other, one)])

    def _cut_one_way(self) -> None:
        one, other = self._dice.sample(self._names, 2)
        self._block([(one, other)])

    def _isolate(self) -> None:
        self._block(self._ways_of(self._dice.choice(self._names)))

    def _ways_of(self, name: str) -> list[tuple[str, str]]:
        everybody = [*self._names, *(player.name for player in self._cluster.players)]
        return [way for other in everybody if other != name for way in ((name, other), (other, name))]

    def _block(self, ways: Iterable[tuple[str, str]], seconds: tuple[float, float] | None = None) -> None:
        blocked = list(ways)
        mail = self._cluster.mail
        for way in blocked:
            mail.cut(*way)

        def mend() -> None:
            for way in blocked:
                mail.mend(*way)

        self._later(seconds or self._mix.cut_s, mend)

    def _cut_from_home(self) -> None:
        name = self._dice.choice(self._cluster.server_names)
        homes = [home.name for home in self._cluster.homes_of(instance_of(name))]
        self._block([way for home in homes for way in ((name, home), (home, name))])

    def _strand(self) -> None:
        name = self._dice.choice(self._cluster.server_names)
        mail, late_s = self._cluster.mail, self._dice.uniform(*self._mix.late_s)
        homes = [home.name for home in self._cluster.homes_of(instance_of(name))]
        others = [one for one in self._cluster.servers_of(instance_of(name)) if one != name]
        for other in others:
            mail.delay(name, other, late_s)
        self._block([way for home in homes for way in ((name, home), (home, name))])

        def end() -> None:
            for other in others:
                mail.delay(name, other, 0.0)

        self._later(self._mix.cut_s, end)

    # --- simulation servers ----------------------------------------------------------------------------------------

    def _pause(self) -> None:
        process = self._cluster.servers[self._dice.choice(self._cluster.server_names)].process
        process.stand_still()
        self._later(self._mix.pause_s, process.go_on)

    def _crash(self) -> None:
        self._crash_one(self._dice.choice(self._cluster.server_names))

    def _fail_engine(self) -> None:
        """Of one node of a show; others continue, and its server takes part again after a crash."""
        engines = [engine for engine in self._cluster.shows.engines.values() if engine.is_running]
        if engines:
            self._dice.choice(engines).fails = True

    def _crash_under_way(self) -> None:
        """A server with a large state on its way, or that waits for one."""
        ways = list(self._cluster.mail.under_way)
        if ways:
            self._crash_one(self._dice.choice(self._dice.choice(ways)))

    def _crash_one(self, name: str, down_s: tuple[float, float] | None = None) -> None:
        server = self._cluster.servers[name]
        if server.process.is_running:
            self._cluster.crash(name)
            self._later(down_s or self._mix.down_s, lambda: self._start(name))

    def _start(self, name: str) -> None:
        server = self._cluster.servers[name]
        if not server.process.is_running and name not in self._cluster.gone:
            server.start()

    def _kill(self) -> None:
        name = self._dice.choice(self._cluster.server_names)
        if all(instance_of(one) != instance_of(name) for one in self._cluster.gone):
            self._cluster.crash(name)
            self._cluster.gone[name] = None

    def _crash_with_follower(self) -> None:
        record = self._cluster.record(self._dice.choice(self._cluster.entities))
        if record is None or not record.authority:
            return
        near = self._cluster.servers_of(instance_of(record.authority))
        for replica in backup_replicas_of(record.id, record.authority, near, 1):
            self._crash_one(replica)
        self._later(_SOON_S, lambda: self._crash_one(record.authority))

    def _leave_alone(self) -> None:
        name, alone_s = self._dice.choice(self._cluster.server_names), self._dice.uniform(*self._mix.alone_s)
        for other in self._cluster.servers_of(instance_of(name)):
            if other == name:
                continue
            if self._dice.random() < 0.2:
                self._crash_one(other, (alone_s, alone_s))
            else:
                self._block(self._ways_of(other), (alone_s, alone_s))
        self._later((alone_s, alone_s), lambda: self._crash_one(name))

    def _stop_together(self) -> None:
        """An entity's authority, and those that may come after it; each returns at a time of its own."""
        record = self._cluster.record(self._dice.choice(self._cluster.entities))
        if record is None or not record.authority:
            return
        near = self._cluster.servers_of(instance_of(record.authority))
        replicas = backup_replicas_of(record.id, record.authority, near, 1)
        is_pause, whole = self._dice.random() < 0.5, self._dice.random() < 0.5
        for name in near if whole else (record.authority, *replicas):
            if is_pause:
                process = self._cluster.servers[name].process
                process.stand_still()
                self._later(self._mix.together_s, process.go_on)
            else:
                self._crash_one(name, self._mix.together_s)

    def _power_cut(self) -> None:
        """All of an instance at once, or of all instances; each returns at a time of its own, with its disk."""
        instance, whole = instance_of(self._dice.choice(self._cluster.server_names)), self._dice.random() < 0.5
        cut = [name for name in self._cluster.server_names if whole or instance_of(name) == instance]
        self._cluster.lose_power(cut)
        for name in cut:
            self._later(self._mix.together_s, partial(self._start, name))

    # --- homes and the log -----------------------------------------------------------------------------------------

    def _home(self) -> SimulatedHomeserver:
        return self._cluster.homes[self._dice.choice(list(self._cluster.homes))]

    def _crash_home(self) -> None:
        home = self._home()
        if not home.process.is_running:
            return
        log = self._cluster.logs[instance_of(home.name)]
        home.process.end()
        log.cut_off(home.name)

        def back() -> None:
            log.mend(home.name)
            if not home.process.is_running:
                home.start()

        self._later(self._mix.down_s, back)

    def _depose(self) -> None:
        name = self._home().name
        log = self._cluster.logs[instance_of(name)]
        log.cut_off(name)
        self._later(self._mix.away_s, lambda: log.mend(name))

    def _away(self) -> None:
        log = self._dice.choice(list(self._cluster.logs.values()))
        log.is_away = True

        def back() -> None:
            log.is_away = False

        self._later(self._mix.away_s, back)
