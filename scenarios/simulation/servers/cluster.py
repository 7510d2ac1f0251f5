"""One simulated cluster of servers: who there is, and what people do to it."""

import random
from typing import Final

from authority.names import instance_of
from authority.records import EntityRecord
from scenarios.simulation.schedule import Schedule
from scenarios.simulation.servers.homeserver import Home
from scenarios.simulation.servers.judge import Judge
from scenarios.simulation.servers.keys import Keys
from scenarios.simulation.servers.mail import Mail
from scenarios.simulation.servers.mixes import ServerMix
from scenarios.simulation.servers.player import Player
from scenarios.simulation.servers.simserver import Parts, SimulationServer
from scenarios.simulation.servers.tasks import Process, VirtualClock

__all__ = ["Cluster"]

SERVERS: Final = ("alpha.s1", "alpha.s2", "alpha.s3", "beta.s1", "beta.s2")
PLAYERS: Final = ("alpha.ada", "beta.bob")
ENTITIES: Final = 8
_GROUP: Final = 3


class Cluster:
    """Two home instances, five simulation servers, eight entities and two players."""

    def __init__(self, mix: ServerMix, dice: random.Random, parts: Parts | None = None) -> None:
        self.mix: Final = mix
        self.dice: Final = dice
        self.schedule: Final = Schedule()
        self.judge: Final = Judge()
        self.mail: Final = Mail(self.schedule, dice, mix.weather)
        self.crashes = 0
        self.proposed = 0
        self._clock: Final = VirtualClock(self.schedule)
        keys = Keys(SERVERS)
        self.homes: Final = {
            instance: Home(
                instance,
                keys,
                Process(f"{instance}.h1", self.schedule),
                self.mail,
                self._clock,
                dice,
                mix.unknown_share,
            )
            for instance in dict.fromkeys(map(instance_of, SERVERS))
        }
        self.servers: Final = {
            name: SimulationServer(
                name, keys, Process(name, self.schedule), self.mail, self._clock, self.judge,
                self._wandering, parts or Parts(),
            )
            for name in SERVERS
        }  # fmt: skip
        self.players: Final = [
            Player(name, self.mail, Process(name, self.schedule), self._clock, dice, self._told, mix.inputs_per_s)
            for name in PLAYERS
        ]
        self.entities: Final = [self._spawned(number) for number in range(ENTITIES)]

    def _spawned(self, number: int) -> str:
        server = SERVERS[number % len(SERVERS)]
        entity = f"{instance_of(server)}.e{number}"
        spawner = PLAYERS[number % len(PLAYERS)]
        record = self.homes[instance_of(entity)].create(entity, spawner, server, "allow")
        self.servers[server].spawn(entity, spawner)
        for player in self.players:
            player.follow(record)
        return entity

    def _wandering(self, here: str, ticks_here: int) -> str | None:
        share = self.mix.wander_share
        return self.dice.choice(SERVERS) if share and self.dice.random() < share else None

    def _told(self, instance: str, entity: str) -> EntityRecord | None:
        home = self.homes[instance]
        return None if home.log.is_away else home.store.entity(entity)

    # --- what people do --------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Somebody has an entity moved: a player, who owns it then, or the operators; directly or not, by either way.

        What a player was permitted is refused at the commit if the owner has changed until then.
        """
        entity = self.dice.choice(self.entities)
        home = self.homes[instance_of(entity)]
        self.proposed += 1
        how = {
            "direct": self.dice.random() < 0.5,
            "transport": self.dice.choice(("rest", "link")),
            "mode": self.dice.choice(("eager", "staged")),
            "requester": self.dice.choice((*PLAYERS, "", "")),
        }
        home.process.start_soon(home.move, f"transfer-{self.proposed:06d}", entity, self.dice.choice(SERVERS), how)

    def take(self) -> None:
        """A player takes the ownership of an entity."""
        entity, player = self.dice.choice(self.entities), self.dice.choice(PLAYERS)
        home = self.homes[instance_of(entity)]
        self.proposed += 1
        home.process.start_soon(home.take, f"ownership-{self.proposed:06d}", entity, player)

    def delegate(self) -> None:
        """Some servers of one instance may pass an entity among themselves, its holder among them."""
        entity = self.dice.choice(self.entities)
        home = self.homes[instance_of(entity)]
        record = home.store.entity(entity)
        near = [name for name in SERVERS if instance_of(name) == instance_of(entity)]
        if record is None or record.authority not in near or len(near) < 2:
            return
        others = [name for name in near if name != record.authority]
        group = (record.authority, *self.dice.sample(others, min(self.dice.randint(1, _GROUP - 1), len(others))))
        home.process.start_soon(home.delegate, entity, group)

    # --- looking ---------------------------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """What has not come to rest, in a sentence; empty when everything has."""
        for entity in self.entities:
            if not self.judge.is_destroyed(entity) and (why := self._why_not_settled(entity)):
                return why
        return ""

    def _why_not_settled(self, entity: str) -> str:
        record = self.homes[instance_of(entity)].store.entity(entity)
        if record is None:
            return f"the log has no record of {entity}"
        here = {name: held for name, server in self.servers.items() if (held := server.holding(entity)) is not None}
        if list(here) != [record.authority]:
            return f"{entity} is on {list(here) or 'no server'}, and the log says {record.authority}"
        life = here[record.authority].life
        if life.frozen or life.broken:
            return f"{entity} stands still on {record.authority} under {life.fence}, the log says {record.fence}"
        if life.fence != record.fence:
            return f"{record.authority} has {entity} under {life.fence}, the log says {record.fence}"
        for player in self.players:
            stream = player.streams[entity]
            if stream.waiting and not stream.owner:
                return f"{player.name} waits for {len(stream.waiting)} inputs of {entity} on {record.authority}"
            if not player.agrees(stream, life.inbox.cursors.get(player.name)):
                return f"{record.authority} applied other inputs to {entity} than {player.name} sent"
        return ""
