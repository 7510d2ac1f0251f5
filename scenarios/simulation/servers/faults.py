"""Making it happen: draws from a mix what goes wrong and what people do, and ends each fault after a while."""

from collections.abc import Callable, Iterable
from typing import Final

from scenarios.simulation.servers.cluster import Cluster

__all__ = ["Faults"]


class Faults:
    """Lets things happen until it is told to stop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster
        self._mix: Final = cluster.mix
        self._dice: Final = cluster.dice
        self._rates: Final = dict(cluster.mix.rates())
        self._names: Final = sorted({*cluster.servers, *(home.process.name for home in cluster.homes.values())})
        self._total: Final = sum(self._rates.values())
        self._stopped = False
        self._next()

    def stop(self) -> None:
        """No more of it; what lasts ends now."""
        self._stopped = True
        cluster = self._cluster
        cluster.mail.heal()
        for home in cluster.homes.values():
            home.log.is_away, home.log.unknown_share = False, 0.0
        for server in cluster.servers.values():
            server.process.go_on()
            if not server.process.is_running:
                server.start()

    def _next(self) -> None:
        self._cluster.schedule.after(self._dice.expovariate(self._total), self._happen)

    def _happen(self) -> None:
        if self._stopped:
            return
        (kind,) = self._dice.choices(list(self._rates), list(self._rates.values()))
        self._cluster.schedule.note(kind)
        make: Callable[[], None] = getattr(self, f"_{kind}")
        make()
        self._next()

    def _later(self, seconds: tuple[float, float], action: Callable[[], None]) -> None:
        def end() -> None:
            if not self._stopped:
                action()

        self._cluster.schedule.after(self._dice.uniform(*seconds), end)

    # --- people ----------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        self._cluster.move()

    def _take(self) -> None:
        self._cluster.take()

    def _delegate(self) -> None:
        self._cluster.delegate()

    # --- the network ------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        one, other = self._dice.sample(self._names, 2)
        self._block([(one, other), (other, one)])

    def _cut_one_way(self) -> None:
        one, other = self._dice.sample(self._names, 2)
        self._block([(one, other)])

    def _isolate(self) -> None:
        name = self._dice.choice(self._names)
        everybody = [*self._names, *(player.name for player in self._cluster.players)]
        self._block([way for other in everybody if other != name for way in ((name, other), (other, name))])

    def _block(self, ways: Iterable[tuple[str, str]]) -> None:
        blocked = list(ways)
        mail = self._cluster.mail
        for way in blocked:
            mail.cut(*way)

        def mend() -> None:
            for way in blocked:
                mail.mend(*way)

        self._later(self._mix.cut_s, mend)

    # --- processes and the log --------------------------------------------------------------------------------------

    def _pause(self) -> None:
        process = self._cluster.servers[self._dice.choice(list(self._cluster.servers))].process
        process.stand_still()
        self._later(self._mix.pause_s, process.go_on)

    def _crash(self) -> None:
        server = self._cluster.servers[self._dice.choice(list(self._cluster.servers))]
        if not server.process.is_running:
            return
        self._cluster.crashes += 1
        self._cluster.judge.crashed(server.name, server.crash())
        self._later(self._mix.down_s, server.start)

    def _away(self) -> None:
        log = self._dice.choice(list(self._cluster.homes.values())).log
        log.is_away = True

        def back() -> None:
            log.is_away = False

        self._later(self._mix.away_s, back)
