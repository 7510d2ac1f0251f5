"""What a peer may not do to a node, whether it means ill or runs other code."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from batonpass.actors import (
    Exit,
    ExitSignal,
    From,
    NoProc,
    NoReply,
    Ref,
    Reply,
    Server,
)
from batonpass.actors.remote import (
    Codec,
    NodeDown,
    RemoteError,
    Undecodable,
    Unsendable,
)
from batonpass.actors.remote.desk import Tie
from batonpass.actors.remote.frames import AnswerFrame, KillFrame, RequestFault
from batonpass.actors.remote.seals import Seals
from tests.actors.remote.keeper import Keeper, Mortal
from tests.actors.remote.nodes import NOTHING, distribution_of, held, show, two_nodes
from tests.actors.servers import Counter, Recorder, Waiting, Watcher

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
        slot.peer.emit(KillFrame((99, 99)), now)
        slot.peer.emit(AnswerFrame(1, 2, -1, nonsense), now)
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
            slot.peer.fail(two, other, RequestFault.EXIT, b"\xff", trio.current_time())
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
        slot.peer.emit(AnswerFrame(1, 2, -1, b"\x01"), trio.current_time())  # nobody, or forged: ignored
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
