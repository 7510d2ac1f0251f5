"""D10, D11: a renderer and scenes from stage to stage, on a simulated clock."""

import math
import struct
from itertools import count
from typing import Final

import pytest

from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, write_message
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.graph import scene_graph, world_places
from batonpass.simserver.sync.scene.renderer import FIRST_AVATAR, MAX_SHOWN, PLAYER, SceneRenderer
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import MAX_DEPTH, WriteRights
from batonpass.simserver.sync.scene.scene_loop import SceneLoop
from batonpass.simserver.sync.scene.schedule import ScenePhase, ScenePlace, ScheduleLimits
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, Quaternion, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM

PLACE: Final = ScenePlace(100.0, 200.0)
ENTITY: Final = 512


def transform(x: float = 0.0, z: float = 0.0, parent: int = 0) -> bytes:
    return TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(x, 0.0, z), parent=parent))


def put(entity: int, data: bytes, timestamp: int = 1) -> bytes:
    return write_message(MessageKind.PUT, (entity, TRANSFORM, timestamp, data))


def renderer(**limits: int) -> SceneRenderer:
    return SceneRenderer(double_buffered=True, limits=ScheduleLimits(**limits))


def frame(of: SceneRenderer, loading: tuple[str, ...] = ()) -> dict[str, bytes]:
    """One frame of a renderer, whose clock shows another millisecond whenever it is read."""
    ticks = count(0, 1_000)
    of.receive(lambda: next(ticks))
    of.update(loading)
    return of.send()


class Scene:
    def __init__(self) -> None:
        self.replica = SceneReplica("scene")
        self.passed_s: list[float] = []
        self.loop = SceneLoop(self.replica, self.update)
        self.now_ns = 0

    def update(self, passed_s: float) -> None:
        self.passed_s.append(passed_s)
        self.replica.mutate(ENTITY, TRANSFORM, transform(float(len(self.passed_s))))

    def frame(self, answer: bytes) -> bytes:
        self.now_ns += 20_000_000
        self.loop.receive(answer, lambda: self.now_ns)
        self.loop.update(lambda: self.now_ns)
        return self.loop.send(lambda: self.now_ns)


class TestFirstFrame:
    """D10."""

    def test_a_scene_begins_with_its_initial_state_and_where_the_players_are_and_no_time_has_passed(self) -> None:
        shows, scene = renderer(), Scene()
        shows.players = ((101.0, 202.0), (110.0, 200.0))
        first = shows.admit("scene", PLACE, put(ENTITY, transform(7.0)), 0)
        shows.take("scene", scene.frame(first), 0)
        assert scene.passed_s == [0.0]
        assert scene.replica.value(ENTITY, TRANSFORM) == transform(1.0), "it has changed what main.crdt has"
        assert scene.replica.value(PLAYER, TRANSFORM) == transform(1.0, 2.0)
        assert scene.replica.value(FIRST_AVATAR, TRANSFORM) == transform(10.0)
        answer = frame(shows)["scene"]
        assert answer == b"", "the scene has all of it already"
        scene.frame(answer)
        assert scene.passed_s == [0.0, 0.02]

    def test_a_scene_begins_only_once_its_initial_state_is_good(self) -> None:
        shows = renderer()
        with pytest.raises(SceneRefusal):
            shows.admit("scene", PLACE, struct.pack("<2I", 3, 1), 0)
        assert shows.scenes == {}
        assert shows.admit("scene", PLACE, b"", 0)

    def test_the_first_frame_is_answered_when_all_is_applied_and_all_models_are_there(self) -> None:
        shows = renderer()
        shows.admit("scene", PLACE, b"", 0)
        shows.take("scene", put(ENTITY, transform()), 0)
        assert frame(shows, ("scene",)) == {}
        assert shows.frames.phase("scene") is ScenePhase.APPLIED
        assert frame(shows, ("scene",)) == {}
        assert list(frame(shows)) == ["scene"]

    def test_models_that_come_later_hold_no_frame_up(self) -> None:
        shows = renderer()
        shows.admit("scene", PLACE, b"", 0)
        for _ in range(2):
            shows.take("scene", b"", 0)
            assert list(frame(shows, ("scene",) if shows.uses else ())) == ["scene"]

    def test_the_first_physics_come_after_all_messages_however_many_frames_they_take(self) -> None:
        shows = renderer(quota_ns=1)
        shows.admit("scene", PLACE, b"", 0)
        shows.take("scene", b"".join(put(ENTITY + at, transform(float(at))) for at in range(25)), 0)
        answers = [frame(shows) for _ in range(3)]
        assert [list(each) for each in answers] == [[], [], ["scene"]]
        assert len(shows.shown) == 25


