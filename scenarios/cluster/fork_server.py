"""Servers that begin where the imports are done: forked from one process that has imported them.

Importing what a server is made of takes 1.2 s of processor time, making the document of its API 0.3 s, a fork 10 ms. A
local cluster of 18 servers on two cores is up after two seconds instead of twelve. The forks are processes like any
other, with a log, a standard input and a process group of their own. Only their command line, as `ps` shows it, is that
of the process which they come from; `comm` is their own name.

The fork server is their parent, and so it is the one who can ask how they ended. It takes part in the arrangement of
`scenarios.cluster.subreaper`: it dies with its starter, and those that it has forked die with it. If its starter
only lets go of it, it waits until they have ended by themselves.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, Final, NoReturn, Self

import trio

from batonpass.scenarios.cluster.subreaper import kill_me_when_parent_thread_ends
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["ForkServer", "ForkServerFailed", "prepare"]

# What servers import, also the parts that the command line imports only when it needs them.
_PRELOADED: Final = (
    "batonpass.homeserver.server.main",
    "batonpass.homeserver.server.relay",
    "batonpass.simserver.server.main",
    "batonpass.scenarios.cli.main",
)
# Their APIs, whose OpenAPI documents are the same whichever server they serve, and what each is given of one.
_APPS: Final = (
    ("batonpass.homeserver.rest.api", "make_app", 1),
    ("batonpass.simserver.server.http_status", "make_status_app", 3),
)
# A request or an answer: one packet, far above the environment and the arguments of any server.
_MAX_PACKET_BYTES: Final = 512 * 1024
# <linux/prctl.h>; the kernel keeps 15 bytes of a name.
_PR_SET_NAME: Final = 15
# <linux/sched.h>
_CLONE_NEWNET: Final = 0x40000000
_READY: Final = {"ready": True}
_JOIN: Final = {"join": True}


class ForkServerFailed(EnvironmentFailed):
    """The process from which servers are forked did not start, or is gone; the sentence says why."""


class ForkServer:
    """A process that forks `baton` with given arguments. Made by `ForkServer.open` or `ForkServer.start`."""

    _shared: ClassVar["_Shared | None"] = None

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control

    @classmethod
    @contextmanager
    def shared(cls, *, at_once: bool = False) -> Iterator[None]:
        """Have the clusters that this process starts meanwhile share one, which is started for the first of them.

        For tests, which start many: each is spared the processor time of the imports. One that is to be used by other
        threads than the main one is started there, `at_once`.
        """
        before, cls._shared = cls._shared, _Shared()
        try:
            if at_once:
                cls._shared.server()
            yield
        finally:
            shared, cls._shared = cls._shared, before
            shared.let_go()

    @classmethod
    @asynccontextmanager
    async def open(cls, environment: Mapping[str, str]) -> AsyncIterator[Self]:
        """Start one, and let go of it in the end: by then, what was forked should be gone. Or join one that is shared.

        Raises:
            ForkServerFailed: it cannot import what it forks.
        """
        shared = None if cls._shared is None else cls._shared.server()
        if shared is not None:
            server = cls(shared._process, shared._joined())
            with server._control:
                await server.ready()
                yield server
            return
        server = cls.start(environment)
        try:
            await server.ready()
            yield server
        except BaseException:
            server._process.kill()
            raise
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(server.let_go)

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> Self:
        """Start one that lasts until it is let go of; it can fork when it is `ready`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                (sys.executable, "-m", "batonpass.scenarios.cluster.fork_server", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **environment},
                process_group=0,
            )
        return cls(process, ours)

    async def ready(self) -> None:
        """Wait until it can fork. Once after `start`.

        Raises:
            ForkServerFailed: it cannot import what it forks.
        """
        await trio.lowlevel.wait_readable(self._control)
        self._answer()

    @property
    def running(self) -> bool:
        """Whether it is still there."""
        return self._process.poll() is None

    def let_go(self, within_s: float | None = None) -> None:
        """Ask nothing any more, and wait until all that it forked have ended; end them if that takes longer. Blocks."""
        self._control.close()
        try:
            self._process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def fork(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        fds: tuple[int, int],
        network: str | None = None,
    ) -> int:
        """Start `baton` with these arguments, and what to read from and to write to; its process id.

        With `network`, in that network namespace: what `nsenter --net` takes.

        Raises:
            ForkServerFailed: there is no other process to be had.
        """
        request = {
            "fork": name,
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": os.getcwd(),
            "network": network,
        }
        return int(self._ask(request, fds)["pid"])

    def reap(self, pid: int) -> int:
        """How a forked process ended, as `subprocess` counts it (negative: by that signal). It must have ended."""
        return int(self._ask({"reap": pid})["returncode"])

    def _joined(self) -> socket.socket:
        """Another connection to the same process, which says when it can be asked."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._send(_JOIN, (theirs.fileno(),))
        return ours

    def _ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        self._send(request, fds)
        return self._answer()

    def _send(self, request: dict[str, Any], fds: tuple[int, ...]) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        except OSError as error:
            raise ForkServerFailed(f"the process from which servers are forked is gone: {error.strerror}") from error

    def _answer(self) -> dict[str, Any]:
        packet = self._control.recv(_MAX_PACKET_BYTES)
        if not packet:
            last = (self._process.stderr.read().decode(errors="replace").strip() if self._process.stderr else "") or "-"
            raise ForkServerFailed(f"the process from which servers are forked ended: {last.splitlines()[-1]}")
        answer: dict[str, Any] = json.loads(packet)
        if "error" in answer:
            raise ForkServerFailed(f"cannot fork another server: {answer['error']}")
        return answer


class _Shared:
    """One fork server for many clusters; see `ForkServer.shared`."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def server(self) -> ForkServer | None:
        """It, or another one if it is gone. None where it would have to be started in a thread, and end with that."""
        if (self._server is None or not self._server.running) and _is_main_thread():
            self.let_go()
            self._server = ForkServer.start({})
        return self._server if self._server is not None and self._server.running else None

    def let_go(self) -> None:
        if self._server is not None:
            self._server.let_go()


