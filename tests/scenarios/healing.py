"""An instance in the test's own process, under a load of inputs and hand-overs, whose actors can be killed."""

import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path as FilePath

import trio

from batonpass.actors import (
    ChildInfo,
    ChildSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Exit,
    Ref,
    Restart,
    Supervisor,
    SupervisorSpec,
    System,
)
from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.http.client import HttpClient
from batonpass.actors.supervision.tree_view import Path, outline
from batonpass.homeserver.server import main as homeserver_app
from batonpass.scenarios.cases.cases import PLAYER, CasePlan, Run
from batonpass.scenarios.judge.evidence import Evidence, collect
from batonpass.scenarios.players.link_players import Players
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from batonpass.simserver.server import main as simserver_app
from batonpass.simserver.server.config import SimserverConfig
from tests.homeserver.served import Home, homeserver_config, new_ports, served, until
from tests.scenarios.asked import PATIENCE_S

SERVERS = ("alpha.s1", "alpha.s2")
ENTITIES: dict[str, CasePlan | None] = {
    "alpha.by-home": CasePlan("2", None, "rest", "3", *SERVERS),
    "alpha.by-link": CasePlan("2", None, "link", "3", *SERVERS),
    "alpha.direct": CasePlan("3", None, "link", "2", *SERVERS, direct=True),
    "alpha.at-rest": None,
}
ENTITY = "<entity>"


def trees() -> dict[str, ChildSpec]:
    """The supervision tree of each kind of server, as its composition root makes it."""
    with tempfile.TemporaryDirectory() as name, new_ports() as ports:
        directory = FilePath(name)
        config = homeserver_config(directory, ports)
        client = HttpClient()
        trio.run(client.aclose)
        simserver = SimserverConfig(
            name="alpha.s1",
            instance="alpha",
            directory=directory / "s1",
            home_urls=(config.rest.url,),
            join_token_file=directory / "join",
        )
        home = homeserver_app.build(config, client, InstanceClock(Clock(), config.name))
        sim = simserver_app.open_shell(simserver, client, InstanceClock(Clock(), simserver.name))
        return {
            "homeserver": homeserver_app.supervision_tree(home),
            "simserver": simserver_app.supervision_tree(sim),
        }


def paths(tree: ChildSpec) -> list[Path]:
    """Every actor that the tree is made of; an entity stands for all of them."""
    found: list[Path] = []
    for path, spec in outline(tree):
        found.append(path)
        if isinstance(spec, DynamicSupervisorSpec):
            found.append((*path, ENTITY))
    return found


async def live_tree(system: System) -> dict[Path, ChildInfo]:
    """The tree as it is: every child of every supervisor. Raises Exit when a supervisor ends before it has answered."""
    return await _below((), await _children_of(system.root, None))


async def _children_of(ref: Ref, spec: ChildSpec | None) -> list[ChildInfo]:
    if isinstance(spec, DynamicSupervisorSpec):
        return await DynamicSupervisor.which_children(ref)
    return await Supervisor.which_children(ref)


async def _below(above: Path, children: list[ChildInfo]) -> dict[Path, ChildInfo]:
    found: dict[Path, ChildInfo] = {}
    for child in children:
        path = (*above, str(child.id))
        found[path] = child
        if child.ref is not None and isinstance(child.spec, SupervisorSpec | DynamicSupervisorSpec):
            found |= await _below(path, await _children_of(child.ref, child.spec))
    return found


