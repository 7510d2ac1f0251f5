"""Shows of a server: frames reach its followers, nothing is sent that may not be, and an engine that fails is alone."""

import threading  # noqa: TID251 — engines wait in their own threads
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from batonpass.actors import System
from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.shows import ShowMember, ShowMembers, ShowNode
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.sync.followers.begun_frames import MAX_BEGUN
from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.images import RenderedImage, SentImage
from batonpass.simserver.sync.followers.settings import MAX_STATE_BYTES
from batonpass.simserver.sync.followers.structs import CameraResponseData, FrameDataFlag, RenderStreamError, RsError
from batonpass.simserver.sync.shows import host, membership
from batonpass.simserver.sync.shows.engine_thread import EngineProgram
from batonpass.simserver.sync.shows.host import HostedShows, wire_epoch
from batonpass.simserver.sync.shows.ports import ShowLinks, ShowPorts
from batonpass.simserver.sync.shows.status import ShowRefused, ShowStatus
from batonpass.simserver.sync.shows.world import Shows, held_input, limit_input
from tests.simserver.entity.test_passivation import Population
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import Stage
from tests.simserver.sync.hosting.test_host import Copies, Home

pytestmark = pytest.mark.timeout(120)

WALL = "alpha.show-wall"
KEY = b"k" * 32
PORTS = ShowPorts(random_bytes=lambda _: KEY)


class Screen:
    """An engine that keeps what it has sent or received."""

    def __init__(self) -> None:
        self.awaited = -1
        self.sent: list[int] = []
        self.received: list[tuple[int, bytes]] = []
        self.fails = threading.Event()
        self.opens_fences = False
        self.may_go = threading.Event()
        self.may_go.set()
        self.ended: list[str] = []
        self.images: list[SentImage] = []
        self.resets: list[tuple[int, float]] = []
        self.payload_version = self.more_bytes = 0

    def __call__(self, node: EngineNode, server: str) -> None:
        try:
            self.show(node, server)
        finally:
            self.ended.append(server)

    def show(self, node: EngineNode, server: str) -> None:
        node.payload_version, node.sink = self.payload_version, self.images.append
        while True:
            try:
                data = node.await_frame_data(100)
                self.awaited = node.frame
                if data.flags & FrameDataFlag.RESET:
                    self.resets.append((node.frame, data.local_time))
                self.may_go.wait()
                if self.fails.is_set():
                    raise ZeroDivisionError("poison")
                if node.is_controller():
                    node.continued_state()
                    state = f"{server} {node.frame}".encode() + bytes(self.more_bytes)
                    node.send_follower_data(state)
                    self.sent.append(node.frame)
                else:
                    if self.opens_fences:
                        node.open_fence(node.frame)
                    state = node.receive_follower_data(100)
                    self.received.append((node.frame, state))
                for stream, camera in node.frame_cameras():
                    image = RenderedImage(state[:8], stream.width, stream.height)
                    node.send_frame(stream.handle, image, CameraResponseData(data.t_tracked, camera))
            except RenderStreamError as error:
                if error.code is RsError.QUIT:
                    return
                if error.code not in {RsError.TIMEOUT, RsError.STREAMS_CHANGED}:
                    raise


OPTIONS: dict[str, Any] = {"shows": ["wall"]}


def _shows() -> Any:
    return Shows("package.module:engine", **OPTIONS)


