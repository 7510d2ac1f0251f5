"""Start child processes, notice when they end, and never leave one behind.

`ChildProcesses` is a scope: whatever was started in it is gone when it is left, on success, on error and on
cancellation. Children are signalled through pidfds, never by a bare number, so that a recycled pid is never hit.

Each child gets its own process group: a Ctrl-C in the terminal reaches only the parent, which then stops the children
in order. It gets a log file for its output, and a stdin pipe whose other end only the parent holds (see `orphans`).
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Protocol, Self

import trio

from batonpass.scenarios.cluster.fork_server import ForkServer, ForkServerFailed
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["BATON", "ChildCommand", "ChildExit", "ChildProcesses", "RunningChild", "SpawnError", "as_fork"]

BATON: Final = (sys.executable, "-m", "batonpass.scenarios.cli.main")
"""How `baton` is run in a process of its own."""

# Enough for a traceback's last frames and its message; the log file has the rest.
TAIL_LINES = 12
TAIL_BYTES = 16_384
MAX_LAST_WORD_CHARS = 300
# Why a server ends; what its parts say of that on their way out comes after it.
_CRITICAL = re.compile(r"^\S+ CRITICAL ")
# A stop signal takes effect when the target next leaves the kernel, where a busy disk can keep it for long. This bounds
# the polling for it.
PAUSE_TIMEOUT_S = 60.0
PAUSE_POLL_S = 0.002


class SpawnError(EnvironmentFailed):
    """A child process could not be started; the sentence names the program and the reason."""


@dataclass(frozen=True)
class ChildCommand:
    """What to start: a name for people, the program with its arguments, and where its output goes.

    `wave` orders the end: a higher wave is stopped, and gone, before a lower one is asked to stop.
    """

    name: str
    argv: Sequence[str]
    log_file: Path
    wave: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ChildExit:
    """How a child ended: `returncode` as subprocess counts it (negative: killed by that signal)."""

    name: str
    pid: int
    returncode: int
    log_file: Path
    log_tail: tuple[str, ...]

    @property
    def how(self) -> str:
        """`exit status 3`, or `SIGKILL`."""
        if self.returncode >= 0:
            return f"exit status {self.returncode}"
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def sentence(self) -> str:
        """One line that names the child, how it ended, its last word, and where to read on."""
        critical = [line for line in self.log_tail if _CRITICAL.match(line)] or self.log_tail
        last = f', saying "{critical[-1][:MAX_LAST_WORD_CHARS]}"' if critical else ""
        return f"{self.name} (pid {self.pid}) ended with {self.how}{last}; its log is {self.log_file}"

    @property
    def report(self) -> str:
        """How it ended, and the last lines of its log below it."""
        heading = f"{self.name} (pid {self.pid}) ended with {self.how}; the end of {self.log_file}:"
        return "\n".join([heading, *(f"    {line}" for line in self.log_tail or ("(it wrote nothing)",))])


def as_fork(argv: Sequence[str]) -> tuple[str | None, Sequence[str]] | None:
    """The network namespace (a file; None: ours) and the arguments for a fork in the place of this command.

    None if a fork cannot be that: it is not `BATON` that is run, in whatever network.
    """
    network = None
    if len(argv) > 2 and argv[0] == "nsenter" and argv[1].startswith("--net="):
        network, argv = argv[1].removeprefix("--net="), argv[2:]
    return (network, argv[len(BATON) :]) if tuple(argv[: len(BATON)]) == BATON else None


class _Popen(Protocol):
    """What is needed of `subprocess.Popen`, or of a fork."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[bytes] | None: ...

    def wait(self) -> int: ...


def _spawned(command: ChildCommand, log: IO[bytes]) -> _Popen:
    # Not trio's open_process, which forks in a worker thread. The parent-death signal that the child asks for is bound
    # to the *thread*: the child would be killed when the idle worker retires.
    try:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **command.environment},
            process_group=0,
        )
    except OSError as error:
        raise SpawnError(f"cannot start {command.name} ({command.argv[0]}): {error.strerror}") from error


class _Forked:
    """A process that a fork server made."""

    def __init__(self, command: ChildCommand, log: IO[bytes], forks: ForkServer) -> None:
        self._forks = forks
        stdin, ours = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(ours, "wb")
        fork = as_fork(command.argv)
        assert fork is not None, "see `ChildProcesses.start`"  # noqa: S101
        network, arguments = fork
        environment = {**os.environ, **command.environment}
        try:
            self.pid = forks.fork(command.name, arguments, environment, (stdin, log.fileno()), network)
        except BaseException:
            self.stdin.close()
            raise
        finally:
            os.close(stdin)

    def wait(self) -> int:
        """How it ended; it has."""
        try:
            return self._forks.reap(self.pid)
        except ForkServerFailed:
            # Nobody can be asked any more, and that is how it ended: with its parent (`scenarios.cluster.subreaper`).
            return -signal.SIGKILL