class TestScenesApart:
    """D11."""

    def test_what_leaves_is_shown_no_more_and_its_frame_is_not_answered(self) -> None:
        shows = renderer()
        for name in ("one", "other"):
            shows.admit(name, PLACE, put(ENTITY, transform(1.0)), 0)
            shows.take(name, b"", 0)
        shows.receive(lambda: 0)
        shows.update()
        assert [point.scene for point in shows.shown] == ["one", "other"]
        shows.leave("one")
        assert list(shows.send()) == ["other"]
        shows.update()
        assert [point.scene for point in shows.shown] == ["other"]

    def test_a_name_is_taken_once_and_the_number_of_scenes_has_a_bound(self) -> None:
        shows = renderer(max_scenes=2)
        shows.admit("one", PLACE, b"", 0)
        with pytest.raises(SceneRefusal, match="one takes part already"):
            shows.admit("one", PLACE, b"", 0)
        shows.admit("two", PLACE, b"", 0)
        with pytest.raises(SceneRefusal, match="2 at most"):
            shows.admit("three", PLACE, b"", 0)
        assert list(shows.scenes) == ["one", "two"]

    def test_a_scene_that_uses_the_timestamps_of_a_player_up_harms_itself_alone(self) -> None:
        shows = renderer()
        for name in ("bad", "good"):
            shows.admit(name, ScenePlace(), b"", 0)
        # As after as many moves of the player as there are timestamps above those that are taken from a scene.
        shows.scenes["bad"].elements(TRANSFORM).stamps[PLAYER] = MAX_U32
        for name in ("bad", "good"):
            shows.take(name, b"", 0)
        shows.players = ((5.0, 0.0),)
        with pytest.raises(SceneRefusal):
            shows.take("bad", b"", 0)
        answers = frame(shows)
        assert list(answers) == ["bad", "good"]
        assert answers["good"] == put(PLAYER, transform(5.0), 2)

    def test_of_a_scene_with_very_many_entities_the_first_are_shown(self) -> None:
        shows = renderer(quota_ns=1_000_000_000)
        shows.admit("scene", PLACE, b"".join(put(ENTITY + at, transform()) for at in range(MAX_SHOWN + 9)), 0)
        shows.update()
        assert MAX_SHOWN - 1 <= len(shows.shown) <= MAX_SHOWN


class TestPlaces:
    def test_a_place_is_that_of_the_parent_turned_and_scaled(self) -> None:
        half = math.sqrt(0.5)
        above = SceneTransform(Vector3(10.0, 0.0, 0.0), Quaternion(0.0, half, 0.0, half), Vector3(2.0, 2.0, 2.0))
        places = world_places({1: TRANSFORM_SCHEMA.encode(above), 2: transform(1.0, parent=1), 3: transform(parent=2)})
        assert places[2] == pytest.approx((10.0, 0.0, -2.0), abs=1e-5)
        assert places[3] == pytest.approx(places[2])

    def test_a_circle_of_parents_ends_at_the_root(self) -> None:
        places = world_places({1: transform(1.0, parent=2), 2: transform(1.0, parent=1), 3: transform(1.0, parent=3)})
        assert sorted(places) == [1, 2, 3]
        assert places[3] == (1.0, 0.0, 0.0)

    def test_what_is_no_transform_has_no_place_and_hurts_none_that_is_below_it(self) -> None:
        bad = {1: b"short", 2: None, 3: transform(math.nan), 4: transform(1.0, parent=3)}
        assert world_places(bad) == {4: (1.0, 0.0, 0.0)}

    def test_a_long_row_of_parents_ends(self) -> None:
        row = {at: transform(1.0, parent=at + 1) for at in range(1, 3 * MAX_DEPTH)}
        assert len(world_places(row)) == len(row)


def test_the_graph_tells_who_wrote_what_when_who_took_it_and_who_may_write_it() -> None:
    scene = SceneReplica("server", rights=WriteRights("server"))
    scene.connect("anna")
    scene.create_entity()
    scene.put(ENTITY, TRANSFORM, transform(3.0))
    scene.flush()
    graph = scene_graph(scene)
    (entity,) = graph["entities"]
    assert (graph["scene"], graph["tick"]) == ("server", 1)
    assert (entity["entity"], entity["parent"], entity["place"], entity["owner"]) == (512, 0, [3.0, 0.0, 0.0], "server")
    (component,) = entity["components"]
    assert component == {
        "component": 1,
        "name": "core::Transform",
        "bytes": 44,
        "data": transform(3.0).hex(),
        "timestamp": 1,
        "writer": "server",
        "tick": 0,
        "authority": "server",
    }