class Server:
    """One server with shows; the first of a pair has the entities."""

    def __init__(self, name: str, system: System, pair: "Pair", *, has_entities: bool) -> None:
        self.name, self.screen, self.copies = name, Screen(), Copies()
        self.world = _shows()
        self.population = Population(system, self.world) if has_entities else None
        stage = Stage(system, name, self.world) if self.population is None else self.population.stage
        self.environment = stage.environment
        self.holdings = Holdings(stage.environment, Written()) if self.population is None else self.population.holdings
        self.counts = stage.counts
        self.leased = True
        self.stop, self.stopped = trio.CancelScope(), trio.Event()
        object.__setattr__(stage.environment, "keeps_copies", lambda: True)
        self.asked_for_leases = 0
        object.__setattr__(stage.environment, "may_act", self._may_act)
        self.shows = HostedShows(
            ShowLinks(server=name, instance="alpha", host="127.0.0.1", send=pair.send(name), ports=PORTS),
            self.world,
            stage.environment,
            self.holdings,
            self.copies,  # type: ignore[arg-type]
            pair.home,
            Clock(),
            self.counts,
            EngineProgram(self.screen, max_state_bytes=self.world.settings.get("max_state_bytes", MAX_STATE_BYTES)),
        )

    def _may_act(self, _now_ns: int) -> bool:
        self.asked_for_leases += 1
        return self.leased

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.stop:
            await self.shows.serve(task_status=task_status)
        self.stopped.set()

    def seen(self) -> ShowStatus:
        """What operators see of the show here."""
        (show,) = self.shows.inspect()
        return show


class Pair:
    """Two servers of an instance."""

    def __init__(self, system: System) -> None:
        self.home = Home()
        self.home.authority = "alpha.s1"
        self.nursery: trio.Nursery | None = None
        self.one = Server("alpha.s1", system, self, has_entities=True)
        self.two = Server("alpha.s2", system, self, has_entities=False)
        self.messages: list[ShowNode | ShowMembers] = []
        self.said: list[tuple[ShowNode | ShowMembers, str]] = []
        self.between_ticks = trio.Lock()

    def send(self, sender: str) -> Any:
        def send(message: ShowNode | ShowMembers, to: str) -> None:
            self.messages.append(message)
            self.said.append((message, to))
            if to not in (self.one.name, self.two.name):
                return
            target = self.one if to == self.one.name else self.two
            if isinstance(message, ShowNode):
                target.shows.node_said(message, sender, "127.0.0.1")
            elif self.nursery is not None:
                self.nursery.start_soon(target.shows.members_said, message, sender, "127.0.0.1")

        return send

    def open(self, **params: str) -> Holding:
        return self.one.holdings.spawn(WALL, "show", params, Fence(1), Ownership("alpha.ada", 1))

    async def ticks(self) -> None:
        assert self.one.population is not None
        feed, number = self.one.environment.feed, 0
        while True:
            await trio.sleep(0.02)
            async with self.between_ticks:
                number += 1
                feed.round_begins(number)
                await self.one.population.round()
                feed.round_is_over()


@asynccontextmanager
async def playing(system: System) -> AsyncIterator[Pair]:
    pair = Pair(system)
    assert pair.one.population is not None
    await pair.one.population.start()
    async with trio.open_nursery() as nursery:
        pair.nursery = nursery
        await nursery.start(pair.one.serve)
        await nursery.start(pair.two.serve)
        nursery.start_soon(pair.ticks)
        yield pair
        nursery.cancel_scope.cancel()


async def until(holds: Any) -> None:
    with trio.fail_after(60):
        while True:
            if holds():
                return
            await trio.sleep(0.01)


async def test_a_follower_shows_exactly_what_the_controller_has_sent_for_each_frame(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: len(pair.two.screen.received) > 20)
        assert pair.two.screen.received == [
            (frame, f"alpha.s1 {frame}".encode()) for frame, _ in pair.two.screen.received
        ]
        assert set(dict(pair.two.screen.received)) <= set(pair.one.screen.sent)
        assert pair.two.seen().controller == "alpha.s1"


