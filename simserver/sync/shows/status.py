"""What operators see of a show at a node: who takes part, what the engine does, which frames were dropped."""

from typing import Final

from pydantic import BaseModel, Field

__all__ = ["MAX_DROPS_SHOWN", "EngineStatus", "ShowDrop", "ShowNodeStatus", "ShowRefused", "ShowStatus"]

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
    counters: dict[str, int] = Field(description="as in docs/explanation/followers.md")
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
    not_applied: int = Field(description="how many frames this node has not applied, whatever the reason")
    drops: list[ShowDrop] = Field(description="the newest ones, oldest first; a controller knows those of all nodes")
