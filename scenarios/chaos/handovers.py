"""Hand-overs that are held still at a named step while a server is killed or stopped, and what becomes of them."""

import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import cbor2
import httpx
import trio

from batonpass.actors.base.breakpoints import ENVIRONMENT
from batonpass.authority.errors import Reason
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.names import instance_of
from batonpass.authority.node.breakpoints import Breakpoint
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.cases.cases import Run, open_run
from batonpass.scenarios.chaos.chain import Loss, ServerKill, judge_chain, latest
from batonpass.scenarios.chaos.gate import Gate, Hold
from batonpass.scenarios.chaos.network import NamespacedNetwork
from batonpass.scenarios.chaos.revoking import reset_keys, revoke_keys
from batonpass.scenarios.chaos.ways import STEPS, WAYS, Lapse, Victim, Way
from batonpass.scenarios.cluster.blueprint import ServerPlan
from batonpass.scenarios.cluster.cluster import LocalCluster, ProcessRole, baton_launcher
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.judge.evidence import inputs_of
from batonpass.scenarios.players.rest_client import ApiFailure

__all__ = [
    "Cut",
    "Deed",
    "Ground",
    "HandoverEnd",
    "Trial",
    "TrialResult",
    "all_cuts",
    "all_trials",
    "handover_ground",
]

_INPUT_HZ: Final = 50.0
_PATIENCE_S: Final = 150.0
"""Until an entity is simulated again and every input applied: many repetitions, and an election, on a busy machine."""
_REACH_S: Final = 90.0
"""Until a step is reached. A transfer that ends before is noticed, and does not take so long."""
_TRIES: Final = 8
_NOT_REACHED: Final = "the step was not reached, so nothing was tried"
_CUT_S: Final = 3.0
"""Longer than the first repetitions, and shorter than leases last."""
_STOP_S: Final = 1.5
"""Longer than the first repetitions, and than an election."""
_RESTART_S: Final = 180.0
_START_S: Final = 180.0
_LOOK_AGAIN_S: Final = 0.05


class Deed(StrEnum):
    """What happens: SIGKILL and a new start, SIGSTOP and SIGCONT after a while, or a partition for a while.

    `LAPSE` is a stop of one of the ends, or a partition of it and the log, for so long that its lease is over. `REVOKE`
    takes a server's keys from it: it revokes them itself. `REVOKE_KILL` kills it right then. `RESET` does so while it
    is held: its home instance takes others for its own, and it is killed and started with those.
    """

    KILL = "kill"
    STOP = "stop"
    CUT = "cut"
    LAPSE = "lapse"
    REVOKE = "revoke"
    REVOKE_KILL = "revoke-kill"
    RESET = "reset"


class Cut(StrEnum):
    """Who cannot reach whom, both ways, for a while; all others can."""

    OLD_NEW = "old-new"
    OLD_LOG = "old-log"
    NEW_LOG = "new-log"


_REVOKED_AT: Final = {
    Deed.REVOKE: (Breakpoint.OFFERED, Breakpoint.ACTIVATED, Breakpoint.ANSWERED),
    Deed.REVOKE_KILL: (Breakpoint.OFFERED, Breakpoint.ACTIVATED, Breakpoint.ANSWERED),
    Deed.RESET: (Breakpoint.FROZEN, Breakpoint.SEND_DIRECT, Breakpoint.PEER_ACTIVE, Breakpoint.REPORT),
}
"""At which steps of a direct pass the keys that it is signed with are taken away. One that is held revokes nothing."""
_SOURCE: Final = "alpha.s1"


@dataclass(frozen=True)
class Trial:
    """At which step of which way (`case`, a name in `WAYS`) what happens to whom."""

    case: str
    step: Breakpoint
    victim: Victim | Cut
    deed: Deed = Deed.KILL

    @property
    def parts(self) -> bool:
        """Whether it needs a network that can be cut."""
        return isinstance(self.victim, Cut)

    @property
    def way(self) -> Way:
        """How the hand-over goes."""
        return WAYS[self.case]

    def __str__(self) -> str:
        return f"case-{self.case}-{self.step}-{self.deed}-{self.victim}"


def all_trials(cases: Iterable[str] = tuple(WAYS)) -> tuple[Trial, ...]:
    """Every step, every end, everything; keys are taken away from a server that passes something directly with them."""
    deeds = [*itertools.product(Victim, (Deed.KILL, Deed.STOP)), (Victim.OLD, Deed.LAPSE), (Victim.NEW, Deed.LAPSE)]
    trials = [Trial(case, step, *deed) for case in cases for step, deed in itertools.product(STEPS[case], deeds)]
    if "3" in cases:
        trials += [Trial("3", step, Victim.OLD, deed) for deed, steps in _REVOKED_AT.items() for step in steps]
    return tuple(trials)


