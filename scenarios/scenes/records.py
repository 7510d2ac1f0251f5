"""What the processes of a run have measured, as JSON files. Times are of the clock that all processes share."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from batonpass.simserver.sync.scene.loops import FrameMeasures, FrameStage, StageSpan

__all__ = ["OrderSample", "RendererRecord", "read_renderer", "read_spans", "write_renderer", "write_spans"]


@dataclass(frozen=True, slots=True)
class OrderSample:
    """The scenes that waited in a frame, in their order, with how far each is from the player in metres."""

    player: tuple[float, float]
    order: tuple[str, ...]
    distances_m: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RendererRecord:
    """Of a renderer, from `began_ns` to `ended_ns`.

    Attributes:
        spent_ns: of each frame, what Receive took.
        parts: of each frame, how many parts of messages were applied.
        orders: of some frames.
        counts: what was refused or dropped.
        picture: the last one that was drawn, as PNG.
        graphs: of each scene at the end, as `scene_graph` has it.
    """

    began_ns: int
    ended_ns: int
    measures: FrameMeasures
    spans: tuple[StageSpan, ...]
    spent_ns: tuple[int, ...]
    parts: tuple[int, ...]
    orders: tuple[OrderSample, ...]
    counts: Mapping[str, int]
    picture: bytes
    graphs: Mapping[str, Any]


def write_renderer(path: Path, record: RendererRecord) -> None:
    """Write a record down."""
    path.write_text(json.dumps(asdict(record) | {"picture": record.picture.hex()}), encoding="utf-8")


def read_renderer(path: Path) -> RendererRecord:
    """The record in a file. Raises OSError, ValueError."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return RendererRecord(
        data["began_ns"],
        data["ended_ns"],
        FrameMeasures(*data["measures"]),
        tuple(map(_span, data["spans"])),
        tuple(data["spent_ns"]),
        tuple(data["parts"]),
        tuple(
            OrderSample(tuple(each["player"]), tuple(each["order"]), tuple(each["distances_m"]))
            for each in data["orders"]
        ),
        data["counts"],
        bytes.fromhex(data["picture"]),
        data["graphs"],
    )


def write_spans(path: Path, spans: list[StageSpan]) -> None:
    """Write down when the stages of a scene ran."""
    path.write_text(json.dumps(spans), encoding="utf-8")


def read_spans(path: Path) -> tuple[StageSpan, ...]:
    """The stages in a file. Raises OSError, ValueError."""
    return tuple(map(_span, json.loads(path.read_text(encoding="utf-8"))))


def _span(row: list[Any]) -> StageSpan:
    frame, stage, began_ns, ended_ns = row
    return StageSpan(frame, FrameStage(stage), began_ns, ended_ns)
