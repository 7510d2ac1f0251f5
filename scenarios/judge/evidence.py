"""Collecting, at the end of a run, what the servers themselves wrote down: custody logs and applied inputs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cbor2
import httpx

from batonpass.authority.names import instance_of
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.judge.custody import Custody, FinalAuthority, judge
from batonpass.scenarios.players.link_players import Players
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from batonpass.scenarios.report.model import Invariants

__all__ = ["Evidence", "WorldCheck", "collect", "inputs_of", "leases_over"]


@dataclass(frozen=True)
class Evidence:
    """The invariants of a run and what they were computed from."""

    custody: Custody
    invariants: Invariants
    stints: list[Mapping[str, Any]]
    applied: dict[str, int]
    findings: list[str]


WorldCheck = Callable[[InputStream, Any], tuple[int, int]]
"""(inputs lost, inputs repeated or wrong) by what the world's own state says that it has seen."""


async def collect(
    client: RestClient,
    simservers: Mapping[str, str],
    players: Players,
    entities: Iterable[str],
    world_check: WorldCheck,
) -> Evidence:
    """Read every custody log and every entity, and hold them against the log and what was sent.

    Inputs are checked twice: by the cursor and fold that travel with the entity, and by the state of the world itself.
    So neither an inbox that counts wrongly nor a world that is fed wrongly can pass. What cannot be read counts against
    the run.

    Args:
        simservers: REST address of every simulation server, by name.
        entities: the entities that the run is about.
        world_check: what the world's state says of the inputs of a stream.
    """
    findings: list[str] = []
    stints, period_ns = await _stints(client, simservers, findings)
    finals, lost, duplicated = {}, 0, 0
    applied: dict[str, int] = {}
    for entity in entities:
        stream = players.streams.get(entity)
        try:
            record = await client.call(instance_of(entity), "GET", f"/v1/entities/{entity}")
        except ApiFailure as failure:
            findings.append(f"{entity}: its record cannot be read: {failure}")
            finals[entity] = FinalAuthority("unknown.unknown", 0, 0)
            lost += 0 if stream is None else stream.sent
            continue
        finals[entity] = FinalAuthority(record["authority"], record["epoch"], record["sub"])
        if stream is None:
            continue
        if not record["authority"]:
            findings.append(f"{entity}: no server has authority over it")
            lost += stream.sent
            continue
        url = simservers[record["authority"]]
        missing, wrong, applied[entity] = await inputs_of(client, url, players.name, stream, world_check, findings)
        lost, duplicated = lost + missing, duplicated + wrong
        if missing or wrong:
            findings.append(f"{entity}: {missing} inputs lost, {wrong} repeated or out of order, of {stream.sent}")
    custody = judge(stints, finals, period_ns, await leases_over(client, simservers))
    invariants = Invariants(
        two_authorities=custody.two_authorities,
        no_authority=custody.no_authority,
        state_regressions=custody.state_regressions,
        inputs_lost=lost,
        inputs_duplicated=duplicated,
    )
    return Evidence(custody, invariants, stints, applied, findings + custody.findings)


async def leases_over(client: RestClient, simservers: Mapping[str, str]) -> dict[str, int]:
    """How often the lease of each of these servers was over since it was started; a silent one has said nothing."""
    counts: dict[str, int] = {}
    for name, url in simservers.items():
        try:
            stats = await client.get(f"{url}/v1/local/stats")
        except (ApiFailure, httpx.HTTPError):
            continue
        counts[name] = stats["counts"].get("lease_over", 0)
    return counts


async def _stints(
    client: RestClient, simservers: Mapping[str, str], findings: list[str]
) -> tuple[list[Mapping[str, Any]], int]:
    """The stints of every custody log, and the period of a tick; a log that cannot be read is a finding."""
    stints: list[Mapping[str, Any]] = []
    period_ns = 50_000_000
    for name, url in simservers.items():
        try:
            answer = await client.get(f"{url}/v1/local/custody")
        except (ApiFailure, httpx.HTTPError) as error:
            findings.append(f"{name}: its custody log cannot be read: {error!r}")
            continue
        stints += answer["stints"]
        period_ns = answer["period_ns"]
    return stints, period_ns


async def inputs_of(
    client: RestClient, url: str, player: str, stream: InputStream, world_check: WorldCheck, findings: list[str]
) -> tuple[int, int, int]:
    """(lost, repeated or out of order, applied) for one entity: cursor, fold and world against what was sent."""
    try:
        entity = await client.get(f"{url}/v1/local/entities/{stream.entity}", state="true")
    except (ApiFailure, httpx.HTTPError) as error:
        findings.append(f"{stream.entity}: cannot be read at its authority: {error!r}")
        return stream.sent, 0, 0
    cursor = entity["sources"].get(player, {"applied": 0, "digest": (b"\0" * 16).hex()})
    count, digest = stream.of_this_ownership(cursor["applied"], bytes.fromhex(cursor["digest"]))
    lost = max(0, stream.sent - count)
    # The same count with another fold means: something was applied twice, in another order, or with other bytes.
    wrong = max(0, count - stream.sent) or int(not lost and digest != stream.digest)
    unseen, seen_wrong = world_check(stream, cbor2.loads(bytes.fromhex(entity["state"])))
    return max(lost, unseen), max(wrong, seen_wrong), count
