"""Collecting, at the end of a run, what the servers themselves wrote down: custody logs and applied inputs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from authority.names import instance_of
from scenarios.client import ApiFailure, RestClient
from scenarios.custody import Custody, FinalAuthority, judge
from scenarios.players import InputStream, Players
from scenarios.report.model import Invariants

__all__ = ["Evidence", "collect"]


@dataclass(frozen=True)
class Evidence:
    """The invariants of a run and what they were computed from."""

    custody: Custody
    invariants: Invariants
    stints: list[Mapping[str, Any]]
    applied: dict[str, int]
    findings: list[str]


async def collect(
    client: RestClient, simservers: Mapping[str, str], players: Players, entities: Iterable[str]
) -> Evidence:
    """Read every custody log and every entity's cursors, and hold them against the log and what was sent.

    Args:
        simservers: REST address of every simulation server, by name.
        entities: the entities that the run is about.
    """
    stints: list[Mapping[str, Any]] = []
    period_ns = 50_000_000
    for url in simservers.values():
        answer = await client.get(f"{url}/v1/local/custody")
        stints += answer["stints"]
        period_ns = answer["period_ns"]
    finals, lost, duplicated = {}, 0, 0
    applied: dict[str, int] = {}
    findings: list[str] = []
    for entity in entities:
        record = await client.call(instance_of(entity), "GET", f"/v1/entities/{entity}")
        finals[entity] = FinalAuthority(record["authority"], record["epoch"], record["sub"])
        stream = players.streams.get(entity)
        if stream is None:
            continue
        missing, wrong, applied[entity] = await _inputs(client, simservers, players.name, stream, record["authority"])
        lost, duplicated = lost + missing, duplicated + wrong
        if missing or wrong:
            findings.append(f"{entity}: {missing} inputs lost, {wrong} repeated or out of order, of {stream.sent}")
    custody = judge(stints, finals, period_ns)
    invariants = Invariants(
        two_authorities=custody.two_authorities,
        no_authority=custody.no_authority,
        state_regressions=custody.state_regressions,
        inputs_lost=lost,
        inputs_duplicated=duplicated,
    )
    return Evidence(custody, invariants, stints, applied, findings + custody.findings)


async def _inputs(
    client: RestClient, simservers: Mapping[str, str], player: str, stream: InputStream, authority: str
) -> tuple[int, int, int]:
    """(lost, repeated or out of order, applied) for one entity: its cursor and fold against what was sent."""
    try:
        entity = await client.get(f"{simservers[authority]}/v1/local/entities/{stream.entity}")
    except ApiFailure:
        return stream.sent, 0, 0
    cursor = entity["sources"].get(player, {"applied": 0, "digest": (b"\0" * 16).hex()})
    count = cursor["applied"]
    if count < stream.sent:
        return stream.sent - count, 0, count
    # The same count with another fold means: something was applied twice, in another order, or with other bytes.
    wrong = (count - stream.sent) or int(cursor["digest"] != stream.digest.hex())
    return 0, wrong, count
