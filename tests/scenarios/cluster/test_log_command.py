"""`baton logs`: the lines of several servers by time, the last ones, by level, and what is no cluster."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.cluster.log_command import LogEntry, merged
from tests.scenarios.commands import Baton, baton_command

H1 = """\
2026-11-30T08:00:00.100Z INFO batonpass.homeserver: ready
2026-11-30T08:00:02.000Z ERROR batonpass.homeserver: failed
Traceback (most recent call last):
ValueError: no
2026-11-30T08:00:04.000Z INFO batonpass.homeserver: over
"""
S1 = """\
2026-11-30T08:00:01.000Z INFO batonpass.simserver: ready
{"time": "2026-11-30T08:00:03.000Z", "level": "WARNING", "transfer": "wish-1", "message": "x: late"}
"""


@pytest.fixture
def logs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Baton:
    for name, text in (("alpha.h1", H1), ("alpha.s1", S1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text(text)
    return baton_command(capsys, "logs", "--dir", str(tmp_path))


def seen(out: str) -> list[str]:
    return [
        line.split()[0][-2:] + " " + line.rpartition(": ")[2].rstrip('"}')
        for line in out.splitlines()
        if line[:5] == "alpha"
    ]


def test_lines_of_all_servers_come_by_time_with_what_belongs_to_them(logs: Baton) -> None:
    status, out, err = logs()
    assert (status, err) == (0, "")
    assert seen(out) == ["h1 ready", "s1 ready", "h1 failed", "s1 late", "h1 over"]
    assert "failed\nTraceback (most recent call last):\nValueError: no\nalpha.s1" in out


def test_servers_levels_and_the_last_lines_are_chosen(logs: Baton) -> None:
    assert seen(logs("alpha.s1")[1]) == ["s1 ready", "s1 late"]
    assert seen(logs("--level", "warning")[1]) == ["h1 failed", "s1 late"]
    assert seen(logs("--search", "wish-1")[1]) == ["s1 late"]
    assert seen(logs("-n", 1)[1]) == ["s1 late", "h1 over"]


def test_what_is_no_server_and_no_cluster_is_told(
    logs: Baton, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _, err = logs("alpha.s2")
    assert (status, "has no log of alpha.s2; it has alpha.h1, alpha.s1" in err) == (2, True)
    empty = tmp_path / "empty"
    empty.mkdir()
    status, _, err = baton_command(capsys, "logs", "--dir", str(empty))()
    assert (status, "baton up --dir" in err) == (2, True)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 9)).map(sorted)))
def test_each_line_comes_once_and_those_of_a_server_in_their_order(times: dict[str, list[int]]) -> None:
    entries = {
        name: [LogEntry.read(f"2026-11-30T0{at}:00 INFO {n}") for n, at in enumerate(some)]
        for name, some in times.items()
    }
    found = list(merged(entries))
    assert {name: [entry for whose, entry in found if whose == name] for name in entries} == entries
    moments = [entry.time for _, entry in found]
    assert moments == sorted(moments)
