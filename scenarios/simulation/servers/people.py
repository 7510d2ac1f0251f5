"""What people do to a cluster: players and operators, who know nothing of each other."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.errors import Reason
from batonpass.authority.fence import EPOCHS_OF_A_HISTORY
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.model.regions import RegionTable, divided
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.log_rollback import lowest_epoch
from batonpass.scenarios.simulation.servers.homeserver import SimulatedHomeserver
from batonpass.scenarios.simulation.servers.world import MOODY, SQUARE

if TYPE_CHECKING:
    from batonpass.scenarios.simulation.servers.cluster import ServersCluster

__all__ = ["People"]

_ASK_AGAIN_S: Final = 1.0
"""Longer than a homeserver takes to say that nothing was decided."""
_DELEGATES: Final = 3
_HEARS_OF_KEYS_S: Final = (0.0, 3.0)
_TOGETHER: Final = 3
_APART: Final = 4
_NOBODY_SHARE: Final = 0.2
_LEAVES_SHARE: Final = 0.3
_RETURNS_SHARE: Final = 0.7
_MOVES_AT_ONCE_SHARE: Final = 0.5
_DELETES_SHARE: Final = 0.4
_SAME_NAME_SHARE: Final = 0.3
_OTHER_TABLE_SHARE: Final = 0.1
_NO_TABLE_SHARE: Final = 0.03


class People:
    """Each of these draws what it is about, and asks a homeserver for it."""

    def __init__(self, cluster: "ServersCluster") -> None:
        self._cluster: Final = cluster
        self._dice: Final = cluster.dice
        self.proposed = 0
        self.groups: Final[list[str]] = []
        self._refused: Final[dict[str, None]] = {}
        self.drained: Final[dict[str, None]] = {}
        self._unanswered: Final[dict[str, object]] = {}

    def _home_of(self, name: str) -> SimulatedHomeserver | None:
        """A homeserver of an instance that runs."""
        homes = [home for home in self._cluster.homes_of(instance_of(name)) if home.process.is_running]
        return self._dice.choice(homes) if homes else None

    def move(self, entity: str = "") -> None:
        """An entity is moved by a player, who owns it then, or by the operators; directly or not, by either way.

        What a player was permitted is refused at the commit if the owner has changed until then.
        """
        cluster = self._cluster
        entity = entity or self._dice.choice(cluster.entities)
        self.proposed += 1
        how: dict[str, Any] = {
            "direct": self._dice.random() < 0.5,
            "transport": self._dice.choice(("rest", "link")),
            "mode": self._dice.choice(("eager", "staged")),
            "requester": self._dice.choice((*(player.name for player in cluster.players), "", "")),
        }
        if cluster.mix.budgets_ms:
            how["freeze_budget_ms"] = self._dice.choice(cluster.mix.budgets_ms)
        how |= self._notice()
        target = self._dice.choice(cluster.server_names)
        if (home := self._home_of(entity)) is not None:
            home.process.start_soon(home.move, f"transfer-{self.proposed:06d}", entity, target, how)

    def move_together(self) -> None:
        """Some entities of an instance are moved to a server, here or abroad, all of them or none."""
        cluster = self._cluster
        first = self._dice.choice(cluster.entities)
        others = [one for one in cluster.entities if instance_of(one) == instance_of(first) and one != first]
        entities = (first, *self._dice.sample(others, min(self._dice.randint(1, _TOGETHER - 1), len(others))))
        target = self._dice.choice(cluster.server_names)
        group, how = f"group-{len(self.groups):06d}", {"mode": self._dice.choice(("eager", "staged")), **self._notice()}
        if (home := self._home_of(first)) is not None:
            self.groups.append(group)
            home.process.start_soon(home.move_together, group, entities, target, how)

    def _notice(self) -> dict[str, int]:
        """How long before it leaves world and owner are told, if they ever are here."""
        notices_ms = self._cluster.mix.notices_ms
        return {"notice_ms": self._dice.choice(notices_ms)} if notices_ms else {}

    def move_apart(self) -> None:
        """Some entities are moved each by itself; perhaps one of them does not exist."""
        cluster = self._cluster
        target = self._dice.choice(cluster.server_names)
        instance = instance_of(self._dice.choice(cluster.entities))
        those = [one for one in cluster.entities if instance_of(one) == instance]
        entities = self._dice.sample(those, min(self._dice.randint(2, _APART), len(those)))
        if self._dice.random() < _NOBODY_SHARE:
            entities.insert(self._dice.randint(0, len(entities)), f"{instance}.nobody")
        self.proposed += 1
        how = {"mode": self._dice.choice(("eager", "staged")), **self._notice()}
        if (home := self._home_of(entities[0])) is not None:
            home.process.start_soon(home.move_apart, f"apart-{self.proposed:06d}", tuple(entities), target, how)

    def take(self) -> None:
        """A player takes the ownership of an entity."""
        entity, player = self._dice.choice(self._cluster.entities), self._dice.choice(self._cluster.players)
        self.proposed += 1
        if (home := self._home_of(entity)) is not None:
            home.process.start_soon(home.take, f"ownership-{self.proposed:06d}", entity, player.name)

    def attach(self) -> None:
        """An entity is given another parent, or none."""
        entity = self._dice.choice(self._cluster.entities)
        others = [one for one in self._cluster.entities if instance_of(one) == instance_of(entity) and one != entity]
        parent = self._dice.choice((*others, "", ""))
        if (home := self._home_of(entity)) is not None:
            home.process.start_soon(home.attach, entity, parent)

    def absent(self) -> None:
        """A player falls silent, perhaps not without a word, and comes back after a while; one at a time."""
        cluster = self._cluster
        player, says_so = self._dice.choice(cluster.players), self._dice.random() < _LEAVES_SHARE
        if any(one.is_absent for one in cluster.players):
            return
        player.go_away()
        for entity in cluster.entities if says_so else ():
            record, home = cluster.record(entity), self._home_of(entity)
            if record is not None and record.owner == player.name and home is not None:
                home.process.start_soon(home.leave, entity, player.name, record.owner_rev)
        if self._dice.random() < _RETURNS_SHARE:
            cluster.schedule.after(self._dice.uniform(*cluster.mix.absent_s), player.come_back)

    def delegate(self) -> None:
        """Some servers of one instance may pass an entity among themselves, its holder among them."""
        cluster = self._cluster
        entity = self._dice.choice(cluster.entities)
        record, near = cluster.record(entity), cluster.servers_of(instance_of(entity))
        home = self._home_of(entity)
        if record is None or record.authority not in near or len(near) < 2 or home is None:
            return
        others = [name for name in near if name != record.authority]
        more = self._dice.sample(others, min(self._dice.randint(1, _DELEGATES - 1), len(others)))
        home.process.start_soon(home.delegate, entity, (record.authority, *more))

    def part(self) -> None:
        """A log is told that there was another history of it, further on than it has heard before."""
        instance = self._dice.choice(sorted(self._cluster.logs))
        log = self._cluster.logs[instance]
        block = lowest_epoch(self._cluster.homes_of(instance)[0].store.tree) // EPOCHS_OF_A_HISTORY
        log.run("log.parted", {"office": block, "mark": f"{block:032x}"})

    def revoke(self) -> None:
        """The operator of a server revokes its keys; the others hear of it by and by."""
        cluster, server = self._cluster, self._dice.choice(self._cluster.server_names)
        cluster.revoke(server)
        for other in cluster.servers.values():
            cluster.schedule.after(self._dice.uniform(*_HEARS_OF_KEYS_S), partial(other.keys.look_again, server))

    def drain(self) -> None:
        """A server is to be emptied, or one that was may be given entities again; one of an instance at a time.

        Operators ask until they are answered, and begin nothing else until then. An instance of which all servers are
        drained would have no server left to give anything to.
        """
        server = self._dice.choice(self._cluster.server_names)
        instance = instance_of(server)
        before = next((one for one in self.drained if instance_of(one) == instance), "")
        if instance in self._unanswered or self._home_of(server) is None:
            return
        if before:
            del self.drained[before]
            self._ask_until_done(self._unanswered, instance, server, lambda home: home.open(before))
        else:
            self.drained[server] = None
            self.proposed += 1
            drain_id = f"drain-{self.proposed:06d}"
            self._ask_until_done(self._unanswered, instance, server, lambda home: home.drain(server, drain_id))

    def rezone(self) -> None:
        """An operator begins a table of regions, changes a cell, or seldom ends it; some changes make no sense."""
        instance = instance_of(self._dice.choice(self._cluster.server_names))
        servers = self._cluster.servers_of(instance)
        home = self._home_of(servers[0])
        if home is None:
            return
        table = home.store.regions()
        if table is None or self._dice.random() < _OTHER_TABLE_SHARE:
            shared = self._dice.sample(servers, self._dice.randint(1, len(servers)))
            margin, hold_s = self._dice.choice((0.0, 5.0)), self._dice.choice((0.0, 0.5))
            root = divided(shared, (0.0, 0.0), (SQUARE, SQUARE))
            begun = RegionTable(1, 2, root, margin, hold_s).to_data()
            home.process.start_soon(
                home.rezone, "regions.set", {"table": begun, "revision": 0 if table is None else table.revision}
            )
            return
        cell, server = self._dice.choice(table.cells).name, self._dice.choice(servers)
        halves = {"low_server": server, "high_server": self._dice.choice((None, *servers))}
        procedure, args = self._dice.choice(
            (
                ("region.move", {"moves": {cell: server}}),
                ("region.split", {"cell": cell, "axis": self._dice.randint(0, 1), **halves, "at": self._somewhere()}),
                ("region.merge", {"cell": cell[:-1], "server": self._dice.choice((None, server))}),
            )
        )
        revision = self._dice.choice((None, table.revision))
        if self._dice.random() < _NO_TABLE_SHARE:
            procedure, args, revision = "regions.end", {}, None
        home.process.start_soon(home.rezone, procedure, {**args, "revision": revision})

    def _somewhere(self) -> float:
        return self._dice.uniform(0.0, SQUARE)

    def create(self) -> None:
        """A player creates some entities, or a master deletes one: a player who is not answered asks again."""
        cluster, births = self._cluster, self._cluster.births
        many, few = cluster.mix.entities, cluster.mix.entities // 2
        if len(cluster.entities) > few and (len(cluster.entities) > many or self._dice.random() < _DELETES_SHARE):
            entity = self._dice.choice(cluster.entities)
            record = cluster.record(entity)
            if record is not None and entity not in births.wanted:
                by, rev = record.master, record.master_rev
                self._ask_until_done(births.wanted, entity, entity, lambda home: home.delete(entity, by, rev))
            return
        for _ in range(cluster.mix.create_together):
            self._create_one()

    def _create_one(self) -> None:
        cluster, births = self._cluster, self._cluster.births
        server, player = self._dice.choice(cluster.server_names), self._dice.choice(cluster.players)
        self.proposed += 1
        again = [one for one in (*births.ended, *self._refused) if instance_of(one) == instance_of(server)]
        entity = f"{instance_of(server)}.n{self.proposed}"
        if again and self._dice.random() < _SAME_NAME_SHARE:
            entity = self._dice.choice(again)
        args = {"entity": entity, "kind": self._dice.choice(("counter", MOODY)), "spawner": player.name}
        args |= {"server": server, "rule": "allow"}
        if entity not in births.wanted:
            self._ask_until_done(births.wanted, entity, entity, lambda home: self._created(home, args))

    async def _created(self, home: SimulatedHomeserver, args: dict[str, str]) -> bool:
        answer = await home.create(args)
        if isinstance(answer, EntityRecord):
            self._cluster.births.answered(answer)
            if self._dice.random() < _MOVES_AT_ONCE_SHARE:
                self.move(answer.id)
        elif answer is Reason.DENIED:
            self._refused[args["entity"]] = None
        return answer is not None

    def _ask_until_done(
        self,
        unanswered: dict[str, object],
        about: str,
        name: str,
        ask: Callable[[SimulatedHomeserver], Awaitable[bool]],
    ) -> None:
        """Ask the instance of `name` once a second, until it answers this question.

        `unanswered` has the last question about everything. An earlier one, which was answered, is not asked again for
        the sake of a later one about the same. Nor does an answer to it end that: a server would be drained again that
        its operators want to have opened, and stay so.
        """
        question = unanswered[about] = object()

        async def asked(home: SimulatedHomeserver) -> None:
            if await ask(home) and unanswered.get(about) is question:
                del unanswered[about]

        def again() -> None:
            if unanswered.get(about) is question:
                if (home := self._home_of(name)) is not None:
                    home.process.start_soon(asked, home)
                self._cluster.schedule.after(_ASK_AGAIN_S, again)

        again()
