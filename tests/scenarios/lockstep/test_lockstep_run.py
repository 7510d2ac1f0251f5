"""`baton run lockstep` with real servers: a few clients for a few seconds, a hand-over and a kill."""

from dataclasses import replace
from pathlib import Path

import trio

from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.lockstep.plan import make_lockstep_plan
from batonpass.scenarios.lockstep.run import lockstep_spec, run_lockstep
from batonpass.scenarios.report.json_file import read_lockstep, write_lockstep
from batonpass.scenarios.report.verdict import lockstep_problems
from tests.scenarios.asked import LIMIT_S, limited

pytestmark = limited
# Longer than that of `baton run lockstep`: here only the killed server is to lose its lease.
TERM_S = 4.0


async def test_clients_of_a_stream_that_moves_and_loses_its_server_agree_to_the_end(tmp_path: Path) -> None:
    plan = make_lockstep_plan(6, 8.0, 7, handover_at_s=2.0, kill_at_s=5.0)
    seconds: list[int] = []
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(replace(lockstep_spec(), lease_term_s=TERM_S)) as cluster:
            report = await run_lockstep(cluster, plan, progress=seconds.append)
    assert lockstep_problems(report) == ()
    assert [(move.kind, move.source) for move in report.moves] == [("hand-over", "alpha.s1"), ("failover", "alpha.s2")]
    assert report.events_posted == report.events_applied == sum(len(client.events) for client in plan.clients) > 0
    assert seconds == list(range(1, 9))
    write_lockstep(tmp_path / "report.json", report)
    assert read_lockstep(tmp_path / "report.json") == report
