"""`baton run cases`: the three transfer cases on a fresh local cluster, measured on the wire.

Every case moves live entities to and fro between two simulation servers while a player sends them numbered inputs.
What is measured comes from the messages themselves (hop traces and marks) and from the servers' custody logs.
"""

import os
import platform
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import cbor2
import click
import httpx
import trio

from batonpass.authority.errors import Reason
from batonpass.authority.machines.source import Mode
from batonpass.authority.names import instance_of
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.cluster.blueprint import require_unused
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec, InstanceRoute
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import html_file_option, json_file_option
from batonpass.scenarios.judge.evidence import Evidence, collect
from batonpass.scenarios.judge.measure import Measured, case_result, read_transfer
from batonpass.scenarios.players.link_players import Players
from batonpass.scenarios.players.rest_client import CALL_PATIENCE_S, SILENT, ApiFailure, RestClient, create_entity
from batonpass.scenarios.report.html import write_cases_page
from batonpass.scenarios.report.json_file import write_cases
from batonpass.scenarios.report.model import CaseName, CaseResult, CasesReport, ServerEntry, Transport
from batonpass.scenarios.report.table import cases_table
from batonpass.scenarios.report.verdict import report_problems
from batonpass.scenarios.report.words import case_title

__all__ = ["CASES", "STAGED_CASES", "CasePlan", "cases_spec", "command", "run_cases"]

PLAYER: Final = "alpha.player-1"
INPUT_HZ: Final = 50.0
# How fast a machine is, is not judged: only what comes to no end at all has failed.
TRANSFER_DEADLINE_S: Final = 120.0
MANY: Final = 256
"""How many entities one request creates."""
MANY_TIMEOUT_S: Final = 60.0
MANY_AT_ONCE: Final = 4
PATIENCE_S: Final = 120.0
POLL_S: Final = 0.005
# After this long a transfer that was permitted is proposed again under its id, then after twice as long, and so on. The
# order may have been lost with a homeserver.
REPEAT_S: Final = 1.0
WARM_UP: Final = 4
# If all transfers of a case were repeated, this number more is made at most, until one is whole.
MORE: Final = 20
# A case whose transfers fail this often in a row is given up: each failure takes two minutes.
GIVE_UP_AFTER: Final = 3
# Without a single acknowledgement.
DRAIN_S: Final = 60.0
# The cases are about transfers and not about dead servers: one that the machine gives no time for a while is none.
LEASE_TERM_S: Final = 60.0


@dataclass(frozen=True)
class CasePlan:
    """One row of the report: which case, between which servers, and how it is asked for."""

    case: CaseName
    h: int | None
    transport: Transport
    formula: str
    source: str
    target: str
    direct: bool = False
    mode: Mode = Mode.EAGER

    def staged(self) -> "CasePlan":
        """The same in staged mode: two hops more, for the state to the target and for word that it is on its disk."""
        formulas = {"3 + 2H": "5 + 2H", "3": "5", "2": "4"}
        return replace(self, mode=Mode.STAGED, formula=formulas[self.formula])

    @property
    def expected_hops(self) -> int:
        """The formula's value (TRANSFER, seed 002)."""
        staging = 2 if self.mode is Mode.STAGED else 0
        match self.case:
            case "1":
                return 3 + 2 * (self.h or 0) + staging
            case "2":
                return 3 + staging
            case _:
                return 2 + staging

    @property
    def path(self) -> str:
        """What the transfer request says about the path."""
        return "direct" if self.direct else "home"


CASES: Final = (
    CasePlan("1", 1, "rest", "3 + 2H", "alpha.s1", "beta.s1"),
    CasePlan("1", 1, "link", "3 + 2H", "alpha.s1", "beta.s1"),
    CasePlan("1", 2, "rest", "3 + 2H", "alpha.s1", "gamma.s1"),
    CasePlan("1", 3, "rest", "3 + 2H", "alpha.s1", "delta.s1"),
    CasePlan("2", None, "rest", "3", "alpha.s1", "alpha.s2"),
    CasePlan("2", None, "link", "3", "alpha.s1", "alpha.s2"),
    CasePlan("3", None, "link", "2", "alpha.s1", "alpha.s2", direct=True),
)


STAGED_CASES: Final = tuple(plan.staged() for plan in CASES)


def cases_spec(directory: Path | None = None) -> ClusterSpec:
    """The cluster that the cases need: alpha reaches beta directly, gamma through one relay, delta through two."""
    return ClusterSpec(
        instances={"alpha": 3, "beta": 3, "gamma": 1, "delta": 1},
        simservers=2,
        relays=2,
        routes=(
            InstanceRoute("alpha", "gamma", ("relay.r1",)),
            InstanceRoute("alpha", "delta", ("relay.r1", "relay.r2")),
        ),
        directory=directory,
        log_level="WARNING",
        lease_term_s=LEASE_TERM_S,
    )


