"""What cannot be an input is refused where it is given, and has no number; nor does a name that is none come in."""

from typing import Any

import pytest

from batonpass.authority.wire.player import MAX_INPUT_BYTES
from batonpass.client.client import connect
from batonpass.client.input_stream import InputStream
from batonpass.client.steering import Steering
from batonpass.crypto.keys import Identity


@pytest.mark.parametrize(
    ("data", "error"),
    [("abc", TypeError), (None, TypeError), ([1], TypeError), (bytes(MAX_INPUT_BYTES + 1), ValueError)],
)
async def test_what_no_door_takes_is_refused_at_once(data: Any, error: type[Exception]) -> None:
    sent: list[Steering] = []
    steering = Steering(InputStream("alpha.ball", "alpha.s1"), lambda: 0.0, sent.append)
    with pytest.raises(error):
        await steering.give(data)
    assert (steering.stream.sent, sent) == (0, [])
    assert await steering.give(bytearray(MAX_INPUT_BYTES)) == 1
    assert steering.stream.as_input(*steering.stream.next_to_send()[0]).data == bytes(MAX_INPUT_BYTES)


async def test_a_name_that_is_none_does_not_come_in() -> None:
    with pytest.raises(ValueError, match="bad name"):
        async with connect("http://127.0.0.1:1", player="bad name", identity=Identity.generate()):
            pass
