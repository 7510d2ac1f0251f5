"""Which scenes a run has, how they behave, where they stand and where players walk; all from a seed. Pure."""

import math
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from batonpass.simserver.sync.scene.schedule import ScenePlace

__all__ = ["MIN_BAD", "PARCEL_M", "SceneBehaviour", "SceneSpot", "ScenesPlan", "spots_of", "walk_of"]

PARCEL_M: Final = 16.0
"""The side of the ground of one scene."""
MIN_BAD: Final = 6
"""From this number of scenes on, the last three are slow, silent and flooding."""


class SceneBehaviour(StrEnum):
    """What a scene does."""

    GOOD = "good"
    SLOW = "slow"
    """It computes for ten times as long."""
    SILENT = "silent"
    """It sends nothing any more after some frames, and stays connected."""
    FLOODING = "flooding"
    """It sends frames without waiting for answers, with many messages each."""


@dataclass(frozen=True, slots=True)
class SceneSpot:
    """A scene of a run."""

    name: str
    place: ScenePlace
    behaviour: SceneBehaviour


@dataclass(frozen=True, slots=True)
class ScenesPlan:
    """A run.

    Attributes:
        seconds: for which each of the two ways is measured.
        rate: refreshes of the display a second.
        scene_ms: for how long each scene computes a frame.
        gpu_ms: for how long the GPU has each frame.
        quota_ms: of each frame, to apply messages.
    """

    scenes: int = 20
    players: int = 3
    seconds: float = 5.0
    rate: int = 60
    scene_ms: float = 10.0
    gpu_ms: float = 10.0
    quota_ms: float = 1.0
    seed: int = 0


def spots_of(plan: ScenesPlan) -> list[SceneSpot]:
    """The scenes: the first is everywhere, the others have parcels of a square, in an order that dice throw."""
    side = math.ceil(math.sqrt(plan.scenes))
    parcels = [(x, z) for x in range(side) for z in range(side)]
    Random(plan.seed).shuffle(parcels)
    bad = [SceneBehaviour.SLOW, SceneBehaviour.SILENT, SceneBehaviour.FLOODING] if plan.scenes >= MIN_BAD else []
    behaviours = [SceneBehaviour.GOOD] * (plan.scenes - len(bad)) + bad
    return [
        SceneSpot(
            f"scene-{number + 1}",
            ScenePlace((x + 0.5) * PARCEL_M, (z + 0.5) * PARCEL_M, is_global=number == 0 and plan.scenes > 1),
            behaviour,
        )
        for number, ((x, z), behaviour) in enumerate(zip(parcels, behaviours, strict=False))
    ]


def walk_of(plan: ScenesPlan, at_s: float) -> list[tuple[float, float]]:
    """Where players are after `at_s`: each walks a circle of its own over the ground, in metres."""
    dice = Random(plan.seed + 1)
    size_m = math.ceil(math.sqrt(plan.scenes)) * PARCEL_M
    places = []
    for _ in range(plan.players):
        begin, turns_s = dice.uniform(0, math.tau), dice.uniform(3.0, 6.0)
        radius_m = size_m / 2 * dice.uniform(0.5, 0.9)
        angle = begin + at_s * math.tau / turns_s
        places.append((size_m / 2 + radius_m * math.cos(angle), size_m / 2 + radius_m * math.sin(angle)))
    return places
