"""One member of the benchmark's instance, as a process: `python -m batonpass.scenarios.bench.tree CONFIG`.

It runs a `Replica` exactly as a homeserver does, and the clients inside the same process. Orders come as JSON lines on
a port of loopback, one at a time per connection. Each is answered by one line: `{"done": ...}`, or `{"failed": "..."}`.
"""

import cProfile
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.bench.tree.loads import PROCEDURES, fill, load_nodes, run_load, write_among
from batonpass.scenarios.bench.tree.profiles import from_cprofile
from batonpass.scenarios.bench.workloads import OperationKind, key_path, value_text
from batonpass.tree import Aborted, Member, NoQuorum, OutcomeUnknown, Replica, ReplicaConfig

__all__ = ["arguments_of", "parse_arguments", "serve"]

_MAX_ORDER_BYTES: Final = 65_536
_PROBE_EVERY_S: Final = 0.02

Order = dict[str, Any]


def arguments_of(config: ReplicaConfig, orders_port: int) -> str:
    """The argument of this program."""
    fields = {
        "name": config.name,
        "members": [[member.name, member.host, member.port] for member in config.members],
        "directory": str(config.directory),
        "secret": config.secret.hex(),
        "orders_port": orders_port,
    }
    return json.dumps(fields)


def parse_arguments(text: str) -> tuple[ReplicaConfig, int]:
    """Read what `arguments_of` wrote."""
    fields = json.loads(text)
    config = ReplicaConfig(
        kind="bench",
        instance="bench",
        name=fields["name"],
        members=tuple(Member(*member) for member in fields["members"]),
        directory=Path(fields["directory"]),
        secret=bytes.fromhex(fields["secret"]),
    )
    return config, fields["orders_port"]


# --- orders -----------------------------------------------------------------------------------------------------------


async def _status(replica: Replica, _order: Order) -> Any:
    status = replica.status
    return {"leads": status.is_leader, "leader": status.leader, "ready": status.ready, "applied": status.applied_index}


async def _fill(replica: Replica, _order: Order) -> Any:
    await fill(replica)


async def _load(replica: Replica, order: Order) -> Any:
    loop = await run_load(
        replica,
        OperationKind(order["kind"]),
        order["outstanding"],
        warm_up_s=order["warm_up_s"],
        seconds=order["seconds"],
    )
    return loop.to_data()


async def _load_nodes(replica: Replica, order: Order) -> Any:
    return {"seconds": await load_nodes(replica, order["first"], order["last"])}


async def _write_among(replica: Replica, order: Order) -> Any:
    loop = await write_among(
        replica,
        order["nodes"],
        order["outstanding"],
        warm_up_s=order["warm_up_s"],
        seconds=order["seconds"],
    )
    return loop.to_data()


async def _profile(_replica: Replica, order: Order) -> Any:
    """Watch this process for a while with cProfile; whatever else runs meanwhile gets slower."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        await trio.sleep(order["seconds"])
    finally:
        profiler.disable()
    # What pstats.Stats would compute, which has no types.
    profiler.create_stats()
    return asdict(from_cprofile(vars(profiler)["stats"]))


async def _first_write(replica: Replica, order: Order) -> Any:
    """Begin a write every 20 ms until one of them is accepted; when that was, on the machine's monotonic clock."""
    with trio.fail_after(order["timeout_s"]):
        async with trio.open_nursery() as nursery:
            for number in itertools.count():
                nursery.start_soon(_try_one_write, replica, number, nursery.cancel_scope)
                await trio.sleep(_PROBE_EVERY_S)
    # Not trio's clock: it begins anywhere, in each process elsewhere.
    return {"at_s": time.monotonic()}


async def _try_one_write(replica: Replica, number: int, until: trio.CancelScope) -> None:
    try:
        await replica.submit("tree.put", {"path": key_path(number), "data": value_text(number)}, timeout_s=30.0)
    except (NoQuorum, OutcomeUnknown):
        return
    until.cancel()


_ORDERS: Final[dict[str, Callable[[Replica, Order], Awaitable[Any]]]] = {
    "status": _status,
    "fill": _fill,
    "load": _load,
    "load_nodes": _load_nodes,
    "write_among": _write_among,
    "profile": _profile,
    "first_write": _first_write,
}


async def _obey(replica: Replica, stream: trio.abc.Stream) -> None:
    buffer = b""
    # Who asked may not want the answer any more, when the other member's was first.
    with suppress(trio.BrokenResourceError):
        async with stream:
            async for chunk in stream:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    await stream.send_all(json.dumps(await _answer(replica, json.loads(line))).encode() + b"\n")
                if len(buffer) > _MAX_ORDER_BYTES:
                    return


async def _answer(replica: Replica, order: Order) -> dict[str, Any]:
    try:
        return {"done": await _ORDERS[order["op"]](replica, order)}
    except* (Aborted, NoQuorum, OutcomeUnknown, RuntimeError, trio.TooSlowError) as group:
        failures = [repr(error) for error in group.exceptions]
    return {"failed": f"{order['op']}: {failures[0]}"}


async def serve(config: ReplicaConfig, orders_port: int) -> None:
    """Run the member until it is told to end by a signal."""
    replica = Replica(config, PROCEDURES)
    async with trio.open_nursery() as nursery:
        await nursery.start(replica.serve)
        await trio.serve_tcp(partial(_obey, replica), orders_port, host="127.0.0.1")