@dataclass
class _Moved:
    """What became of the transfers of one case."""

    measured: list[Measured] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    raft_rounds: int = 0

    def failed(self, code: str, count: int = 1) -> None:
        """Note that `count` transfers failed for the reason `code`."""
        if count:
            self.failures[code] = self.failures.get(code, 0) + count


@dataclass
class Run:
    """A run under way: the cluster's addresses, the clients, and where entities are."""

    client: RestClient
    players: Players
    simservers: dict[str, str]
    seed: int
    dice: random.Random
    entities: dict[str, str] = field(default_factory=dict)
    pushed: dict[str, list[int]] = field(default_factory=dict)

    async def spawn(self, entity: str, server: str) -> None:
        """Create a ball somewhere in the box and begin to push it around."""
        params = {"p": [self.dice.randrange(10_000_000) for _ in range(3)], "v": [0, 0, 0]}
        body = {"id": entity, "kind": "ball", "spawner": PLAYER, "server": server, "params": params}
        await self.create(body)
        self.entities[entity] = server
        self.pushed[entity] = [0, 0, 0]
        await self.players.follow(entity, server)

    async def create(self, body: Mapping[str, Any]) -> None:
        """Create an entity, also where its server has no lease for a moment: that is one creation, however often asked.

        Raises:
            ApiFailure: it was refused for another reason, or its server was given nothing for too long.
        """
        await create_entity(self.client, instance_of(body["id"]), body, TRANSFER_DEADLINE_S)

    async def create_all(self, bodies: Sequence[Mapping[str, Any]], patience_s: float = TRANSFER_DEADLINE_S) -> None:
        """Create very many entities of one instance; those whose outcome is not known are asked for again.

        Raises:
            ExceptionGroup: of `ApiFailure`: one was refused; of `EnvironmentFailed`: it is not known to live after
                `patience_s`.
        """
        limit = trio.CapacityLimiter(MANY_AT_ONCE)

        async def create(some: Sequence[Mapping[str, Any]]) -> None:
            async with limit:
                await self._create_some(some, patience_s)

        async with trio.open_nursery() as nursery:
            for first in range(0, len(bodies), MANY):
                nursery.start_soon(create, bodies[first : first + MANY])

    async def _create_some(self, bodies: Sequence[Mapping[str, Any]], patience_s: float) -> None:
        left = {body["id"]: body for body in bodies}
        instance, until_s = instance_of(bodies[0]["id"]), trio.current_time() + patience_s
        while left:
            body = {"entities": list(left.values())}
            answer = await self.client.call(instance, "POST", "/v1/entities/many", body, timeout_s=MANY_TIMEOUT_S)
            for one in answer["failed"]:
                may_come = one["status"] >= 500 or one["code"] == Reason.TARGET_DOWN
                if not may_come:
                    raise ApiFailure(one["code"], f"{one['id']}: {one['message']}")
                if trio.current_time() > until_s:
                    text = f"{one['id']} is not known to live after {patience_s:g} s: is this machine too busy?"
                    raise EnvironmentFailed(f"{text} ({one['message']})")
            left = {one["id"]: left[one["id"]] for one in answer["failed"]}
            if left:
                await trio.sleep(REPEAT_S)

    async def push_all(self) -> None:
        """Send every entity a numbered push `INPUT_HZ` times a second, for as long as this runs."""
        while True:
            await trio.sleep(1.0 / INPUT_HZ)
            for stream in list(self.players.streams.values()):
                push = [self.dice.randrange(-200_000, 200_001) for _ in range(3)]
                if self.players.push(stream, cbor2.dumps(push)):
                    self.pushed[stream.entity] = [a + b for a, b in zip(self.pushed[stream.entity], push, strict=True)]

    def world_check(self, stream: InputStream, state: Any) -> tuple[int, int]:
        """What a ball's own state says: how many pushes moved it, and what they add up to."""
        lost, repeated = max(0, stream.sent - state["pushes"]), max(0, state["pushes"] - stream.sent)
        wrong = not lost and state["pushed"] != self.pushed[stream.entity]
        return lost, repeated or int(wrong)

    async def move(self, entity: str, plan: CasePlan) -> Measured:
        """Have an entity moved to the other end of its case and wait for the report of it.

        A transfer that was refused because a server was `SILENT` is followed by another one.

        Raises:
            ApiFailure: it was refused for another reason, or not done in time.
        """
        last = ""
        with trio.move_on_after(TRANSFER_DEADLINE_S):
            while True:
                target = plan.target if self.entities[entity] == plan.source else plan.source
                try:
                    transfer = await self._moved(entity, target, plan)
                except ApiFailure as failure:
                    # One that was refused may have been passed on directly by a server that did not know of it yet.
                    if last and failure.code == Reason.SAME_SERVER:
                        await self.locate(entity)
                    elif failure.code not in SILENT:
                        raise
                    last = f"; the last one that was asked for: {failure}"
                    await trio.sleep(REPEAT_S)
                else:
                    self.entities[entity] = target
                    return read_transfer(transfer)
        raise ApiFailure("not_done_in_time", f"{entity} was not moved after {TRANSFER_DEADLINE_S:g} s{last}")

    async def _moved(self, entity: str, target: str, plan: CasePlan) -> dict[str, Any]:
        """One transfer, when it is done; ApiFailure if it was refused."""
        home = instance_of(entity)
        transfer_id = f"{self.dice.getrandbits(96):024x}"
        body = {"to": target, "transfer_id": transfer_id, "path": plan.path, "transport": plan.transport}
        body |= {"mode": plan.mode.value}
        again_s = REPEAT_S
        while True:
            await self.client.call(home, "POST", f"/v1/entities/{entity}/transfers", body)
            with trio.move_on_after(again_s):
                return await self._done(home, transfer_id)
            # A busy machine gets through what it has sooner if it is asked for less.
            again_s *= 2

    async def locate(self, entity: str) -> None:
        """After a failure: learn from the log where the entity is, if it can be asked."""
        with suppress(ApiFailure):
            record = await self.client.call(instance_of(entity), "GET", f"/v1/entities/{entity}")
            self.entities[entity] = record["authority"]

    async def _done(self, home: str, transfer_id: str) -> dict[str, Any]:
        while True:
            view: dict[str, Any] = await self.client.call(
                home, "GET", f"/v1/transfers/{transfer_id}", consistency="local"
            )
            # One whose old authority is paused has its result before it is reported.
            if view["phase"] == "done":
                return view
            if view["result"] == "refused":
                raise ApiFailure(view["reason"], f"transfer {transfer_id} was refused")
            await trio.sleep(POLL_S)

    async def raft_rounds(self) -> dict[str, int]:
        """Raft rounds of each of alpha's members so far; a member that is gone has no more to tell."""
        rounds: dict[str, int] = {}
        with suppress(ApiFailure, httpx.HTTPError):
            members = (await self.client.call("alpha", "GET", "/v1/cluster"))["members"]
            for member in members:
                with suppress(ApiFailure, httpx.HTTPError):
                    rounds[member["name"]] = (await self.client.get(f"{member['rest_url']}/v1/cluster"))["rounds"]
        return rounds


