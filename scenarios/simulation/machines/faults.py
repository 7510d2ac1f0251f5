"""Making the faults of a mix happen, and the moves: each kind at its rate, at times that the dice say."""

from collections.abc import Callable, Iterable
from typing import Final

from batonpass.scenarios.simulation.machines.cluster import MachineCluster
from batonpass.scenarios.simulation.machines.mixes import Range

__all__ = ["MachineFaults"]

Way = tuple[str, str]


class MachineFaults:
    """What happens to a cluster from now on, until it is healed."""

    def __init__(self, cluster: MachineCluster) -> None:
        self._cluster: Final = cluster
        self._mix: Final = cluster.mix
        self._dice: Final = cluster.dice
        self._names: Final = [*cluster.servers, *(home.name for home in cluster.homes.values())]
        self._is_over = False
        self._repeat(self._mix.moves, cluster.move)
        self._repeat(self._mix.delegations, cluster.delegate)
        for kind, rate in self._mix.rates().items():
            happen: Callable[[], None] = getattr(self, f"_{kind}")
            self._repeat(rate, happen, kind)

    def heal(self) -> None:
        """Nothing more goes wrong, and what does is over."""
        cluster, self._is_over = self._cluster, True
        cluster.schedule.note("healed")
        cluster.is_resting = True
        cluster.network.heal()
        for home in cluster.homes.values():
            if home.is_away and home.granting is not None:
                home.granting.take_office()
            home.is_away, home.is_healed = False, True
        for server in cluster.servers.values():
            if not server.is_up:
                server.start()
            elif server.is_paused:
                server.go_on()

    def _repeat(self, rate: float, happen: Callable[[], None], noted: str = "") -> None:
        if not rate:
            return
        schedule, random = self._cluster.schedule, self._dice.random

        def again() -> None:
            if self._is_over:
                return
            if noted:
                schedule.note(f"fault {noted}")
            happen()
            # Evenly spread around the mean: what piles up is what the faults make of it.
            schedule.after(2 * random() / rate, again)

        schedule.after(2 * random() / rate, again)

    def _later(self, seconds: Range, action: Callable[[], None]) -> None:
        def end() -> None:
            if not self._is_over:
                action()

        self._cluster.schedule.after(self._dice.uniform(*seconds), end)

    # --- the network -----------------------------------------------------------------------------------------------

    def _block(self, ways: Iterable[Way]) -> None:
        network, blocked = self._cluster.network, list(ways)
        network.cut(blocked)
        self._later(self._mix.cut_s, lambda: network.mend(blocked))

    def _cut(self) -> None:
        one, other = self._dice.sample(self._names, 2)
        self._block([(one, other), (other, one)])

    def _cut_one_way(self) -> None:
        one, other = self._dice.sample(self._names, 2)
        self._block([(one, other)])

    def _isolate(self) -> None:
        name = self._dice.choice(self._names)
        self._block([way for other in self._names if other != name for way in ((name, other), (other, name))])

    # --- processes and the log -------------------------------------------------------------------------------------

    def _pause(self) -> None:
        server = self._cluster.servers[self._dice.choice(list(self._cluster.servers))]
        if server.is_up and not server.is_paused:
            server.is_paused = True
            life = server.lives
            self._later(self._mix.pause_s, lambda: server.go_on() if server.lives == life else None)

    def _crash(self) -> None:
        server = self._cluster.servers[self._dice.choice(list(self._cluster.servers))]
        if not server.is_up:
            return
        server.crash()

        def back() -> None:
            if not server.is_up:
                server.start()

        self._later(self._mix.down_s, back)

    def _away(self) -> None:
        home = self._cluster.homes[self._dice.choice(list(self._cluster.homes))]
        if home.is_away:
            return
        home.is_away = True
        if home.granting is not None:
            home.granting.leave_office()

        def back() -> None:
            home.is_away = False
            if home.granting is not None:
                home.granting.take_office()

        self._later(self._mix.away_s, back)
