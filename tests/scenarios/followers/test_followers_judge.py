"""What the engines of a show have written, held against each other; what they write, and what they draw."""

import zlib

import pytest

from batonpass.scenarios.common.picture import TILE_PIXELS, drawn_tile, png_of
from batonpass.scenarios.followers.engine import MIN_STATE_BYTES, ParticleWorld
from batonpass.scenarios.followers.judge import judge_show, left_behind, ranges_of
from batonpass.scenarios.followers.records import NodeRecord, line_of, read_records

MS = 1_000_000


def node(name: str, *lines: tuple[object, ...]) -> NodeRecord:
    return read_records(name, [line_of(str(kind), *values) for kind, *values in lines])


def sent(*frames: int, name: str = "alpha.s1") -> NodeRecord:
    return node(
        name, ("begun", 0), *(("sent", frame, f"h{frame}", frame * 10 * MS, (frame * 10 - 2) * MS) for frame in frames)
    )


def applied(*frames: int, name: str = "alpha.s2") -> NodeRecord:
    return node(name, ("begun", 0), *(("applied", frame, f"h{frame}", (frame * 10 + 3) * MS) for frame in frames))


def test_a_show_in_which_all_show_the_same_has_nothing_wrong() -> None:
    found = judge_show([sent(1, 2, 3), applied(1, 2, 3)])
    assert (found.frames, found.divergent, found.sent_twice, found.backwards) == (3, (), (), ())
    assert found.latencies_ms == (3.0, 3.0, 3.0)
    assert found.whole_latencies_ms == (5.0, 5.0, 5.0), "R12: from await to apply"
    assert [each.dropped for each in found.nodes] == [(), ()]


def test_two_contents_of_a_frame_are_found() -> None:
    other = node("alpha.s3", ("applied", 2, "other", 0))
    assert judge_show([sent(1, 2), applied(1, 2), other]).divergent == (2,)


def test_a_number_that_two_controllers_have_sent_is_found_even_with_the_same_content() -> None:
    assert judge_show([sent(1, 2), sent(2, 3, name="alpha.s2")]).sent_twice == (2,)


def test_a_node_that_applies_a_frame_twice_or_an_earlier_one_is_found() -> None:
    assert judge_show([sent(1, 2), applied(1, 2, 2), applied(2, 1, name="alpha.s3")]).backwards == (
        "alpha.s2",
        "alpha.s3",
    )


def test_what_was_passed_over_and_what_each_node_has_dropped_is_named() -> None:
    found = judge_show([sent(1, 2, 3, 7, 8), applied(1, 3, 8)])
    assert found.passed_over == (4, 5, 6)
    assert found.nodes[1].dropped == (2, 7)
    assert ranges_of((*found.passed_over, 9)) == "4–6, 9"


def test_a_frame_that_its_killed_sender_did_not_write_down_was_sent() -> None:
    assert judge_show([sent(1, 2), applied(1, 2, 3), sent(5, name="alpha.s3")]).passed_over == (4,)


def test_how_long_it_takes_to_join_is_counted_in_frames() -> None:
    late = node("alpha.s3", ("begun", 35 * MS), ("applied", 6, "h6", 61 * MS))
    assert judge_show([sent(*range(10)), late]).nodes[1].joined_frames == 3


def test_who_shows_nothing_at_the_end_although_others_do_is_left_behind() -> None:
    running = ["alpha.s1", "alpha.s2", "alpha.s3", "alpha.s4"]
    newest = {"alpha.s1": 1_020, "alpha.s2": 1_001, "alpha.s3": 20, "alpha.s5": 7}
    assert left_behind(newest, running, 1_000) == ("alpha.s3", "alpha.s4")


def test_all_are_left_behind_by_a_show_in_which_no_frame_comes_any_more() -> None:
    servers = ["alpha.s1", "alpha.s2"]
    assert left_behind({"alpha.s1": 1_000, "alpha.s2": 20}, servers, 1_000) == tuple(servers)
    assert left_behind({}, ["alpha.s1"], 0) == ("alpha.s1",)


def test_a_line_that_was_cut_off_by_a_kill_is_not_read() -> None:
    assert len(read_records("alpha.s1", ["sent 1 h1 5 4\n", "sent 2 h"]).sent) == 1
    with pytest.raises(ValueError, match="no engine of this release"):
        read_records("alpha.s1", ["what 1\n"])


@pytest.mark.parametrize("size", [1_000, 65_920, 300_000])
def test_particles_move_by_chance_and_the_inputs_of_a_step_lead_to_its_state(size: int) -> None:
    one, other = ParticleWorld(size), ParticleWorld(size)
    assert len(one.state()) == size
    other.apply(one.state())
    one.step(0.1)
    other.step(0.1)
    assert one.state() != other.state()
    assert other.compute(one.inputs()) == one.state()
    assert len(one.inputs()) == MIN_STATE_BYTES + 16


def test_a_particle_on_the_edge_of_two_tiles_is_seen_in_both() -> None:
    left, right = (drawn_tile([(0.5, 0.5)], tile, 2) for tile in range(2))
    middle = TILE_PIXELS // 2 * TILE_PIXELS
    assert left[middle + TILE_PIXELS - 1] == right[middle] == 255
    assert left[middle] == right[middle + TILE_PIXELS - 1] == 0


def test_a_tile_is_a_png_file() -> None:
    data = png_of(bytes(range(6)), 3)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at = data.index(b"IDAT") + 4
    assert zlib.decompress(data[at:-16]) == b"\0\0\1\2\0\3\4\5"
