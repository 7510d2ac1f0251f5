"""Who is where on all nodes: against a table that is kept by hand, and through losses of nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors import NoProc, Ref, System
from batonpass.actors.groups import Presence, PresenceDiff, Tracked
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import node
from tests.actors.servers import Recorder
from tests.budget import examples

NODES = ("alpha", "beta")
Nodes = dict[str, tuple[System, Presence]]


@asynccontextmanager
async def present(network: MemoryNetwork, name: str) -> AsyncIterator[tuple[System, Presence]]:
    """One life of a node with a presence."""
    presence = Presence("rooms")
    async with node(network, name) as system:
        await system.start_child(presence.spec("presence", nodes=NODES, beat_s=1.0))
        yield system, presence


@asynccontextmanager
async def two() -> AsyncIterator[tuple[MemoryNetwork, Nodes]]:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        nursery.start_soon(network.serve)
        yield network, {name: await stack.enter_async_context(present(network, name)) for name in NODES}
        await stack.aclose()
        nursery.cancel_scope.cancel()


async def told(ref: Ref) -> list[tuple[Any, Any, Any]]:
    """The differences that a recorder has been told."""
    await wait_all_tasks_blocked()
    diffs: list[PresenceDiff] = await ref.call("all")
    return [(diff.topic, diff.joins, diff.leaves) for diff in diffs]


async def test_who_is_there_is_known_at_once_here_and_soon_elsewhere(autojump_clock: MockClock) -> None:
    async with two() as (_, nodes):
        (alpha, here), (beta, there) = nodes["alpha"], nodes["beta"]
        await trio.sleep(2.0)
        watcher, other = await beta.start(Recorder), await beta.start(Recorder)
        there.subscribe(watcher, "lobby")
        there.subscribe(other, "cellar")
        phone, laptop = await alpha.start(Recorder), await beta.start(Recorder)
        tracked = here.track(phone, "lobby", "anna", device="phone")
        assert here.at("lobby") == {"anna": [{"device": "phone"}]}
        there.track(laptop, "lobby", "anna", device="laptop")
        await trio.sleep(2.0)
        for _, presence in nodes.values():
            assert sorted(meta["device"] for meta in presence.at("lobby")["anna"]) == ["laptop", "phone"]
            assert presence.at("cellar") == {}
        tracked.update(device="tablet")
        assert sorted(meta["device"] for meta in here.at("lobby")["anna"]) == ["laptop", "tablet"]
        await trio.sleep(2.0)
        assert tracked.untrack()
        assert not tracked.untrack()
        laptop.kill()
        await trio.sleep(2.0)
        assert here.at("lobby") == there.at("lobby") == {}
        assert await told(other) == []
        seen = await told(watcher)
        assert [joins for _, joins, _ in seen if joins] == [
            {"anna": [{"device": device}]} for device in ("laptop", "phone", "tablet")
        ]
        assert next(leaves["anna"][0]["device"] for _, _, leaves in seen if leaves) == "phone"
        assert len(seen) == 6
        assert there.unsubscribe(watcher, "lobby")
        assert not there.unsubscribe(watcher, "lobby")


async def test_nobody_is_away_while_metadata_change(autojump_clock: MockClock) -> None:
    async with two() as (_, nodes):
        (alpha, here), (beta, there) = nodes["alpha"], nodes["beta"]
        await trio.sleep(2.0)
        watcher = await beta.start(Recorder)
        there.subscribe(watcher, "lobby")
        tracked = here.track(await alpha.start(Recorder), "lobby", "anna", at=0)
        for at in (1, 2, 2, 3):
            tracked.update(at=at)
        await trio.sleep(2.0)
        present = 0
        for _, joins, leaves in await told(watcher):
            present += len(joins.get("anna", ())) - len(leaves.get("anna", ()))
            assert present >= 1
        assert there.at("lobby") == {"anna": [{"at": 3}]}


async def test_who_was_at_a_node_that_is_lost_is_gone_and_there_again_when_it_is_heard(
    autojump_clock: MockClock,
) -> None:
    async with two() as (network, nodes):
        (alpha, here), (_, there) = nodes["alpha"], nodes["beta"]
        here.track(await alpha.start(Recorder), "lobby", "anna")
        await trio.sleep(3.0)
        assert there.at("lobby") == {"anna": [{}]}
        network.cut.add(frozenset(NODES))
        await trio.sleep(20.0)
        assert (here.at("lobby"), there.at("lobby")) == ({"anna": [{}]}, {})
        network.cut.clear()
        await trio.sleep(20.0)
        assert there.at("lobby") == {"anna": [{}]}


async def test_a_group_of_a_peer_that_is_none_of_ours_is_passed_over(system: System) -> None:
    presence = Presence("rooms")
    await system.start_child(presence.spec("presence"))
    member, watcher = await system.start(Recorder), await system.start(Recorder)
    presence.subscribe(watcher, "lobby")
    for group in ("here", ("here", "lobby"), ("here", "lobby", "anna", ("device",)), ("here", "lobby", "anna", 7)):
        presence.groups.join(group, member)
    assert presence.at("lobby") == {}
    assert await told(watcher) == []


async def test_what_cannot_be_told_is_refused(system: System) -> None:
    presence = Presence("rooms")
    ref = await system.start(Recorder)
    with pytest.raises(NoProc):
        presence.track(ref, "lobby", "anna")
    await system.start_child(presence.spec("presence"))
    with pytest.raises(TypeError):
        presence.track(ref, "lobby", "anna", devices=["phone"])  # type: ignore[arg-type]
    assert presence.at("lobby") == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["track", "track", "update", "untrack", "end"]),
        st.sampled_from(["lobby", "cellar"]),
        st.sampled_from(["anna", "bert"]),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=examples(40, 5))
@given(steps=STEPS)
def test_it_is_as_a_table_that_is_kept_by_hand(steps: list[tuple[str, str, str, int, bool]]) -> None:
    trio.run(as_by_hand, steps, clock=MockClock(autojump_threshold=0))


async def as_by_hand(steps: list[tuple[str, str, str, int, bool]]) -> None:
    table: list[tuple[Ref, str, str, int, Tracked]] = []
    async with two() as (_, nodes):
        await trio.sleep(2.0)
        for what, topic, key, at, first in steps:
            system, presence = nodes[NODES[first]]
            if what == "track":
                ref = await system.start(Recorder)
                table.append((ref, topic, key, at, presence.track(ref, topic, key, at=at)))
            elif table:
                one = table.pop(at % len(table))
                if what == "update":
                    one[-1].update(at=at)
                    table.append((*one[:3], at, one[-1]))
                elif what == "untrack":
                    assert one[-1].untrack()
                else:
                    await one[0].stop()
        await trio.sleep(3.0)
        for topic in ("lobby", "cellar"):
            keys = {key for _, where, key, _, _ in table if where == topic}
            expected = {key: sorted(at for _, t, k, at, _ in table if (t, k) == (topic, key)) for key in keys}
            for _, presence in nodes.values():
                listed = presence.at(topic)
                assert {key: sorted(meta["at"] for meta in metas) for key, metas in listed.items()} == expected
