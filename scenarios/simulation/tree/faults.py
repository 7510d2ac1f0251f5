"""Bad luck in the making: draws faults from a mix, and makes them happen to a cluster."""

from collections.abc import Callable, Iterable
from typing import Final

from batonpass.scenarios.simulation.tree.changes import Operator
from batonpass.scenarios.simulation.tree.cluster import TreeCluster

__all__ = ["TreeFaults"]

# Recovery takes a handful of disk operations, a compaction about ten: enough to be interrupted anywhere.
_DISK_OPERATIONS: Final = 12


class TreeFaults:
    """Lets faults happen until it is told to stop; ends each of them after a while."""

    def __init__(self, cluster: TreeCluster) -> None:
        self._cluster: Final = cluster
        self._mix: Final = cluster.mix
        self._dice: Final = cluster.dice
        self._rates: Final = dict(cluster.mix.rates())
        self._total: Final = sum(self._rates.values())
        # Two operators, who know nothing of each other: the leader must keep their changes apart.
        hands_on: set[str] = set()
        self._operators: Final = (Operator(cluster, hands_on), Operator(cluster, hands_on))
        self._stopped = False
        if self._total:
            self._next()

    def stop(self) -> None:
        """No more faults; those that last end now."""
        self._stopped = True
        for operator in self._operators:
            operator.stop()
        self._cluster.network.heal()
        for name in self._cluster.names:
            self._cluster.resume(name)

    def _next(self) -> None:
        self._cluster.schedule.after(self._dice.expovariate(self._total), self._happen)

    def _happen(self) -> None:
        if self._stopped:
            return
        (kind,) = self._dice.choices(list(self._rates), list(self._rates.values()))
        self._cluster.schedule.note(f"fault {kind}")
        make: Callable[[], None] = getattr(self, f"_{kind}")
        make()
        self._next()

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Let this end a fault, unless everything was healed before."""

        def end() -> None:
            if not self._stopped:
                action()

        self._cluster.schedule.after(delay_s, end)

    # --- what it hits ---------------------------------------------------------------------------------------------

    def _anyone(self) -> str:
        return self._dice.choice(self._cluster.present())

    def _leader(self) -> str:
        return self._dice.choice(self._cluster.leaders() or self._cluster.present())

    def _two(self) -> list[str]:
        return self._dice.sample(self._cluster.present(), 2)

    # --- processes and machines, named as the rates of a mix ------------------------------------------------------

    def _crash(self) -> None:
        self._crash_one(self._anyone())

    def _crash_leader(self) -> None:
        self._crash_one(self._leader())

    def _crash_one(self, name: str) -> None:
        self._cluster.crash_and_restart(name, power_cut=self._dice.random() < self._mix.power_cut_share)

    def _crash_on_disk(self) -> None:
        name = self._anyone()
        if name in self._cluster.running():
            self._cluster.member(name).crash_within(self._dice.randint(1, _DISK_OPERATIONS))

    def _crash_all(self) -> None:
        power_cut = self._dice.random() < self._mix.power_cut_share
        for name in self._cluster.present():
            self._cluster.crash_and_restart(name, power_cut=power_cut)

    def _pause(self) -> None:
        self._pause_one(self._anyone())

    def _pause_leader(self) -> None:
        self._pause_one(self._leader())

    def _pause_one(self, name: str) -> None:
        self._cluster.pause(name)
        self._later(self._dice.uniform(*self._mix.pause_s), lambda: self._cluster.resume(name))

    # --- the network ----------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        one, other = self._two()
        self._block([(one, other), (other, one)])

    def _cut_one_way(self) -> None:
        one, other = self._two()
        self._block([(one, other)])

    def _isolate(self) -> None:
        self._isolate_one(self._anyone())

    def _isolate_leader(self) -> None:
        self._isolate_one(self._leader())

    def _isolate_one(self, name: str) -> None:
        others = [other for other in self._cluster.names if other != name]
        self._block([link for other in others for link in ((name, other), (other, name))])

    def _halve(self) -> None:
        names = self._dice.sample(self._cluster.present(), len(self._cluster.present()))
        part = self._dice.randint(1, len(names) - 1)
        some, others = names[:part], names[part:]
        self._block([link for one in some for other in others for link in ((one, other), (other, one))])

    def _block(self, links: Iterable[tuple[str, str]]) -> None:
        """Block these directions for a while; some of the connections do not survive it."""
        blocked = list(links)
        for link in blocked:
            self._cluster.network.block(*link)
        for pair in sorted({tuple(sorted(link)) for link in blocked}):
            if self._dice.random() < self._mix.reset_share:
                self._later(self._dice.uniform(0.0, self._mix.cut_s[1]), self._breaking(pair[0], pair[1]))
        self._later(self._dice.uniform(*self._mix.cut_s), lambda: self._unblock(blocked))

    def _unblock(self, links: list[tuple[str, str]]) -> None:
        for link in links:
            self._cluster.network.unblock(*link)

    def _reset(self) -> None:
        one, other = self._two()
        self._cluster.network.break_connection(one, other)

    def _breaking(self, one: str, other: str) -> Callable[[], None]:
        return lambda: self._cluster.network.break_connection(one, other)

    def _slow(self) -> None:
        sender, receiver = self._two()
        network = self._cluster.network
        network.slow_down(sender, receiver, self._dice.uniform(*self._mix.slow_extra_s))
        self._later(self._dice.uniform(*self._mix.slow_s), lambda: network.slow_down(sender, receiver, 0.0))

    def _echo(self) -> None:
        sender, receiver = self._two()
        self._cluster.network.echo(sender, receiver)

    # --- clients and operators ------------------------------------------------------------------------------------

    def _burst(self) -> None:
        self._cluster.burst()

    def _change(self) -> None:
        self._dice.choice(self._operators).change()

    def _transfer(self) -> None:
        cluster = self._cluster
        target = self._anyone()
        for leader in cluster.leaders():
            if leader != target:
                cluster.in_process(leader, lambda leader=leader: cluster.member(leader).transfer(target), 0.0)  # type: ignore[misc]  # a default binds the loop's variable
