"""`baton bench clients`: what is read of what comes, and the figures of it."""

import sys

import pytest
import trio

from batonpass.scenarios.bench.clients.course import COURSE
from batonpass.scenarios.bench.clients.plane import CLOCK, ROBOT, SIZE, Plane
from batonpass.scenarios.bench.clients.workers import on_echo
from batonpass.scenarios.bench.clients.workers.door_load import (
    BareDialect,
    LoadedServer,
    RoomDialect,
    WatchingClient,
    figures_of,
)
from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.events.workers.stream_load import served_by
from batonpass.simserver.world.pending_input import PendingInput


def test_each_row_is_a_figure_of_a_sample() -> None:
    for row in COURSE.rows:
        for subject in (OURS, *row.subjects):
            sample, _, figure = COURSE.work[subject, row.name].partition(":")
            assert (sample, bool(figure)) in {("view-200", True), ("area-400", True)}


def test_robots_change_both_coordinates_with_every_tick_and_the_clock_says_when() -> None:
    plane = Plane()
    state = plane.spawn(ROBOT, {"x": SIZE - 1, "y": 5, "dx": 37, "dy": 41})
    after = plane.step(state, [PendingInput("alpha.ada", 1, b"go")], 0.05)
    assert (after["x"], after["y"], after["inputs"]) == (36, 46, 1)
    clock = plane.spawn(CLOCK, {})
    marks = [plane.step(clock, [], 0.05)["at"] for _ in range(2)]
    assert marks == sorted(marks)
    assert all(mark[0] == "@" and len(mark) == 21 for mark in marks)


def test_figures_are_of_what_was_delivered() -> None:
    seen = LoadedServer(10, 2.0, 0.5, 20_000, latencies_s=[0.001 * n for n in range(1, 201)], inputs_s=[0.02, 0.03])
    figures = figures_of(seen)
    # 200 ticks were told of 10 * 2 s * 20 Hz = 400.
    assert figures["delivered"] == pytest.approx(0.5)
    assert figures["bytes"] == pytest.approx(1000)
    assert figures["cpu"] == pytest.approx(0.5 / (200 * 100) * 1e6)
    assert figures["clients"] == pytest.approx(200 / 20 / 0.5)
    assert (figures["p50"], figures["p99"], figures["input-p50"]) == pytest.approx((100, 198, 20))
    with pytest.raises(SystemExit):
        figures_of(LoadedServer(10, 2.0, 0.5))


def test_what_a_room_acknowledges() -> None:
    room = RoomDialect(1)
    assert room.an_input(7) == b"\x0d\xa5steer\xce\x00\x00\x00\x07"
    for number, encoded in ((7, b"\x07"), (200, b"\xcc\xc8"), (70_000, b"\xce\x00\x01\x11\x70")):
        assert room.acknowledged(b"\x0d\xa3ack" + encoded) == number
    assert room.acknowledged(b"\x0fpatch") == 0


async def test_messages_come_out_whole_however_they_were_cut_and_pings_are_answered() -> None:
    pongs: list[bytes] = []

    async def answer(listener: trio.SocketListener) -> None:
        async with await listener.accept() as peer:
            await peer.receive_some()
            # The first message comes with the end of the handshake.
            await peer.send_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x82\x05first\x89\x02hi")
            pongs.append(bytes(await peer.receive_some()))

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(answer, listener)
        client = await trio.to_thread.run_sync(WatchingClient, listener.socket.getsockname()[1], "/")
        assert await trio.to_thread.run_sync(client.next_message) == b"first"
    client.socket.close()
    assert pongs == [b"\x8a\x82\x00\x00\x00\x00hi"]
    sent = b"\x82\x02ab" + b"\x82\x7e\x01\x00" + b"x" * 256 + b"\x82\x7f" + (70_000).to_bytes(8, "big") + b"y" * 70_000
    for size in (1000, 70_000):
        whole = [each for at in range(0, len(sent), size) for each in client.take(sent[at : at + size])]
        assert whole == [b"ab", b"x" * 256, b"y" * 70_000]


def test_the_floor_is_measured() -> None:
    with served_by((sys.executable, "-m", on_echo.MODULE, "serve")) as (port, pid):
        figures = figures_of(LoadedServer.measured(BareDialect(port), pid, 3, 0.1, steers=True))
    assert 0 < figures["p50"] <= figures["p99"]
    assert figures["bytes"] > 0
    assert figures["input-p50"] > 0
