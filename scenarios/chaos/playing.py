"""A player and listeners whose connections end all the time, while their entity is handed over and its server killed.

Real servers as processes of their own, real connections. The player gives numbered inputs without a break; listeners
watch, each in another way. In each turn all their connections are broken off without a word, and the entity is handed
over. In some turns the server that has it is killed by SIGKILL, and started again. At the end four things are held
against each other. They are what the player gave, and what the entity's cursor says was applied. They are what the
world itself has counted and added up, and what each listener was shown.
"""

import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import cbor2
import trio

from batonpass.authority.model.records import Phase
from batonpass.client.client import PlayerClient, connect
from batonpass.client.steering import Steering
from batonpass.client.watch import EntityUpdate, EntityWatch
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient

__all__ = ["PlayedTrial", "PlayingPlan", "play_through"]

PLAYER: Final = "alpha.ada"
BALL: Final = "alpha.ball-1"
SERVERS: Final = ("alpha.s1", "alpha.s2", "alpha.s3")
LEASE_TERM_S: Final = 6.0
_GIVE_EVERY_S: Final = 0.01
_LOOK_S: Final = 0.05
_Tell = Callable[[str], None]
_WATCHES: Final[tuple[dict[str, Any], ...]] = (
    {"entity": BALL},
    {"pattern": "alpha.ball-*"},
    {"owner": PLAYER},
    {"around": BALL, "radius": 3_000_000.0},
)
"""What the listeners watch, in turn."""


@dataclass(frozen=True)
class PlayingPlan:
    """How much is done. In each of `handovers` turns all connections are broken off, so that there are at least
    `disconnections` of them in the end. In `kills` turns, spread over all, a server is killed.
    """

    disconnections: int = 100
    handovers: int = 20
    kills: int = 1
    listeners: int = 4
    seed: int = 0
    patience_s: float = 120.0


@dataclass
class PlayedTrial:
    """What was done, and what was seen."""

    disconnections: int = 0
    handovers: int = 0
    kills: int = 0
    inputs: int = 0
    given_again: int = 0
    longest_gap_ticks: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"{self.inputs} inputs over {self.disconnections} disconnections, {self.handovers} hand-overs and "
            f"{self.kills} kills; {self.given_again} given again, longest gap {self.longest_gap_ticks} ticks"
        )


class _WatchingListener:
    """One that watches; what it was shown never goes back."""

    def __init__(self, number: int, watch: EntityWatch, trial: PlayedTrial) -> None:
        self._name: Final = f"listener {number} ({watch.asked.model_dump_json(exclude_defaults=True)})"
        self._watch: Final = watch
        self._trial: Final = trial
        self._last: EntityUpdate | None = None

    @property
    def pushes(self) -> int:
        """How many inputs the world has counted, as far as was shown."""
        return 0 if self._last is None else int(self._last.entity.state["pushes"])

    @property
    def pushed(self) -> list[int]:
        """What the world has added up of them."""
        return [] if self._last is None else list(self._last.entity.state["pushed"])

    async def listen(self) -> None:
        """Until what is watched ends."""
        async for change in self._watch:
            if change.entity.name == BALL:
                self._see(change)
        self._trial.problems.append(f"{self._name}: what it watches has ended")

    def _see(self, change: EntityUpdate) -> None:
        before, self._last = self._last, change
        if change.is_gone and self._watch.asked.area is None:
            self._trial.problems.append(f"{self._name}: it was told that the entity is gone, which was there")
        elif before is not None and not change.is_gone:
            self._trial.longest_gap_ticks = max(self._trial.longest_gap_ticks, change.ticks)
            if (change.entity.fence, change.entity.tick) < (before.entity.fence, before.entity.tick):
                self._trial.problems.append(f"{self._name}: what it was shown went back")

    def judge(self, inputs: int) -> None:
        """Whether it was shown all of them."""
        if self.pushes != inputs:
            self._trial.problems.append(f"{self._name}: it was shown {self.pushes} inputs of {inputs} in the end")


class _Player:
    """Gives inputs without a break, each another push, and adds them up."""

    def __init__(self, steering: Steering, dice: random.Random) -> None:
        self.steering: Final = steering
        self._dice: Final = dice
        self.last = steering.stream.sent
        self.pushed = [0, 0, 0]

    @property
    def given(self) -> int:
        """How many inputs it has given."""
        return self.last - self.steering.stream.floor

    async def play(self) -> None:
        """Until cancelled."""
        while True:
            push = [self._dice.randint(-1000, 1000) for _ in range(3)]
            self.last = await self.steering.give(cbor2.dumps(push))
            self.pushed = [one + each for one, each in zip(self.pushed, push, strict=True)]
            await anyio.sleep(_GIVE_EVERY_S)


