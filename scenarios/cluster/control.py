"""Asking a running `baton up` for another simulation server, or to let one go: a socket in its directory.

A user who may enter the cluster's directory (0700) may ask; no other can. A request is one JSON line, and so is its
answer: `{"do": "add", "instance": "alpha"}`, `{"do": "remove", "server": "alpha.s3"}` are answered with
`{"server": {…}}`, or with `{"error": "…"}`. `{"do": "look", "instance": "alpha"}` is answered with the URLs of its
`homeservers`. One request is dealt with at a time.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

import trio

from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import BadSpec
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused

__all__ = ["ask_cluster", "serve_control"]

_SOCKET: Final = "control"
_MAX_LINE_BYTES: Final = 4096
_REQUEST_TIMEOUT_S: Final = 5.0


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's address: a socket's path has 108 bytes at most, and a directory may be deep."""
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{_SOCKET}"
    finally:
        os.close(folder)


@contextmanager
def _listening(address: str) -> Iterator[trio.socket.SocketType]:
    # The lock on the directory is ours: whatever is there is left over.
    with suppress(FileNotFoundError):
        os.unlink(address)
    with socket.socket(socket.AF_UNIX) as plain:
        # Before it is trio's, which would leave this to a thread.
        plain.bind(address)
        plain.listen()
        with trio.socket.from_stdlib_socket(plain) as listener:
            yield listener


async def serve_control(
    cluster: LocalCluster, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> NoReturn:
    """Take requests until cancelled; started when they can be made."""
    with _address(cluster.directory) as address, _listening(address) as listener:
        task_status.started()
        turn = trio.Lock()
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    connection, _ = await listener.accept()
                    nursery.start_soon(_take, cluster, trio.SocketStream(connection), turn)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(address)


async def _take(cluster: LocalCluster, stream: trio.SocketStream, turn: trio.Lock) -> None:
    async with stream:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            line = await _line(stream)
            if line is not None:
                async with turn:
                    answer = await _answer(cluster, line)
                await stream.send_all(json.dumps(answer, default=str).encode() + b"\n")


async def _line(stream: trio.SocketStream) -> bytes | None:
    line = b""
    with trio.move_on_after(_REQUEST_TIMEOUT_S):
        while not line.endswith(b"\n"):
            piece = await stream.receive_some(_MAX_LINE_BYTES)
            line += piece
            if not piece or len(line) > _MAX_LINE_BYTES:
                return None
        return line
    return None


async def _answer(cluster: LocalCluster, line: bytes) -> dict[str, Any]:
    try:
        match json.loads(line):
            case {"do": "add", "instance": str(instance)}:
                return {"server": asdict(await cluster.add_simserver(instance))}
            case {"do": "look", "instance": str(instance)}:
                return {"server": {"homeservers": cluster.homeserver_urls()[_of(cluster, f"{instance}.")]}}
            case {"do": "remove", "server": str(name)} if cluster.has_removed(name):
                return {"server": {"name": name, "was_removed": True}}
            case {"do": "remove", "server": str(name)}:
                found = asdict(cluster.server(name)) if name in cluster.spec.simserver_names(_of(cluster, name)) else {}
                await cluster.remove_simserver(name)
                return {"server": found}
            case _:
                return {"error": "a request is to add to an instance, or to remove a server"}
    except BadSpec as error:
        return {"refused": str(error)}
    except (EnvironmentFailed, ValueError) as error:
        return {"error": str(error)}


def _of(cluster: LocalCluster, name: str) -> str:
    instance = name.partition(".")[0]
    if instance not in cluster.spec.instances:
        raise BadSpec(f"there is no instance {instance!r} in this cluster")
    return instance


def ask_cluster(directory: Path, request: dict[str, str], timeout_s: float) -> dict[str, Any]:
    """Ask the `baton up` that runs in `directory`; the server that it is about.

    Raises:
        RemoteRefused: it makes no sense there.
        EnvironmentFailed: no `baton up` runs there, it does not answer, or it could not do it.
    """
    try:
        with _address(directory) as address, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline() or b"{}")
    except TimeoutError as error:
        text = f"the `baton up` in {directory} did not do it in {timeout_s:g} s, and goes on; give a longer --timeout"
        raise EnvironmentFailed(text) from error
    except (OSError, ValueError) as error:
        text = f"no `baton up` answers in {directory} ({error}); is it running, with --dir?"
        raise EnvironmentFailed(text) from error
    if "refused" in answer:
        raise RemoteRefused("bad_request", answer["refused"])
    if "server" not in answer:
        raise EnvironmentFailed(answer.get("error", f"the `baton up` in {directory} gave up"))
    found: dict[str, Any] = answer["server"]
    return found
