"""The browser's module reads and patches as the client for Python does, value for value, byte for byte."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.wire.patches import patch_of
from batonpass.client.mirror import DoorMirror
from batonpass.client.subscription import subscription
from batonpass.simserver.players.sights import Sights
from batonpass.simserver.players.topics import Topic, TopicKey, Topics, TopicWatcher
from tests.budget import examples
from tests.simserver.sync.browser.node import Node, NodeRefused

ANSWERS = Path(__file__).parent / "answers.mjs"
# What a page can write: no maps whose keys are no texts, and whole numbers that a float has exactly.
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False).filter(lambda number: not number.is_integer())
    | st.sampled_from([-0.0, float("inf"), 5.960464477539063e-08, 65504.5, 1e300])
    | st.text(max_size=4)
    | st.binary(max_size=4)
)
KEYS = st.sampled_from(["a", "b", "10", "2", "02", "__proto__", "constructor", "ü", ""])
VALUES = st.recursive(
    ATOMS, lambda parts: st.lists(parts, max_size=4) | st.dictionaries(KEYS, parts, max_size=4), max_leaves=12
)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = Node(ANSWERS)
    yield started
    started.close()


def same(one: Any, other: Any) -> bool:
    """Whether two values are encoded alike, but for whole numbers that are floats."""
    return cbor2.dumps(one, canonical=True) == cbor2.dumps(other, canonical=True)


@given(VALUES)
@settings(max_examples=examples(400))
def test_what_is_read_and_written_again_is_the_same(node: Node, value: Any) -> None:
    for canonical in (False, True):
        encoded = cbor2.dumps(value, canonical=canonical)
        assert same(cbor2.loads(bytes.fromhex(node.ask("again", encoded.hex()))), value)


NAMES = st.sampled_from(
    ["", "alpha.one", "alpha.one\n", "x", "alpha.", "Alpha.one", "alpha." + "o" * 64, "alpha." + "o" * 65]
)
NUMBERS = st.integers(-1, 3) | st.sampled_from([0.5, -0.001, 1000, 1000.5, 1e9, 1.1e9])
RADII = st.none() | NUMBERS
CENTRES = st.none() | st.lists(NUMBERS, max_size=4)


@given(NAMES, NAMES, st.sampled_from(["", "alpha.*", "ü" * 128, "ü" * 129]), CENTRES, NAMES, RADII, NUMBERS)
@settings(max_examples=examples(400))
def test_what_cannot_be_watched_is_refused_alike(
    node: Node,
    entity: str,
    owner: str,
    pattern: str,
    centre: list[float] | None,
    around: str,
    radius: float | None,
    rate_hz: float,
) -> None:
    has_area = centre is not None or around or radius is not None
    try:
        subscription(entity, owner, pattern, centre, around, radius, rate_hz)
        is_good = True
    except ValueError:
        is_good = False
    area = {"centre": centre, "around": around, "radius": radius} if has_area else None
    asked = {"entity": entity, "owner": owner, "pattern": pattern, "area": area, "rate_hz": rate_hz}
    said = node.ask("watched", asked)
    assert (said == "") == is_good
    assert is_good or said.startswith("bad_subscription: ")


@given(VALUES, VALUES)
@settings(max_examples=examples(400))
def test_patches_give_the_same(node: Node, before: Any, after: Any) -> None:
    patch = patch_of(before, after)
    if patch is not None:
        found = node.ask("patched", [cbor2.dumps(before).hex(), cbor2.dumps(patch).hex()])
        assert same(cbor2.loads(bytes.fromhex(found)), after)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | VALUES, st.sampled_from(["", "", "", "cut"])), min_size=1),
    st.integers(0, 3),
)
@example([(0, number, "") for number in range(40)] + [(0, 41, "cut"), (0, 42, "")], 3)
@settings(max_examples=examples(100))
def test_mirrors_know_the_same(node: Node, steps: list[tuple[int, Any, str]], lost: int) -> None:
    topics = Topics(Sights(object(), lambda what: None))
    # The frames of one connection after the other.
    frames: list[list[bytes]] = []
    mirror, held = DoorMirror(), list[list[list[int]]]()

    def tell(frame: bytes) -> bool:
        frames[-1].append(frame)
        return True

    def begin(number: int) -> tuple[Topic, TopicWatcher]:
        frames.append([])
        watcher = TopicWatcher(tell)
        topic = topics.watch(TopicKey("pattern", "alpha.*", 1, ""), watcher)
        watcher.held = {which: (frame, base) for which, frame, base in mirror.held}.get(topic.number, (0, 0))
        topics.begin(topic, watcher, number)
        return topic, watcher

    def arrive() -> None:
        for frame in frames[-1]:
            mirror.take_untrusted(cbor2.loads(frame))

    shown = begin(0)
    for number, (which, state, becomes) in enumerate(steps, 1):
        if state is None:
            topics.remove(f"alpha.e-{which}")
        elif topics.sights.get(f"alpha.e-{which}") is None:
            topics.show(f"alpha.e-{which}", "e", "alpha.ada", Fence(number, 0), number, state)
        else:
            topics.stepped(f"alpha.e-{which}", number, state)
        topics.tell(number)
        if becomes == "cut":
            del frames[-1][max(1, len(frames[-1]) - lost) :]
            arrive()
            topics.lose(*shown, number)
            mirror = mirror.successor()
            held.append(mirror.held)
            shown = begin(number)
    arrive()
    said = [part for some in frames for part in ("", *(frame.hex() for frame in some))][1:]
    entities, held_there = node.ask("mirror", said)
    assert held_there == held
    found = {row[0]: row[1:] for row in entities}
    assert found.keys() == mirror.entities.keys()
    for entity in mirror:
        owner, epoch, sub, tick, state = found[entity.name]
        assert (owner, (epoch, sub), tick) == (entity.owner, entity.fence, entity.tick)
        assert same(cbor2.loads(bytes.fromhex(state)), entity.state)


@pytest.mark.parametrize("data", ["", "ff", "1c", "9b7fffffffffffffff", "5affffffff", "62c328", "0000", "81" * 500])
def test_what_is_no_cbor_is_refused(node: Node, data: str) -> None:
    with pytest.raises(NodeRefused):
        node.ask("again", data)


@pytest.mark.parametrize(
    ("before", "patch"),
    [
        (1, []),
        ({}, {"x": {"y": [1]}}),
        ([1], {1: [2]}),
        ([1], {-1: [2]}),
        ({}, 7),
        ({"x": 1}, {"x": [1, 2]}),
        ({}, {"x": []}),
    ],
)
def test_a_patch_of_something_else_is_refused(node: Node, before: Any, patch: Any) -> None:
    with pytest.raises(NodeRefused):
        node.ask("patched", [cbor2.dumps(before).hex(), cbor2.dumps(patch).hex()])
