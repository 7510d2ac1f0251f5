"""When a node is lost: whoever waits for it, watches it or is linked to it is told, once."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from batonpass.actors import (
    Exit,
    ExitSignal,
    NoProc,
    ServiceSpec,
)
from batonpass.actors.link import PeerClosed
from batonpass.actors.net.inbox import Received
from batonpass.actors.remote import (
    NODE_DOWN,
    NODE_UP,
    NodeDown,
)
from tests.actors.remote.keeper import Keeper
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import NOTHING, distribution_of, held, node, show, two_nodes
from tests.actors.servers import Counter, Recorder, Waiting, Watcher


async def test_when_a_node_is_killed_everybody_who_waits_for_it_is_told_once(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.serve)
        async with node(network, "alpha") as alpha:
            heard: list[tuple[str, str]] = []
            for event in (NODE_UP, NODE_DOWN):
                alpha.telemetry.attach(
                    event, event, lambda event, _m, metadata, _c: heard.append((event[-1], metadata["node"])), None
                )
            watcher, linked = await alpha.start(Watcher), await alpha.start(Keeper)
            outcome: list[Exit] = []
            async with node(network, "beta") as beta:
                await show(beta, Waiting)
                it = alpha.remote("beta").named("it")
                ref = await it.lookup()
                assert ref is not None
                watcher.cast(ref)
                await linked.call(("link", ref))

                async def wait_for_ever() -> None:
                    try:
                        await ref.call("anything", timeout_s=None)
                    except Exit as error:
                        outcome.append(error)

                nursery.start_soon(wait_for_ever)
                # Waiting does not trap exits, and alpha may not control: the link is refused, so it is not in the way.
                await trio.sleep(1)
                network.kill("beta")
                died_s = trio.current_time()
                await trio.sleep(11)
            assert [type(error) for error in outcome] == [NodeDown]
            assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
            assert trio.current_time() - died_s < 30
            assert held(alpha) == NOTHING
            assert heard == [("up", "beta"), ("down", "beta")]
            assert ref.alive  # for all we know: the node may only be out of reach
            with pytest.raises(NodeDown):
                await ref.call("anything")
            async with node(network, "beta") as beta:
                await show(beta, Counter, 5)
                # The new life is reached by name; a ref of the former one is dead.
                assert await it.call("get") == 5
                with pytest.raises(NoProc):
                    await ref.call("get")
                assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
        nursery.cancel_scope.cancel()


async def test_what_a_node_said_before_it_ended_in_order_is_heard_before_that(autojump_clock: MockClock) -> None:
    async with two_nodes() as (network, alpha, beta):
        there = await show(beta, Keeper)
        ref = await alpha.remote("beta").whereis("it")
        watcher = await alpha.start(Watcher)
        watcher.cast(ref)
        await trio.sleep(0.1)
        await there.call(("end", "its last word"))
        await trio.lowlevel.checkpoint()
        # The link hears the goodbye in the same moment in which the last message arrives.
        pipe = network.pipe("beta", "alpha")
        while pipe.waiting:
            network.links["alpha"].take(Received("beta", pipe.waiting.popleft()[2], 15, ("127.0.0.1", 1)))
        network.links["alpha"].hear("beta", PeerClosed())
        await trio.sleep(0.1)
        assert [down.reason for down in await watcher.call("all")] == ["its last word"]
        assert distribution_of(alpha).nodes == []


async def test_linked_actors_hear_noconnection(autojump_clock: MockClock) -> None:
    async with two_nodes() as (network, alpha, beta):
        here, there = await alpha.start(Keeper), await show(beta, Keeper)
        ref = await alpha.remote("beta").whereis("it")
        await here.call(("link", ref))
        await trio.sleep(0.1)
        [back] = await there.call(("links",))
        network.cut.add(frozenset(("alpha", "beta")))
        await trio.sleep(20)
        assert await here.call("all") == [ExitSignal("noconnection", ref)]
        assert await there.call("all") == [ExitSignal("noconnection", back)]
        assert held(alpha) == held(beta) == NOTHING


async def test_after_a_cut_refs_work_again_but_what_was_sent_before_does_not_arrive(autojump_clock: MockClock) -> None:
    async with two_nodes() as (network, alpha, beta):
        await show(beta, Recorder)
        it = alpha.remote("beta").named("it")
        ref = await it.lookup()
        assert ref is not None
        network.cut.add(frozenset(("alpha", "beta")))
        ref.cast("lost")
        with pytest.raises(Exit):
            await ref.call("all", timeout_s=None)
        ref.cast("lost too, for its connection does not open")
        await trio.sleep(10)
        network.cut.clear()
        network.changed()
        ref.cast("after")
        assert await ref.call("all") == [("cast", "after")]


async def test_a_cut_shorter_than_the_link_waits_is_not_noticed(autojump_clock: MockClock) -> None:
    async with two_nodes() as (network, alpha, beta):
        await show(beta, Recorder)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        network.cut.add(frozenset(("alpha", "beta")))
        ref.cast("during")
        await trio.sleep(4)
        network.cut.clear()
        network.changed()
        assert await ref.call("all") == [("cast", "during")]


async def test_a_node_that_dies_while_nothing_is_said_is_missed_in_time(autojump_clock: MockClock) -> None:
    async with two_nodes() as (network, alpha, beta):
        await show(beta, Counter, 0)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        await trio.sleep(60)
        assert distribution_of(alpha).nodes == ["beta"]
        network.kill("beta")
        killed_s = trio.current_time()
        assert await ref.exited() == "noconnection"
        # The period of ticks, and the silence after which the link says unreachable.
        assert trio.current_time() - killed_s <= 5 + 5 + 0.1


async def test_when_distribution_is_restarted_connections_are_new_and_refs_go_on(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Counter, 0)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        watcher = await alpha.start(Watcher)
        watcher.cast(ref)
        await trio.sleep(0.1)
        service = next(actor for actor in alpha.actors() if "distribution" in repr(actor))
        await service.stop()
        assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
        with pytest.raises(NodeDown):
            await ref.call("get")
        ref.cast(1)
        await alpha.start_child(ServiceSpec("again", distribution_of(alpha).serve))
        assert await ref.call("get") == 0
