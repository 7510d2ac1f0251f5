"""`baton up` with the real servers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batonpass.actors.http.client import trusted_authorities
from tests.scenarios.fakes import DEADLINE_S, ROOT, Witness


@pytest.fixture
def baton_up(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    argv = (
        sys.executable,
        "-m",
        "batonpass.scenarios.cli.main",
        "up",
        "--json",
        "--instances",
        "alpha:3",
        "--simservers",
        "1",
    )
    with (
        (tmp_path / "progress").open("w") as progress,
        subprocess.Popen(
            (*argv, "--dir", str(tmp_path / "cluster")),
            stdout=subprocess.PIPE,
            stderr=progress,
            text=True,
            cwd=ROOT,
            process_group=0,
        ) as process,
    ):
        yield process
        process.kill()


def wait_ready(process: "subprocess.Popen[str]", tmp_path: Path) -> list[dict[str, Any]]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (tmp_path / "progress").read_text()
    report = json.loads(line)
    assert report["event"] == "ready", report
    servers: list[dict[str, Any]] = report["servers"]
    return servers


def test_an_instance_of_three_agrees_on_a_leader_and_leaves_nothing_behind_when_killed(
    baton_up: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    servers = wait_ready(baton_up, tmp_path)
    witnesses = [Witness(server["pid"]) for server in servers]
    urls = {server["name"]: server["rest_url"] for server in servers}

    with httpx.Client(trust_env=False, verify=trusted_authorities(), timeout=DEADLINE_S) as client:
        for server in servers:
            health = client.get(f"{server['rest_url']}/healthz")
            assert (health.status_code, health.json()["name"]) == (200, server["name"])
            assert health.json()["role"] == server["role"]
        views = [client.get(f"{urls[f'alpha.h{number}']}/v1/cluster").json() for number in (1, 2, 3)]
    (leader,) = {view["leader"] for view in views}
    assert leader in urls
    assert [member["name"] for member in views[0]["members"]] == ["alpha.h1", "alpha.h2", "alpha.h3"]

    os.kill(servers[1]["pid"], signal.SIGSTOP)
    baton_up.kill()

    assert all(witness.saw_it_end() for witness in witnesses)
    for witness in witnesses:
        witness.close()


def test_real_servers_end_in_peace_when_asked(baton_up: "subprocess.Popen[str]", tmp_path: Path) -> None:
    servers = wait_ready(baton_up, tmp_path)
    witnesses = [Witness(server["pid"]) for server in servers]

    baton_up.send_signal(signal.SIGINT)

    assert baton_up.wait(DEADLINE_S) == 0
    assert "not an orderly end" not in (tmp_path / "progress").read_text()
    assert all(witness.saw_it_end(timeout_s=0.0) for witness in witnesses)
    for witness in witnesses:
        witness.close()
