"""SIGTERM of a command of `baton`: everything that it has started and made is gone, as it is after Ctrl-C."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batonpass.scenarios.cli import server_commands
from batonpass.scenarios.common import ending

# A command that has a directory and a child process of its own, and waits for ever: in trio, or not.
PROGRAM = """
import contextlib, subprocess, sys, tempfile, time
import trio
from batonpass.scenarios.cli import main

@contextlib.contextmanager
def things():
    with tempfile.TemporaryDirectory() as place, subprocess.Popen(("sleep", "600")) as child:
        try:
            yield place, child.pid
        finally:
            child.kill()

async def in_trio():
    with things() as made:
        print(*made, flush=True)
        await trio.sleep_forever()

@main.cli.command()
def trio_waits():
    trio.run(in_trio)

@main.cli.command()
def waits():
    # A signal between the end of `__enter__` and this block would find no `__exit__` to call, in any program of Python.
    with things() as made:
        print(*made, flush=True)
        time.sleep(600)

main.main()
"""


# A shell without job control, as in a script, has what it runs in the background ignore SIGINT.
@pytest.mark.parametrize(
    ("command", "number", "sigint"),
    [
        ("trio-waits", signal.SIGTERM, signal.SIG_DFL),
        ("trio-waits", signal.SIGTERM, signal.SIG_IGN),
        ("waits", signal.SIGTERM, signal.SIG_IGN),
        ("trio-waits", signal.SIGINT, signal.SIG_DFL),
    ],
)
def test_a_command_cleans_up_and_its_status_says_which_signal_it_was(
    command: str, number: signal.Signals, sigint: signal.Handlers
) -> None:
    before = signal.signal(signal.SIGINT, sigint)  # which a child inherits
    try:
        started = subprocess.Popen(
            (sys.executable, "-c", PROGRAM, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with started as process:
        assert process.stdout is not None
        place, child = process.stdout.readline().split()
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert said.strip() == ("baton: ended by SIGTERM" if number == signal.SIGTERM else "baton: interrupted")
    assert not Path(place).exists()
    assert not Path(f"/proc/{child}").exists()


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Have the signals of this process as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.usefixtures("own_signals")
def test_a_server_has_its_own_way_with_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ending.end_as_ctrl_c_does()
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    with server_commands._starting({"parent_pipe": False}):  # what every server begins with
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("own_signals")
def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ending.end_as_ctrl_c_does()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


WORKER = """
import subprocess, sys, time
from batonpass.scenarios.bench.loops import arguments

arguments("batonpass")
with subprocess.Popen(("sleep", "600")) as child:
    try:
        print(child.pid, flush=True)
        time.sleep(600)
    finally:
        child.kill()
"""


def test_a_worker_of_a_bench_ends_what_it_has_started() -> None:
    argv = (sys.executable, "-c", WORKER, "some-work", "1")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        assert worker.stdout is not None
        child = worker.stdout.readline().strip()
        worker.terminate()
        worker.communicate(timeout=60)
    assert not Path(f"/proc/{child}").exists()
