"""Actors on another node: each test says one thing about them, on a virtual clock and a network in memory."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from actors import (
    CallTimeout,
    Down,
    Exit,
    ExitSignal,
    From,
    MailboxFull,
    Named,
    NoProc,
    NoReply,
    Ref,
    Reply,
    Server,
    ServiceSpec,
    Stop,
    System,
    Tick,
)
from actors.inbox import Received
from actors.link import PeerClosed
from actors.remote import (
    NODE_DOWN,
    NODE_UP,
    Codec,
    Distribution,
    DistributionSettings,
    NodeBusy,
    NodeDown,
    RemoteError,
    Undecodable,
    Unsendable,
)
from actors.remote.desk import Tie
from actors.remote.frames import Answer, Fault, Kill
from actors.remote.seals import Seals
from tests.actors.remote.memory_link import MemoryNetwork
from tests.actors.remote.nodes import NOTHING, held, node, two_nodes
from tests.actors.servers import Counter, Recorder, Slow, Trapper, Waiting, Watcher


def distribution_of(system: System) -> Distribution:
    assert system.distribution is not None
    return system.distribution


async def show(system: System, server: type[Server[Any]], arg: Any = None, name: str = "it") -> Ref:
    """Start an actor and publish it under its name."""
    ref = await system.start(server, arg, name=name)
    distribution_of(system).publish(name)
    return ref


class Keeper(Recorder):
    """A recorder that also takes calls of the form ("do", function name, arguments) to use its own abilities."""

    trap_exit = True

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Any:
        match request:
            case ("link", ref):
                self.link(ref)
            case ("unlink", ref):
                self.unlink(ref)
            case ("links",):
                return Reply(self.ref.process.links)
            case ("exit", ref, reason):
                self.exit(ref, reason)
            case ("me",):
                return Reply(self.ref)
            case ("end", reason):
                return Stop(reason, reply="ending")
            case _:
                return Reply(list(state))
        return Reply("done")


class Mortal(Keeper):
    """The same, not trapping exits."""

    trap_exit = False


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


# Monitors


async def test_a_monitor_on_another_node_fires_once_with_the_reason(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        await show(beta, Counter, 0)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        watcher = await alpha.start(Watcher)
        watcher.cast(ref)
        await trio.sleep(0.1)
        assert held(beta) == {**NOTHING, "monitors_in": 1}
        ref.cast("a reason")
        await trio.sleep(0.1)
        [down] = await watcher.call("all")
        assert isinstance(down, Down)
        assert (down.ref, down.reason) == (ref, "a reason")
        assert down.monitor.ref is ref
        watcher.cast(ref)
        await trio.sleep(0.1)
        assert [down.reason for down in await watcher.call("all")] == ["a reason", "noproc"]
        assert held(alpha) == held(beta) == NOTHING
        assert await ref.exited() == "a reason"


async def test_a_monitor_by_name_tells_of_whoever_has_it_now(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        first = await show(beta, Counter, 0)
        it = alpha.remote("beta").named("it").ref
        assert it is not None
        watcher = await alpha.start(Watcher)
        watcher.cast(it)
        await trio.sleep(0.1)
        first.kill()
        await trio.sleep(0.1)
        assert [down.reason for down in await watcher.call("all")] == ["killed"]
        assert it.alive  # a name, which may come to mean another


async def test_a_monitor_that_is_taken_back_is_forgotten_on_both_nodes(autojump_clock: MockClock) -> None:
    class Fickle(Recorder):
        def handle_cast(self, message: Ref, state: list[Any]) -> None:
            self.demonitor(self.monitor(message))

    async with two_nodes() as (_, alpha, beta):
        await show(beta, Counter, 0)
        ref = await alpha.remote("beta").whereis("it")
        fickle = await alpha.start(Fickle)
        fickle.cast(ref)
        await trio.sleep(0.1)
        assert held(alpha) == held(beta) == NOTHING
        ended = await alpha.start(Watcher)
        ended.cast(ref)
        await trio.sleep(0.1)
        assert held(beta) == {**NOTHING, "monitors_in": 1}
        ended.kill()
        await trio.sleep(0.1)
        assert held(alpha) == held(beta) == NOTHING


async def test_a_ref_of_a_node_that_nobody_knows_is_down_at_once(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, _beta):
        nobody = alpha.remote("nobody").named("it")
        with pytest.raises(NodeDown) as caught:
            await nobody.call("hello?")
        assert caught.value.reason == ("nodedown", "nobody")
        assert trio.current_time() < 0.1
        watcher = await alpha.start(Watcher)
        watcher.cast(nobody.ref)
        await trio.sleep(0.1)
        assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
        nobody.cast("hello?")
        nobody.send("hello?")
        assert held(alpha) == NOTHING


# Links and exit signals


async def test_linked_actors_on_two_nodes_share_their_fate(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha", "beta"}) as (_, alpha, beta):
        await show(alpha, Mortal)
        there = await show(beta, Keeper)
        here = alpha.named("it").ref
        assert here is not None
        ref = await alpha.remote("beta").whereis("it")
        await here.call(("link", ref))
        assert await here.call(("links",)) == [ref]
        await trio.sleep(0.1)
        [back] = await there.call(("links",))
        assert (back.node, back.pid) == ("alpha", here.pid)
        assert held(alpha) == {**NOTHING, "links": 1}
        here.exit("boom")
        await trio.sleep(0.1)
        [signal] = await there.call("all")
        assert signal == ExitSignal("boom", back)
        assert await there.call(("links",)) == []
        assert held(alpha) == held(beta) == NOTHING


async def test_the_end_of_the_other_ends_an_actor_that_does_not_trap(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        here = await alpha.start(Mortal)
        there = await show(beta, Keeper)
        await here.call(("link", await alpha.remote("beta").whereis("it")))
        await trio.sleep(0.1)
        there.exit("normal")
        await trio.sleep(0.1)
        assert here.alive
        await there.call(("end", "boom"))
        await trio.sleep(0.1)
        assert await here.exited() == "boom"
        assert held(alpha) == held(beta) == NOTHING


async def test_unlinked_actors_do_not(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        here = await alpha.start(Mortal)
        there = await show(beta, Mortal)
        ref = await alpha.remote("beta").whereis("it")
        await here.call(("link", ref))
        await here.call(("unlink", ref))
        await trio.sleep(0.1)
        assert held(alpha) == held(beta) == NOTHING
        await here.call(("link", ref))
        await trio.sleep(0.1)
        [back] = await there.call(("links",))
        await there.call(("unlink", back))
        await trio.sleep(0.1)
        assert await here.call(("links",)) == []
        assert held(alpha) == held(beta) == NOTHING
        here.kill()
        await trio.sleep(0.1)
        assert there.alive


async def test_links_from_both_sides_at_once_are_one_link(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha", "beta"}) as (_, alpha, beta):
        here, there = await show(alpha, Keeper), await show(beta, Keeper)
        there_ref = await alpha.remote("beta").whereis("it")
        here_ref = await beta.remote("alpha").whereis("it")
        assert await here.call(("link", there_ref)) == await there.call(("link", here_ref))
        await trio.sleep(0.1)
        assert await here.call(("links",)) == [there_ref]
        await here.call(("end", "boom"))
        await trio.sleep(0.1)
        assert await there.call("all") == [ExitSignal("boom", here_ref)]
        assert held(alpha) == held(beta) == NOTHING


async def test_a_link_to_somebody_who_is_not_there_is_an_exit_signal(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        there = await show(beta, Keeper)
        ref = await alpha.remote("beta").whereis("it")
        here = await alpha.start(Keeper)
        there.kill()
        await here.call(("link", ref))
        await trio.sleep(0.1)
        assert await here.call("all") == [ExitSignal("noproc", ref)]
        assert held(alpha) == held(beta) == NOTHING


async def test_exit_kill_and_stop_work_for_a_peer_that_may_control(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        told: list[Any] = []
        trapper = await show(beta, Trapper, told)
        it = alpha.remote("beta").named("it")
        ref = await it.lookup()
        assert ref is not None
        mine = await alpha.start(Keeper)
        await mine.call(("exit", ref, "please"))
        ref.exit(("shutdown", [1]))
        await trio.sleep(0.1)
        assert told == [("info", "please"), ("info", ("shutdown", [1]))]
        assert trapper.alive
        await ref.stop("enough")
        assert told[-1] == ("terminate", "enough")
        with pytest.raises(NoProc):
            await ref.stop()
        second = await beta.start(Counter, 0, name="it")
        ref = await it.lookup()
        assert ref is not None
        ref.exit("normal")
        await trio.sleep(0.1)
        assert second.alive
        watcher = await alpha.start(Watcher)
        watcher.cast(ref)
        await trio.sleep(0.1)
        ref.kill()
        await trio.sleep(0.1)
        assert [down.reason for down in await watcher.call("all")] == ["killed"]
        third = await beta.start(Counter, 0, name="it")
        ref = await it.lookup()
        assert ref is not None
        ref.exit(ValueError("a reason that is described"))
        await trio.sleep(0.1)
        assert third.process.reason == RemoteError("ValueError", "a reason that is described", "alpha")


# What a peer may not do


async def test_a_peer_that_may_not_control_ends_nobody(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        victim = await show(beta, Mortal)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        ref.exit("boom")
        ref.kill()
        with pytest.raises(NoProc):
            await ref.stop()
        mine = await alpha.start(Keeper)
        ref = await alpha.remote("beta").whereis("it")
        await mine.call(("link", ref))
        await trio.sleep(0.1)
        assert await mine.call("all") == [ExitSignal("noproc", ref)]
        mine.kill()
        await trio.sleep(0.1)
        assert victim.alive
        assert distribution_of(beta).stats["refused"] == 4
        assert held(alpha) == held(beta) == NOTHING


async def test_what_is_not_published_is_not_there(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await beta.start(Counter, 0, name="secret")
        await show(beta, Recorder)
        for name in ("secret", "root", "", "x" * 300):
            if name and len(name) < 256:
                with pytest.raises(NoProc):
                    await alpha.remote("beta").named(name).call("get")
        alpha.remote("beta").named("secret").cast(1)
        distribution_of(beta).unpublish("it")
        with pytest.raises(NoProc):
            await alpha.remote("beta").named("it").call("all")
        await trio.sleep(0.1)
        assert await beta.named("secret").call("get") == 0
        assert distribution_of(beta).stats["refused"] == 4


async def test_a_pid_without_its_seal_opens_nothing(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        victim = await show(beta, Counter, 0)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        pid, seal = ref.process.target  # type: ignore[attr-defined]  # a remote one
        references = distribution_of(alpha)._references
        creation = distribution_of(beta).creation
        for forged in ((pid, seal ^ 1), (pid + 1, seal), (pid, 0)):
            with pytest.raises(NoProc):
                await references.proxy("beta", creation, forged).ref.call("get")
            # Nor does it when it is sent home for somebody there to use.
            alpha.remote("beta").named("it").cast(0)
        assert references.proxy("beta", creation, (pid, seal)).ref is ref
        assert await victim.call("get") == 0
        assert await ref.call("get") == 0


async def test_a_forged_ref_that_comes_home_is_somebody_dead(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        there = await show(beta, Recorder)
        await beta.start(Counter, 0, name="secret")
        secret = beta.whereis("secret")
        assert secret is not None
        references = distribution_of(alpha)._references
        forged = references.proxy("beta", distribution_of(beta).creation, (secret.pid, 12345)).ref
        alpha.remote("beta").named("it").cast((forged, alpha.remote("beta").named("secret")))
        await trio.sleep(0.1)
        [(_, (ref, named))] = await there.call("all")
        assert not ref.alive
        with pytest.raises(NoProc):
            await named.call("get")
        ref.cast(1)
        named.cast(1)
        assert await secret.call("get") == 0


async def test_what_cannot_travel_is_the_senders_mistake_and_harms_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Counter, 0)
        it = alpha.remote("beta").named("it")
        with pytest.raises(Unsendable, match="object cannot travel"):
            await it.call(object())
        with caplog.at_level(logging.ERROR, "actors"):
            it.cast(object())
        assert "object cannot travel" in caplog.text
        assert distribution_of(alpha).stats["unsendable"] == 1

        class Unspeakable(Server[None]):
            def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
                return Reply(object())

        await show(beta, Unspeakable, name="unspeakable")
        with pytest.raises(Exit) as caught:
            await alpha.remote("beta").named("unspeakable").call(1)
        assert isinstance(caught.value.reason, RemoteError)
        assert caught.value.reason.type_name == "Unsendable"
        assert await it.call("get") == 0


async def test_a_type_that_only_one_node_knows_harms_one_message(autojump_clock: MockClock) -> None:
    @dataclass(frozen=True)
    class Point:
        x: int

    @dataclass(frozen=True)
    class Private:
        x: int

    codecs = (Codec(), Codec())
    for codec in codecs:
        codec.register(Point, "point")
    codecs[0].register(Private, "private")
    codecs[1].register(Private, "private under another name")
    async with two_nodes(codecs=codecs) as (_, alpha, beta):
        await show(beta, Recorder)
        it = alpha.remote("beta").named("it")
        it.cast(Point(1))
        it.cast(Private(1))
        with pytest.raises(Exit) as caught:
            await it.call(Private(2))
        assert isinstance(caught.value.reason, RemoteError)
        assert "no dataclass is registered here as 'private'" in caught.value.reason.text
        assert await it.call("all") == [("cast", Point(1))]
        assert distribution_of(beta).stats["undecodable"] == 2
        local = await beta.start(Recorder)
        local.cast(Private(3))
        distribution_of(beta).publish("local", local)
        with pytest.raises(Exit) as caught:
            await alpha.remote("beta").named("local").call("all")
        assert isinstance(caught.value.reason, Undecodable)


# When nodes are lost


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


# A peer whose node runs other code than ours


async def test_frames_whose_payload_is_nonsense_harm_nobody(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        there = await show(beta, Keeper)
        ref = await alpha.remote("beta").whereis("it")
        assert ref is not None
        target = ref.process.target  # type: ignore[attr-defined]  # a remote one
        slot = distribution_of(alpha)._switchboard.slot("beta")
        nonsense = b"\xff"
        now = trio.current_time()
        outcomes: list[Exit] = []

        async def fail(ask: Callable[[bytes, From], int | None]) -> None:
            from_ = From(ref.process)
            distribution_of(alpha)._router._asked(slot, ref.process, from_, ask(nonsense, from_))  # type: ignore[arg-type]
            with pytest.raises(Exit) as caught:
                await from_.wait(1.0)
            outcomes.append(caught.value)

        await fail(lambda payload, from_: slot.peer.call(target, payload, from_, now))
        await fail(lambda payload, from_: slot.peer.stop(target, payload, from_, now))
        slot.peer.cast(target, nonsense, now)
        slot.peer.send(target, nonsense, now)
        slot.peer.signal(target, nonsense, now)
        slot.peer.signal(target, Codec().encode("no pair"), now)
        slot.peer.link(target, Tie(there.process, ref.process), nonsense, now)  # type: ignore[arg-type]
        slot.peer.emit(Kill((99, 99)), now)
        slot.peer.emit(Answer(1, 2, -1, nonsense), now)
        slot.touch()
        await trio.sleep(0.1)
        assert [type(error.reason) for error in outcomes] == [RemoteError, RemoteError]
        assert await there.call("all") == []
        assert distribution_of(beta).stats["undecodable"] == 6
        assert held(alpha) == held(beta) == NOTHING


async def test_answers_that_are_nonsense_are_an_error_of_the_call(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, beta):
        await show(beta, Waiting)
        it = alpha.remote("beta").named("it")
        await it.lookup()
        slot = distribution_of(beta)._switchboard.slot("alpha")
        outcomes: list[object] = []

        async def call() -> None:
            with pytest.raises(Exit) as caught:
                await it.call("anything", None)
            outcomes.append(type(caught.value.reason))

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(call)
                await trio.sleep(0.1)
            (one, caller), (two, other) = slot.peer._serving.items()
            slot.peer.reply(one, caller, b"\xff", trio.current_time())
            slot.peer.fail(two, other, Fault.EXIT, b"\xff", trio.current_time())
            slot.touch()
        assert outcomes == [Undecodable, Undecodable]


async def test_a_caller_that_was_handed_on_hears_of_failures_too(autojump_clock: MockClock) -> None:
    class Lending(Server[Ref]):
        """Lets somebody else answer."""

        def handle_call(self, request: Any, from_: From, state: Ref) -> NoReply[Ref]:
            state.cast((request, from_))
            return NoReply()

    class Failing(Server[None]):
        """Answers with what cannot travel, or fails as the runtime does for it."""

        def handle_cast(self, message: Any, state: None) -> None:
            request, from_ = message
            match request:
                case "unsendable":
                    from_.reply(object())
                case "noproc":
                    from_.fail(NoProc("somebody"))
                case "exit":
                    from_.fail(Exit(("odd", object()), "somebody"))
                case "nothing":
                    pass
                case _:
                    self.system.remote("alpha").named("back").cast(from_)

    class Back(Server[None]):
        def handle_cast(self, message: From, state: None) -> None:
            message.reply("at home")

    async with two_nodes() as (_, alpha, beta):
        await show(beta, Failing)
        await show(alpha, Back, name="back")
        lending = await alpha.start(Lending, await alpha.remote("beta").whereis("it"))
        for request, reason in (("unsendable", RemoteError), ("noproc", str), ("exit", RemoteError)):
            with pytest.raises(Exit) as caught:
                await lending.call(request)
            assert type(caught.value.reason) is reason
        assert await lending.call("handed back") == "at home"
        with trio.move_on_after(1):
            await lending.call("nothing", None)
        assert distribution_of(alpha).stats["handed_callers"] == 0
        slot = distribution_of(beta)._switchboard.slot("alpha")
        slot.peer.emit(Answer(1, 2, -1, b"\x01"), trio.current_time())  # nobody, or forged: ignored
        slot.touch()
        await trio.sleep(0.1)


async def test_exit_signals_and_monitors_to_a_node_that_cannot_be_reached(autojump_clock: MockClock) -> None:
    async with two_nodes() as (_, alpha, _beta):
        nobody = alpha.remote("nobody").named("it").ref
        assert nobody is not None
        here = await alpha.start(Keeper)
        await here.call(("link", nobody))
        nobody.exit("boom")
        nobody.kill()
        await trio.sleep(0.1)
        assert await here.call("all") == [ExitSignal("noconnection", nobody)]
        service = next(actor for actor in alpha.actors() if "distribution" in repr(actor))
        await service.stop()
        nobody.exit("boom")
        nobody.kill()
        await here.call(("link", nobody))
        watcher = await alpha.start(Watcher)
        watcher.cast(nobody)
        await trio.sleep(0.1)
        assert len(await here.call("all")) == 2
        assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
        assert distribution_of(alpha).stats["dropped_signals"] == 3


async def test_a_directory_that_fails_is_a_node_that_nobody_knows(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_name: str) -> None:
        raise OSError("the directory is away")

    async with two_nodes() as (network, alpha, beta):
        await show(beta, Counter, 1)
        monkeypatch.setattr(network, "address_of", fail)
        with pytest.raises(NodeDown):
            await alpha.remote("beta").named("it").call("get")
        assert "the directory is away" in caplog.text


def test_a_secret_has_its_length() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Seals(b"short")
    seals = Seals(bytes(32))
    assert len({seals.of_actor(pid) for pid in range(70_000)} | {seals.of_caller(7)}) == 70_001
    assert seals.of_actor(5) == Seals(bytes(32)).of_actor(5) != Seals(bytes(31) + b"x").of_actor(5)