async def run_cases(
    cluster: LocalCluster,
    *,
    transfers: int,
    seed: int,
    plans: tuple[CasePlan, ...] = CASES,
    progress: Callable[[int, int], None] = lambda _number, _done: None,
) -> tuple[CasesReport, Evidence]:
    """Run `transfers` transfers of every planned case on a running cluster and judge what happened."""
    started_at = datetime.now(UTC)  # noqa: TID251 — the date on the report; nothing is computed from it
    async with open_run(cluster, seed, patience_s=PATIENCE_S) as run, trio.open_nursery() as nursery:
        nursery.start_soon(run.push_all)
        moved = [await _run_case(run, number, plan, transfers, progress) for number, plan in enumerate(plans)]
        nursery.cancel_scope.cancel()
        # The pushing has ended; what is under way may still arrive.
        with trio.CancelScope(shield=True):
            await run.players.drained(DRAIN_S)
            evidence = await collect(run.client, run.simservers, run.players, run.entities, run.world_check)
    results = tuple(_result(plan, case, evidence) for plan, case in zip(plans, moved, strict=True))
    report = CasesReport(
        cases=results,
        invariants=evidence.invariants,
        versions=versions(),
        seed=seed,
        machine=machine(),
        started_at=started_at,
        cluster=tuple(ServerEntry(name=s.name, role=s.role.value, instance=s.instance) for s in cluster.servers),
    )
    return report, evidence


@asynccontextmanager
async def open_run(
    cluster: LocalCluster, seed: int, host: str = "127.0.0.1", patience_s: float = CALL_PATIENCE_S
) -> AsyncIterator[Run]:
    """Clients for a running cluster: REST, as patient as that, and one player with its link on `host`."""
    rest = cluster.rest_client(patience_s)
    players = Players(PLAYER, rest, host=host)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(players.serve)
            yield Run(rest, players, cluster.simserver_urls(), seed, random.Random(seed))
            nursery.cancel_scope.cancel()
    finally:
        await rest.aclose()