class RunningChild:
    """One running (or ended) child process. Made by `ChildProcesses.start`."""

    def __init__(self, command: ChildCommand, forks: ForkServer | None) -> None:
        self.command = command
        self.name = command.name
        self.stop_requested = False
        """True once its end was asked for: what follows is then no crash."""
        self._exit: ChildExit | None = None
        self._exited = trio.Event()
        command.log_file.parent.mkdir(parents=True, exist_ok=True)
        with command.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = _spawned(command, log) if forks is None else _Forked(command, log, forks)
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def exit(self) -> ChildExit | None:
        """How it ended, or None while it runs."""
        return self._exit

    @property
    def running(self) -> bool:
        """Whether the process is there (paused counts)."""
        return self._exit is None

    async def wait(self) -> ChildExit:
        """Wait until the process has ended."""
        await self._exited.wait()
        assert self._exit is not None  # noqa: S101 - the event is set after the value, by _watch alone
        return self._exit

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def request_stop(self) -> None:
        """Ask for an orderly end: SIGTERM, and SIGCONT so that a paused process can obey."""
        self.stop_requested = True
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once with SIGKILL, without a chance to clean up."""
        self.stop_requested = True
        self.signal(signal.SIGKILL)

    async def pause(self) -> None:
        """Stop its execution (SIGSTOP), as a long garbage collection or a frozen machine would; returns once it stands.

        Raises:
            trio.TooSlowError: the kernel did not stop it within a minute.
        """
        self.signal(signal.SIGSTOP)
        with trio.fail_after(PAUSE_TIMEOUT_S):
            while True:
                if not self.running or self._stands():
                    return
                await trio.sleep(PAUSE_POLL_S)

    def resume(self) -> None:
        """Let a paused process run on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def log_tail(self) -> tuple[str, ...]:
        """The last lines that this run of the process wrote, at most `TAIL_LINES`."""
        with self.command.log_file.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = log.read(TAIL_BYTES).decode(errors="backslashreplace")
        return tuple(text.splitlines()[-TAIL_LINES:])

    def _stands(self) -> bool:
        """Whether each of its threads does, or it is gone. See proc(5): the state comes behind the name in brackets."""
        try:
            states = [path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except (FileNotFoundError, ProcessLookupError):
            return not self.running
        return all(state in "TtZX" for state in states)

    async def _watch(self, on_crash: Callable[[ChildExit], None]) -> None:
        # Shielded: the scope guarantees the end of every child, also when it is left by cancellation.
        with trio.CancelScope(shield=True):
            await trio.lowlevel.wait_readable(self._pidfd)
        returncode = self._process.wait()
        os.close(self._pidfd)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._exit = ChildExit(self.name, self.pid, returncode, self.command.log_file, self.log_tail())
        self._exited.set()
        if not self.stop_requested:
            on_crash(self._exit)


class ChildProcesses:
    """The children of one scope, in the order in which they were started.

    Args:
        on_crash: told about each child that ended without being asked to, and how. Must not raise.
        grace_s: how long a child has between SIGTERM and SIGKILL.
        impatient: once set, no server gets that time any more.
    """

    def __init__(
        self, nursery: trio.Nursery, *, on_crash: Callable[[ChildExit], None], grace_s: float, impatient: trio.Event
    ) -> None:
        self._nursery = nursery
        self._on_crash = on_crash
        self._grace_s = grace_s
        self._impatient = impatient
        self._children: list[RunningChild] = []

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        on_crash: Callable[[ChildExit], None],
        grace_s: float = 10.0,
        impatient: trio.Event | None = None,
    ) -> AsyncIterator[Self]:
        """A scope for children; leaving it stops them all and waits until they are gone.

        An exception of the body leaves as it is, not wrapped in a group.
        """
        raised: BaseException | None = None
        async with trio.open_nursery() as nursery:
            never = trio.Event()
            scope = cls(
                nursery, on_crash=on_crash, grace_s=grace_s, impatient=never if impatient is None else impatient
            )
            try:
                yield scope
            except BaseException as error:
                # Carried around the nursery, which would wrap it; watchers never raise, so nothing else can get lost.
                raised = error
            finally:
                with trio.CancelScope(shield=True):
                    await scope.stop_all()
        if raised is not None:
            raise raised

    def start(self, command: ChildCommand, forks: ForkServer | None = None) -> RunningChild:
        """Start a child. Its output is appended to its log file.

        Args:
            command: what to run.
            forks: if given, whom to ask for a fork; `command.argv` is then something that `as_fork` knows.

        Raises:
            SpawnError: the program cannot be run.
            ForkServerFailed: there is no fork to be had.
        """
        child = RunningChild(command, forks)
        self._children.append(child)
        self._nursery.start_soon(child._watch, self._on_crash, name=f"watch {command.name}")
        return child

    async def stop_all(self) -> list[ChildExit]:
        """Stop the highest wave, then the next, each in reverse order of start.

        Returns:
            How those ended that did not go in peace: killed after the grace period, or with a bad exit status.
        """
        unclean: list[ChildExit] = []
        for wave in sorted({child.command.wave for child in self._children}, reverse=True):
            unclean += await self.stop(*(child for child in self._children if child.command.wave == wave))
        return unclean

    async def stop(self, *children: RunningChild) -> list[ChildExit]:
        """Stop some children: SIGTERM in reverse order, the grace period for all of them together, then SIGKILL.

        Returns:
            How those ended that did not go in peace.
        """
        asked = [child for child in reversed(children) if child.running]
        for child in asked:
            child.request_stop()
        with trio.move_on_after(self._grace_s):
            await self._gone_or_impatient(asked)
        for child in asked:
            child.kill()
        exits = [await child.wait() for child in asked]
        return [end for end in exits if end.returncode not in (0, -signal.SIGTERM)]

    async def _gone_or_impatient(self, children: Sequence[RunningChild]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_impatient, nursery.cancel_scope)
            for child in children:
                await child.wait()
            nursery.cancel_scope.cancel()

    async def _cancel_when_impatient(self, waiting: trio.CancelScope) -> None:
        await self._impatient.wait()
        waiting.cancel()