def _is_main_thread() -> bool:
    return os.readlink("/proc/thread-self").endswith(f"/{os.getpid()}")


# ---- in the process itself ----


class _Nobody:
    """Stands for the node of an app that is never served: it has whatever its routes ask of it while they are made."""

    def __getattr__(self, _: str) -> Self:
        return self


def prepare() -> None:
    """Import what servers import, and make what each of them would make again: their documents, their trust."""
    for module in _PRELOADED:
        importlib.import_module(module)
    for module, maker, given in _APPS:
        getattr(importlib.import_module(module), maker)(*[_Nobody()] * given)
    importlib.import_module("batonpass.actors.http.client").trusted_authorities()


def _serve(first: socket.socket) -> dict[str, Any] | None:
    """Fork, and say how forks ended, until nobody asks any more. Returns in a fork: what it was asked to be."""
    controls = [first]
    while controls:
        for control in select.select(controls, [], [])[0]:
            packet, fds, _, _ = socket.recv_fds(control, _MAX_PACKET_BYTES, 2)
            if not packet:
                controls.remove(control)
                control.close()
                continue
            request: dict[str, Any] = json.loads(packet)
            if request == _JOIN:
                controls.append(socket.socket(fileno=fds[0]))
                controls[-1].send(json.dumps(_READY).encode())
                continue
            answer: dict[str, Any]
            try:
                if "reap" in request:
                    answer = {"returncode": os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])}
                else:
                    pid = os.fork()
                    if pid == 0:
                        for each in controls:
                            each.close()
                        _take_place(request, *fds)
                        return request
                    answer = {"pid": pid}
            except OSError as error:
                answer = {"error": error.strerror}
            finally:
                for fd in fds:
                    os.close(fd)
            with contextlib.suppress(OSError):
                control.send(json.dumps(answer).encode())
    return None


def _take_place(request: Mapping[str, Any], stdin: int, output: int) -> None:
    """Become what was asked for, as far as the kernel is concerned."""
    os.setpgid(0, 0)
    os.dup2(stdin, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    # As Python does when it begins, with what it was begun with here.
    os.chdir(request["directory"])
    if not sys.flags.safe_path:
        sys.path[0] = request["directory"]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[1:1] = paths
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, str(request["fork"]).encode()[:15], 0, 0, 0)
    if request["network"] is not None:
        with open(request["network"], "rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                sys.exit(f"cannot enter the network {request['network']}: {os.strerror(ctypes.get_errno())}")


def _wait_for_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def main() -> NoReturn:
    """Import, fork what is asked for, and wait for it; in a fork: be `baton`."""
    kill_me_when_parent_thread_ends()
    control = socket.socket(fileno=int(sys.argv[1]))
    prepare()
    # So that a collection in a fork neither looks at what was imported nor copies its pages.
    gc.collect()
    gc.freeze()
    control.send(json.dumps(_READY).encode())
    request = _serve(control)
    if request is None:
        _wait_for_all()
        sys.exit(0)
    sys.argv = ["baton", *request["arguments"]]
    sys.exit(importlib.import_module("batonpass.scenarios.cli.main").run_command(request["arguments"]))


if __name__ == "__main__":
    main()
