"""`baton run timeline` with real processes: two peers for a few seconds, one more who joins, and a hand-over."""

import json
from dataclasses import replace

import pytest
import trio

from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.timeline.page import timeline_page
from batonpass.scenarios.timeline.run import (
    TimelinePlan,
    TimelineResult,
    problems_of,
    result_data,
    run_timeline,
    timeline_spec,
)

pytestmark = pytest.mark.timeout(400)


async def test_peers_far_apart_end_with_one_state_though_one_joins_and_the_history_is_handed_over() -> None:
    seconds: list[int] = []
    plan = TimelinePlan(peers=2, seconds=4.0, latency_ms=120.0, loss=0.05, seed=7, join_at_s=1.0, handover_at_s=1.0)
    with trio.fail_after(380):
        async with LocalCluster.start(timeline_spec()) as cluster:
            result = await run_timeline(cluster, plan, progress=seconds.append)
    assert [peer.name for peer in result.peers] == ["peer-1", "peer-2", "peer-joined"]
    assert len({peer.digest for peer in result.peers} - {""}) == 1
    assert not any(peer.digest == "" or peer.failure or peer.divergence or peer.refused for peer in result.peers)
    assert [(move.kind, move.source) for move in result.moves] == [("hand-over", "alpha.s1")]
    # Which seconds peers tell of depends on how fast the machine is.
    assert seconds == sorted(set(seconds))
    assert 1 <= seconds[-1] <= 4
    assert_the_report_says_what_was_found(result)


def assert_the_report_says_what_was_found(result: TimelineResult) -> None:
    one, *others = result.peers
    wrong = replace(result, peers=(replace(one, digest="other", divergence="the event at 7"), *others))
    assert set(problems_of(wrong)) - set(problems_of(result)) == {
        "the peers end with 2 different states",
        "peer-1: the event at 7",
    }
    data = json.loads(json.dumps(result_data(wrong)))
    assert (data["passed"], len(data["peers"])) == (False, 3)
    # Of all peers, that of the input that changed most is shown.
    unlucky = replace(one, cone=[(5, 1, "Kick", "new"), (6, 2, "Clash", "same")])
    lucky = replace(others[0], cone=[(5, 1, "Kick", "new"), (6, 2, "Clash", "other"), (7, 2, "Clash", "gone")])
    shown = timeline_page(replace(result, peers=(unlucky, lucky)))
    assert "At peer-2, the events between" in shown
    assert "0 came out as before, 1 came out otherwise, 1 new, 1 gone" in shown
    page = timeline_page(wrong)
    assert "the peers end with 2 different states" in page
    assert "peer-joined" in page
