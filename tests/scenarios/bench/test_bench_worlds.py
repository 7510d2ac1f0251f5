"""`baton bench worlds`: who is measured, that the work was done, and a core whose time is processor time."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.worlds.course import COURSE
from batonpass.scenarios.bench.worlds.in_a_row import ServersInARow
from batonpass.scenarios.bench.worlds.server import CoreClock
from batonpass.scenarios.bench.worlds.strip import Strip
from batonpass.scenarios.bench.worlds.workers import on_batonpass, on_numpy
from batonpass.simserver.world.validation import flaw


def test_every_row_has_a_worker_for_each_of_its_subjects() -> None:
    known = {*COURSE.workers, *(peer.name for peer in COURSE.peers)}
    for row in COURSE.rows:
        assert {OURS, *row.subjects} <= known


def test_what_is_slept_costs_no_time_and_what_is_computed_does() -> None:
    async def main() -> tuple[float, float]:
        began_s = trio.current_time()
        await trio.sleep(3600.0)
        slept_s = trio.current_time() - began_s
        sum(range(300_000))
        return slept_s, trio.current_time() - began_s - slept_s

    slept_s, computed_s = trio.run(main, clock=CoreClock())
    assert 3600.0 <= slept_s < 3601.0
    assert computed_s > 0.0


def test_all_that_is_measured_is_measured() -> None:
    async def main() -> None:
        server = on_batonpass.flock(50)
        assert await on_batonpass.ticks_ms(server, 0.01) > 0
        assert await on_batonpass.inputs(0.01) > 0
        assert await on_batonpass.alone(0.01) > 0
        figures = await on_batonpass.copies(50, 3.0)
        assert figures["kept"] == 1.0
        # Each is copied with every interval, since it has always moved.
        assert 0.5 < figures["again"] < 1.6
        assert 290 <= figures["size"] <= 310
        assert server.counts["copies_unsent"] == 0

    trio.run(main, clock=CoreClock())
    assert on_numpy.tick_ms(50, 0.01) > 0


@pytest.mark.parametrize(("servers", "percent", "ghosts"), [(1, 50, 0), (2, 50, 40), (3, 10, 16)])
def test_servers_in_a_row_show_each_other_what_is_near_their_borders(servers: int, percent: int, ghosts: int) -> None:
    async def main() -> None:
        row = ServersInARow(servers, 40, percent / 100)
        assert row.ghosts == ghosts
        # The measurement ends itself if there are other ghosts than these.
        figures = await row.measured(0.01)
        assert figures["tick"] > 0
        assert (figures["bytes"] > 0) == (ghosts > 0)

    trio.run(main, clock=CoreClock())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12), st.integers(0, 3))
def test_points_of_a_strip_are_where_they_began_however_others_come_and_go(
    comings: list[tuple[str, bool]], ticks: int
) -> None:
    strip, there = Strip(), dict[str, float]()
    for number, (name, comes) in enumerate(comings):
        if comes and name not in there:
            there[name] = float(number)
            strip.enter(name, strip.spawn("point", {"at": number}))
        elif not comes and name in there:
            assert abs(strip.leave(name)["at"] - there.pop(name)) < 0.01
        for _ in range(ticks):
            strip.step_all(None, 0.05)  # type: ignore[arg-type]
            strip.undo()
            strip.step_all(None, 0.05)  # type: ignore[arg-type]
        assert strip.encode_all(list(there)) == [strip.encode(one) for one in there]
        assert [strip.position(strip.encode(one)) for one in there] == [
            tuple(at) for at in strip.positions(list(there))
        ]
    assert all(abs(strip.encode(name)["at"] - at) < 0.01 for name, at in there.items())
    assert flaw(strip) == ""
