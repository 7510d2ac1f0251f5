"""One simulated cluster of servers: what there is, and how it stands."""

import random
from collections.abc import Collection
from functools import partial
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.model.records import EntityRecord, GroupPhase, Phase
from batonpass.authority.model.standing import OrphanPolicy, Standing
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.foreign_custody import is_abroad
from batonpass.crypto.key_forms import encode_point
from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.servers.homeserver import SimulatedHomeserver
from batonpass.scenarios.simulation.servers.keys import SimulatedKeys, homes_of
from batonpass.scenarios.simulation.servers.log import Log, SimulatedStore
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.mixes import ServerMix
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.scenarios.simulation.servers.people import People
from batonpass.scenarios.simulation.servers.player import SimulatedPlayer
from batonpass.scenarios.simulation.servers.promises.absences import Absences
from batonpass.scenarios.simulation.servers.promises.apart import Apart
from batonpass.scenarios.simulation.servers.promises.births import BirthWatcher
from batonpass.scenarios.simulation.servers.promises.correspondence import Correspondence
from batonpass.scenarios.simulation.servers.promises.families import Families
from batonpass.scenarios.simulation.servers.promises.frames import FrameWatch, ShowFrames
from batonpass.scenarios.simulation.servers.promises.ghosts import GhostsInTheEnd, GhostWatch
from batonpass.scenarios.simulation.servers.promises.judge import ServersJudge
from batonpass.scenarios.simulation.servers.promises.ownerships import Ownerships
from batonpass.scenarios.simulation.servers.promises.regions import RegionsInTheEnd
from batonpass.scenarios.simulation.servers.promises.scene_states import SceneMembers, SceneWatch
from batonpass.scenarios.simulation.servers.shows import SHOW_PARAMS, SimulatedShows
from batonpass.scenarios.simulation.servers.simserver import SimulationServer
from batonpass.scenarios.simulation.servers.streams import SimulatedStreamClients
from batonpass.scenarios.simulation.servers.tasks import SimulatedProcess, VirtualClock
from batonpass.scenarios.simulation.servers.world import LARGE
from batonpass.simserver.sync.hosting.world import KIND as STREAM
from batonpass.simserver.sync.scenes.world import KIND as SCENE
from batonpass.simserver.sync.shows.world import KIND as SHOW

__all__ = ["ServersCluster"]

_READY_S: Final = 5.0
_AHEAD_S: Final = 1000.0
ON_DISK_AFTER_S: Final = 0.2
"""Until then what a run begins with may be in memory only: a part of a copy interval, and what its ledger lingers."""
OVERLAP_S: Final = 3600.0
"""How long keys that were replaced are good: longer than any run, whose clocks differ by `_AHEAD_S` at most."""


