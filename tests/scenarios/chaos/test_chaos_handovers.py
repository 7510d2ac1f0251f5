"""Hand-overs between real processes, held still at named steps while somebody is killed or stopped there.

A part of what `baton chaos transfers` does, bounded in time. What must hold is checked by the trials themselves: one
authority and it is the log's, no state that goes back, every input applied once.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import trio

from batonpass.actors.base.breakpoints import ENVIRONMENT, Breakpoints, breakpoints_of, nowhere
from batonpass.authority.errors import Reason
from batonpass.authority.machines import source as outgoing
from batonpass.authority.node.breakpoints import BREAKPOINT_OF, Breakpoint
from batonpass.scenarios.chaos.gate import Gate
from batonpass.scenarios.chaos.handovers import (
    Deed,
    HandoverEnd,
    Trial,
    TrialResult,
    all_cuts,
    all_trials,
    handover_ground,
)
from batonpass.scenarios.chaos.ways import STEPS, WITHOUT_TRIAL
from tests.collected import ROOT

pytestmark = pytest.mark.timeout(1000)


async def tried(directory: Path, *names: str) -> list[TrialResult]:
    """What became of these trials, one after the other on one cluster."""
    trials = {str(trial): trial for trial in all_trials()}
    results = []
    with trio.fail_after(900):
        async with handover_ground(directory, 21, {trials[name].case for name in names}) as ground:
            for name in names:
                results.append(await ground.do(trials[name]))
    return results


def assert_all_go_on(results: list[TrialResult]) -> None:
    for result in results:
        assert (result.outcome, result.violations) == (HandoverEnd.GOES_ON, ()), result.sentence


async def test_failures_row_9_and_10_the_old_authority_dies_before_and_after_the_commit(tmp_path: Path) -> None:
    names = ("case-2-ask_home-kill-old", "case-2-activated-kill-old", "case-3-peer_active-kill-old")
    # On the same cluster: between two home instances, where nobody else brings the log's word to the new authority.
    abroad = ("case-1-committed-kill-old", "case-1-permitted-kill-new")
    results = await tried(tmp_path, *names, *abroad, "case-2-staged-staged-kill-old")
    assert_all_go_on(results)
    assert {result.authority for result in results[1:3]} == {"alpha.s2"}


async def test_failures_row_11_and_12_and_13_the_new_authority_dies_before_and_after_the_commit(tmp_path: Path) -> None:
    names = (
        "case-2-offered-kill-new",
        "case-2-permitted-kill-new",
        "case-3-activated-kill-new",
        "case-2-staged-kept-kill-new",
    )
    assert_all_go_on(await tried(tmp_path, *names))


async def test_failures_row_20_a_key_is_revoked_while_a_direct_pass_stands_at_a_step(tmp_path: Path) -> None:
    """Before it is sent, after that, and when the receiver has begun and the log has no report; also with SIGKILL."""
    names = (
        "case-3-offered-revoke-old",
        "case-3-activated-revoke-old",
        "case-3-activated-revoke-kill-old",
        "case-3-frozen-reset-old",
    )
    results = await tried(tmp_path, *names)
    assert_all_go_on(results)
    became = [result.note.partition(": ")[2] for result in results]
    # Who signs it again with the new key can show that it happened; else nobody can, and it is looked for.
    proven_or_not = {"done", f"refused {Reason.UNPROVEN}"}
    assert set(became[:2]) <= proven_or_not, became
    # Who had it is dead: it may have been taken over by the very server to which it was to go.
    assert set(became[2:]) <= proven_or_not | {f"refused {Reason.SAME_SERVER}"}, became


async def test_failures_row_23_the_leader_dies_before_and_after_the_commit(tmp_path: Path) -> None:
    names = ("case-2-deciding-kill-leader", "case-2-decided-kill-leader", "case-2-given-up-giving_up-kill-leader")
    assert_all_go_on(await tried(tmp_path, *names))


async def test_failures_row_24_either_end_or_the_leader_stands_still_for_a_while(tmp_path: Path) -> None:
    names = (
        "case-2-frozen-stop-old",
        "case-2-decided-stop-old",
        "case-3-send_direct-stop-new",
        "case-2-permitted-stop-new",
        "case-2-deciding-stop-leader",
    )
    assert_all_go_on(await tried(tmp_path, *names))


def test_failures_row_15_and_21_and_22_partitions_of_old_new_and_log_around_the_commit(tmp_path: Path) -> None:
    patterns = (
        "case-2-deciding-cut-*",
        "case-2-decided-cut-*",
        "case-3-offered-cut-*",
        "case-2-deciding-lapse-old-log",
    )
    json_file = tmp_path / "results.json"
    only = [part for pattern in patterns for part in ("--only", pattern)]
    argv = [
        sys.executable,
        "-m",
        "batonpass.scenarios.cli.main",
        "chaos",
        "transfers",
        *only,
        "--seed",
        "5",
        "--json",
        str(json_file),
    ]
    # A process of its own, because it moves into namespaces of its own.
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
    if "skipping partitions: namespaces are not permitted here" in done.stderr:
        # Without the tools it fails below: those can be installed.
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(json_file.read_text())["results"]
    assert len(results) == 10
    assert {(result["outcome"], *result["violations"]) for result in results} == {("goes on",)}
    short = [result for result in results if "cut" in result["name"]]
    assert {result["authority"] for result in short} == {"alpha.s2"}


# --- the means ------------------------------------------------------------------------------------------------------


def test_there_are_no_breakpoints_unless_the_environment_asks_for_them(tmp_path: Path) -> None:
    assert breakpoints_of("alpha.s1", {}) is None
    nowhere("frozen", "transfer-1")
    with pytest.raises(OSError, match="No such file"):
        breakpoints_of("alpha.s1", {ENVIRONMENT: str(tmp_path / "nobody")})


async def test_a_server_stands_still_until_it_is_let_go_and_only_where_it_is_held(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "steps")
    passed: list[str] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(gate.serve)
        breakpoints = await trio.to_thread.run_sync(Breakpoints, "alpha.s1", str(gate.path))

        async def reach(step: str) -> None:
            await trio.to_thread.run_sync(breakpoints.reached, step, "transfer-1")
            passed.append(step)

        hold = gate.hold("retire", "transfer-1")
        await reach("frozen")
        nursery.start_soon(reach, "retire")
        await hold.reached.wait()
        assert (hold.server, passed) == ("alpha.s1", ["frozen"])
        hold.let_go()
        await trio.testing.wait_all_tasks_blocked(0.05)
        await reach("retire")
        nursery.cancel_scope.cancel()
    # Whoever listened is gone: nothing holds the server any more.
    breakpoints.reached("frozen", "transfer-2")
    breakpoints.close()
    assert gate.steps == [("alpha.s1", step, "transfer-1") for step in ("frozen", "retire", "retire")]


def test_every_step_has_a_trial_for_everybody_who_may_die_or_stand_still_there() -> None:
    trials = all_trials()
    revocations = [one for one in trials if one.deed in (Deed.REVOKE, Deed.REVOKE_KILL, Deed.RESET)]
    assert len(trials) == len({str(trial) for trial in trials}) == 8 * sum(map(len, STEPS.values())) + len(revocations)
    assert {trial.step for trial in revocations} <= set(STEPS["3"])
    assert {trial.step for trial in trials if trial.case == "3"} == set(STEPS["3"])
    cuts = all_cuts()
    assert len(cuts) == 5 * sum(map(len, STEPS.values()))
    assert isinstance(trials[0], Trial)


def test_every_breakpoint_that_servers_pass_has_a_trial_or_a_written_reason_why_not() -> None:
    tried_at = {step for steps in STEPS.values() for step in steps}
    assert tried_at | set(WITHOUT_TRIAL) == set(Breakpoint)
    assert not tried_at & set(WITHOUT_TRIAL)
    assert all(len(reason) > 40 for reason in WITHOUT_TRIAL.values())
    # Nothing that the machine hears and does goes by without one, but time.
    assert set(BREAKPOINT_OF) == {*get_args(outgoing.Event), *get_args(outgoing.Effect)} - {outgoing.TimePassed}
    page = (ROOT / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")
    assert [step for step in Breakpoint if f"`{step}`" not in page] == []
    assert f"every step of all ways: {len(all_trials()) + len(all_cuts()):,} trials" in page
