"""The transfer cases on real clusters of real processes, in good times and while a homeserver dies.

No figure is checked here (those are for `baton run cases`); only what must hold however slow the machine is.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any

import trio

from batonpass.scenarios.cases.cases import CASES, STAGED_CASES, WARM_UP, cases_spec, run_cases
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec, InstanceRoute
from batonpass.scenarios.report.json_file import cases_data
from batonpass.scenarios.report.model import CasesReport, SampleTransfer
from batonpass.scenarios.report.verdict import report_problems
from tests.scenarios.asked import LIMIT_S, answered, come, limited

pytestmark = limited

SPEC = ClusterSpec(
    instances={"alpha": 3, "gamma": 1},
    simservers=2,
    relays=1,
    routes=(InstanceRoute("alpha", "gamma", ("relay.r1",)),),
    # Only homeservers die here: only a machine that has much else to do would end a lease.
    lease_term_s=60.0,
    log_level="WARNING",
)
# How long a stopped server stands still: longer than the first repetition of a message, shorter than an election.
PAUSE_S = 0.4
# Every kind of path once: two homes with a relay between, one home by REST and by the link, direct.
PLANS = tuple(plan for plan in CASES if plan.h in (2, None))


STAGED_PLANS = tuple(plan.staged() for plan in PLANS if plan.transport == "link" or plan.case == "1")


@asynccontextmanager
async def cluster() -> AsyncIterator[LocalCluster]:
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(SPEC) as running:
            yield running


async def leader_of(running: LocalCluster, instance: str) -> str:
    """The name of the instance's leader, as a member has it that answers."""
    client = running.rest_client()
    try:
        view = await come(
            lambda: client.call(instance, "GET", "/v1/cluster"),
            lambda view: view["leader"] is not None,
            what=f"the leader of {instance}",
        )
        return str(view["leader"])
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()


def assert_good(report: CasesReport, transfers: int) -> None:
    """That all went as it should. More transfers than were asked for are made where all of those were repeated."""
    assert report_problems(report) == ()
    for case in report.cases:
        assert (case.measured_hops.min, case.measured_hops.max) == (case.expected_hops, case.expected_hops)
        assert (case.transfers >= transfers, case.failed) == (True, 0)
    assert not report.invariants.broken()


def test_the_formulas_are_the_seeds() -> None:
    expected = {(plan.case, plan.h): plan.expected_hops for plan in CASES}
    assert expected == {("1", 1): 5, ("1", 2): 7, ("1", 3): 9, ("2", None): 3, ("3", None): 2}
    staged = {(plan.case, plan.h): (plan.formula, plan.expected_hops) for plan in STAGED_CASES}
    assert staged == {
        ("1", 1): ("5 + 2H", 7),
        ("1", 2): ("5 + 2H", 9),
        ("1", 3): ("5 + 2H", 11),
        ("2", None): ("5", 5),
        ("3", None): ("4", 4),
    }


def test_the_cluster_of_the_cases_has_the_hops_that_the_plans_say() -> None:
    spec = cases_spec()
    for plan in CASES:
        if plan.h is not None:
            ends = plan.source.partition(".")[0], plan.target.partition(".")[0]
            assert spec.hops_between(*ends) == plan.h


async def test_every_path_takes_its_hops_and_breaks_no_invariant() -> None:
    async with cluster() as running:
        report, evidence = await run_cases(running, transfers=5, seed=11, plans=(*PLANS, *STAGED_PLANS))
    assert_good(report, 5)
    assert evidence.findings == []
    assert sum(evidence.applied.values()) > 0, "no input was applied, so nothing was shown about inputs"
    # Each case moved its entity four times to warm up, and then as often as it says.
    moves = {f"alpha.case-{number}": WARM_UP + case.transfers for number, case in enumerate(report.cases, 1)}
    assert {entity: changes_of_server(evidence.stints, entity) for entity in moves} == moves
    data = cases_data(report)
    expected = [{"min": hops, "max": hops} for hops in (7, 3, 3, 2, 9, 5, 4)]
    assert [row["measured_hops"] for row in data["cases"]] == expected
    assert PLANS[0].h == 2
    assert_names_the_servers_that_it_crossed(report.cases[0].sample)


def changes_of_server(stints: Sequence[Mapping[str, Any]], entity: str) -> int:
    """How often another server than before simulated it."""
    mine = sorted((one["epoch"], one["sub"], one["server"]) for one in stints if one["entity"] == entity)
    return sum(before[2] != after[2] for before, after in pairwise(mine))


def assert_names_the_servers_that_it_crossed(sample: SampleTransfer | None) -> None:
    assert sample is not None
    path = [(hop.src, hop.dst) for hop in sample.hops if hop.on_path]
    assert sum(1 for src, _ in path if src == "relay.r1") == 2, "there and back through the relay"
    assert path[0][0] == path[-2][1] == path[-1][0], "the old authority begins, gets the answer, and ends it"
    assert all(dst == following for (_, dst), (following, _) in pairwise(path))
    assert all(hop.sent_ns <= hop.received_ns for hop in sample.hops)


async def test_killing_the_leading_homeserver_fails_no_transfer_for_good() -> None:
    plans = tuple(plan for plan in CASES if plan.case == "2" and plan.transport == "rest")
    killed: list[str] = []
    async with cluster() as running, trio.open_nursery() as nursery:

        async def kill_leader() -> None:
            name = await leader_of(running, "alpha")
            killed.append(name)
            await running.kill(name)

        def progress(_number: int, done: int) -> None:
            if done == 3:
                nursery.start_soon(kill_leader)

        report, evidence = await run_cases(running, transfers=12, seed=13, plans=plans, progress=progress)
    assert killed
    assert_good(report, 12)
    assert evidence.findings == []


async def test_a_follower_that_dies_and_comes_back_catches_up() -> None:
    plans = tuple(plan for plan in CASES if plan.case == "3")
    async with cluster() as running:
        leader = await leader_of(running, "alpha")
        follower = next(name for name in SPEC.homeserver_names("alpha") if name != leader)
        await running.kill(follower)
        report, _ = await run_cases(running, transfers=3, seed=14, plans=plans)
        await running.restart(follower, same_code=True)
        url = running.server(follower).rest_url
        moves = WARM_UP + report.cases[0].transfers
        there = ("alpha.s1", "alpha.s2")[moves % 2]
        await answered(
            f"{url}/v1/entities/alpha.case-1?consistency=local",
            lambda entity: entity["authority"] == there and (entity["epoch"] > 1 or entity["sub"] == moves),
        )
    assert_good(report, 3)


async def test_servers_that_stop_for_a_while_break_nothing() -> None:
    """Whoever is stopped in the middle of a transfer goes on afterwards as if no time had passed: the fences hold."""
    plans = tuple(plan for plan in CASES if plan.h is None)
    dice = Random(15)
    async with cluster() as running, trio.open_nursery() as nursery:

        async def stop_for_a_while(name: str) -> None:
            await running.pause(name)
            await trio.sleep(PAUSE_S)
            running.resume(name)

        def progress(number: int, done: int) -> None:
            if done % 4 == 2:
                names = [server.name for server in running.servers if server.instance == "alpha"]
                nursery.start_soon(stop_for_a_while, names[dice.randrange(len(names))])

        report, evidence = await run_cases(running, transfers=12, seed=15, plans=plans, progress=progress)
    assert_good(report, 12)
    assert evidence.findings == []
