"""Replicas that have had the same messages are equal: in any order, however often, and while all of them write."""

from collections import deque
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from batonpass.simserver.sync.scene.codec import MessageKind, write_message
from batonpass.simserver.sync.scene.entity_ids import EntityState
from batonpass.simserver.sync.scene.profiles import PROFILES, InteropProfile
from batonpass.simserver.sync.scene.replica import SceneReplica
from tests.budget import examples

COMPONENTS: Final = (1_017, 1_018)
NAMES: Final = ("a", "b", "c")

WRITES: Final = st.one_of(
    st.tuples(
        st.just(MessageKind.PUT),
        st.tuples(st.integers(510, 514), st.sampled_from(COMPONENTS), st.integers(0, 3), st.binary(max_size=2)),
    ),
    st.tuples(
        st.just(MessageKind.DELETE),
        st.tuples(st.integers(510, 514), st.sampled_from(COMPONENTS), st.integers(0, 3)),
    ),
)


def state(scene: SceneReplica) -> list[tuple[dict[int, int], dict[int, bytes | None]]]:
    """Timestamps and values of all that is in use."""
    of = [scene.elements(component) for component in COMPONENTS]
    return [(one.stamps, {entity: one.values[entity] for entity in one.stamps}) for one in of]


@given(st.data(), st.lists(WRITES, max_size=12), st.sampled_from(list(PROFILES.values())))
def test_no_order_no_cut_and_no_duplicate_makes_a_difference(
    data: st.DataObject, writes: list[tuple[MessageKind, tuple[object, ...]]], profile: InteropProfile
) -> None:
    messages = [write_message(kind, row) for kind, row in writes]
    states = []
    for _ in range(2):
        scene = SceneReplica("scene", COMPONENTS, profile=profile)
        scene.connect("peer")
        for message in data.draw(st.permutations(messages + data.draw(st.lists(st.sampled_from(messages or [b""]))))):
            scene.receive("peer", message)
            if data.draw(st.booleans()):
                scene.apply()
                scene.flush()
        scene.apply()
        states.append(state(scene))
    assert states[0] == states[1]


@given(st.lists(WRITES, max_size=12), st.lists(WRITES, max_size=6))
def test_a_replica_that_was_hydrated_goes_on_as_the_one_that_it_had_the_state_of(
    before: list[tuple[MessageKind, tuple[object, ...]]], after: list[tuple[MessageKind, tuple[object, ...]]]
) -> None:
    first, second = (SceneReplica("scene", COMPONENTS) for _ in range(2))
    for scene in (first, second):
        scene.connect("peer")
    first.receive("peer", b"".join(write_message(kind, row) for kind, row in before))
    first.apply()
    second.hydrate(first.snapshot())
    assert second.snapshot() == first.snapshot()
    for scene in (first, second):
        scene.receive("peer", b"".join(write_message(kind, row) for kind, row in after))
        scene.apply()
    assert state(second) == state(first)


class Hub(RuleBasedStateMachine):
    """A server and three scenes that all write; messages of each connection come in their order, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.server = SceneReplica("server", COMPONENTS)
        self.scenes = {name: SceneReplica(name, COMPONENTS) for name in NAMES}
        self.up: dict[str, deque[bytes]] = {name: deque() for name in NAMES}
        self.down: dict[str, deque[bytes]] = {name: deque() for name in NAMES}
        for name, scene in self.scenes.items():
            self.server.connect(name)
            scene.connect("server")

    def _write(self, scene: SceneReplica, data: st.DataObject) -> None:
        alive = [entity for entity in (2, *scene.numbers.used) if scene.numbers.state(entity) != EntityState.REMOVED]
        entity, component = data.draw(st.sampled_from(alive)), data.draw(st.sampled_from(COMPONENTS))
        match data.draw(st.sampled_from(("create", "put", "put", "mutate", "delete", "remove"))):
            case "create":
                scene.put(scene.create_entity(), component, data.draw(st.binary(max_size=2)))
            case "put":
                scene.put(entity, component, data.draw(st.binary(max_size=2)))
            case "mutate":
                scene.mutate(entity, component, data.draw(st.binary(max_size=2)))
            case "delete":
                scene.delete(entity, component)
            case _:
                scene.remove_entity(entity)

    @rule(name=st.sampled_from(NAMES), data=st.data(), writes=st.integers(0, 3))
    def scene_tick(self, name: str, data: st.DataObject, writes: int) -> None:
        scene = self.scenes[name]
        scene.apply()
        for _ in range(writes):
            self._write(scene, data)
        self.up[name].append(scene.flush()["server"][0])

    @rule(data=st.data(), writes=st.integers(0, 2))
    def server_tick(self, data: st.DataObject, writes: int) -> None:
        self.server.apply()
        for _ in range(writes):
            self._write(self.server, data)
        for name, (chunk,) in self.server.flush().items():
            self.down[name].append(chunk)

    @rule(name=st.sampled_from(NAMES))
    def arrives_at_the_server(self, name: str) -> None:
        if self.up[name]:
            self.server.receive(name, self.up[name].popleft())

    @rule(name=st.sampled_from(NAMES))
    def arrives_at_a_scene(self, name: str) -> None:
        if self.down[name]:
            self.scenes[name].receive("server", self.down[name].popleft())

    def teardown(self) -> None:
        """Have everything arrive; all are equal then."""
        for _ in range(4):
            for name, scene in self.scenes.items():
                while self.down[name]:
                    self.arrives_at_a_scene(name)
                scene.apply()
                self.up[name].append(scene.flush()["server"][0])
                while self.up[name]:
                    self.arrives_at_the_server(name)
            self.server.apply()
            for name, (chunk,) in self.server.flush().items():
                self.down[name].append(chunk)
        assert not any(self.down.values()) or all(chunk == b"" for chunks in self.down.values() for chunk in chunks)
        for scene in self.scenes.values():
            assert state(scene) == state(self.server)


Hub.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
TestHub = Hub.TestCase
