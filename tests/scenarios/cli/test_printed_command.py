"""What `baton up` prints for a server that died is run word for word, by a shell, in any directory."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.scenarios.fakes import DEADLINE_S, ROOT, Witness

pytestmark = pytest.mark.timeout(280)

MINE = """
from pathlib import Path
from batonpass.simserver.world.demo_balls import Balls

class Log(Balls):
    pass

def listen(telemetry, name):
    Path(f"heard-{name}").touch()
"""
# The script of an installed package: what lies beside it is no module of the user.
BATON = f"#!{sys.executable}\nfrom scenarios.cli.entry import main\nmain()\n"


def process_ends(process: subprocess.Popen[str], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_healthy(server: dict[str, Any], process: subprocess.Popen[str]) -> None:
    give_up_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_s:
        try:
            if httpx.get(f"{server['rest_url']}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert not process_ends(process, 0.1), process.communicate()
    raise AssertionError(f"{server['name']} is not healthy")


def test_the_printed_command_finds_world_and_telemetry_handlers_of_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    baton = tmp_path / "bin" / "baton"
    baton.parent.mkdir()
    baton.write_text(BATON)
    baton.chmod(0o755)
    environment = os.environ | {"PATH": f"{baton.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    how: dict[str, Any] = {"cwd": tmp_path, "env": environment, "text": True, "process_group": 0}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    flags = ("--dir", "cluster", "--instances", "alpha:1", "--simservers", "1", "--timeout", "120")
    named = ("--world", "mine:Log", "--telemetry-handler", "mine:listen")

    with subprocess.Popen(("baton", "up", "--json", *flags, *named), **how, **pipes) as up:
        started: list[subprocess.Popen[str]] = []
        try:
            assert up.stdout is not None
            line = up.stdout.readline()
            assert line, up.communicate(timeout=DEADLINE_S)
            for server in json.loads(line)["servers"]:
                (tmp_path / f"heard-{server['name']}").unlink()
                witness = Witness(server["pid"])
                os.kill(server["pid"], signal.SIGKILL)
                assert witness.saw_it_end()
                witness.close()
                report = json.loads(up.stdout.readline())
                assert (report["event"], report["name"]) == ("crashed", server["name"])
                started.append(subprocess.Popen(("sh", "-c", f"exec {report['again']}"), **how | {"cwd": "/"}, **pipes))
                wait_healthy(server, started[-1])
                assert (tmp_path / f"heard-{server['name']}").exists()
        finally:
            for process in (*started, up):
                process.terminate()
                process.communicate(timeout=DEADLINE_S)
