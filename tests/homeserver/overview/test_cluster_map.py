"""How a server is shown, by what is known of it."""

from typing import Any

import pytest

from batonpass.authority.model.records import LeaseRow
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.wire.placement import Load
from batonpass.homeserver.overview.cluster_map import (
    MAX_LAG,
    SILENT_S,
    HealthState,
    judge_member,
    judge_server,
)
from batonpass.homeserver.overview.live import LOOK_S
from batonpass.homeserver.placement.balancer import Reported
from batonpass.simserver.server.load_report import REPORT_EVERY_S
from batonpass.tree.member.status import MemberStatus

ALIVE = LeaseRow(server="alpha.s1", incarnation=1, nonce="n", phase=LeasePhase.ALIVE)


def report(age_s: float = 0.1, **more: Any) -> Reported:
    figures = {"tick_ppm": 100, "entities": 3, "leaving": 0, "inputs_per_s": 0, "bytes_per_s": 0}
    return Reported(Load(**figures | more), age_s)


def member(**more: Any) -> MemberStatus:
    fields: dict[str, Any] = {"name": "alpha.h2", "host": "127.0.0.1", "port": 1, "connected": True}
    return MemberStatus(**fields | more)


def test_a_killed_server_is_shown_as_down_within_two_seconds_and_one_that_reports_is_not() -> None:
    assert SILENT_S + LOOK_S < 2.0
    assert SILENT_S > 1.5 * REPORT_EVERY_S


@pytest.mark.parametrize(
    ("reported", "lease", "draining", "health", "why"),
    [
        (report(), ALIVE, False, HealthState.OK, ""),
        (report(SILENT_S), ALIVE, False, HealthState.OK, ""),
        (report(SILENT_S + 0.01), ALIVE, False, HealthState.DOWN, "not reported for over 1.6 s"),
        (None, ALIVE, False, HealthState.UNKNOWN, "not reported to alpha.h1 yet"),
        (None, None, False, HealthState.UNKNOWN, "not reported to alpha.h1 yet"),
        (report(), ALIVE.changed(phase=LeasePhase.OVER), False, HealthState.DOWN, "its lease is over"),
        (report(), ALIVE.changed(phase=LeasePhase.RETURNING), False, HealthState.WARNING, "has come back"),
        (report(), None, False, HealthState.WARNING, "no lease yet"),
        (report(quarantined=1200), ALIVE, False, HealthState.WARNING, "1,200 of its entities are quarantined"),
        (report(untaken=2), ALIVE, True, HealthState.WARNING, "does not take 2 of its entities; it is drained"),
        (report(is_full=True), ALIVE, False, HealthState.WARNING, "takes no entity more"),
        (report(tick_ppm=1_000_001), ALIVE, False, HealthState.WARNING, "ticks take longer than their period"),
    ],
)
def test_a_simulation_server(
    reported: Reported | None, lease: LeaseRow | None, draining: bool, health: HealthState, why: str
) -> None:
    shown, reason = judge_server(reported, lease, "alpha.h1", draining=draining)
    assert shown is health
    assert why in reason
    assert bool(reason) is (health is not HealthState.OK)


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (member(), HealthState.OK),
        (member(lag_entries=MAX_LAG), HealthState.OK),
        (member(lag_entries=MAX_LAG + 1), HealthState.WARNING),
        (member(role="learner"), HealthState.WARNING),
        (member(role="learner", connected=False), HealthState.DOWN),
    ],
)
def test_a_member(status: MemberStatus, health: HealthState) -> None:
    shown, reason = judge_member(status, "alpha.h1")
    assert shown is health
    assert bool(reason) is (health is not HealthState.OK)
