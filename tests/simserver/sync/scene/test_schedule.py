"""D4, D6 to D8, D9, D11: a renderer's frame among scenes, its quota, and when a scene is answered."""

import struct
from contextlib import suppress
from random import Random
from typing import Final

import pytest

from batonpass.simserver.sync.scene.codec import MessageKind, read_chunk_untrusted, write_message
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.schedule import (
    PART_MESSAGES,
    FramePolicy,
    SceneFrames,
    ScenePhase,
    ScenePlace,
    ScheduleLimits,
)

OPERATION_NS: Final = 1_000
QUOTA: Final = 50
"""Operations in the quota of a frame."""
HERE: Final = (0.0, 0.0)
LIMITS: Final = ScheduleLimits(quota_ns=QUOTA * OPERATION_NS, share=1.0)


def frame_of(operations: int, first: int = 512) -> bytes:
    return b"".join(
        write_message(MessageKind.PUT, (first + at, 1_017, 1, struct.pack("<I", at))) for at in range(operations)
    )


class Renderer:
    """Runs frames by a clock that only operations move."""

    def __init__(self, limits: ScheduleLimits = LIMITS, policy: FramePolicy = FramePolicy.AGED) -> None:
        self.frames = SceneFrames(limits, policy)
        self.events: list[tuple[str, str]] = []
        self.applied: list[tuple[str, int]] = []

    def add(self, name: str, x: float = 0.0, *, is_global: bool = False) -> None:
        self.frames.add(name, ScenePlace(x, 0.0, is_global), 0)

    def receive(self, name: str, operations: int) -> None:
        self.frames.receive(name, frame_of(operations), 0)

    def frame(self, player: tuple[float, float] = HERE) -> dict[str, int]:
        """How many operations of each scene were applied, in their order."""
        counts: dict[str, int] = {}
        self.frames.begin(player)
        spent = 0
        while (part := self.frames.next_part(spent * OPERATION_NS)) is not None:
            rows = [row for run in read_chunk_untrusted(part.messages).runs for row in run.rows]
            counts[part.scene] = counts.get(part.scene, 0) + len(rows)
            self.applied += [(part.scene, row[0]) for row in rows]
            spent += len(rows)
            self.events.append(("apply", part.scene))
        self.events.append(("physics", ""))
        self.events += [("answer", name) for name in self.frames.updated()]
        return counts


class TestBarrier:
    """D4: no answer before all messages of the scene's last frame are applied and physics is computed."""

    def test_an_answer_follows_the_last_message_and_the_physics_after_it(self) -> None:
        renderer = Renderer()
        renderer.add("scene")
        renderer.receive("scene", 2 * QUOTA + 1)
        for _ in range(3):
            renderer.frame()
        last = max(at for at, event in enumerate(renderer.events) if event == ("apply", "scene"))
        answers = [at for at, event in enumerate(renderer.events) if event == ("answer", "scene")]
        physics = [at for at, event in enumerate(renderer.events) if event == ("physics", "")]
        assert len(answers) == 1
        assert last < physics[-1] < answers[0]
        assert len([at for at in physics if at < last]) == 2, "applying took three frames"

    def test_a_scene_that_computes_is_not_answered_again(self) -> None:
        renderer = Renderer()
        renderer.add("scene")
        renderer.receive("scene", 1)
        for _ in range(3):
            renderer.frame()
        assert renderer.events.count(("answer", "scene")) == 1

    def test_a_frame_without_messages_is_answered_after_the_next_physics(self) -> None:
        renderer = Renderer()
        renderer.add("scene")
        renderer.receive("scene", 0)
        assert renderer.frame() == {}
        assert renderer.events == [("physics", ""), ("answer", "scene")]

    def test_a_frame_that_uses_the_quota_up_exactly_is_answered_in_it(self) -> None:
        renderer = Renderer()
        renderer.add("scene")
        renderer.receive("scene", QUOTA)
        renderer.frame()
        assert renderer.events[-1] == ("answer", "scene")


