"""A member in a process of its own, driven by lines of JSON on stdin; run by the tests that kill members.

It writes `{"event": ...}` lines to stdout: "ready", one "acknowledged" per command of a running load, and the answers
to the operations. It ends when stdin does, so that no member outlives its test.
"""

import json
import sys
from pathlib import Path
from typing import Any

import trio

from batonpass.tree import (
    Aborted,
    Member,
    NoQuorum,
    OutcomeUnknown,
    RefusedByInstance,
    Replica,
    ReplicaConfig,
    Transaction,
)


def count_once(transaction: Transaction, args: Any) -> int:
    """Deliberately not idempotent: a command applied twice leaves a 2 behind."""
    path = ("counted", args["id"])
    count: int = transaction.get_or(path, 0) + 1
    transaction.put(path, count)
    return count


def config_from(data: dict[str, Any]) -> ReplicaConfig:
    return ReplicaConfig(
        kind="homeserver",
        instance="alpha",
        name=data["name"],
        members=tuple(Member(name, "127.0.0.1", port) for name, port in data["members"]),
        directory=Path(data["directory"]),
        secret=bytes.fromhex(data["secret"]),
        compact_after_entries=data.get("compact_after_entries", 16_384),
        compact_interval_s=0.0,
        join=data.get("join", False),
    )


def say(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def write_one(replica: Replica, number: int, client: str, *, quiet: bool) -> None:
    """Submit one command until its fate is known, under one id, as a careful caller does."""
    command_id = (client, number)
    while True:
        try:
            await replica.submit("count_once", {"id": f"{client}-{number}"}, timeout_s=2.0, command_id=command_id)
        except (NoQuorum, OutcomeUnknown):
            continue
        if not quiet:
            say(event="acknowledged", id=f"{client}-{number}")
        return


async def load(replica: Replica, client: str, writers: int) -> None:
    numbers = iter(range(10**9))

    async def write_forever() -> None:
        while True:
            await write_one(replica, next(numbers), client, quiet=False)

    async with trio.open_nursery() as nursery:
        for _ in range(writers):
            nursery.start_soon(write_forever)


async def measure(replica: Replica, writers: int, seconds: float, client: str) -> dict[str, Any]:
    latencies_ms: list[float] = []
    numbers = iter(range(10**9))

    async def write_forever() -> None:
        while True:
            began = trio.current_time()
            await write_one(replica, next(numbers), client, quiet=True)
            latencies_ms.append(1000 * (trio.current_time() - began))

    began = trio.current_time()
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for _ in range(writers):
                nursery.start_soon(write_forever)
    elapsed = trio.current_time() - began
    latencies_ms.sort()
    count = len(latencies_ms)
    return {
        "per_second": count / elapsed,
        "p50_ms": latencies_ms[count // 2],
        "p99_ms": latencies_ms[count * 99 // 100],
        "max_ms": latencies_ms[-1],
    }


async def obey(replica: Replica, order: dict[str, Any], nursery: trio.Nursery) -> None:
    match order["op"]:
        case "load":
            nursery.start_soon(load, replica, order["client"], order["writers"])
        case "measure":
            say(event="measured", **await measure(replica, order["writers"], order["seconds"], order["client"]))
        case "status":
            status = replica.status
            say(event="status", leader=status.leader, is_leader=status.is_leader, applied=status.applied_index)
        case "replace":
            new = Member(order["new"], "127.0.0.1", order["port"])
            await replica.replace_member(order["old"], new, timeout_s=60)
            say(event="changed")
        case "remove":
            await replica.remove_member(order["name"], timeout_s=60)
            say(event="changed")
        case "members":
            say(event="members", roles={member.name: member.role for member in replica.status.members})
        case "write":
            await write_one(replica, order["number"], order["client"], quiet=True)
            say(event="written", at=trio.current_time())
        case "dump":
            await replica.read_barrier(timeout_s=60)
            counts = {name: replica.store.get(("counted", name)) for name in replica.store.children(("counted",))}
            say(event="dump", counts=counts)
        case "settle":
            await replica.wait_applied(order["index"])
            say(event="digest", digest=replica.store.digest().hex(), applied=replica.applied_index)
        case other:
            raise ValueError(f"unknown operation {other!r}")


async def main() -> None:
    replica = Replica(config_from(json.loads(sys.argv[1])), {"count_once": count_once})
    async with trio.open_nursery() as nursery:
        await nursery.start(replica.serve)
        say(event="ready")
        buffer = b""
        async with trio.lowlevel.FdStream(0) as stdin:
            async for chunk in stdin:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    nursery.start_soon(obey, replica, json.loads(line), nursery)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    try:
        trio.run(main)
    except* Aborted as aborted:
        raise SystemExit(str(aborted)) from aborted
    except* RefusedByInstance as refused:
        say(event="refused", codes=[error.code for error in refused.exceptions if isinstance(error, RefusedByInstance)])
