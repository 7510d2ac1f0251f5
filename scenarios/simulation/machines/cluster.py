"""A whole cluster of machines: two home instances, their simulation servers, entities and players, on one schedule."""

from random import Random
from typing import Any, Final

from batonpass.authority.machines.source import Mode
from batonpass.authority.model.records import Role, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.machines.home import MachineHome, home_of
from batonpass.scenarios.simulation.machines.judge import MachineJudge
from batonpass.scenarios.simulation.machines.mixes import MachineFaultMix
from batonpass.scenarios.simulation.machines.network import MachineNetwork
from batonpass.scenarios.simulation.machines.parts import MachineParts
from batonpass.scenarios.simulation.machines.player import MachinePlayer
from batonpass.scenarios.simulation.machines.server import MachineServer
from batonpass.scenarios.simulation.machines.tokens import Tokens
from batonpass.simserver.transfer.source.departure import DeparturePlan

__all__ = ["INSTANCES", "MachineCluster"]

INSTANCES: Final = ("alpha", "beta")
NOWHERE: Final = "s99"
"""A server that does not exist."""


class MachineCluster:
    """Everything together. What it does follows from the mix and the dice alone."""

    def __init__(self, mix: MachineFaultMix, dice: Random, parts: MachineParts | None = None) -> None:
        self.mix: Final = mix
        self.dice: Final = dice
        self.parts: Final = parts or MachineParts()
        self.schedule: Final = Schedule()
        self.network: Final = MachineNetwork(self.schedule, dice, mix)
        self.judge: Final = MachineJudge(self._may_simulate, self.schedule.note, has_leases=mix.leases)
        self.tokens: Final = Tokens()
        self.is_resting = False
        self.proposed = 0
        self.moves_by_case = {"1": 0, "2": 0, "3": 0}
        procedures = self.parts.procedures
        self.homes: Final = {
            one: MachineHome(
                one,
                self.schedule,
                self.network,
                self.judge,
                self.tokens,
                dice,
                mix,
                procedures,
                self.parts.rows(),
                self.parts.granter,
            )
            for one in INSTANCES
        }
        self.servers: Final[dict[str, MachineServer]] = {}
        self.players: Final[list[MachinePlayer]] = []
        self.entities: Final[list[str]] = []
        numbers = range(1, mix.servers + 1)
        self._near: Final = {one: tuple(f"{one}.s{number}" for number in numbers) for one in INSTANCES}
        self._ids = 0
        self._begin()

    def _begin(self) -> None:
        for instance, home in self.homes.items():
            home.committed = self._committed
            home.register(home.name, Role.HOMESERVER)
            self.network.nodes[home.name] = home
            for name in self.servers_of(instance):
                home.register(name)
                self.servers[name] = self.network.nodes[name] = MachineServer(self, name)
            home.others.update((other, home_of(other)) for other in INSTANCES if other != instance)
            if home.granting is not None:
                home.expired, home.lost = self.judge.died, self.judge.lost
                home.granting.begin(self.servers_of(instance))
                home.remind()
                for name in self.servers_of(instance):
                    self.servers[name].hold_lease(home.granting.granter.terms, self.servers_of(instance))
        for instance, home in self.homes.items():
            near = self.servers_of(instance)
            for number in range(self.mix.entities):
                entity, player = f"{instance}.e{number}", f"{instance}.p{number}"
                server = near[number % len(near)]
                home.run("entity.create", entity=entity, kind="counter", spawner=player, server=server, rule="allow")
                self.servers[server].spawn(entity, home.named(entity)[1])
                self.entities.append(entity)
                self.network.nodes[player] = one = MachinePlayer(
                    self, player, entity, server, 1 / self.mix.inputs_per_s
                )
                self.players.append(one)

    # --- looking ---------------------------------------------------------------------------------------------------

    def servers_of(self, instance: str) -> tuple[str, ...]:
        """The simulation servers of an instance."""
        return self._near[instance]

    def _may_simulate(self, server: str, entity: str) -> bool:
        """Whether a server would simulate an entity on at this moment, if it were asked to."""
        stay = self.servers[server].stays.get(entity)
        return stay is not None and not stay.frozen and self.servers[server].may_act()

    def authority_of(self, entity: str) -> str | None:
        """The authority that its home names to a player, if that answers."""
        home = self.homes[instance_of(entity)]
        return None if home.is_away else home.named(entity)[0] or None

    def _committed(self, transfer: TransferRecord) -> None:
        """In staged mode the log commits nothing before the target has the state on its disk."""
        if transfer.mode == Mode.STAGED and not transfer.sub and transfer.target in self.servers:
            staging = self.servers[transfer.target].disk.stages.get(transfer.id)
            if staging is None or staging.message.state_hash != transfer.state_hash:
                self.judge.violated("staged", f"{transfer.id} was committed, and {transfer.target} has not its state")

    def moved(self, entity: str, source: str, target: str, *, by_chain: bool) -> None:
        """A hand-over has come to its end: a server has begun by it."""
        same = instance_of(entity) == instance_of(source) == instance_of(target)
        self.moves_by_case["3" if by_chain else "2" if same else "1"] += 1

    def unsettled(self) -> str:
        """Why the cluster is not at rest; empty if it is. What is lost, as too many died, is not waited for."""
        threads = self.judge.threads
        for home in self.homes.values():
            for entity in home.waited_for():
                if not threads[entity].is_lost:
                    return f"{entity} is being recovered, or was permitted to go and is not gone"
        for entity in self.entities:
            if not threads[entity].is_lost and (why := self._why_not_at_rest(entity)):
                return why
        for player in self.players:
            if player.waits and not threads[player.entity].is_lost:
                return f"{player.name} has not heard of all its inputs"
        return next((why for server in self.servers.values() if (why := server.busy_with())), "")

    def _why_not_at_rest(self, entity: str) -> str:
        """Each is simulated by the server that the log names, under the fence that it names, and by no other."""
        named = self.homes[instance_of(entity)].named(entity)
        running = [
            (name, server.stays[entity].fence)
            for name, server in self.servers.items()
            if entity in server.stays and self._may_simulate(name, entity)
        ]
        return "" if running == [named] else f"the log has {entity} with {named}, and it is simulated by {running}"

    # --- doing -----------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """An entity is to be elsewhere: a player asks for that, or its world wants it."""
        mix, random = self.mix, self.dice.random
        entity = self.entities[int(random() * len(self.entities))]
        instance = instance_of(entity)
        authority = self.homes[instance].named(entity)[0]
        where = random()
        target = self._target(instance, where)
        self._ids += 1
        transfer_id = f"transfer-{self._ids:06d}"
        staged = random() < mix.staged_share
        direct = instance_of(target) == instance and random() < mix.direct_share
        if random() < mix.ordered_share:
            self.proposed += 1
            args: dict[str, Any] = {"mode": "staged"} if staged else {}
            if random() < mix.budget_share:
                args["freeze_budget_ms"] = mix.budgets_ms[int(random() * len(mix.budgets_ms))]
            self.homes[instance].propose(
                transfer_id=transfer_id, entity=entity, target=target, direct=direct, requester="", **args
            )
            return
        source = self.servers.get(authority)
        if source is not None and source.is_up and not source.is_paused and target != authority:
            mode = Mode.STAGED if staged else Mode.EAGER
            source.leaving.begin(DeparturePlan(transfer_id, entity, target, direct, mode=mode))

    def _target(self, instance: str, where: float) -> str:
        """Mostly a server of its own instance, sometimes one of the other, seldom one that does not exist."""
        if where < self.mix.nowhere_share:
            return f"{instance}.{NOWHERE}"
        place = instance if where < 0.7 else INSTANCES[instance == INSTANCES[0]]
        near = self.servers_of(place)
        return near[int(self.dice.random() * len(near))]

    def delegate(self) -> None:
        """Servers of its instance may pass an entity among themselves."""
        entity = self.entities[int(self.dice.random() * len(self.entities))]
        instance = instance_of(entity)
        self.homes[instance].delegate(entity, self.servers_of(instance))

    @property
    def moves(self) -> int:
        """How many hand-overs came to their end."""
        return sum(self.moves_by_case.values())
