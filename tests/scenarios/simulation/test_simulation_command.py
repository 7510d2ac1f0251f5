"""`baton simulate raft`: the table, the replay command, the exit status, and what Ctrl-C leaves."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from batonpass.scenarios.cli.main import run_command
from batonpass.scenarios.simulation.kernel.campaign import Campaign, CampaignKind, MixResult
from batonpass.scenarios.simulation.kernel.pace import SAY_EVERY_S, Pace
from batonpass.scenarios.simulation.kernel.show import run_and_show
from tests.mutants.runs import campaign_of


def test_seeds_without_a_violation_are_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    status = run_command(["simulate", "raft", "--seeds", "3", "--mix", "slow", "--nodes", "3", "--json", str(file)])
    printed = capsys.readouterr().out
    assert status == 0
    assert "slow" in printed
    (result,) = json.loads(file.read_text())["mixes"]
    assert (result["mix"], result["runs"], result["violated"]) == ("slow", 3, 0)
    assert result["acknowledged"] > 0


def test_a_violation_is_a_failure_and_tells_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_show(campaign_of("raft", "applies-again", ("slow",), 1, first=4), trace=True) == 1
    printed = capsys.readouterr().out
    again = "python -m tests.mutants raft applies-again --mix slow --from 4 --seeds 1 --nodes 3 --trace"
    assert again in printed
    assert "fault " in printed  # of the trace


def works(pid: int) -> bool:
    """Whether a process has a worker that has become one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(b"simulation.kernel.worker" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)


# A shell without job control, as in a script, has what it runs in the background ignore SIGINT.
@pytest.mark.parametrize(
    ("number", "sigint"),
    [(signal.SIGINT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_IGN)],
)
def test_ctrl_c_and_sigterm_show_what_was_done_so_far(
    tmp_path: Path, number: signal.Signals, sigint: signal.Handlers
) -> None:
    file = tmp_path / "report.json"
    arguments = [
        "-m",
        "batonpass.scenarios.cli.main",
        "simulate",
        "raft",
        "--mix",
        "slow",
        "--seeds",
        "100000",
        "--json",
        str(file),
    ]
    before = signal.signal(signal.SIGINT, sigint)  # which a child inherits
    try:
        started = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with started as process:
        deadline_s = time.monotonic() + 60
        while not works(process.pid) and time.monotonic() < deadline_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
        process.send_signal(number)
        try:
            printed, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert "simulated clusters" in printed
    assert "writes per second of wall time" in printed
    report = json.loads(file.read_text())
    assert report["interrupted"] is True
    assert report["writes_per_s"] >= 0
    assert [mix["writes_per_s"] >= 0 for mix in report["mixes"]] == [True]


KIND = CampaignKind(
    command="baton simulate some",
    run="some:simulate_seed",
    mixes=("calm", "lossy", "cuts"),
    columns={"moves": "moves"},
    counted="moves",
    title="transfers",
)


def test_a_campaign_says_how_fast_it_is_and_how_long_it_still_takes() -> None:
    now_s = 0.0
    pace = Pace(Campaign(KIND, ("calm", "lossy"), 500, workers=2), lambda: now_s)
    calm, lossy = MixResult("calm", 130, figures={"moves": 50_000}), MixResult("lossy", 120, figures={"moves": 10_000})
    results = {"calm": calm, "lossy": lossy}
    now_s = 60.0
    assert pace.line(results) == "250 of 1,000 runs, 1,000 transfers/s, 3 min left"
    assert pace.summary(results) == "250 runs in 60 s with 2 workers, 1,000 transfers per second of wall time"
    assert pace.is_due() is True
    assert pace.is_due() is False, "it was just said"
    now_s += SAY_EVERY_S
    assert pace.is_due() is True
    assert MixResult("calm", 10, figures={"moves": 600}, busy_s=2.0).per_s(pace.counted) == 300


def test_more_workers_than_seeds_share_the_mixes_of_a_seed() -> None:
    campaign = Campaign(KIND, KIND.mixes, 1, workers=2)
    assert campaign.shares == 2
