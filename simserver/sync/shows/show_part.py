"""What a server keeps of one show in which it takes part, and of its time as the controller."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from batonpass.simserver.entity.state import Life
from batonpass.simserver.sync.followers.frame_clock import FrameClock
from batonpass.simserver.sync.shows.frame_limit import FrameLimit
from batonpass.simserver.sync.shows.node_traffic import NodeTraffic
from batonpass.simserver.sync.shows.nodes import NodeTable
from batonpass.simserver.sync.shows.ports import NodeParts, RunningEngine
from batonpass.simserver.sync.shows.status import EngineStatus, ShowDrop, ShowNodeStatus, ShowStatus

__all__ = ["Reign", "ShowPart", "status_of"]


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
    # When it was looked last whether there is a copy to be made for a limit that waits.
    copied_ns: int = 0


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
    # The node that was to have the show last, while the engine of its controller fails.
    passed_to: str = ""
    # Whether its engine has ended, and by an error.
    has_left: bool = False
    has_failed: bool = False
    error: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    is_warned: bool = False
    # How many frames did not fit their period, as far as was said.
    over_period: int = 0
    # What operators see of it when its machine has ended.
    last: ShowStatus | None = None

    def close(self) -> None:
        """The server takes part no more, and its socket is served no more."""
        if self.engine is not None:
            self.engine.stop()
        self.traffic.port.close()


def status_of(part: ShowPart, drops: int, now_ns: int) -> ShowStatus:
    """What there is of it; of frames that were dropped the newest `drops` ranges."""
    if part.last is not None:
        return part.last.model_copy(update={"drops": part.last.drops[-drops:] if drops else []})
    machine, reign = part.traffic.machine, part.reign
    newest = None if machine is None else machine.newest
    acknowledged = {} if machine is None else machine.acknowledged()
    held = set[str]() if reign is None else reign.held
    heard_ns = part.traffic.heard_ns
    nodes = [
        ShowNodeStatus(
            name=name,
            host=peer.host,
            port=peer.port,
            heard_ms=(now_ns - heard_ns[name]) // 1_000_000 if name in heard_ns else None,
            acknowledged=acknowledged.get(name),
            held=name in held,
        )
        for name, peer in sorted(part.traffic.peers.items())
    ]
    return ShowStatus(
        entity=part.entity,
        epoch=part.epoch,
        controller=part.controller,
        is_controller=reign is not None,
        newest=None if newest is None else newest.head.frame,
        limit=None if reign is None else reign.limit.allowed,
        engine=_engine_status(part, now_ns),
        nodes=nodes,
        held=sorted(held),
        counters={} if machine is None else dict(machine.counters),
        not_applied=0 if machine is None else machine.not_applied(),
        drops=[] if machine is None or not drops else [ShowDrop(**asdict(each)) for each in machine.drops()[-drops:]],
    )


def _engine_status(part: ShowPart, now_ns: int) -> EngineStatus:
    engine, mailbox = part.engine, part.traffic.mailbox
    is_running = engine is not None and engine.is_running
    state = "running" if is_running else "waiting"
    if part.has_left:
        state = "failed" if part.has_failed else "ended"
    since_ns = mailbox.busy_since_ns if is_running else None
    return EngineStatus(
        state=state,
        error=part.error,
        busy_ms=0 if since_ns is None else (now_ns - since_ns) // 1_000_000,
        counters=dict(part.counters if engine is None else engine.counters),
        events_dropped=dict(mailbox.dropped),
    )
