"""The browser's module and Python give the same numbers, bytes and hashes: vectors, and values of all kinds."""

import json
import random
import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.browser.fireflies import Fireflies, Pond
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, decode_untrusted_state, encode
from batonpass.simserver.sync.lockstep.driver import SimEvent
from tests.simserver.sync.browser.node import Node, NodeRefused

VECTORS: Final = Path(__file__).parents[1] / "lockstep" / "vectors"


def vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    process = Node()
    yield process
    process.close()


def as_json(value: Any) -> Any:
    """What `revived` in answers.mjs makes the value of."""
    match value:
        case bytes():
            return {"bytes": value.hex()}
        case float():
            return {"double": struct.pack(">d", value).hex()}
        case list() | tuple():
            return [as_json(member) for member in value]
        case Mapping():
            return {"map": [[key, as_json(member)] for key, member in value.items()]}
    return value


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)
NAMES = st.text() | st.sampled_from(["__proto__", "constructor", "length", "10", "9"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)


# FIPS 180-4's examples, as published by NIST: no message, one block, two blocks.
@pytest.mark.parametrize(
    ("message", "digest"),
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
    ],
    ids=["empty", "one block", "two blocks"],
)
def test_digests_are_those_of_the_standard(node: Node, message: bytes, digest: str) -> None:
    assert node.ask("digest", message.hex()) == digest


def test_digests_around_the_ends_of_blocks_are_those_of_python(node: Node) -> None:
    messages = [bytes(range(length)) for length in (1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 128)]
    assert [node.ask("digest", one.hex()) for one in messages] == [sha256(one).hexdigest() for one in messages]


def test_the_generator_draws_what_the_vectors_say(node: Node) -> None:
    found = vectors("generator")
    assert [node.ask("drawn", case) for case in found["cases"]] == found["cases"]
    assert node.ask("sine") == found["sine"]


def test_values_have_the_bytes_that_the_vectors_say(node: Node) -> None:
    for case in vectors("canonical")["cases"]:
        value = {key: case[key] for key in ("bytes", "double") if key in case} or as_json(case["value"])
        assert node.ask("encoded", value) == case["encoded"], case
        assert node.ask("digest", case["encoded"]) == case["hash"]


@given(value=VALUES)
def test_any_value_has_the_same_bytes_in_both(node: Node, value: Any) -> None:
    data = encode(value).hex()
    assert node.ask("encoded", as_json(value)) == data
    assert node.ask("recoded", data) == data


@given(data=st.builds(encode, VALUES), at=st.integers(0, 1 << 20), byte=st.integers(0, 255), cut=st.booleans())
@settings(max_examples=200)
def test_changed_bytes_are_taken_by_both_or_by_none(node: Node, data: bytes, at: int, byte: int, cut: bool) -> None:
    at %= len(data)
    changed = data[:at] if cut else data[:at] + bytes([byte]) + data[at + 1 :]
    try:
        decode_untrusted_state(changed)
    except NotCanonical:
        with pytest.raises(NodeRefused):
            node.ask("recoded", changed.hex())
    else:
        assert node.ask("recoded", changed.hex()) == changed.hex()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_numbers_that_are_not_finite_are_refused_by_the_name_of_their_place(node: Node, value: float) -> None:
    with pytest.raises(NodeRefused, match=r"^value\.speed\[1\]: "):
        node.ask("encoded", as_json({"speed": [0, value]}))


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["lists", "maps"])
def test_both_stop_at_the_same_depth(node: Node, make: Any) -> None:
    value: Any = 1
    for _ in range(64):
        value = make(value)
    assert node.ask("encoded", as_json(value)) == encode(value).hex()
    with pytest.raises(NotCanonical, match="64"):
        encode(make(value))
    with pytest.raises(NodeRefused, match="64"):
        node.ask("encoded", as_json(make(value)))


def test_ten_thousand_ticks_of_a_game_have_the_hashes_of_python(node: Node) -> None:
    found = vectors("bouncers")
    order = {"game": "Bouncers", "ticks": found["ticks"], "log": found["events"]}
    played = node.ask("played", {**order, "saves": [int(tick) for tick in found["snapshots"]]})
    assert len(played["hashes"]) == 10_001
    assert [[tick, played["hashes"][tick]] for tick, _ in found["hashes"]] == found["hashes"]
    assert played["states"] == found["snapshots"]


def an_evening() -> list[list[Any]]:
    """A log of the example: players who come, go, come back and steer."""
    dice = random.Random(4)
    log: list[list[Any]] = [[1, "_a", "_", "an evening"]]
    log += [[tick, "_c", "_", one] for tick, one in ((1, "1"), (3, "2"), (90, "3"))]
    for tick in range(100, 2000):
        if tick % 400 == 0:
            log += [[tick, "_d", "_", str(tick // 400)], [tick, "_c", "_", str(tick // 400)]]
        elif dice.random() < 0.1:
            body = f"{dice.randint(-8, 8)} {dice.randint(-8, 8)}"
            log.append([tick, dice.choice(["steer"] * 9 + ["sing"]), str(dice.randint(1, 4)), body])
    return [*log, [2000, "steer", "1", "9 0"], [2000, "steer", "1", "1 1\n"], [2000, "steer", "1", "１ 1"]]


def test_the_example_is_the_same_game_in_both(node: Node) -> None:
    log, game = an_evening(), Fireflies()
    hashes = [game.state_hash()]
    for tick in range(2100):
        hashes.append(game.step([SimEvent(*row) for row in log if row[0] == tick + 1]))
    assert node.ask("played", {"game": "Fireflies", "ticks": 2100, "log": log})["hashes"] == hashes
    assert node.ask("loaded", {"game": "Fireflies", "state": game.snapshot().hex()}) == hashes[-1]
    assert game.entities(Pond)[0].round > 5, "rounds were played to their ends"


def test_the_example_keeps_all_its_state_where_it_is_saved(node: Node) -> None:
    order = {"game": "Fireflies", "ticks": 200, "log": an_evening(), "options": {"check": True}}
    assert len(node.ask("played", order)["hashes"]) == 201