@dataclass
class Instance:
    """One homeserver and two simulation servers that hand entities to and fro, while a player pushes them."""

    home: Home
    run: Run
    moves: int = 0
    kills: list[Path] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    is_ending: bool = False

    @property
    def systems(self) -> dict[str, System]:
        running = {"alpha.h1": self.home.node.system} | {name: n.system for name, n in self.home.simservers.items()}
        return {name: system for name, system in running.items() if system is not None}

    # --- load ---------------------------------------------------------------------------------------------------

    async def move_to_and_fro(self, entity: str, plan: CasePlan) -> None:
        """Hand an entity over, again and again."""
        while not self.is_ending:
            try:
                await self.run.move(entity, plan)
                self.moves += 1
            except ApiFailure as failure:
                self.failures.append(f"{entity}: {failure}")
                await self.run.locate(entity)
            await trio.sleep(0.01)

    async def let_it_work(self, moves: int = 2) -> None:
        """Wait until so many more hand-overs are done, and every entity has ticked on."""
        before, ticks = self.moves, self.ticks()
        await until(lambda: self.moves >= before + moves)
        await until(lambda: all(self.ticks().get(entity, 0) > ticks.get(entity, 0) for entity in ENTITIES))

    def ticks(self) -> dict[str, int]:
        """The tick that each entity has reached."""
        reached: dict[str, int] = {}
        for node in self.home.simservers.values():
            for holding in node.holdings:
                reached[holding.id] = max(reached.get(holding.id, 0), holding.life.tick)
        return reached

    # --- killing and healing --------------------------------------------------------------------------------------

    async def kill(self, server: str, path: Path) -> None:
        """Kill an actor by its place in the tree, `ENTITY` meaning whichever entity has one there."""
        with trio.fail_after(PATIENCE_S):
            ref = await self._find(server, path)
            while ref is None:
                await trio.sleep(0.001)
                ref = await self._find(server, path)
        self.kills.append((server, *path))
        ref.kill()
        await ref.exited()

    async def _find(self, server: str, path: Path) -> Ref | None:
        try:
            now = await live_tree(self.systems[server])
        except Exit:
            return None
        if path[-1] != ENTITY:
            child, above = now.get(path), now.get(path[:-1])
            if child is None or child.status != "stopped":
                return None if child is None else child.ref
            # It has done its work; let it do so once more.
            return await Supervisor.restart_child(above.ref, path[-1]) if above and above.ref else None
        return next((child.ref for where, child in now.items() if where[:-1] == path[:-1] and child.ref), None)

    async def healed(self) -> None:
        """Wait until every child of every supervisor runs, and every entity has an actor."""
        unwell = await self.unwell()
        with trio.move_on_after(PATIENCE_S):
            while unwell:
                await trio.sleep(0.005)
                unwell = await self.unwell()
        assert unwell == []

    async def unwell(self) -> list[str]:
        """What is not as it should be, a line for each."""
        unwell: list[str] = []
        for name, system in self.systems.items():
            try:
                now = await live_tree(system)
            except Exit as error:
                return [f"{name}: {error}"]
            unwell += [f"{name}: {path} is {child.status}" for path, child in now.items() if not _is_well(child)]
            known = {child.ref for child in now.values()} | {system.root}
            unwell += [f"{name}: {ref} is in no tree" for ref in system.actors() if ref not in known]
        for name, node in self.home.simservers.items():
            unwell += [f"{name}: {h.id} has no actor" for h in node.holdings if not h.life.has_actor]
        return unwell

    async def evidence(self) -> Evidence:
        """What the servers wrote down, when everything that was sent has been applied."""
        await self.run.players.drained(PATIENCE_S)
        run = self.run
        return await collect(run.client, run.simservers, run.players, run.entities, run.world_check)


def _is_well(child: ChildInfo) -> bool:
    if child.status == "stopped":
        return child.spec.restart is not Restart.PERMANENT
    return child.ref is not None and child.ref.alive


@asynccontextmanager
async def instance(directory: FilePath, seed: int) -> AsyncIterator[Instance]:
    """Run an instance until the block ends; its entities live when it begins."""
    with new_ports() as ports:
        config = homeserver_config(directory, ports)
        async with served(config) as home:
            for name in SERVERS:
                await home.simserver(name)
            urls, tokens = {"alpha": [config.rest.url]}, {"alpha": (directory / "client").read_text()}
            client = RestClient(urls, tokens, PATIENCE_S)
            players = Players(PLAYER, client)
            rows = {name: (await home.api.get(f"/v1/servers/{name}"))["rest_url"] for name in SERVERS}
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(players.serve)
                    found = Instance(home, Run(client, players, rows, seed, random.Random(seed)))
                    for entity in ENTITIES:
                        await found.run.spawn(entity, SERVERS[0])
                    await home.api.do("PUT", "/v1/entities/alpha.direct/delegation", {"group": list(SERVERS)})
                    yield found
                    nursery.cancel_scope.cancel()
            finally:
                with trio.CancelScope(shield=True):
                    await client.aclose()


@asynccontextmanager
async def under_load(instance: Instance) -> AsyncIterator[None]:
    """Inputs and hand-overs for the length of the block; no hand-over is broken off when it ends."""
    async with trio.open_nursery() as pushing:
        pushing.start_soon(instance.run.push_all)
        async with trio.open_nursery() as moving:
            for entity, plan in ENTITIES.items():
                if plan is not None:
                    moving.start_soon(instance.move_to_and_fro, entity, plan)
            yield
            instance.is_ending = True
        pushing.cancel_scope.cancel()
