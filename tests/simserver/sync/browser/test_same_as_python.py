"""The browser's module and Python give the same numbers, bytes and hashes: vectors, and values of all kinds."""

import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.browser.fireflies import Boat, Fireflies, Firefly, Pond
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, decode_untrusted_state, encode
from batonpass.simserver.sync.lockstep.desync import dump_of, explain
from batonpass.simserver.sync.lockstep.driver import SimEvent
from batonpass.simserver.sync.lockstep.schedule import frames_due
from tests.simserver.sync.browser.node import Node, NodeRefused

VECTORS: Final = Path(__file__).parents[1] / "lockstep" / "vectors"


def vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


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


def steering(game: Fireflies, owner: str) -> str:
    """Towards the nearest firefly, if the player has a boat."""
    boats = [boat for boat in game.entities(Boat) if boat.owner == owner]
    if not boats:
        return "0 0"
    lights = [(light.x - boats[0].x, light.y - boats[0].y) for light in game.entities(Firefly)]
    dx, dy = min(lights, key=lambda way: abs(way[0]) + abs(way[1]))
    return f"{max(-8, min(8, dx // 6000))} {max(-8, min(8, dy // 6000))}"


def an_evening(ticks: int) -> tuple[list[list[Any]], list[str], Fireflies, set[int]]:
    """Log, hashes, end, and winners of a game in Python, with players who come, go, come back and steer."""
    log: list[list[Any]] = [[1, "_a", "_", "an evening"]]
    log += [[tick, "_c", "_", one] for tick, one in ((1, "1"), (3, "2"), (90, "3"))]
    game, winners = Fireflies(), set()
    hashes = [game.state_hash()]
    for tick in range(1, ticks + 1):
        if tick % 500 == 0:
            log += [[tick, "_d", "_", str(tick // 500)], [tick, "_c", "_", str(tick // 500)]]
        if tick > 100 and tick % 4 == 0:
            owner = str(tick // 4 % 3 + 1)
            log.append([tick, "steer", owner, steering(game, owner)])
        if tick % 100 == 0:
            log += [[tick, kind, "1", body] for kind, body in (("steer", "9 0"), ("steer", "１ 1"), ("sing", "1 1"))]
        hashes.append(game.step([SimEvent(*row) for row in log[-6:] if row[0] == tick]))
        winners.update(pond.winner for pond in game.entities(Pond))
    return log, hashes, game, winners


def test_the_example_is_the_same_game_in_both(node: Node) -> None:
    log, hashes, game, winners = an_evening(1200)
    assert node.ask("played", {"game": "Fireflies", "ticks": 1200, "log": log})["hashes"] == hashes
    assert node.ask("loaded", {"game": "Fireflies", "state": game.snapshot().hex()}) == hashes[-1]
    assert winners > {-1}, "a round was played to its end"


def test_the_example_keeps_all_its_state_where_it_is_saved(node: Node) -> None:
    log, hashes, _, _ = an_evening(150)
    order = {"game": "Fireflies", "ticks": 150, "log": log, "options": {"check": True}}
    assert node.ask("played", order)["hashes"] == hashes


class Drawing(Fireflies):
    """The example, with a draw too many in one tick."""

    def on_tick(self, tick: int) -> None:
        if tick == 30:
            self.get_random().next()


def test_a_desync_between_both_is_explained_with_field_and_first_draw(node: Node) -> None:
    log, *_ = an_evening(31)
    there = Drawing(trace=True)
    for tick in range(31):
        there.step([SimEvent(*row) for row in log if row[0] == tick + 1])
    here = node.ask("dumped", {"game": "Fireflies", "ticks": 31, "log": log, "options": {"trace": True}})
    other = dump_of(there, 31)
    assert other is not None
    report = explain(here, other)
    assert report is not None
    assert report.tick == 31
    assert "Random" in {difference.kind for difference in report.differences}
    assert report.act is not None
    index, mine, theirs = report.act
    assert index == 0
    assert mine is not None
    assert mine.of == "between(-600, 600)"
    assert "fireflies.js:" in mine.site
    assert theirs is not None
    assert theirs.of == "next()"
    assert "test_same_as_python.py:" in theirs.site


def test_as_many_ticks_are_due_as_in_python(node: Node) -> None:
    rows = [[behind, elapsed, lead] for behind in range(60) for elapsed in (0, 4, 25, 50, 170) for lead in (1, 4, 7)]
    assert node.ask("due", rows) == [frames_due(behind, elapsed, tolerance=lead) for behind, elapsed, lead in rows]


def test_a_snapshot_that_was_changed_changes_nothing(node: Node) -> None:
    found = vectors("bouncers")["snapshots"]["100"]
    for changed in (found[:-2], found.replace("6442616c6c", "6442616c6d"), encode({"Tick": 1}).hex(), "00"):
        with pytest.raises(NodeRefused, match="no snapshot of Bouncers"):
            node.ask("loaded", {"game": "Bouncers", "state": changed})