async def play_through(plan: PlayingPlan, tell: _Tell = lambda _: None) -> PlayedTrial:
    """Start a cluster, do all of the plan, and judge."""
    trial = PlayedTrial()
    spec = ClusterSpec(instances={"alpha": 1}, simservers=len(SERVERS), lease_term_s=LEASE_TERM_S, log_level="WARNING")
    me = Identity.generate()
    async with LocalCluster.start(spec) as cluster, _rest_of(cluster, plan) as rest:
        await rest.call("alpha", "PUT", f"/v1/players/{PLAYER}/keys", {"keys": me.public.to_jwks()["keys"]})
        ball = {"id": BALL, "kind": "ball", "spawner": PLAYER, "server": SERVERS[0], "params": {}}
        await rest.call("alpha", "POST", "/v1/entities", ball)
        url = cluster.server("alpha.h1").rest_url
        async with AsyncExitStack() as stack:
            me_playing = await stack.enter_async_context(connect(url, player=PLAYER, identity=me))
            others = [await stack.enter_async_context(connect(url)) for _ in range(plan.listeners)]
            tasks = await stack.enter_async_context(anyio.create_task_group())
            listeners: list[_WatchingListener] = []
            for number, client in enumerate(others):
                listener = _WatchingListener(number, await client.watch(**_WATCHES[number % len(_WATCHES)]), trial)
                tasks.start_soon(listener.listen)
                listeners.append(listener)
            player = _Player(await me_playing.steer(BALL), random.Random(plan.seed))
            async with anyio.create_task_group() as playing:
                playing.start_soon(player.play)
                await _Ground(plan, cluster, rest, [me_playing, *others], trial, tell).turns()
                playing.cancel_scope.cancel()
            await _judge(player, listeners, rest, cluster, trial, plan)
            tasks.cancel_scope.cancel()
    return trial


@asynccontextmanager
async def _rest_of(cluster: LocalCluster, plan: PlayingPlan) -> AsyncIterator[RestClient]:
    rest = cluster.rest_client(plan.patience_s)
    try:
        yield rest
    finally:
        with trio.CancelScope(shield=True):
            await rest.aclose()


@dataclass
class _Ground:
    """Does what the plan says."""

    plan: PlayingPlan
    cluster: LocalCluster
    rest: RestClient
    clients: list[PlayerClient]
    trial: PlayedTrial
    tell: _Tell

    async def turns(self) -> None:
        """All turns: break off, hand over, kill."""
        plan, turn = self.plan, 0
        kills = {round((number + 0.5) * plan.handovers / plan.kills) for number in range(plan.kills)}
        while self.trial.handovers < plan.handovers or self.trial.disconnections < plan.disconnections:
            turn += 1
            with trio.fail_after(plan.patience_s):
                for client in self.clients:
                    await self._break_off(client)
                if self.trial.handovers < plan.handovers:
                    await self._hand_over()
                if turn in kills:
                    await self._kill()
            self.tell(f"turn {turn}: {self.trial.sentence}")

    async def _break_off(self, client: PlayerClient) -> None:
        """Once it has a connection: one that comes back is broken off again."""
        while not (ended := await client.break_off()):  # noqa: ASYNC110 — as below
            await anyio.sleep(_LOOK_S)
        self.trial.disconnections += ended

    async def _record(self) -> Any:
        return await self.rest.call("alpha", "GET", f"/v1/entities/{BALL}")

    async def _hand_over(self) -> None:
        record = await self._record()
        target = SERVERS[(SERVERS.index(record["authority"]) + 1) % len(SERVERS)]
        wish = {"transfer_id": secrets.token_hex(8), "to": target}
        phase = Phase.PERMITTED
        while phase not in (Phase.DONE, Phase.REFUSED):
            with suppress(ApiFailure):
                # A repetition answers how it stands. It is refused while the one before is not over yet.
                phase = (await self.rest.call("alpha", "POST", f"/v1/entities/{BALL}/transfers", wish))["phase"]
            await anyio.sleep(_LOOK_S)
        self.trial.handovers += phase == Phase.DONE

    async def _kill(self) -> None:
        server = (await self._record())["authority"]
        await self.cluster.kill(server)
        self.trial.kills += 1
        while (await self._record())["authority"] == server:  # noqa: ASYNC110 — as below
            await anyio.sleep(_LOOK_S)
        await self.cluster.restart(server)


async def _judge(
    player: _Player,
    listeners: list[_WatchingListener],
    rest: RestClient,
    cluster: LocalCluster,
    trial: PlayedTrial,
    plan: PlayingPlan,
) -> None:
    stream = player.steering.stream
    trial.inputs, trial.given_again = player.given, stream.given_again
    with trio.move_on_after(plan.patience_s):
        await player.steering.durable(player.last)
        while any(listener.pushes < player.given for listener in listeners):  # noqa: ASYNC110 — no event tells of it
            await anyio.sleep(_LOOK_S)
    record = await rest.call("alpha", "GET", f"/v1/entities/{BALL}")
    seen = await rest.get(f"{cluster.server(record['authority']).rest_url}/v1/local/entities/{BALL}")
    source = seen["sources"][PLAYER]
    pushed = next(iter(listener.pushed for listener in listeners), player.pushed)
    checks = {
        "inputs that the entity says were applied": (source["applied"], player.last),
        "the fold of their bytes": (source["digest"], stream.digest.hex()),
        "inputs that are durable": (stream.durable, player.last),
        "inputs that were lost": (stream.lost, 0),
        "what the world has added up": (pushed, player.pushed),
    }
    trial.problems += [f"{what}: {found}, not {wanted}" for what, (found, wanted) in checks.items() if found != wanted]
    for listener in listeners:
        listener.judge(player.given)
