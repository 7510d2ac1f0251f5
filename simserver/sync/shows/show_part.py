"""What a server keeps of one show in which it takes part, and of its time as the controller."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from batonpass.simserver.entity.state import Life
from batonpass.simserver.sync.followers.frame_clock import FrameClock
from batonpass.simserver.sync.shows.frame_limit import FrameLimit
from batonpass.simserver.sync.shows.node_traffic import NodeTraffic
from batonpass.simserver.sync.shows.nodes import NodeTable
from batonpass.simserver.sync.shows.ports import NodeParts, RunningEngine

__all__ = ["Reign", "ShowPart"]


@dataclass(slots=True)
class Reign:
    """The time of this server as the controller, under one life of the entity."""

    life: Life
    limit: FrameLimit
    clock: FrameClock
    nodes: NodeTable
    key: bytes
    # The first frame whose content was not sent.
    next: int
    # Whom operators hold.
    held: set[str]
    # The tick after which the entity may have left; None while it surely is here.
    paused_at: int | None = None
    told_revision: int = -1


@dataclass(slots=True)
class ShowPart:
    """One show in which this server takes part."""

    entity: str
    traffic: NodeTraffic
    parts: NodeParts
    engine: RunningEngine | None = None
    epoch: int = 0
    controller: str = ""
    key: bytes = b""
    revision: int = -1
    reign: Reign | None = None
    said_ns: int = 0
    is_asking: bool = False
    # Whether its engine has ended, and by an error.
    has_left: bool = False
    has_failed: bool = False
    error: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    is_warned: bool = False
