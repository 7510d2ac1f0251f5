"""`baton up` with the real servers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.scenarios.asked import answered, come
from tests.scenarios.fakes import DEADLINE_S, ROOT, Witness

HOMES = ["alpha.h1", "alpha.h2", "alpha.h3"]


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
            (*argv, "--dir", str(tmp_path / "cluster"), "--grace", str(DEADLINE_S)),
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


async def all_agree(servers: list[dict[str, Any]]) -> None:
    """Wait until all say that they are well, and all homeservers name the same leader."""
    urls = {server["name"]: server["rest_url"] for server in servers}
    for server in servers:
        await answered(
            f"{server['rest_url']}/healthz",
            lambda health, of=server: (health["name"], health["role"]) == (of["name"], of["role"]),  # type: ignore[misc]
        )

    async def leaders() -> list[str | None]:
        views = [await answered(f"{urls[name]}/v1/cluster") for name in HOMES]
        assert [member["name"] for member in views[0]["members"]] == HOMES
        return [view["leader"] for view in views]

    await come(leaders, lambda seen: len({*seen}) == 1 and seen[0] in HOMES, what="one leader")


def test_an_instance_of_three_agrees_on_a_leader_and_leaves_nothing_behind_when_killed(
    baton_up: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    servers = wait_ready(baton_up, tmp_path)
    witnesses = [Witness(server["pid"]) for server in servers]
    trio.run(all_agree, servers)
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
