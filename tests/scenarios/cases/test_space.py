"""Custody of entities that move on while their servers are asked."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.scenarios.cases.space import stints_before
from batonpass.scenarios.judge.custody import FinalAuthority, judge
from tests.budget import examples

PERIOD_NS = 50


def stint(number: int, began_ns: int, ended_ns: int) -> dict[str, Any]:
    return {
        "entity": "alpha.b1",
        "server": f"alpha.s{number}",
        "epoch": number,
        "sub": 0,
        "started_ns": began_ns,
        "started_tick": began_ns // PERIOD_NS,
        "started_hash": str(number - 1),
        "ended_ns": ended_ns,
        "ended_tick": ended_ns // PERIOD_NS,
        "ended_hash": str(number) if ended_ns else "",
        "last_tick_ns": ended_ns,
    }


@settings(max_examples=examples(200, 50))
@given(st.lists(st.integers(1, 20), min_size=2, max_size=6), st.data())
def test_hand_overs_while_servers_are_asked_are_no_findings(stays: list[int], data: st.DataObject) -> None:
    """Each server has a custody log, and is asked at some moment after the one for which the verdict is."""
    borders = [0]
    for stay in stays:
        borders.append(borders[-1] + stay * PERIOD_NS)
    now_ns = data.draw(st.integers(1, borders[-1]), label="now")
    found = []
    for number in range(1, len(borders)):
        began_ns, ended_ns = borders[number - 1], borders[number]
        asked_ns = data.draw(st.integers(now_ns, borders[-1] + 1), label=f"alpha.s{number} is asked")
        told = stint(number, began_ns, ended_ns if ended_ns < asked_ns else 0)
        found += stints_before([told] if began_ns < asked_ns else [], now_ns)
    last = [one for one in found if not one["ended_ns"]]
    assert len(last) <= 1
    finals = {one["entity"]: FinalAuthority(one["server"], one["epoch"], one["sub"]) for one in last}
    assert judge(found, finals, PERIOD_NS).findings == []