def all_cuts(cases: Iterable[str] = tuple(WAYS)) -> tuple[Trial, ...]:
    """Every step and every partition; they need a network that can be cut."""
    deeds = [*((cut, Deed.CUT) for cut in Cut), (Cut.OLD_LOG, Deed.LAPSE), (Cut.NEW_LOG, Deed.LAPSE)]
    return tuple(Trial(case, step, *deed) for case in cases for step, deed in itertools.product(STEPS[case], deeds))


class HandoverEnd(StrEnum):
    """What became of the entity."""

    GOES_ON = "goes on"
    """One server simulates it, the one that the log names, and has applied every input once."""
    UNAVAILABLE = "unavailable"
    """No server simulates it within the patience, or inputs wait for ever. Not doubled, but not there."""


@dataclass(frozen=True)
class TrialResult:
    """What became of a trial. `problems` are sentences about what must not be, whatever the outcome."""

    trial: Trial
    outcome: HandoverEnd
    took_s: float
    authority: str = ""
    problems: tuple[str, ...] = ()
    note: str = ""

    @property
    def violations(self) -> tuple[str, ...]:
        """The problems, and an entity that is not there although it should be."""
        if not self.was_tried:
            return (*self.problems, self.note)
        if self.outcome is HandoverEnd.UNAVAILABLE:
            return (*self.problems, "no server simulates it, or not all inputs arrive")
        return self.problems

    @property
    def was_tried(self) -> bool:
        """Whether the transfer came to the step at which something was to happen."""
        return not self.note.startswith(_NOT_REACHED)

    @property
    def sentence(self) -> str:
        """One line for the screen."""
        return f"{self.trial!s:42} {self.outcome:12} {self.took_s:6.2f} s  {self.authority} {self.note}".rstrip()


