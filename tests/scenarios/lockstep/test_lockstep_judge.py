"""What the judge of `baton run lockstep` finds: each rule is broken once, in a run that is good but for that."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from batonpass.scenarios.lockstep.game import TALLIED, WatchedGame
from batonpass.scenarios.lockstep.judge import LockstepClient, gap_around, judge_lockstep
from batonpass.scenarios.lockstep.plan import make_lockstep_plan
from batonpass.scenarios.lockstep.run import SAY_EVERY_S, SETTLE_S, until_nothing_moves
from batonpass.scenarios.lockstep.summary import SeenMove, lockstep_report
from batonpass.scenarios.report.lockstep_page import lockstep_page
from batonpass.scenarios.report.table import lockstep_table
from batonpass.scenarios.report.verdict import lockstep_problems
from batonpass.simserver.sync.lockstep.driver import SimEvent

LAST = 40
LOG = (
    SimEvent(1, "_a", "_", "5eed"),
    SimEvent(1, "_c", "_", "1"),
    SimEvent(3, "_c", "_", "2"),
    SimEvent(10, TALLIED, "1", "ada 1"),
    SimEvent(10, TALLIED, "2", "bob 1"),
    SimEvent(12, TALLIED, "1", "ada 2"),
    SimEvent(30, TALLIED, "1", "ada 3"),
)
POSTED = {"1": ("ada 1", "ada 2", "ada 3"), "2": ("bob 1",)}
Broken = Callable[[LockstepClient], LockstepClient]


def played(name: str, public_id: str, log: tuple[SimEvent, ...] = LOG) -> LockstepClient:
    game = WatchedGame()
    for tick in range(1, LAST + 1):
        game.step([event for event in log if event.tick == tick])
    told = tuple((tick * 0.05, tick) for tick in range(0, LAST + 1, 4))
    return LockstepClient(
        name,
        public_id,
        POSTED[public_id],
        hashes=game.hashes,
        events=game.events,
        told=told,
        syncs=len(told),
        leads_ticks=((1.0, 2), (1.1, 3)),
    )


def good() -> list[LockstepClient]:
    return [played("ada", "1"), played("bob", "2")]


def judged(*, ada: Broken = lambda it: it, bob: Broken = lambda it: it) -> dict[str, int]:
    first, second = good()
    return judge_lockstep([ada(first), bob(second)], LAST).broken()


def test_a_good_run_breaks_nothing_and_has_compared_every_tick() -> None:
    found = judge_lockstep(good(), LAST)
    assert (found.broken(), found.sentences) == ({}, [])
    assert (found.compared_ticks, found.posted, found.applied) == (LAST, 4, 4)


def test_one_state_that_differs_is_a_divergence() -> None:
    assert judged(bob=lambda it: replace(it, hashes=dict(it.hashes) | {20: "other"})) == {"divergences": 1}


def test_a_draw_that_only_one_client_makes_diverges_from_there_to_the_end() -> None:
    class Unsteady(WatchedGame):
        def on_tick(self, tick: int) -> None:
            if tick == 24:
                self.get_random().next()

    game = Unsteady()
    for tick in range(1, LAST + 1):
        game.step([event for event in LOG if event.tick == tick])
    found = judge_lockstep([good()[0], replace(good()[1], hashes=game.hashes)], LAST)
    assert found.broken() == {"divergences": LAST - 24}
    assert found.sentences[0].startswith("tick 25 is the first of 16 with several states")


def test_clients_that_applied_different_events_are_a_divergence_though_their_states_agree() -> None:
    found = judged(bob=lambda it: replace(it, events=[event for event in it.events if event.body != "ada 2"]))
    assert found == {"divergences": 1}


def test_an_event_that_nobody_applied_is_lost() -> None:
    assert judged(ada=lambda it: replace(it, posted=(*it.posted, "ada 4"))) == {"lost": 1}


def test_an_event_that_waits_at_its_client_is_not_lost_but_the_client_is_unfinished() -> None:
    waits = {"posted": ("ada 1", "ada 2", "ada 3", "ada 4"), "unacknowledged": 1}
    assert judged(ada=lambda it: replace(it, **waits)) == {"unfinished": 1}  # type: ignore[arg-type]


@pytest.mark.parametrize("again", [SimEvent(31, TALLIED, "1", "ada 3"), SimEvent(31, TALLIED, "1", "nobody's")])
def test_an_event_that_all_applied_twice_or_nobody_posted_is_doubled(again: SimEvent) -> None:
    log = (*LOG, again)
    assert judge_lockstep([played("ada", "1", log), played("bob", "2", log)], LAST).broken() == {"doubled": 1}


def test_an_event_of_a_client_that_is_none_of_the_run_is_doubled() -> None:
    log = (*LOG, SimEvent(31, TALLIED, "9", "who?"))
    assert judge_lockstep([played("ada", "1", log), played("bob", "2", log)], LAST).broken() == {"doubled": 1}


def test_events_that_all_applied_in_another_order_than_that_of_posting_are_reordered() -> None:
    assert judged(ada=lambda it: replace(it, posted=("ada 2", "ada 1", "ada 3"))) == {"reordered": 1}


def test_a_lower_tick_than_before_goes_back_and_so_does_a_reset() -> None:
    assert judged(ada=lambda it: replace(it, told=(*it.told, (9.0, 39), (9.1, 41)))) == {"went_back": 1}
    assert judged(ada=lambda it: replace(it, resets=1)) == {"went_back": 1}
    assert judged(ada=lambda it: replace(it, told=(*it.told, it.told[-1]))) == {}, "the same once more is no step back"


def test_what_a_door_refused_is_refused() -> None:
    assert judged(bob=lambda it: replace(it, refused=("429 too_many_events",))) == {"refused": 1}


@pytest.mark.parametrize(
    "broken",
    [
        lambda it: replace(it, hashes={tick: it.hashes[tick] for tick in range(1, LAST)}),
        lambda it: replace(it, unacknowledged=1),
        lambda it: replace(it, failure="the server is lost"),
    ],
)
def test_a_client_that_did_not_come_to_the_end_is_unfinished(broken: Broken) -> None:
    assert judged(bob=broken) == {"unfinished": 1}


def test_where_nothing_could_be_compared_nothing_is_good() -> None:
    assert judge_lockstep(good()[:1], LAST).broken()["unfinished"] == 1


def test_a_late_joiner_is_compared_from_its_snapshot_on() -> None:
    def late(it: LockstepClient) -> LockstepClient:
        hashes = {tick: it.hashes[tick] for tick in range(20, LAST + 1)}
        return replace(it, hashes=hashes, events=[event for event in it.events if event.tick >= 20])

    assert judged(bob=late) == {}


def test_the_gap_is_the_longest_time_without_a_new_tick_that_touches_the_move() -> None:
    told = ((0.0, 1), (0.2, 5), (0.4, 5), (3.0, 60), (3.2, 64))
    assert gap_around([LockstepClient("ada", told=told)], 1.0, 1.5) == [pytest.approx(2800.0)]
    assert gap_around([LockstepClient("ada", told=told)], 3.1, 3.15) == [pytest.approx(200.0)]
    assert gap_around([LockstepClient("ada", told=((2.0, 1), (2.2, 5)))], 1.0, 3.0) == [], "it joined after the move"


FACTS = {"versions": {}, "seed": 7, "machine": {}, "started_at": "2026-11-29T00:00:00Z"}


def test_a_report_says_what_was_broken_in_sentences_and_passes_without() -> None:
    plan = make_lockstep_plan(2, 2.0, 7)
    moves = [SeenMove("hand-over", "alpha.s1", "alpha.s2", 1.0, 1.1)]
    report = lockstep_report(plan, good(), moves, LAST, 0.0, FACTS)
    assert lockstep_problems(report) == ()
    assert (report.ticks, report.events_posted, report.events_applied, report.syncs) == (LAST, 4, 4, 22)
    assert [second.tick for second in report.timeline] == [16, 36, 40]
    assert report.moves[0].gap_ms.max == pytest.approx(200.0)
    bad = lockstep_report(plan, [good()[0], replace(good()[1], resets=1)], moves, LAST, 0.0, FACTS)
    assert lockstep_problems(bad) == (
        "1 time: a client was told an earlier tick than before",
        "bob was told to begin anew",
    )


def test_a_plan_follows_from_its_seed_and_a_fifth_of_the_clients_joins_in_the_middle() -> None:
    plan = make_lockstep_plan(10, 60.0, 7)
    assert plan == make_lockstep_plan(10, 60.0, 7) != make_lockstep_plan(10, 60.0, 8)
    late = [client for client in plan.clients if client.is_late]
    assert len(late) == 2
    assert all(15.0 <= client.joins_s <= 45.0 for client in late)
    for client in plan.clients:
        assert all(client.joins_s < event.at_s < 57.0 for event in client.events)
        assert [event.body.split()[:2] for event in client.events] == [
            [client.name, str(number + 1)] for number in range(len(client.events))
        ]


def test_the_page_and_the_table_say_the_verdict_and_every_chart_has_its_course() -> None:
    plan = make_lockstep_plan(2, 2.0, 7)
    moves = [SeenMove("failover", "alpha.s1", "alpha.s2", 1.0, 1.1)]
    for clients, word in ((good(), "Passed"), ([good()[0], replace(good()[1], refused=("<b>no</b>",))], "Failed")):
        report = lockstep_report(plan, clients, moves, LAST, 0.0, FACTS)
        page = lockstep_page(report)
        assert f"<title>{word}: batonpass clients in lockstep</title>" in page
        assert "failover alpha.s1 to alpha.s2" in page
        assert f'id="joined-by-replay">{report.joined_by_replay}<' in page
        assert "<b>no</b>" not in page
        assert page.count("<polyline") == 4
        console = Console(record=True, width=100, file=io.StringIO())
        console.print(lockstep_table(report))
        assert word.upper() in console.export_text()


async def test_a_run_waits_for_the_slow_and_gives_up_on_those_that_come_no_farther(autojump_clock: MockClock) -> None:
    began_s = trio.current_time()

    said: list[str] = []

    def ticks_at(speeds: list[float]) -> list[str]:
        passed_s = trio.current_time() - began_s
        return [f"at {at}" for speed in speeds if (at := int(passed_s * speed)) < 100]

    await until_nothing_moves(lambda: ticks_at([10.0, 1.0]))
    assert trio.current_time() - began_s == pytest.approx(100, abs=1)
    await until_nothing_moves(lambda: ticks_at([0.9, 0.0]), said.append)
    assert trio.current_time() - began_s == pytest.approx(112 + SETTLE_S, abs=1)
    assert said[0].startswith("waiting: at 94, and 1 more like it")
    assert said[-1].startswith("waiting: at 0; nothing has moved for 11")
    assert len(said) == pytest.approx((12 + SETTLE_S) / SAY_EVERY_S, abs=2)


def test_a_client_whose_last_step_was_a_snapshot_has_come_to_the_end() -> None:
    some = {tick: state for tick, state in good()[0].hashes.items() if tick <= 20}
    jumped = replace(good()[0], hashes=some, restored=((20, LAST),))
    assert judge_lockstep([jumped, good()[1]], LAST).unfinished == 0
    assert judge_lockstep([replace(jumped, restored=((20, LAST - 1),)), good()[1]], LAST).unfinished == 1


def test_of_a_client_that_did_not_come_to_the_end_it_is_said_how_much_it_heard() -> None:
    slow = replace(good()[0], unacknowledged=2, lost=270, syncs=30)
    (sentence,) = judge_lockstep([slow, good()[1]], LAST).sentences
    assert sentence.endswith("2 events wait; of its requests 270 were lost, and 30 were answered with a tick")
