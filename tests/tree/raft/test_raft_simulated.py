"""The fence around PySyncObj keeps Raft's safety sentences through crashes, lost connections and compaction."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from batonpass.tree.machine.commands import Command, encode_command
from batonpass.tree.net.frames import decode_message_untrusted
from batonpass.tree.raft.raft import COMMAND_KIND
from tests.tree.simulated_cluster import Message, SimulatedCluster


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_and_members_never_differ(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    compact_after = dice.choice([8, 40, 10_000])
    batch_bytes = dice.choice([200, 1 << 21])
    cluster = SimulatedCluster(
        tmp_path,
        dice,
        monkeypatch,
        size=dice.choice([3, 3, 5]),
        compact_after=compact_after,
        batch_bytes=batch_bytes,
    )
    for _ in range(4):
        fault_rate = dice.choice([0.0, 0.002, 0.02])
        for _ in range(600):
            cluster.step(fault_rate)
        cluster.heal()
        cluster.check()
    assert cluster.acknowledged, "the run must have done something"


def test_a_conflicting_tail_longer_than_a_batch_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock PySyncObj sends back and forth for ever when both the tail and the news are longer than one batch."""
    dice = random.Random(5)
    cluster = SimulatedCluster(tmp_path, dice, monkeypatch, size=3, compact_after=10_000, batch_bytes=300)
    cluster.heal()
    (old,) = [name for name in cluster.names if cluster.raft(name).is_leader()]
    for pair in sorted(cluster.connections, key=sorted):
        if old in pair:
            cluster.disconnect(pair)
    for _ in range(60):
        cluster.submit_somewhere()
    cluster.tick(old)
    others = [name for name in cluster.names if name != old]
    while not any(cluster.raft(name).is_leader() for name in others):
        cluster.now_s += 0.05
        for name in others:
            cluster.members[name].tick()
            cluster.members[name].make_durable()
        while cluster.deliver_one():
            pass
    for _ in range(60):
        cluster.submit_somewhere()
    cluster.heal()
    cluster.check()


def without_a_large_state(cluster: SimulatedCluster) -> str:
    """Who does not run, and needs a snapshot of 3 MB."""
    cluster.heal()
    (leader,) = [name for name in cluster.names if cluster.raft(name).is_leader()]
    behind = next(name for name in cluster.names if name != leader)
    cluster.crash(behind)
    for number in range(30):
        args = {"path": ["big", str(number)], "data": b"x" * 100_000}
        cluster.raft(leader).submit(COMMAND_KIND + encode_command(Command("tree.put", args, "client", number)))
        for _ in range(4):
            cluster.turn()
    return behind


def test_a_member_that_needs_a_large_snapshot_gets_it_piece_by_piece_and_is_not_flooded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock PySyncObj asks for the next piece again and again; on this clock, which stands still, for ever."""
    cluster = SimulatedCluster(tmp_path, random.Random(7), monkeypatch, size=3, compact_after=8, batch_bytes=1 << 21)
    behind = without_a_large_state(cluster)
    cluster.members[behind].start()
    sent: dict[bool, int] = {True: 0, False: 0}
    send = cluster.send

    def counting(sender: str, receiver: str, message: Message) -> bool:
        if receiver == behind and "serialized" in message:
            sent[message["serialized"] is not None] += 1
        return send(sender, receiver, message)

    monkeypatch.setattr(cluster, "send", counting)
    cluster.heal()
    cluster.check()
    pieces = 3_000_000 // (64 * 1024)
    assert pieces / 2 <= sent[True] <= 3 * pieces
    assert sent[False] <= 3 * pieces


def test_a_leader_that_leads_again_sends_a_snapshot_anew_whatever_was_under_way_when_it_led_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that arrived while it did not lead counted as under way for ever, and no other one was sent."""
    cluster = SimulatedCluster(tmp_path, random.Random(7), monkeypatch, size=3, compact_after=8, batch_bytes=1 << 21)
    behind = without_a_large_state(cluster)
    (leader,) = [name for name in cluster.names if name != behind and cluster.raft(name).is_leader()]
    (other,) = {*cluster.names} - {leader, behind}
    cluster.members[behind].start()
    cluster.connect(leader, behind)
    send = cluster.send

    def sending(sender: str, receiver: str, message: Message) -> bool:
        if (sender, receiver) == (leader, behind) and message.get("serialized") is not None:
            cluster.held.add((behind, leader))
        return send(sender, receiver, message)

    def hand_over(old: str, new: str) -> None:
        cluster.raft(old).transfer_leadership(new)
        for _ in range(20):
            cluster.turn()
        assert cluster.raft(new).is_leader()

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "send", sending)
        for _ in range(20):
            cluster.turn()
    assert cluster.held, "pieces are on their way, and that they arrive will be heard late"
    hand_over(leader, other)
    cluster.held.clear()
    hand_over(other, leader)
    cluster.heal()
    cluster.check()
    assert cluster.raft(leader).is_leader(), "without another election"


def votes_sent(cluster: SimulatedCluster, name: str) -> list[str]:
    """To whom messages about votes of this member are on their way, by type."""
    found = []
    for pair, queues in cluster.connections.items():
        for receiver, queue in queues.items():
            if name in pair and receiver != name:
                types = [decode_message_untrusted(frame[4:])["type"] for frame in queue]
                found += [f"{kind} to {receiver}" for kind in types if kind in {"request_vote", "response_vote"}]
    return sorted(found)


def test_a_vote_leaves_only_when_it_is_durable_so_a_crash_cannot_make_it_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimulatedCluster(
        tmp_path, random.Random(1), monkeypatch, size=3, compact_after=10_000, batch_bytes=1 << 21
    )
    request = {"type": "request_vote", "term": 9, "last_log_index": 10**6, "last_log_term": 8, "transfer": True}
    cluster.connect("h0", "h1")
    cluster.raft("h0").receive("h1", dict(request))
    assert votes_sent(cluster, "h0") == [], "it is not durable yet"
    cluster.crash("h0")
    cluster.members["h0"].start()
    for other in ("h1", "h2"):
        cluster.connect("h0", other)
        cluster.raft("h0").receive(other, dict(request))
        cluster.members["h0"].make_durable()
    assert votes_sent(cluster, "h0") == ["response_vote to h1"], "one vote in one term"


def test_a_candidate_asks_for_votes_only_when_its_own_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimulatedCluster(
        tmp_path, random.Random(1), monkeypatch, size=3, compact_after=10_000, batch_bytes=1 << 21
    )
    for one, other in (("h0", "h1"), ("h0", "h2"), ("h1", "h2")):
        cluster.connect(one, other)
    asked_before_sync = []
    while not any(cluster.raft(name).is_leader() for name in cluster.names):
        cluster.now_s += 0.05
        for name in cluster.names:
            member = cluster.members[name]
            member.make_durable()
            assert member.raft is not None
            member.raft.tick()
            if member.journal.dirty:
                asked_before_sync += votes_sent(cluster, name)
            member.make_durable()
        while cluster.deliver_one():
            pass
    assert asked_before_sync == []
