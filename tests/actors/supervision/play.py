"""Plays a script on real supervisors."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from batonpass.actors import (
    IGNORE,
    ActorSpec,
    ChildInfo,
    ChildSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Ref,
    Server,
    StartError,
    Stop,
    Supervisor,
    SupervisorError,
    SupervisorSpec,
    System,
)
from batonpass.actors.core.server import Ignore
from tests.actors.supervision.model import WINDOW_S
from tests.actors.supervision.script import Ask, Branch, End, Leaf, Step, Wait


class Player:
    """The actors of one script, and the transcript of what they do."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.log: list[str] = []
        self.starts: dict[str, int] = {}
        self.top: Ref | None = None
        self._kinds: dict[str, type[Supervisor | DynamicSupervisor]] = {}

    async def start(self, top: Branch) -> list[str]:
        """Start the family; what happened."""
        try:
            self.top = await self.system.start_child(self.spec(top))
        except StartError:
            self.log.append("=failed")
        return await self._happened()

    async def do(self, step: Step) -> list[str]:
        """What happens then."""
        self.log = []
        match step:
            case Wait(seconds):
                await trio.sleep(seconds)
            case End(name, reason):
                child = await self._find(name)
                if child is not None and reason == "kill":
                    child.kill()
                elif child is not None and name in self._kinds:
                    child.process.request_stop(reason)
                elif child is not None:
                    child.cast(reason)
            case Ask(name, verb, child):
                supervisor = self.top if name == "top" else await self._find(name)
                if supervisor is not None:
                    answer = await self._ask(supervisor, self._kinds[name], verb, child)
                    await trio.testing.wait_all_tasks_blocked()
                    self.log.append("=" + answer)
        happened = await self._happened()
        if self.top is not None and not self.top.alive:
            happened.append("dead")
        return happened

    async def seen(self) -> list[str]:
        """Who is there."""
        return [
            f"{info.id}" + ("" if info.status == "running" else "-") for info in await self._everybody("top", self.top)
        ]

    def spec(self, spec: Leaf | Branch) -> ChildSpec:
        """The specification of a child, and of those below it."""
        common: dict[str, Any] = {"restart": spec.restart, "significant": spec.significant}
        if isinstance(spec, Leaf):
            return ActorSpec(spec.name, WaitingActor if spec.waits else Actor, (spec, self), **common)
        self._kinds[spec.name] = Supervisor if spec.strategy else DynamicSupervisor
        if spec.strategy is None:
            return DynamicSupervisorSpec(spec.name, max_restarts=spec.max_restarts, window_s=WINDOW_S, **common)
        return SupervisorSpec(
            spec.name,
            tuple(self.spec(kid) for kid in spec.kids),
            strategy=spec.strategy,
            max_restarts=spec.max_restarts,
            window_s=WINDOW_S,
            auto_shutdown=spec.auto_shutdown,
            **common,
        )

    async def _happened(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        happened, self.log = self.log, []
        return happened

    async def _ask(
        self, supervisor: Ref, kind: type[Supervisor | DynamicSupervisor], verb: str, child: str | Leaf | Branch
    ) -> str:
        try:
            if not isinstance(child, str):
                return "none" if await kind.start_child(supervisor, self.spec(child)) is None else "ok"
            if kind is DynamicSupervisor and verb == "stop":
                refs = {info.id: info.ref for info in await kind.which_children(supervisor)}
                await DynamicSupervisor.terminate_child(supervisor, refs.get(child) or supervisor)
            elif verb == "stop":
                await Supervisor.terminate_child(supervisor, child)
            elif verb == "delete":
                await Supervisor.delete_child(supervisor, child)
            elif await Supervisor.restart_child(supervisor, child) is None:
                return "none"
        except SupervisorError:
            return "refused"
        except StartError:
            return "failed"
        return "ok"

    async def _find(self, name: str) -> Ref | None:
        return next((info.ref for info in await self._everybody("top", self.top) if info.id == name), None)

    async def _everybody(self, name: str, supervisor: Ref | None) -> list[ChildInfo]:
        """Every child of every supervisor that runs, each followed by those below it."""
        if supervisor is None or not supervisor.alive:
            return []
        found: list[ChildInfo] = []
        for info in await self._kinds[name].which_children(supervisor):
            found.append(info)
            if info.type == "supervisor":
                found += await self._everybody(str(info.id), info.ref)
        return found


class Actor(Server[Leaf]):
    """A leaf: its starts and the ends it is told to make are in the transcript."""

    trap_exit = True

    def init(self, arg: tuple[Leaf, Player]) -> Any:
        return self.begin(*arg)

    def begin(self, leaf: Leaf, player: Player) -> Leaf | Stop[Leaf] | Ignore:
        self.leaf, self.player, self.by_itself = leaf, player, False
        name, starts = self.leaf.name, self.player.starts
        turn = starts.get(name, 0)
        starts[name] = turn + 1
        outcome = self.leaf.starts[turn] if turn < len(self.leaf.starts) else "."
        self.player.log.append({".": "+", "x": "x", "i": "i"}[outcome] + name)
        if outcome == "x":
            return Stop("failed")
        return IGNORE if outcome == "i" else self.leaf

    def handle_cast(self, message: object, state: Leaf) -> Stop[Leaf]:
        self.by_itself = True
        return Stop(message)

    def terminate(self, reason: object, state: Leaf) -> object:
        if reason == "shutdown" and not self.by_itself:
            self.player.log.append("-" + self.leaf.name)
        return None


class WaitingActor(Actor):
    """The same, for whom its supervisor has to wait."""

    async def init(self, arg: tuple[Leaf, Player]) -> Any:
        await trio.lowlevel.checkpoint()
        return self.begin(*arg)

    async def terminate(self, reason: object, state: Leaf) -> object:
        await trio.lowlevel.checkpoint()
        return super().terminate(reason, state)