async def test_an_engine_is_given_the_streams_of_its_own_server_with_their_cameras(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_wall = [
        {"server": f"alpha.s{number}", "name": f"tile {number}", "width": 2, "height": 1, "camera": {"x": number}}
        for number in (1, 2)
    ]
    monkeypatch.setitem(OPTIONS, "streams", of_a_wall)
    async with playing(system) as pair:
        pair.open()
        await until(lambda: len(pair.two.screen.images) > 5 and len(pair.one.screen.images) > 5)
        for number, server in enumerate((pair.one, pair.two), 1):
            assert {(image.stream.name, image.response.camera.x) for image in server.screen.images} == {
                (f"tile {number}", float(number))
            }
        shown = dict(pair.two.screen.received)
        assert all(image.image.pixels == shown[image.frame][:8] for image in pair.two.screen.images)


async def test_a_state_larger_than_the_settings_allow_is_refused_where_it_is_sent(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS, "settings", {"max_state_bytes": 9})
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.one.seen().engine.state == "failed")
        assert "more than the limit of 9" in pair.one.seen().engine.error


async def test_a_frame_that_does_not_fit_its_period_is_warned_of_once(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(OPTIONS, "settings", {"pace_bytes_per_s": 20_000_000})
    async with playing(system) as pair:
        pair.one.screen.more_bytes = 2_000_000
        pair.open()
        await until(lambda: pair.one.seen().counters.get("frame_over_period", 0) > 3 and pair.two.screen.received)
        assert pair.two.screen.received[0][1][:8] == b"alpha.s1"
    told = [record.getMessage() for record in caplog.records if "did not fit its period" in record.getMessage()]
    assert told == [f"a frame of {WALL} did not fit its period: send less, or at a lower rate"]


async def test_a_node_whose_engine_reads_another_version_shows_nothing_and_is_named(system: System) -> None:
    async with playing(system) as pair:
        pair.one.screen.payload_version = 2
        pair.open()
        await until(lambda: pair.two.seen().engine.state == "failed")
        assert "payload version 2, this engine reads 0" in pair.two.seen().engine.error
        assert pair.two.screen.received == []
        await until(lambda: ("alpha.s2", "version") in {(drop.node, drop.reason) for drop in pair.one.seen().drops})


async def test_an_operator_resets_a_show_at_its_controller(system: System) -> None:
    async with playing(system) as pair:
        holding = pair.open()
        await until(lambda: pair.two.screen.received)
        with pytest.raises(ShowRefused, match="ask there"):
            pair.two.shows.reset(WALL)
        assert not pair.two.screen.resets
        pair.one.shows.reset(WALL)
        await until(lambda: pair.two.screen.resets and pair.one.screen.resets)
        ((first, begins_s),), ((later, passed_s),) = pair.one.screen.resets, pair.two.screen.resets
        assert begins_s == 0.0
        # A follower that is late passes over frames: it resets with the next one that it shows.
        assert later >= first
        assert passed_s == pytest.approx((later - first) / 60)
        holding.life.freeze()
        with pytest.raises(ShowRefused, match="about to move"):
            pair.one.shows.reset(WALL)


async def test_an_engine_opens_the_external_fence_of_its_node(system: System) -> None:
    async with playing(system) as pair:
        pair.open(fence="external")
        # For longer than the engine is given frames late: it has to come back from there.
        await until(lambda: pair.two.seen().counters.get("dropped_fence", 0) > 2 * MAX_BEGUN)
        assert pair.two.screen.received == []
        pair.two.screen.opens_fences = True
        await until(lambda: pair.two.screen.received)


async def test_nothing_is_sent_above_a_limit_that_copies_are_not_known_to_keep(system: System) -> None:
    async with playing(system) as pair:
        pair.one.copies.answer = False
        holding = pair.open()
        await until(lambda: holding.life.seen["limit"] > 0)
        await trio.sleep(0.2)
        assert (pair.one.screen.sent, pair.two.screen.received) == ([], [])
        pair.one.copies.confirm()
        pair.one.copies.answer = True
        await until(lambda: pair.two.screen.received)


async def test_a_controller_whose_copy_went_to_a_dead_server_has_another_one_made_at_once(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks who may keep copies, and does not wait until the limit is to be raised again, after half the lead."""
    monkeypatch.setitem(OPTIONS, "lead_s", 60.0)
    async with playing(system) as pair:
        pair.one.copies.answer = False
        holding = pair.open()
        await until(lambda: holding.life.seen["limit"] > 0 and pair.one.copies.asked)
        assert pair.one.copies.learnt == 1
        pair.one.copies.lose()
        pair.one.copies.answer = True
        with trio.fail_after(20):
            await until(lambda: pair.two.screen.received)
        asked = pair.one.copies.asked
        received = len(pair.two.screen.received)
        await until(lambda: len(pair.two.screen.received) > received + 20)
        assert pair.one.copies.asked == asked, "while it may send, copies are made when the limit rises"


async def test_a_follower_keeps_the_links_that_it_needs_when_it_takes_over(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "SAID_AGAIN_NS", 20_000_000)
    async with playing(system) as pair:
        pair.two.copies.replicas = ("alpha.s1", "alpha.s2", "alpha.s3")
        pair.open()
        await until(lambda: len([to for message, to in pair.said if to == "alpha.s3"]) > 2)
        assert all(isinstance(message, ShowNode) for message, to in pair.said if to == "alpha.s3")
        assert pair.one.seen().controller == pair.two.seen().controller == "alpha.s1"


async def test_a_server_that_keeps_no_copies_waits_for_its_own_store(system: System) -> None:
    async with playing(system) as pair:
        owes = True
        object.__setattr__(pair.one.environment, "keeps_copies", lambda: False)
        object.__setattr__(pair.one.copies, "owes_checkpoint", lambda _entity: owes)
        holding = pair.open()
        await until(lambda: holding.life.seen["limit"] > 0)
        await trio.sleep(0.2)
        assert pair.one.screen.sent == []
        owes = False
        holding.life.take_own_input(limit_input(holding.life.seen["limit"] + 1))
        await until(lambda: pair.two.screen.received)


async def test_nothing_is_sent_without_a_lease(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        pair.one.leased = False
        await trio.sleep(0.1)
        before = list(pair.two.screen.received)
        asked = pair.one.asked_for_leases
        await trio.sleep(0.2)
        assert pair.two.screen.received == before
        assert pair.one.asked_for_leases - asked < 300, "it waits, and does not look again and again"


async def test_a_show_that_may_leave_stops_and_a_refused_hand_over_continues_with_the_next_frame(
    system: System,
) -> None:
    async with playing(system) as pair:
        holding = pair.open()
        await until(lambda: len(pair.two.screen.received) > 3)
        holding.life.freeze()
        part = pair.one.world.participants["show"]
        first = part.dehydrate(WALL, holding.life.seen)
        sent = [frame for frame, _ in pair.two.screen.received]
        await trio.sleep(0.2)
        received = [frame for frame, _ in pair.two.screen.received]
        assert max(sent) <= max(received) < first
        holding.life.resume(Fence(2))
        await until(lambda: pair.two.screen.received[-1][0] >= first)
        assert pair.two.seen().epoch == wire_epoch(Fence(2))


async def test_what_is_frozen_twice_before_its_next_tick_has_sent_nothing_in_between(system: System) -> None:
    """What it takes along was asked for once: with the frame that was the next the first time."""
    async with playing(system) as pair:
        holding = pair.open()
        await until(lambda: len(pair.two.screen.received) > 3)
        async with pair.between_ticks:
            first = pair.one.seen().newest
            assert first is not None
            holding.life.freeze()
            holding.life.resume(Fence(2))
            await until(lambda: pair.two.seen().epoch == wire_epoch(Fence(2)))
            await trio.sleep(0.2)
            assert holding.life.freeze() is not None
            assert pair.one.seen().newest == first
            holding.life.resume(Fence(3))
        await until(lambda: pair.two.screen.received[-1][0] > first)


async def test_a_hand_over_uses_no_number_that_the_engine_of_the_controller_was_given(system: System) -> None:
    """It may have shown that frame, with what no other node gets."""
    async with playing(system) as pair:
        holding, screen = pair.open(), pair.one.screen
        await until(lambda: pair.two.screen.received)
        screen.may_go.clear()
        await until(lambda: screen.awaited > screen.sent[-1])
        try:
            assert pair.one.world.participants["show"].dehydrate(WALL, holding.life.seen) > screen.awaited
        finally:
            screen.may_go.set()


async def test_an_engine_that_fails_ends_its_part_alone(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        pair.two.screen.fails.set()
        await until(lambda: pair.two.counts["show_engines_failed"] == 1)
        sent = len(pair.one.screen.sent)
        await until(lambda: len(pair.one.screen.sent) > sent)
        assert pair.two.seen().engine.state == "failed"
        assert pair.two.seen().engine.error == "ZeroDivisionError: poison"
        assert pair.two.seen().newest is not None, "what it did until then is still to be seen"


async def test_a_controller_whose_engine_fails_asks_until_the_show_has_left(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SAID_AGAIN_NS", 1_000_000)
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        goes = list[tuple[str, str]]()
        object.__setattr__(pair.one.environment, "wants_to_go", lambda *to: goes.append(to))
        pair.one.screen.fails.set()
        await until(lambda: len(goes) > 2)
        assert set(goes) == {(WALL, "alpha.s2")}, "what was refused, or could not be done at that moment, is said again"


async def test_a_node_that_is_held_is_ignored_until_it_is_released_and_the_show_remembers_it(system: System) -> None:
    async with playing(system) as pair:
        holding = pair.open()
        await until(lambda: pair.two.screen.received)
        last = pair.one.screen.sent[-1]
        pair.one.shows.hold(WALL, "alpha.s2", is_held=True)
        await until(lambda: holding.life.seen.get("held") == ["alpha.s2"])
        assert pair.one.seen().held == ["alpha.s2"]
        assert next(node for node in pair.one.seen().nodes if node.name == "alpha.s2").held
        # It still says that it takes part: that releases a node that failed, and none that an operator holds.
        said = next(each for each in pair.messages if isinstance(each, ShowNode))
        pair.one.shows.node_said(said, "alpha.s2", "127.0.0.1")
        await until(lambda: pair.one.screen.sent[-1] > last + 10)
        # The engine of the controller may have been between two frames.
        assert pair.two.screen.received[-1][0] <= last + 1
        pair.one.shows.hold(WALL, "alpha.s2", is_held=False)
        await until(lambda: pair.two.screen.received[-1][0] > last + 10)
        await until(lambda: holding.life.seen.get("held") == [])


async def test_a_controller_that_takes_over_holds_whom_operators_have_held(system: System) -> None:
    async with playing(system) as pair:
        holding = pair.one.holdings.spawn(WALL, "show", {}, Fence(1), Ownership("alpha.ada", 1))
        holding.life.take_own_input(held_input("alpha.s2", is_held=True))
        await until(lambda: holding.life.seen.get("held"))
        holding.life.freeze()
        holding.life.resume(Fence(2))
        await until(lambda: pair.one.seen().epoch == wire_epoch(Fence(2)))
        assert pair.one.seen().held == ["alpha.s2"]


async def test_what_cannot_be_held_is_refused_with_a_stable_code(system: System) -> None:
    async with playing(system) as pair:
        holding = pair.open()
        await until(lambda: pair.two.screen.received)

        def refused(server: Server, node: str, *, is_held: bool = True, entity: str = WALL) -> str:
            with pytest.raises(ShowRefused) as error:
                server.shows.hold(entity, node, is_held=is_held)
            return error.value.code

        assert refused(pair.one, "alpha.s2", entity="alpha.show-door") == "not_here"
        assert refused(pair.two, "alpha.s1") == "not_controller"
        assert refused(pair.one, "alpha.s1") == "is_controller"
        assert refused(pair.one, "beta.s1") == "cannot_hold"
        # No such server.
        assert refused(pair.one, "alpha.s9") == "cannot_hold"
        assert refused(pair.one, "alpha.s2", is_held=False) == "not_held"
        holding.life.freeze()
        assert refused(pair.one, "alpha.s2") == "show_moves"
        assert pair.one.seen().held == []


async def test_a_server_that_stops_tells_its_engines_to_quit_and_waits_for_them(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        pair.two.stop.cancel()
        with trio.fail_after(60):
            await pair.two.stopped.wait()
        assert pair.two.screen.ended == ["alpha.s2"]
        assert pair.two.counts["show_engines_failed"] == 0
        # The show goes on without it, and it is waited for no more.
        sent = pair.one.screen.sent[-1]
        await until(lambda: pair.one.screen.sent[-1] > sent + 5)


async def test_an_engine_that_hangs_is_told_of_and_left_behind_when_its_server_stops(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "BUSY_NS", 50_000_000)
    monkeypatch.setattr(host, "QUIT_WAIT_S", 0.1)
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        goes = list[tuple[str, str]]()
        object.__setattr__(pair.one.environment, "wants_to_go", lambda *to: goes.append(to))
        pair.one.screen.may_go.clear()
        await until(lambda: pair.one.counts["show_engines_busy"] == 1)
        assert pair.one.seen().engine.busy_ms >= 50
        assert goes[0] == (WALL, "alpha.s2"), "the show is to go where an engine does something"
        pair.one.stop.cancel()
        with trio.fail_after(60):
            await pair.one.stopped.wait()
        assert pair.one.counts["show_engines_left_behind"] == 1
        pair.one.screen.may_go.set()


async def test_a_show_that_is_deleted_tells_all_its_engines_to_quit(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        pair.one.holdings.leave(WALL, "", Fence(2))
        await trio.sleep(0.6)
        assert not pair.two.screen.ended, "no server has it at this moment, as while another one takes it over"
        assert not pair.one.screen.ended
        pair.home.authority = None
        await until(lambda: pair.two.screen.ended and pair.one.screen.ended)
        assert pair.two.seen().engine.state == "ended"
        assert pair.one.counts["show_engines_failed"] == pair.two.counts["show_engines_failed"] == 0


async def test_who_is_not_the_controller_by_the_home_instance_gives_no_key(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        said = next(each for each in pair.messages if isinstance(each, ShowMembers))
        false = said.model_copy(update={"epoch": said.epoch + 1})
        await pair.two.shows.members_said(false, "alpha.s3", "127.0.0.1")
        assert pair.two.counts["show_members_refused"] == 1
        assert pair.two.seen().controller == "alpha.s1"
        stranger = ShowNode(entity=WALL, epoch=0, port=9, public=KEY)
        pair.one.shows.node_said(stranger, "beta.s1", "127.0.0.1")
        assert "beta.s1" not in [node.name for node in pair.one.seen().nodes]


async def test_a_packet_that_is_not_sealed_with_the_key_is_counted_and_nothing_else(system: System) -> None:
    async with playing(system) as pair:
        pair.open()
        await until(lambda: pair.two.screen.received)
        members = [each for each in pair.messages if isinstance(each, ShowMembers)][-1]
        address = next((node.host, node.port) for node in members.nodes if node.name == "alpha.s2")
        with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as stranger:
            await stranger.sendto(b"x" * 100, address)
        await until(lambda: pair.two.counts["show_packets_refused"] >= 1)
        seen = len(pair.two.screen.received)
        await until(lambda: len(pair.two.screen.received) > seen)


def test_of_two_fences_the_higher_one_has_the_higher_epoch_and_none_is_made_up() -> None:
    fences = [Fence(1), Fence(1, 1), Fence(2), Fence(2, 65_535), Fence(3)]
    assert sorted(fences, key=wire_epoch) == fences
    assert wire_epoch(Fence(1, 65_536)) == wire_epoch(Fence(2**47)) == 0


def test_members_travel_whole() -> None:
    member = ShowMember(name="alpha.s1", number=1, host="127.0.0.1", port=9, public=KEY)
    with pytest.raises(ValueError, match="public"):
        ShowMember(**member.model_dump() | {"public": b"short"})
