"""Followers and players that hear the last words of a former authority after those of the next (FAILURES row 44)."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from batonpass.authority.machines.replica_choice import backup_replicas_of
from batonpass.authority.wire.transfer import Copies, InputAck, decode_link_untrusted
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.mixes import MIXES
from tests.mutants.servers.table import MUTANTS

SOURCE, TARGET, FOLLOWER = SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
ORDER = {"transport": "link", "mode": "eager", "requester": ""}

Word = tuple[str, str, Any]


def until(cluster: ServersCluster, done: Callable[[], bool]) -> None:
    assert cluster.schedule.run_until(cluster.schedule.now_s + 60.0, done), "it does not come about"


def followed_alike(cluster: ServersCluster) -> str:
    """An entity of the source, of which the same server keeps copies while the target has it."""
    homes = cluster.servers[SOURCE].node.holdings.ids()
    return next(
        name
        for name in sorted(homes)
        if all(backup_replicas_of(name, has_it, SERVERS, 1) == (FOLLOWER,) for has_it in (SOURCE, TARGET))
    )


def last_words(cluster: ServersCluster, monkeypatch: pytest.MonkeyPatch) -> list[Word]:
    """What the source tells followers and players from now on, to be heard once more when it is of the past."""
    words: list[Word] = []
    send = cluster.mail.send

    def recorded(sender: str, to: str, message: Any) -> None:
        if sender == SOURCE and isinstance(_read(message), Copies | InputAck):
            words.append((sender, to, message))
        send(sender, to, message)

    monkeypatch.setattr(cluster.mail, "send", recorded)
    return words


def _read(message: Any) -> Any:
    """What travels between servers as bytes, as copies do, is read."""
    return decode_link_untrusted(message) if isinstance(message, bytes) else message


def moved(cluster: ServersCluster, entity: str, *, direct: bool) -> None:
    """The target has it, the follower a copy of what it has become there, and its player a word of that."""
    home, target = cluster.homes["alpha.h1"], cluster.servers[TARGET]
    if direct:
        home.process.start_soon(home.delegate, entity, (SOURCE, TARGET))
        until(cluster, lambda: (held := cluster.servers[SOURCE].holding(entity)) is not None and bool(held.group))
    home.process.start_soon(home.move, "transfer-1", entity, TARGET, {**ORDER, "direct": direct})
    until(cluster, lambda: target.holding(entity) is not None)
    held = target.holding(entity)
    assert held is not None
    table, streams = cluster.servers[FOLLOWER].node.replication.table, [one.streams[entity] for one in cluster.players]
    until(cluster, lambda: (copy := table.get(entity)) is not None and copy.fence == held.fence)
    until(cluster, lambda: any(stream.fence == tuple(held.fence) for stream in streams))


def heard_again(mutant: str, monkeypatch: pytest.MonkeyPatch, *, direct: bool) -> ServersCluster:
    parts = MUTANTS[mutant].parts if mutant else None
    cluster = ServersCluster(MIXES["calm"], Random(f"observers {direct}"), parts)
    words = last_words(cluster, monkeypatch)
    entity = followed_alike(cluster)
    until(cluster, lambda: sum(isinstance(message, InputAck) for *_, message in words) > 5)
    cluster.schedule.run_until(cluster.schedule.now_s + 2.0)
    moved(cluster, entity, direct=direct)
    for word in reversed(words):
        cluster.mail.send(*word)
    cluster.schedule.run_until(cluster.schedule.now_s + 2.0)
    return cluster


@pytest.mark.parametrize("direct", [False, True])
def test_failures_row_44_neither_followers_nor_players_are_taken_back_by_late_words(
    monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    cluster = heard_again("", monkeypatch, direct=direct)
    for player in cluster.players:
        player.resting = True
    until(cluster, lambda: cluster.schedule.happened % 64 == 0 and not cluster.unsettled())
    assert cluster.judge.violations == []


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("mutant", ["takes-older-copies", "believes-anybody"])
def test_failures_row_44_whoever_is_taken_back_is_seen(
    monkeypatch: pytest.MonkeyPatch, mutant: str, direct: bool
) -> None:
    cluster = heard_again(mutant, monkeypatch, direct=direct)
    assert [violation.kind for violation in cluster.judge.violations] == ["went-back"]
