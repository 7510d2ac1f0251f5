"""`baton bench worlds`: who is measured, that the work was done, and a core whose time is processor time."""

import trio

from batonpass.scenarios.bench.comparison import OURS
from batonpass.scenarios.bench.worlds.course import COURSE
from batonpass.scenarios.bench.worlds.server import CoreClock
from batonpass.scenarios.bench.worlds.workers import on_batonpass, on_numpy


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