@dataclass
class Ground:
    """A cluster whose servers stop where they are told to, with a player who never stops."""

    cluster: LocalCluster
    run: Run
    gate: Gate
    network: NamespacedNetwork | None = None
    kills: list[ServerKill] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)

    async def do(self, trial: Trial) -> TrialResult:
        """One trial; again if its step was not reached, because the target did not answer in time on a busy machine."""
        result = await self._try(trial)
        for _ in range(_TRIES - 1):
            if result.was_tried or result.problems:
                break
            result = await self._try(trial)
        return result

    async def _try(self, trial: Trial) -> TrialResult:
        """A trial on an entity of its own."""
        entity = f"alpha.trial-{next(self.numbers)}"
        stream = await self._begin(entity, trial.way)
        transfer_id = f"{self.run.dice.getrandbits(96):024x}"
        began_s = trio.current_time()
        killed = len(self.kills)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._push, entity)
            nursery.start_soon(self._order, entity, transfer_id, trial.way)
            note = await self._happen(trial, entity, transfer_id)
            settled = await self._settled(entity, stream)
            nursery.cancel_scope.cancel()
        if settled:
            # What the player still has under way arrives, or the entity is not there.
            settled = await self.run.players.drained(_PATIENCE_S)
        for kill in self.kills[killed:]:
            # It writes down when it ended what it had as it becomes another incarnation, which may be after all that.
            if kill.loss is not Loss.KILLED:
                await self._until_lease_is(kill.server, LeasePhase.ALIVE)
        problems = judge_chain(latest(self._stints(entity)), self.kills)
        if trial.deed in _REVOKED_AT and not note.startswith(_NOT_REACHED):
            result = await self._result(transfer_id)
            note = f"{note}: {result}"
            problems += [] if result else ["its transfer has no result"]
        authority = ""
        if settled:
            authority, wrong = await self._inputs(entity, stream)
            problems += wrong
        self.run.players.streams.pop(entity, None)
        outcome = HandoverEnd.GOES_ON if settled else HandoverEnd.UNAVAILABLE
        return TrialResult(trial, outcome, trio.current_time() - began_s, authority, tuple(problems), note)

    async def _begin(self, entity: str, way: Way) -> InputStream:
        await self._spawn(entity)
        if way.path == "direct":
            body = {"group": sorted((_SOURCE, way.target))}
            await self.run.client.call("alpha", "PUT", f"/v1/entities/{entity}/delegation", body)
        stream = self.run.players.streams[entity]
        await self._push_one(stream)
        if not await self.run.players.drained(_PATIENCE_S):
            raise EnvironmentFailed(f"{entity} takes no inputs")
        # Another has a copy of it then.
        with trio.move_on_after(_PATIENCE_S):
            while True:
                if stream.durable >= stream.sent:
                    break
                await trio.sleep(_LOOK_AGAIN_S)
        return stream

    async def _spawn(self, entity: str) -> None:
        """Spawn it as soon as its server is given entities again after the trial before."""
        failure = ""
        with trio.move_on_after(_RESTART_S):
            while True:
                try:
                    await self.run.spawn(entity, _SOURCE)
                except ApiFailure as refused:
                    failure = str(refused)
                    await trio.sleep(_LOOK_AGAIN_S)
                else:
                    return
        raise EnvironmentFailed(f"{entity} cannot be spawned: {failure}")

    async def _push(self, entity: str) -> None:
        while True:
            await trio.sleep(1.0 / _INPUT_HZ)
            await self._push_one(self.run.players.streams[entity])

    async def _push_one(self, stream: InputStream) -> None:
        push = [self.run.dice.randrange(-200_000, 200_001) for _ in range(3)]
        if self.run.players.push(stream, cbor2.dumps(push)):
            total = self.run.pushed[stream.entity]
            self.run.pushed[stream.entity] = [a + b for a, b in zip(total, push, strict=True)]

    async def _order(self, entity: str, transfer_id: str, way: Way) -> None:
        body = {
            "to": way.target,
            "transfer_id": transfer_id,
            "path": way.path,
            "mode": way.mode,
            "freeze_budget_ms": way.freeze_budget_ms,
            "transport": "link",
        }
        # Once it is taken, never again: what is lost on the way is for the servers to mend.
        await self._taken(
            lambda: self.run.client.call("alpha", "POST", f"/v1/entities/{entity}/transfers", body, patience_s=_REACH_S)
        )

    async def _taken(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Ask until it is taken: a server that has just come back is given nothing for a moment."""
        with trio.move_on_after(_PATIENCE_S):
            while True:
                try:
                    await ask()
                except ApiFailure as failure:
                    if failure.code != Reason.TARGET_DOWN:
                        # The home was stopped in the midst of it, or the entity is at the target already.
                        return
                    await trio.sleep(_LOOK_AGAIN_S)
                else:
                    return

    async def _happen(self, trial: Trial, entity: str, transfer_id: str) -> str:
        """Wait for the step, do the deed, and let all of them continue; a note if it was not reached."""
        why, hold = None, self.gate.hold(trial.step, transfer_id)
        if trial.way.first is not None:
            why = await self._lapse(trial.way.first, trial.way, entity, transfer_id)
        why = why or await self._miss(hold, transfer_id, trial.way.misses)
        if why is not None:
            self.gate.reset()
            return f"{_NOT_REACHED}: {why}"
        if isinstance(trial.victim, Cut):
            return await self._part(trial, trial.victim, hold)
        victim = await self._who(trial.way, trial.victim, hold)
        if trial.deed in _REVOKED_AT:
            await self._take_keys(trial.deed, victim, hold)
        elif trial.deed is Deed.KILL:
            await self.cluster.kill(victim)
            self.kills.append(ServerKill(victim, time.monotonic_ns()))
            hold.let_go()
            await self.cluster.restart(victim, timeout_s=_RESTART_S, same_code=True)
        else:
            await self.cluster.pause(victim)
            if trial.deed is Deed.LAPSE:
                self.kills.append(ServerKill(victim, time.monotonic_ns(), Loss.PAUSED))
            hold.let_go()
            await self._while_away(trial.deed, victim, _STOP_S)
            self.cluster.resume(victim)
        return f"{trial.deed} {victim}"

    async def _take_keys(self, deed: Deed, victim: str, hold: Hold) -> None:
        """Its keys are good no more, and then everything continues; without it, if it is killed."""
        new_keys = None
        if deed is Deed.RESET:
            place = self.gate.path.parent / f"keys-{next(self.numbers)}"
            new_keys = await reset_keys(self.cluster, victim, place)
        else:
            await revoke_keys(self.cluster, victim)
        if deed is not Deed.REVOKE:
            await self.cluster.kill(victim)
            self.kills.append(ServerKill(victim, time.monotonic_ns()))
        hold.let_go()
        if new_keys is not None:
            new_keys.install(self.cluster, victim)
        if deed is not Deed.REVOKE:
            await self.cluster.restart(victim, timeout_s=_RESTART_S, same_code=True)

    async def _result(self, transfer_id: str) -> str:
        """What became of a transfer, and why; nothing if that is not known in the end."""
        with trio.move_on_after(_PATIENCE_S):
            while True:
                with suppress(ApiFailure, httpx.HTTPError):
                    view = await self.run.client.call("alpha", "GET", f"/v1/transfers/{transfer_id}")
                    if view["result"] != "pending":
                        return f"{view['result']} {view['reason']}".rstrip()
                await trio.sleep(_LOOK_AGAIN_S)
        return ""

    async def _lapse(self, first: Lapse, way: Way, entity: str, transfer_id: str) -> str | None:
        """What has to happen before; why it did not, or None."""
        hold = self.gate.hold(first.step, transfer_id)
        if (why := await self._miss(hold, transfer_id, ("refused", "done"))) is not None:
            return why
        victim = await self._who(way, first.victim, hold)
        await self.cluster.pause(victim)
        self.kills.append(ServerKill(victim, time.monotonic_ns(), Loss.PAUSED))
        hold.let_go()
        with trio.move_on_after(_PATIENCE_S) as waiting:
            while True:
                if await self._authority_of(entity) not in ("", victim):
                    break
                await trio.sleep(_LOOK_AGAIN_S)
        self.cluster.resume(victim)
        return f"{victim} keeps it" if waiting.cancelled_caught else None

    async def _authority_of(self, entity: str) -> str:
        """Whom the log names, or nothing."""
        with suppress(ApiFailure, httpx.HTTPError):
            return str((await self.run.client.call("alpha", "GET", f"/v1/entities/{entity}"))["authority"])
        return ""

    async def _while_away(self, deed: Deed, server: str, short_s: float) -> None:
        """A server is not heard of for a while: a short one, or until the log says that its lease is over."""
        if deed is Deed.LAPSE:
            await self._until_lease_is(server, LeasePhase.OVER)
        else:
            await trio.sleep(short_s)

    async def _until_lease_is(self, server: str, phase: LeasePhase) -> None:
        """Wait until the log says so."""
        with trio.move_on_after(_PATIENCE_S):
            while True:
                with suppress(ApiFailure, httpx.HTTPError):
                    row = await self.run.client.call(instance_of(server), "GET", f"/v1/servers/{server}")
                    if row["lease"]["phase"] == phase:
                        return
                await trio.sleep(_LOOK_AGAIN_S)
        raise EnvironmentFailed(f"the lease of {server} is not {phase} after {_PATIENCE_S:g} s")

    async def _miss(self, hold: Hold, transfer_id: str, misses: Collection[str]) -> str | None:
        """Wait until the step is reached, or never will be: then, why."""
        why: str | None = f"not within {_REACH_S:g} s"

        async def look() -> None:
            nonlocal why
            while True:
                with suppress(ApiFailure):
                    view = await self.run.client.call("alpha", "GET", f"/v1/transfers/{transfer_id}")
                    # What was decided as it is to be may have steps still to come.
                    if view["result"] in misses:
                        why = f"the transfer was {view['result']} ({view['reason']})"
                        racing.cancel_scope.cancel()
                await trio.sleep(10 * _LOOK_AGAIN_S)

        with trio.move_on_after(_REACH_S):
            async with trio.open_nursery() as racing:
                racing.start_soon(look)
                await hold.reached.wait()
                racing.cancel_scope.cancel()
        return None if hold.reached.is_set() else why

    async def _part(self, trial: Trial, cut: Cut, hold: Hold) -> str:
        if self.network is None:
            raise EnvironmentFailed("partitions need a network that can be cut")
        old, new = [_SOURCE], [trial.way.target]
        log = [server.name for server in self.cluster.servers if server.role is ProcessRole.HOMESERVER]
        sides = {Cut.OLD_NEW: (old, new), Cut.OLD_LOG: (old, log), Cut.NEW_LOG: (new, log)}
        await self.network.part(*sides[cut])
        (away, *_), _ = sides[cut]
        if trial.deed is Deed.LAPSE:
            self.kills.append(ServerKill(away, time.monotonic_ns(), Loss.PARTED))
        hold.let_go()
        await self._while_away(trial.deed, away, _CUT_S)
        await self.network.mend()
        return f"{trial.deed} {cut}"

    async def _who(self, way: Way, victim: Victim, hold: Hold) -> str:
        match victim:
            case Victim.OLD:
                return _SOURCE
            case Victim.NEW:
                return way.target
            case Victim.LEADER:
                return await self._leader(but_not=hold.server)

    async def _leader(self, but_not: str) -> str:
        """The leader of the home instance; one that is held is not asked."""
        with trio.fail_after(_PATIENCE_S):
            while True:
                for server in self.cluster.servers:
                    asked = (
                        server.role is ProcessRole.HOMESERVER and server.instance == "alpha" and server.name != but_not
                    )
                    with suppress(httpx.HTTPError, ApiFailure):
                        if asked and (leader := (await self.run.client.get(f"{server.rest_url}/v1/cluster"))["leader"]):
                            return str(leader)
                await trio.sleep(_LOOK_AGAIN_S)

    async def _settled(self, entity: str, stream: InputStream) -> bool:
        """Wait until the server that the log names simulates it, and has applied an input that came after all this."""
        after = stream.sent
        with trio.move_on_after(_PATIENCE_S):
            while True:
                with suppress(ApiFailure, httpx.HTTPError):
                    record = await self.run.client.call("alpha", "GET", f"/v1/entities/{entity}")
                    url = self.run.simservers.get(record["authority"], "")
                    here = await self.run.client.get(f"{url}/v1/local/entities/{entity}")
                    same = (here["epoch"], here["sub"]) >= (record["epoch"], record["sub"])
                    if same and not here["frozen"] and stream.acknowledged > after:
                        return True
                await trio.sleep(_LOOK_AGAIN_S)
        return False

    async def _inputs(self, entity: str, stream: InputStream) -> tuple[str, list[str]]:
        """Who simulates it in the end, and what is wrong with the inputs that it has applied."""
        record = await self.run.client.call("alpha", "GET", f"/v1/entities/{entity}")
        url, findings = self.run.simservers[record["authority"]], list[str]()
        lost, wrong, _ = await inputs_of(
            self.run.client, url, self.run.players.name, stream, self.run.world_check, findings
        )
        if lost or wrong:
            findings.append(f"{lost} inputs lost, {wrong} repeated or out of order, of {stream.sent}")
        return str(record["authority"]), findings

    def _stints(self, entity: str) -> list[dict[str, Any]]:
        """What servers wrote down about it, living and dead ones."""
        rows: list[dict[str, Any]] = []
        for server in self.cluster.servers:
            log = server.directory / "state" / "custody.jsonl"
            if server.role is ProcessRole.SIMSERVER and log.exists():
                lines = log.read_text(encoding="utf-8").splitlines()
                rows += [row for line in lines if (row := json.loads(line))["entity"] == entity]
        return rows


@asynccontextmanager
async def handover_ground(
    directory: Path, seed: int, cases: Collection[str], *, parted: bool = False
) -> AsyncIterator[Ground]:
    """A cluster for trials of these cases; `directory` is for the socket of the breakpoints, and must exist.

    For `parted` trials every server lives in a network namespace of its own, on a bridge in that of this process. This
    one must be private (see `scenarios.chaos.privacy`).
    """
    gate = Gate(directory / "steps")
    instances = {"alpha": 3} | {
        instance: 1 for case in cases if (instance := instance_of(WAYS[case].target)) != "alpha"
    }
    spec = ClusterSpec(instances, simservers=2, log_level="WARNING")
    network, ours = (await _bridged(directory, spec)) if parted else (None, "127.0.0.1")
    if network is not None:
        names = [name for instance in instances for name in _names(spec, instance)]
        # Nobody else is in these namespaces.
        spec = replace(spec, hosts={name: network.address(name)[0] for name in names}, plain_http=True)

    def launcher(plan: ServerPlan) -> Sequence[str]:
        place = () if network is None else network.prefix(plan.name)
        return (*place, *baton_launcher(plan))

    async with trio.open_nursery() as nursery:
        await nursery.start(gate.serve)
        steps = {ENVIRONMENT: str(gate.path)}
        starting = LocalCluster.start(spec, launcher=launcher, environment=steps, timeout_s=_START_S, grace_s=0.0)
        async with starting as cluster, open_run(cluster, seed, ours) as run:
            yield Ground(cluster, run, gate, network)
            gate.reset()
        nursery.cancel_scope.cancel()


async def _bridged(directory: Path, spec: ClusterSpec) -> tuple[NamespacedNetwork, str]:
    """A namespace for every server, and our own address on their bridge."""
    network = await NamespacedNetwork.make(directory)
    for instance in spec.instances:
        for name in _names(spec, instance):
            await network.plug_in(name)
    return network, await network.join()


def _names(spec: ClusterSpec, instance: str) -> tuple[str, ...]:
    return (*spec.homeserver_names(instance), *spec.simserver_names(instance))
