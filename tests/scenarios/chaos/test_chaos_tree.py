"""`baton chaos tree`, run as a user runs it: real members, real faults, and nothing left behind."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from batonpass.scenarios.chaos.plan import KINDS, FaultKind, KernelNeed
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, limited
from tests.scenarios.fakes import ROOT

pytestmark = limited


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "batonpass.scenarios.cli.main", "chaos", "tree", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_S, cwd=ROOT)


def processes_that_mention(text: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if bytes(text) in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def all_ended(pids: list[int]) -> None:
    """Fails unless all of them end: SIGKILL is on its way, but the kernel takes a moment."""
    for pid in pids:
        with suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            ready, _, _ = select.select([process], [], [], PATIENCE_S)
            os.close(process)
            assert ready, f"process {pid} was left behind"


def test_faults_of_many_kinds_lose_nothing_and_the_report_tells_how_long_each_took(tmp_path: Path) -> None:
    kinds = [FaultKind.KILL_ALL, FaultKind.STOP_LEADER, FaultKind.TEAR_JOURNAL, FaultKind.CORRUPT_JOURNAL]
    kinds += [FaultKind.ISOLATE_LEADER, FaultKind.POWER_CUT_ALL]
    place, json_file = tmp_path / "run", tmp_path / "report.json"
    done = chaos(
        *("--faults", "6", "--seed", "7", "--kinds", ",".join(kinds)), *("--dir", str(place), "--json", str(json_file))
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(json_file.read_text())
    assert report["violations"] == []
    assert len(report["results"]) == 6
    # What this kernel does not permit is skipped, and that is said; the rest happened instead.
    for kind in kinds:
        if kind in report["skipped"]:
            assert KINDS[kind].needs <= set(KernelNeed)
            assert KINDS[kind].needs
            assert f"skipping {kind}: needs" in done.stderr
        else:
            assert kind in {result["kind"] for result in report["results"]}
    assert all(result["next_write_ms"] > 0 and result["healed_ms"] > 0 for result in report["results"])
    # Before each fault and after it.
    assert report["acknowledged_writes"] > 2 * 6
    assert "nothing acknowledged was lost, nothing applied twice, every history is linearizable" in done.stdout
    assert str(place) not in Path("/proc/mounts").read_text()
    assert processes_that_mention(place) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_the_middle_leaves_no_process_and_no_mount(tmp_path: Path, ending: signal.Signals) -> None:
    place = tmp_path / "run"
    argv = [sys.executable, "-m", "batonpass.scenarios.cli.main", "chaos", "tree", "--dir", str(place), "--seed", "3"]
    argv += ["--faults", "1000", "--kinds", "kill-follower,isolate-follower,power-cut"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stderr is not None
        assert run.stdout is not None
        while not run.stderr.readline().startswith("   1 "):
            assert run.poll() is None
        os.kill(run.pid, ending)
        out = run.stdout.read()
        status = run.wait(LIMIT_S)

    if ending == signal.SIGINT:
        assert status == 130
        assert re.search(r"\b[1-9][0-9]* of 1000 faults", out), out
    all_ended(processes_that_mention(place))
    assert str(place) not in Path("/proc/mounts").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kinds", "murder"], "'murder' is no kind of fault; there are: kill-leader"),
        (["--faults", "0"], "0 is not in the range"),
        (["--members", "4"], "'4' is not one of '3', '5'"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], complaint: str) -> None:
    done = chaos(*arguments)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    done = chaos("--dir", str(tmp_path), "--kinds", "kill-leader")

    assert done.returncode == 3
    assert "is not empty" in done.stderr
