"""A `baton` that begins where the imports are done: forked from this process, which has imported them.

A command in a process of its own takes 1.5 s of processor time for its imports, a fork some 20 ms. What is forked has
the arguments, the environment, the directory and the three streams of the program that asks for it. That program stands
on the `PATH` of a shell as `baton`, and ends as the command ends. SIGTERM to it is Ctrl-C to the command.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from batonpass.scenarios.cli import main as cli
from batonpass.scenarios.cluster.subreaper import kill_me_when_parent_thread_ends
from tests.scenarios.asked import PATIENCE_S

__all__ = ["asking_program"]

# What the commands import when they run.
_PRELOADED: Final = (
    "anyio._backends._trio",
    "batonpass.scenarios.cli.backups",
    "batonpass.scenarios.cli.expected_errors",
    "batonpass.scenarios.cli.up_command",
    "batonpass.scenarios.keys.commands",
    "batonpass.scenarios.remote.doctor",
    "batonpass.scenarios.remote.entities",
    "batonpass.scenarios.remote.invite",
    "batonpass.scenarios.remote.observe",
    "batonpass.scenarios.remote.play",
    "batonpass.scenarios.remote.players",
    "batonpass.scenarios.remote.put_aside",
    "certifi",
    "encodings.idna",
    "httpcore",
)
_MAX_PACKET_BYTES: Final = 512 * 1024
_NUMBER_BYTES: Final = 16
_DEFAULT_OF: Final = click.Option.get_default
_ASKS: Final = """\
#!{python} -IS
import json, os, signal, socket, sys
asks = socket.socket(socket.AF_UNIX)
asks.connect({address!r})
wanted = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}}
socket.send_fds(asks, [json.dumps(wanted).encode()], [0, 1, 2])
command = int(asks.recv({number_bytes}))
signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGINT))
sys.exit(int(asks.recv({number_bytes}) or 70))
"""


def asking_program(address: Path) -> str:
    """The text of the program that asks the process which listens at `address`."""
    return _ASKS.format(python=sys.executable, address=str(address), number_bytes=_NUMBER_BYTES)


def _default_of(option: click.Option, ctx: click.Context, call: bool = True) -> Any:
    """A machine that has much else to do takes a minute for what takes a second on others."""
    return PATIENCE_S if option.name == "timeout_s" else _DEFAULT_OF(option, ctx, call)


def _run(wanted: dict[str, Any], fds: list[int]) -> int:
    """Run the command that is wanted, in a fork; its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
        os.close(fd)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["directory"])
    sys.argv = ["baton", *wanted["arguments"]]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)


def main() -> NoReturn:
    """Fork what is asked for, until the parent ends."""
    kill_me_when_parent_thread_ends()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    for module in _PRELOADED:
        importlib.import_module(module)
    click.Option.get_default = _default_of  # type: ignore[method-assign, assignment]
    gc.collect()
    gc.freeze()
    # Nobody waits for what is forked: it says itself how it ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        asks, _ = listener.accept()
        packet, fds, _, _ = socket.recv_fds(asks, _MAX_PACKET_BYTES, 3)
        if os.fork() == 0:
            kill_me_when_parent_thread_ends()
            listener.close()
            asks.send(f"{os.getpid():<{_NUMBER_BYTES}}".encode())
            status = _run(json.loads(packet), fds)
            sys.stdout.flush()
            asks.send(str(status).encode())
            os._exit(status)
        asks.close()
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    main()
