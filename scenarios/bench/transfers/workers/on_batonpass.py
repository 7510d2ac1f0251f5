"""batonpass: a cluster of three homeservers and two simulation servers, each a process, all on this machine.

First one entity is handed to and fro, asked for by REST, each time after the one before was reported. Then many do so
by themselves, all the time. What is measured of one is from the reported traces, what of many from the servers' custody
logs. All processes of a machine share its monotonic clock.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

import cbor2
import trio

from batonpass.authority.wire.hops import Trace
from batonpass.scenarios.bench import drain
from batonpass.scenarios.bench.loops import arguments, tell_all
from batonpass.scenarios.bench.transfers.cores import ahead_of_others, run_apart
from batonpass.scenarios.bench.transfers.course import BULK, DRAINED, MANY
from batonpass.scenarios.bench.transfers.dashboards import dashboards_open, until_told
from batonpass.scenarios.bench.transfers.world import ballast_for
from batonpass.scenarios.cases.cases import LEASE_TERM_S, Run, open_run
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.judge.custody import gaps_ms
from batonpass.scenarios.players.rest_client import SILENT
from batonpass.scenarios.report.statistics import percentile

__all__ = ["main"]

_ENDS: Final = ("alpha.s1", "alpha.s2")
_BYTES: Final = {"300": 300, "1M": 1024 * 1024}
_WARM_UP: Final = 8
_POLL_S: Final = 0.01
# Of many that are asked for at once: 64 that look a hundred times a second would be most of what is measured.
_POLL_OF_MANY_S: Final = 0.1
# How fast a machine is, is in the figures: this is for what never comes.
_PATIENCE_S: Final = 120.0
_AGAIN_S: Final = 0.5
_SPAWNS_AT_ONCE: Final = 16
_LEAST: Final = 20
_START_S: Final = 120.0
# As `baton bench drain` does it: 10,000 entities at 20 Hz are more than one core can tick.
DRAIN_SIMSERVERS: Final = 3
DRAIN_TICK_HZ: Final = 1.0
_TURNS: Final = 6
_DOWN: Final = f'"name":"{_ENDS[1]}","health":"down"'.encode()
"""In the map of those who look on."""
_GO: Final = cbor2.dumps([0, 0, 0])


def _spec() -> ClusterSpec:
    world = "batonpass.scenarios.bench.transfers.world:Shuttle"
    # Nobody dies: only a machine that has much else to do would end a lease.
    return ClusterSpec({"alpha": 3}, simservers=2, world=world, log_level="WARNING", lease_term_s=LEASE_TERM_S)


async def measure(work: str, seconds: float) -> dict[str, float]:
    """The figures of one sample: `CASE-SIZE-MODE`, `bulk`, `dashboards` or `drain`."""
    if work == "drain":
        return await _drain()
    async with LocalCluster.start(_spec(), timeout_s=_START_S, grace_s=0.0) as cluster, open_run(cluster, 1) as run:
        ends = [pid for name in _ENDS if (pid := cluster.server(name).pid) is not None]
        for end, pid in enumerate(ends):
            run_apart(pid, end)
        if work == "bulk":
            return await _many(run, "3", 300, BULK, seconds)
        if work == "dashboards":
            url = cluster.server("alpha.h1").rest_url
            share = await _looked_at(run, url, seconds)
            return share | {"down": await until_told(url, _DOWN, partial(cluster.kill, _ENDS[1]))}
        case, size, mode = work.split("-")
        one = await _one_by_one(run, ends, case, _BYTES[size], mode, seconds)
        if mode == "eager":
            return one | await _many(run, case, _BYTES[size], MANY, seconds)
        return one | await _many_asked_for(run, case, _BYTES[size], MANY, mode, seconds)


async def _spawn(run: Run, entity: str, case: str, params: Mapping[str, Any]) -> None:
    body = {"id": entity, "kind": "ball", "spawner": run.players.name, "server": _ENDS[0], "params": dict(params)}
    await run.create(body)
    if case == "3":
        await run.client.call("alpha", "PUT", f"/v1/entities/{entity}/delegation", {"group": list(_ENDS)})


async def _one_by_one(
    run: Run, ends: Sequence[int], case: str, state_bytes: int, mode: str, seconds: float
) -> dict[str, float]:
    await _spawn(run, "alpha.one", case, {"ballast": ballast_for(state_bytes)})
    targets = itertools.cycle(reversed(_ENDS))

    async def moved(count: int, seconds: float) -> list[Trace]:
        """To and fro for so long, and at least so often. Of a repeated one the times are not known as a whole."""
        until_s, traces = trio.current_time() + seconds, list[Trace]()
        while len(traces) < count or trio.current_time() < until_s:
            trace = await _moved(run, "alpha.one", next(targets), case, mode)
            if not trace.is_repeated:
                traces.append(trace)
        return traces

    await moved(_WARM_UP, 0.0)
    ordinary_ms = [_between_ms(trace, "frozen", "retired") for trace in await moved(_LEAST, seconds)]
    with ExitStack() as stack:
        # Where that is not permitted the report says so.
        with suppress(PermissionError):
            stack.enter_context(ahead_of_others(ends))
        began_s = trio.current_time()
        traces = await moved(_LEAST, seconds)
        took_s = trio.current_time() - began_s
    took_ms = [_between_ms(trace, "frozen", "retired") for trace in traces]
    return {
        "ordinary-p50": percentile(ordinary_ms, 50),
        "p50": percentile(took_ms, 50),
        "p99": percentile(took_ms, 99),
        "gap-p99": percentile([_between_ms(trace, "frozen", "activated") for trace in traces], 99),
        "rate": len(traces) / took_s,
    }


async def _moved(run: Run, entity: str, target: str, case: str, mode: str, poll_s: float = _POLL_S) -> Trace:
    """Have it moved, and wait until that is reported; the trace. Again if a server was `SILENT` for too long."""
    path = "direct" if case == "3" else "home"
    body = {"to": target, "path": path, "transport": "link", "mode": mode}
    with trio.fail_after(_PATIENCE_S):
        while True:
            transfer_id = f"{run.dice.getrandbits(96):024x}"
            asked = body | {"transfer_id": transfer_id}
            await run.client.call("alpha", "POST", f"/v1/entities/{entity}/transfers", asked)
            view = await _decided(run, transfer_id, poll_s)
            if view["phase"] == "done":
                return Trace.from_data_untrusted(view["trace"])
            if view["reason"] not in SILENT:
                raise RuntimeError(f"transfer {transfer_id} was refused: {view['reason']}")
            await trio.sleep(_AGAIN_S)


async def _decided(run: Run, transfer_id: str, poll_s: float) -> dict[str, Any]:
    while True:
        await trio.sleep(poll_s)
        view: dict[str, Any] = await run.client.call(
            "alpha", "GET", f"/v1/transfers/{transfer_id}", consistency="local"
        )
        if view["phase"] == "done" or view["result"] == "refused":
            return view


def _between_ms(trace: Trace, first: str, second: str) -> float:
    begin, end = trace.at(first), trace.at(second)
    if begin is None or end is None:
        raise RuntimeError(f"the trace of {trace.transfer_id} lacks {first} or {second}")
    return (end - begin) / 1e6


async def _spawn_all(run: Run, case: str, params: Mapping[str, Any], count: int) -> None:
    limit = trio.CapacityLimiter(_SPAWNS_AT_ONCE)

    async def spawn(number: int) -> None:
        async with limit:
            await _spawn(run, f"alpha.many-{number}", case, params)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(spawn, number)


async def _drain() -> dict[str, float]:
    """How long it takes until nothing lives any more on a server of very many entities."""
    drained = await drain.measure(DRAINED, DRAIN_SIMSERVERS, DRAIN_TICK_HZ)
    if drained.findings:
        raise RuntimeError(f"the custody logs show: {'; '.join(drained.findings)}")
    return {"drain": drained.seconds}


async def _set_in_motion(run: Run, case: str, state_bytes: int, count: int) -> None:
    """Have `count` entities go to and fro by themselves from now on."""
    params = {"ballast": ballast_for(state_bytes, _ENDS), "between": list(_ENDS)}
    await _spawn_all(run, case, params, count)
    for number in range(count):
        await run.players.follow(f"alpha.many-{number}", _ENDS[0])
    for stream in run.players.streams.values():
        run.players.push(stream, _GO)
    with trio.fail_after(_PATIENCE_S):
        await run.players.drained(math.inf)


async def _looked_at(run: Run, url: str, seconds: float) -> dict[str, float]:
    """What of the rate of hand-overs is left while dashboards are open at the homeserver with this URL.

    With and without take turns, so that what else the machine has to do is in both.
    """
    await _set_in_motion(run, "2", 300, MANY)
    await trio.sleep(seconds)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_TURNS):
        rates[False].append(await _rate(run, seconds))
        async with dashboards_open(url) as had:
            rates[True].append(await _rate(run, seconds))
            if not all(had):
                raise RuntimeError("a dashboard was told nothing")
    without, looked_at = sum(rates[False]), sum(rates[True])
    return {"share": looked_at / without}


async def _rate(run: Run, seconds: float) -> float:
    """Hand-overs a second, for so long."""
    before, began_ns = await _custody(run), time.monotonic_ns()
    await trio.sleep(seconds)
    stints, ended_ns = await _custody(run, before), time.monotonic_ns()
    begun = [stint for stint in stints if began_ns <= stint["started_ns"] <= ended_ns]
    return len(begun) / (ended_ns - began_ns) * 1e9


async def _many(run: Run, case: str, state_bytes: int, count: int, seconds: float) -> dict[str, float]:
    """Figures of `count` entities that go to and fro by themselves."""
    await _set_in_motion(run, case, state_bytes, count)
    await trio.sleep(seconds / 2)
    before = await _custody(run)
    began_ns = time.monotonic_ns()
    stints: list[dict[str, Any]] = []
    gaps: list[float] = []
    until_s = trio.current_time() + _PATIENCE_S
    # Large states need longer than they are given; what has come until the patience is over counts as it is.
    while len(gaps) < count and trio.current_time() < until_s:
        await trio.sleep(seconds)
        stints = await _custody(run, before)
        gaps = gaps_ms(stints)
    ended_ns = max(stint["started_ns"] for stint in stints)
    begun = [stint for stint in stints if began_ns <= stint["started_ns"]]
    return {
        "many-p50": percentile(gaps, 50),
        "many-p99": percentile(gaps, 99),
        "many-rate": len(begun) / (ended_ns - began_ns) * 1e9,
    }


async def _many_asked_for(
    run: Run, case: str, state_bytes: int, count: int, mode: str, seconds: float
) -> dict[str, float]:
    """Figures of `count` entities that go to and fro in this mode, each asked for again as soon as it has arrived."""
    await _spawn_all(run, case, {"ballast": ballast_for(state_bytes)}, count)
    gaps: list[float] = []
    began_s = trio.current_time()

    async def shuttle(entity: str) -> None:
        # Each once at least, however long large states take.
        for number in itertools.count(1):
            trace = await _moved(run, entity, _ENDS[number % 2], case, mode, _POLL_OF_MANY_S)
            if trace.is_repeated:
                continue
            gaps.append(_between_ms(trace, "frozen", "activated"))
            if trio.current_time() - began_s > seconds:
                break

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(shuttle, f"alpha.many-{number}")
    return {
        "many-p50": percentile(gaps, 50),
        "many-p99": percentile(gaps, 99),
        "many-rate": len(gaps) / (trio.current_time() - began_s),
    }


async def _custody(run: Run, after: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The stints of both servers, without those that had ended in `after`."""
    ended = {(s["entity"], s["epoch"], s["sub"]) for s in after or () if s["ended_ns"]}
    stints: list[dict[str, Any]] = []
    for server in _ENDS:
        stints += (await run.client.get(f"{run.simservers[server]}/v1/local/custody"))["stints"]
    return [s for s in stints if (s["entity"], s["epoch"], s["sub"]) not in ended]


def main() -> None:
    """Measure what the command line says."""
    work, seconds = arguments("batonpass")
    tell_all(trio.run(measure, work, seconds))


if __name__ == "__main__":
    main()
