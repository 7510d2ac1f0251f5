"""Erlang/OTP itself, where it is installed: messages, machines, groups, a pool, starts, on one scheduler a node.

The same work by `gen_server`, `gen_statem`, `pg`, `supervisor` and poolboy, in their own language on their own machine.
A Python program could not be as fast; people who come from there are used to it. The nodes of `groups-3` find each
other by an epmd of their own, on loopback, which ends with them.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batonpass.scenarios.bench.loops import arguments, tell

_PROGRAM: Final = Path(__file__).with_name("bench_actors.erl")


def measure(work: str, seconds: float) -> float:
    """What the program prints for one piece of work. Ends the program if there is no Erlang."""
    erl = _need("erl")
    with tempfile.TemporaryDirectory() as folder, _names(work == "groups-3") as (options, environment):
        task = f'{{ok, M}} = compile:file("{_PROGRAM}", [{{outdir, "{folder}"}}]), M:main({work!r}, {seconds}), halt().'
        command = [erl, "-noshell", "+S", "1", *options, "-pa", folder, "-eval", task]
        done = subprocess.run(command, capture_output=True, check=False, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(done.stderr or done.stdout)
    return float(done.stdout.splitlines()[-1])


def _need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        sys.exit(f"there is no `{program}` on this machine: apt-get install erlang-base erlang-poolboy")
    return found


@contextmanager
def _names(several: bool) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The options and the environment of a node; if there are `several`, of one that others can find."""
    if not several:
        yield [], dict(os.environ)
        return
    environment = {**os.environ, "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(_free_port())}
    options = ["-sname", "bench_one@localhost", "-setcookie", secrets.token_hex(16)]
    with subprocess.Popen([_need("epmd")], env=environment, stdout=subprocess.DEVNULL) as epmd:
        try:
            yield [*options, "-kernel", "inet_dist_use_interface", "{127,0,0,1}"], environment
        finally:
            epmd.kill()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


if __name__ == "__main__":
    todo, duration_s = arguments("batonpass")
    tell(measure(todo, duration_s))
