"""What people see of a run of followers: the page and the table, and the bad network that they may ask for."""

from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
import trio
from click.testing import CliRunner

from batonpass.scenarios.followers import run
from batonpass.scenarios.followers.judge import judge_show, ranges_of
from batonpass.scenarios.followers.lossy import LOSSY_SHOWS, LossyPort, LossyShows
from batonpass.scenarios.followers.page import followers_page
from batonpass.scenarios.followers.records import line_of
from batonpass.scenarios.followers.run import (
    FollowersPlan,
    FollowersResult,
    ServerSeen,
    command,
    followers_spec,
    problems_of,
    result_data,
    run_followers,
)
from batonpass.scenarios.report.model import RunFacts
from batonpass.simserver.sync.shows.datagram_port import DatagramPort
from batonpass.simserver.sync.shows.status import EngineStatus, ShowDrop, ShowStatus
from batonpass.simserver.sync.shows.world import SHOWS
from tests.scenarios.followers.test_followers_judge import applied, sent


def seen(*drops: ShowDrop, counts: dict[str, int] | None = None, **counters: int) -> ServerSeen:
    engine = EngineStatus(state="running", error="", busy_ms=0, counters={}, events_dropped={})
    show = ShowStatus(
        entity="alpha.show-wall",
        epoch=1,
        controller="alpha.s1",
        is_controller=False,
        newest=8,
        limit=None,
        engine=engine,
        nodes=[],
        held=[],
        counters=counters,
        not_applied=0,
        drops=list(drops),
    )
    return ServerSeen(show, counts or {})


def result_of(plan: FollowersPlan) -> FollowersResult:
    facts = RunFacts(versions={}, seed=0, machine={}, started_at=datetime(2026, 11, 29, tzinfo=UTC), cluster=())
    found = judge_show([sent(1, 2, 3, 7, 8), applied(1, 3, 8)])
    drops = (
        ShowDrop(node="alpha.s2", first=2, last=2, reason="engine"),
        ShowDrop(node="alpha.s2", first=7, last=7, reason="never_sent"),
    )
    told = ShowDrop(node="alpha.s2", first=2, last=2, reason="engine")
    passed = ShowDrop(node="alpha.s1", first=4, last=6, reason="passed_over")
    servers = {
        "alpha.s1": seen(passed, told, counts={"show_packets_out": 1_234}),
        "alpha.s2": seen(*drops, counts={"show_packets_lost_by_dice": 17}, nacks=5),
    }
    return FollowersResult(plan, facts, found, seen=servers)


def test_the_page_says_which_node_has_not_applied_which_frames_and_why() -> None:
    page = followers_page(result_of(FollowersPlan(followers=1, loss=0.02, jitter_ms=8.0)))
    for row in (
        '<td>alpha.s1</td><td>passed over</td><td class="n">3</td><td class="small wrap" style="min-width: 20em">4–6<',
        '<td>alpha.s2</td><td>engine</td><td class="n">1</td><td class="small wrap" style="min-width: 20em">2<',
        '<td>alpha.s2</td><td>never sent</td><td class="n">1</td><td class="small wrap" style="min-width: 20em">7<',
    ):
        assert page.count(row) == 1
    assert "1,234" in page
    assert "loses 2.0% of the datagrams, and the others are late by 8 ms at most; 17 datagrams were lost so" in page
    assert "No node has drawn a tile" in page
    assert "None" not in page.partition("<script>")[0]


def test_a_page_of_a_good_network_says_nothing_of_it() -> None:
    assert "The network" not in followers_page(result_of(FollowersPlan(followers=1)))


def test_the_report_for_programs_has_what_each_server_counted() -> None:
    servers = result_data(result_of(FollowersPlan(followers=1)))["servers"]
    assert servers["alpha.s2"]["show"]["counters"] == {"nacks": 5}
    assert [drop["reason"] for drop in servers["alpha.s2"]["show"]["drops"]] == ["engine", "never_sent"]


def test_of_many_frames_the_first_ranges_are_named_and_the_rest_counted() -> None:
    assert ranges_of([1, 3, 5, 6, 9], at_most=2) == "1, 3, and 2 more"


def test_a_node_that_joins_and_shows_nothing_is_a_problem() -> None:
    result = result_of(FollowersPlan(followers=1, join_at=3))
    result.joined = "alpha.s3"
    assert problems_of(result) == ("alpha.s3, which joined, has applied no frame",)


