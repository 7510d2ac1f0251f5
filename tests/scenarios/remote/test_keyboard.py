"""Keys as terminals send them, and scripts in their place."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.scenarios.remote.keyboard import ARENA_KEYS, BadScript, Give, KeyDecoder, Pause, script_line
from tests.budget import examples

TYPED = {
    "up": b"\x1b[A",
    "down": b"\x1bOB",
    "right": b"\x1b[1;5C",
    "left": b"\x1b[D",
    "space": b" ",
    "enter": b"\r",
    "a": b"a",
    "~": b"~",
}
# Keys that are no keys here: they are passed over, and what follows is read.
OTHERS = [b"\x1b[3~", b"\x1bOP", b"\x01", b"\xff"]


@given(st.lists(st.sampled_from([*TYPED, *OTHERS]), max_size=20), st.lists(st.integers(0, 60), max_size=6))
@settings(max_examples=examples(200))
def test_keys_are_read_wherever_the_bytes_are_cut(keys: list[str | bytes], cuts: list[int]) -> None:
    data = b"".join(TYPED[key] if isinstance(key, str) else key for key in keys)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = KeyDecoder()
    found = [key for at, to in pairwise(places) for key in decoder.feed(data[at:to])]
    assert found == [key for key in keys if isinstance(key, str)]


@given(st.binary(max_size=40))
@settings(max_examples=examples(200))
def test_whatever_is_typed_is_some_keys(data: bytes) -> None:
    assert all(KeyDecoder().feed(data))


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("up\n", Give(ARENA_KEYS["up"])),
        ("7f 00", Give(b"\x7f\x00")),
        ("  wait 0.5  # a while", Pause(0.5)),
        ("", None),
        ("# nothing", None),
    ],
)
def test_lines_of_a_script(line: str, step: Give | Pause | None) -> None:
    assert script_line(line, ARENA_KEYS) == step


@pytest.mark.parametrize("line", ["sideways", "7", "wait", "wait -1", "wait nan", "wait 1e9", "wait x", "00" * 4097])
def test_lines_that_say_nothing_that_can_be_done(line: str) -> None:
    with pytest.raises(BadScript):
        script_line(line, ARENA_KEYS)
