"""`baton bench tree` as its user runs it."""

import json
import shutil
from pathlib import Path

import pytest

from batonpass.scenarios.bench.tree.report import BenchReport
from batonpass.scenarios.cli.main import BAD_USAGE, CLUSTER_FAILED, OK, run_command


def bench(*arguments: str) -> int:
    return run_command(["bench", "tree", *arguments])


def test_a_tiny_run_of_real_members_reports_figures_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_file = tmp_path / "bench.json"
    disk = tmp_path / "disk"
    disk.mkdir()
    rows = ("write-follower-16", "linearizable-read-leader-64", "outage-sigkill")
    only = [word for row in rows for word in ("--only", row)]
    status = bench(
        *("--without-etcd", "--rounds", "1", "--seconds", "1", "--faults", "1", *only),
        *("--json", str(report_file), "--dir", str(disk)),
    )
    report = BenchReport.model_validate(json.loads(report_file.read_text()))
    assert status == (OK if report.passed else 1)
    assert [row.name for row in report.rows] == list(rows)
    for row in report.rows:
        assert row.etcd is None
        assert row.batonpass is not None
        assert row.batonpass.median > 0
    assert "writes, follower, 16 outstanding" in capsys.readouterr().out
    assert list(disk.iterdir()) == []


@pytest.mark.skipif(
    shutil.which("etcd") is None or shutil.which("h2load") is None, reason="needs etcd-server and nghttp2-client"
)
def test_a_tiny_run_beside_etcd_compares_the_two(tmp_path: Path) -> None:
    report_file = tmp_path / "bench.json"
    rows = ("write-follower-16", "linearizable-read-leader-64")
    only = [word for row in rows for word in ("--only", row)]
    status = bench("--rounds", "1", "--seconds", "1", *only, "--json", str(report_file), "--dir", str(tmp_path))
    report = BenchReport.model_validate(json.loads(report_file.read_text()))
    assert status == OK
    assert report.machine.versions["etcd"].startswith("3.")
    for row in report.rows:
        assert row.batonpass is not None
        assert row.etcd is not None
        assert row.ratio == pytest.approx(row.batonpass.median / row.etcd.median)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_a_profile_tells_layers_and_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--profile", "--only", "write-leader-16", "--seconds", "3", "--dir", str(tmp_path)) == OK
    shown = capsys.readouterr().out
    assert "leader: processor time per command" in shown
    assert "follower: processor time per command" in shown
    assert "applying: commands and store" in shown


def test_the_rows_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--list", "--only", "outage") == OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["outage-sigkill", "outage-sigstop"]


def test_a_whole_name_means_that_row_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--list", "--only", "write-leader-1") == OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["write-leader-1"]


def test_a_row_that_does_not_exist_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--only", "rites") == BAD_USAGE
    assert "no row is called, or begins with, 'rites'; --list shows them all" in capsys.readouterr().err


def test_without_etcd_installed_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert bench("--quick") == CLUSTER_FAILED
    told = capsys.readouterr().err
    assert "apt install etcd-server nghttp2-client" in told
    assert "--without-etcd" in told
