"""What operators see of a show at a node: who takes part, what the engine does, which frames were dropped."""

from dataclasses import asdict
from typing import Final

from pydantic import BaseModel, Field

from batonpass.simserver.sync.shows.show_part import ShowPart

__all__ = ["MAX_DROPS_SHOWN", "EngineStatus", "ShowDrop", "ShowNodeStatus", "ShowRefused", "ShowStatus", "status_of"]

MAX_DROPS_SHOWN: Final = 4_096


class ShowRefused(Exception):
    """An operator's act is not done; `code` is stable, `value` is what the sentence is about."""

    def __init__(self, code: str, sentence: str, value: str) -> None:
        super().__init__(sentence)
        self.code: Final = code
        self.value: Final = value


class EngineStatus(BaseModel):
    """Of the engine of this node."""

    state: str = Field(description="`waiting` (for a show), `running`, `ended`, or `failed`")
    error: str = Field(description="what it failed with; the log has the rest")
    busy_ms: int = Field(description="for how long it has not asked for anything: one that hangs does so no more")
    counters: dict[str, int] = Field(description="as in docs/followers.md")
    events_dropped: dict[str, int] = Field(description="events that it never saw, by kind")


class ShowNodeStatus(BaseModel):
    """Of one node, as this one knows it."""

    name: str
    host: str
    port: int
    heard_ms: int | None = Field(description="how long ago it was heard of; null: never")
    acknowledged: int | None = Field(description="at the controller: the newest frame that it has whole")
    held: bool = Field(description="whether an operator holds it: the controller ignores it")


class ShowDrop(BaseModel):
    """Frames that a node has not applied, both ends included."""

    node: str
    first: int
    last: int
    reason: str


class ShowStatus(BaseModel):
    """Of one show, as this node knows it."""

    entity: str
    epoch: int = Field(description="of its datagrams; 0 before the first one")
    controller: str
    is_controller: bool
    newest: int | None = Field(description="the newest frame whose state this node has")
    limit: int | None = Field(description="at the controller: frames below it may be sent")
    engine: EngineStatus
    nodes: list[ShowNodeStatus]
    held: list[str] = Field(description="at the controller: the nodes that operators hold, also those that are gone")
    counters: dict[str, int] = Field(description="what happened how often at this node")
    drops: list[ShowDrop] = Field(description="the newest ones, oldest first; a controller knows those of all nodes")


def status_of(part: ShowPart, drops: int, now_ns: int) -> ShowStatus:
    """Of this part; of frames that were dropped the newest `drops` ranges."""
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