class Played:
    """A cluster and its REST, of which only the end of a run is seen; the controller's engine writes into a file."""

    servers = ()

    def __init__(self, records: Path) -> None:
        self._records, self._newest = records, 1_000
        self.writes("alpha.s1", "sent", 1_000)
        self.writes("alpha.s2", "applied", 1_000)
        self.writes("alpha.s3", "applied", 20)

    def writes(self, name: str, kind: str, frame: int) -> None:
        with (self._records / f"{name}.txt").open("a") as file:
            more = (frame,) if kind == "sent" else ()
            file.write(line_of(kind, frame, "hash", frame, *more) + line_of("used", frame, 1.0))

    def rest_client(self, _timeout_s: float) -> "Played":
        return self

    async def aclose(self) -> None:
        pass

    async def call(self, *_of: Any) -> None:
        pass

    async def get(self, *_of: Any, **_query: str) -> None:
        raise httpx.ConnectError("it is not asked here")

    def simserver_urls(self) -> dict[str, str]:
        # The play is over, and one frame more comes to all but one.
        self._newest += 1
        self.writes("alpha.s1", "sent", self._newest)
        self.writes("alpha.s2", "applied", self._newest)
        return {f"alpha.s{number}": "" for number in (1, 2, 3)}


async def test_a_server_that_shows_nothing_of_what_comes_after_the_play_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SETTLE_S", 0.0)
    cluster: Any = Played(tmp_path)
    result = await run_followers(cluster, FollowersPlan(followers=2, seconds=0.0), tmp_path)
    assert problems_of(result) == ("alpha.s3 showed no frame any more at the end",)
    assert result_data(result)["behind"] == ["alpha.s3"]


def test_a_world_that_loses_datagrams_is_used_only_if_it_is_asked_for(tmp_path: Path) -> None:
    assert followers_spec(FollowersPlan(), tmp_path).world == SHOWS
    spec = followers_spec(FollowersPlan(loss=0.1), tmp_path)
    assert spec.world == LOSSY_SHOWS
    world = LossyShows(**spec.world_options)
    assert world.port is not None
    assert world.kinds == ("show",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--kill-controller-at", "1300"], "does not come in 20 s"),
        (["--join-at", "61", "--rate", "30", "--seconds", "2"], "does not come in 2 s"),
        (["--rate", "1001"], "give 1 to 1,000 frames per second"),
        (["--rate", "1/2"], "give 1 to 1,000 frames per second"),
        (["--loss", "nan"], "is not a number in the range"),
    ],
)
def test_what_can_never_come_is_refused_before_anything_is_started(options: list[str], why: str) -> None:
    refused = CliRunner().invoke(command, options)
    assert refused.exit_code == 2
    assert why in " ".join(refused.output.split())


async def arrivals(*, loss: float, jitter_s: float) -> tuple[list[bytes], Counter[str]]:
    """What arrives of 200 packets, and what is counted."""
    arrived, counts, done = list[bytes](), Counter[str](), trio.Event()

    def turn_over() -> None:
        if len(arrived) + counts["show_packets_lost_by_dice"] == 200:
            done.set()

    port = LossyPort(arrived.append, turn_over, counts, loss=loss, jitter_s=jitter_s, dice=Random(7))
    sender = DatagramPort(lambda _: None, lambda: None, Counter())
    with closing(port), closing(sender):
        for each in (port, sender):
            each.bind("127.0.0.1")
        async with trio.open_nursery() as nursery:
            for each in (port, sender):
                nursery.start_soon(each.serve)
            sender.send([(bytes([number]), port.address) for number in range(200)])
            with trio.fail_after(30):
                await done.wait()
            nursery.cancel_scope.cancel()
    return arrived, counts


async def test_packets_are_lost_and_late_as_the_dice_say_and_each_of_the_others_arrives_once() -> None:
    in_order, counts = await arrivals(loss=0.3, jitter_s=0.0)
    assert in_order == sorted(set(in_order))
    assert 30 < counts["show_packets_lost_by_dice"] < 90
    late, counts = await arrivals(loss=0.0, jitter_s=0.02)
    assert late != sorted(late)
    assert (sorted(late), counts["show_packets_lost_by_dice"]) == ([bytes([number]) for number in range(200)], 0)
