"""A member of an instance in a process of its own, and the Unix socket through which a run's clients reach it.

`python -m batonpass.scenarios.chaos.member CONFIG.json` runs it. Both ends of the socket belong to one run, in a
directory that only its user can enter. Requests and replies are lines of JSON. A request has a number, an operation and
arguments; its reply has the same number and either a `value` or an `error` with a stable code.

| operation | answers |
|---|---|
| `submit` | the value of a procedure, submitted under the caller's command id |
| `read` | the value at a path after a read barrier, or None |
| `status` | name of the leader, whether it is this one, term, applied index |
| `dump` | every value below the root of the run, and the digest of the tree, when an index is applied |
| `add_member`, `remove_member`, `replace_member`, `transfer_leadership` | as the methods of `Replica` |
| `die_in_sync` | nothing: the member dies in one of its next syncs (see `tearing`) |

It ends when its parent does (see `scenarios.cluster.subreaper`), and with status 3 and one sentence when the member
cannot run.
"""

import json
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.chaos.tearing import AccountingDisk
from batonpass.scenarios.cluster.subreaper import die_with_parent
from batonpass.tree import (
    Aborted,
    ChangeNotFinished,
    ChangeRefused,
    Member,
    NoQuorum,
    OutcomeUnknown,
    Procedure,
    Replica,
    ReplicaConfig,
    Transaction,
)

__all__ = ["CANNOT_RUN", "PROCEDURES", "ROOT_NAME", "ChaosMemberConfig", "main"]

log = logging.getLogger(__name__)

CANNOT_RUN: Final = 3
ROOT_NAME: Final = "chaos"
INSTANCE: Final = "chaos"
# A member that is killed now and then should also install snapshots, so the log is kept short.
_COMPACT_AFTER_ENTRIES: Final = 2_000
_MAX_LINE_BYTES: Final = 65_536


@dataclass(frozen=True)
class ChaosMemberConfig:
    """What a member process is started with; as JSON in its configuration file."""

    name: str
    members: tuple[tuple[str, str, int], ...]
    directory: str
    secret_hex: str
    socket: str
    account: str
    join: bool

    def save(self, path: Path) -> None:
        """Write the configuration file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> "ChaosMemberConfig":
        """Read what `save` wrote."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return ChaosMemberConfig(**{**data, "members": tuple(tuple(member) for member in data["members"])})

    def replica_config(self) -> ReplicaConfig:
        """The same for the replica."""
        return ReplicaConfig(
            kind="homeserver",
            instance=INSTANCE,
            name=self.name,
            members=tuple(Member(*member) for member in self.members),
            directory=Path(self.directory),
            secret=bytes.fromhex(self.secret_hex),
            join=self.join,
            compact_after_entries=_COMPACT_AFTER_ENTRIES,
        )


# --- procedures: the same on all members ---


def _write(transaction: Transaction, args: Any) -> None:
    transaction.put(tuple(args["path"]), args["value"])


def _swap(transaction: Transaction, args: Any) -> bool:
    """Write `value` if `expected` is there; whether it was."""
    path = tuple(args["path"])
    if transaction.get_or(path, None) != args["expected"]:
        return False
    transaction.put(path, args["value"])
    return True


def _append(transaction: Transaction, args: Any) -> str:
    """Deliberately not idempotent, as `_add`: a command applied twice shows in every later answer."""
    path = tuple(args["path"])
    longer: str = (transaction.get_or(path, None) or "") + args["value"]
    transaction.put(path, longer)
    return longer


def _add(transaction: Transaction, args: Any) -> int:
    path = tuple(args["path"])
    count: int = transaction.get_or(path, 0) + 1
    transaction.put(path, count)
    return count


PROCEDURES: Final[dict[str, Procedure]] = {
    "chaos.write": _write,
    "chaos.swap": _swap,
    "chaos.append": _append,
    "chaos.add": _add,
}


# --- requests ---


@dataclass(frozen=True)
class _Serving:
    """What requests are answered from."""

    replica: Replica
    disk: AccountingDisk


async def _submit(serving: _Serving, request: dict[str, Any]) -> Any:
    client, number = request["command_id"]
    return await serving.replica.submit(
        request["procedure"], request["args"], timeout_s=request["timeout_s"], command_id=(client, number)
    )


async def _read(serving: _Serving, request: dict[str, Any]) -> Any:
    await serving.replica.read_barrier(request["timeout_s"])
    return serving.replica.store.get_or(tuple(request["path"]), None)