class ServersCluster:
    """Home instances of two homeservers each, and the simulation servers, entities and players of the mix."""

    def __init__(self, mix: ServerMix, dice: random.Random, parts: ServersParts | None = None) -> None:
        self.mix: Final = mix
        self.dice: Final = dice
        self.schedule: Final = Schedule()
        self.judge: Final = ServersJudge(
            self._may_simulate, self._has_lease, self.schedule.note, self._keepers, self._outlives
        )
        self.absences: Final = Absences(self)
        self.births: Final = BirthWatcher(self)
        self._watching: Final[
            list[
                Families
                | Absences
                | BirthWatcher
                | Apart
                | ShowFrames
                | Ownerships
                | SimulatedStreamClients
                | SceneMembers
                | Correspondence
                | GhostsInTheEnd
                | RegionsInTheEnd
            ]
        ] = []
        self.entities: Final[list[str]] = []
        self.mail: Final = SimulatedMail(self.schedule, dice)
        self.watch: Final = FrameWatch(
            self.judge.violated,
            self.judge.newest,
            self.judge.came.__getitem__,
            self.judge.was_set_back,
            lambda: self.schedule.now_s,
        )
        self.shows: Final = SimulatedShows(self.mail, dice, self.watch)
        self.scene_watch: Final = SceneWatch(
            self.judge.violated,
            self.judge.newest,
            lambda entity: self.judge.resumed.get(entity, ()),
            self.judge.was_set_back,
        )
        self.correspondence: Final = Correspondence(self)
        self.ghost_watch: Final = GhostWatch(self)
        self._connections = 0
        self.mail.stamp = lambda: len(self.judge.debts.deaths)
        self.crashes = 0
        self.worlds_wander = True
        self.server_names: Final = mix.servers
        self.gone: Final[dict[str, None]] = {}
        """The servers that are dead for good."""
        parts, keys = parts or ServersParts(), SimulatedKeys(mix.servers)
        self._keys: Final = keys
        self.logs: Final = {
            instance: Log(
                homes_of(instance), dice, mix.unknown_share, partial(self._decided, instance), parts.procedures
            )
            for instance in dict.fromkeys(map(instance_of, mix.servers))
        }
        self._stores: Final = {instance: SimulatedStore(log) for instance, log in self.logs.items()}
        self.homes: Final = {
            name: SimulatedHomeserver(seat, keys, self._process(name), self.mail, self._clock(), dice, parts, mix)
            for log in self.logs.values()
            for name, seat in log.seats.items()
        }
        for instance, log in self.logs.items():
            for row in keys.of_instance(instance):
                log.run("directory.register", {"row": row.to_data()})
        judge, shows = self.judge, self.shows
        self.servers: Final = {
            name: SimulationServer(
                name,
                keys,
                self._process(name),
                self.mail,
                self._clock(),
                judge,
                self._whim,
                parts,
                mix,
                shows,
                self.scene_watch,
                self.correspondence,
                self.ghost_watch,
            )
            for name in mix.servers
        }
        # A server that has no lease yet is given nothing.
        self.schedule.run_until(self.schedule.now_s + _READY_S, self._is_ready)
        self.mail.weather = mix.weather
        told, rate, stream, sees = self._told, mix.inputs_per_s, parts.stream, judge.shows
        self.players: Final = [
            SimulatedPlayer(
                name,
                self.mail,
                self._process(name),
                self._clock(),
                dice,
                told,
                rate,
                stream,
                mix.absent > 0,
                shows=sees,
            )
            for name in mix.players
        ]
        self.entities.extend(self._spawned(number) for number in range(mix.entities))
        self._born_s: Final = self.schedule.now_s
        self._watching.extend([Families(self)] if mix.attach else [])
        self._watching.extend([self.absences] if mix.policies else [])
        self._watching.extend([self.births] if mix.create else [])
        self._watching.extend([Apart(self)] if mix.move_apart else [])
        self._watching.extend([Ownerships(self)] if mix.owner_heard_s or mix.absent else [])
        self._watching.extend([SimulatedStreamClients(self, self.entities[: mix.streams])] if mix.streams else [])
        self._watching.extend([ShowFrames(self, self.entities[: mix.shows])] if mix.shows else [])
        self._watching.extend([self.correspondence] if mix.corresponds else [])
        self._watching.extend([SceneMembers(self, self.entities[: mix.scenes])] if mix.scenes else [])
        self._watching.extend([GhostsInTheEnd(self)] if mix.meets else [])
        self._watching.extend([RegionsInTheEnd(self)] if mix.roams else [])
        self.people: Final = People(self)

    def _process(self, name: str) -> SimulatedProcess:
        return SimulatedProcess(name, self.schedule)

    def _clock(self) -> VirtualClock:
        drift = self.mix.drift_permille / 1000
        return VirtualClock(self.schedule, 1 + self.dice.uniform(-drift, drift), self.dice.uniform(0, _AHEAD_S))

    def _is_ready(self) -> bool:
        return all(server.node.lease.is_alive for server in self.servers.values())

    def _spawned(self, number: int) -> str:
        mix = self.mix
        server = mix.servers[number % len(mix.servers)]
        entity = f"{instance_of(server)}.e{number}"
        spawner = mix.players[0 if mix.has_one_master else number % len(mix.players)]
        if is_stream := number < mix.streams:
            entity = f"{instance_of(server)}.{STREAM}-{number}"
        if is_show := number < mix.shows:
            entity = f"{instance_of(server)}.{SHOW}-{number}"
        if is_scene := number < mix.scenes:
            entity = f"{instance_of(server)}.{SCENE}-{number}"
        kind = LARGE if number < mix.large else "counter"
        kind = SHOW if is_show else STREAM if is_stream else SCENE if is_scene else kind
        params = {"incarnation": f"{number:032x}"} if is_stream else {}
        params = SHOW_PARAMS[number % len(SHOW_PARAMS)] if is_show else params
        args = {
            "entity": entity,
            "kind": kind,
            "spawner": spawner,
            "server": server,
            "rule": mix.rules[number % len(mix.rules)],
        }
        args |= self._policies() if mix.policies else {}
        record = EntityRecord.from_data(self.logs[instance_of(entity)].run("entity.create", args))
        self.servers[server].spawn(entity, kind, spawner, params)
        for player in self.players:
            player.follow(record)
        return entity

    def _policies(self) -> dict[str, Any]:
        """What becomes of an entity whose server dies, or whose owner goes away."""
        dice = self.dice
        return {
            "orphans": dice.choice([policy.value for policy in OrphanPolicy]),
            "on_leave": dice.choice([policy.value for policy in LeavePolicy]),
            "owner_timeout_s": dice.choice((0, 2, 3, 5)),
            "heir": dice.choice(("", *self.mix.players)),
        }

    def _decided(self, instance: str, procedure: str, args: Any, answer: Any) -> None:
        self.judge.decided(procedure, args, answer)
        for one in self._watching:
            one.decided(instance, procedure, args, answer)

    def _whim(self, here: str, ticks_here: int) -> str | None:
        """Where a world would have an entity go; or, of one that has not begun, anything if it is not to."""
        share = self.mix.wander_share * self.worlds_wander if ticks_here else self.mix.moody_share
        return self.dice.choice(self.mix.servers) if share and self.dice.random() < share else None

    def _told(self, instance: str, entity: str) -> EntityRecord | None:
        return None if self.logs[instance].is_away else self._stores[instance].entity(entity)

    def told(self, instance: str, entity: str) -> EntityRecord | None:
        """The record of an entity as its home would tell it now; None if that cannot be asked."""
        return self._told(instance, entity)

    def signing_key(self, server: str) -> Any:
        """The public key by which a server signs now."""
        return self._keys.identity(server).public.signing

    def key_of(self, point: bytes) -> Any:
        """The public key of a server with this point; None if there is none."""
        keys = (self.signing_key(server) for server in self.server_names)
        return next((key for key in keys if encode_point(key) == point), None)

    def next_connection(self) -> int:
        """A number that no connection has had."""
        self._connections += 1
        return self._connections

    def _may_simulate(self, server: str, entity: str) -> bool:
        return self.servers[server].may_simulate(entity)

    def _has_lease(self, server: str) -> bool:
        return self.servers[server].has_lease

    def _keepers(self, entity: str, fence: Fence) -> list[str]:
        """Servers that have something of an entity of this fence or a later one, and are there or may return."""
        return [name for name, one in self.servers.items() if name not in self.gone and one.keeps(entity, fence)]

    def _outlives(self, server: str, entity: str) -> bool:
        """Whether there would be something of an entity if this server died now, on its disk or with others."""
        here = [one for name, one in self.servers.items() if name not in self.gone]
        others = [one for one in here if one.name != server and one.process.is_running]
        return any(one.has_on_disk(entity) for one in here) or any(one.keeps(entity, Fence(1)) for one in others)

    # --- what there is ---------------------------------------------------------------------------------------------

    def homes_of(self, instance: str) -> list[SimulatedHomeserver]:
        """The homeservers of an instance."""
        return [self.homes[name] for name in homes_of(instance)]

    def servers_of(self, instance: str) -> list[str]:
        """The simulation servers of an instance."""
        return [name for name in self.mix.servers if instance_of(name) == instance]

    def store_of(self, instance: str) -> SimulatedStore:
        """What the log of an instance has."""
        return self._stores[instance]

    def record(self, entity: str) -> EntityRecord | None:
        """What the log says of an entity."""
        return self._stores[instance_of(entity)].entity(entity)

    def crash(self, server: str) -> None:
        """Kill a simulation server, if it runs."""
        if self.servers[server].process.is_running:
            self.crashes += 1
            self.servers[server].crash()
            self.mail.died(server)
            self.judge.died(server)

    def lose_power(self, servers: Collection[str]) -> None:
        """Kill all of these at once. What they have is on the disk of a server, but for what was born just now."""
        disks = [one for name, one in self.servers.items() if name not in self.gone]
        for entity in self.entities if self.schedule.now_s - self._born_s > ON_DISK_AFTER_S else ():
            holders = [name for name in servers if self.servers[name].holding(entity) is not None]
            if holders and not any(one.has_on_disk(entity) for one in disks):
                self.judge.violated("on-no-disk", f"{holders[0]} has {entity}, and no server has it on its disk")
        for name in servers:
            self.crash(name)

    def revoke(self, server: str) -> None:
        """The keys of a simulation server are revoked: its home knows at once, the others when they look again."""
        self.servers[server].change_keys(self._keys.revoke(server))
        self.schedule.note(f"the keys of {server} are revoked")

    def rotate(self, server: str) -> None:
        """A simulation server signs with other keys from now on; those of before are good for `OVERLAP_S`."""
        now_s = self.servers[server].node.clock.unix_s()
        self.servers[server].change_keys(self._keys.rotate(server, now_s, OVERLAP_S))
        self.schedule.note(f"the keys of {server} are replaced")

    # --- looking ---------------------------------------------------------------------------------------------------

    def left_out(self, entity: str) -> str:
        """Why nothing is expected of an entity in the end, in a word; empty when it must be somewhere and at rest.

        `lost`: two servers died with all that there was of it, or it waits for one that is dead for good. `ended`: it
        is no more.
        """
        if entity in self.absences.ended:
            return "ended"
        record = self.record(entity)
        if record is None or record.authority:
            return ""
        is_nowhere = record.standing is Standing.LOST and not self._keepers(entity, Fence(record.born))
        return "lost" if is_nowhere or self._waits_in_vain(entity) else ""

    def _waits_in_vain(self, entity: str) -> bool:
        """Whether it waits for a server that is dead for good and that cannot be removed.

        Its policy may have it wait for one of another instance, of which only its master can let it go. And one that
        others may still be passed to stays in the directory: a delegation ends with the next hand-over through home.
        People have those handed over (`Faults`); but where all others are drained or dead, there is nowhere to go.
        """
        store = self._stores[instance_of(entity)]
        row = store.recovery(entity)
        if row is None:
            return False
        if row.held and row.last in self.gone and is_abroad(entity, row.last):
            return True
        waited_for = {row.last} if row.held else set(self._waited_for(entity))
        return any(self._stays_named(server) for server in waited_for & self.gone.keys())

    def _waited_for(self, entity: str) -> list[str]:
        """Servers that may have later copies of it than those that were found, as its home says."""
        shown = [home.parts.takeovers.to_data()["waiting"] for home in self.homes_of(instance_of(entity))]
        return [server for rows in shown for row in rows if row["entity"] == entity for server in row["waits_for"]]

    def _stays_named(self, server: str) -> bool:
        """Whether a dead server stays in its directory, since others may be passed to it and cannot be handed over."""
        instance = instance_of(server)
        store = self._stores[instance]
        drained = {drain.server for drain in store.drains()}
        free = [one for one in self.servers_of(instance) if one not in self.gone and one not in drained]
        return len(free) < 2 and store.row(server) is not None and store.named_by(server) != (0, 0)

    def unsettled(self) -> str:
        """What has not come to rest, in a sentence; empty when everything has."""
        for entity in self.entities:
            if (why := self._why_not_settled(entity)) and not self.left_out(entity):
                return why
        watched = next((why for one in self._watching if (why := one.unsettled())), "")
        return self._why_not_decided() or self._why_not_empty() or watched

    def _why_not_settled(self, entity: str) -> str:
        record = self.record(entity)
        if record is None:
            return f"the log has no record of {entity}"
        here = {name: held for name, server in self.servers.items() if (held := server.holding(entity)) is not None}
        if list(here) != [record.authority]:
            told = f"{record.authority or 'no server'} ({record.standing})"
            return f"{entity} is on {list(here) or 'no server'}, and the log says {told}"
        life = here[record.authority].life
        if life.frozen or life.quarantine_reason:
            told = f"the log says {record.fence}"
            return f"{entity} is frozen or quarantined on {record.authority} under {life.fence}, {told}"
        if life.fence != record.fence:
            return f"{record.authority} has {entity} under {life.fence}, the log says {record.fence}"
        for player in self.players:
            stream = player.streams[entity]
            if stream.waiting and not stream.owner and not player.is_absent:
                return f"{player.name} waits for {len(stream.waiting)} inputs of {entity} on {record.authority}"
            cursor, taken_over = life.inbox.cursors.get(player.name), self.judge.taken_over(entity)
            if not (self.judge.is_excused(entity) or player.agrees(stream, cursor, taken_over)):
                return f"{record.authority} applied other inputs to {entity} than {player.name} sent"
        return ""

    def _why_not_decided(self) -> str:
        """Groups are moved as a whole or not at all."""
        return next((why for name in self.people.groups if (why := self.why_divided(name))), "")

    def why_divided(self, name: str) -> str:
        """Whether a group has been moved in part, in a sentence; empty if it was not."""
        for store in self._stores.values():
            group = store.group(name)
            if group is None or group.phase is GroupPhase.APART:
                continue
            phases = [member.phase for one in group.members if (member := store.transfer(one)) is not None]
            moved = [phase in (Phase.COMMITTED, Phase.DONE) for phase in phases]
            if any(moved) != all(moved) or any(moved) != (group.phase is GroupPhase.COMMITTED):
                return f"{name} is {group.phase}, its members {list(map(str, phases))}"
        return ""

    def _why_not_empty(self) -> str:
        """A drained server has nothing left, if there is another one."""
        for name, server in self.servers.items():
            instance = instance_of(name)
            is_drained = server.process.is_running and self._stores[instance].drain(name) is not None
            others = [one for one in self.servers_of(instance) if one not in (name, *self.gone)]
            left = [one.id for one in server.node.holdings if not self.left_out(one.id)]
            if is_drained and others and left:
                return f"{name} is drained and still has {left}"
        return ""

    def figures(self) -> dict[str, Any]:
        """What happened, in numbers."""
        left_out = [self.left_out(entity) for entity in self.entities]
        streams = [stream for player in self.players for stream in player.streams.values()]
        return {
            "moves": self.judge.moves,
            "proposed": self.people.proposed,
            "inputs": self.births.acknowledged + sum(stream.acknowledged for stream in streams),
            "given_again": sum(stream.given_again for stream in streams),
            "ticks": self.judge.ticks,
            "messages": self.mail.sent,
            "crashes": self.crashes,
            "deaths": len(self.judge.debts.deaths),
            "takeovers": self.judge.takeovers,
            "ticks_lost": self.judge.ticks_lost,
            "lost": left_out.count("lost"),
            "born": self.births.born,
            "ended": left_out.count("ended") + len(self.births.ended),
            "ghosts": self.ghost_watch.seen,
            "delivered": self.correspondence.had,
            "contacts": self.ghost_watch.contacts,
        }
