"""Judging chains of custody with killed servers in them: clean ones pass, and each way to break one is found."""

from dataclasses import asdict
from typing import Any

import pytest

from batonpass.scenarios.chaos.chain import Loss, ServerKill, judge_chain, latest
from batonpass.simserver.entity.custody_log import CustodyLog, Stint, custody_file

BALL = "alpha.ball"


def stint(server: str, epoch: int, ticks: tuple[int, int | None], times: tuple[int, int]) -> dict[str, Any]:
    """From tick to tick, None for one that wrote nothing of its end."""
    begin, end = ticks
    made = Stint(BALL, server, epoch, 0, begin, f"hash {begin}", times[0])
    if end is not None:
        made.ended_tick, made.ended_hash, made.ended_ns = end, f"hash {end}", times[1]
    return asdict(made)


FIRST = stint("alpha.s1", 1, (0, 4), (0, 100))
KILLED = stint("alpha.s2", 2, (4, None), (110, 0))
AFTER = stint("alpha.s1", 3, (4, None), (310, 0))
KILL = ServerKill("alpha.s2", 300)


def test_a_stint_ends_with_its_server_and_what_follows_may_be_a_copy_of_an_earlier_tick() -> None:
    assert judge_chain([FIRST, KILLED, stint("alpha.s1", 3, (3, None), (310, 0))], [KILL]) == []
    back = [FIRST, stint("alpha.s2", 3, (2, None), (310, 0))]
    assert judge_chain(back, [ServerKill("alpha.s1", 105)]) == []
    assert judge_chain(back, [ServerKill("alpha.h1", 105), ServerKill("alpha.s1", 311)]) != [], (
        "another death is no excuse"
    )
    assert judge_chain([FIRST, KILLED, AFTER], [KILL]) == []
    assert judge_chain([FIRST, KILLED, AFTER], [ServerKill("alpha.s2", 50), KILL]) == [], "the kill before is another's"


@pytest.mark.parametrize(
    ("chain", "problem"),
    [
        ([FIRST, KILLED, stint("alpha.s1", 3, (4, None), (299, 0))], "had not ended"),
        ([FIRST, KILLED, stint("alpha.s1", 2, (4, None), (310, 0))], "the same fence twice"),
        ([FIRST, stint("alpha.s2", 2, (3, None), (110, 0))], "ended at tick 4, went on at 3"),
        ([FIRST, stint("alpha.s2", 2, (4, None), (99, 0))], "had not ended"),
    ],
)
def test_each_way_to_break_a_chain_is_found(chain: list[dict[str, Any]], problem: str) -> None:
    found = judge_chain(chain, [KILL])
    assert len(found) == 1
    assert problem in found[0]


def test_whoever_stood_still_or_was_cut_off_until_its_lease_was_over_is_taken_over_from_a_copy() -> None:
    late = stint("alpha.s2", 2, (4, 6), (110, 500)) | {"last_tick_ns": 290}
    taken = stint("alpha.s1", 3, (5, None), (310, 0))
    begun_late = stint("alpha.s2", 2, (4, 4), (600, 601))
    assert "had not ended" in judge_chain([FIRST, late, taken], [])[0]
    assert judge_chain([FIRST, late, taken], [ServerKill("alpha.s1", 200, Loss.PARTED)]) != [], (
        "whoever else was is no excuse"
    )
    for loss in (Loss.PAUSED, Loss.PARTED):
        away = ServerKill("alpha.s2", 200, loss)
        assert judge_chain([FIRST, late, taken], [away]) == []
        assert judge_chain([FIRST, late, taken], [ServerKill("alpha.s2", 105, loss)]) == [], "away before it began"
        assert "had not ended" in judge_chain([FIRST, late | {"last_tick_ns": 311}, taken], [away])[0], "it ticked on"
        assert judge_chain([FIRST, begun_late | {"last_tick_ns": 601}, taken], [away]) != []
        # Who stood still when its lease ended may begin with what it had leave for, and then sees that it may not.
        assert (
            judge_chain([FIRST, begun_late, taken | {"started_hash": "hash 4", "started_tick": 4}], [away]) == []
        ) == (loss is Loss.PAUSED)


def test_a_stint_that_was_never_killed_and_never_ended_is_a_second_authority() -> None:
    assert "had not ended" in judge_chain([FIRST, KILLED, AFTER], [ServerKill("alpha.s1", 300)])[0]


def test_what_is_written_down_of_a_stint_is_what_became_of_it(tmp_path: Any) -> None:
    import json

    log = CustodyLog("alpha.s1", custody_file(tmp_path / "custody.jsonl"))
    one = log.start(Stint(BALL, "alpha.s1", 1, 0, 0, "hash 0", 5))
    two = log.start(Stint(BALL, "alpha.s1", 2, 0, 4, "hash 4", 110))
    one.ended_tick, one.ended_hash, one.ended_ns = 4, "hash 4", 100
    log.changed(one)
    rows = [json.loads(line) for line in (tmp_path / "custody.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    assert latest(rows) == [one.row(), two.row()]
