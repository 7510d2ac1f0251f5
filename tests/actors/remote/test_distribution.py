"""Actors on another node: each test says one thing about them, on a virtual clock and a network in memory."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from batonpass.actors import (
    CallTimeout,
    Exit,
    From,
    MailboxFull,
    Named,
    NoProc,
    NoReply,
    Ref,
    Server,
    ServiceSpec,
    System,
    Tick,
)
from batonpass.actors.remote import (
    Distribution,
    DistributionSettings,
    NodeBusy,
    NodeDown,
    RemoteError,
    Unsendable,
)
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import NOTHING, distribution_of, held, node, show, two_nodes
from tests.actors.servers import Counter, Recorder, Slow, Waiting, Watcher

# Calls, casts and messages


async def test_a_call_a_cast_and_a_message_reach_an_actor_on_another_node(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Counter, 1, name="counter")
        await show(beta, Recorder, name="recorder")
        counter = alpha.remote("beta").named("counter")
        counter.cast(2)
        assert await counter.call("get") == 3
        recorder = alpha.remote("beta").named("recorder")
        recorder.send(("info", [1]))
        recorder.cast({"a": (1,)})
        assert await recorder.call("all") == [("info", [1]), ("cast", {"a": (1,)})]
        assert alpha.remote("beta").connected
        assert distribution_of(beta).nodes == ["alpha"]


async def test_everything_that_one_actor_sends_another_arrives_in_order(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Recorder)
        it = alpha.remote("beta").named("it")
        for number in range(0, 3000, 3):
            it.cast(number)
            it.send(number + 1)
            if number % 300 == 0:
                seen = await it.call("all")
                assert len(seen) == number // 3 * 2 + 2
        seen = [entry[1] if isinstance(entry, tuple) else entry for entry in await it.call("all")]
        assert seen == [number for number in range(3000) if number % 3 != 2]


async def test_a_ref_found_by_name_means_one_life_and_a_name_whoever_has_it(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        first = await show(beta, Counter, 0)
        it = alpha.remote("beta").named("it")
        ref = await it.lookup()
        assert ref is not None
        assert (ref.node, ref.pid, ref.alive, repr(ref)) == ("beta", first.pid, True, f"<beta/#{first.pid}>")
        assert repr(it) == "<the actor named 'it' on beta>"
        first.kill()
        await beta.start(Counter, 10, name="it")
        with pytest.raises(NoProc):
            await ref.call("get")
        assert not ref.alive
        ref.cast(1)  # nobody is there: nothing happens
        assert await it.call("get") == 10


async def test_a_crash_reaches_the_caller_as_what_was_raised_and_what_it_said(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Counter, 0)
        with pytest.raises(Exit) as caught:
            await alpha.remote("beta").named("it").call("raise")
        assert caught.value.reason == RemoteError("ValueError", "boom", "beta")
        assert caught.value.__cause__ is caught.value.reason
        with pytest.raises(NoProc):
            await alpha.remote("beta").named("it").call("get")


async def test_a_call_that_stops_its_actor_ends_with_the_reason_or_the_last_answer(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        it = alpha.remote("beta").named("it")
        await show(beta, Counter, 0)
        with pytest.raises(Exit) as caught:
            await it.call("stop")
        assert caught.value.reason == "normal"
        await beta.start(Counter, 0, name="it")
        assert await it.call("stop with an answer") == "bye"


async def test_a_late_answer_vanishes_and_the_server_survives(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Slow)
        it = alpha.remote("beta").named("it")
        with pytest.raises(CallTimeout):
            await it.call(1.0, timeout_s=0.5)
        assert held(alpha) == NOTHING
        assert await it.call(0.2) == 0.2
        assert held(beta) == NOTHING


async def test_a_caller_that_is_cancelled_is_forgotten_on_both_nodes(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Waiting)
        it = alpha.remote("beta").named("it")
        with trio.move_on_after(1):
            await it.call("anything", timeout_s=None)
        await trio.sleep(0.1)
        assert held(alpha) == held(beta) == NOTHING


async def test_a_caller_may_be_answered_by_anybody_on_any_node(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()

    class Delegating(Server[Ref]):
        def handle_call(self, request: Any, from_: From, state: Ref) -> NoReply[Ref]:
            state.cast((request, from_))
            return NoReply()

    class Answering(Server[None]):
        def handle_cast(self, message: Any, state: None) -> None:
            request, from_ = message
            from_.reply(("answered", request))
            from_.reply("twice")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.serve)
        async with node(network, "alpha") as alpha, node(network, "beta") as beta, node(network, "gamma") as gamma:
            await show(gamma, Answering)
            far = await beta.remote("gamma").whereis("it")
            await show(beta, Delegating, far)
            assert await alpha.remote("beta").named("it").call(1) == ("answered", 1)
            # And for a caller of the same node as the actor it called.
            assert await beta.named("it").call(2) == ("answered", 2)
            for system in (alpha, beta, gamma):
                assert held(system) == NOTHING
                assert distribution_of(system).stats["handed_callers"] == 0
        nursery.cancel_scope.cancel()


async def test_a_full_mailbox_refuses_a_remote_call_as_it_does_a_local_one(autojump_clock: MockClock) -> None:
    class Small(Waiting):
        mailbox_limit = 1

        async def handle_call(self, request: Any, from_: From, state: Any) -> NoReply[Any]:  # type: ignore[override]
            await trio.sleep(10)
            return NoReply()

    async with two_nodes() as (_, alpha, beta):
        await show(beta, Small)
        it = alpha.remote("beta").named("it")
        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(it.call, number, None)
                await trio.sleep(0.1)
            with pytest.raises(MailboxFull) as caught:
                await it.call(3)
            assert caught.value.limit == 1
            nursery.cancel_scope.cancel()


async def test_a_service_on_another_node_takes_no_messages(autojump_clock: MockClock) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        await beta.start_child(ServiceSpec("it", serve, name="it"))
        distribution_of(beta).publish("it")
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        with pytest.raises(Exit) as caught:
            await ref.call("anything")
        assert caught.value.reason == "not_a_server"


# References in messages


async def test_a_ref_that_is_sent_works_there_and_is_itself_again_at_home(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Recorder)
        mine = await alpha.start(Counter, 7)
        it = alpha.remote("beta").named("it")
        it.cast([mine, mine])
        (_, (back, again)), *_ = await it.call("all")
        assert back is mine
        assert again is mine

        there = (await beta.named("it").call("all"))[0][1]
        assert there[0] is there[1]  # one ref for one actor there, too
        assert there[0].node == "alpha"
        assert await there[0].call("get") == 7


async def test_a_ref_that_is_handed_on_works_at_a_third_node(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.serve)
        async with node(network, "alpha") as alpha, node(network, "beta") as beta, node(network, "gamma") as gamma:
            await show(gamma, Recorder)
            await show(beta, Counter, 5)
            beta_counter = await alpha.remote("beta").whereis("it")
            assert beta_counter is not None
            alpha.remote("gamma").named("it").cast(beta_counter)
            await trio.sleep(0.1)
            [(_, at_gamma)] = await gamma.named("it").call("all")
            assert await at_gamma.call("get") == 5
            assert gamma.remote("beta").connected
        nursery.cancel_scope.cancel()


async def test_a_name_that_is_sent_means_whoever_has_it_at_its_own_node(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Recorder)
        it = alpha.remote("beta").named("it")
        await show(alpha, Counter, 3, name="three")
        it.cast((alpha.named("three"), it))
        await trio.sleep(0.1)
        there = (await beta.named("it").call("all"))[0][1]
        assert await there[0].call("get") == 3
        assert there[1] == beta.named("it") or isinstance(there[1], Named)
        [(_, (home, remote))] = await it.call("all")
        assert isinstance(home, Named)
        assert await home.call("get") == 3
        assert remote == it
        assert hash(remote) == hash(it)


async def test_timers_reach_actors_on_other_nodes_and_end_with_them(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        await show(beta, Recorder)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        alpha.timers.send_after(1.0, ref, "later")
        interval = alpha.timers.send_interval(1.0, ref, "beat")
        await trio.sleep(2.5)
        seen = await ref.call("all")
        assert "later" in seen
        assert [message.number for message in seen if isinstance(message, Tick)] == [0, 1]
        monitor = await alpha.start(Watcher)
        monitor.cast(ref)
        await ref.stop()
        await trio.sleep(0.1)
        assert not ref.alive
        assert not interval.active


# Bounds


async def test_calls_and_casts_beyond_what_may_wait_are_refused_and_dropped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = DistributionSettings(max_waiting_frames=10, max_backlog_messages=5, max_calls_out=8)
    async with two_nodes(settings=settings) as (network, alpha, beta):
        await show(beta, Recorder)
        it = alpha.remote("beta").named("it")
        for number in range(30):  # not connected yet: ten wait
            it.cast(number)
        with pytest.raises(NodeBusy):
            await it.call("all")
        assert alpha.stats.messages_dropped == 20
        await trio.sleep(0.1)
        assert [entry[1] for entry in await it.call("all")] == list(range(10))
        assert "20" not in caplog.text
        assert "1 messages to other nodes dropped" in caplog.text
        network.cut.add(frozenset(("alpha", "beta")))
        for _ in range(20):
            it.cast("x")
            await trio.sleep(0.01)
        with pytest.raises(NodeBusy) as caught:
            await it.call("all")
        assert caught.value.reason == ("nodebusy", "beta")
        network.cut.clear()
        network.changed()
        await trio.sleep(0.1)
        assert len(await it.call("all")) == 15


async def test_a_link_that_takes_no_more_is_a_lost_node(autojump_clock: MockClock) -> None:
    async with two_nodes() as (network, alpha, beta):
        await show(beta, Waiting)
        it = alpha.remote("beta").named("it")
        await it.lookup()
        network.links["alpha"].capacity = 0
        with pytest.raises(NodeDown):
            await it.call("anything", timeout_s=None)
        network.links["alpha"].capacity = 100
        ref = await it.lookup()
        assert ref is not None
        assert held(alpha) == NOTHING


async def test_a_peer_that_asks_too_much_at_a_time_is_refused(autojump_clock: MockClock) -> None:
    settings = DistributionSettings(max_calls_in=3, max_monitors=2)
    async with two_nodes(settings=settings) as (_, alpha, beta):
        await show(beta, Waiting)
        it = alpha.remote("beta").named("it")
        ref = it.ref
        assert ref is not None
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(it.call, "anything", None)
            await trio.sleep(0.1)
            with pytest.raises(MailboxFull) as caught:
                await it.call("one more")
            assert caught.value.limit == 3
            nursery.cancel_scope.cancel()
        watcher = await alpha.start(Watcher)
        for _ in range(3):
            watcher.cast(ref)
        await trio.sleep(0.1)
        assert [down.reason for down in await watcher.call("all")] == ["noconnection"]


async def test_refs_that_nobody_holds_are_forgotten(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Recorder)
        it = alpha.remote("beta").named("it")
        for _ in range(50):
            it.cast(await alpha.start(Counter, 0))
        await it.call("all")
        there = beta.named("it").ref
        assert there is not None
        assert distribution_of(beta).stats["proxies"] == 50
        there.kill()
        await trio.sleep(0.1)
        gc.collect()
        assert distribution_of(beta).stats["proxies"] == 0


# Mistakes


async def test_mistakes_are_named(autojump_clock: MockClock) -> None:
    async with System.open("loner") as loner:
        with pytest.raises(RuntimeError, match="give it a Distribution"):
            loner.remote("beta")
    async with two_nodes() as (network, alpha, _):
        distribution = distribution_of(alpha)
        with pytest.raises(ValueError, match="this node itself"):
            alpha.remote("alpha")
        with pytest.raises(ValueError, match="not the name of a node"):
            alpha.remote("no such\nname")
        distribution.publish("one")
        assert distribution.published == ["one"]
        for name in ("one", "", "x" * 256):
            with pytest.raises(ValueError, match="publish"):
                distribution.publish(name)
        with pytest.raises(Unsendable, match="only names that are texts travel"):
            await alpha.remote("beta").named("it").call(alpha.named(5))
        async with System.open("a name with spaces") as system:
            with pytest.raises(ValueError, match="cannot be the name of a node"):
                Distribution(system, network.links["alpha"])
        async with System.open("gamma") as system:
            wrong = Distribution(system, network.links["alpha"])
            with pytest.raises(ValueError, match="one name"):
                await wrong.serve()
            with pytest.raises(NodeDown):
                await system.remote("alpha").named("it").call("not served yet")
        with pytest.raises(ValueError, match="finite"):
            DistributionSettings(tick_s=0)