class TestQuota:
    """D7: a frame takes its quota and at most ten operations more."""

    @pytest.mark.parametrize("operations", [QUOTA - 1, QUOTA, QUOTA + 1, 7 * QUOTA])
    def test_what_is_left_is_applied_in_its_order_in_the_next_frames(self, operations: int) -> None:
        renderer = Renderer()
        renderer.add("scene")
        renderer.receive("scene", operations)
        while renderer.frames.phase("scene") is not ScenePhase.COMPUTING:
            assert renderer.frame()["scene"] <= QUOTA + PART_MESSAGES
        assert [entity for _, entity in renderer.applied] == [512 + at for at in range(operations)]

    def test_something_is_applied_however_small_the_quota(self) -> None:
        renderer = Renderer(ScheduleLimits(quota_ns=0))
        renderer.add("scene")
        renderer.receive("scene", 25)
        assert [renderer.frame() for _ in range(3)] == [{"scene": 10}, {"scene": 10}, {"scene": 5}]

    def test_a_scene_that_floods_has_its_share_while_others_wait_and_all_when_none_does(self) -> None:
        """D6, D11: it slows itself alone."""
        renderer = Renderer(ScheduleLimits(quota_ns=QUOTA * OPERATION_NS, share=0.4))
        renderer.add("flood", is_global=True)
        renderer.add("other", 5.0)
        renderer.receive("flood", 10 * QUOTA)
        renderer.receive("other", 20)
        assert renderer.frame() == {"flood": 30, "other": 20}
        assert renderer.events[-1] == ("answer", "other")
        assert renderer.frame() == {"flood": QUOTA}


class TestOrder:
    """D8: global scenes first, then the nearest; ties as they came; a move of the player changes the next frame."""

    def order(self, renderer: Renderer, player: tuple[float, float] = HERE) -> list[str]:
        return renderer.frames.begin(player)

    @pytest.mark.parametrize("policy", FramePolicy)
    def test_global_scenes_come_first_and_then_the_nearest(self, policy: FramePolicy) -> None:
        renderer = Renderer(policy=policy)
        for name, x in (("far", 100.0), ("near", 10.0), ("as near", -10.0)):
            renderer.add(name, x)
        renderer.add("everywhere", 1_000.0, is_global=True)
        for name in ("far", "near", "as near", "everywhere"):
            renderer.receive(name, 1)
        assert self.order(renderer) == ["everywhere", "near", "as near", "far"]
        assert self.order(renderer, (100.0, 0.0)) == ["everywhere", "far", "near", "as near"]

    def test_the_nearest_scene_may_have_others_wait_for_ever(self) -> None:
        """D9, as ADR-148 allows."""
        assert self.frames_until_far_is_answered(FramePolicy.NEAREST) is None

    def test_by_age_a_scene_that_is_ten_times_as_far_waits_about_ten_frames(self) -> None:
        """D9: nobody starves."""
        waited = self.frames_until_far_is_answered(FramePolicy.AGED)
        assert waited is not None
        assert 5 <= waited <= 15

    def frames_until_far_is_answered(self, policy: FramePolicy) -> int | None:
        renderer = Renderer(policy=policy)
        renderer.add("near", 10.0)
        renderer.add("far", 100.0)
        renderer.receive("far", 1)
        for frame in range(100):
            # The near scene has more than a frame's work, always.
            if renderer.frames.phase("near") is ScenePhase.COMPUTING:
                renderer.receive("near", QUOTA)
            renderer.frame()
            if ("answer", "far") in renderer.events:
                return frame
        return None