async def _run_case(
    run: Run, number: int, plan: CasePlan, transfers: int, progress: Callable[[int, int], None]
) -> _Moved:
    entity = f"{instance_of(plan.source)}.case-{number + 1}"
    moved = _Moved()
    try:
        await _prepare_case(run, entity, plan)
    except ApiFailure as failure:
        moved.failed(failure.code, transfers)
        return moved
    rounds = await run.raft_rounds()
    failed_in_a_row = 0
    for done in range(1, transfers + MORE + 1):
        if done > transfers and (not moved.measured or any(not one.repeated for one in moved.measured)):
            break
        try:
            moved.measured.append(await run.move(entity, plan))
            failed_in_a_row = 0
        except ApiFailure as failure:
            moved.failed(failure.code)
            failed_in_a_row += 1
            if failed_in_a_row == GIVE_UP_AFTER:
                moved.failed("given_up", max(0, transfers - done))
                break
            await run.locate(entity)
        progress(number, done)
    # A member that was started again counts from zero; then all it has counted is new.
    after = await run.raft_rounds()
    moved.raft_rounds = sum(n - rounds[m] if n >= rounds.get(m, 0) and m in rounds else n for m, n in after.items())
    return moved


async def _prepare_case(run: Run, entity: str, plan: CasePlan) -> None:
    """An entity for the case, and a few transfers that are not reported.

    They make the sessions, keys and connections that are made once and kept; what is reported is the traffic after.
    """
    await run.spawn(entity, plan.source)
    if plan.direct:
        body = {"group": sorted((plan.source, plan.target))}
        await run.client.call(instance_of(entity), "PUT", f"/v1/entities/{entity}/delegation", body)
    for _ in range(WARM_UP):
        await run.move(entity, plan)


def _result(plan: CasePlan, moved: _Moved, evidence: Evidence) -> CaseResult:
    return case_result(
        plan.case,
        plan.h,
        plan.transport,
        plan.formula,
        plan.expected_hops,
        moved.measured,
        moved.failures,
        moved.raft_rounds,
        evidence.custody.gaps_ticks,
        plan.mode,
    )


def versions() -> dict[str, str]:
    """What was measured: our version, Python's, and those of the libraries on the path."""
    names = ("batonpass", "trio", "pysyncobj", "cryptography", "cbor2", "fastapi", "h11", "httpx")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def machine() -> dict[str, str | int | float]:
    """Where it was measured."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if sys.platform == "linux" else ():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {"cpu": cpu, "cores": os.cpu_count() or 0, "system": f"{platform.system()} {platform.release()}"}


@click.command(name="cases")
@click.option("--transfers", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Per case.")
@click.option(
    "--mode",
    type=click.Choice(["eager", "staged", "both"]),
    default="eager",
    show_default=True,
    help="What the commit waits for: nothing, or the state on the target's disk (two hops more).",
)
@click.option("--seed", type=int, help="Of inputs and ids. [default: a new one, printed with the report]")
@json_file_option("Write the report as JSON.")
@html_file_option("Write it as one HTML page.")
@click.option("--samples", is_flag=True, help="Put every single latency into the JSON file.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster's files here."
)
def command(
    transfers: int,
    mode: str,
    seed: int | None,
    json_file: Path | None,
    html_file: Path | None,
    samples: bool,
    directory: Path | None,
) -> int:
    """Run the transfer cases on a fresh local cluster; report hops against the formula, latency and invariants.

    \b
    case 1  authority moves between servers of different home instances   3 + 2H hops
    case 2  between servers of the same home instance, through it         3 hops
    case 3  between servers of the same home instance, directly           2 hops
    staged  any of them, the state on the target's disk before the commit 2 hops more

    Exit status 1 if a measured hop count differs from the formula, a transfer failed, or an invariant broke.
    """
    from batonpass.scenarios.cli.progress import RunScreen

    require_unused(directory)
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    plans = (CASES if mode != "staged" else ()) + (STAGED_CASES if mode != "eager" else ())
    screen = RunScreen([case_title(p.case, p.h, p.transport) for p in plans], transfers)
    report, evidence = trio.run(_on_fresh_cluster, screen, plans, transfers, seed, directory)
    screen.console.print(cases_table(report))
    for finding in evidence.findings:
        screen.console.print(f"  [red]{finding}")
    if json_file is not None:
        write_cases(json_file, report, with_samples=samples)
    if html_file is not None:
        write_cases_page(html_file, report)
        screen.console.print(f"HTML report: {html_file.absolute().as_uri()}")
    return 1 if report_problems(report) else 0


async def _on_fresh_cluster(
    screen: Any, plans: tuple[CasePlan, ...], transfers: int, seed: int, directory: Path | None
) -> tuple[CasesReport, Evidence]:
    with screen:
        async with LocalCluster.start(cases_spec(directory), progress=screen.cluster_event) as cluster:
            screen.cluster_ready(cluster)
            return await run_cases(cluster, transfers=transfers, seed=seed, plans=plans, progress=screen.progress)