async def _status(serving: _Serving, _request: dict[str, Any]) -> Any:
    status = serving.replica.status
    return {
        "leader": status.leader,
        "is_leader": status.is_leader,
        "ready": status.ready,
        "term": status.term,
        "applied": status.applied_index,
    }


async def _dump(serving: _Serving, request: dict[str, Any]) -> Any:
    applied = await serving.replica.wait_applied(request["index"])
    store, root = serving.replica.store, (ROOT_NAME,)
    digest = store.digest().hex()
    values = {
        f"{group}/{key}": store.get_or((*root, group, key), None)
        for group in store.children(root)
        for key in store.children((*root, group))
    }
    return {"applied": applied, "digest": digest, "values": values}


async def _die_in_sync(serving: _Serving, request: dict[str, Any]) -> Any:
    serving.disk.die_in_sync(request["number_of_sync"])


async def _add_member(serving: _Serving, request: dict[str, Any]) -> Any:
    await serving.replica.add_member(Member(*request["member"]), timeout_s=request["timeout_s"])


async def _remove_member(serving: _Serving, request: dict[str, Any]) -> Any:
    await serving.replica.remove_member(request["whom"], timeout_s=request["timeout_s"])


async def _replace_member(serving: _Serving, request: dict[str, Any]) -> Any:
    new = Member(*request["member"])
    await serving.replica.replace_member(request["whom"], new, timeout_s=request["timeout_s"])


async def _transfer_leadership(serving: _Serving, request: dict[str, Any]) -> Any:
    return await serving.replica.transfer_leadership(request["whom"], timeout_s=request["timeout_s"])


_OPERATIONS: Final[dict[str, Callable[[_Serving, dict[str, Any]], Awaitable[Any]]]] = {
    "submit": _submit,
    "read": _read,
    "status": _status,
    "dump": _dump,
    "die_in_sync": _die_in_sync,
    "add_member": _add_member,
    "remove_member": _remove_member,
    "replace_member": _replace_member,
    "transfer_leadership": _transfer_leadership,
}


async def _reply_to(serving: _Serving, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": await _OPERATIONS[request["op"]](serving, request)}
    except NoQuorum:
        return {"error": "no_quorum"}
    except OutcomeUnknown:
        return {"error": "outcome_unknown"}
    except (ChangeRefused, ChangeNotFinished) as error:
        return {"error": error.code, "message": str(error)}
    except Aborted as aborted:
        return {"error": "aborted", "message": str(aborted)}


async def _converse(serving: _Serving, stream: trio.SocketStream) -> None:
    """Serve one connection; each request has a task of its own, so a slow one holds up no other."""
    sending = trio.Lock()

    async def answer(request: dict[str, Any]) -> None:
        reply = await _reply_to(serving, request)
        line = json.dumps({"number": request["number"], **reply}).encode() + b"\n"
        async with sending:
            await stream.send_all(line)

    try:
        async with trio.open_nursery() as nursery:
            buffer = b""
            async for chunk in stream:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    nursery.start_soon(answer, json.loads(line))
                if len(buffer) > _MAX_LINE_BYTES:
                    raise ValueError("a request is too long")
            nursery.cancel_scope.cancel()
    except* trio.BrokenResourceError:
        log.debug("a connection broke")


async def _listen(path: str) -> trio.SocketListener:
    listening = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await listening.bind(path)
    listening.listen(16)
    return trio.SocketListener(listening)


async def _serve(config: ChaosMemberConfig) -> None:
    disk = AccountingDisk(Path(config.account))
    replica = Replica(config.replica_config(), PROCEDURES, disk=disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(replica.serve)
        listener = await _listen(config.socket)
        await trio.serve_listeners(partial(_converse, _Serving(replica, disk)), [listener])


def main(arguments: list[str]) -> int:
    """Run a member until it is killed; the exit status when it cannot run."""
    die_with_parent()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        trio.run(_serve, ChaosMemberConfig.load(Path(arguments[0])))
    except Exception as error:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        log.critical("%s: %s", type(error).__name__, error, exc_info=_unforeseen(error))
        return CANNOT_RUN
    return 0


def _unforeseen(error: Exception) -> Exception | None:
    """The error itself if it is one on which no caller is told to act, for its traceback in the log."""
    return None if type(error).__module__.startswith("batonpass.tree.") else error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