class TestScenesApart:
    """D11, D12: what a scene does wrong hurts no other."""

    def test_a_frame_before_the_answer_is_refused(self) -> None:
        renderer = Renderer()
        renderer.add("scene")
        renderer.receive("scene", 1)
        with pytest.raises(SceneRefusal, match="before it was answered"):
            renderer.receive("scene", 1)

    def test_a_frame_that_is_too_large_is_refused_and_the_next_is_taken(self) -> None:
        renderer = Renderer(ScheduleLimits(max_frame_bytes=100))
        renderer.add("scene")
        with pytest.raises(SceneRefusal, match="100 at most"):
            renderer.receive("scene", 10)
        renderer.receive("scene", 1)

    @pytest.mark.parametrize("good", [0, 1, 9, 10, 11])
    def test_a_bad_message_at_any_place_leaves_no_scene_without_an_answer(self, good: int) -> None:
        """A failed batch never wedges a scene (unity-explorer#9795)."""
        renderer = Renderer()
        renderer.add("scene")
        bad = frame_of(good) + struct.pack("<2I", 3, 1) + frame_of(3)
        with pytest.raises(SceneRefusal, match=f"at byte {28 * good}"):
            renderer.frames.receive("scene", bad, 0)
        assert sum(renderer.frame().values()) == good
        assert renderer.events[-1] == ("answer", "scene")
        renderer.receive("scene", 1)
        assert renderer.frame() == {"scene": 1}

    def test_a_scene_that_is_removed_between_two_parts_is_applied_no_more(self) -> None:
        renderer = Renderer()
        for name in ("scene", "other"):
            renderer.add(name)
            renderer.receive(name, 20)
        renderer.frames.begin(HERE)
        assert renderer.frames.next_part(0) is not None
        renderer.frames.remove("scene")
        part = renderer.frames.next_part(0)
        assert part is not None
        assert part.scene == "other"

    def test_a_scene_that_does_not_come_back_is_dead_and_one_that_waits_is_not(self) -> None:
        renderer = Renderer()
        renderer.add("dead")
        renderer.add("waiting")
        renderer.receive("waiting", 1)
        assert renderer.frames.dead(LIMITS.silence_ns) == []
        assert renderer.frames.dead(LIMITS.silence_ns + 1) == ["dead"]


def fail_anywhere(failures: int, seed: int) -> None:
    """Batches that are broken at a place that dice throw; the next one is applied within a frame."""
    dice = Random(seed)
    frames, scene = SceneFrames(), SceneReplica("view", [1_017])
    frames.add("scene", ScenePlace(), 0)
    scene.connect("scene")
    good = frame_of(3)
    for number in range(1, failures + 1):
        broken = bytearray(good)
        broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
        last = write_message(MessageKind.PUT, (1, 1_017, number, b"alive"))
        for chunk in (bytes(broken[: dice.randrange(len(broken) + 1)]), last):
            with suppress(SceneRefusal):
                frames.receive("scene", chunk, 0)
            frames.begin(HERE)
            while (part := frames.next_part(0)) is not None:
                scene.receive("scene", part.messages)
            scene.apply()
            assert frames.updated() == ["scene"]
        scene.flush()
        assert scene.elements(1_017).stamps[1] == number


def test_a_failure_anywhere_in_a_batch_and_the_next_batch_is_applied_within_one_frame() -> None:
    """`long_run` has ten thousand of them."""
    fail_anywhere(2_000, 1)


def test_parts_of_a_frame_end_in_the_state_that_the_whole_would() -> None:
    chunk = frame_of(25) + write_message(MessageKind.DELETE_ENTITY, (515,)) + frame_of(25)
    whole, parted = (SceneReplica(name, [1_017]) for name in ("whole", "parted"))
    renderer = Renderer()
    renderer.add("scene")
    renderer.frames.receive("scene", chunk, 0)
    renderer.frames.begin(HERE)
    for scene in (whole, parted):
        scene.connect("scene")
    whole.receive("scene", chunk)
    whole.apply()
    while (part := renderer.frames.next_part(0)) is not None:
        parted.receive("scene", part.messages)
        parted.apply()
    for scene in (whole, parted):
        scene.flush()
    assert parted.snapshot() == whole.snapshot()
