"""The streams of servers, as options of their world say: read to the end, or refused with what to write."""

from typing import Any

import pytest

from batonpass.simserver.sync.followers.structs import ProjectionClipping
from batonpass.simserver.sync.shows.server_streams import MAX_STREAMS, read_streams
from batonpass.simserver.sync.shows.world import Shows

LEFT = {"server": "alpha.s1", "name": "left", "width": 640, "height": 360}


def test_streams_have_handles_in_their_order_and_a_camera_each() -> None:
    right = LEFT | {"name": "right", "server": "alpha.s2", "clipping": [0.5, 1, 0, 1], "channel": "Fog"}
    left, other = read_streams([LEFT, right | {"camera": {"z": -5, "focal_length": 30.5}}])
    assert (left.server, left.stream.handle, left.stream.clipping) == ("alpha.s1", 1, ProjectionClipping())
    assert (other.server, other.stream.handle, other.stream.channel) == ("alpha.s2", 2, "Fog")
    assert other.stream.clipping == ProjectionClipping(0.5, 1.0, 0.0, 1.0)
    assert (other.camera.id, other.camera.z, other.camera.focal_length) == (2, -5.0, 30.5)


@pytest.mark.parametrize(
    ("streams", "why"),
    [
        ("left", "give a list of tables"),
        ([1], "give a table with server"),
        ([LEFT] * (MAX_STREAMS + 1), "give at most 1,024"),
        ([LEFT, LEFT | {"server": "alpha.s2"}], "two streams are named 'left'"),
        ([LEFT | {"colour": 1}], "a stream has no 'colour': there are camera, channel, clipping"),
        ([LEFT | {"server": "s1"}], "is not a name like 'alpha.s1'"),
        ([LEFT | {"server": None}], "the server of stream 1 is None"),
        ([LEFT | {"name": ""}], "the name of stream 1 is ''"),
        ([LEFT | {"width": 0}], "give 1 to 32,768"),
        ([LEFT | {"width": True}], "give 1 to 32,768"),
        ([LEFT | {"height": 10**6}], "give 1 to 32,768"),
        ([LEFT | {"clipping": [0, 1]}], "give left, right, top and bottom"),
        ([LEFT | {"clipping": "wide"}], "give left, right, top and bottom"),
        ([LEFT | {"clipping": [0, 1, 0, "x"]}], "give numbers"),
        ([LEFT | {"camera": {"id": 3}}], "it may have x, y, z"),
        ([LEFT | {"camera": 3}], "it may have x, y, z"),
        ([LEFT | {"camera": {"x": float("nan")}}], "give numbers"),
    ],
)
def test_streams_that_make_no_sense_are_refused_when_the_server_starts(streams: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Shows("package.module:engine", streams=streams)
