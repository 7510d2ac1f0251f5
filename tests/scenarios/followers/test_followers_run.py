"""`baton run followers` with real servers: a show whose controller is killed."""

from pathlib import Path

import trio

from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.followers.page import followers_page
from batonpass.scenarios.followers.run import FollowersPlan, followers_spec, problems_of, run_followers
from tests.scenarios.asked import LIMIT_S, limited

pytestmark = limited
# Longer than that of `baton run followers`, whose figures it decides: here only the killed server is to lose its lease.
TERM_S = 4.0


async def test_a_show_goes_on_at_another_node_with_no_number_twice_and_no_two_contents(tmp_path: Path) -> None:
    plan = FollowersPlan(followers=2, rate="20", state_bytes=16 * 1024, seconds=9.0, kill_at=30, lease_term_s=TERM_S)
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(followers_spec(plan, tmp_path)) as cluster:
            result = await run_followers(cluster, plan, tmp_path)
    assert (result.found.divergent, result.found.sent_twice, result.found.backwards) == ((), (), ())
    assert problems_of(result) == ()
    assert result.controller not in ("", result.killed)
    kept = next(node for node in result.found.nodes if node.name not in (result.killed, result.controller))
    assert kept.applied > 0
    assert "Passed" in followers_page(result)
