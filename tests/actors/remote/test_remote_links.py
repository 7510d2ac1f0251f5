"""Monitors and links between two nodes, and exit signals along and beside them."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from batonpass.actors import (
    Down,
    ExitSignal,
    NoProc,
    Ref,
)
from batonpass.actors.remote import (
    NodeDown,
    RemoteError,
)
from tests.actors.remote.keeper import Keeper, Mortal
from tests.actors.remote.nodes import NOTHING, held, show, two_nodes
from tests.actors.servers import Counter, Recorder, Trapper, Watcher

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
