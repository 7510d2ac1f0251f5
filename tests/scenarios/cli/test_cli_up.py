"""`baton up` as a user and a script meet it: a program that starts, reports, and leaves nothing behind.

The servers are fakes; signals, processes and exit statuses are real.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.fakes import DEADLINE_S, ROOT, Witness


class Up:
    """One run of `baton up --json` with fake servers."""

    def __init__(self, directory: Path, *behaviours: str) -> None:
        argv = (sys.executable, "-m", "tests.scenarios.fake_up", str(directory), "alpha:2", *behaviours)
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, process_group=0
        )
        self.witnesses: dict[str, Witness] = {}

    def next_report(self) -> dict[str, Any]:
        """The next line on stdout."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"baton up ended: {self.process.communicate(timeout=DEADLINE_S)}"
        report: dict[str, Any] = json.loads(line)
        return report

    def wait_ready(self) -> dict[str, Any]:
        """Wait until the cluster is up, and keep an eye on each of its processes from then on."""
        report = self.next_report()
        assert report["event"] == "ready"
        self.witnesses = {server["name"]: Witness(server["pid"]) for server in report["servers"]}
        return report

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to end, and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def wait_for_progress(self, text: str) -> None:
        """Wait for a line on stderr."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        raise AssertionError(f"it ended without saying {text!r}")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        for witness in self.witnesses.values():
            witness.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def up(directory: Path) -> Iterator[Up]:
    up = Up(directory)
    yield up
    up.close()


def test_it_reports_every_server_and_where_the_tokens_are(up: Up, directory: Path) -> None:
    report = up.wait_ready()

    assert report["directory"] == str(directory)
    assert [(server["name"], server["role"]) for server in report["servers"]] == [
        ("alpha.h1", "homeserver"),
        ("alpha.h2", "homeserver"),
        ("alpha.s1", "simserver"),
    ]
    assert Path(report["client_token_files"]["alpha"]).read_text().strip()
    assert up.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_well_and_takes_everything_down_when_asked(up: Up, number: signal.Signals) -> None:
    up.wait_ready()

    assert up.stop(number) == 0
    assert all(witness.saw_it_end(timeout_s=0.0) for witness in up.witnesses.values())
    assert [up.next_report()["event"] for _ in range(2)] == ["kept", "ended"]


def test_no_server_outlives_a_killed_parent_not_even_a_stopped_one(up: Up) -> None:
    up.wait_ready()
    os.kill(up.witnesses["alpha.h2"].pid, signal.SIGSTOP)

    up.process.kill()

    assert all(witness.saw_it_end() for witness in up.witnesses.values())


def test_the_directory_of_a_killed_cluster_can_be_used_again_at_once(up: Up, directory: Path) -> None:
    first = up.wait_ready()
    up.process.kill()
    assert all(witness.saw_it_end() for witness in up.witnesses.values())

    again = Up(directory)
    second = again.wait_ready()
    assert [server["rest_url"] for server in second["servers"]] == [server["rest_url"] for server in first["servers"]]
    assert again.stop() == 0
    again.close()


def test_a_dying_server_is_reported_and_the_rest_goes_on(up: Up, directory: Path) -> None:
    up.wait_ready()
    os.kill(up.witnesses["alpha.h2"].pid, signal.SIGKILL)

    report = up.next_report()

    assert (report["event"], report["name"], report["how"]) == ("crashed", "alpha.h2", "SIGKILL")
    assert report["again"].startswith("baton homeserver --config ")
    assert Path(report["again"].split()[-1]) == directory / "alpha.h2" / "config.toml"
    assert not up.witnesses["alpha.h1"].saw_it_end(timeout_s=0.0)
    assert up.stop() == 0


def test_an_interruption_during_the_start_cleans_up_too(directory: Path) -> None:
    up = Up(directory, "alpha.h1=unready")
    up.wait_for_progress("is ready")
    pids = [int(pid) for pid in children_of(up.process.pid)]
    up.witnesses = {str(pid): Witness(pid) for pid in pids}

    assert len(pids) == 3
    assert up.stop() == 130
    assert all(witness.saw_it_end(timeout_s=0.0) for witness in up.witnesses.values())
    up.close()


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_second_interruption_does_not_wait_for_stubborn_servers(directory: Path) -> None:
    up = Up(directory, "alpha.h1=stubborn")  # with a grace period of three minutes
    up.wait_ready()
    up.process.send_signal(signal.SIGINT)
    assert up.witnesses["alpha.h2"].saw_it_end()

    assert up.stop() == 0
    assert up.witnesses["alpha.h1"].saw_it_end(timeout_s=0.0)
    up.close()


def test_a_server_that_does_not_come_up_is_named_in_the_error(directory: Path) -> None:
    up = Up(directory, "alpha.h1=crash")
    _, errors = up.process.communicate(timeout=DEADLINE_S)

    assert up.process.returncode == 3
    assert errors.splitlines()[-1].startswith("baton: not all servers came up: alpha.h1 (pid ")
    up.close()


def test_it_goes_on_when_nobody_reads_its_reports_any_more(up: Up) -> None:
    up.wait_ready()
    assert up.process.stdout is not None
    up.process.stdout.close()
    os.kill(up.witnesses["alpha.h2"].pid, signal.SIGKILL)
    up.witnesses["alpha.h2"].saw_it_end()

    assert not up.witnesses["alpha.h1"].saw_it_end(timeout_s=0.0)
    assert up.stop() == 0


def test_a_second_cluster_in_the_same_directory_is_refused(up: Up, directory: Path) -> None:
    up.wait_ready()

    second = Up(directory)
    reports, errors = second.process.communicate(timeout=DEADLINE_S)

    assert second.process.returncode == 3
    assert reports == ""
    assert errors == f"baton: a cluster is running in {directory}; stop it first, or give another --dir\n"
    second.close()
    assert up.stop() == 0
