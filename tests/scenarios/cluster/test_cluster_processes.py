"""Children are started, watched and ended; every test runs real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from batonpass.scenarios.cluster.processes import ChildCommand, ChildExit, ChildProcesses, RunningChild, SpawnError
from tests.scenarios.fakes import DEADLINE_S, ROOT, Witness, wait_until

OBEDIENT = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
SULKY = "import signal, sys; signal.signal(15, lambda *_: sys.exit(4)); print('up', flush=True); signal.pause()"


class Stage:
    """A scope of children, with what a test looks at: crashes, and who is up."""

    def __init__(self, scope: ChildProcesses, crashes: list[ChildExit], logs: Path) -> None:
        self.scope = scope
        self.crashes = crashes
        self._logs = logs

    def start(self, name: str, program: str, wave: int = 0) -> RunningChild:
        # -I -S: no site packages, so that a child is up in some 10 ms.
        argv = (sys.executable, "-I", "-S", "-c", program)
        return self.scope.start(ChildCommand(name, argv, self._logs / f"{name}.log", wave=wave))

    async def start_and_wait_up(self, name: str, program: str, wave: int = 0) -> RunningChild:
        child = self.start(name, program, wave)
        await wait_until(lambda: child.log_tail() == ("up",))
        return child


@asynccontextmanager
async def stage(logs: Path, grace_s: float = DEADLINE_S, impatient: trio.Event | None = None) -> AsyncIterator[Stage]:
    crashes: list[ChildExit] = []
    async with ChildProcesses.open(on_crash=crashes.append, grace_s=grace_s, impatient=impatient) as scope:
        yield Stage(scope, crashes, logs)


# ---- leaving the scope ----


async def test_leaving_the_scope_ends_every_child(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        children = [await on.start_and_wait_up(name, OBEDIENT) for name in ("a", "b", "c")]

    assert [child.exit and child.exit.returncode for child in children] == [0, 0, 0]
    assert on.crashes == []


async def test_an_exception_of_the_body_leaves_unwrapped_and_ends_every_child(tmp_path: Path) -> None:
    children = []

    async def start_and_fail() -> None:
        async with stage(tmp_path) as on:
            children.append(await on.start_and_wait_up("a", OBEDIENT))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await start_and_fail()
    assert [child.running for child in children] == [False]


async def test_cancellation_ends_every_child_in_peace(tmp_path: Path) -> None:
    child = None
    with trio.CancelScope() as life:
        async with stage(tmp_path) as on:
            child = await on.start_and_wait_up("a", OBEDIENT)
            life.cancel()
            await trio.sleep_forever()

    assert child is not None
    assert child.exit is not None
    assert child.exit.returncode == 0


async def test_a_paused_child_is_ended_in_peace_too(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        child = await on.start_and_wait_up("a", OBEDIENT)
        await child.pause()

    assert child.exit is not None
    assert child.exit.returncode == 0


async def test_higher_waves_are_gone_before_lower_ones_are_asked(tmp_path: Path) -> None:
    order = tmp_path / "order"
    record = (
        "import signal, sys\n"
        f"def leave(*_):\n    open({str(order)!r}, 'a').write(sys.argv[0] + NAME + '\\n'); sys.exit(0)\n"
        "signal.signal(15, leave); print('up', flush=True); signal.pause()"
    )
    async with stage(tmp_path) as on:
        for name, wave in (("home", 0), ("sim", 1), ("late-home", 0)):
            await on.start_and_wait_up(name, record.replace("sys.argv[0] + NAME", repr(name)), wave)

    first, *rest = order.read_text().split()
    assert first == "sim"
    assert set(rest) == {"home", "late-home"}


# ---- those that do not go in peace ----


async def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    async with stage(tmp_path, grace_s=0.05) as on:
        await on.start_and_wait_up("a", STUBBORN)
        unclean = await on.scope.stop_all()

    assert [(end.name, end.how) for end in unclean] == [("a", "SIGKILL")]
    assert on.crashes == []


async def test_impatience_cuts_the_grace_period_short(tmp_path: Path) -> None:
    impatient = trio.Event()
    async with stage(tmp_path, grace_s=10_000.0, impatient=impatient) as on:
        await on.start_and_wait_up("a", STUBBORN)
        impatient.set()
        unclean = await on.scope.stop_all()

    assert [end.how for end in unclean] == ["SIGKILL"]


async def test_a_child_that_stops_with_a_bad_status_is_reported(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.start_and_wait_up("a", SULKY)
        unclean = await on.scope.stop_all()

    assert [(end.name, end.how) for end in unclean] == [("a", "exit status 4")]


# ---- crashes ----


async def test_a_crash_is_reported_with_status_log_and_last_lines(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        steady = await on.start_and_wait_up("steady", OBEDIENT)
        end = await on.start("a", "print('one', flush=True); raise SystemExit('two')").wait()
        assert steady.running

    assert on.crashes == [end]
    assert end.how == "exit status 1"
    assert end.log_tail == ("one", "two")
    assert end.sentence == f'a (pid {end.pid}) ended with exit status 1, saying "two"; its log is {tmp_path / "a.log"}'
    assert end.report.endswith("\n    one\n    two")


async def test_of_what_a_child_says_at_last_the_critical_counts_most(tmp_path: Path) -> None:
    words = "2026-11-27T00:00:00Z CRITICAL tree: a stops", "2026-11-27T00:00:00Z INFO tree: not yet"
    async with stage(tmp_path) as on:
        end = await on.start("a", f"print({words[0]!r}); print({words[1]!r}); raise SystemExit(3)").wait()
    assert f'saying "{words[0]}"' in end.sentence


async def test_a_crash_by_a_signal_is_named_after_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        child = await on.start_and_wait_up("a", STUBBORN)
        os.kill(child.pid, signal.SIGKILL)
        end = await child.wait()

    assert end.how == "SIGKILL"
    assert on.crashes == [end]


async def test_a_kill_on_purpose_is_no_crash(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        child = await on.start_and_wait_up("a", OBEDIENT)
        child.kill()
        await child.wait()

    assert on.crashes == []


async def test_the_last_lines_are_those_of_this_run_and_bounded(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.start("a", "print('of the first run')").wait()
        again = await on.start("a", "print('x' * 100_000); [print(n) for n in range(100)]").wait()
        silent = await on.start("a", "").wait()

    assert again.log_tail == tuple(str(number) for number in range(88, 100))
    assert silent.log_tail == ()
    assert silent.report.endswith("(it wrote nothing)")


async def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        with pytest.raises(SpawnError, match=r"cannot start a \(/no/such/program\): No such file or directory"):
            on.scope.start(ChildCommand("a", ("/no/such/program",), tmp_path / "a.log"))


# ---- pausing ----


def state_of(child: RunningChild) -> str:
    """The letter that proc(5) gives to the state of a process: T stands still."""
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_paused_child_stands_still_until_it_is_resumed(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        child = await on.start_and_wait_up("a", OBEDIENT)
        for _ in range(3):
            await child.pause()
            assert state_of(child) == "T"
            child.resume()
            await wait_until(lambda: state_of(child) == "S")


async def test_signals_to_a_child_that_is_gone_do_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        child = on.start("a", "")
        await child.wait()
        child.kill()
        child.resume()
        await child.pause()


# ---- ties to the parent ----

TIED = "import batonpass.scenarios.cluster.subreaper as s, signal; s.die_with_parent(); print('up', flush=True)\n"


@contextmanager
def spawn_tied(program: str, stdin: int, stderr: int | None = None) -> Iterator["subprocess.Popen[str]"]:
    argv = (sys.executable, "-S", "-c", TIED + program)
    with subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT) as child:
        try:
            yield child
        finally:
            child.kill()  # lest a failing test waits for it


@pytest.fixture
def tied() -> Iterator["subprocess.Popen[str]"]:
    with spawn_tied("while True: signal.pause()", stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        yield child


def test_a_child_ends_when_its_parent_lets_go_of_the_pipe(tied: "subprocess.Popen[str]") -> None:
    assert tied.stdin is not None
    tied.stdin.close()

    assert tied.wait(DEADLINE_S) == -signal.SIGTERM


def test_a_child_whose_parent_let_go_before_it_looked_ends_at_once() -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    with spawn_tied("while True: signal.pause()", stdin=read_end) as child:
        os.close(read_end)
        assert child.wait(DEADLINE_S) == -signal.SIGTERM


def test_stdin_that_is_no_pipe_is_refused() -> None:
    with spawn_tied("", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        _, errors = child.communicate(timeout=DEADLINE_S)

    assert "leave it away when you start one by hand" in errors


def test_a_child_dies_with_the_parent_even_if_somebody_else_holds_the_pipe_open() -> None:
    middle = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen((sys.executable, '-S', '-c', {TIED + 'while True: signal.pause()'!r}))\n"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        (sys.executable, "-c", middle), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        lines.remove("up")
        witness = Witness(int(lines.pop()))
        os.kill(witness.pid, signal.SIGSTOP)
        parent.kill()

        assert witness.saw_it_end()
        witness.close()
